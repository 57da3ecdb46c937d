"""Shards as a dataset of Ray Data: on the machines of a cluster that runs, or in processes of this one.

    run(Run(source=…, target=…, job=…, engine="ray", ray_address="auto"))

    a task here cuts the files ─► a task a shard, on any machine ─► the keeper here writes its part ─► it counts as done

Blocks of the dataset are shards, and Ray Data holds as many of them on their way as its object store has room for.
Machines need no folder in common: this one alone reads and writes.

What came of a shard goes to the keeper, and not into a block. A block that is lost with a machine can only be had again
from the task that cut its shard, and that one waits until there is room: neither would ever go on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import warnings
from collections import Counter
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import PenstockError, RunBroken, SettingsError, name_install
from penstock.trajectories.shards import Shard, SummariesFile, compress_shard, write_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.trajectories.shards import KeptSummary, ShardJob, ShardResult

__all__ = ["RayCluster", "RayEngine", "first_line"]


_TRIES = 4  # of a shard whose process or machine goes away; Ray Data itself would try for ever
_WAITING = 64  # shards that are done, of which the run does not know yet
_STORE_BYTES = 64 << 20  # for the shards in flight, of which none has more than a few megabytes
_STORE_BYTES_PER_WORKER = 64 << 20
_REACHED_SECONDS = 5.0
_SILENT = {"RAY_USAGE_STATS_ENABLED": "0"}  # no usage statistics are sent
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # so named, but Linux keeps to it too
_LOGGERS = ("ray", "ray.data")
_ENCODER = msgspec.msgpack.Encoder()
_SHARD = msgspec.msgpack.Decoder(Shard)


class RayEngine:
    """Does shards with Ray Data. Without an address, on a cluster of its own with `workers` processes.

    With one ("auto", or HOST:PORT), on that cluster, with all its cores or at most `workers` of them. Penstock in the
    same version, and the variable with the key of a model, must be on every machine of it.
    """

    def __init__(self, workers: int, address: str | None = None) -> None:
        """Raises SettingsError if Ray is not installed or does not answer at the address."""
        self._workers = workers
        self.cluster = RayCluster(workers, address)

    def run(self, shards: Iterable[Shard], job: ShardJob) -> Iterator[ShardResult]:
        """See `Engine.run`. Raises SettingsError if there is no cluster, RunBroken if it fails."""
        ray = self.cluster.ray
        with self.cluster.connect() as cores:
            try:
                yield from self._run_shards(shards, job, cores)
            except ray.exceptions.RayError as error:
                raise RunBroken(
                    f"the Ray cluster failed ({_innermost(error)}); finished work is kept: "
                    "repeat the command with --resume"
                ) from error

    def _run_shards(self, shards: Iterable[Shard], job: ShardJob, cores: int) -> Iterator[ShardResult]:
        """Yields the result of each shard. Its part is written."""
        ray = self.cluster.ray
        keeper = self._keeper(job)
        most = self._workers
        if job.model is not None:
            most = min(cores, self._workers or cores, job.model.concurrency)
            job = msgspec.structs.replace(job, at_once=max(1, job.model.concurrency // most))
        dataset = self._dataset(shards, msgspec.structs.replace(job, parts=None), keeper, most)
        for row in dataset.iter_rows():
            if row.get("error") is not None:
                raise ray.cloudpickle.loads(row["error"])
            yield ray.get(keeper.take.remote(row["shard"]))

    def _dataset(self, shards: Iterable[Shard], job: ShardJob, keeper: Any, most: int) -> Any:
        """Returns the dataset; work begins when its blocks are asked for. `most` is how many shards at once, if not 0."""
        data = self.cluster.ray.data
        context = data.DataContext.get_current().copy()
        context.enable_progress_bars = False
        context.target_max_block_size = 1  # no block waits for a second shard
        here = {"ray.io/node-id": self.cluster.ray.get_runtime_context().get_node_id()}
        with context.current(context):
            return (
                data.from_items([{"data_set": 0}])
                .map_batches(_cut_files, fn_args=(shards,), num_cpus=0, label_selector=here)
                .map_batches(
                    _compress,
                    batch_format="pyarrow",
                    fn_args=(job, keeper),
                    num_cpus=1,
                    compute=data.TaskPoolStrategy(size=most or None),
                )
            )

    def _keeper(self, job: ShardJob) -> Any:
        ray = self.cluster.ray
        strategies = import_module("ray.util.scheduling_strategies")
        here = strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        return ray.remote(num_cpus=0, scheduling_strategy=here)(_Keeper).remote(job)


class _Keeper:
    """Knows, on this machine, of the shards that are on their way on any, and takes what came of them.

    What models wrote is kept as soon as it is there, and a shard that is begun again asks for no row again.
    """

    def __init__(self, job: ShardJob) -> None:
        self._parts = Path(job.parts) if job.parts is not None else None
        self._summaries = (
            SummariesFile(job.parts) if job.parts is not None and job.model is not None else None
        )
        self._begun: Counter[int] = Counter()
        self._known: dict[int, list[KeptSummary]] = {}
        self._done: dict[int, ShardResult] = {}
        self._room = asyncio.Semaphore(_WAITING)

    async def begin(self, shard: int) -> tuple[int, list[KeptSummary]]:
        """Counts a shard as begun. Returns how often it was, and what models wrote for its rows since the run began."""
        self._begun[shard] += 1
        return self._begun[shard], self._known.get(shard, [])

    async def keep(self, shard: int, kept: KeptSummary) -> None:
        """Keeps what a model wrote for a row."""
        if self._summaries is not None:
            self._summaries.put(shard, kept)
        self._known.setdefault(shard, []).append(kept)

    async def bring(self, done: ShardResult, part: bytes) -> None:
        """Brings the result of a shard, with its part. Waits while many others were not taken yet."""
        if done.shard in self._done:  # brought before, by a process that died before it could say so
            return
        await self._room.acquire()
        if self._parts is not None:
            write_part(self._parts, done.shard, part)
        self._done[done.shard] = done

    async def take(self, shard: int) -> ShardResult:
        """Returns the result of a shard, and forgets the shard."""
        self._room.release()
        self._begun.pop(shard, None)
        self._known.pop(shard, None)
        return self._done.pop(shard)


def _cut_files(_: Any, shards: Iterable[Shard]) -> Iterator[Any]:
    """Runs the task on this machine: cuts the files, a block for each shard. It waits while there is no room for the next."""
    try:
        for shard in shards:
            yield _block("shard", _ENCODER.encode(shard))
    except (PenstockError, OSError) as error:
        yield _failure_block(error)


def _compress(block: Any, job: ShardJob, keeper: Any) -> Any:
    """Runs the task of a shard on some machine, which has nothing of ours but the package."""
    if "error" in block.column_names:
        return block
    (encoded,) = block["shard"]
    shard = _SHARD.decode(encoded.as_py())
    try:
        _bring(shard, job, keeper)
    except (PenstockError, OSError) as error:
        return _failure_block(error)
    return {"shard": [shard.number]}


def _bring(shard: Shard, job: ShardJob, keeper: Any) -> None:
    """Does a shard and gives what came of it to the keeper. Raises RunBroken if that was tried too often."""
    ray = import_module("ray")
    times, written = ray.get(keeper.begin.remote(shard.number))
    if times > _TRIES:
        rows = f"rows {shard.first_row:,} to {shard.first_row + shard.rows - 1:,} of input file {shard.file + 1:,}"
        raise RunBroken(
            f"every process that worked on {rows} was killed, perhaps because memory ran out; finished work is kept: "
            "repeat the command with --resume, on a larger machine or with --engine local"
        )

    def keep(number: int, one: KeptSummary) -> None:
        ray.get(keeper.keep.remote(number, one))

    shard = msgspec.structs.replace(shard, kept=(*shard.kept, *written))
    ray.get(keeper.bring.remote(*compress_shard(shard, job, keep)))


def _failure_block(error: Exception) -> Any:
    """Returns a failure as a block. Ray Data would tell what is raised in its own words, and perhaps try again."""
    return _block("error", import_module("ray.cloudpickle").dumps(error))


def _block(column: str, value: bytes) -> Any:
    """Returns a block of one row. Arrow's bytes are bytes; those of NumPy lose their zeros at the end."""
    pa = import_module("pyarrow")
    return pa.table({column: pa.array([value], pa.large_binary())})


def _innermost(error: BaseException) -> str:
    """Returns what went wrong, from under all that Ray and Ray Data put around it."""
    while (cause := getattr(error, "cause", None) or error.__cause__) is not None:
        error = cause
    return f"{type(error).__name__}: {first_line(error)}"


class RayCluster:
    """A cluster by its address: "auto", or HOST:PORT. Without one it is started here, with `workers` processes."""

    def __init__(self, workers: int, address: str | None = None) -> None:
        """Raises SettingsError if Ray is not installed or does not answer at the address."""
        self._workers = workers
        self._address = address
        if address is not None:
            _require_answer(address)
        self.ray = _load_ray(address)

    @contextmanager
    def connect(self) -> Iterator[int]:
        """While the block runs, Ray is connected to it and says nothing; gives the number of its cores.

        A cluster that the caller had connected to is used, and stays connected. Raises SettingsError if there is none.
        """
        ours = not self.ray.is_initialized()
        if ours:
            self._connect()
        try:
            with _silence():
                yield max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        finally:
            if ours:
                self.ray.shutdown()

    def _connect(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "CRITICAL"}
        try:
            if self._address is not None:
                self.ray.init(address=self._address, **quiet)
                return
            self.ray.init(
                address="local",
                num_cpus=self._workers,
                include_dashboard=False,
                object_store_memory=_STORE_BYTES + self._workers * _STORE_BYTES_PER_WORKER,
                **quiet,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise _no_cluster(self._address or "this machine", first_line(error)) from error


def first_line(error: BaseException) -> str:
    """Returns the message of an error in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _load_ray(address: str | None) -> Any:
    """Ray, slow to load and without a word about its types. What it may do must be said before that."""
    os.environ.update(_SILENT)
    if address is None or _is_here(address):
        os.environ.update(_LOOPBACK)
    if address is None:  # else Ray would write a key for its clusters into the user's home
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))
    try:
        import_module("ray.data")
    except ImportError:
        raise SettingsError(
            f"the engine ray needs the package ray with its data part: {name_install('ray')}; or use --engine local"
        ) from None
    return import_module("ray")


@contextmanager
def _silence() -> Iterator[None]:
    """Keeps Ray from writing: a failure is raised, and a retry needs no mention."""
    before = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="ray")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _require_answer(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if "/" in address or not host or not port.isdigit():
        raise SettingsError(f"the address of a Ray cluster is HOST:PORT or auto, not {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACHED_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, first_line(error)) from error


def _is_here(address: str) -> bool:
    return address.rpartition(":")[0].strip("[]") in ("127.0.0.1", "localhost", "::1")


def _no_cluster(address: str, why: str) -> SettingsError:
    return SettingsError(
        f"no Ray cluster could be used at {address} ({why.partition('. ')[0].rstrip('.')}); "
        "start one with `ray start --head`, set RAY_AUTH_MODE and RAY_AUTH_TOKEN as it has them, or use --engine local"
    )
