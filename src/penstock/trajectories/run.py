"""A whole data set: cut into shards, done by an engine, put together under its name when it is whole.

An engine maps shards to their results, in any order, and holds few of them at a time. `local` uses the cores of this
machine, a process each; `penstock.trajectories.ray_engine` those of a cluster.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
import time
import zlib
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from difflib import get_close_matches
from multiprocessing.connection import wait as wait_for
from pathlib import Path  # noqa: TC003 - `Run` is decoded by it
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penstock import __version__
from penstock.errors import InputError, RunBroken, SettingsError
from penstock.trajectories.files import (
    DataFile,
    compression_of,
    create_lines,
    data_files,
    output_of,
)
from penstock.trajectories.journal import Journal, parts_folder
from penstock.trajectories.metrics import BadRow, MetricsFile, Totals
from penstock.trajectories.options import locate_tokenizer, tokenizer_of
from penstock.trajectories.report import Report, ReportFacts
from penstock.trajectories.shards import (
    Remaining,
    ShardJob,
    ShardResult,
    connect_model,
    part_name,
    process_shard,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.trajectories.shards import Shard

__all__ = [
    "Engine",
    "LocalEngine",
    "Run",
    "RunProgress",
    "RunResult",
    "SerialEngine",
    "count_cores",
    "run",
]


SHARD_BYTES = 1 << 20
MODEL_SHARD_BYTES = 4 << 20  # more rows that can wait for a model at once
LARGEST_SHARD_BYTES = 8 << 20
_MANY_SHARDS = 4_096
_SMALL_INPUT = 4 << 20  # bytes below which starting processes takes longer than the work
_UNPACKED = 5  # times the size of a packed file, about
_MOST_BAD = 1_000
_SHOWN_COLUMNS = 8
_PEEKED_ROWS = 50
_AHEAD = 2  # shards in flight for each worker: one that it works on, one that waits
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The order for a data set. `metrics` is the file for the figures of every row, as JSON.

    `report` is the file for a page for people.

    Without a target it is a dry run: all figures, and nothing is written but those. `engine` is "local" or "ray";
    `ray_address` is that of a cluster, without which Ray starts one on this machine. Without `overwrite`, an output that
    stands there is only replaced by a run that goes on.
    """

    source: Path
    target: Path | None
    job: ShardJob
    workers: int = 0
    resume: bool = False
    metrics: Path | None = None
    report: Path | None = None
    engine: str = "local"
    ray_address: str | None = None
    overwrite: bool = True

    def place_output(self) -> Run:
        """Returns the same order with the very file or folder that is made as its target. Raises SettingsError."""
        if self.target is None:
            return self
        return msgspec.structs.replace(self, target=output_of(self.source, self.target))


class RunProgress(msgspec.Struct, kw_only=True):
    """The progress of a run. `read_bytes` of `total_bytes` of the input were read; `resumed_rows` were done before."""

    totals: Totals = msgspec.field(default_factory=Totals)
    read_bytes: int = 0
    total_bytes: int = 0
    resumed_bytes: int = 0
    resumed_rows: int = 0
    resumed_tokens: int = 0
    seconds: float = 0.0

    def seconds_left(self, seconds: float) -> float | None:
        """Returns the seconds that are left at the pace of the `seconds` so far; None while there is no pace."""
        pace = (self.read_bytes - self.resumed_bytes) / seconds if seconds > 0 else 0.0
        return (self.total_bytes - self.read_bytes) / pace if pace > 0 else None


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run. `bad` are the first rows that could not be read, `over` the first that stay over the target;
    the metrics file has all of them. `damaged` are compressed files of which only the rows before the damage were had.
    """

    totals: Totals
    files: tuple[str, ...]
    bad: tuple[BadRow, ...]
    damaged: tuple[str, ...] = ()
    over: tuple[BadRow, ...] = ()
    seconds: float
    read_bytes: int
    written_bytes: int
    resumed_rows: int


def run(
    wanted: Run,
    engine: Engine | None = None,
    on_progress: Callable[[RunProgress], None] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Compresses a data set. The output stands under its name only when it is whole.

    Raises InputError, SettingsError, RunBroken, OSError. Whatever it raises, and after a kill, what was done stays
    beside the output, and the same run with `resume` goes on with it.
    """
    wanted = wanted.place_output()
    files = data_files(wanted.source, wanted.target)
    _require_apart(wanted, files)
    _require_free(wanted, files)
    _require_column(wanted.job.column, files)
    tokenizer_of(wanted.job.options.tokenizer)  # a wrong name is told now, not by every worker
    if wanted.job.model is not None:
        connect_model(wanted.job.model)  # as is a missing key
    workers = _workers(wanted, files)
    if engine is None:
        engine = _engine(wanted, workers)
    work = _Work(wanted, files, engine, now)
    with ExitStack() as stack:
        stack.callback(work.close)
        if wanted.target is not None:
            work.open_journal(parts_folder(wanted.target))
        try:
            work.do(workers, on_progress or (lambda _: None))
            return work.finish()
        except OSError as error:
            if error.errno not in _FULL or wanted.target is None:
                raise
            raise RunBroken(
                f"{wanted.target} cannot be written: {error.strerror}; finished work is kept: "
                "make room, and repeat the command with --resume"
            ) from error


class _Work:
    def __init__(self, wanted: Run, files: list[DataFile], engine: Engine, now: Callable[[], float]) -> None:
        self._wanted = wanted
        self._files = files
        self._engine = engine
        self._now = now
        self._started = now()
        self._journal: Journal | None = None
        self._bad: list[BadRow] = []
        self._damaged: list[str] = []
        self._over: list[BadRow] = []
        self._bytes = [file.source.stat().st_size for file in files]
        self._left: dict[
            int, int
        ] = {}  # shards of a file still to do; below 0 while their number is not known
        self._progress = RunProgress(total_bytes=sum(self._bytes))
        self._metrics: MetricsFile | None = None
        self._report = Report(wanted.report) if wanted.report is not None else None

    def open_journal(self, folder: Path) -> None:
        """Begins, or goes on with what an earlier run had done."""
        self._journal = Journal(folder, self._command(), self._count, resume=self._wanted.resume)
        self._progress.resumed_rows = sum(done.row_count for done in self._journal.done.values())
        for place in self._journal.files:
            if not (target := self._files[place].target).exists():
                raise SettingsError(f"{target} was finished but is gone; remove {folder} to start again")
        self._progress.resumed_tokens = self._progress.totals.tokens_before
        self._progress.resumed_bytes = self._progress.read_bytes

    def do(self, workers: int, on_progress: Callable[[RunProgress], None]) -> None:
        """Does all shards that are left."""
        wanted = self._wanted
        if wanted.target is None and wanted.metrics is not None:
            self._metrics = MetricsFile(wanted.metrics)
        parts = str(self._journal.folder.absolute()) if self._journal is not None else None
        options = msgspec.structs.replace(
            wanted.job.options, tokenizer=locate_tokenizer(wanted.job.options.tokenizer)
        )
        job = msgspec.structs.replace(
            wanted.job, options=options, parts=parts, samples=self._report is not None
        )
        if wanted.target is None:
            job = msgspec.structs.replace(job, model=None)
        if job.model is not None:
            job = msgspec.structs.replace(job, at_once=max(1, job.model.concurrency // workers))
        for place in range(len(self._files)):
            self._assemble_if_whole(place)
        for done in self._engine.run(self._list_remaining(), job):
            if self._journal is not None:
                self._journal.add(done)
            else:
                self._tell(done, done.rows)
            self._count(done)
            self._assemble_if_whole(done.file)
            self._progress.seconds = self._now() - self._started
            on_progress(self._progress)
        if missing := [file.name for place, file in enumerate(self._files) if self._left.get(place, -1)]:
            raise RunBroken(f"{missing[0]} was not finished; repeat the command with --resume")

    def finish(self) -> RunResult:
        """Returns the figures; the metrics file is written and what stood beside the output is removed."""
        written = 0
        if self._journal is not None:
            written = sum(file.target.stat().st_size for file in self._files)
            if self._wanted.metrics is not None:
                self._metrics = MetricsFile(self._wanted.metrics)
            if self._metrics is not None or self._report is not None:
                for done, rows in self._journal.rows():
                    self._tell(done, rows)
        finished = RunResult(
            totals=self._progress.totals,
            files=tuple(file.name for file in self._files),
            bad=_list_first(self._bad),
            damaged=tuple(sorted(self._damaged)),
            over=_list_first(self._over),
            seconds=round(self._now() - self._started, 3),
            read_bytes=sum(self._bytes),
            written_bytes=written,
            resumed_rows=self._progress.resumed_rows,
        )
        if self._metrics is not None:
            self._metrics.finish(
                {
                    "command": self._command(),
                    "totals": finished.totals.to_dict(),
                    "bad_rows": finished.bad,
                    "rows_over": finished.over,
                    "seconds": finished.seconds,
                    "read_bytes": finished.read_bytes,
                    "written_bytes": finished.written_bytes,
                    "resumed_rows": finished.resumed_rows,
                }
            )
            self._metrics = None
        if self._report is not None:
            self._report.write(_facts(self._wanted, finished, self._command()))
        if self._journal is not None:
            self._journal.remove()
            self._journal = None
        return finished

    def close(self) -> None:
        """Leaves what was done where it is, and nothing else."""
        if self._metrics is not None:
            self._metrics.abandon()
        if self._journal is not None:
            self._journal.close()

    def _list_remaining(self) -> Remaining:
        """Returns the shards that are still to be done."""
        journal = self._journal
        return Remaining(
            files=tuple(file.absolute() for file in self._files),
            shard_bytes=self._shard_bytes,
            done=frozenset(journal.done) if journal is not None else frozenset(),
            whole={place: len(journal.of_file(place)) for place in journal.files} if journal else {},
            kept=journal.read_summaries() if journal is not None else {},
        )

    @property
    def _shard_bytes(self) -> int:
        """By the input alone, so that it is cut the same way again. A very large one is cut into larger shards."""
        least = SHARD_BYTES if self._wanted.job.model is None else MODEL_SHARD_BYTES
        return min(LARGEST_SHARD_BYTES, max(least, sum(self._bytes) // _MANY_SHARDS))

    def _tell(self, done: ShardResult, rows: bytes) -> None:
        """Gives the metrics of a shard's rows to the metrics file and the report."""
        for listener in (self._metrics, self._report):
            if listener is not None:
                listener.add(self._files[done.file].name, done, rows)

    def _count(self, done: ShardResult) -> None:
        self._progress.totals.merge(done.totals)
        self._left[done.file] = self._left.get(done.file, 0) + done.last_of - 1
        self._progress.read_bytes += done.read_bytes
        name = self._files[done.file].name
        if len(self._bad) < 2 * _MOST_BAD:
            self._bad += [BadRow(name, bad.row, bad.reason) for bad in done.bad]
        if done.damage:
            self._damaged.append(name)
        if len(self._over) < 2 * _MOST_BAD:
            self._over += [BadRow(name, over.row, over.reason) for over in done.over]

    def _assemble_if_whole(self, place: int) -> None:
        """Puts a file in its place once every shard of it is done."""
        if self._journal is None or place in self._journal.files or self._left.get(place, -1):
            return
        _assemble(self._files[place], self._journal.of_file(place), self._journal)
        self._journal.finish_file(place)

    def _command(self) -> dict[str, Any]:
        """Returns everything that decides the bytes of the output: a run that goes on must have the same."""
        job = self._wanted.job
        model = msgspec.to_builtins(job.model) if job.model is not None else None
        for name in ("concurrency", "timeout_seconds"):  # decide when, not what
            if model is not None:
                model.pop(name)
        return {
            "version": __version__,
            **msgspec.to_builtins(job.options),
            "model": model,
            "column": job.column,
            "per_turn": list(job.per_turn),
            "sample_percent": job.sample_percent,
            "seed": job.seed,
            "files": [
                [file.name, file.source.stat().st_size, file.source.stat().st_mtime_ns]
                for file in self._files
            ],
        }


def _facts(wanted: Run, finished: RunResult, command: dict[str, Any]) -> ReportFacts:
    """Returns what a report says of a run beside its rows."""
    model = wanted.job.model
    settings = {name: value for name, value in command.items() if name != "files"}
    settings["model"] = model.name if model is not None else "none: excerpts"
    if model is not None:
        settings |= {"concurrency": model.concurrency, "timeout_seconds": model.timeout_seconds}
    settings |= {"engine": wanted.engine, "workers": wanted.workers or "all cores"}
    return ReportFacts(
        source=str(wanted.source),
        output=str(wanted.target) if wanted.target is not None else None,
        totals=finished.totals,
        bad=finished.bad,
        files=finished.files,
        seconds=finished.seconds,
        read_bytes=finished.read_bytes,
        written_bytes=finished.written_bytes,
        resumed_rows=finished.resumed_rows,
        target_tokens=wanted.job.options.target_tokens,
        settings=settings,
    )


def count_cores() -> int:
    """Returns the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _require_apart(wanted: Run, files: list[DataFile]) -> None:
    """Raises SettingsError if the metrics or the report would take the place of something else."""
    taken = {path.resolve() for file in files for path in (file.source, file.target)}
    for name, path in (("metrics", wanted.metrics), ("report", wanted.report)):
        if path is None:
            continue
        if str(path) == "-" or (path.exists() and not path.is_file()):
            raise SettingsError(f"{path}: the {name} must go into a file, and this is not one; name a file")
        if path.resolve() in taken:
            raise SettingsError(
                f"{path}: the {name} would overwrite another file of this run; name another file"
            )
        taken.add(path.resolve())


def _require_free(wanted: Run, files: list[DataFile]) -> None:
    """Raises SettingsError if the output stands there already and may not be replaced."""
    if wanted.target is None or wanted.overwrite or wanted.resume or parts_folder(wanted.target).exists():
        return
    there = next((file.target for file in files if file.target.exists()), None)
    if there is not None:
        raise SettingsError(f"{there} exists; add --overwrite to replace it, or name another output")


def _require_column(column: str | None, files: list[DataFile]) -> None:
    """Raises SettingsError if no row at the beginning of any file has the column that was named."""
    if column is None:
        return
    seen: dict[str, None] = {}
    for file in files:
        names = _peek_columns(file)
        if column in names:
            return
        seen |= dict.fromkeys(names)
    if not seen:
        return  # each row will say what is wrong with it
    shown = ", ".join(list(seen)[:_SHOWN_COLUMNS])
    near = get_close_matches(column, list(seen), n=1)
    hint = f"did you mean {near[0]}?" if near else f"the columns are {shown}"
    raise SettingsError(f"there is no column {column!r}: {hint}")


def _peek_columns(file: DataFile) -> list[str]:
    """Returns the columns of the first rows of a file; none if they cannot be read, which is told later."""
    try:
        shard = next(iter(Remaining(files=(file.absolute(),), shard_bytes=SHARD_BYTES)), None)
    except InputError:
        return []
    if shard is None:
        return []
    if shard.parquet:
        from penstock.trajectories.files import Table  # noqa: PLC0415 - its library is an extra

        return Table(shard.data, None).names
    names: dict[str, None] = {}
    for line in shard.data.splitlines()[:_PEEKED_ROWS]:
        try:
            names |= dict.fromkeys(msgspec.json.decode(line, type=dict[str, Any]))
        except msgspec.DecodeError:  # not a row, or one without columns
            continue
    return list(names)


def _list_first(rows: list[BadRow]) -> tuple[BadRow, ...]:
    return tuple(sorted(rows, key=lambda one: (one.file, one.row))[:_MOST_BAD])


def _workers(wanted: Run, files: list[DataFile]) -> int:
    """Returns the number of processes: as asked for, else one for each core, or one alone for a small input."""
    workers = wanted.workers or count_cores()
    size = sum(file.source.stat().st_size * (_UNPACKED if file.packed else 1) for file in files)
    if size < _SMALL_INPUT and not wanted.workers:
        return 1
    return workers if wanted.job.model is None else min(workers, wanted.job.model.concurrency)


def _engine(wanted: Run, workers: int) -> Engine:
    if wanted.engine == "ray":
        from penstock.trajectories.ray_engine import RayEngine  # noqa: PLC0415 - its library is an extra

        own = wanted.workers or count_cores()
        return RayEngine(own if wanted.ray_address is None else wanted.workers, wanted.ray_address)
    return SerialEngine() if workers == 1 else LocalEngine(workers)


def _assemble(file: DataFile, shards: list[ShardResult], journal: Journal) -> None:
    """Puts the parts of a file together and gives it its name."""
    file.target.parent.mkdir(parents=True, exist_ok=True)
    temporary = journal.folder / f"file-{shards[0].shard if shards else 0}.new"
    if file.parquet:
        from penstock.trajectories.files import create_table  # noqa: PLC0415 - its library is an extra

        with create_table(temporary, file.source) as table:
            for done in shards:
                table.add(_whole_part(journal, done), done.group)
    else:
        with create_lines(temporary, compression_of(file.target)) as stream:
            for done in shards:
                stream.write(_whole_part(journal, done))
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    temporary.replace(file.target)


def _whole_part(journal: Journal, done: ShardResult) -> bytes:
    part = journal.part(done)
    if zlib.crc32(part) != done.crc:
        path = journal.folder / part_name(done.shard)
        raise RunBroken(f"{path} is damaged; remove it and repeat the command with --resume")
    return part


class Engine(Protocol):
    """Does shards. What it raises ends the run; what was done before it stands in the journal."""

    def run(self, shards: Iterable[Shard], job: ShardJob) -> Iterator[ShardResult]:
        """Yields the result of each shard as soon as it is there. Takes the next shard only when there is room for it.

        `shards` of a run can be pickled and are cut when they are asked for, so that another process may do that.
        """


class SerialEngine:
    """Does one shard after the other, in this process."""

    def run(self, shards: Iterable[Shard], job: ShardJob) -> Iterator[ShardResult]:
        """See `Engine.run`."""
        for shard in shards:
            yield process_shard(shard, job)


class LocalEngine:
    """Does shards in as many processes as there are workers."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def run(self, shards: Iterable[Shard], job: ShardJob) -> Iterator[ShardResult]:
        """See `Engine.run`. Raises RunBroken if a process was killed."""
        # A fresh interpreter for each: what this process holds (threads, locks, a terminal) is not carried over.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=_begin_worker)
        running: set[Future[ShardResult]] = set()
        try:
            for shard in shards:
                running.add(pool.submit(process_shard, shard, job))
                if len(running) >= self._workers * _AHEAD:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in finished)
            while running:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        except BrokenProcessPool:
            raise RunBroken(
                "a worker process was killed, perhaps because memory ran out; finished work is kept: "
                "repeat the command with --resume, with fewer --workers if memory is short"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker() -> None:
    """Prepares a worker: interruptions are left to the process that started it, and it ends with that process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinel: int) -> None:
        wait_for([sentinel])
        os._exit(1)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True, name="penstock-parent").start()
