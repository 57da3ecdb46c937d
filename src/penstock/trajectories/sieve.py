"""The lines of a long span that are worth reading.

A summary of a few hundred tokens quotes some twenty lines, so most of what gives way need not be read closely: only
the lines that hold a value that is needed later, what people said, and how the assistant's turns begin.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.conversation.message import Message, Reasoning, Role, Summary, Text, ToolCall, ToolResult
from penstock.trajectories.needs import Finder
from penstock.writing.excerpts import lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.conversation.message import Part
    from penstock.redaction import Redactor

__all__ = ["sifted"]

_LINES_PER_VALUE = 3  # the newest
_MOST_CHARACTERS = 24_000  # of all lines together
_SPOKEN = 1_200  # characters of the beginning of what a person said,
_BEGUN = 180  # and of what the assistant did
_MOST_BEGINNINGS = 8_000
_LONG_LINE = 260
_BEFORE, _AFTER = 90, 140  # characters around a value in a long line
_OPENS_JSON = re.compile(r"\s*[{\[]").match


def sifted(messages: Sequence[Message], needed: Sequence[str], redactor: Redactor) -> list[Message]:
    """The messages with only the lines worth reading in them, free of secrets; the newest lines come first to fit."""
    sieve = _Sieve(needed, redactor)
    return [sieve.message(message) for message in reversed(messages)][::-1]


class _Sieve:
    def __init__(self, needed: Sequence[str], redactor: Redactor) -> None:
        self._finder = Finder(needed) if needed else None
        self._left = [_LINES_PER_VALUE] * len(needed)
        self._room = _MOST_CHARACTERS
        self._beginnings = _MOST_BEGINNINGS
        self._redactor = redactor

    def message(self, message: Message) -> Message:
        """The message as it is to be read."""
        parts = [new for part in message.parts if (new := self._part(message.role, part)) is not None]
        return Message(message.role, tuple(parts))

    def _part(self, role: Role, part: Part) -> Part | None:
        match part:
            case Text(text=text):
                beginning = _SPOKEN if role is Role.USER else min(_BEGUN, self._beginnings)
                self._beginnings -= 0 if role is Role.USER else beginning
                lines = self._lines(text, beginning)
                return Text(lines) if lines else None
            case Reasoning(text=text):
                lines = self._lines(text, 0)
                return Text(lines) if lines else None
            case ToolCall(call_id=call_id, name=name, arguments=arguments):
                lines = self._lines(arguments, 0)
                return ToolCall(call_id, name, lines) if lines else None
            case ToolResult(call_id=call_id, text=text):
                lines = self._lines(text, 0)
                return ToolResult(call_id, lines) if lines else None
            case Summary():
                return part
            case _:
                return None

    def _lines(self, text: str, beginning: int) -> str:
        """The first characters, and the lines with values that are needed; all of it without secrets.

        Most texts have nothing new to say: those are looked through and not read.
        """
        wanted = self._is_wanted(text)
        if not wanted and not beginning:
            return ""
        # The whole text first: half of a secret could not be told from a word.
        clean = self._redactor.redact(text)
        if not beginning and _OPENS_JSON(clean):
            clean = lay_out(clean).text
        start = clean if len(clean) <= beginning else clean[:beginning].rsplit("\n", 1)[0]
        if not beginning:
            start = ""
        found = [line for line in self._hits(clean, len(start)) if line] if wanted else []
        return "\n".join([start, *found] if start else found)

    def _is_wanted(self, text: str) -> bool:
        """Whether a value stands in the text of which more lines are wanted."""
        if self._finder is None or self._room <= 0:
            return False
        left = self._left
        return any(left[which] for which, _, _ in self._finder.find(text))

    def _hits(self, text: str, done: int) -> Iterator[str]:
        """The lines, or windows of long lines, with values that are needed, behind the first `done` characters."""
        left = self._left
        assert self._finder is not None  # noqa: S101 - the caller looked
        for which, start, end in self._finder.find(text):
            if not left[which]:
                continue
            left[which] -= 1
            if start < done:
                continue
            begin, stop = _line(text, start, end)
            begin = max(done, begin)
            done = stop
            self._room -= stop - begin
            yield text[begin:stop]
            if self._room <= 0:
                return


def _line(text: str, start: int, end: int) -> tuple[int, int]:
    """The line around a value; of a long one a part, cut at spaces where there are some."""
    begin = text.rfind("\n", max(0, start - _LONG_LINE), start) + 1
    stop = text.find("\n", end, end + _LONG_LINE)
    if not begin and start > _LONG_LINE:
        begin = start - _LONG_LINE
    if stop < 0:
        stop = min(len(text), end + _LONG_LINE)
    if stop - begin <= _LONG_LINE:
        return begin, stop
    first, last = max(begin, start - _BEFORE), min(stop, end + _AFTER)
    if first > begin and (space := text.find(" ", first, start)) >= 0:
        first = space + 1
    if last < stop and (space := text.rfind(" ", end, last)) >= 0:
        last = space
    return first, last
