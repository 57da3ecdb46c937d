"""Finds needles: values from before a compaction that the assistant uses after it, without being told them again.

The patterns here are not those by which a compaction chooses what to keep, so that it is not judged by itself. `look_up` measures
whether one search of the history brings back what a small view left out: a conversation is cut where just over half of its
text has passed, and the needles that a small view (the first messages and the newest) lacks are looked up by what stood
before their first use, without the value itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.conversation.message import Role
from penstock.recall.memory_index import MemoryIndex
from penstock.recall.passages import cut_passages
from penstock.recall.ranking import Wish

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.conversation.message import Message

__all__ = [
    "PLACES",
    "Lookups",
    "Recalled",
    "SpokenText",
    "find_needed",
    "join_passages",
    "look_up",
    "places",
    "values_in",
]

PLACES = (1, 5, 10, 20)
_CUT = 0.55
_VIEW = 0.10
_HEAD = 3  # messages
_LEAST = 6_000  # characters before the cut: in less there is nothing to be found
_MOST_ASKED = 12
_BEFORE, _EARLIER = 300, 500  # characters of a query

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
        """The share that was kept; None if nothing was needed."""
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


class Lookups(msgspec.Struct, frozen=True):
    """Counts of values looked up, of sessions, and of values found within the first places."""

    sessions: int = 0
    asked: int = 0
    found: tuple[int, ...] = (0,) * len(PLACES)

    def __add__(self, other: Lookups) -> Lookups:
        found = tuple(one + more for one, more in zip(self.found, other.found, strict=True))
        return Lookups(self.sessions + other.sessions, self.asked + other.asked, found)

    def shares(self) -> tuple[float, ...]:
        """Returns the share that was found within each of the places; none if nothing was asked."""
        return tuple(count / self.asked for count in self.found) if self.asked else ()


def look_up(messages: Sequence[Message]) -> Lookups:
    """Looks up what a view of a tenth would lack. Nothing is asked of a conversation that is too short."""
    spoken = [SpokenText(join_passages(message), message.role is Role.ASSISTANT) for message in messages]
    cut = _cut_at(spoken)
    asked = _choose_lookups(spoken, cut)
    if not asked or sum(len(one.text) for one in spoken[:cut]) < _LEAST:
        return Lookups()
    index = MemoryIndex()
    index.add_all(messages[:cut])
    ranks = [_rank(index, value, query) for value, query in asked]
    return Lookups(1, len(asked), tuple(sum(rank < place for rank in ranks) for place in PLACES))


def _rank(index: MemoryIndex, value: str, query: str) -> int:
    hits = index.search(query, Wish(hits=PLACES[-1]))
    return next(
        (at for at, hit in enumerate(hits) if next(places(value, hit.excerpt), None) is not None), PLACES[-1]
    )


def _cut_at(spoken: Sequence[SpokenText]) -> int:
    wanted, passed = _CUT * sum(len(one.text) for one in spoken), 0
    for number, one in enumerate(spoken):
        if passed >= wanted:
            return number
        passed += len(one.text)
    return len(spoken)


def _choose_lookups(spoken: Sequence[SpokenText], cut: int) -> list[tuple[str, str]]:
    """Values that the view lacks, evenly chosen, each with what stood before its first use."""
    shown = _small_view(spoken[:cut])
    missing = sorted(
        value for value in find_needed(spoken, cut, len(spoken)) if next(places(value, shown), None) is None
    )
    chosen = missing[:: max(1, -(-len(missing) // _MOST_ASKED))]
    queries = ((value, _query(value, spoken, cut)) for value in chosen)
    return [(value, query) for value, query in queries if query.strip()]


def _small_view(spoken: Sequence[SpokenText]) -> str:
    """Returns the text of the first messages and of the newest ones that fit a tenth of all."""
    room = _VIEW * sum(len(one.text) for one in spoken)
    kept = [one.text for one in spoken[:_HEAD]]
    room -= sum(map(len, kept))
    for one in reversed(spoken[_HEAD:]):
        room -= len(one.text)
        if room < 0:
            break
        kept.append(one.text)
    return "\n".join(kept)


def _query(value: str, spoken: Sequence[SpokenText], cut: int) -> str:
    before = ""
    for one in spoken[cut:]:
        at = next(places(value, one.text), None) if one.by_assistant else None
        if at is not None:
            text = f"{one.text[max(0, at - _BEFORE) : at]} {before[-_EARLIER:]}"
            return text.replace(value, " ")
        before = f"{before}\n{one.text}"[-_EARLIER:]
    return ""
