"""The figures of a report, gathered row by row. What is held does not grow with the number of rows."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec

from penstock.trajectories.metrics import RowMetrics, TrajectoryMetrics, TrajectoryOutcome
from penstock.trajectories.samples import RowSample, rank_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.trajectories.shards import Done

__all__ = [
    "RATIO_CLASSES",
    "TURN_EDGES",
    "FigureSpread",
    "ReportFigures",
    "ShownRow",
    "ShownSample",
]


RATIO_CLASSES = 20
TURN_EDGES = (1, 2, 3, 4, 6, 8, *(round(10 ** (power / 8)) for power in range(8, 41)))
"""The borders of the classes in which turns are counted, up to a hundred thousand."""

_ROW = msgspec.json.Decoder(RowMetrics)
_BASE = math.log(1.02)
_LISTED = 15
_ROWS = 500
_SAMPLES = {"compressed": 3, "degraded": 2, "still over the limit": 2}


class ShownRow(msgspec.Struct, frozen=True):
    """A row in a list of the report."""

    file: str
    row: int
    metrics: TrajectoryMetrics


class ShownSample(msgspec.Struct, frozen=True):
    """A sample and the file that its row is in."""

    file: str
    sample: RowSample


class FigureSpread:
    """How numbers are spread: quantiles that are off by one percent at most, in room that does not grow with them."""

    def __init__(self) -> None:
        self._classes: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.least = math.inf
        self.most = 0.0

    def add(self, value: float) -> None:
        """Count a number of 0 or more."""
        place = math.ceil(math.log(value) / _BASE) if value > 0 else -(1 << 30)
        self._classes[place] = self._classes.get(place, 0) + 1
        self.count += 1
        self.total += value
        self.least, self.most = min(self.least, value), max(self.most, value)

    def quantile(self, share: float) -> float:
        """The number that this share of all is not above; 0 where there are none."""
        left = share * self.count
        for place in sorted(self._classes):
            left -= self._classes[place]
            if left <= 0:
                middle = math.exp((place - 0.5) * _BASE) if place > -(1 << 30) else 0.0
                return min(max(middle, self.least), self.most)
        return self.most if self.count else 0.0

    @property
    def mean(self) -> float:
        """The mean; 0 where there are none."""
        return self.total / self.count if self.count else 0.0


class _Top:
    """The rows with the highest marks. Of equal ones, the first in the data set. Without marks, rows drawn by chance."""

    def __init__(self, size: int, mark: Callable[[TrajectoryMetrics], float | None] | None) -> None:
        self._size = size
        self._mark = mark
        self._heap: list[tuple[float, int, int, ShownRow]] = []

    def add(self, file: str, number: int, one: RowMetrics) -> None:
        mark = self._mark(one.metrics) if self._mark is not None else rank_of(number, one.row)
        if mark is None:
            return
        key = (mark, -number, -one.row)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, (*key, ShownRow(file, one.row, one.metrics)))
        elif key > self._heap[0][:3]:
            heapq.heapreplace(self._heap, (*key, ShownRow(file, one.row, one.metrics)))

    def rows(self) -> list[ShownRow]:
        return [entry[3] for entry in sorted(self._heap, key=lambda entry: entry[:3], reverse=True)]


class ReportFigures:
    """Takes the rows of shards in any order. What it says does not depend on that order."""

    def __init__(self) -> None:
        self.tokens_before, self.tokens_after = FigureSpread(), FigureSpread()
        self.turns_before, self.turns_after = FigureSpread(), FigureSpread()
        self.seconds = FigureSpread()
        self.turn_classes_before = [0] * (len(TURN_EDGES) + 1)
        self.turn_classes_after = [0] * (len(TURN_EDGES) + 1)
        self.ratio_classes = [0] * RATIO_CLASSES
        self._slowest = _Top(_LISTED, lambda one: one.seconds or None)
        self._shrunk = _Top(_LISTED, lambda one: -one.ratio if one.turns_summarised else None)
        self._over = _Top(_LISTED, lambda one: one.tokens_after if one.still_over_limit else None)
        self._degraded = _Top(
            _LISTED, lambda one: one.tokens_before if one.outcome is TrajectoryOutcome.DEGRADED else None
        )
        self._chosen = _Top(_ROWS, None)
        self._samples: dict[str, list[tuple[int, int, ShownSample]]] = {}
        self.rows = 0

    def add(self, file: str, done: Done, rows: bytes) -> None:
        """The rows of a shard, as lines of JSON."""
        for line in rows.splitlines():
            self._add(file, done.file, _ROW.decode(line))
        for sample in done.samples:
            best = self._samples.setdefault(sample.kind, [])
            best.append((sample.rank, done.file, ShownSample(file, sample)))
            best.sort(key=lambda entry: (*entry[:2], entry[2].sample.row))
            del best[_SAMPLES.get(sample.kind, 1) :]

    @property
    def slowest(self) -> list[ShownRow]:
        """The rows that took longest."""
        return self._slowest.rows()

    @property
    def shrunk(self) -> list[ShownRow]:
        """The rows that lost the largest share of their tokens."""
        return self._shrunk.rows()

    @property
    def over(self) -> list[ShownRow]:
        """The largest of the rows that are still too large."""
        return self._over.rows()

    @property
    def degraded(self) -> list[ShownRow]:
        """The largest of the rows that were to be written by a model, and were not."""
        return self._degraded.rows()

    @property
    def chosen(self) -> list[ShownRow]:
        """All rows where there are few, some drawn by chance where there are many; in order."""
        return sorted(self._chosen.rows(), key=lambda row: (row.file, row.row))

    @property
    def samples(self) -> list[ShownSample]:
        """Rows to look at, of every kind."""
        return [entry[2] for kind in _SAMPLES for entry in self._samples.get(kind, [])]

    def _add(self, file: str, number: int, one: RowMetrics) -> None:
        metrics = one.metrics
        if metrics.outcome is TrajectoryOutcome.BLANK:
            return
        self.rows += 1
        for top in (self._slowest, self._shrunk, self._over, self._degraded):
            top.add(file, number, one)
        self._chosen.add(file, number, one)
        if not metrics.tokens_before:
            return
        self.tokens_before.add(metrics.tokens_before)
        self.tokens_after.add(metrics.tokens_after)
        self.turns_before.add(metrics.turns_before)
        self.turns_after.add(metrics.turns_after)
        self.seconds.add(metrics.seconds)
        self.turn_classes_before[bisect_right(TURN_EDGES, metrics.turns_before)] += 1
        self.turn_classes_after[bisect_right(TURN_EDGES, metrics.turns_after)] += 1
        if metrics.turns_summarised:
            place = min(RATIO_CLASSES - 1, int(metrics.ratio * RATIO_CLASSES))
            self.ratio_classes[place] += 1
