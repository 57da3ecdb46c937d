"""Reading numbers and waits out of what a provider wrote."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["NUMBER", "read_duration", "read_number", "read_wait"]

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
    """The count that a match of NUMBER says."""
    scale = _SCALE.get(text[-1])
    if scale is not None:
        return round(float(text[:-1]) * scale)
    return int(text.replace(",", "").replace("_", ""))


def read_duration(text: str) -> float | None:
    """Seconds of "6m0s", "1.5s", "644ms", "9m38.016s", "86400 seconds"; None where there is no unit."""
    steps = [_seconds(match) for match in _STEP.finditer(text.lower())]
    return sum(steps) if steps else None


def read_wait(text: str) -> float | None:
    """How long a text such as "Please try again in 20s" asks to wait. The text is in lower case."""
    match = _WAIT.search(text)
    return read_duration(match[1]) if match else None


def _seconds(match: re.Match[str]) -> float:
    units = ("ms", "s", "m", "h", "d")
    unit = next(unit for unit, group in zip(units, match.groups()[1:], strict=True) if group)
    return float(match[1]) * _UNIT_SECONDS[unit]
