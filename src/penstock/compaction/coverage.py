"""Choosing excerpts by what they add.

The aim is a set of excerpts within a budget that covers the most important values. The next excerpt is always
the one that adds the most per token, given what is covered already: a value that stands in the view, in the
tail or in an excerpt chosen before adds nothing. A value counts in full only with plain words beside it, its
own or those of a neighbouring excerpt that is chosen too; bare it counts for less. The first excerpt of a
message also pays for the message's header.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from penstock.compaction.handoff import header_of
from penstock.compaction.values import plain_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.compaction.index import Index
    from penstock.measure.tokens import Tokenizer

__all__ = ["Choice"]

_BARE = 0.5  # what a value without plain words beside it is worth
_WORDS = 2  # that many plain words make it usable
_HEADER_SHARE = 0.5  # of the header's cost is charged to its first excerpt: more excerpts may follow
_CHARACTERS_PER_TOKEN = 3.6
_POOL = 12_000


class Choice:
    """Excerpts chosen so far, and what they cover. `order` is the order in which they were chosen."""

    def __init__(
        self,
        index: Index,
        weights: NDArray[np.float64],
        labels: Sequence[str],
        numbers: Sequence[int],
        tokenizer: Tokenizer,
    ) -> None:
        self.order: list[int] = []
        self.chosen: set[int] = set()
        self.tokens = 0
        self._index = index
        self._weights = weights
        self._level = np.zeros(len(weights))
        self._labels = labels
        self._numbers = numbers
        self._tokenizer = tokenizer
        self._opened: set[int] = set()
        self._cost: dict[int, int] = {}
        self._header: dict[int, int] = {}
        self._plain: dict[int, int] = {}
        self._values: dict[int, list[int]] = {}

    def cover(self, ids: NDArray[np.int32], *, bare: bool = False) -> None:
        """Count these values as present already; `bare` where they stand without the words around them."""
        self._level[ids] = np.maximum(self._level[ids], _BARE if bare else 1.0)

    def take(self, excerpts: Sequence[int], budget: int) -> None:
        """Choose these excerpts, in order, as long as the budget lasts."""
        self._prepare(excerpts)
        for number in excerpts:
            if number not in self.chosen and self._price(number) <= budget - self.tokens:
                self._choose(number)

    def fill(self, allowed: NDArray[np.bool_], budget: int) -> None:
        """Choose among the allowed excerpts what adds most per token, until the budget is used."""
        while self.tokens < budget:
            pool = self._pool(allowed, budget - self.tokens)
            before = len(self.order)
            self._greedy(pool, budget)
            if len(self.order) == before:
                return

    def drop_last(self) -> bool:
        """Give up the excerpt that was chosen last; False when there is none."""
        if not self.order:
            return False
        number = self.order.pop()
        self.chosen.discard(number)
        self.tokens -= self._cost[number]
        return True

    def _pool(self, allowed: NDArray[np.bool_], budget: int) -> list[int]:
        """The excerpts worth looking at: those that could add most per character."""
        index = self._index
        open_gain = self._weights * (1.0 - self._level)
        running = np.concatenate([[0.0], np.cumsum(open_gain[index.ids])])
        gains = running[index.starts[1:]] - running[index.starts[:-1]]
        density = gains / (index.lengths / _CHARACTERS_PER_TOKEN + 2.0)
        candidates = np.flatnonzero(allowed & (gains > 1e-9))
        most = max(_POOL, budget // 4)
        if len(candidates) > most:
            best = np.argpartition(-density[candidates], most)[:most]
            candidates = np.sort(candidates[best])
        pool: list[int] = [number for number in candidates.tolist() if number not in self.chosen]
        self._prepare(pool)
        return pool

    def _prepare(self, pool: Sequence[int]) -> None:
        """Exact costs of these excerpts and of their headers, each counted once."""
        index = self._index
        fresh = [number for number in pool if number not in self._cost]
        costs = self._tokenizer.count_many([index.excerpt(number) for number in fresh])
        self._cost.update((number, cost + 1) for number, cost in zip(fresh, costs, strict=True))
        for number in fresh:
            self._values[number] = index.values_of(number).tolist()
        sources = {int(index.source_of[number]) for number in fresh} - self._header.keys()
        if not self._labels:
            self._header.update(dict.fromkeys(sources, 0))
            return
        ordered = sorted(sources)
        headers = [header_of(self._numbers[source], self._labels[source]) for source in ordered]
        for source, cost in zip(ordered, self._tokenizer.count_many(headers), strict=True):
            self._header[source] = cost + 1

    def _greedy(self, pool: list[int], budget: int) -> None:
        heap = [(-self._density(number), number) for number in pool]
        heapq.heapify(heap)
        siblings: dict[int, list[int]] = {}
        for number in pool:
            siblings.setdefault(int(self._index.source_of[number]), []).append(number)
        members = set(pool)
        while heap and budget - self.tokens > 6:
            _, number = heapq.heappop(heap)
            if number in self.chosen:
                continue
            density = self._density(number)
            if density <= 1e-9:
                continue
            if heap and -density > heap[0][0] + 1e-12:
                heapq.heappush(heap, (-density, number))
                continue
            if self._price(number) > budget - self.tokens:
                continue
            source = int(self._index.source_of[number])
            was_open = source in self._opened
            self._choose(number)
            again = self._neighbours(number) if was_open else siblings[source]
            for other in again:
                if other in members and other not in self.chosen:
                    heapq.heappush(heap, (-self._density(other), other))

    def _choose(self, number: int) -> None:
        self.tokens += self._price(number)
        self._opened.add(int(self._index.source_of[number]))
        self.chosen.add(number)
        self.order.append(number)
        self._raise_level(number, 1.0 if self._words_around(number) >= _WORDS else _BARE)
        for other in self._neighbours(number):
            if other in self.chosen and self._words_around(other) >= _WORDS:
                self._raise_level(other, 1.0)

    def _raise_level(self, number: int, level: float) -> None:
        for value in self._values[number]:
            self._level[value] = max(self._level[value], level)

    def _price(self, number: int) -> int:
        source = int(self._index.source_of[number])
        return self._cost[number] + (0 if source in self._opened else self._header[source])

    def _density(self, number: int) -> float:
        """What the excerpt would add per token now."""
        level = 1.0 if self._words_around(number) >= _WORDS else _BARE
        gain = 0.0
        for value in self._values[number]:
            missing = level - self._level[value]
            if missing > 0.0:
                gain += self._weights[value] * missing
        own = self._plain_words(number)
        if own:
            for other in self._neighbours(number):
                if (
                    other in self.chosen
                    and self._words_around(other) < _WORDS <= self._plain_words(other) + own
                ):
                    gain += sum(
                        self._weights[value] * max(0.0, 1.0 - self._level[value])
                        for value in self._values[other]
                    )
        source = int(self._index.source_of[number])
        header = 0.0 if source in self._opened else self._header[source] * _HEADER_SHARE
        return float(gain / (self._cost[number] + header))

    def _words_around(self, number: int) -> int:
        """Plain words in the excerpt and in those beside it that are chosen."""
        words = self._plain_words(number)
        if words < _WORDS:
            words += sum(
                self._plain_words(other) for other in self._neighbours(number) if other in self.chosen
            )
        return words

    def _plain_words(self, number: int) -> int:
        known = self._plain.get(number)
        if known is None:
            known = self._plain[number] = plain_words(self._index.excerpt(number))
        return known

    def _neighbours(self, number: int) -> list[int]:
        """The excerpts just before and after in the same source."""
        source_of = self._index.source_of
        return [
            other
            for other in (number - 1, number + 1)
            if 0 <= other < len(source_of) and source_of[other] == source_of[number]
        ]
