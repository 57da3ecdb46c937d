"""Text on the wire that holds more than words: where each part of it begins and ends.

Text outside every segment (line ends around a mark, tags) is kept as it is when a segment is replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.conversation import mark
from penstock.conversation.message import Part, Summary, Text, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Segment", "marked_segments", "replace_segments", "text_of", "text_segment"]


class Segment(NamedTuple):
    """A part and the slice of the text that it was read from."""

    part: Part
    start: int
    end: int


def marked_segments(text: str) -> list[Segment]:
    """The text as words, and the handoffs that our mark shows in it."""
    found = mark.find(text) if mark.OPENING in text else None
    if found is None:
        return [Segment(Text(text), 0, len(text))]
    segments: list[Segment] = []
    at = 0
    while found is not None:
        segments += text_segment(text, at, found.start)
        summary = Summary(found.text, found.version, found.attributes)
        segments.append(Segment(summary, found.start, found.end))
        at = found.end
        found = mark.find(text, at)
    return segments + text_segment(text, at, len(text))


def text_segment(text: str, start: int, end: int) -> list[Segment]:
    """The words between two other segments, without the line ends that part them; none where all is blank."""
    for _ in range(2):  # we write two line ends between a mark and the words beside it, and take no more away
        if 0 < start < end and text[start] == "\n":
            start += 1
        if start < end < len(text) and text[end - 1] == "\n":
            end -= 1
    words = text[start:end]
    return [] if not words or words.isspace() else [Segment(Text(words), start, end)]


def replace_segments(text: str, segments: Iterable[Segment], written: Mapping[int, str]) -> str:
    """The text with segment i replaced by written[i]."""
    pieces: list[str] = []
    at = 0
    for number, segment in enumerate(segments):
        if number in written:
            pieces += (text[at : segment.start], written[number])
            at = segment.end
    pieces.append(text[at:])
    return "".join(pieces)


def text_of(part: Part) -> str:
    """Returns the part as plain text on the wire. Raises TypeError for a part that is no text."""
    if isinstance(part, Summary):
        return mark.wrap(part.text, part.attributes, part.version)
    if isinstance(part, Text | ToolResult):
        return part.text
    raise TypeError(f"{type(part).__name__} cannot stand as plain text")
