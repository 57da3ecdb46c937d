"""A data set in shards, and one shard: a few rows, each read, compressed and written again.

Files are cut the same way every time, so that any shard can be done again. This is the seam for engines:
`process_shard(shard, job)` needs nothing but its arguments and the folder for parts, and `compress_shard` not even that,
so that whatever maps shards to results, in any process, on any machine and in any order, leads to the same file.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import zlib
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec

from penstock.errors import InputError, ProviderError
from penstock.measure.tokens import expect_many_counts
from penstock.measure.windows import resolve_window
from penstock.trajectories.compress import Compressor
from penstock.trajectories.files import DataFile, Table, damage_errors, load_arrow, open_lines, pack_rows
from penstock.trajectories.metrics import RowMetrics, Totals, TrajectoryMetrics, TrajectoryOutcome
from penstock.trajectories.options import ModelOptions, TrajectoryOptions  # noqa: TC001 - `ShardJob` is decoded by them
from penstock.trajectories.rows import CellShape, RowLine, read_line, shape_turns, turns_in
from penstock.trajectories.samples import RowSample, Sampler
from penstock.trajectories.turns import make_neutral
from penstock.writing.prose import Prose  # noqa: TC001 - `KeptSummary` is decoded by it

if TYPE_CHECKING:
    import io
    from collections.abc import Awaitable, Callable, Iterator
    from typing import IO, TypeAlias

    from penstock.providers.model import ProviderModel
    from penstock.trajectories.compress import CompressedTrajectory

    _Ask: TypeAlias = Callable[[int, list[Any]], Awaitable[CompressedTrajectory]]
    _Rows: TypeAlias = "_LineRows | _TableRows | _WatchedRows"
    Keep: TypeAlias = "Callable[[int, KeptSummary], None]"

__all__ = [
    "SUMMARIES",
    "KeptSummaries",
    "KeptSummary",
    "Remaining",
    "Shard",
    "ShardBadRow",
    "ShardJob",
    "ShardResult",
    "SummariesFile",
    "compress_shard",
    "connect_model",
    "cut_lines",
    "part_name",
    "process_shard",
    "write_part",
]


SUMMARIES = "summaries-*.jsonl"
"""The files for what models wrote: one for each process, so that none waits for another."""

_ENCODER = msgspec.json.Encoder()
_UNREAD = (TrajectoryOutcome.BAD, TrajectoryOutcome.FAILED)
_CHUNK = 1 << 20


class KeptSummary(msgspec.Struct, frozen=True):
    """A summary that a model wrote for one row, with its figures, so that it is never asked for again.

    `prose` is None if it failed for good; `figures` are fields of the metrics.
    """

    row: int
    prose: Prose | None
    figures: dict[str, Any]


class Shard(msgspec.Struct, frozen=True, eq=False):
    """Rows that belong together. `first_row` is counted from 1 in their file.

    `data` holds the lines as they came or, for Parquet, the rows as an Arrow stream. `kept` is what models wrote for
    rows of this shard before.
    """

    number: int
    file: int
    first_row: int
    rows: int
    data: bytes
    parquet: bool = False
    group: int = 0
    """For Parquet, the row group of the file."""
    read_bytes: int = 0
    """The bytes of the file that were read for it."""
    kept: tuple[KeptSummary, ...] = ()
    last_of: int = 0
    """Of the last shard of a file, how many shards the file has; else 0."""
    damage: str = ""
    """The damage of the compressed file behind the rows of this shard, in words; empty if it is whole."""


class ShardBadRow(msgspec.Struct, frozen=True):
    """A row that could not be read, or stays over the limit."""

    row: int
    reason: str


class ShardResult(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The result of a shard. Its rows are in a part of `size` bytes with the checksum `crc`.

    `rows` are the metrics of each, as lines of JSON; `bad` are those that could not be read, `over` those that stay too
    large; `samples` are excerpts of some, if they were wished.
    """

    shard: int
    file: int
    group: int = 0
    first_row: int
    row_count: int
    size: int = 0
    crc: int = 0
    read_bytes: int = 0
    totals: Totals
    bad: tuple[ShardBadRow, ...] = ()
    over: tuple[ShardBadRow, ...] = ()
    rows: bytes = b""
    samples: tuple[RowSample, ...] = ()
    last_of: int = 0
    damage: str = ""


class Remaining(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The shards of a data set that are still to be done. It is a value: any process that can read the files can cut
    them, as often as it likes, and always into the same shards.

    `done` are the numbers of shards that are not wanted. `whole` are the files that need not even be read, by place, and
    how many shards they have. `kept` is what models wrote, by shard.
    """

    files: tuple[DataFile, ...]
    shard_bytes: int
    done: frozenset[int] = frozenset()
    whole: dict[int, int] = {}
    kept: dict[int, tuple[KeptSummary, ...]] = {}

    def __iter__(self) -> Iterator[Shard]:
        """Yields the shards in the order of the input. Raises InputError if a file cannot be read."""
        number = 0
        for place, file in enumerate(self.files):
            if place in self.whole:
                number += self.whole[place]
                continue
            for shard in _cut_shards(file, place, number, self.shard_bytes):
                number = shard.number + 1
                if shard.number not in self.done:
                    written = self.kept.get(shard.number)
                    yield msgspec.structs.replace(shard, kept=written) if written else shard


def _cut_shards(file: DataFile, place: int, first_number: int, shard_bytes: int) -> Iterator[Shard]:
    """Yields the shards of a file: at least one, and the last says how many. Raises InputError for an unreadable file."""
    if file.parquet:
        shards = _cut_table(file, place, first_number, shard_bytes)
    else:
        shards = _cut_text(file, place, first_number, shard_bytes)
    held: Shard | None = None
    for shard in shards:
        if held is not None:
            yield held
        held = shard
    if held is None:
        held = Shard(first_number, place, 1, 0, b"")
    yield msgspec.structs.replace(held, last_of=held.number - first_number + 1)


def _cut_text(file: DataFile, place: int, first_number: int, shard_bytes: int) -> Iterator[Shard]:
    """Yields the rows of a file of lines; of a compressed one that is damaged, all whole rows before the damage.

    Then a last shard without rows says so. Raises InputError if not one row can be read.
    """
    number, row = first_number, 1
    try:
        with open_lines(file.source) as (stream, below):
            readable = _UpToDamage(stream, damage_errors(file.source))
            before = 0
            for piece in cut_lines(readable, shard_bytes):
                torn = readable.damage is not None and not piece.endswith(b"\n")
                data = piece[: piece.rfind(b"\n") + 1] if torn else piece
                if not data:
                    break
                rows = data.count(b"\n") + (not data.endswith(b"\n"))
                now = below.tell()
                yield Shard(number, place, row, rows, data, read_bytes=now - before)
                number, row, before = number + 1, row + rows, now
    except OSError as error:
        raise _unreadable(file, row, error) from error
    if readable.damage is not None:
        if row == 1:
            raise _unreadable(file, row, readable.damage) from readable.damage
        yield Shard(number, place, row, 0, b"", damage=_describe_damage(row, readable.damage))


class _UpToDamage:
    """The bytes of a compressed stream up to where it is damaged, and then the error in `damage`."""

    def __init__(self, stream: IO[bytes], errors: tuple[type[Exception], ...]) -> None:
        self._stream = stream
        self._errors = errors
        self.damage: Exception | None = None

    def read(self, size: int) -> bytes:
        """Returns what can be had at once, at most `size` bytes; nothing at the end and behind damage."""
        if self.damage is not None:
            return b""
        try:
            # All that was asked for together would be lost with the damage in it.
            return cast("io.BufferedReader", self._stream).read1(size)
        except self._errors as error:
            self.damage = error
        return b""


def _cut_table(file: DataFile, place: int, first_number: int, shard_bytes: int) -> Iterator[Shard]:
    """Yields the rows of a Parquet file in batches of about `shard_bytes`, none over the border of a row group."""
    pa = load_arrow()
    number, row = first_number, 1
    try:
        with pa.parquet.ParquetFile(file.source, pre_buffer=False) as source:
            size = file.source.stat().st_size
            total = max(1, source.metadata.num_rows)
            if not source.metadata.num_rows:
                yield Shard(
                    number, place, row, 0, pack_rows(pa, source.schema_arrow.empty_table()), parquet=True
                )
                return
            for group in range(source.metadata.num_row_groups):
                meta = source.metadata.row_group(group)
                rows = max(1, shard_bytes * meta.num_rows // max(1, meta.total_byte_size))
                for batch in source.iter_batches(rows, row_groups=[group], use_threads=False):
                    read = size * (row + batch.num_rows - 1) // total - size * (row - 1) // total
                    yield Shard(
                        number,
                        place,
                        row,
                        batch.num_rows,
                        pack_rows(pa, batch),
                        parquet=True,
                        group=group,
                        read_bytes=read,
                    )
                    number, row = number + 1, row + batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file.name} {_describe_damage(row, str(error).splitlines()[0][:200])}") from error


def cut_lines(stream: IO[bytes] | _UpToDamage, shard_bytes: int) -> Iterator[bytes]:
    """Yields the bytes in pieces that end with the first line end after `shard_bytes`, however the stream is read."""
    held = bytearray()
    looked = 0
    while chunk := stream.read(_CHUNK):
        held += chunk
        while (end := held.find(b"\n", max(looked, shard_bytes - 1))) >= 0:
            yield bytes(held[: end + 1])
            del held[: end + 1]
            looked = 0
        looked = len(held)
    if held:
        yield bytes(held)


def _unreadable(file: DataFile, row: int, error: Any) -> InputError:
    return InputError(f"{file.name} {_describe_damage(row, error)}")


def _describe_damage(row: int, error: Any) -> str:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    where = f" after row {row - 1:,}" if row > 1 else ""
    return f"cannot be read{where}: {said.rstrip('.')}; repair or replace the file"


class ShardJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job for every row: plain values, so that any process can have them.

    `parts` is the folder for what was done; None if nothing is to be written. `at_once` is how many rows of a
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
    """True if excerpts of some rows are wanted for a report."""


def process_shard(shard: Shard, job: ShardJob) -> ShardResult:
    """Compresses the rows of a shard and writes its part where the job says. Raises OSError."""
    done, part = compress_shard(shard, job)
    if job.parts is not None:
        write_part(Path(job.parts), shard.number, part)
    return done


def compress_shard(shard: Shard, job: ShardJob, keep: Keep | None = None) -> tuple[ShardResult, bytes]:
    """Returns the result of a shard, and its rows. What models write is given to `keep` or, without it, kept in the folder.

    Nothing else is written. A row that fails is in the part as it came, or with excerpts in place of the model's words, and marked.
    """
    rows: _LineRows | _TableRows = _TableRows(shard, job) if shard.parquet else _LineRows(shard, job)
    sampler = Sampler(shard.file, shard.number) if job.samples else None
    watched: _Rows = rows if sampler is None else _WatchedRows(rows, shard.first_row, sampler)
    taken = [at for at in range(len(rows)) if _is_sampled(job, shard.file, shard.first_row + at)]
    if job.model is None:
        compressor = _compressor(job.options)
        found = [_compress_row(watched, at, compressor) for at in taken]
    else:
        found = asyncio.run(_summarise_rows(watched, taken, shard, job, keep))
    part = rows.part(taken)
    totals = Totals(left_out=len(rows) - len(taken))
    for one in found:
        totals.add(one)
    numbered = [
        RowMetrics(row=shard.first_row + at, metrics=one) for at, one in zip(taken, found, strict=True)
    ]
    damage = [ShardBadRow(shard.first_row, shard.damage)] if shard.damage else []
    done = ShardResult(
        shard=shard.number,
        file=shard.file,
        group=shard.group,
        first_row=shard.first_row,
        row_count=len(taken),
        size=len(part),
        crc=zlib.crc32(part),
        read_bytes=shard.read_bytes,
        totals=totals,
        bad=(
            *(ShardBadRow(one.row, one.metrics.reason) for one in numbered if one.metrics.outcome in _UNREAD),
            *damage,
        ),
        over=tuple(
            ShardBadRow(one.row, f"{one.metrics.tokens_after:,} tokens")
            for one in numbered
            if one.metrics.still_over_limit
        ),
        rows=_ENCODER.encode_lines(numbered),
        samples=sampler.samples(_compressor(job.options).redactor) if sampler is not None else (),
        last_of=shard.last_of,
        damage=shard.damage,
    )
    return done, part


def write_part(folder: Path, shard: int, part: bytes) -> None:
    """Writes the rows of a shard into a file of their own, whole or not at all."""
    path = folder / part_name(shard)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    with temporary.open("wb") as file:
        file.write(part)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _is_sampled(job: ShardJob, file: int, row: int) -> bool:
    """Tells whether a row is in the sample, by its place and the seed alone."""
    if job.sample_percent >= 100.0:
        return True
    digest = hashlib.blake2b(f"{job.seed} {file} {row}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < job.sample_percent / 100.0 * 2**64


def part_name(shard: int) -> str:
    """Returns the name of the file with the rows of a shard."""
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
        """Returns the turns of a row, None if the line is blank. Raises InputError."""
        if not self._lines[at].strip():
            return None
        line = self._read[at] = read_line(self._lines[at], self._job.column)
        return line.turns

    def put(self, at: int, done: CompressedTrajectory) -> None:
        """Takes the result of a row, whose turns were asked for before."""
        self._lines[at] = self._read.pop(at).with_result(done, self._job.per_turn)

    def part(self, taken: list[int]) -> bytes:
        """Returns the rows that were taken, as they are now."""
        return b"".join([self._lines[at] for at in taken])


class _TableRows:
    """Rows of a Parquet file."""

    def __init__(self, shard: Shard, job: ShardJob) -> None:
        self._job = job
        self._table = Table(shard.data, job.column)
        self._read: dict[int, tuple[list[Any], CellShape]] = {}

    def __len__(self) -> int:
        return len(self._table)

    def turns(self, at: int) -> list[Any] | None:
        """Returns the turns of a row. Raises InputError."""
        self._read[at] = turns_in(self._table.cell(at))
        return self._read[at][0]

    def put(self, at: int, done: CompressedTrajectory) -> None:
        """Takes the result of a row, whose turns were asked for before."""
        turns, shape = self._read.pop(at)
        if done.changed:
            self._table.put(at, self._table.column, shape_turns(done.turns(turns), shape))
            for name, entries in self._table.read_others(at, len(turns), self._job.per_turn).items():
                self._table.put(at, name, done.apply(entries, make_neutral(entries[0])))

    def part(self, taken: list[int]) -> bytes:
        """Returns the rows that were taken, as they are now."""
        return self._table.pack(None if len(taken) == len(self) else taken)


class _WatchedRows:
    """Rows whose results a sampler sees."""

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


def _compress_row(rows: _Rows, at: int, compressor: Compressor) -> TrajectoryMetrics:
    """Compresses a row, and says what became of it. Whatever happens, the row is there as it came or as it should be."""
    try:
        turns = rows.turns(at)
        if turns is None:
            return _BLANK
        done = compressor.compress(turns)
        rows.put(at, done)
    except Exception as error:  # noqa: BLE001 - one row may not end a run over millions: it is copied, and marked
        return _mark_failure(error)
    return done.metrics


async def _summarise_row(rows: _Rows, at: int, ask: _Ask) -> TrajectoryMetrics:
    """As `_compress_row`, with a model."""
    try:
        turns = rows.turns(at)
        if turns is None:
            return _BLANK
        done = await ask(at, turns)
        rows.put(at, done)
    except Exception as error:  # noqa: BLE001 - as above
        return _mark_failure(error)
    return done.metrics


def _mark_failure(error: Exception) -> TrajectoryMetrics:
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


async def _summarise_rows(
    rows: _Rows, taken: list[int], shard: Shard, job: ShardJob, keep: Keep | None
) -> list[TrajectoryMetrics]:
    """Compresses the rows with a model, several at once."""
    from penstock.trajectories.model_summaries import ModelSummaries  # noqa: PLC0415 - only where a model is asked

    assert job.model is not None  # noqa: S101 - the caller looked
    compressor = _compressor(job.options)
    gate = asyncio.Semaphore(job.at_once)
    async with connect_model(job.model) as model:
        window = job.model.window_tokens or await _window(model)
        summaries = ModelSummaries.of_model(model, window, job.model.timeout_seconds)
        with ExitStack() as stack:
            if keep is None and job.parts is not None:
                keep = stack.enter_context(SummariesFile(job.parts)).put
            kept = KeptSummaries(shard, keep)

            async def ask(at: int, turns: list[Any]) -> CompressedTrajectory:
                return await summaries.compress(compressor, turns, shard.first_row + at, kept)

            async def one(at: int) -> TrajectoryMetrics:
                async with gate:
                    return await _summarise_row(rows, at, ask)

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(at)) for at in taken]
            return [task.result() for task in tasks]


async def _window(model: ProviderModel) -> int | None:
    """Returns the window of a model that no table knows, as its provider states it: asked once for all rows."""
    if resolve_window(model.name).source != "default":
        return None
    try:
        return await model.window_tokens() or resolve_window(model.name).tokens
    except ProviderError:
        return resolve_window(model.name).tokens


class KeptSummaries:
    """Keeps what models write as soon as they wrote it: a row that is done again after a kill is not asked again.

    This is no `Shelf` of the stores: a run has no store, its processes share a folder, so each appends lines to a file
    of its own, and what a killed run left is read once, shard by shard, and goes with the shard to whichever process
    does it, on this machine or another.
    """

    def __init__(self, shard: Shard, keep: Keep | None) -> None:
        self._shard = shard.number
        self._known = {kept.row: kept for kept in shard.kept}
        self._keep = keep

    def get(self, row: int) -> KeptSummary | None:
        """Returns what was written for this row before, or None."""
        return self._known.get(row)

    def put(self, kept: KeptSummary) -> None:
        """Keeps it, for good."""
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
        """Keeps what was written for a row of a shard, in one write."""
        self._file.write(_ENCODER.encode([shard, kept]) + b"\n")


def connect_model(options: ModelOptions) -> ProviderModel:
    """Returns the model; nothing is sent yet. Raises SettingsError for one that cannot be asked."""
    from penstock.engine.auxiliary import provider_of  # noqa: PLC0415 - only where a model is asked
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
    expect_many_counts()
    compressor.tokenizer.count("a")  # loads it, which takes half a second that is no row's
    return compressor


def _lines(data: bytes) -> list[bytes]:
    """Lines with their ends, which are line feeds alone."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])
