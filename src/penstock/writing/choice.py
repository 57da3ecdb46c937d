"""Choosing the excerpts of a handoff: which of them cover most of what will be needed.

How likely each value is needed, `importance` says. The choice is a greedy cover within a budget. The next excerpt is
always the one that adds the most per token, given what is covered already: a value that stands in the view, in the
tail or in an excerpt chosen before adds nothing. A value counts in full only with plain words beside it, its own or
those of a neighbouring excerpt that is chosen too; bare it counts for less, and brings its neighbours among the
candidates. The first excerpt of a message also pays for the message's header. What an excerpt could add at most is
worked out for all of them at once; what it adds now only for those that come to the top of the heap.

Excerpts, sources and values are numbers here: those of the `Index`, whose arrays say what belongs to what.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from penstock.writing.importance import live_of, score_values
from penstock.writing.values import parts_of_paths, plain_words, sub_words

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
"""Of what is written: the share of the topic that a person asks to keep in full detail."""
_TOPIC_WORDS = 0.7  # of a topic's words, by how rare they are, make a source be about it
_SHORTEST_TOPIC_WORD = 3

_BARE = 0.6  # what a value without plain words beside it is worth
_WORDS = 2  # that many plain words make it usable
_CHARACTERS_PER_TOKEN = 3.6
_MOST_CHARACTERS_PER_TOKEN = 5.5  # of a line of words
_SMALLEST_POOL = 1_500
_LEAST_ROOM = 6  # tokens: nothing useful fits in less
_NOTHING = 1e-9
_AT_ONCE = 100_000  # excerpts
_SECOND_LOOK = 6  # times as many excerpts as are wanted are looked at again


def begin_choice(
    transcript: Transcript,
    request: int | None,
    focus: str,
    *,
    tokenizer: Tokenizer,
    header: Callable[[int], str] | None = None,
    importance: Importance | None = None,
) -> ExcerptChoice:
    """Returns an empty choice, which knows how likely each value is needed for the live request.

    `request` is the position of the request; `header` is as in `ExcerptChoice`; `importance` replaces `score_values`.
    """
    index = transcript.index
    live = live_of(transcript, request, focus)
    weights = (importance or score_values)(index, live, transcript.tokens_after())
    return ExcerptChoice(index, weights, tokenizer, header)


def find_topic(index: Index, calls: Mapping[str, ToolCall], focus: str) -> NDArray[np.bool_]:
    """Returns for each source whether it speaks of the topic, or answers a call that does.

    A topic of several words counts as it was written, and where most of its words stand, in any order; rare ones say more
    than common ones. Where no source has most of them, those count that have the most.
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
    """Returns for each text the share of these words that it holds, each by how rare it is; from 0 to 1."""
    holds = np.array([[word in text for word in words] for text in texts], np.float64).reshape(len(texts), -1)
    rarity = np.log((2.0 + len(texts)) / (1.0 + holds.sum(axis=0)))
    total = float(rarity.sum())
    scores: NDArray[np.float64] = holds @ rarity / total if total else np.zeros(len(texts))
    return scores


def join_excerpts(index: Index, numbers: Sequence[int]) -> str:
    """Returns these excerpts as one text, with a blank line where they do not follow each other in one source."""
    pieces: list[str] = []
    last = -1
    for number in numbers:
        if pieces:
            follows = number == last + 1 and index.source_of[number] == index.source_of[last]
            pieces.append("\n" if follows else "\n\n")
        pieces.append(index.excerpt(number))
        last = number
    return "".join(pieces)


def _find_best(densities: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """Returns the places of the `most` highest. The same lines read again and again are alike: of those the newest."""
    least = np.partition(densities, -most)[-most] if len(densities) > most else 0.0
    best = np.flatnonzero(densities > least)
    if least > 0.0:
        best = np.concatenate([best, np.flatnonzero(densities == least)[len(best) - most :]])
    return best


class ExcerptChoice:
    """The excerpts chosen so far and the values that they cover.

    `weights` has one row per value. `header` gives the line that stands above the excerpts of a source; None
    where they need no header.
    """

    def __init__(
        self,
        index: Index,
        weights: NDArray[np.float32],
        tokenizer: Tokenizer,
        header: Callable[[int], str] | None = None,
    ) -> None:
        self.order: list[int] = []  # the chosen excerpts, first chosen first
        self.chosen: set[int] = set()
        self.tokens = 0  # of the chosen excerpts and their headers
        self._index = index
        self._tokenizer = tokenizer
        self._header_of = header
        # By value: its weight, and how far it is covered, 0 to 1. The arrays serve passes over all excerpts,
        # the dictionaries the look at single ones: reading one element of an array is slow. They always
        # agree.
        self._weights = weights
        self._covered = np.zeros(len(weights), np.float32)
        self._weight_of: dict[int, float] = {}
        self._level: dict[int, float] = {}
        self._lack: dict[int, float] = {}  # the weight of what is not covered
        # By excerpt, of those that were looked at: its tokens, its source, its values.
        self._cost: dict[int, int] = {}
        self._source: dict[int, int] = {}
        self._values: dict[int, list[int]] = {}
        self._with_parts: set[int] = set()  # of those, where the values are more than the index has
        # By source: the tokens of its header, whether that is paid for, and its excerpts among the
        # candidates.
        self._header: dict[int, int] = {}
        self._opened: set[int] = set()
        self._siblings: dict[int, list[int]] = {}
        # Candidates as (minus what one added per token when it was last looked at, excerpt). What one adds
        # only falls while others are chosen, but for neighbours, which are put back; so a top that still
        # holds is the best.
        self._heap: list[tuple[float, int]] = []
        self._worth: NDArray[np.float32] | None = None  # by excerpt, beside its values
        self._allowed: NDArray[np.bool_] | None = None  # by excerpt, in `fill`
        self._shown = ""  # a text in the view, in which no excerpt is quoted again

    def cover(self, ids: NDArray[np.int32], *, bare: bool = False) -> None:
        """Count these values as present already; `bare` where they stand without the words around them.

        Values that the conversation does not hold are passed over: the vocabulary may know more than its index.
        """
        ids = ids[ids < len(self._covered)]
        self._covered[ids] = np.maximum(self._covered[ids], _BARE if bare else 1.0)
        if self._weight_of:
            self._look_up(np.array([value for value in ids.tolist() if value in self._weight_of], np.int64))

    def hide(self, text: str) -> None:
        """Never choose what stands word for word in this text, which is in the view."""
        self._shown = " ".join(text.split())

    def take(self, excerpts: Sequence[int], budget: int) -> None:
        """Choose these excerpts, in order, as long as the budget lasts."""
        self._prepare(excerpts)
        for number in excerpts:
            if number in self.chosen or self._is_shown(number):
                continue
            if self._price(number) <= budget - self.tokens:
                self._choose(number)

    def fill(self, allowed: NDArray[np.bool_], budget: int, worth: NDArray[np.float32] | None = None) -> None:
        """Choose among the allowed excerpts what adds most per token, until the budget is used.

        `worth` is what each excerpt is worth by itself, beside its values: a sentence says something without any. The
        newest counts for up to twice as much as the oldest.
        """
        if worth is not None:
            newer = np.arange(len(worth), dtype=np.float32) / np.float32(max(1, len(worth)))
            worth = worth * (np.float32(1.0) + newer)
        self._worth = worth
        self._allowed = allowed
        numbers = np.flatnonzero(allowed)
        ceilings: NDArray[np.float64] | None = None
        while budget - self.tokens > _LEAST_ROOM:
            ceilings = self._gather(numbers, ceilings, budget - self.tokens)
            before = len(self.order)
            self._greedy(budget)
            if len(self.order) == before:
                return

    def refill(self, budget: int) -> None:
        """Go on where `fill` stopped, with a larger budget and what it had gathered."""
        self._greedy(budget)

    def drop_last(self) -> bool:
        """Give up the excerpt that was chosen last; False when there is none."""
        if not self.order:
            return False
        number = self.order.pop()
        self.chosen.discard(number)
        self.tokens -= self._cost[number]
        return True

    def _gather(
        self, numbers: NDArray[np.int64], ceilings: NDArray[np.float64] | None, room: int
    ) -> NDArray[np.float64]:
        """Makes a heap of those of these excerpts that are worth looking at, with what each could add at most per token.

        Returns what each could add at most. `ceilings` is what an earlier call returned for the same excerpts: none can
        add more than it could then, so that nearly all of them need no second look.
        """
        most = max(_SMALLEST_POOL, room // 4)
        if ceilings is None or len(numbers) <= _SECOND_LOOK * most:
            gains = self._most_gain(numbers)
            densities = self._per_token(numbers, gains)
            best = _find_best(densities, most)
            ceilings = densities
        else:
            cut = float(np.partition(ceilings, -_SECOND_LOOK * most)[-_SECOND_LOOK * most])
            some = np.flatnonzero(ceilings >= cut)
            gains = self._most_gain(numbers[some])
            densities = self._per_token(numbers[some], gains)
            best = _find_best(densities, most)
            if len(best) < most or densities[best].min() <= cut:  # one that was left out might be as good
                return self._gather(numbers, None, room)
            numbers = numbers[some]
        gain_of = dict(zip(numbers[best].tolist(), gains[best].tolist(), strict=True))
        pool = [number for number in gain_of if number not in self.chosen]
        self._prepare(pool)
        self._siblings = {}
        for number in pool:
            self._siblings.setdefault(self._source[number], []).append(number)
        self._heap = [
            (-self._density(n) if n in self._with_parts else -gain_of[n] / self._price(n), n) for n in pool
        ]
        heapq.heapify(self._heap)
        return ceilings

    def _per_token(self, numbers: NDArray[np.int64], gains: NDArray[np.float32]) -> NDArray[np.float64]:
        """Returns what each of these excerpts could add per token; `gains` is what it could add by its values."""
        if self._worth is not None:
            gains += self._worth[numbers]
        tokens = self._index.lengths[numbers] * np.float32(1 / _CHARACTERS_PER_TOKEN)
        densities: NDArray[np.float64] = gains / (tokens + np.float32(2.0))
        return densities

    def _most_gain(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns for each of these excerpts the sum of what its values lack, as if all of them stood beside plain words."""
        index = self._index
        still_open = self._weights * (1.0 - self._covered)
        gains = np.zeros(len(numbers), np.float32)
        if 2 * len(numbers) > len(
            index.lengths
        ):  # most of them: all rows of `ids` in their order, and no others
            filled = np.flatnonzero(np.diff(index.starts))
            sums = np.zeros(len(index.lengths), np.float32)
            if len(filled):
                sums[filled] = np.add.reduceat(still_open.take(index.ids), index.starts[filled])
            np.take(sums, numbers, out=gains)
            return gains
        filled = np.flatnonzero(index.starts[numbers + 1] > index.starts[numbers])
        for start in range(0, len(filled), _AT_ONCE):
            some = filled[start : start + _AT_ONCE]
            first = index.starts[numbers[some]]
            sizes = index.starts[numbers[some] + 1] - first
            ends = np.cumsum(sizes)
            # The runs of `ids` that belong to these excerpts, one after the other; `reduceat` adds up each of them.
            rows = np.arange(ends[-1]) + np.repeat(first - (ends - sizes), sizes)
            weights = still_open.take(index.ids[rows], mode="clip")  # no check: quicker
            gains[some] = np.add.reduceat(weights, ends - sizes)
        return gains

    def _prepare(self, pool: Sequence[int]) -> None:
        """Exact costs of these excerpts and of their headers, each counted once."""
        index = self._index
        fresh = [number for number in pool if number not in self._cost]
        if not fresh:
            return
        unseen = [number for number in fresh if number not in index.costs]
        texts = list(map(index.excerpt, unseen))
        index.costs.update(zip(unseen, self._tokenizer.count_many(texts), strict=True))
        index.path_parts.update(zip(unseen, parts_of_paths(texts), strict=True))
        costs = [index.costs[number] for number in fresh]
        some = np.array(fresh)
        sources = index.source_of[some].tolist()
        starts, ends = index.starts[some], index.starts[some + 1]
        # The values of all of them one after the other, in one list: a slice of it costs less than one of an array.
        sizes = ends - starts
        after = np.cumsum(sizes)
        values = index.ids[np.arange(int(after[-1])) + np.repeat(starts - (after - sizes), sizes)].tolist()
        # A path tells its folders and its end as well: who quotes it need not quote those.
        parts = index.vocabulary.numbers_of_each([index.path_parts[number] for number in fresh])
        known = len(self._covered)
        first = 0
        for number, cost, source, end, more in zip(fresh, costs, sources, after.tolist(), parts, strict=True):
            self._cost[number] = cost + 1
            self._source[number] = source
            own = values[first:end]
            if more:
                own = list(dict.fromkeys([*own, *(part for part in more if part < known)]))
                self._with_parts.add(number)
            self._values[number] = own
            first = end
        met = set().union(*[self._values[number] for number in fresh])
        # One by one: a set less the keys of a dictionary looks at all of the keys.
        self._look_up(np.array(sorted(value for value in met if value not in self._weight_of), np.int64))
        unknown = sorted({source for source in sources if source not in self._header})
        if self._header_of is None:
            self._header.update(dict.fromkeys(unknown, 0))
            return
        headers = {source: self._header_of(source) for source in unknown}
        new = sorted({header for header in headers.values() if header not in index.heading_costs})
        index.heading_costs.update(zip(new, self._tokenizer.count_many(new), strict=True))
        self._header.update((source, index.heading_costs[header] + 1) for source, header in headers.items())

    def _look_up(self, values: NDArray[np.int64]) -> None:
        """Take these values over from the arrays."""
        numbers, weights, levels = (
            values.tolist(),
            self._weights[values].tolist(),
            self._covered[values].tolist(),
        )
        self._weight_of.update(zip(numbers, weights, strict=True))
        self._level.update(zip(numbers, levels, strict=True))
        self._lack.update(
            zip(
                numbers,
                [weight * (1.0 - level) for weight, level in zip(weights, levels, strict=True)],
                strict=True,
            )
        )

    def _greedy(self, budget: int) -> None:
        """Choose from the heap until the budget is used or nothing adds anything."""
        heap, chosen, put_back = self._heap, self.chosen, []
        while heap and budget - self.tokens > _LEAST_ROOM:
            _, number = heapq.heappop(heap)
            if number in chosen:
                continue
            if number not in self._cost:
                self._prepare([number])
            density = self._density(number)
            if density <= _NOTHING:
                continue
            if heap and -density > heap[0][0]:
                heapq.heappush(heap, (-density, number))
                continue
            if self._price(number) > budget - self.tokens:
                put_back.append((-density, number))
                continue
            if self._is_shown(number):
                continue
            self._choose_from_heap(number)
        for entry in put_back:
            heapq.heappush(heap, entry)

    def _is_shown(self, number: int) -> bool:
        return bool(self._shown) and " ".join(self._index.excerpt(number).split()) in self._shown

    def _choose_from_heap(self, number: int) -> None:
        """Choose, and put those back that this made worth more: neighbours, and others under the same header."""
        source = self._source[number]
        again = self._siblings.get(source, [])
        if source in self._opened:
            again = [n for n in (number - 1, number + 1) if self._source.get(n) == source]
        words = self._choose(number)
        for other in again:
            if other not in self.chosen:
                heapq.heappush(self._heap, (-self._density(other), other))
        if words < _WORDS:
            self._offer_words(number, words)

    def _offer_words(self, number: int, words: int) -> None:
        """Put those beside a bare excerpt on the heap that would give it words and were not looked at yet.

        A comment above a line of code seldom has a value of its own, so that it is not among the candidates. What it
        costs is counted only if it comes to the top.
        """
        index, source, allowed = self._index, self._source[number], self._allowed
        lack = sum([self._lack[value] for value in self._values[number]])
        for other in (number - 1, number + 1):
            if other in self._cost or allowed is None or not 0 <= other < len(allowed) or not allowed[other]:
                continue
            if index.source_of[other] == source and words + self._plain_words(other) >= _WORDS:
                least = 1.0 + float(index.lengths[other]) / _MOST_CHARACTERS_PER_TOKEN
                heapq.heappush(self._heap, (-lack / least, other))

    def _choose(self, number: int) -> int:
        """Choose this excerpt; returns the plain words around it."""
        self.tokens += self._price(number)
        self._opened.add(self._source[number])
        self.chosen.add(number)
        self.order.append(number)
        words = self._words_around(number)
        self._raise(number, 1.0 if words >= _WORDS else _BARE)
        for other in self._find_chosen_beside(number):
            if self._words_around(other) >= _WORDS:
                self._raise(other, 1.0)
        return words

    def _raise(self, number: int, level: float) -> None:
        """Count the values of this excerpt as covered so far, where they are not further already."""
        levels = self._level
        for value in self._values[number]:
            if level > levels[value]:
                levels[value] = self._covered[value] = level
                self._lack[value] = self._weight_of[value] * (1.0 - level)

    def _price(self, number: int) -> int:
        source = self._source[number]
        return self._cost[number] + (0 if source in self._opened else self._header[source])

    def _density(self, number: int) -> float:
        """Returns the weight that the excerpt would add per token now.

        Asked thousands of times for one handoff, so it looks beside and prices without calls.
        """
        lacks, source = self._lack, self._source[number]
        own = self._index.plain.get(number)
        if own is None:
            own = self._plain_words(number)
        beside = self._find_chosen_beside(number)
        full = 1.0
        if own < _WORDS and own + sum(map(self._plain_words, beside)) < _WORDS:
            full = _BARE
        gain = 0.0 if self._worth is None else float(self._worth[number])
        if full == 1.0:
            for value in self._values[number]:
                gain += lacks[value]
        else:
            for value in self._values[number]:
                level = self._level[value]
                if level < full:
                    gain += self._weight_of[value] * (full - level)
        if beside and own:
            for other in beside:
                if self._words_around(other) < _WORDS <= self._plain_words(other) + own:
                    gain += sum([lacks[value] for value in self._values[other]])
        cost = self._cost[number]
        return gain / (cost if source in self._opened else cost + self._header[source])

    def _words_around(self, number: int) -> int:
        """Plain words in the excerpt and in those beside it that are chosen."""
        words = self._plain_words(number)
        if words < _WORDS:
            words += sum(map(self._plain_words, self._find_chosen_beside(number)))
        return words

    def _plain_words(self, number: int) -> int:
        known = self._index.plain.get(number)
        if known is None:
            known = self._index.plain[number] = plain_words(self._index.excerpt(number), _WORDS)
        return known

    def _find_chosen_beside(self, number: int) -> list[int]:
        """Returns the excerpts just before and after in the same source, where they are chosen."""
        chosen, source = self.chosen, self._source
        before, after = number - 1, number + 1
        beside = [before] if before in chosen and source[before] == source[number] else []
        if after in chosen and source[after] == source[number]:
            beside.append(after)
        return beside
