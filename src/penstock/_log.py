"""The logger `penstock`. A library prints nothing unasked: only those who give the logger a handler see what it logs."""

from __future__ import annotations

import logging

__all__ = ["log"]

log = logging.getLogger("penstock")
log.addHandler(logging.NullHandler())
