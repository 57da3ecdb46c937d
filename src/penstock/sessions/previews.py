"""Chooses the tool results that are too large for the context, and writes what stands in their place.

A result over its limit is stored. Where all results of a turn are too much together, the largest are stored first until
they are not. In place of a stored result stands its beginning, cut at a line, with its size and the handle by which all
of it can be read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.settings import ToolsSettings

__all__ = [
    "LEAST_CHARS",
    "LargeResult",
    "ResultLimits",
    "choose_for_store",
    "find_stored_handles",
    "scale_limits",
    "write_preview",
]

LEAST_CHARS = 60  # of what stands in place of a result, however little room there is
_CHARS_PER_TOKEN = 4
_RESULT_SHARE, _TURN_SHARE = 0.15, 0.30  # of the window
_LEAST_RESULT, _LEAST_TURN = 8_000, 16_000  # characters, however small the window is
_NOTE_CHARS = 160  # what a note about a stored result takes at most, with a tool that reads it
_SHORTER = (1, 4, 16, 0)  # previews, where many results are too much together: whole, a quarter of it …
_READ_AHEAD = 20_000  # characters behind the beginning that are redacted with it: no half of a secret is left
_STORED = re.compile(r"stored as (r[0-9a-f]{12})\b")


class ResultLimits(msgspec.Struct, frozen=True):
    """The most characters of one result, of all results of a turn, and of a preview."""

    result_chars: int
    turn_chars: int
    preview_chars: int


class LargeResult(msgspec.Struct, frozen=True):
    """A result as it came, with its tool's own limit, None where it has none.

    One that `stays` is never stored: it reads back what was stored before. One that is `last` is stored only where that
    of all others is not enough.
    """

    text: str
    limit_chars: int | None
    last: bool = False
    stays: bool = False


def scale_limits(tools: ToolsSettings, window_tokens: int | None) -> ResultLimits:
    """Returns the limits of the settings, scaled down where the window is small."""
    result, turn = tools.result_chars, tools.turn_chars
    if window_tokens is not None:
        window_chars = window_tokens * _CHARS_PER_TOKEN
        result = min(result, max(int(_RESULT_SHARE * window_chars), _LEAST_RESULT))
        turn = min(turn, max(int(_TURN_SHARE * window_chars), _LEAST_TURN))
    return ResultLimits(result, turn, tools.preview_chars)


def choose_for_store(
    results: Sequence[LargeResult], limits: ResultLimits, spent_chars: int = 0
) -> dict[int, int]:
    """Returns the places of the results to store, each with the characters that its preview may have.

    `spent_chars` are those of results of the same turn that are in the log already. After it all results of the turn are
    within the limit, but for what stays and for LEAST_CHARS of each.
    """
    room = limits.preview_chars + _NOTE_CHARS
    stored = {
        place: max(LEAST_CHARS, min(room, one.limit_chars))
        for place, one in enumerate(results)
        if one.limit_chars is not None and len(one.text) > one.limit_chars and not one.stays
    }
    sizes = {place: stored.get(place, len(one.text)) for place, one in enumerate(results)}
    order = sorted(
        (place for place, one in enumerate(results) if not one.stays),
        key=lambda place: (results[place].last, -len(results[place].text)),
    )
    for share in _SHORTER:
        room = limits.preview_chars // share + _NOTE_CHARS if share else LEAST_CHARS
        for place in order:
            if spent_chars + sum(sizes.values()) <= limits.turn_chars:
                return stored
            if room < sizes[place]:
                stored[place] = sizes[place] = room
    return stored


def write_preview(
    text: str, room_chars: int, handle: str, redact: Callable[[str], str], recall_tool: str | None = None
) -> str:
    """Returns the text that stands for another: its beginning, redacted, and a note, in at most `room_chars` characters.

    Without a handle the note says that the rest could not be kept.
    """
    lines = text.count("\n") + 1
    size = f"{len(text):,} characters in {lines:,} line{'s' if lines > 1 else ''}"
    if not handle:
        note = f"[the result had {size}; the rest could not be kept]"
    else:
        reads = f"; {recall_tool} reads it" if recall_tool else ""
        note = f"[{size}, of which this is the beginning; all of it is stored as {handle}{reads}]"
    if len(note) >= room_chars:
        return (
            f"[{len(text):,} characters stored as {handle}]"
            if handle
            else f"[{len(text):,} characters, not kept]"
        )
    beginning = _cut(redact(text[: room_chars + _READ_AHEAD]), room_chars - len(note) - 1)
    return f"{beginning}\n{note}" if beginning else note


def find_stored_handles(text: str) -> tuple[str, ...]:
    """Returns the handles that previews in a text name."""
    return tuple(dict.fromkeys(_STORED.findall(text))) if "stored as r" in text else ()


def _cut(text: str, most: int) -> str:
    """Returns the beginning of the text, up to a line end where that keeps half of it."""
    if len(text) <= most:
        return text
    head = text[:most]
    at = head.rfind("\n")
    return head[:at] if at > most // 2 else head
