"""Fragments → an excerpt of at most so many characters.

An excerpt holds the fragments of one place in the conversation that add the most for their length, in their own
order, with a line `…` where something was left out between two of them.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from penstock.compaction.reading import Speaker
from penstock.recall.fragments import FRAGMENT_CHARACTERS, Origin, fragments_of, relevance
from penstock.recall.passages import readable
from penstock.recall.query import Statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.recall.fragments import Fragment
    from penstock.recall.query import Query

__all__ = ["GAP", "best_excerpt", "fill", "joined"]

GAP = "\n…\n"
_OVERHEAD = 60  # characters added to each length, or the shortest fragment would always come first
_LEAST_ROOM = 40
_NO_ORIGIN = Origin(0, 0, 0, 0, Speaker.RESULT)


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
    beside = fill(fragments, rest, lambda row, _: scores[row], room)[1]
    return joined([fragments[row] for row in sorted([best, *beside])])


def fill(
    fragments: Sequence[Fragment],
    rows: Iterable[int],
    gain: Callable[[int, Sequence[int]], float],
    characters: int,
) -> tuple[float, list[int]]:
    """The rows that together add the most for their length within so many characters, in order; what they add.

    `gain(row, chosen)` says what a row adds to those chosen before it; it never grows as more are chosen.
    """
    room = characters + len(GAP)
    heap = [(-gain(row, ()) / (len(fragments[row].text) + _OVERHEAD), row) for row in rows]
    heapq.heapify(heap)
    chosen: list[int] = []
    total = 0.0
    while heap and room > _LEAST_ROOM:
        _, row = heapq.heappop(heap)
        length = len(fragments[row].text)
        if length + len(GAP) > room:
            continue
        added = gain(row, chosen)
        if added <= 0.0:
            continue
        density = added / (length + _OVERHEAD)
        if heap and density < -heap[0][0]:
            heapq.heappush(heap, (-density, row))
            continue
        chosen.append(row)
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
