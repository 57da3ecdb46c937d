"""Fragments → an excerpt of at most so many characters.

An excerpt holds the fragments of one place in the conversation that add the most for their length, in their own
order, with a line `…` where something was left out between two of them.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import msgspec

from penstock.compaction.reading import Speaker
from penstock.recall.fragments import FRAGMENT_CHARACTERS, Origin, fragments_of, relevance
from penstock.recall.passages import readable
from penstock.recall.query import Statistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.recall.fragments import Fragment
    from penstock.recall.query import Query

__all__ = ["GAP", "Pieces", "best_excerpt", "fill", "joined"]

GAP = "\n…\n"
_OVERHEAD = 30  # characters added to each length, or the shortest fragment would always come first
_LEAST_ROOM = 40
_NO_ORIGIN = Origin(0, 0, 0, 0, Speaker.RESULT)


class Pieces(msgspec.Struct, frozen=True, eq=False):
    """What an excerpt may be made of: how long each piece is, what it adds alone, and the values that it adds."""

    lengths: list[int]
    gains: list[float]
    values: list[set[str]]
    worth: Mapping[str, float]

    def gain(self, row: int, shown: set[str]) -> float:
        """What a piece adds to others that show these values."""
        again = self.values[row] & shown
        return self.gains[row] - math.fsum(map(self.worth.__getitem__, again)) if again else self.gains[row]


def best_excerpt(text: str, query: Query, characters: int) -> str:
    """What the text says to the query, in at most so many characters; its beginning where it says nothing."""
    if characters < 1:
        return ""
    laid = readable(text)
    if len(laid) <= characters:
        return laid
    fragments = fragments_of([(_NO_ORIGIN, laid)], min(FRAGMENT_CHARACTERS, characters))
    scores = relevance(query, fragments, _statistics(query, fragments)).tolist()
    best = max(range(len(fragments)), key=scores.__getitem__)
    rest = [row for row in range(len(fragments)) if row != best]
    room = characters - len(fragments[best].text) - len(GAP)
    pieces = Pieces([len(one.text) for one in fragments], scores, [set()] * len(fragments), {})
    beside = fill(pieces, rest, room)[1]
    return joined([fragments[row] for row in sorted([best, *beside])])


def fill(pieces: Pieces, rows: Iterable[int], characters: int) -> tuple[float, list[int]]:
    """The rows that together add the most for their length within so many characters, in order; what they add."""
    lengths, gains = pieces.lengths, pieces.gains
    room = characters + len(GAP)
    heap = [(-gains[row] / (lengths[row] + _OVERHEAD), row) for row in rows]
    heapq.heapify(heap)
    chosen: list[int] = []
    shown: set[str] = set()
    total = 0.0
    while heap and room > _LEAST_ROOM:
        _, row = heapq.heappop(heap)
        length = lengths[row]
        if length + len(GAP) > room:
            continue
        added = pieces.gain(row, shown)
        if added <= 0.0:
            continue
        density = added / (length + _OVERHEAD)
        if heap and density < -heap[0][0]:
            heapq.heappush(heap, (-density, row))
            continue
        chosen.append(row)
        shown |= pieces.values[row]
        total += added
        room -= length + len(GAP)
    return total, sorted(chosen)


def joined(fragments: Sequence[Fragment]) -> str:
    """The fragments as one text, with a mark where something between them was left out."""
    text, last = "", None
    for fragment in fragments:
        if last is not None:
            text += "\n" if fragment.place == last + 1 else GAP
        text += fragment.text
        last = fragment.place
    return text


def _statistics(query: Query, fragments: Sequence[Fragment]) -> Statistics:
    """As if the fragments were all there is."""
    terms = [{term for terms in fragment.terms for term in terms} for fragment in fragments]
    return Statistics(len(fragments), {term: sum(term in own for own in terms) for term in query.weights})
