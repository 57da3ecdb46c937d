"""The inner loop of choosing excerpts: finds the one that adds most per token now, given those chosen before.

The caller works out for all excerpts at once how much each could add at most. The loop works out how much an excerpt adds
now, but only for those that come to the top of the heap. With `penstock_core`, its `Greedy` does the same in C.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["BARE", "LEAST_ROOM", "WORDS", "CountedExcerpts", "ExcerptLookup", "Greedy", "GreedyLoop"]

BARE = 0.6  # the worth of a value without plain words beside it
WORDS = 2  # this many plain words make a value usable
LEAST_ROOM = 6  # tokens: nothing useful fits in less
_MOST_CHARACTERS_PER_TOKEN = 5.5  # of a line of words
_NOTHING = 1e-9


class ExcerptLookup(Protocol):
    """Answers the loop's questions about single excerpts. The caller implements it."""

    def plain_words(self, number: int) -> int:
        """Returns the number of plain words in the excerpt, at most `WORDS`."""

    def is_shown(self, number: int) -> bool:
        """Returns True if the view shows the excerpt already, word for word."""

    def prepare(self, number: int) -> None:
        """Adds an excerpt that came to the top before it was measured."""


class CountedExcerpts(NamedTuple):
    """Excerpts that were measured, row by row."""

    numbers: NDArray[np.int32]
    sources: NDArray[np.int32]
    costs: NDArray[np.int32]  # tokens
    ends: NDArray[np.int64]  # for each excerpt, the end of its values in `values`
    values: NDArray[np.int32]
    with_parts: NDArray[np.bool_]  # it has parts of paths among its values, which the first estimate left out
    plain_words: NDArray[np.int8]  # -1 if unknown: the loop asks for them when they matter


class GreedyLoop(Protocol):
    """The measured excerpts, the chosen ones, and a heap of candidates.

    `weights` and `covered` have a row for each value; the loop raises `covered` as it chooses.
    """

    @property
    def tokens(self) -> int:
        """The tokens of the chosen excerpts and their headers."""

    @property
    def order(self) -> list[int]:
        """The chosen excerpts, in the order of the choice."""

    def missing(self, numbers: NDArray[np.int32]) -> bytearray:
        """Returns those of these excerpts that were not added yet, as an array of the same type."""

    def add(self, excerpts: CountedExcerpts) -> None:
        """Adds measured excerpts."""

    def notice(self, values: NDArray[np.int32]) -> None:
        """Reads the levels of these values again, after the caller has raised them."""

    def set_header(self, source: int, tokens: int) -> None:
        """Sets the tokens of the line above the excerpts of a source."""

    def allow(
        self,
        allowed: NDArray[np.bool_],
        worth: NDArray[np.float32] | None,
        source_of: NDArray[np.int32],
        lengths: NDArray[np.int32],
    ) -> None:
        """Sets which excerpts may be chosen, and the worth of each beyond its values; both have a row for each excerpt."""

    def begin(self, pool: NDArray[np.int32], gains: NDArray[np.float32], lookup: ExcerptLookup) -> None:
        """Makes a heap of these added excerpts, by how much each could add at most."""

    def run(self, budget: int, lookup: ExcerptLookup) -> None:
        """Chooses from the heap until the budget is used up or nothing adds anything."""

    def choose(self, number: int, lookup: ExcerptLookup) -> None:
        """Chooses an added excerpt."""

    def price(self, number: int) -> int:
        """Returns the tokens that an added excerpt would take now, its header included."""

    def is_chosen(self, number: int) -> bool:
        """Returns True if the excerpt is chosen."""

    def drop_last(self) -> bool:
        """Gives up the excerpt that was chosen last; returns False if there is none."""


class Greedy:
    """A `GreedyLoop` in Python."""

    def __init__(self, weights: NDArray[np.float32], covered: NDArray[np.float32]) -> None:
        self.tokens = 0
        self._order: list[int] = []
        self._chosen: set[int] = set()
        self._weights = weights
        self._covered = covered
        # For each measured excerpt: its tokens, its source, its values, its plain words.
        self._cost: dict[int, int] = {}
        self._source: dict[int, int] = {}
        self._values: dict[int, list[int]] = {}
        self._plain: dict[int, int] = {}
        self._with_parts: set[int] = set()
        # For each source: the tokens of its header, whether that is paid for, and its excerpts among the candidates.
        self._header: dict[int, int] = {}
        self._opened: set[int] = set()
        self._siblings: dict[int, list[int]] = {}
        # Candidates as pairs: the negative of what the excerpt added per token when it was last looked at, and the
        # excerpt. Choosing others only lowers what one adds, except for neighbours, which are put back. So if the
        # figure of the top is still right, the top is the best.
        self._heap: list[tuple[float, int]] = []
        # For each value in measured excerpts: its weight, how far it is covered, and the weight of the rest. Reading
        # single elements of an array is slow, so these exist beside the arrays, which are for the caller.
        self._weight: dict[int, float] = {}
        self._level: dict[int, float] = {}
        self._lack: dict[int, float] = {}
        self._allowed: NDArray[np.bool_] | None = None
        self._worth: NDArray[np.float32] | None = None
        self._source_of = self._lengths = np.zeros(0, np.int32)

    @property
    def order(self) -> list[int]:
        """The chosen excerpts, in the order of the choice."""
        return list(self._order)

    def missing(self, numbers: NDArray[np.int32]) -> bytearray:
        """Returns those of these excerpts that were not added yet."""
        unknown = [number for number in numbers.tolist() if number not in self._cost]
        return bytearray(np.array(unknown, np.int32))

    def add(self, excerpts: CountedExcerpts) -> None:
        """Adds measured excerpts."""
        numbers, sources, costs, ends, values, with_parts, plain_words = excerpts
        held, first = values.tolist(), 0
        rows = zip(numbers.tolist(), sources.tolist(), costs.tolist(), ends.tolist(), strict=True)
        for number, source, cost, end in rows:
            self._cost[number], self._source[number], self._values[number] = cost, source, held[first:end]
            first = end
        self._with_parts.update(numbers[with_parts].tolist())
        told = plain_words >= 0
        self._plain.update(zip(numbers[told].tolist(), plain_words[told].tolist(), strict=True))
        self._look_up(value for value in set(held) if value not in self._lack)

    def notice(self, values: NDArray[np.int32]) -> None:
        """Reads the levels of these values again, after the caller has raised them."""
        self._look_up(value for value in values.tolist() if value in self._lack)

    def set_header(self, source: int, tokens: int) -> None:
        """Sets the tokens of the line above the excerpts of a source."""
        self._header[source] = tokens

    def allow(
        self,
        allowed: NDArray[np.bool_],
        worth: NDArray[np.float32] | None,
        source_of: NDArray[np.int32],
        lengths: NDArray[np.int32],
    ) -> None:
        """Sets which excerpts may be chosen, and the worth of each beyond its values."""
        self._allowed, self._worth, self._source_of, self._lengths = allowed, worth, source_of, lengths

    def begin(self, pool: NDArray[np.int32], gains: NDArray[np.float32], lookup: ExcerptLookup) -> None:
        """Makes a heap of these added excerpts, by how much each could add at most."""
        self._siblings = {}
        self._heap = []
        for number, gain in zip(pool.tolist(), gains.tolist(), strict=True):
            if number not in self._chosen:
                self._siblings.setdefault(self._source[number], []).append(number)
                with_parts = number in self._with_parts
                density = self._density(number, lookup) if with_parts else gain / self.price(number)
                self._heap.append((-density, number))
        heapq.heapify(self._heap)

    def run(self, budget: int, lookup: ExcerptLookup) -> None:
        """Chooses from the heap until the budget is used up or nothing adds anything."""
        heap, chosen, put_back = self._heap, self._chosen, []
        while heap and budget - self.tokens > LEAST_ROOM:
            _, number = heapq.heappop(heap)
            if number in chosen:
                continue
            if number not in self._cost:
                lookup.prepare(number)
            density = self._density(number, lookup)
            if density <= _NOTHING:
                continue
            if heap and -density > heap[0][0]:
                heapq.heappush(heap, (-density, number))
                continue
            if self.price(number) > budget - self.tokens:
                put_back.append((-density, number))
                continue
            if not lookup.is_shown(number):
                self._choose_from_heap(number, lookup)
        for entry in put_back:
            heapq.heappush(heap, entry)

    def choose(self, number: int, lookup: ExcerptLookup) -> None:
        """Chooses an added excerpt."""
        self._choose(number, lookup)

    def price(self, number: int) -> int:
        """Returns the tokens that an added excerpt would take now, its header included."""
        source = self._source[number]
        return self._cost[number] + (0 if source in self._opened else self._header[source])

    def is_chosen(self, number: int) -> bool:
        """Returns True if the excerpt is chosen."""
        return number in self._chosen

    def drop_last(self) -> bool:
        """Gives up the excerpt that was chosen last; returns False if there is none."""
        if not self._order:
            return False
        number = self._order.pop()
        self._chosen.discard(number)
        self.tokens -= self._cost[number]
        return True

    def _look_up(self, values: Iterable[int]) -> None:
        """Copies the figures of these values from the arrays."""
        places = np.array(list(values), np.int64)
        weights, levels = self._weights[places].tolist(), self._covered[places].tolist()
        for value, weight, level in zip(places.tolist(), weights, levels, strict=True):
            self._weight[value], self._level[value] = weight, level
            self._lack[value] = weight * (1.0 - level)

    def _choose_from_heap(self, number: int, lookup: ExcerptLookup) -> None:
        """Chooses, and puts back the excerpts that this made more valuable: neighbours, and others under the same header."""
        source = self._source[number]
        again = self._siblings.get(source, [])
        if source in self._opened:
            again = [other for other in (number - 1, number + 1) if self._source.get(other) == source]
        words = self._choose(number, lookup)
        for other in again:
            if other not in self._chosen:
                heapq.heappush(self._heap, (-self._density(other, lookup), other))
        if words < WORDS:
            self._offer_words(number, words, lookup)

    def _offer_words(self, number: int, words: int, lookup: ExcerptLookup) -> None:
        """Puts the unmeasured neighbours of a bare excerpt on the heap, if they would give it words.

        A comment above a line of code seldom has a value of its own, so that it is not among the candidates. Its cost is
        counted only if it comes to the top.
        """
        source, allowed = self._source[number], self._allowed
        lack = self._lack_of(number)
        for other in (number - 1, number + 1):
            if other in self._cost or allowed is None or not 0 <= other < len(allowed) or not allowed[other]:
                continue
            if self._source_of[other] == source and words + lookup.plain_words(other) >= WORDS:
                least = 1.0 + float(self._lengths[other]) / _MOST_CHARACTERS_PER_TOKEN
                heapq.heappush(self._heap, (-lack / least, other))

    def _choose(self, number: int, lookup: ExcerptLookup) -> int:
        """Chooses this excerpt; returns the plain words around it."""
        self.tokens += self.price(number)
        self._opened.add(self._source[number])
        self._chosen.add(number)
        self._order.append(number)
        words = self._words_around(number, lookup)
        self._raise(number, 1.0 if words >= WORDS else BARE)
        for other in self._find_chosen_beside(number):
            if self._words_around(other, lookup) >= WORDS:
                self._raise(other, 1.0)
        return words

    def _raise(self, number: int, level: float) -> None:
        """Raises the values of this excerpt to this level of cover, unless they are higher already."""
        levels = self._level
        for value in self._values[number]:
            if level > levels[value]:
                levels[value] = self._covered[value] = level
                self._lack[value] = self._weight[value] * (1.0 - level)

    def _lack_of(self, number: int) -> float:
        """Returns the weight that is still uncovered in the values of an excerpt."""
        lack = 0.0
        for value in self._values[number]:  # one by one, since `sum` rounds differently from Python 3.12 on
            lack += self._lack[value]
        return lack

    def _density(self, number: int, lookup: ExcerptLookup) -> float:
        """Returns the weight that the excerpt would add per token now."""
        own = self._plain_words(number, lookup)
        beside = self._find_chosen_beside(number)
        gain = 0.0 if self._worth is None else float(self._worth[number])
        if own >= WORDS or own + sum(self._plain_words(other, lookup) for other in beside) >= WORDS:
            for value in self._values[number]:
                gain += self._lack[value]
        else:
            for value in self._values[number]:
                level = self._level[value]
                if level < BARE:
                    gain += self._weight[value] * (BARE - level)
        if own:
            for other in beside:  # a chosen neighbour may lack just the words of this excerpt
                if self._words_around(other, lookup) < WORDS <= self._plain_words(other, lookup) + own:
                    gain += self._lack_of(other)
        return gain / self.price(number)

    def _words_around(self, number: int, lookup: ExcerptLookup) -> int:
        """Returns the plain words in the excerpt and in its chosen neighbours."""
        words = self._plain_words(number, lookup)
        if words < WORDS:
            words += sum(self._plain_words(other, lookup) for other in self._find_chosen_beside(number))
        return words

    def _plain_words(self, number: int, lookup: ExcerptLookup) -> int:
        known = self._plain.get(number)
        if known is None:
            known = self._plain[number] = lookup.plain_words(number)
        return known

    def _find_chosen_beside(self, number: int) -> list[int]:
        """Returns the excerpts just before and after it in the same source, if they are chosen."""
        chosen, source = self._chosen, self._source
        before, after = number - 1, number + 1
        beside = [before] if before in chosen and source[before] == source[number] else []
        if after in chosen and source[after] == source[number]:
            beside.append(after)
        return beside
