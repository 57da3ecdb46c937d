"""Limits callers: requests per minute, requests at the same time, and tokens per day.

The settings limit, for each caller, what the caller's key does not. All decisions are made in memory: counts of requests
are this process's own, counts of tokens are shared through the store within a few seconds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from penstock.errors import ErrorKind
from penstock.gateway.keys import Refusal
from penstock.sessions.retention import DAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.gateway.keys import KeyRules, RefusalReason
    from penstock.settings import GatewaySettings

__all__ = ["Limits", "TokensSpent"]

_MINUTE_SECONDS: Final = 60.0
_MOST_BUCKETS: Final = 10_000  # callers without a key can be as many as they like


class TokensSpent(Protocol):
    """The tokens that each owner has used today. `KeyRing` is one."""

    def spent_today(self, owner: str, now: float) -> int:
        """Returns the tokens since midnight, UTC."""

    def spend(self, owner: str, tokens: int, now: float) -> None:
        """Adds tokens."""


class Limits:
    """The limits of all callers of one gateway. For the event loop: nothing waits, and it is not for threads."""

    def __init__(
        self,
        settings: GatewaySettings,
        spending: TokensSpent,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._spending = spending
        self._clock = clock
        self._wall_clock = wall_clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """By owner: the requests that were left, and when."""
        self._open: dict[str, int] = {}
        self.open_total = 0
        """Requests under way."""

    def admit(self, owner: str, rules: KeyRules) -> Refusal | None:
        """Counts a request in, or returns why it may not come in. Every request that came in is to be released."""
        settings = self._settings
        if self.open_total >= settings.max_requests:
            return _refuse(
                "busy", "the gateway is busy: too many requests are under way (gateway.max_requests)", 1
            )
        at_once = rules.requests_at_once or settings.requests_at_once
        if at_once is not None and self._open.get(owner, 0) >= at_once:
            return _refuse("busy", f"at most {at_once:,} requests of this caller may be under way at once", 1)
        budget = rules.tokens_per_day or settings.tokens_per_day
        if budget is not None:
            now = self._wall_clock()
            if self._spending.spent_today(owner, now) >= budget:
                until_midnight = int(DAY_SECONDS - now % DAY_SECONDS) + 1
                text = f"the {budget:,} tokens of today are used up; the next day begins at midnight UTC"
                return _refuse("budget", text, until_midnight)
        per_minute = rules.requests_per_minute or settings.requests_per_minute
        if per_minute is not None and (wait := self._take(owner, per_minute)):
            return _refuse("rate", f"at most {per_minute:,} requests per minute", int(wait) + 1)
        self.open_total += 1
        self._open[owner] = self._open.get(owner, 0) + 1
        return None

    def release(self, owner: str) -> None:
        """Counts a request out that came in."""
        self.open_total -= 1
        left = self._open[owner] - 1
        if left:
            self._open[owner] = left
        else:
            del self._open[owner]

    def spend(self, owner: str, rules: KeyRules, tokens: int) -> None:
        """Takes tokens off the budget of a caller, where it has one."""
        if rules.tokens_per_day or self._settings.tokens_per_day:
            self._spending.spend(owner, tokens, self._wall_clock())

    def _take(self, owner: str, per_minute: int) -> float:
        """Takes a request out of the owner's bucket; returns 0, or the seconds until there is one.

        A full bucket holds the requests of a minute, and fills evenly.
        """
        now = self._clock()
        each = _MINUTE_SECONDS / per_minute
        left, at = self._buckets.get(owner, (float(per_minute), now))
        left = min(float(per_minute), left + max(0.0, now - at) / each)
        if left < 1.0:
            return (1.0 - left) * each
        if owner not in self._buckets and len(self._buckets) >= _MOST_BUCKETS:
            self._forget_idle(now)
        self._buckets[owner] = left - 1.0, now
        return 0.0

    def _forget_idle(self, now: float) -> None:
        """Forgets callers that have not asked for a minute: their buckets are full. Else the oldest half goes."""
        kept = {owner: one for owner, one in self._buckets.items() if now - one[1] < _MINUTE_SECONDS}
        if len(kept) >= _MOST_BUCKETS:
            newest = sorted(kept.items(), key=lambda item: item[1][1])[len(kept) // 2 :]
            kept = dict(newest)
        self._buckets = kept


def _refuse(reason: RefusalReason, message: str, seconds: int) -> Refusal:
    kind = ErrorKind.QUOTA if reason == "budget" else ErrorKind.RATE_LIMIT
    return Refusal(status=429, kind=kind, reason=reason, message=message, retry_after_seconds=seconds)
