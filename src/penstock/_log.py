"""The logger `penstock`. A library prints nothing unasked: what is logged is seen by those who give it a handler."""

from __future__ import annotations

import logging

__all__ = ["log"]

log = logging.getLogger("penstock")
log.addHandler(logging.NullHandler())
