"""Measures if one search of the history brings back what a small view left out.

A conversation is cut where just over half of its text has passed. Of the values that the assistant uses after the cut
without being told them again, those that a small view (the first messages and the newest) lacks are looked up, by what
stood before their first use and without the value itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.message import Role
from penstock.recall.memory_index import MemoryIndex
from penstock.recall.ranking import Wish
from penstock.replay.needles import SpokenText, find_needed, join_passages, places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.message import Message

__all__ = ["PLACES", "Lookups", "look_up"]

PLACES = (1, 5, 10, 20)
_CUT = 0.55
_VIEW = 0.10
_HEAD = 3  # messages
_LEAST = 6_000  # characters before the cut: in less there is nothing to be found
_MOST_ASKED = 12
_BEFORE, _EARLIER = 300, 500  # characters of a query


class Lookups(msgspec.Struct, frozen=True):
    """Counts of values looked up, of sessions, and of values found within the first places."""

    sessions: int = 0
    asked: int = 0
    found: tuple[int, ...] = (0,) * len(PLACES)

    def __add__(self, other: Lookups) -> Lookups:
        found = tuple(one + more for one, more in zip(self.found, other.found, strict=True))
        return Lookups(self.sessions + other.sessions, self.asked + other.asked, found)

    def shares(self) -> tuple[float, ...]:
        """Returns the share that was found within each of the places; none where nothing was asked."""
        return tuple(count / self.asked for count in self.found) if self.asked else ()


def look_up(messages: Sequence[Message]) -> Lookups:
    """Look up what a view of a tenth would lack. Nothing is asked of a conversation that is too short."""
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
