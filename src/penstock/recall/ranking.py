"""Candidates of an index → ranked hits.

An index finds some hundred passages by their terms. Here they are cut into fragments, the fragments are scored
against the query, each value in them gets its worth, and excerpts are drawn place by place: a turn with the turns
next to it. The next hit is always the place whose best fragments add the most to those shown before. So
near-identical passages do not follow each other, and nothing that stands in the view is shown again for its own
sake.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.recall.excerpt import Pieces, fill, joined
from penstock.recall.fragments import Origin, fragments_of, relevance
from penstock.recall.worth import Cues, value_worth

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.recall.embedding import Meaning
    from penstock.recall.fragments import Fragment
    from penstock.recall.query import Query, Statistics

__all__ = ["Candidate", "Hit", "Wish", "best_passages", "rank", "strongest_terms"]

MOST_CANDIDATES = 200
WITH_NEIGHBOURS = 40
MOST_LOOKUPS = 32
MOST_FRAGMENTS = 1_000  # of up to 2,000: what has less to do with the query is not looked at closely
_FARTHEST = 3  # passages
_ALIKE = 3  # different scores: what two words can give

_TEMPERATURE = 0.1  # of belief: a fragment a tenth of the best score behind is believed e times less
_BY_ITSELF = 0.25  # what all fragments are worth beside their values
_NEAR = 6  # messages: a turn that begins farther away is not next to another
_MEANT = 4.0  # what is meant weighs against the words that were not found
_BLOCK_CHARACTERS = 220
_LEAST_MEANT = 0.15  # of nearness: what is less near is near by chance
_DIGITS = 4  # of a score: the rest depends on what else was looked at
_FULL = 5  # the strongest words of a query together say what it asks


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A passage that an index found, with what it says."""

    origin: Origin
    text: str


class Wish(msgspec.Struct, frozen=True):
    """How many hits, how long their excerpts may be, and what the asker has before them.

    `known` are values that stand there, which need not be found; `surroundings` is what is being talked about, which
    decides between what the query leaves open.
    """

    hits: int = 10
    characters: int = 1_200
    known: frozenset[str] = frozenset()
    surroundings: str = ""


class Hit(msgspec.Struct, frozen=True):
    """A place in the conversation: a turn, by the number of its first message, and the turns next to it.

    `messages` are those that the excerpt quotes: the one that has most to do with the query, then the others in order. `score` is the share that this hit adds of all that the
    candidates could add.
    """

    turn: int
    messages: tuple[int, ...]
    excerpt: str
    score: float


def strongest_terms(query: Query, statistics: Statistics, most: int = MOST_LOOKUPS) -> list[str]:
    """The terms worth looking up, the most telling first: rare ones, and those that come first in the query."""
    strength = {term: weight * statistics.rarity(term) for term, weight in query.weights.items()}
    telling = [term for term, value in strength.items() if value]
    return sorted(telling, key=lambda term: (-strength[term], term))[:most]


def best_passages(scores: NDArray[np.float64], numbers: NDArray[np.int64]) -> list[int]:
    """The numbers of the passages to look at: the best ones, and those beside the very best. Newer ones first.

    Where few are found, what stands farther around them is looked at, too.
    """
    # Where one or two words are all there is to go by, most passages count the same: fewer of them say as much.
    share = 2 if len(np.unique(scores)) <= _ALIKE else 1
    order = np.lexsort((-numbers, -scores))[: MOST_CANDIDATES // share]
    best = numbers[order].tolist()
    reach = min(max(MOST_CANDIDATES // share // (2 * len(best) or 1), 1), _FARTHEST)
    beside = [
        number + step for number in best[: WITH_NEIGHBOURS // share] for step in range(-reach, reach + 1)
    ]
    return sorted({*best, *(number for number in beside if number >= 0)})


def rank(
    query: Query,
    candidates: Iterable[Candidate],
    statistics: Statistics,
    wish: Wish,
    meaning: Meaning | None = None,
) -> list[Hit]:
    """The hits, best first. No excerpt is longer than wished, and none repeats another's lines.

    Where the meaning of the query is given, what is near to it counts beside the words.
    """
    ordered = sorted(candidates, key=lambda candidate: candidate.origin.passage)
    fragments = fragments_of((candidate.origin, candidate.text) for candidate in ordered)
    scores = relevance(query, fragments, statistics)
    if meaning is not None and fragments:
        scores = scores + _meant(query, fragments, statistics, meaning, float(scores.max()))
    if not len(scores) or scores.max() <= 0.0:
        return []
    best = np.sort(np.argsort(-scores, kind="stable")[:MOST_FRAGMENTS])
    fragments, scores = [fragments[row] for row in best.tolist()], scores[best]
    belief = np.exp((scores / scores.max() - 1.0) / _TEMPERATURE)
    tokens = set[str]().union(*(fragment.tokens for fragment in fragments))
    cues = Cues(query, statistics, tokens)
    worth, held = value_worth(fragments, belief, cues, query.values | wish.known)
    alone = (belief * (_BY_ITSELF / belief.sum())).tolist()
    return _Shelf(_Stock(fragments, scores > 0.0, worth, held, alone)).take(wish)


def _meant(
    query: Query, fragments: Sequence[Fragment], statistics: Statistics, meaning: Meaning, best: float
) -> NDArray[np.float64] | float:
    """What nearness in meaning adds to each fragment: the less the words find of what is asked, the more.

    Where the best fragment holds the words of the query, nothing: a name that is found is what was looked for.
    """
    strengths = (
        weight * (statistics.rarity(term) or statistics.rarest) for term, weight in query.weights.items()
    )
    missing = sum(heapq.nlargest(_FULL, strengths)) - best
    if missing <= 0.0:
        return 0.0
    blocks = _blocks(fragments)
    near = meaning.nearness_of(["\n".join(one.text for one in block) for block in blocks]).astype(np.float64)
    of_each = np.repeat(near, list(map(len, blocks)))
    return _MEANT * missing * np.maximum(of_each - _LEAST_MEANT, 0.0)


def _blocks(fragments: Sequence[Fragment]) -> list[list[Fragment]]:
    """The fragments in blocks of one voice: a line alone is too short to tell what it means from what it does not."""
    blocks: list[list[Fragment]] = []
    last, size = None, 0
    for fragment in fragments:
        place = fragment.origin.message, fragment.origin.voice, fragment.place
        size += len(fragment.text)
        if place != last or size > _BLOCK_CHARACTERS:
            blocks.append([])
            size = len(fragment.text)
        blocks[-1].append(fragment)
        last = (*place[:2], fragment.place + 1)
    return blocks


class _Stock(msgspec.Struct, frozen=True, eq=False):
    """All fragments, whether each has to do with the query, what values are worth, and who holds which.

    `alone` is what each fragment is worth beside its values.
    """

    fragments: Sequence[Fragment]
    related: NDArray[np.bool_]
    worth: dict[str, float]
    held: list[frozenset[str]]
    alone: list[float]


class _Shelf:
    """The fragments of each place, what each still adds, and which are taken."""

    def __init__(self, stock: _Stock) -> None:
        self._stock = stock
        # What each fragment adds to the hits so far, and the values that none of them shows.
        self._pieces = Pieces(
            [len(fragment.text) for fragment in stock.fragments], [], list(map(set, stock.held)), stock.worth
        )
        self._pieces.gains.extend(map(self._added, range(len(stock.held))))
        self._rows = _places(stock.fragments, _distinct(stock))
        self._taken: set[int] = set()
        self._holders: dict[str, list[int]] = {}
        for row, values in enumerate(stock.held):
            for value in values:
                self._holders.setdefault(value, []).append(row)

    def take(self, wish: Wish) -> list[Hit]:
        """The best hits, each from the place that adds the most to those before."""
        heap = [(-self._best(turn, wish)[0], -turn) for turn in self._rows]
        heapq.heapify(heap)
        hits: list[Hit] = []
        while heap and len(hits) < wish.hits:
            _, turn = heapq.heappop(heap)
            added, rows = self._best(-turn, wish)
            if not self._stock.related[rows].any():
                continue
            if heap and (-added, turn) > heap[0]:
                heapq.heappush(heap, (-added, turn))
                continue
            hits.append(self._hit(-turn, rows, added))
            self._show(rows)
            heapq.heappush(heap, (-added, turn))
        return hits

    def _best(self, turn: int, wish: Wish) -> tuple[float, list[int]]:
        rows = [row for row in self._rows[turn] if row not in self._taken]
        return fill(self._pieces, rows, wish.characters)

    def _added(self, row: int) -> float:
        """What the row is worth beside its values, and by those that no hit shows."""
        return self._stock.alone[row] + math.fsum(
            map(self._stock.worth.__getitem__, self._pieces.values[row])
        )

    def _hit(self, turn: int, rows: list[int], added: float) -> Hit:
        fragments = [self._stock.fragments[row] for row in rows]
        telling = self._stock.fragments[max(rows, key=self._stock.alone.__getitem__)]
        messages = dict.fromkeys([telling.origin.message, *(one.origin.message for one in fragments)])
        return Hit(turn, tuple(messages), joined(fragments), _rounded(added / (1.0 + _BY_ITSELF)))

    def _show(self, rows: list[int]) -> None:
        """Take these fragments away, and their values from all others."""
        self._taken.update(rows)
        shown = set[str]().union(*(self._pieces.values[row] for row in rows))
        for row in {row for value in shown for row in self._holders[value]}:
            self._pieces.values[row] -= shown
            self._pieces.gains[row] = self._added(row)


def _rounded(score: float) -> float:
    return float(f"{score:.{_DIGITS}g}")


def _distinct(stock: _Stock) -> list[int]:
    """The rows without those that say the same again: of equals the one worth most, the newest of these."""
    best: dict[str, int] = {}
    for row, fragment in enumerate(stock.fragments):
        other = best.setdefault(fragment.text, row)
        if stock.alone[row] >= stock.alone[other]:
            best[fragment.text] = row
    return sorted(best.values())


def _places(fragments: Sequence[Fragment], rows: list[int]) -> dict[int, list[int]]:
    """For each turn its rows and those of the turns just before and after it."""
    own: dict[int, list[int]] = {}
    for row in rows:
        own.setdefault(fragments[row].origin.turn, []).append(row)
    turns = sorted(own)
    return {
        turn: [
            row for near in turns[max(0, at - 1) : at + 2] if abs(near - turn) <= _NEAR for row in own[near]
        ]
        for at, turn in enumerate(turns)
    }
