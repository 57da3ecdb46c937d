"""The retry policy, and the loop that follows it.

The policy is pure. Clock, sleep and randomness come from a `Pace`, so that a test needs neither luck nor time.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from penstock.errors import ErrorKind, ProviderError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.errors import ErrorClass

__all__ = ["CERTIFICATE", "Pace", "RetryPolicy", "next_delay", "retry"]

_T = TypeVar("_T")

CERTIFICATE = "certificate"
"""The code of a network failure that will be the same a minute later."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The number of retries and the delays between them.

    The wait before try n + 1 is anything up to `base_seconds` × 2^(n - 1), and at most `cap_seconds`. After a rate limit it
    is at least half of `rate_limit_seconds` × 2^(n - 1): such limits count by the minute, and to ask at once only counts
    against them. If the provider says how long to wait, that is waited, with up to a tenth of it on top; if it is more
    than `longest_wait_seconds`, the request is not repeated.
    """

    tries: int = 3
    base_seconds: float = 0.5
    rate_limit_seconds: float = 6.0
    cap_seconds: float = 20.0
    longest_wait_seconds: float = 60.0


DEFAULT_POLICY = RetryPolicy()


class Pace(NamedTuple):
    """The clock and the randomness of retries, so that tests can replace them."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    rng: random.Random = random.Random()  # noqa: S311 - spreads retries, guards nothing


def next_delay(
    attempt: int, failure: ErrorClass, rng: random.Random, policy: RetryPolicy = DEFAULT_POLICY
) -> float | None:
    """Seconds to wait after try number `attempt` (from 1) failed so, or None if it is not to be repeated."""
    if attempt >= policy.tries or not failure.kind.transient or failure.code == CERTIFICATE:
        return None
    asked = failure.retry_after_seconds
    if asked is not None and asked > 0:
        return asked * (1 + rng.random() / 10) if asked <= policy.longest_wait_seconds else None
    # Many clients that failed together come back spread over the whole interval, or over its second half.
    is_limited = failure.kind is ErrorKind.RATE_LIMIT
    base, least = (policy.rate_limit_seconds, 0.5) if is_limited else (policy.base_seconds, 0.0)
    share = least + rng.random() * (1 - least)
    return share * min(policy.cap_seconds, base * 2.0 ** min(attempt - 1, 60))


async def retry(
    ask: Callable[[float | None], Awaitable[_T]],
    *,
    policy: RetryPolicy = DEFAULT_POLICY,
    pace: Pace | None = None,
    timeout_seconds: float | None = None,
    on_wait: Callable[[float, ErrorClass], None] | None = None,
) -> _T:
    """Returns what `ask` returns, at the first try or a later one.

    `ask` is told how many seconds are left for it, None for no limit. Raises the last ProviderError when the
    policy gives up or when the wait would not fit into `timeout_seconds`, which bounds all tries and waits. `on_wait` hears
    of each wait before it begins.
    """
    pace = pace or Pace()
    deadline = None if timeout_seconds is None else pace.now() + timeout_seconds
    attempt = 1
    while True:
        try:
            return await ask(None if deadline is None else max(0.001, deadline - pace.now()))
        except ProviderError as error:
            delay = next_delay(attempt, error.failure, pace.rng, policy)
            if delay is None or (deadline is not None and pace.now() + delay >= deadline):
                raise
            if on_wait is not None:
                on_wait(delay, error.failure)
        await pace.sleep(delay)
        attempt += 1
