"""Finds needles: values from before a compaction that the assistant uses after it, without being told them again.

The patterns here are not those by which a compaction chooses what to keep, so that it is not judged by itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.recall.passages import cut_passages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.conversation.message import Message

__all__ = ["Recalled", "SpokenText", "find_needed", "join_passages", "places", "values_in"]

_VALUE = re.compile(r"(?:https?://)?[\w@./#$+-]{5,160}")
_TELLING = re.compile(r"\d|\w[_/@.]\w|[a-z][A-Z]")


class SpokenText(NamedTuple):
    """A message as text, and whether the assistant said it (else it was told)."""

    text: str
    by_assistant: bool


class Recalled(msgspec.Struct, frozen=True):
    """Values that were needed after compactions, and how many of them the views still held."""

    compactions: int = 0
    needed: int = 0
    kept: int = 0

    @property
    def share(self) -> float | None:
        """The share that was kept; None where nothing was needed."""
        return self.kept / self.needed if self.needed else None

    def __add__(self, other: Recalled) -> Recalled:
        return Recalled(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


def values_in(text: str) -> list[str]:
    """Returns what a reader would copy rather than remember: paths, names, ids, long numbers."""
    found = dict.fromkeys(match.strip("./-+") for match in _VALUE.findall(text))
    return [value for value in found if len(value) >= 5 and _TELLING.search(value)]


def places(value: str, text: str) -> Iterator[int]:
    """Returns where the value stands as a word of its own."""
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        if not _is_wordy(text[at - 1 : at]) and not _is_wordy(text[end : end + 1]):
            yield at
        at = text.find(value, at + 1)


def find_needed(spoken: Sequence[SpokenText], cut: int, end: int) -> set[str]:
    """Returns the values from before `cut` that the assistant is the first to say again between `cut` and `end`."""
    before: set[str] = set()
    for message in spoken[:cut]:
        before.update(values_in(message.text))
    found: set[str] = set()
    told: set[str] = set()
    for message in spoken[cut:end]:
        fresh = [value for value in values_in(message.text) if value in before and value not in told]
        if message.by_assistant:
            found.update(fresh)
        told.update(fresh)
    return found


def _is_wordy(character: str) -> bool:
    return character.isalnum() or character == "_"


def join_passages(message: Message) -> str:
    """Returns all that a search can find of a message, as one text."""
    return "\n".join(passage.text for passage in cut_passages(message))
