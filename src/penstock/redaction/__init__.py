"""Redaction: no secret stands in a text that we write.

`Redactor.find` says where the secrets in a text are, `Redactor.redact` replaces them by `[REDACTED]` and
leaves their names. Pure: the values of the process's own secrets come from the caller, who asks
`secret_variables` which they are.
"""

from __future__ import annotations

from penstock.redaction.redactor import Redactor, secret_variables
from penstock.redaction.secret import REDACTED, Detector, Secret

__all__ = ["REDACTED", "Detector", "Redactor", "Secret", "secret_variables"]
