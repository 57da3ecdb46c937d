"""Cuts a message into passages, each of which is an entry of the index and a unit of search.

Each voice in a message (its text, each call, each result) is laid out for reading first: JSON as lines of
"key value", without printed line numbers, empty lines and indentation. It is then cut at line borders. The
same message always gives the same passages, so an index needs to keep only their numbers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.dialects.wire_kinds import read_words
from penstock.conversation.message import Opaque, Reasoning, Role, Summary, Text, ToolCall, ToolResult
from penstock.writing.excerpts import lay_out
from penstock.writing.reading import Speaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.conversation.message import Message

__all__ = [
    "INDEX_VERSION",
    "PASSAGE_CHARACTERS",
    "Passage",
    "cut_again",
    "cut_at_lines",
    "cut_passages",
    "make_readable",
]

PASSAGE_CHARACTERS = 1_000
INDEX_VERSION = 2
"""The version of what an index keeps.

Another way to cut passages or to make terms needs the next number: then stores index anew.
"""
_REMEMBERED = 512  # texts: more messages than a search looks at
_LONGEST_REMEMBERED = 16_000  # characters
_BORDERS = (". ", "; ", "}, ", ", ", " ")
_has_word = re.compile(r"\w").search
_SPEAKERS = {
    Role.USER: Speaker.USER,
    Role.ASSISTANT: Speaker.ASSISTANT,
    Role.TOOL: Speaker.RESULT,
    Role.SYSTEM: Speaker.SYSTEM,
}


class Passage(msgspec.Struct, frozen=True, gc=False):
    """A piece of one voice in a message.

    `voice` counts the voices of the message from 0; `call` names a call or result.
    """

    voice: int
    speaker: Speaker
    text: str
    call: str = ""


def cut_passages(message: Message) -> tuple[Passage, ...]:
    """Returns the passages of a message, in order. A message without words has none."""
    return _cut_voices(message, _cut_text)


def cut_again(message: Message) -> tuple[Passage, ...]:
    """Returns what `cut_passages` returns, and remembers texts of usual length: searches meet the same messages again."""
    return _cut_voices(
        message, lambda text: _remember_text(text) if len(text) <= _LONGEST_REMEMBERED else _cut_text(text)
    )


def _cut_voices(message: Message, cut: Callable[[str], Iterable[str]]) -> tuple[Passage, ...]:
    return tuple(
        Passage(number, speaker, piece, call)
        for number, (speaker, text, call) in enumerate(_split_voices(message))
        for piece in cut(text)
    )


def _cut_text(text: str) -> Iterable[str]:
    return cut_at_lines(make_readable(text), PASSAGE_CHARACTERS)


@lru_cache(maxsize=_REMEMBERED)
def _remember_text(text: str) -> tuple[str, ...]:
    return tuple(_cut_text(text))


def make_readable(text: str) -> str:
    """Returns the text laid out for reading.

    JSON as lines, no printed line numbers, no indentation, no empty lines.
    """
    lines = (line.strip() for line in lay_out(text).text.split("\n"))
    return "\n".join(line for line in lines if line and _has_word(line))


def cut_at_lines(text: str, size: int) -> Iterator[str]:
    """Returns the text in pieces of at most `size` characters, cut between lines, or inside a line that is too long."""
    held = ""
    for whole in text.split("\n"):
        line = whole
        if held and len(held) + len(line) + 1 > size:
            yield held
            held = ""
        while len(line) > size:
            at = _find_border(line, size)
            yield line[:at].rstrip()
            line = line[at:].lstrip()
        held = f"{held}\n{line}" if held else line
    if held:
        yield held


def _find_border(line: str, size: int) -> int:
    """Returns where to cut a line that is longer than `size`.

    That is the end of a sentence or clause, else a space, else `size`.
    """
    for border in _BORDERS:
        at = line.rfind(border, size // 2, size)
        if at > 0:
            return at + len(border)
    at = line.rfind(" ", 1, size)
    return at + 1 if at > 0 else size


def _split_voices(message: Message) -> Iterator[tuple[Speaker, str, str]]:
    for part in message.parts:
        match part:
            case Text(text=text):
                yield _SPEAKERS[message.role], text, ""
            case Reasoning(text=text):
                yield Speaker.ASSISTANT, text, ""
            case ToolCall(call_id=call_id, name=name, arguments=arguments):
                yield Speaker.CALL, f"{name}\n{lay_out(arguments).text}", call_id
            case ToolResult(call_id=call_id, text=text):
                yield Speaker.RESULT, text, call_id
            case Opaque():
                yield Speaker.RESULT, read_words(part), ""
            case Summary(text=text):
                yield Speaker.HANDOFF, text, ""
            case _:
                pass
