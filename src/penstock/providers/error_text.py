"""Reading numbers and waits out of what a provider wrote."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["NUMBER", "lower_headers", "read_duration", "read_number", "read_wait", "retry_after_seconds"]


NUMBER: Final = r"\d{1,3}(?:[,_]\d{3})+(?!\d)|\d{1,4}(?:\.\d{1,3})?\s?[km]\b|\d{1,15}"
"""A count of tokens as providers write it: 131072, 1,048,576, 200_000, 128k, 1m. For lower-cased text."""

_SCALE: Final = {"k": 1_000, "m": 1_000_000}

_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_STEP: Final = re.compile(
    r"(\d{1,12}(?:\.\d{1,12})?)\s?"
    r"(?:(ms|milliseconds?|msecs?)|(s|secs?|seconds?)|(m|mins?|minutes?)|(h|hrs?|hours?)|(d|days?))"
    r"(?![a-z])",
)
_WAIT: Final = re.compile(
    r"(?:try again|retry)(?: your request)?(?: in| after)(?: about| approximately)? "
    r"((?:\d{1,12}(?:\.\d{1,12})?\s?[a-z]{1,12},?\s?(?:and )?){1,5})",
)


def read_number(text: str) -> int:
    """Returns the count that a match of NUMBER says."""
    scale = _SCALE.get(text[-1])
    if scale is not None:
        return round(float(text[:-1]) * scale)
    return int(text.replace(",", "").replace("_", ""))


def read_duration(text: str) -> float | None:
    """Seconds of "6m0s", "1.5s", "644ms", "9m38.016s", "86400 seconds"; None if there is no unit."""
    steps = [_seconds(match) for match in _STEP.finditer(text.lower())]
    return sum(steps) if steps else None


def read_wait(text: str) -> float | None:
    """Returns the seconds that a text such as "Please try again in 20s" asks to wait. The text is in lower case."""
    match = _WAIT.search(text)
    return read_duration(match[1]) if match else None


def _seconds(match: re.Match[str]) -> float:
    units = ("ms", "s", "m", "h", "d")
    unit = next(unit for unit, group in zip(units, match.groups()[1:], strict=True) if group)
    return float(match[1]) * _UNIT_SECONDS[unit]


# How long a provider asks to wait: from headers, from fields of the body, from its text.
#
# No clock is read. A point in time counts only against the response's own `date` header.

_LONGEST_SECONDS: Final = 31 * 86_400.0
_EPOCH_SECONDS: Final = 1e9  # a number from here on is a point in time, not a wait
_EPOCH_MILLISECONDS: Final = 1e12
_RESET: Final = ("x-ratelimit-reset", "ratelimit-reset", "anthropic-ratelimit-")


def lower_headers(headers: Mapping[str, str] | Iterable[tuple[str, str]] | None) -> dict[str, str]:
    """Returns the headers by their names in lower case, as plain strings."""
    return {f"{name}".lower(): f"{value}".strip() for name, value in dict(headers or {}).items()}


def retry_after_seconds(
    headers: Mapping[str, str], *, waits: Iterable[str] = (), text: str = "", limited: bool = False
) -> float | None:
    """Seconds to wait before asking again, None if the provider does not say.

    `headers` and `text` are in lower case. What was said for this very case comes first: `retry-after-ms`,
    `retry-after`, then `waits` and `text`. The reset times of allowances, which many providers send with every
    response, count only for a rate limit (`limited`), and only of an allowance that is used up.
    """
    now = _moment(headers.get("date", ""))
    stated = (
        _number(headers.get("retry-after-ms", ""), 0.001),
        _wait(headers.get("retry-after", ""), now),
        *(_wait(wait, now) for wait in waits),
        read_wait(text),
        _reset(headers, now) if limited else None,
    )
    usable = (seconds for seconds in stated if seconds is not None and 0 <= seconds <= _LONGEST_SECONDS)
    return next((round(seconds, 3) for seconds in usable), None)


def _reset(headers: Mapping[str, str], now: datetime | None) -> float | None:
    """Returns the latest reset among the allowances of which nothing is left."""
    resets = [
        seconds
        for name, value in headers.items()
        if name.startswith(_RESET) and "reset" in name and not _something_left(headers, name)
        if (seconds := _wait(value, now)) is not None
    ]
    return max(resets, default=None)


def _something_left(headers: Mapping[str, str], reset: str) -> bool:
    left = _number(headers.get(reset.replace("reset", "remaining"), ""), 1.0)
    return left is not None and left > 0


def _wait(value: str, now: datetime | None) -> float | None:
    """Returns a wait in seconds, as a duration, or as a point in time: an HTTP date, an ISO date, or an epoch."""
    number = _number(value, 1.0)
    if number is None:
        duration = read_duration(value) if value[:1].isdigit() and "-" not in value else None
        return duration if duration is not None else _until(_moment(value), now)
    if number < _EPOCH_SECONDS:
        return number
    seconds = number / 1000 if number >= _EPOCH_MILLISECONDS else number
    return _until(_from_epoch(seconds), now)


def _until(moment: datetime | None, now: datetime | None) -> float | None:
    if moment is None or now is None:
        return None
    return max(0.0, (moment - now).total_seconds())


def _from_epoch(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _moment(value: str) -> datetime | None:
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = read(value)
        except (ValueError, TypeError, OverflowError):
            continue
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return None


def _number(value: str, scale: float) -> float | None:
    try:
        number = float(value) * scale
    except ValueError:
        return None
    return number if math.isfinite(number) else None
