"""One shard: every row of it read, compressed and written again. Runs in any process, on any machine.

This is the seam for engines: `process_shard(shard, job)` needs nothing but its arguments and the folder for parts, and
`compress_shard` not even that, so that whatever maps shards to results, in any order, leads to the same file.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import zlib
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from penstock.errors import InputError, ProviderError
from penstock.measure.windows import resolve_window
from penstock.trajectories.compress import Compressor
from penstock.trajectories.fields import neutral
from penstock.trajectories.metrics import RowMetrics, Totals, TrajectoryMetrics, TrajectoryOutcome
from penstock.trajectories.options import ModelOptions, TrajectoryOptions  # noqa: TC001 - `ShardJob` is decoded by them
from penstock.trajectories.rows import CellShape, RowLine, read_line, shaped, turns_in
from penstock.trajectories.samples import Sampler
from penstock.trajectories.shards import Bad, Done, Shard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from penstock.providers.model import ProviderModel
    from penstock.trajectories.compress import CompressedTrajectory
    from penstock.trajectories.kept import KeptSummary

    _Ask: TypeAlias = Callable[[int, list[Any]], Awaitable[CompressedTrajectory]]
    _Rows: TypeAlias = "_LineRows | _TableRows | _WatchedRows"
    Keep: TypeAlias = Callable[[int, KeptSummary], None]

__all__ = [
    "SUMMARIES",
    "ShardJob",
    "SummariesFile",
    "compress_shard",
    "connected",
    "is_sampled",
    "part_name",
    "process_shard",
    "write_part",
]

SUMMARIES = "summaries-*.jsonl"
"""Where what models wrote is kept: a file for each process, so that nobody waits for another."""

_ENCODER = msgspec.json.Encoder()
_UNREAD = (TrajectoryOutcome.BAD, TrajectoryOutcome.FAILED)


class ShardJob(msgspec.Struct, frozen=True, kw_only=True):
    """What is done with every row: plain values, so that any process can have them.

    `parts` is the folder for what was done; None where nothing is to be written. `at_once` is how many rows of a
    shard wait for the model together.
    """

    options: TrajectoryOptions
    model: ModelOptions | None = None
    column: str | None = None
    per_turn: tuple[str, ...] = ()
    sample_percent: float = 100.0
    seed: int = 0
    parts: str | None = None
    at_once: int = 1
    samples: bool = False
    """Whether excerpts of some rows are wished."""


def process_shard(shard: Shard, job: ShardJob) -> Done:
    """Compress the rows of a shard and write its part where the job says. Raises OSError."""
    done, part = compress_shard(shard, job)
    if job.parts is not None:
        write_part(Path(job.parts), shard.number, part)
    return done


def compress_shard(shard: Shard, job: ShardJob, keep: Keep | None = None) -> tuple[Done, bytes]:
    """What comes of a shard, and its rows. What models wrote is given to `keep` or, without it, kept in the job's folder.

    Nothing else is written. A row that fails is in the part as it came, or with excerpts in place of the model's words, and marked.
    """
    rows: _LineRows | _TableRows = _TableRows(shard, job) if shard.parquet else _LineRows(shard, job)
    sampler = Sampler(shard.file, shard.number) if job.samples else None
    watched: _Rows = rows if sampler is None else _WatchedRows(rows, shard.first_row, sampler)
    taken = [at for at in range(len(rows)) if is_sampled(job, shard.file, shard.first_row + at)]
    if job.model is None:
        compressor = _compressor(job.options)
        found = [_compressed(watched, at, compressor) for at in taken]
    else:
        found = asyncio.run(_asked(watched, taken, shard, job, keep))
    part = rows.part(taken)
    totals = Totals(left_out=len(rows) - len(taken))
    for one in found:
        totals.add(one)
    numbered = [
        RowMetrics(row=shard.first_row + at, metrics=one) for at, one in zip(taken, found, strict=True)
    ]
    done = Done(
        shard=shard.number,
        file=shard.file,
        group=shard.group,
        first_row=shard.first_row,
        row_count=len(taken),
        size=len(part),
        crc=zlib.crc32(part),
        read_bytes=shard.read_bytes,
        totals=totals,
        bad=tuple(Bad(one.row, one.metrics.reason) for one in numbered if one.metrics.outcome in _UNREAD),
        rows=_ENCODER.encode_lines(numbered),
        samples=sampler.samples(_compressor(job.options).redactor) if sampler is not None else (),
        last_of=shard.last_of,
    )
    return done, part


def write_part(folder: Path, shard: int, part: bytes) -> None:
    """The rows of a shard in a file of their own, whole or not at all."""
    path = folder / part_name(shard)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    with temporary.open("wb") as file:
        file.write(part)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def is_sampled(job: ShardJob, file: int, row: int) -> bool:
    """Whether a row is in the sample: by its place and the seed alone."""
    if job.sample_percent >= 100.0:
        return True
    digest = hashlib.blake2b(f"{job.seed} {file} {row}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < job.sample_percent / 100.0 * 2**64


def part_name(shard: int) -> str:
    """The name of the file with the rows of a shard."""
    return f"{shard:08d}.part"


class _LineRows:
    """Rows as lines of JSON."""

    def __init__(self, shard: Shard, job: ShardJob) -> None:
        self._job = job
        self._lines = _lines(shard.data)
        self._read: dict[int, RowLine] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def turns(self, at: int) -> list[Any] | None:
        """The turns of a row, None where the line is blank. Raises InputError."""
        if not self._lines[at].strip():
            return None
        line = self._read[at] = read_line(self._lines[at], self._job.column)
        return line.turns

    def put(self, at: int, done: CompressedTrajectory) -> None:
        """The result of a row, whose turns were asked for before."""
        self._lines[at] = self._read.pop(at).with_result(done, self._job.per_turn)

    def part(self, taken: list[int]) -> bytes:
        """The rows that were taken, as they are now."""
        return b"".join([self._lines[at] for at in taken])


class _TableRows:
    """Rows of a Parquet file."""

    def __init__(self, shard: Shard, job: ShardJob) -> None:
        from penstock.trajectories.parquet import Table  # noqa: PLC0415 - its library is an extra

        self._job = job
        self._table = Table(shard.data, job.column)
        self._read: dict[int, tuple[list[Any], CellShape]] = {}

    def __len__(self) -> int:
        return len(self._table)

    def turns(self, at: int) -> list[Any] | None:
        """The turns of a row. Raises InputError."""
        self._read[at] = turns_in(self._table.cell(at))
        return self._read[at][0]

    def put(self, at: int, done: CompressedTrajectory) -> None:
        """The result of a row, whose turns were asked for before."""
        turns, shape = self._read.pop(at)
        if done.summary is not None:
            self._table.put(at, self._table.column, shaped(done.turns(turns), shape))
            for name, entries in self._table.others(at, len(turns), self._job.per_turn).items():
                self._table.put(at, name, done.applied(entries, neutral(entries[0])))

    def part(self, taken: list[int]) -> bytes:
        """The rows that were taken, as they are now."""
        return self._table.packed(None if len(taken) == len(self) else taken)


class _WatchedRows:
    """Rows, with somebody who looks on at what becomes of them."""

    def __init__(self, rows: _LineRows | _TableRows, first_row: int, sampler: Sampler) -> None:
        self._rows = rows
        self._first_row = first_row
        self._sampler = sampler
        self._turns: dict[int, list[Any]] = {}

    def turns(self, at: int) -> list[Any] | None:
        """See `_LineRows.turns`."""
        turns = self._rows.turns(at)
        if turns is not None:
            self._turns[at] = turns
        return turns

    def put(self, at: int, done: CompressedTrajectory) -> None:
        """See `_LineRows.put`."""
        self._rows.put(at, done)
        self._sampler.see(self._first_row + at, self._turns.pop(at), done)


_BLANK = TrajectoryMetrics(outcome=TrajectoryOutcome.BLANK)


def _compressed(rows: _Rows, at: int, compressor: Compressor) -> TrajectoryMetrics:
    """Compress a row, and say what became of it. Whatever happens, the row is there as it came or as it should be."""
    try:
        turns = rows.turns(at)
        if turns is None:
            return _BLANK
        done = compressor.compress(turns)
        rows.put(at, done)
    except Exception as error:  # noqa: BLE001 - one row may not end a run over millions: it is copied, and marked
        return _failed(error)
    return done.metrics


async def _summarised(rows: _Rows, at: int, ask: _Ask) -> TrajectoryMetrics:
    """The same with a model."""
    try:
        turns = rows.turns(at)
        if turns is None:
            return _BLANK
        done = await ask(at, turns)
        rows.put(at, done)
    except Exception as error:  # noqa: BLE001 - as above
        return _failed(error)
    return done.metrics


def _failed(error: Exception) -> TrajectoryMetrics:
    if isinstance(error, InputError):
        return TrajectoryMetrics(outcome=TrajectoryOutcome.BAD, reason=str(error))
    if isinstance(error, OSError):  # nothing can be kept any more: that is not the row's fault
        raise error
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = (
        f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
    )
    return TrajectoryMetrics(
        outcome=TrajectoryOutcome.FAILED, reason=f"unexpected {type(error).__name__}{where}"
    )


async def _asked(
    rows: _Rows, taken: list[int], shard: Shard, job: ShardJob, keep: Keep | None
) -> list[TrajectoryMetrics]:
    """Compress the rows with a model, several at once."""
    from penstock.trajectories.asking import ModelSummaries  # noqa: PLC0415 - only for those who ask a model

    assert job.model is not None  # noqa: S101 - the caller looked
    compressor = _compressor(job.options)
    gate = asyncio.Semaphore(job.at_once)
    async with connected(job.model) as model:
        window = job.model.window_tokens or await _window(model)
        summaries = ModelSummaries.of_model(model, window, job.model.timeout_seconds)
        with ExitStack() as stack:
            if keep is None and job.parts is not None:
                keep = stack.enter_context(SummariesFile(job.parts)).put
            kept = _Keeping(shard, keep)

            async def ask(at: int, turns: list[Any]) -> CompressedTrajectory:
                return await summaries.compress(compressor, turns, shard.first_row + at, kept)

            async def one(at: int) -> TrajectoryMetrics:
                async with gate:
                    return await _summarised(rows, at, ask)

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(at)) for at in taken]
            return [task.result() for task in tasks]


async def _window(model: ProviderModel) -> int | None:
    """The window of a model that no table knows, as its provider states it: asked once for all rows."""
    if resolve_window(model.name).source != "default":
        return None
    try:
        return await model.window_tokens() or resolve_window(model.name).tokens
    except ProviderError:
        return resolve_window(model.name).tokens


class _Keeping:
    """Keeps what models write as soon as they wrote it: a row that is done again after a kill is not asked again."""

    def __init__(self, shard: Shard, keep: Keep | None) -> None:
        self._shard = shard.number
        self._known = {kept.row: kept for kept in shard.kept}
        self._keep = keep

    def get(self, row: int) -> KeptSummary | None:
        """What was written for this row before."""
        return self._known.get(row)

    def put(self, kept: KeptSummary) -> None:
        """Keep it, for good."""
        if self._keep is not None:
            self._keep(self._shard, kept)


class SummariesFile:
    """The file of this process for what models wrote, in the folder of parts."""

    def __init__(self, folder: str) -> None:
        name = SUMMARIES.replace("*", str(os.getpid()))
        self._file = (Path(folder) / name).open("ab", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def put(self, shard: int, kept: KeptSummary) -> None:
        """Keep what was written for a row of a shard, in one write."""
        self._file.write(_ENCODER.encode([shard, kept]) + b"\n")


def connected(options: ModelOptions) -> ProviderModel:
    """The model. Nothing is sent yet. Raises SettingsError for one that cannot be asked."""
    from penstock.engine.auxiliary import provider_of  # noqa: PLC0415 - only for those who ask a model
    from penstock.providers.connect import connect  # noqa: PLC0415 - as above

    return connect(
        options.provider or ("openai" if options.base_url else provider_of(options.name)),
        options.name,
        base_url=options.base_url,
        api_key_env=options.api_key_env,
        timeout_seconds=options.timeout_seconds,
    )


@lru_cache(maxsize=4)
def _compressor(options: TrajectoryOptions) -> Compressor:
    compressor = Compressor(options)
    compressor.tokenizer.count("a")  # loads it, which takes half a second that is no row's
    return compressor


def _lines(data: bytes) -> list[bytes]:
    """Lines with their ends, which are line feeds alone."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])
