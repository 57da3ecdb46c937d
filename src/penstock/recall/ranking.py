"""Ranks the candidates of an index and draws hits from them, in the same way for every index.

1. An index looks up the most telling terms of a query (`choose_terms`). The passages that hold them best, and their
   neighbours, become candidates (`choose_passages`).
2. `rank` cuts the candidates into fragments and scores each against the query (`fragments.py`): by its words and, with
   an embedder, by its meaning.
3. Each value in the fragments gets a worth (`_weigh_values`): people rarely search for the words of the query, but for
   the path, the id or the number beside them. If a plain question finds people's talk, with few values, whole messages
   are ranked instead (`talk.py`).
4. Excerpts are drawn place by place: a turn with its neighbouring turns. The next hit is always the place whose best
   fragments add most to those shown before. So near-identical passages do not follow each other, and text that is in
   the view is not shown again for its own sake. The first excerpt takes fragments from farther around, unless the
   query is only a few words.
"""

from __future__ import annotations

import heapq
import math
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.recall.fragments import (
    FRAGMENT_CHARACTERS,
    Origin,
    cut_fragments,
    find_reader,
    score_fragments,
)
from penstock.recall.passages import make_readable
from penstock.recall.query import Statistics
from penstock.recall.talk import Spoken, holds_word, is_talk, score_talk
from penstock.writing.reading import Speaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.recall.embedding import Meaning
    from penstock.recall.fragments import FragmentTable
    from penstock.recall.query import Query
    from penstock.recall.talk import TalkQuery

__all__ = [
    "Candidate",
    "Hit",
    "Wish",
    "choose_passages",
    "choose_terms",
    "draw_excerpt",
    "rank",
    "weigh_cues",
]

MOST_CANDIDATES = 200
WITH_NEIGHBOURS = 40
MOST_LOOKUPS = 32
MOST_FRAGMENTS = 1_000  # of up to 2,000: less related ones are not examined closely
_FARTHEST = 3  # passages
_ALIKE = 3  # different scores: what two words can give
_TEMPERATURE = 0.1  # of belief: a fragment that is a tenth of the best score behind is believed e times less
_BY_ITSELF = 0.25  # the worth of all fragments without their values
_BY_WORDS = 2.0  # the same for a query of a few words, which are themselves wanted
_NEAR = 6  # messages: a turn that begins farther away is not a neighbour
_AROUND = 20  # messages: the distance within which the first excerpt takes fragments
_MEANT = 4.0  # the weight of meaning against words that were not found
_BLOCK_CHARACTERS = 220
_LEAST_MEANT = 0.15  # of nearness: anything less is chance
_DIGITS = 4  # of a score: further ones depend on the other candidates
_FEW_WORDS = 3  # a name with parts counts as several
_FULL = 5  # this many of the strongest words of a query carry its meaning

# The worth of a value, as weights of a log-linear model for the chance that a value is the wanted one. They were
# fitted on one half of recorded sessions, and then softened: the model's certainty counts only 0.7.
_RELEVANT = 0.35
_LABELLED = 4.2
_ECHOED = 0.4  # for each word
_CALLED = 0.55
_EVERYWHERE = -0.3
_CROWDED = -0.3

_LABEL = (1.0, 0.65, 0.45, 0.3, 0.2)  # of the words before a value, the nearest first
_MOST_LABELLED = 2.0
_STRONGEST = 5  # this many of the strongest words of a query make one full label
_LONGEST_ECHO = 5  # words
_MOST_CROWDED = MOST_FRAGMENTS  # values in a fragment: more are not counted

_LOGARITHMS = np.array([-math.inf, *map(math.log, range(1, MOST_FRAGMENTS + 2))])  # of counts

_GAP = "\n…\n"
_OVERHEAD = 30  # characters added to each length, or the shortest fragment would always come first
_LEAST_ROOM = 40
_NO_ORIGIN = Origin(0, 0, 0, 0, Speaker.RESULT)


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A passage that an index found, with its text and, if known, its time."""

    origin: Origin
    text: str
    at: float | None = None


class Wish(msgspec.Struct, frozen=True):
    """The caller's wishes: the number of hits, the length of their excerpts, and the contents of the view.

    `known` are values in the view, which need not be found. `surroundings` is the present subject, which decides what
    the query leaves open. `now` is the present time, for questions about last week, for example.
    """

    hits: int = 10
    characters: int = 1_200
    known: frozenset[str] = frozenset()
    surroundings: str = ""
    now: float | None = None


class Hit(msgspec.Struct, frozen=True):
    """A place in the conversation: the turn most related to the query, by the number of its first message.

    The excerpt may quote neighbouring turns. `messages` are the quoted ones: first the one most related to the query,
    then the others in order. `score` is the share that this hit adds of everything that the candidates could add.
    """

    turn: int
    messages: tuple[int, ...]
    excerpt: str
    score: float


def choose_terms(query: Query, statistics: Statistics) -> list[str]:
    """Returns the terms worth looking up, most telling first.

    Rare terms are telling, and so are the first ones in the query.
    """
    strength = {term: weight * statistics.rarity(term) for term, weight in query.weights.items()}
    telling = [term for term, value in strength.items() if value]
    return sorted(telling, key=lambda term: (-strength[term], term))[:MOST_LOOKUPS]


def choose_passages(
    scores: NDArray[np.float64], numbers: NDArray[np.int64], talk: TalkQuery | None = None
) -> list[int]:
    """Returns the numbers of the passages to examine: the best ones, and the neighbours of the very best.

    Newer ones come first. If few are found, or people may be talking, also returns passages farther away.
    """
    # With only one or two words to go by, most passages score the same, and fewer of them are enough.
    share = 2 if len(np.unique(scores)) <= _ALIKE else 1
    order = np.lexsort((-numbers, -scores))[: MOST_CANDIDATES // share]
    best = numbers[order].tolist()
    reach = min(max(MOST_CANDIDATES // share // (2 * len(best) or 1), 2 if talk else 1), _FARTHEST)
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
    talk: TalkQuery | None = None,
) -> list[Hit]:
    """Returns the hits, best first. No excerpt is longer than wished, and none repeats another's lines.

    With the meaning of the query, nearness counts beside the words. If it may be a question about talk, and the
    candidates are talk, ranks whole messages.
    """
    ordered = sorted(candidates, key=lambda candidate: candidate.origin.passage)
    if talk is not None and is_talk(talk, query, ((one.origin.speaker, one.text) for one in ordered)):
        spoken = _join_spoken(ordered)
        scores = score_talk(talk, query, spoken, statistics, meaning)
        is_asked = None
        if meaning is None and _count_wanted(query) <= _FEW_WORDS:
            is_asked = partial(holds_word, talk, query)
        return _pick_messages(spoken, scores, query, wish, is_asked)
    table = cut_fragments(((one.origin, one.text) for one in ordered), find_reader())
    scores = score_fragments(query, table, statistics)
    if meaning is not None and len(table):
        scores = scores + _score_meaning(query, table, statistics, meaning, float(scores.max()))
    if not len(scores) or scores.max() <= 0.0:
        return []
    best = np.sort(np.argsort(-scores, kind="stable")[:MOST_FRAGMENTS])
    related = _find_related(query, table, scores)[best]
    belief = np.exp((scores[best] / scores.max() - 1.0) / _TEMPERATURE)
    known = table.find_numbers((query.values | wish.known) & table.numbers.keys())
    values = _weigh_values(table, best, belief, weigh_cues(query, statistics, table), known)
    asks_much = _count_wanted(query) > _FEW_WORDS
    by_itself = _BY_ITSELF if asks_much else _BY_WORDS
    alone = belief * (by_itself / belief.sum())
    stock = _ScoredFragments(table, best, related, values, alone, 1.0 + by_itself)
    return _HitPicker(stock, wish).take(around=_AROUND if asks_much else 0)


def _count_wanted(query: Query) -> int:
    """Returns the number of wanted words, without those that only surround them."""
    return sum(weight == 1.0 for weight in query.weights.values())


def _find_related(query: Query, table: FragmentTable, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Returns which fragments are related to the query.

    A query of a few words asks to see these words: the fragment itself must hold them. For a longer query it is enough
    if a neighbour does.
    """
    if _count_wanted(query) > _FEW_WORDS:
        return scores > 0.0
    holding = table.find_rows_with(term for term, weight in query.weights.items() if weight == 1.0)
    return holding & (scores > 0.0) if holding.any() else scores > 0.0


def _join_spoken(ordered: Sequence[Candidate]) -> list[Spoken]:
    """Returns the messages of the candidates, in order."""
    groups: dict[int, list[Candidate]] = {}
    for one in ordered:
        groups.setdefault(one.origin.message, []).append(one)
    return [
        Spoken(own[0].origin, "\n".join(one.text for one in own), own[0].at, own[-1].origin.passage)
        for own in groups.values()
    ]


def _pick_messages(
    spoken: Sequence[Spoken],
    scores: NDArray[np.float64],
    query: Query,
    wish: Wish,
    is_asked: Callable[[str], bool] | None,
) -> list[Hit]:
    """Returns the best messages as hits, each with the neighbours that fit, and none that was shown before.

    With `is_asked`, it must be true of one of a hit's texts.
    """
    hits: list[Hit] = []
    shown: set[int] = set()
    said: set[str] = set()
    total = float(scores.sum()) or 1.0
    for row in np.lexsort((-np.arange(len(scores)), -scores)).tolist():
        if len(hits) == wish.hits or scores[row] <= 0.0:
            break
        one = spoken[row]
        if row in shown or one.text in said:
            continue
        rows = _surround_message(spoken, row, wish.characters, shown)
        fresh = {spoken[near].text for near in rows} - said
        if is_asked is not None and not any(map(is_asked, fresh)):
            continue
        excerpt = (
            "\n".join(spoken[near].text for near in rows)
            if len(rows) > 1
            else draw_excerpt(one.text, query, wish.characters)
        )
        messages = dict.fromkeys([one.origin.message, *(spoken[near].origin.message for near in rows)])
        hits.append(Hit(one.origin.turn, tuple(messages), excerpt, _round_score(float(scores[row]) / total)))
        shown.update(rows)
        said.update(spoken[near].text for near in rows)
    return hits


def _surround_message(spoken: Sequence[Spoken], row: int, characters: int, shown: set[int]) -> list[int]:
    """Returns the rows of a message and of its neighbours, as many on each side as fit and were not shown."""
    low = high = row
    room = characters - len(spoken[row].text)
    open_sides = {-1, 1}
    while open_sides:
        for side in sorted(open_sides):
            edge = low if side < 0 else high
            near = edge + side
            if not 0 <= near < len(spoken) or near in shown or not _follow(spoken, min(edge, near)):
                open_sides.discard(side)
                continue
            room -= len(spoken[near].text) + 1
            if room < 0:
                return list(range(low, high + 1))
            low, high = min(low, near), max(high, near)
    return list(range(low, high + 1))


def _follow(spoken: Sequence[Spoken], row: int) -> bool:
    """Returns True if the next row is the next message that was spoken."""
    return spoken[row].last + 1 == spoken[row + 1].origin.passage


def _score_meaning(
    query: Query, table: FragmentTable, statistics: Statistics, meaning: Meaning, best: float
) -> NDArray[np.float64] | float:
    """Returns the score that nearness in meaning adds to each fragment.

    The fewer of the words are found, the more it adds. It adds nothing if the best fragment holds the words of the
    query: a name that is found is the wanted one.
    """
    strengths = (
        weight * (statistics.rarity(term) or statistics.rarest) for term, weight in query.weights.items()
    )
    missing = sum(heapq.nlargest(_FULL, strengths)) - best
    if missing <= 0.0:
        return 0.0
    blocks = _join_blocks(table)
    near = meaning.measure_texts(list(map("\n".join, blocks))).astype(np.float64)
    of_each = np.repeat(near, list(map(len, blocks)))
    return _MEANT * missing * np.maximum(of_each - _LEAST_MEANT, 0.0)


def _join_blocks(table: FragmentTable) -> list[list[str]]:
    """Returns the texts of the fragments in blocks of one voice.

    A single line is too short to have a clear meaning.
    """
    blocks: list[list[str]] = []
    last, size = None, 0
    for origin, text, place in zip(table.origins, table.texts, table.places.tolist(), strict=True):
        size += len(text)
        if (origin.message, origin.voice, place) != last or size > _BLOCK_CHARACTERS:
            blocks.append([])
            size = len(text)
        blocks[-1].append(text)
        last = (origin.message, origin.voice, place + 1)
    return blocks


class _HeldValues(msgspec.Struct, frozen=True, eq=False):
    """The worth of values, and the fragments that hold them: rows and values side by side, sorted by row."""

    worth: NDArray[np.float64]
    rows: NDArray[np.int64]
    values: NDArray[np.int64]


def _weigh_values(
    table: FragmentTable,
    best: NDArray[np.int64],
    belief: NDArray[np.float64],
    cues: NDArray[np.float64],
    known: Sequence[int],
) -> _HeldValues:
    """Returns the worth of each value in the best fragments, 1 in all, and its places.

    A value's share of belief depends on the relevance of its fragments; on its cues, the words before it; on whether
    it was an argument of a call; on the number of its fragments (a value that is everywhere is no find); and on the
    crowding of its least crowded fragment. Values that the caller knows, from the query or the view, are worth
    nothing and left out.
    """
    row_of = np.full(len(table), -1)
    row_of[best] = np.arange(len(best))
    rows = row_of[table.token_rows[table.value_tokens]]
    is_first = np.diff(table.value_tokens, prepend=-1) > 0  # of the values of a token
    crowds = np.bincount(rows[is_first & (rows >= 0)], minlength=len(best))
    is_new = np.ones(table.strings, np.bool_)
    is_new[known] = False
    kept = np.flatnonzero((rows >= 0) & is_new[table.values])
    rows, found, cues = rows[kept], table.values[kept], cues[kept]
    # Values are numbered by their first appearance here, so that earlier readings cannot change the order of the sums.
    order = np.arange(len(found))
    first_seen = np.zeros(table.strings, np.int64)
    first_seen[found[::-1]] = order[::-1]
    numbers = found[first_seen[found] == order]
    renumbered = np.zeros(table.strings, np.int64)
    renumbered[numbers] = np.arange(len(numbers))
    values, count = renumbered[found], len(numbers)
    cue = np.zeros(count)
    np.maximum.at(cue, values, cues)
    rows, values = np.divmod(np.unique(rows * count + values), max(count, 1))  # once for each fragment
    crowd = np.full(count, _MOST_CROWDED)
    np.minimum.at(crowd, values, crowds[rows])
    is_call = np.array([table.origins[row].speaker is Speaker.CALL for row in best.tolist()], np.bool_)
    called = np.zeros(count, np.bool_)
    called[values[is_call[rows]]] = True
    logs = _LOGARITHMS
    exponents = (
        _RELEVANT * _map(math.log, np.maximum(np.bincount(values, belief[rows], count), 1e-12))
        + cue
        + _CALLED * called
        + _EVERYWHERE * logs[np.bincount(values, minlength=count)]
        + _CROWDED * logs[crowd + 1]
    )
    worth = _map(math.exp, exponents)
    return _HeldValues(worth / (sum(worth.tolist()) or 1.0), rows, values)


def _map(function: Callable[[float], float], numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Applies a function to each number.

    The functions of `math` give the same on every machine. Those of numpy differ in the last digit, which would decide
    between equals.
    """
    return np.fromiter(map(function, numbers.tolist()), np.float64, len(numbers))


def weigh_cues(query: Query, statistics: Statistics, table: FragmentTable) -> NDArray[np.float64]:
    """Returns for each value in the table, for each of its places, how strongly the text before it speaks for it.

    A label consists of words of the query, the rarer the better. An echo is a run of tokens that is also in the query,
    in the same order: text that begins in the same way often continues in the same way.
    """
    strength = {term: weight * statistics.rarity(term) for term, weight in query.weights.items()}
    full = sum(sorted(strength.values())[-_STRONGEST:]) or 1.0
    label = np.zeros(len(table.tokens))  # by token: the weight of its strongest term
    of_terms = table.spread_numbers(strength)[table.terms]
    found = np.flatnonzero(of_terms)
    np.maximum.at(label, table.term_tokens[found], of_terms[found])
    is_labelled = np.zeros(len(table), np.bool_)
    is_labelled[table.token_rows[label > 0.0]] = True
    rows = table.token_rows[table.value_tokens]
    words = np.zeros(len(rows))
    for step, part in enumerate(_LABEL, start=1):
        at, is_inside = _look_back(table, table.value_tokens, step)
        words += part * label[at] * is_inside
    cues = _LABELLED * np.minimum(words / full, _MOST_LABELLED)
    return cues + np.where(is_labelled[rows], _ECHOED * _measure_echoes(query, table), 0.0)


def _look_back(
    table: FragmentTable, tokens: NDArray[np.int64], steps: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the tokens that many places before these, and which of them are in the same fragment."""
    at = np.maximum(tokens - steps, 0)
    return at, (tokens >= steps) & (table.token_rows[at] == table.token_rows[tokens])


def _measure_echoes(query: Query, table: FragmentTable) -> NDArray[np.int64]:
    """Returns for each value the number of tokens right before it that are also in the query, in the same order."""
    asked = {token: place for place, token in enumerate(query.places)}
    sequence = [asked[token] for token in query.tokens]
    number_of = table.spread_numbers(asked, -1).astype(np.int64)[table.tokens]
    echoes = np.zeros(len(table.values), np.int64)
    # A run of tokens is one number: for runs of the query, by their ends; and for runs before each value, by their length.
    runs = [(end, 0) for end in range(len(sequence))]
    going, codes = np.arange(len(echoes)), np.zeros(len(echoes), np.int64)
    for length in range(1, _LONGEST_ECHO + 1):
        runs = [
            (end, code * len(asked) + sequence[end - length + 1]) for end, code in runs if end >= length - 1
        ]
        at, is_inside = _look_back(table, table.value_tokens[going], length)
        codes = codes * len(asked) + number_of[at]
        holds = is_inside & (number_of[at] >= 0) & np.isin(codes, [code for _, code in runs])
        going, codes = going[holds], codes[holds]
        echoes[going] = length
    return echoes


class _ScoredFragments(msgspec.Struct, frozen=True, eq=False):
    """The best fragments, by their rows in the table, whether each is related to the query, and their values.

    `alone` is the worth of each fragment without its values; `total` is the worth of everything together.
    """

    table: FragmentTable
    best: NDArray[np.int64]
    related: NDArray[np.bool_]
    values: _HeldValues
    alone: NDArray[np.float64]
    total: float


class _HitPicker:
    """Picks hits one by one: knows what each fragment would still add to them, and which fragments are left."""

    def __init__(self, stock: _ScoredFragments, wish: Wish) -> None:
        self._stock, self._wish = stock, wish
        table, rows = stock.table, stock.best.tolist()
        self._texts = [table.texts[row] for row in rows]
        self._origins = [table.origins[row] for row in rows]
        self._alone, self._related = stock.alone.tolist(), stock.related.tolist()
        held, ends = (
            stock.values.values.tolist(),
            np.cumsum(np.bincount(stock.values.rows, minlength=len(rows))).tolist(),
        )
        # The worth that each fragment would add to the hits so far, and the values that none of them shows.
        self._pieces = _Pieces(
            list(map(len, self._texts)),
            [],
            [set(held[begin:end]) for begin, end in pairwise([0, *ends])],
            stock.values.worth.tolist(),
        )
        self._pieces.gains.extend(map(self._sum_worth, range(len(rows))))
        self._densities = np.array(list(map(self._pieces.measure_density, range(len(rows)))))
        fresh = _drop_repeats(self._texts, self._alone)
        turns = np.array([origin.turn for origin in self._origins], np.int64)
        self._turns = np.unique(turns[fresh])
        self._turn_of = np.searchsorted(self._turns, turns)  # by its place among the turns
        self._left = np.zeros(len(rows), np.bool_)
        self._left[fresh] = True
        self._sort_left()

    def take(self, around: int = 0) -> list[Hit]:
        """Returns the best hits, each from the place that adds most to those before.

        With `around`, the place of the first hit reaches that many messages to both sides.
        """
        hits: list[Hit] = []
        if around and self._wish.hits:
            hits += self._take_best(_find_around(self._turns, around), 1)
        return hits + self._take_best(_find_beside(self._turns), self._wish.hits - len(hits))

    def _take_best(self, places: Mapping[int, tuple[int, int]], most: int) -> list[Hit]:
        """Returns up to `most` hits from these places, and removes their fragments.

        A place is named by its turn, and reaches from one turn to another.
        """
        heap = [(-self._fill_best(place)[0], -turn) for turn, place in places.items()]
        heapq.heapify(heap)
        hits: list[Hit] = []
        while heap and len(hits) < most:
            _, turn = heapq.heappop(heap)
            added, rows = self._fill_best(places[-turn])
            if not any(map(self._related.__getitem__, rows)):
                continue
            if heap and (-added, turn) > heap[0]:
                heapq.heappush(heap, (-added, turn))
                continue
            hits.append(self._build_hit(rows, added))
            self._show(rows)
            heapq.heappush(heap, (-added, turn))
        return hits

    def _fill_best(self, place: tuple[int, int]) -> tuple[float, list[int]]:
        """Returns the worth that the best excerpt of a place adds, and its rows. One holds a word of the query, if any does."""
        first, last = place
        inside = (self._sorted_turns >= first) & (self._sorted_turns <= last)
        rows = self._sorted[inside].tolist()
        added, best = _fill_excerpt(self._pieces, rows, self._wish.characters)
        if any(map(self._related.__getitem__, best)):
            return added, best
        related = [row for row in rows if self._related[row]]
        if not related:
            return added, best
        telling = max(related, key=lambda row: (self._alone[row], row))
        room = self._wish.characters - self._pieces.lengths[telling] - len(_GAP)
        if room < 0:
            return added, best
        more, beside = _fill_excerpt(self._pieces, [row for row in rows if row != telling], room)
        return more + self._pieces.gains[telling], sorted([telling, *beside])

    def _sum_worth(self, row: int) -> float:
        """Returns the worth of the row itself, plus that of its values that no hit shows."""
        alone: float = self._alone[row]
        return alone + math.fsum(map(self._pieces.worth.__getitem__, self._pieces.values[row]))

    def _build_hit(self, rows: list[int], added: float) -> Hit:
        telling = self._origins[max(rows, key=self._alone.__getitem__)]
        messages = dict.fromkeys([telling.message, *(self._origins[row].message for row in rows)])
        score = _round_score(added / self._stock.total)
        excerpt = _join_fragments(self._stock.table, self._stock.best[rows].tolist())
        return Hit(telling.turn, tuple(messages), excerpt, score)

    def _show(self, rows: list[int]) -> None:
        """Removes these fragments, and their values from all others."""
        self._left[rows] = False
        shown = set[int]().union(*(self._pieces.values[row] for row in rows))
        is_shown = np.zeros(len(self._pieces.worth), np.bool_)
        is_shown[list(shown)] = True
        for row in set(self._stock.values.rows[is_shown[self._stock.values.values]].tolist()):
            self._pieces.values[row].difference_update(shown)
            self._pieces.gains[row] = self._sum_worth(row)
            self._densities[row] = self._pieces.measure_density(row)
        self._sort_left()

    def _sort_left(self) -> None:
        """Sorts the remaining rows by the worth that they add for their length."""
        rows = np.flatnonzero(self._left)
        self._sorted = rows[np.argsort(-self._densities[rows], kind="stable")]
        self._sorted_turns = self._turn_of[self._sorted]


def _drop_repeats(texts: Sequence[str], alone: Sequence[float]) -> list[int]:
    """Returns the rows without repeats.

    Of equal texts, the one worth most stays; of several such, the newest.
    """
    best: dict[str, int] = {}
    for row, text in enumerate(texts):
        other = best.setdefault(text, row)
        if alone[row] >= alone[other]:
            best[text] = row
    return sorted(best.values())


def _find_beside(turns: NDArray[np.int64]) -> dict[int, tuple[int, int]]:
    """Returns for each turn the places of the first and the last turn among itself and its neighbours."""
    is_near = (np.diff(turns) <= _NEAR).tolist()
    before, behind = [False, *is_near], [*is_near, False]
    return {turn: (at - before[at], at + behind[at]) for at, turn in enumerate(turns.tolist())}


def _find_around(turns: NDArray[np.int64], around: int) -> dict[int, tuple[int, int]]:
    """Returns for each turn the places of the first and the last turn within `around` messages."""
    firsts = np.searchsorted(turns, turns - around).tolist()
    ends = np.searchsorted(turns, turns + around, side="right").tolist()
    return {turn: (firsts[at], ends[at] - 1) for at, turn in enumerate(turns.tolist())}


def _round_score(score: float) -> float:
    return float(f"{score:.{_DIGITS}g}")


class _Pieces(msgspec.Struct, frozen=True, eq=False):
    """The pieces from which an excerpt may be made.

    Each has a length, the worth that it adds alone, and the values that it adds. An excerpt holds the fragments of one
    place in the conversation that add most for their length, in their own order, with a line `…` wherever something
    was left out between two of them.
    """

    lengths: list[int]
    gains: list[float]
    values: list[set[int]]
    worth: Sequence[float]

    def measure_density(self, row: int) -> float:
        """Returns the worth that a piece adds alone, for its length."""
        return self.gains[row] / (self.lengths[row] + _OVERHEAD)


def _fill_excerpt(pieces: _Pieces, rows: Sequence[int], characters: int) -> tuple[float, list[int]]:
    """Returns the worth that the best rows within `characters` add together, and these rows in order.

    The best are those that add most for their length, and are tried in that order. A row that adds less because others
    show its values already is put back at its new place in the order.
    """
    lengths, gains, values = pieces.lengths, pieces.gains, pieces.values
    room = characters + len(_GAP)
    at = 0
    put_back: list[tuple[float, int]] = []
    chosen: list[int] = []
    shown: set[int] = set()
    total = 0.0
    while room > _LEAST_ROOM and (at < len(rows) or put_back):
        if put_back and (at == len(rows) or put_back[0] < (-pieces.measure_density(rows[at]), rows[at])):
            row = heapq.heappop(put_back)[1]
        else:
            row = rows[at]
            at += 1
        length = lengths[row]
        if length + len(_GAP) > room:  # drops all others that are too long, too
            rows, at = [other for other in rows[at:] if lengths[other] + len(_GAP) <= room], 0
            continue
        added = gains[row]
        if not shown.isdisjoint(values[row]):
            added -= math.fsum(map(pieces.worth.__getitem__, values[row] & shown))
            density = added / (length + _OVERHEAD)
            densest = max(
                pieces.measure_density(rows[at]) if at < len(rows) else 0.0,
                -put_back[0][0] if put_back else 0.0,
            )
            if 0.0 < density < densest:
                heapq.heappush(put_back, (-density, row))
                continue
        if added <= 0.0:
            continue
        chosen.append(row)
        shown |= values[row]
        total += added
        room -= length + len(_GAP)
    return total, sorted(chosen)


def _join_fragments(table: FragmentTable, rows: Iterable[int]) -> str:
    """Returns fragments as one text, with a mark where something between them was left out."""
    text, last = "", None
    for row in rows:
        place = int(table.places[row])
        if last is not None:
            text += "\n" if place == last + 1 else _GAP
        text += table.texts[row]
        last = place
    return text


def draw_excerpt(text: str, query: Query, characters: int) -> str:
    """Returns the parts of the text that answer the query, in at most `characters` characters.

    If nothing answers it, returns the beginning of the text.
    """
    if characters < 1:
        return ""
    laid = make_readable(text)
    if len(laid) <= characters:
        return laid
    table = cut_fragments([(_NO_ORIGIN, laid)], size=min(FRAGMENT_CHARACTERS, characters))
    scores = score_fragments(query, table, _count_terms(query, table)).tolist()
    lengths = list(map(len, table.texts))
    best = max(range(len(table)), key=scores.__getitem__)
    pieces = _Pieces(lengths, scores, [set()] * len(table), ())
    rest = sorted((row for row in range(len(table)) if row != best), key=pieces.measure_density, reverse=True)
    beside = _fill_excerpt(pieces, rest, characters - lengths[best] - len(_GAP))[1]
    return _join_fragments(table, sorted([best, *beside]))


def _count_terms(query: Query, table: FragmentTable) -> Statistics:
    """Returns the statistics of the fragments alone, as if there were nothing else."""
    holding = {term: int(table.find_rows_with([term]).sum()) for term in query.weights}
    return Statistics(len(table), holding)
