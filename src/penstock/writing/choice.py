"""Chooses the excerpts of a handoff: those that cover most of the values that will be needed.

`importance` scores how likely each value is to be needed. The choice is a greedy cover within a budget. The next
excerpt is always the one that adds most per token, given the values covered so far: a value in the view, in the tail
or in an excerpt chosen before adds nothing. A value counts in full only with plain words beside it, in its own excerpt
or in a chosen neighbour. Without them it counts for less, and makes its neighbours candidates. The first excerpt of a
message also pays for the message's header. This module works out, for all excerpts at once, how much each could add at
most; `greedy` works out how much one adds now, only for those that come to the top of the heap.

Excerpts, sources and values are numbers here, those of the `Index`, whose arrays relate them to each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.writing.compiled import (
    count_known_words,
    count_plain_words,
    find_least_of_most,
    find_path_parts,
    open_greedy,
    sum_lacks,
)
from penstock.writing.greedy import BARE, LEAST_ROOM, WORDS, CountedExcerpts
from penstock.writing.importance import live_of, score_values
from penstock.writing.reading import append_rows, split_runs
from penstock.writing.values import sub_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.conversation.message import ToolCall
    from penstock.measure.tokens import Tokenizer
    from penstock.writing.reading import Index
    from penstock.writing.transcript import Transcript
    from penstock.writing.writer import Importance

__all__ = ["FOCUS_SHARE", "ExcerptChoice", "begin_choice", "find_topic", "join_excerpts"]

FOCUS_SHARE = 0.65
"""The share of the text for a topic that a person asks to keep in full detail."""
_TOPIC_WORDS = 0.7  # of a topic's words, weighted by rarity: a source with this many is about the topic
_SHORTEST_TOPIC_WORD = 3

_CHARACTERS_PER_TOKEN = 3.6
_SMALLEST_POOL = 1_500
_AT_ONCE = 100_000  # excerpts
_SECOND_LOOK = 6  # a second look covers this many times the wanted excerpts


def begin_choice(
    transcript: Transcript,
    request: int | None,
    focus: str,
    *,
    tokenizer: Tokenizer,
    price_headers: Callable[[Sequence[int]], Sequence[int]] | None = None,
    importance: Importance | None = None,
) -> ExcerptChoice:
    """Returns an empty choice that knows how likely the live request is to need each value.

    `request` is the position of the request, `price_headers` is that of `ExcerptChoice`, and `importance` replaces
    `score_values`.
    """
    index = transcript.index
    live = live_of(transcript, request, focus)
    weights = (importance or score_values)(index, live, transcript.tokens_after())
    return ExcerptChoice(index, weights, tokenizer, price_headers)


def find_topic(index: Index, calls: Mapping[str, ToolCall], focus: str) -> NDArray[np.bool_]:
    """Returns for each source whether it mentions the topic, or answers a call that does.

    For a topic of several words, the whole phrase counts, or most of its words in any order; rare words weigh more than
    common ones. If no source has most of the words, the sources with the most of them count.
    """
    topic = " ".join(focus.lower().split())
    texts = [
        f"{source.text}\n{calls[tag].arguments if tag in calls else ''}".lower()
        for source, tag in zip(index.sources, index.tags, strict=True)
    ]
    as_written = np.array([topic in text for text in texts], np.bool_)
    words = sorted({word for word in topic.split() if len(word) >= _SHORTEST_TOPIC_WORD})
    if len(words) < 2 and as_written.any():
        return as_written
    scores = _score_topic(texts, words)
    if not scores.any():
        scores = _score_topic(texts, sorted(sub_words(focus)))
    if not scores.any():
        return as_written
    most = scores >= _TOPIC_WORDS
    return as_written | (most if most.any() else scores >= _TOPIC_WORDS * scores.max())


def _score_topic(texts: Sequence[str], words: Sequence[str]) -> NDArray[np.float64]:
    """Returns for each text the share of these words that it holds, weighted by their rarity; from 0 to 1."""
    holds = np.array([[word in text for word in words] for text in texts], np.float64).reshape(len(texts), -1)
    rarity = np.log((2.0 + len(texts)) / (1.0 + holds.sum(axis=0)))
    total = float(rarity.sum())
    scores: NDArray[np.float64] = holds @ rarity / total if total else np.zeros(len(texts))
    return scores


def join_excerpts(index: Index, numbers: Sequence[int]) -> str:
    """Returns these excerpts as one text, with a blank line between any that are not neighbours in one source."""
    pieces: list[str] = []
    last = -1
    for number in numbers:
        if pieces:
            follows = number == last + 1 and index.source_of[number] == index.source_of[last]
            pieces.append("\n" if follows else "\n\n")
        pieces.append(index.excerpt(number))
        last = number
    return "".join(pieces)


def _find_best(densities: NDArray[np.float32], most: int) -> NDArray[np.int64]:
    """Returns the places of the `most` highest above 0. Among equal ones, such as lines that were read again, the newest."""
    least = 0.0
    if len(densities) > most:  # those above 0 are in the same order as their bits, and those below 0 as low
        bits = np.array([find_least_of_most(densities.view(np.int32), most)], np.int32)
        least = max(0.0, float(bits.view(np.float32)[0]))
    best = np.flatnonzero(densities > least)
    if least > 0.0:
        best = np.concatenate([best, np.flatnonzero(densities == least)[len(best) - most :]])
    return best


class ExcerptChoice:
    """The excerpts chosen so far and the values that they cover.

    `weights` has one row per value. `price_headers` returns the tokens of the line above the excerpts of each of these
    sources; None if they need no header.
    """

    def __init__(
        self,
        index: Index,
        weights: NDArray[np.float32],
        tokenizer: Tokenizer,
        price_headers: Callable[[Sequence[int]], Sequence[int]] | None = None,
    ) -> None:
        self._index = index
        self._counted = _Counted.of(index)
        self._tokenizer = tokenizer
        self._price_headers = price_headers
        # For each value: its weight, and how far it is covered, from 0 to 1.
        self._weights = np.ascontiguousarray(weights, np.float32)
        self._covered = np.zeros(len(weights), np.float32)
        self._loop = open_greedy(self._weights, self._covered)
        self._headed: set[int] = set()  # sources whose header was counted
        self._worth: NDArray[np.float32] | None = None  # by excerpt, beyond its values
        self._shown = ""  # a text in the view, which no excerpt repeats
        self._shown_words: frozenset[str] = frozenset()

    @property
    def order(self) -> list[int]:
        """The chosen excerpts, in the order of the choice."""
        return self._loop.order

    @property
    def chosen(self) -> set[int]:
        """The chosen excerpts."""
        return set(self._loop.order)

    @property
    def tokens(self) -> int:
        """The tokens of the chosen excerpts and their headers."""
        return self._loop.tokens

    def cover(self, ids: NDArray[np.int32], *, bare: bool = False) -> None:
        """Counts these values as present already; with `bare`, without words around them.

        Ignores values that the conversation does not hold, since the vocabulary may know more than its index.
        """
        ids = ids[ids < len(self._covered)]
        self._covered[ids] = np.maximum(self._covered[ids], BARE if bare else 1.0)
        self._loop.notice(ids)

    def hide(self, text: str) -> None:
        """Excludes excerpts that this text, which is in the view, holds word for word."""
        words = text.split()
        self._shown, self._shown_words = " ".join(words), frozenset(words)

    def take(self, excerpts: Sequence[int], budget: int) -> None:
        """Chooses these excerpts, in order, as long as the budget lasts."""
        self._prepare(np.array(excerpts, np.int32))
        for number in excerpts:
            if self._loop.is_chosen(number) or self.is_shown(number):
                continue
            if self._loop.price(number) <= budget - self.tokens:
                self._loop.choose(number, self)

    def fill(self, allowed: NDArray[np.bool_], budget: int, worth: NDArray[np.float32] | None = None) -> None:
        """Chooses the allowed excerpts that add most per token, until the budget is used up.

        `worth` is the worth of each excerpt beyond its values, since a sentence says something even without any. The
        newest excerpt counts up to twice as much as the oldest.
        """
        if worth is not None:
            newer = np.arange(len(worth), dtype=np.float32)  # a single array, changed in place
            newer /= np.float32(max(1, len(worth)))
            newer += np.float32(1.0)
            newer *= worth
            worth = newer
        self._worth = worth
        self._loop.allow(allowed, worth, self._index.source_of, self._index.lengths)
        candidates = _Candidates(allowed)
        while budget - self.tokens > LEAST_ROOM:
            self._gather(candidates, budget - self.tokens)
            before = self.tokens
            self._loop.run(budget, self)
            if self.tokens == before:
                return

    def refill(self, budget: int) -> None:
        """Continues where `fill` stopped, with a larger budget and the candidates that it had gathered."""
        self._loop.run(budget, self)

    def drop_last(self) -> bool:
        """Gives up the excerpt that was chosen last; returns False if there is none."""
        return self._loop.drop_last()

    def plain_words(self, number: int) -> int:
        """Returns the number of plain words in the excerpt, up to the number that matters to the loop."""
        known = self._counted.plain.get(number)
        if known is None:
            known = self._counted.plain[number] = count_plain_words(self._index.excerpt(number), WORDS)
        return known

    def is_shown(self, number: int) -> bool:
        """Returns True if the view shows the excerpt already, word for word."""
        if not self._shown:
            return False
        text = self._index.excerpt(number)
        begun = text.split(None, 2)
        if len(begun) > 2 and begun[1] not in self._shown_words:  # most get no further
            return False
        words = text.split()
        # All but the first and the last stand whole in a text that holds them: this rules out most at a glance.
        return self._shown_words.issuperset(words[1:-1]) and " ".join(words) in self._shown

    def prepare(self, number: int) -> None:
        """Measures an excerpt that came to the top before it was measured."""
        source = self._index.source_of.item(number)
        if source not in self._headed:
            self._price([source])
        self._loop.add(self._counted.count_one(number, self._index, self._tokenizer))

    def _gather(self, candidates: _Candidates, room: int) -> None:
        """Makes a heap of the promising candidates, with the most that each could add per token.

        The figure from an earlier look is a ceiling, since no candidate can add more than it could then. So nearly all of
        them need no second look.
        """
        most = max(_SMALLEST_POOL, room // 4)
        ceilings, some = candidates.ceilings, candidates.numbers
        cut = 0.0
        if ceilings is not None and candidates.count > _SECOND_LOOK * most:
            cut = float(np.partition(ceilings, -_SECOND_LOOK * most)[-_SECOND_LOOK * most])
            places = np.flatnonzero(ceilings >= cut)
            some = places.astype(np.int32) if some is None else some[places]
        densities = self._per_token(candidates.allowed, some)
        best = _find_best(densities, most)
        if cut and (
            len(best) < most or densities[best].min() <= cut
        ):  # one that was left out might be as good
            candidates.ceilings = None
            self._gather(candidates, room)
            return
        if not cut:
            candidates.ceilings = densities
        pool = best.astype(np.int32) if some is None else some[best]
        self._prepare(pool)
        self._loop.begin(pool, self._most_gain(pool), self)

    def _per_token(
        self, allowed: NDArray[np.bool_], numbers: NDArray[np.int32] | None
    ) -> NDArray[np.float32]:
        """Returns what each of these excerpts could add per token; without numbers, for all, below 0 if not allowed."""
        densities = self._most_gain(allowed if numbers is None else numbers)
        lengths = self._index.lengths
        for start in range(0, len(densities), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            tokens = (lengths[part] if numbers is None else lengths[numbers[part]]) * np.float32(
                1 / _CHARACTERS_PER_TOKEN
            )
            densities[part] /= tokens + np.float32(2.0)
        if numbers is None:
            densities[~allowed] = -1.0
        return densities

    def _most_gain(self, excerpts: NDArray[np.int32] | NDArray[np.bool_]) -> NDArray[np.float32]:
        """Returns what each of these excerpts could add: the uncovered weight of its values, and its own worth.

        Counts values as if they had plain words beside them. `excerpts` are numbers, or flags for all excerpts.
        """
        index = self._index
        gains = np.zeros(len(excerpts), np.float32)
        if not sum_lacks(index.starts, index.ids, self._weights, self._covered, excerpts, gains):
            self._sum_lacks(excerpts, gains)
        if self._worth is not None:
            gains += self._worth if excerpts.dtype == np.bool_ else self._worth[excerpts]
        return gains

    def _sum_lacks(self, excerpts: NDArray[np.int32] | NDArray[np.bool_], sums: NDArray[np.float32]) -> None:
        """Does what `compiled.sum_lacks` does, if the core is missing."""
        index = self._index
        still_open = 1.0 - self._covered
        still_open *= self._weights
        if excerpts.dtype == np.bool_:  # most excerpts: read all rows of `ids` in order
            for begin, after in split_runs(index.starts):
                edges = index.starts[begin : after + 1]
                filled = np.flatnonzero(np.diff(edges))
                if len(filled):
                    weights = still_open.take(index.ids[edges[0] : edges[-1]])
                    sums[begin + filled] = np.add.reduceat(weights, edges[filled] - edges[0])
            sums[~excerpts] = 0.0
            return
        filled = np.flatnonzero(index.starts[excerpts + 1] > index.starts[excerpts])
        for start in range(0, len(filled), _AT_ONCE):
            some = filled[start : start + _AT_ONCE]
            first = index.starts[excerpts[some]]
            sizes = index.starts[excerpts[some] + 1] - first
            ends = np.cumsum(sizes)
            # The runs of `ids` that belong to these excerpts, one after the other; `reduceat` adds up each of them.
            rows = np.arange(ends[-1]) + np.repeat(first - (ends - sizes), sizes)
            weights = still_open.take(index.ids[rows], mode="clip")  # faster, without a check of bounds
            sums[some] = np.add.reduceat(weights, ends - sizes)

    def _prepare(self, pool: NDArray[np.int32]) -> None:
        """Measures the exact cost of these excerpts and their headers, each once."""
        numbers = np.frombuffer(self._loop.missing(pool), np.int32)
        if not len(numbers):
            return
        self._price(self._index.source_of[numbers].tolist())
        self._loop.add(self._counted.count(numbers, self._index, self._tokenizer))

    def _price(self, sources: Sequence[int]) -> None:
        """Measures the headers of those of these sources that were not measured yet."""
        unknown = sorted({*sources} - self._headed)
        if not unknown:
            return
        self._headed.update(unknown)
        headers = [0] * len(unknown) if self._price_headers is None else self._price_headers(unknown)
        for source, tokens in zip(unknown, headers, strict=True):
            self._loop.set_header(source, tokens)


_FOR_GOOD = (1 << 31) - 1  # nothing is left to look up


class _Candidates:
    """The excerpts that may be chosen, and what each could add per token at the last look at all of them."""

    def __init__(self, allowed: NDArray[np.bool_]) -> None:
        self.allowed = allowed
        self.count = int(np.count_nonzero(allowed))
        few = 2 * self.count <= len(allowed)
        self.numbers = np.flatnonzero(allowed).astype(np.int32) if few else None
        """The allowed excerpts, if they are few; otherwise all are scanned in order."""
        self.ceilings: NDArray[np.float32] | None = None
        """Row by row with the numbers, or with all excerpts."""


class _Paths(msgspec.Struct, frozen=True, gc=False):
    """The paths of an excerpt. A path also tells its folders and its end, which then need no quote of their own."""

    number: int
    parts: list[str]
    missing: Sequence[str] = ()  # the parts that are not values


class _Counted:
    """Measures excerpts of one index, each once.

    An index only grows, so the measurements for one compaction hold for the next. The exception is a part of a path that
    has become a value of the conversation since.
    """

    def __init__(self) -> None:
        self._row_of: dict[int, int] = {}  # by excerpt
        # One row per measured excerpt: its tokens, whether its paths have parts that are values, its plain words, if
        # known, and the stretch of `_values` with its values.
        self._costs = np.zeros(0, np.int32)
        self._with_parts = np.zeros(0, np.bool_)
        self._plain = np.zeros(0, np.int8)
        self._first = np.zeros(0, np.int64)
        self._sizes = np.zeros(0, np.int64)
        self._values = np.zeros(0, np.int32)
        # For rows with paths: the parts of these, and the number of the index's sources when they were last looked up.
        self._paths: dict[int, _Paths] = {}
        self._looked = np.zeros(0, np.int32)
        self._number_of: dict[str, int] = {}  # of parts that are values
        self.plain: dict[int, int] = {}  # by excerpt: plain words that were counted one by one
        # By excerpt that was measured alone: its tokens, its plain words, if known, and the parts of its paths.
        self._alone: dict[int, tuple[int, int, list[str]]] = {}

    @classmethod
    def of(cls, index: Index) -> _Counted:
        """Returns the measurements for this index, up to date with its values."""
        counted: _Counted = index.counted or cls()
        index.counted = counted
        return counted

    def count(self, numbers: NDArray[np.int32], index: Index, tokenizer: Tokenizer) -> CountedExcerpts:
        """Returns the rows of these excerpts."""
        wanted = numbers.tolist()
        known = [*map(self._row_of.get, wanted)]
        if None in known:
            unseen = [number for number, row in zip(wanted, known, strict=True) if row is None]
            self._add(unseen, index, tokenizer)
            known = [*map(self._row_of.get, wanted)]
        rows = np.array(known, np.int32)
        self._look_again(rows[self._looked[rows] < len(index.sources)], index)
        sizes = self._sizes[rows]
        ends = np.cumsum(sizes)
        # The values of all of them, one excerpt after the other.
        values = self._values[np.arange(int(ends[-1])) + np.repeat(self._first[rows] - (ends - sizes), sizes)]
        return CountedExcerpts(
            numbers,
            index.source_of[numbers],
            self._costs[rows],
            ends,
            values,
            self._with_parts[rows],
            self._plain[rows],
        )

    def count_one(self, number: int, index: Index, tokenizer: Tokenizer) -> CountedExcerpts:
        """Returns the row of this excerpt, as `count` does, but without looking for any others."""
        row = self._row_of.get(number)
        if row is None:
            return self._count_alone(number, index, tokenizer)
        if self._looked.item(row) < len(index.sources):
            self._look_again(np.array([row], np.int32), index)
        first, own = self._first.item(row), slice(row, row + 1)
        return CountedExcerpts(
            np.array([number], np.int32),
            index.source_of[number : number + 1],
            self._costs[own],
            self._sizes[own],
            self._values[first : first + self._sizes.item(row)],
            self._with_parts[own],
            self._plain[own],
        )

    def _count_alone(self, number: int, index: Index, tokenizer: Tokenizer) -> CountedExcerpts:
        """Returns the row of an excerpt that is not among the rows, and gets none: to add one takes longer than to make it."""
        known = self._alone.get(number)
        if known is None:
            texts = [index.excerpt(number)]
            parts = find_path_parts(texts)[0]
            known = tokenizer.count(texts[0]) + 1, count_known_words(texts, WORDS)[0], parts
            self._alone[number] = known
        cost, plain, parts = known
        values = index.ids[index.starts.item(number) : index.starts.item(number + 1)]
        found = index.find_named(parts) if parts else {}
        if found:
            more = [found[part] for part in parts if part in found]
            values = np.array([*dict.fromkeys(values.tolist() + more)], np.int32)
        return CountedExcerpts(
            np.array([number], np.int32),
            index.source_of[number : number + 1],
            np.array([cost], np.int32),
            np.array([len(values)], np.int64),
            values,
            np.array([bool(found)], np.bool_),
            np.array([plain], np.int8),
        )

    def _add(self, unseen: Sequence[int], index: Index, tokenizer: Tokenizer) -> None:
        """Adds rows for excerpts that were not measured before."""
        texts, numbers = index.quote_each(unseen), np.array(unseen, np.int32)
        row = len(self._costs)
        self._row_of.update(zip(unseen, range(row, row + len(unseen)), strict=True))
        costs = np.array(tokenizer.count_many(texts), np.int32)
        costs += np.int32(1)  # its line break
        self._costs = append_rows(self._costs, [costs])
        self._plain = append_rows(self._plain, [np.array(count_known_words(texts, WORDS), np.int8)])
        self._with_parts = append_rows(self._with_parts, [np.zeros(len(numbers), np.bool_)])
        self._looked = append_rows(self._looked, [np.full(len(numbers), _FOR_GOOD, np.int32)])
        starts = index.starts[numbers]
        sizes = (index.starts[numbers + 1] - starts).astype(np.int64)
        ends = np.cumsum(sizes)
        values = index.ids[np.arange(int(ends[-1])) + np.repeat(starts - (ends - sizes), sizes)]
        self._first = append_rows(self._first, [len(self._values) + ends - sizes])
        self._sizes = append_rows(self._sizes, [sizes])
        self._values = append_rows(self._values, [values])
        named = enumerate(zip(unseen, find_path_parts(texts), strict=True), start=row)
        paths = {place: one for place, one in named if one[1]}
        self._look_up(set().union(*[parts for _, parts in paths.values()]), index)
        self._join_parts(paths, index)

    def _look_again(self, rows: NDArray[np.int32], index: Index) -> None:
        """Adds the parts of paths that have become values of the index since the last look at these rows."""
        some = rows.tolist()
        if not some:
            return
        found = self._look_up(set().union(*[self._paths[row].missing for row in some]), index)
        self._looked[rows] = len(index.sources)
        if found:
            again = [(row, one) for row in some if not found.isdisjoint((one := self._paths[row]).missing)]
            self._join_parts({row: (one.number, one.parts) for row, one in again}, index)

    def _look_up(self, parts: set[str], index: Index) -> set[str]:
        """Remembers the numbers of those parts that are values of the index, and returns these parts."""
        found = index.find_named(parts)
        self._number_of.update(found)
        return set(found)

    def _join_parts(self, paths: Mapping[int, tuple[int, list[str]]], index: Index) -> None:
        """Appends to the values of each of these rows the parts of its paths that are values, too, each once.

        For each row, `paths` has the excerpt and the parts.
        """
        if not paths:
            return
        numbers = np.array([number for number, _ in paths.values()], np.int64)
        starts, ends = index.starts[numbers].tolist(), index.starts[numbers + 1].tolist()
        joined: list[int] = []  # the values of the rows below, one row after the other
        rows: list[int] = []
        sizes: list[int] = []
        lacking: list[bool] = []
        number_of, ids = self._number_of, index.ids
        for (row, (number, parts)), start, end in zip(paths.items(), starts, ends, strict=True):
            told = [*map(number_of.get, parts)]
            missing = (
                [part for part, one in zip(parts, told, strict=True) if one is None] if None in told else []
            )
            if len(missing) < len(parts):
                more = [one for one in told if one is not None] if missing else told
                own = dict.fromkeys(ids[start:end].tolist() + more)
                joined += own
                rows.append(row)
                sizes.append(len(own))
            lacking.append(bool(missing))
            if missing:  # otherwise nobody looks again
                self._paths[row] = _Paths(number, parts, missing)
        self._looked[list(paths)] = np.where(lacking, len(index.sources), _FOR_GOOD)
        if rows:
            self._first[rows] = len(self._values) + np.cumsum([0, *sizes[:-1]])
            self._sizes[rows] = sizes
            self._with_parts[rows] = True
            self._values = append_rows(self._values, [np.array(joined, np.int32)])
