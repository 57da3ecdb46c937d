"""A few rows as they were and as they are, for people to look at: short excerpts, without secrets.

They are taken where a row is compressed, one of each kind from a shard, and a few from the first shard, which may be the
only one. Which of them are shown is decided by
their rank, a hash of their place: the same rows, whoever did them and in whatever order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.trajectories.metrics import TrajectoryMetrics, TrajectoryOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.redaction import Redactor
    from penstock.trajectories.compress import CompressedTrajectory

__all__ = ["RowSample", "SampleTurn", "Sampler", "Stretch", "rank_of"]

_READ = 12_000  # characters that are searched for secrets: more than a private key has
_TURN = 320  # characters of a turn that are shown
_SUMMARY = 6_000
_FROM_FIRST = 3  # rows of a kind from the first shard
_KEPT_SHOWN = (3, 2)  # turns of a stretch that are shown: its first and its last
_GONE_SHOWN = (5, 4)


class SampleTurn(msgspec.Struct, frozen=True):
    """The beginning of a turn. `number` is its place among the turns before, from 1; `characters` is its whole length.

    `after` is how it begins now, if that is something else.
    """

    number: int
    role: str
    text: str
    characters: int
    after: str | None = None


class Stretch(msgspec.Struct, frozen=True):
    """Turns that belong together: the first of them, how many are not shown, and the last."""

    first: tuple[SampleTurn, ...]
    hidden: int
    last: tuple[SampleTurn, ...]


class RowSample(msgspec.Struct, frozen=True, kw_only=True):
    """One row: turns at its start, some of those that gave way, the summary in their place, and turns behind it."""

    row: int
    rank: int
    kind: str
    metrics: TrajectoryMetrics
    head: Stretch
    gone: Stretch
    summary: SampleTurn
    tail: Stretch


class Sampler:
    """Sees every row of a shard, and holds those with the lowest ranks: one of each kind, of the first shard a few."""

    def __init__(self, file: int, shard: int) -> None:
        self._file = file
        self._each = _FROM_FIRST if shard == 0 else 1
        self._held: dict[str, list[tuple[int, int, Sequence[Any], CompressedTrajectory]]] = {}

    def see(self, row: int, turns: Sequence[Any], done: CompressedTrajectory) -> None:
        """Considers a row. One that did not change tells nothing."""
        if done.summary is None:
            return
        held = self._held.setdefault(_kind(done.metrics), [])
        held.append((rank_of(self._file, row), row, turns, done))
        held.sort(key=lambda one: one[:2])
        del held[self._each :]

    def samples(self, redactor: Redactor) -> tuple[RowSample, ...]:
        """Returns the rows that are held, as excerpts."""
        return tuple(
            _make_sample(rank, row, kind, _Excerpts(turns, done, redactor))
            for kind, held in self._held.items()
            for rank, row, turns, done in held
        )


def rank_of(file: int, row: int) -> int:
    """Returns a number for the place of a row that looks random, and is always the same."""
    return int.from_bytes(hashlib.blake2b(f"{file} {row}".encode(), digest_size=7, person=b"report").digest())


def _kind(metrics: TrajectoryMetrics) -> str:
    if metrics.still_over_limit:
        return "still over the limit"
    return "degraded" if metrics.outcome is TrajectoryOutcome.DEGRADED else "compressed"


def _make_sample(rank: int, row: int, kind: str, excerpts: _Excerpts) -> RowSample:
    done, islands = excerpts.done, set(excerpts.done.islands)
    behind = [*done.islands, *range(done.end, len(excerpts.turns))]
    return RowSample(
        row=row,
        rank=rank,
        kind=kind,
        metrics=done.metrics,
        head=excerpts.of(range(done.start), _KEPT_SHOWN),
        gone=excerpts.of([at for at in range(done.start, done.end) if at not in islands], _GONE_SHOWN),
        summary=excerpts.summary(),
        tail=excerpts.of(behind, _KEPT_SHOWN),
    )


class _Excerpts:
    def __init__(self, turns: Sequence[Any], done: CompressedTrajectory, redactor: Redactor) -> None:
        self.turns = turns
        self.done = done
        self._redactor = redactor

    def of(self, places: Sequence[int], most: tuple[int, int]) -> Stretch:
        """Returns the first and the last of these turns."""
        first, last = most
        hidden = max(0, len(places) - first - last)
        return Stretch(
            tuple(self._excerpt(at + 1, self.turns[at], _TURN) for at in places[:first]),
            hidden,
            tuple(self._excerpt(at + 1, self.turns[at], _TURN) for at in places[first + hidden :]),
        )

    def summary(self) -> SampleTurn:
        return self._excerpt(self.done.start + 1, self.done.summary, _SUMMARY)

    def _excerpt(self, number: int, turn: Any, most: int) -> SampleTurn:
        role, text = _role(turn), "\n".join(_texts(turn))
        system = self.done.system
        noted = system is not None and system[0] == number - 1 and turn is self.turns[number - 1]
        after = self._shorten("\n".join(_texts(system[1]))[-_READ:], -most) if noted and system else None
        return SampleTurn(number, role, self._shorten(text, most), len(text), after)

    def _shorten(self, text: str, most: int) -> str:
        """Returns the beginning of the text, or its end. What stands beyond it is read too: a secret may begin in sight."""
        clean = (
            self._redactor.redact(text[:_READ]).encode(errors="replace").decode()
        )  # half characters cannot be kept
        short = clean[:most] if most > 0 else clean[most:]
        if len(short) == len(clean) and len(text) <= _READ:
            return clean
        return f"{short}…" if most > 0 else f"…{short}"


def _role(turn: Any) -> str:
    role = turn.get("from", turn.get("role")) if isinstance(turn, Mapping) else None
    return str(role)[:40] if role else "?"


def _texts(turn: Any) -> Iterator[str]:
    """Yields all that a turn says, whatever its format: its words, then the calls it makes."""
    if not isinstance(turn, Mapping):
        yield _dump(turn)
        return
    content = turn.get("value", turn.get("content"))
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, Mapping) else part
        if text is not None or part is not None:
            yield text if isinstance(text, str) else _dump(part)
    if calls := turn.get("tool_calls"):
        yield _dump(calls)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
