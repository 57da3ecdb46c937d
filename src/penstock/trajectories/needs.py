"""What the turns that stay take from those that give way.

A trajectory has its future beside it: the values that the assistant uses later, without having been told them again,
are what a summary must hold. Trained on a trajectory without them, a model learns to invent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import ahocorasick_rs

from penstock.conversation.message import Reasoning, Role, Text, ToolCall, ToolResult
from penstock.writing.values import PHRASE, tokens_of, values_of_each

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.conversation.message import Message

__all__ = ["Finder", "needed_values", "texts_of"]

_MOST_CHARACTERS = 40_000  # of what comes after: the nearest turns use most of what was
_LONGEST_VALUE = 120
_SURROGATE = re.compile("[\ud800-\udfff]")


class Finder:
    """Finds whole occurrences of many values in a text, in one pass."""

    def __init__(self, values: Sequence[str]) -> None:
        self._automaton = ahocorasick_rs.AhoCorasick(
            values, matchkind=ahocorasick_rs.MatchKind.LeftmostLongest, store_patterns=False
        )

    def find(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Which value stands from where up to where. One inside a longer word does not count."""
        try:
            hits = self._automaton.find_matches_as_indexes(text)
        except UnicodeEncodeError:  # a lone surrogate
            hits = self._automaton.find_matches_as_indexes(_SURROGATE.sub("\ufffd", text))
        last = len(text)
        for which, start, end in hits:
            if (start and text[start - 1].isalnum() and text[start].isalnum()) or (
                end < last and text[end].isalnum() and text[end - 1].isalnum()
            ):
                continue
            yield which, start, end


def needed_values(before: Sequence[Message], after: Sequence[Message]) -> list[str]:
    """The values that the assistant uses in `after` and that neither `before` nor anybody in `after` told it first."""
    first_use = _first_uses(after)
    if not first_use:
        return []
    values = list(first_use)
    finder = Finder(values)
    told = {which for message in before for text in texts_of(message) for which, _, _ in finder.find(text)}
    for place, message in enumerate(after):
        if message.role is not Role.ASSISTANT:
            told.update(
                which
                for text in texts_of(message)
                for which, _, _ in finder.find(text)
                if first_use[values[which]] > place
            )
    return [value for which, value in enumerate(values) if which not in told]


def _first_uses(messages: Sequence[Message]) -> dict[str, int]:
    """The values that the assistant uses, each with the place of the first message that does."""
    uses: dict[str, int] = {}
    room = _MOST_CHARACTERS
    for place, message in enumerate(messages):
        for text in texts_of(message) if message.role is Role.ASSISTANT else ():
            for value in _values(text[:room]):
                uses.setdefault(value, place)
            room -= len(text)
            if room <= 0:
                return uses
    return uses


def texts_of(message: Message) -> Iterator[str]:
    """Every text in a message: words, thoughts, arguments, results."""
    for part in message.parts:
        if isinstance(part, (Text, Reasoning, ToolResult)):
            yield part.text
        elif isinstance(part, ToolCall):
            yield part.arguments


def _values(text: str) -> Iterable[str]:
    distinct = dict.fromkeys([*tokens_of(text), *PHRASE.findall(text)])
    values, _ = values_of_each(distinct)
    return [value for value in values if len(value) <= _LONGEST_VALUE and not _SURROGATE.search(value)]
