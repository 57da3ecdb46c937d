"""Candidates of an index → ranked hits, the same for every index.

1. An index looks up the most telling terms of a query (`choose_terms`), and the passages that hold them best, with those
   beside them (`choose_passages`), become candidates.
2. `rank` cuts the candidates into fragments and scores each against the query (`fragments.py`), by its words and, where
   an embedder is at hand, by what it means.
3. Each value in the fragments gets its worth (`_weigh_values`): a search is rarely for the words of the query, it is for
   the path, the id, the number that stood with them.
   Where a plain question finds what people said, with few values, whole messages are ranked instead (`talk.py`).
4. Excerpts are drawn place by place: a turn with the turns next to it. The next hit is always the place whose best
   fragments add the most to those shown before. So near-identical passages do not follow each other, and nothing that
   stands in the view is shown again for its own sake. The first excerpt takes its fragments from farther around, unless
   a few words are all that is asked for.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.recall.fragments import FRAGMENT_CHARACTERS, Origin, cut_fragments, score_fragments
from penstock.recall.passages import make_readable
from penstock.recall.query import Statistics
from penstock.recall.talk import Spoken, holds_word, is_talk, score_talk
from penstock.recall.terms import find_terms
from penstock.writing.reading import Speaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.recall.embedding import Meaning
    from penstock.recall.fragments import Fragment
    from penstock.recall.query import Query
    from penstock.recall.talk import TalkQuery

__all__ = [
    "Candidate",
    "Cues",
    "Hit",
    "Wish",
    "choose_passages",
    "choose_terms",
    "draw_excerpt",
    "rank",
]

MOST_CANDIDATES = 200
WITH_NEIGHBOURS = 40
MOST_LOOKUPS = 32
MOST_FRAGMENTS = 1_000  # of up to 2,000: what has less to do with the query is not looked at closely
_FARTHEST = 3  # passages
_ALIKE = 3  # different scores: what two words can give
_TEMPERATURE = 0.1  # of belief: a fragment a tenth of the best score behind is believed e times less
_BY_ITSELF = 0.25  # what all fragments are worth beside their values
_BY_WORDS = 2.0  # the same, where a few words are asked for: they are what is wanted
_NEAR = 6  # messages: a turn that begins farther away is not next to another
_AROUND = 20  # messages: how far from its turn the first excerpt takes fragments
_MEANT = 4.0  # what is meant weighs against the words that were not found
_BLOCK_CHARACTERS = 220
_LEAST_MEANT = 0.15  # of nearness: what is less near is near by chance
_DIGITS = 4  # of a score: the rest depends on what else was looked at
_FEW_WORDS = 3  # a name with parts is several
_FULL = 5  # the strongest words of a query together say what it asks

# The worth of a value, as weights of a log-linear model. They were fitted on one half of recorded sessions,
# as those of the chance that a value is the one looked for, and then softened: what the model is sure of is
# taken with 0.7 of its certainty.
_RELEVANT = 0.35
_LABELLED = 4.2
_ECHOED = 0.4  # for each word
_CALLED = 0.55
_EVERYWHERE = -0.3
_CROWDED = -0.3

_LABEL = (1.0, 0.65, 0.45, 0.3, 0.2)  # of the words before a value, the nearest first
_MOST_LABELLED = 2.0
_STRONGEST = 5  # the strongest words of a query together are one full label
_LONGEST_ECHO = 5  # words

_GAP = "\n…\n"
_OVERHEAD = 30  # characters added to each length, or the shortest fragment would always come first
_LEAST_ROOM = 40
_NO_ORIGIN = Origin(0, 0, 0, 0, Speaker.RESULT)


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A passage that an index found, with what it says, and when that was said, where it is known."""

    origin: Origin
    text: str
    at: float | None = None


class Wish(msgspec.Struct, frozen=True):
    """The wishes of the asker: the number of hits, the length of their excerpts, and what is in view already.

    `known` are values that stand there, which need not be found; `surroundings` is what is being talked
    about, which decides between what the query leaves open; `now` is when it is asked, for a question such as what was
    said last week.
    """

    hits: int = 10
    characters: int = 1_200
    known: frozenset[str] = frozenset()
    surroundings: str = ""
    now: float | None = None


class Hit(msgspec.Struct, frozen=True):
    """A place in the conversation: the turn that has most to do with the query, by the number of its first message.

    The excerpt may quote turns around it. `messages` are those that it quotes: the one that has most to do with the
    query, then the others in order. `score` is the share that this hit adds of all that the candidates could add.
    """

    turn: int
    messages: tuple[int, ...]
    excerpt: str
    score: float


def choose_terms(query: Query, statistics: Statistics, most: int = MOST_LOOKUPS) -> list[str]:
    """Returns the terms worth looking up, the most telling first.

    Telling are rare terms, and those that come first in the query.
    """
    strength = {term: weight * statistics.rarity(term) for term, weight in query.weights.items()}
    telling = [term for term, value in strength.items() if value]
    return sorted(telling, key=lambda term: (-strength[term], term))[:most]


def choose_passages(
    scores: NDArray[np.float64], numbers: NDArray[np.int64], talk: TalkQuery | None = None
) -> list[int]:
    """Returns the numbers of the passages to look at: the best ones, and those beside the very best.

    Newer ones first. Where few are found, or people may be talking, what stands farther around them is looked at, too.
    """
    # Where one or two words are all there is to go by, most passages count the same: fewer of them say as
    # much.
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

    Where the meaning of the query is given, what is near to it counts beside the words. Where it may be a question about
    talk, and the candidates are talk, whole messages are ranked.
    """
    ordered = sorted(candidates, key=lambda candidate: candidate.origin.passage)
    if talk is not None and is_talk(talk, query, ((one.origin.speaker, one.text) for one in ordered)):
        spoken = _join_spoken(ordered)
        scores = score_talk(talk, query, spoken, statistics, meaning)
        is_asked = None
        if meaning is None and _count_wanted(query) <= _FEW_WORDS:
            is_asked = partial(holds_word, talk, query)
        return _pick_messages(spoken, scores, query, wish, is_asked)
    fragments = cut_fragments((candidate.origin, candidate.text) for candidate in ordered)
    scores = score_fragments(query, fragments, statistics)
    if meaning is not None and fragments:
        scores = scores + _score_meaning(query, fragments, statistics, meaning, float(scores.max()))
    if not len(scores) or scores.max() <= 0.0:
        return []
    best = np.sort(np.argsort(-scores, kind="stable")[:MOST_FRAGMENTS])
    fragments, scores = [fragments[row] for row in best.tolist()], scores[best]
    belief = np.exp((scores / scores.max() - 1.0) / _TEMPERATURE)
    tokens = set[str]().union(*(fragment.tokens for fragment in fragments))
    cues = Cues(query, statistics, tokens)
    worth, held = _weigh_values(fragments, belief, cues, query.values | wish.known)
    asks_much = _count_wanted(query) > _FEW_WORDS
    by_itself = _BY_ITSELF if asks_much else _BY_WORDS
    alone = (belief * (by_itself / belief.sum())).tolist()
    related = _find_related(query, fragments, scores)
    stock = _ScoredFragments(fragments, related, worth, held, alone, 1.0 + by_itself)
    return _HitPicker(stock).take(wish, around=_AROUND if asks_much else 0)


def _count_wanted(query: Query) -> int:
    """Returns how many words were asked for, without those that only surround them."""
    return sum(weight == 1.0 for weight in query.weights.values())


def _find_related(
    query: Query, fragments: Sequence[Fragment], scores: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Returns which fragments have to do with the query.

    A query of a few words asks to see them: they must stand in the fragment itself. For a longer one it is enough that
    they stand beside it.
    """
    if _count_wanted(query) > _FEW_WORDS:
        return scores > 0.0
    wanted = {term for term, weight in query.weights.items() if weight == 1.0}
    holding = np.array(
        [any(not wanted.isdisjoint(terms) for terms in fragment.terms) for fragment in fragments], np.bool_
    )
    return holding & (scores > 0.0) if holding.any() else scores > 0.0


def _join_spoken(ordered: Sequence[Candidate]) -> list[Spoken]:
    """Returns the messages that the candidates are of, in their order."""
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
    """Returns the best messages as hits, each with those around it that fit, and none that was shown before.

    Where `is_asked` is given, one of the texts of a hit must be.
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
    """Returns the rows of a message and of those around it, as many on each side as fit and were not shown."""
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
    """Returns whether the message behind this one is the next that was said."""
    return spoken[row].last + 1 == spoken[row + 1].origin.passage


def _score_meaning(
    query: Query, fragments: Sequence[Fragment], statistics: Statistics, meaning: Meaning, best: float
) -> NDArray[np.float64] | float:
    """Returns what nearness in meaning adds to each fragment.

    The less the words find of what is asked, the more. Where the best fragment holds the words of the query,
    nothing: a name that is found is what was looked for.
    """
    strengths = (
        weight * (statistics.rarity(term) or statistics.rarest) for term, weight in query.weights.items()
    )
    missing = sum(heapq.nlargest(_FULL, strengths)) - best
    if missing <= 0.0:
        return 0.0
    blocks = _join_blocks(fragments)
    near = meaning.measure_texts(["\n".join(one.text for one in block) for block in blocks]).astype(
        np.float64
    )
    of_each = np.repeat(near, list(map(len, blocks)))
    return _MEANT * missing * np.maximum(of_each - _LEAST_MEANT, 0.0)


def _join_blocks(fragments: Sequence[Fragment]) -> list[list[Fragment]]:
    """Returns the fragments in blocks of one voice.

    A line alone is too short to tell what it means from what it does not.
    """
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


def _weigh_values(
    fragments: Sequence[Fragment], belief: NDArray[np.float64], cues: Cues, known: frozenset[str]
) -> tuple[dict[str, float], list[frozenset[str]]]:
    """Returns the worth of each value, all together 1, and the values of each fragment.

    None of them is in `known`. A value gets a share of belief by how relevant the fragments are that hold it;
    whether words of the query stand right before it, as a label does; how many tokens before it stand in the
    query in the same order; whether it was an argument of a call; in how many fragments it stands (one that
    stands everywhere is no find); and how crowded its least crowded fragment is. What the asker knows,
    because it stands in the query or in the view, is worth nothing.
    """
    seen: dict[str, _Sighting] = {}
    held: list[frozenset[str]] = []
    for fragment, share in zip(fragments, belief.tolist(), strict=True):
        values = fragment.find_values()
        places = [at for at, own in enumerate(values) if own]
        mine: set[str] = set()
        for at, cue in zip(places, cues.before(fragment.tokens, places), strict=True):
            for value in values[at]:
                if value not in known:
                    sighting = seen.get(value)
                    if sighting is None:
                        sighting = seen[value] = _Sighting()
                    sighting.cue = max(sighting.cue, cue)
                    mine.add(value)
        for value in mine:
            sighting = seen[value]
            sighting.belief += share
            sighting.fragments += 1
            sighting.crowd = min(sighting.crowd, len(places))
            sighting.called |= fragment.origin.speaker is Speaker.CALL
        held.append(frozenset(mine))
    worth = {value: _weigh_value(sighting) for value, sighting in seen.items()}
    total = sum(worth.values()) or 1.0
    return {value: one / total for value, one in worth.items()}, held


def _weigh_value(sighting: _Sighting) -> float:
    return math.exp(
        _RELEVANT * math.log(max(sighting.belief, 1e-12))
        + sighting.cue
        + _CALLED * sighting.called
        + _EVERYWHERE * math.log(sighting.fragments)
        + _CROWDED * math.log(sighting.crowd + 1)
    )


class _Sighting(msgspec.Struct):
    belief: float = 0.0
    cue: float = 0.0
    fragments: int = 0
    crowd: int = 1_000
    called: bool = False


class Cues:
    """Cues before a value that speak for it.

    A label is made of words of the query, the rarer the better. An echo is a run of tokens that stands in the
    query, too, in the same order: what begins in the same way often goes on in the same way.
    """

    def __init__(self, query: Query, statistics: Statistics, tokens: Iterable[str]) -> None:
        """Reads the cues of a query, for fragments that are made of these tokens."""
        self._query = query
        strength = {term: weight * statistics.rarity(term) for term, weight in query.weights.items()}
        self._full = sum(sorted(strength.values())[-_STRONGEST:]) or 1.0
        self._strength: dict[str, float] = {}
        for token in tokens:
            strongest = max([strength.get(term, 0.0) for term in find_terms(token)], default=0.0)
            if strongest:
                self._strength[token] = strongest

    def before(self, tokens: list[str], places: Sequence[int]) -> list[float]:
        """Returns for the tokens at these places of a fragment how much what stands before them speaks for them."""
        strength = self._strength
        label = [strength.get(token, 0.0) for token in tokens]
        if not any(label):
            return [0.0] * len(places)
        asked = self._query.places
        cues = []
        for at in places:
            cue = 0.0
            if at:
                near = label[max(0, at - len(_LABEL)) : at]
                words = sum([part * word for part, word in zip(_LABEL, near[::-1], strict=False)])
                cue = _LABELLED * min(words / self._full, _MOST_LABELLED)
                if tokens[at - 1] in asked:
                    cue += _ECHOED * self._measure_echo(tokens, at)
            cues.append(cue)
        return cues

    def _measure_echo(self, tokens: list[str], at: int) -> int:
        """Returns how many tokens before this place stand in the query as well, one after the other."""
        asked = self._query.tokens
        longest = 1
        for place in self._query.places[tokens[at - 1]]:
            length = 1
            most = min(_LONGEST_ECHO, at, place + 1)
            while length < most and tokens[at - 1 - length] == asked[place - length]:
                length += 1
            longest = max(longest, length)
        return longest


class _ScoredFragments(msgspec.Struct, frozen=True, eq=False):
    """All fragments, whether each has to do with the query, the worth of values, and which fragment holds which.

    `alone` is what each fragment is worth beside its values; `total` what all of it is worth together.
    """

    fragments: Sequence[Fragment]
    related: NDArray[np.bool_]
    worth: dict[str, float]
    held: list[frozenset[str]]
    alone: list[float]
    total: float


class _HitPicker:
    """The fragments of each place, what each still adds, and which are taken."""

    def __init__(self, stock: _ScoredFragments) -> None:
        self._stock = stock
        # What each fragment adds to the hits so far, and the values that none of them shows.
        self._pieces = _Pieces(
            [len(fragment.text) for fragment in stock.fragments], [], list(map(set, stock.held)), stock.worth
        )
        self._pieces.gains.extend(map(self._sum_worth, range(len(stock.held))))
        self._fresh = _drop_repeats(stock)
        self._rows = _group_by_turn(stock.fragments, self._fresh)
        self._taken: set[int] = set()
        self._holders: dict[str, list[int]] = {}
        for row, values in enumerate(stock.held):
            for value in values:
                self._holders.setdefault(value, []).append(row)

    def take(self, wish: Wish, around: int = 0) -> list[Hit]:
        """Returns the best hits, each from the place that adds the most to those before.

        That of the first reaches so many messages to both sides, where a number is given.
        """
        hits: list[Hit] = []
        if around and wish.hits:
            hits += self._take_best(_group_by_turn(self._stock.fragments, self._fresh, around), wish, 1)
        return hits + self._take_best(self._rows, wish, wish.hits - len(hits))

    def _take_best(self, places: Mapping[int, list[int]], wish: Wish, most: int) -> list[Hit]:
        """Returns so many hits from these places, and takes their fragments away."""
        heap = [(-self._fill_best(rows, wish)[0], -turn) for turn, rows in places.items()]
        heapq.heapify(heap)
        hits: list[Hit] = []
        while heap and len(hits) < most:
            _, turn = heapq.heappop(heap)
            added, rows = self._fill_best(places[-turn], wish)
            if not self._stock.related[rows].any():
                continue
            if heap and (-added, turn) > heap[0]:
                heapq.heappush(heap, (-added, turn))
                continue
            hits.append(self._build_hit(rows, added))
            self._show(rows)
            heapq.heappush(heap, (-added, turn))
        return hits

    def _fill_best(self, place: Iterable[int], wish: Wish) -> tuple[float, list[int]]:
        """Returns what the best excerpt of a place adds, and its rows: one of them holds a word of the query, if any does."""
        rows = [row for row in place if row not in self._taken]
        added, best = _fill_excerpt(self._pieces, rows, wish.characters)
        related = [row for row in rows if self._stock.related[row]]
        if not related or self._stock.related[best].any():
            return added, best
        telling = max(related, key=lambda row: (self._stock.alone[row], row))
        room = wish.characters - self._pieces.lengths[telling] - len(_GAP)
        if room < 0:
            return added, best
        more, beside = _fill_excerpt(self._pieces, [row for row in rows if row != telling], room)
        return more + self._pieces.gains[telling], sorted([telling, *beside])

    def _sum_worth(self, row: int) -> float:
        """Returns what the row is worth beside its values, and by those that no hit shows."""
        return self._stock.alone[row] + math.fsum(
            map(self._stock.worth.__getitem__, self._pieces.values[row])
        )

    def _build_hit(self, rows: list[int], added: float) -> Hit:
        fragments = [self._stock.fragments[row] for row in rows]
        telling = self._stock.fragments[max(rows, key=self._stock.alone.__getitem__)]
        messages = dict.fromkeys([telling.origin.message, *(one.origin.message for one in fragments)])
        score = _round_score(added / self._stock.total)
        return Hit(telling.origin.turn, tuple(messages), _join_fragments(fragments), score)

    def _show(self, rows: list[int]) -> None:
        """Takes these fragments away, and their values from all others."""
        self._taken.update(rows)
        shown = set[str]().union(*(self._pieces.values[row] for row in rows))
        for row in {row for value in shown for row in self._holders[value]}:
            self._pieces.values[row] -= shown
            self._pieces.gains[row] = self._sum_worth(row)


def _drop_repeats(stock: _ScoredFragments) -> list[int]:
    """Returns the rows without those that say the same again.

    Of equals, the one worth most stays, and the newest of these.
    """
    best: dict[str, int] = {}
    for row, fragment in enumerate(stock.fragments):
        other = best.setdefault(fragment.text, row)
        if stock.alone[row] >= stock.alone[other]:
            best[fragment.text] = row
    return sorted(best.values())


def _group_by_turn(fragments: Sequence[Fragment], rows: list[int], around: int = 0) -> dict[int, list[int]]:
    """Returns for each turn its rows and those of the turns just before and after it, or of those so far around it."""
    own: dict[int, list[int]] = {}
    for row in rows:
        own.setdefault(fragments[row].origin.turn, []).append(row)
    turns = sorted(own)
    places: dict[int, list[int]] = {}
    for at, turn in enumerate(turns):
        if around:
            near = turns[bisect_left(turns, turn - around) : bisect_right(turns, turn + around)]
        else:
            near = [other for other in turns[max(0, at - 1) : at + 2] if abs(other - turn) <= _NEAR]
        places[turn] = [row for other in near for row in own[other]]
    return places


def _round_score(score: float) -> float:
    return float(f"{score:.{_DIGITS}g}")


class _Pieces(msgspec.Struct, frozen=True, eq=False):
    """The pieces that an excerpt may be made of.

    The length of each, what it adds alone, and the values that it adds. An excerpt holds the fragments of one
    place in the conversation that add the most for their length, in their own order, with a line `…` where
    something was left out between two of them.
    """

    lengths: list[int]
    gains: list[float]
    values: list[set[str]]
    worth: Mapping[str, float]

    def compute_gain(self, row: int, shown: set[str]) -> float:
        """Returns what a piece adds to others that show these values."""
        again = self.values[row] & shown
        return self.gains[row] - math.fsum(map(self.worth.__getitem__, again)) if again else self.gains[row]


def _fill_excerpt(pieces: _Pieces, rows: Iterable[int], characters: int) -> tuple[float, list[int]]:
    """Returns what the best rows for so many characters add together, and these rows in order.

    The best are those that add the most for their length.
    """
    lengths, gains = pieces.lengths, pieces.gains
    room = characters + len(_GAP)
    heap = [(-gains[row] / (lengths[row] + _OVERHEAD), row) for row in rows]
    heapq.heapify(heap)
    chosen: list[int] = []
    shown: set[str] = set()
    total = 0.0
    while heap and room > _LEAST_ROOM:
        _, row = heapq.heappop(heap)
        length = lengths[row]
        if length + len(_GAP) > room:
            continue
        added = pieces.compute_gain(row, shown)
        if added <= 0.0:
            continue
        density = added / (length + _OVERHEAD)
        if heap and density < -heap[0][0]:
            heapq.heappush(heap, (-density, row))
            continue
        chosen.append(row)
        shown |= pieces.values[row]
        total += added
        room -= length + len(_GAP)
    return total, sorted(chosen)


def _join_fragments(fragments: Sequence[Fragment]) -> str:
    """Returns the fragments as one text, with a mark where something between them was left out."""
    text, last = "", None
    for fragment in fragments:
        if last is not None:
            text += "\n" if fragment.place == last + 1 else _GAP
        text += fragment.text
        last = fragment.place
    return text


def draw_excerpt(text: str, query: Query, characters: int) -> str:
    """Returns what the text says to the query, in at most so many characters.

    Where it says nothing, that is its beginning.
    """
    if characters < 1:
        return ""
    laid = make_readable(text)
    if len(laid) <= characters:
        return laid
    fragments = cut_fragments([(_NO_ORIGIN, laid)], min(FRAGMENT_CHARACTERS, characters))
    scores = score_fragments(query, fragments, _count_terms(query, fragments)).tolist()
    best = max(range(len(fragments)), key=scores.__getitem__)
    rest = [row for row in range(len(fragments)) if row != best]
    room = characters - len(fragments[best].text) - len(_GAP)
    pieces = _Pieces([len(one.text) for one in fragments], scores, [set()] * len(fragments), {})
    beside = _fill_excerpt(pieces, rest, room)[1]
    return _join_fragments([fragments[row] for row in sorted([best, *beside])])


def _count_terms(query: Query, fragments: Sequence[Fragment]) -> Statistics:
    """Returns the statistics as if the fragments were all there is."""
    terms = [{term for terms in fragment.terms for term in terms} for fragment in fragments]
    return Statistics(len(fragments), {term: sum(term in own for own in terms) for term in query.weights})
