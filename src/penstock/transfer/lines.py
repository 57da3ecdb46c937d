"""Lines of JSON, each on its own: a broken one is told by its number and the others are read."""

from __future__ import annotations

import calendar
import re
from typing import Any, NamedTuple

from penstock.conversation.wire import parse_json
from penstock.transfer.recorded import LineFault

__all__ = ["JsonLine", "read_lines", "read_moment"]

_BOM = b"\xef\xbb\xbf"
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(\.\d{1,9})?)?\s*(?:Z|([+-])(\d\d):?(\d\d))?\Z",
    re.ASCII,
)


class JsonLine(NamedTuple):
    """A line: its number from 1, its text, and the object it holds."""

    number: int
    raw: bytes
    value: dict[str, Any]


def read_lines(data: bytes) -> tuple[list[JsonLine], list[LineFault]]:
    """Returns the lines that hold an object, and the faults of those that do not. Blank lines are skipped."""
    lines: list[JsonLine] = []
    faults: list[LineFault] = []
    for number, line in enumerate(data.removeprefix(_BOM).split(b"\n"), start=1):
        raw = line.strip(b" \t\r\0")  # a crash of the machine leaves NULs at the end of a file
        if not raw:
            continue
        try:
            value = parse_json(raw)
        except ValueError:
            faults.append(LineFault(number, "it is not JSON (is it cut off?)"))
            continue
        if isinstance(value, dict):
            lines.append(JsonLine(number, raw, value))
        else:
            faults.append(LineFault(number, "it is not a JSON object"))
    return lines, faults


def read_moment(value: Any) -> float | None:
    """Returns the seconds since 1970 of an ISO time, in UTC if it names no zone; None for other values."""
    found = _ISO.match(value) if isinstance(value, str) else None
    if found is None:
        return None
    year, month, day, hour, minute = (int(found[n]) for n in range(1, 6))
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    seconds = calendar.timegm((year, month, day, hour, minute, int(found[6] or 0)))
    away = (int(found[9]) * 60 + int(found[10])) * 60 if found[8] else 0
    return seconds + float(found[7] or 0) - (away if found[8] == "+" else -away)
