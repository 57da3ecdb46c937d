"""How long a model that failed is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ErrorKind

if TYPE_CHECKING:
    from penstock.errors import ErrorClass

__all__ = ["Cooldown"]

_FIRST_SECONDS = 30.0
_LONGEST_SECONDS = 600.0
_NOBODY_THERE = {ErrorKind.AUTH, ErrorKind.QUOTA}


class Cooldown(msgspec.Struct, frozen=True):
    """Until when a model rests, and after how many failures in a row."""

    until: float = 0.0
    failures: int = 0

    def after(self, failure: ErrorClass, now: float) -> Cooldown:
        """Longer with each passing failure; at once the longest where there is no way in; else no rest at all."""
        if failure.kind in _NOBODY_THERE:
            return Cooldown(now + _LONGEST_SECONDS, self.failures + 1)
        if not failure.kind.transient:
            return self
        seconds = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2**self.failures)
        return Cooldown(now + max(seconds, failure.retry_after_seconds or 0.0), self.failures + 1)

    def left(self, now: float) -> float:
        """Seconds until it may be asked again."""
        return max(0.0, self.until - now)
