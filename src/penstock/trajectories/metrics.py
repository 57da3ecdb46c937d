"""The outcome of a compression in figures: of one row, and of all rows together."""

from __future__ import annotations

import os
from bisect import bisect_right
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.trajectories.shards import ShardResult

__all__ = ["EDGES", "BadRow", "MetricsFile", "RowMetrics", "Totals", "TrajectoryMetrics", "TrajectoryOutcome"]


class TrajectoryOutcome(StrEnum):
    """The outcome of a row."""

    UNDER_TARGET = "under_target"
    """It was small enough and is as it came."""
    COMPRESSED = "compressed"
    DEGRADED = "degraded"
    """It was compressed, without the words of the model that was asked: `reason` says why."""
    NOT_COMPRESSIBLE = "not_compressible"
    """It is too large and nothing of it may give way: it is as it came."""
    BAD = "bad"
    """It cannot be read as a trajectory and is as it came: `reason` says why."""
    FAILED = "failed"
    """Something went wrong with it that should not: it is as it came, and `reason` says where."""
    BLANK = "blank"
    """A line without anything on it, as it came."""


class TrajectoryMetrics(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of one trajectory.

    `cost` is in US dollars, None if the price of the model is not known; `model` is empty if no model wrote. The
    turns that gave way are among `turns[region_start:region_end]` of the trajectory given; both are 0 if none did.
    """

    outcome: TrajectoryOutcome
    tokens_before: int = 0
    tokens_after: int = 0
    turns_before: int = 0
    turns_after: int = 0
    turns_summarised: int = 0
    region_start: int = 0
    region_end: int = 0
    summary_tokens: int = 0
    still_over_limit: bool = False
    passes: int = 0
    model: str = ""
    model_calls: int = 0
    model_prompt_tokens: int = 0
    model_output_tokens: int = 0
    cost: float | None = 0.0
    reason: str = ""
    seconds: float = 0.0

    @property
    def ratio(self) -> float:
        """Tokens after for each token before; 1 if there were none."""
        return self.tokens_after / self.tokens_before if self.tokens_before else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as JSON values, and the ratio."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {**fields, "outcome": self.outcome.value, "ratio": round(self.ratio, 4)}


class RowMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one row of a file. Rows are counted from 1, as the lines of a file are."""

    row: int
    metrics: TrajectoryMetrics


class BadRow(msgspec.Struct, frozen=True):
    """A row that could not be read, and was copied as it is; or one that stays over the limit, and how large it is."""

    file: str
    row: int
    reason: str


EDGES = tuple(round(10 ** (power / 8)) for power in range(8, 65))
"""The borders of the classes in which tokens are counted: eight for each power of ten, from 10 to 100 million."""


class Totals(msgspec.Struct, kw_only=True):
    """The figures of many rows. Its size does not depend on how many they are."""

    rows: int = 0
    left_out: int = 0
    """Rows that are not in the sample."""
    outcomes: dict[str, int] = {}
    still_over_limit: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    turns_before: int = 0
    turns_after: int = 0
    turns_summarised: int = 0
    summary_tokens: int = 0
    model_calls: int = 0
    model_prompt_tokens: int = 0
    model_output_tokens: int = 0
    cost: float = 0.0
    cost_unknown_rows: int = 0
    row_seconds: float = 0.0
    reasons: dict[str, int] = {}
    """The reasons why rows are degraded or have failed."""
    distribution_before: list[int] = msgspec.field(default_factory=lambda: [0] * (len(EDGES) + 1))
    distribution_after: list[int] = msgspec.field(default_factory=lambda: [0] * (len(EDGES) + 1))

    def add(self, one: TrajectoryMetrics) -> None:
        """Counts one row."""
        self.rows += one.outcome is not TrajectoryOutcome.BLANK
        self.outcomes[one.outcome.value] = self.outcomes.get(one.outcome.value, 0) + 1
        self.still_over_limit += one.still_over_limit
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(one, name))
        self.cost += one.cost or 0.0
        self.cost_unknown_rows += one.cost is None
        self.row_seconds += one.seconds
        if one.reason:
            self._because(one.reason, 1)
        if one.tokens_before:
            self.distribution_before[bisect_right(EDGES, one.tokens_before)] += 1
            self.distribution_after[bisect_right(EDGES, one.tokens_after)] += 1

    def merge(self, other: Totals) -> None:
        """Counts the rows of another."""
        for name in (*_COUNTED, *_SUMMED):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, number in other.outcomes.items():
            self.outcomes[name] = self.outcomes.get(name, 0) + number
        for name, number in other.reasons.items():
            self._because(name, number)
        for counted, more in (
            (self.distribution_before, other.distribution_before),
            (self.distribution_after, other.distribution_after),
        ):
            counted[:] = [one + two for one, two in zip(counted, more, strict=True)]

    def _because(self, reason: str, number: int) -> None:
        known = reason in self.reasons or len(self.reasons) < _MOST_REASONS
        name = reason if known else "other reasons"
        self.reasons[name] = self.reasons.get(name, 0) + number

    def count(self, *outcomes: TrajectoryOutcome) -> int:
        """Returns the number of rows with one of these outcomes."""
        return sum(self.outcomes.get(outcome.value, 0) for outcome in outcomes)

    @property
    def compressed(self) -> int:
        """Rows that were compressed and are within the target now.

        With the rows that were under it before, those that stay over it and those that could not be read, it makes all.
        """
        over = self.still_over_limit - self.count(TrajectoryOutcome.NOT_COMPRESSIBLE)
        return self.count(TrajectoryOutcome.COMPRESSED, TrajectoryOutcome.DEGRADED) - over

    @property
    def ratio(self) -> float:
        """Tokens after for each token before; 1 if there were none."""
        return self.tokens_after / self.tokens_before if self.tokens_before else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Returns all figures as JSON values; distributions with the borders of their classes."""
        return {
            **msgspec.to_builtins(self),
            "ratio": round(self.ratio, 4),
            "cost": round(self.cost, 6),
            "row_seconds": round(self.row_seconds, 3),
            "distribution_edges": list(EDGES),
        }


_MOST_REASONS = 50
_COUNTED = ("rows", "left_out", "still_over_limit", "cost", "cost_unknown_rows", "row_seconds")
_SUMMED = (
    *("tokens_before", "tokens_after", "turns_before", "turns_after", "turns_summarised", "summary_tokens"),
    *("model_calls", "model_prompt_tokens", "model_output_tokens"),
)


class MetricsFile:
    """Writes the metrics of a run as one JSON document, row by row: it never stands in memory as a whole.

    Takes the rows of shards in any order and writes them in the order of the input.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
        self._file: IO[bytes] = self._temporary.open("wb")
        self._file.write(b'{"rows": [')
        self._next = 0
        self._waiting: dict[int, bytes] = {}
        self._before = b"\n"

    def add(self, file: str, done: ShardResult, rows: bytes) -> None:
        """Adds the rows of a shard, as lines of JSON. Few shards are ever ahead of the one that is next."""
        named = b'{"file": ' + msgspec.json.encode(file) + b", "
        self._waiting[done.shard] = b",\n".join(named + line[1:] for line in rows.splitlines())
        while (text := self._waiting.pop(self._next, None)) is not None:
            self._next += 1
            if text:
                self._file.write(self._before + text)
                self._before = b",\n"

    def finish(self, rest: dict[str, Any]) -> None:
        """Closes the list, adds the other fields, and gives the file its name."""
        fields = [
            msgspec.json.encode(name) + b": " + msgspec.json.encode(value) for name, value in rest.items()
        ]
        self._file.write(b"\n],\n" + b",\n".join(fields) + b"}\n")
        self._file.close()
        self._temporary.replace(self._path)

    def abandon(self) -> None:
        """Leaves nothing behind."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)
