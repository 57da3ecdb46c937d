"""Shards as a dataset of Ray Data: on the machines of a cluster that runs, or in processes of this one.

    run(Run(source=…, target=…, job=…, engine="ray", ray_address="auto"))

    one task on this machine cuts the files ─► a task a shard, on any machine ─► this process writes the parts

Rows of the dataset are shards, blocks have one row. Ray Data holds as many of them on their way as its object store has
room for, and does those of a machine that went away again. Machines need no folder in common: shards travel there, their
parts travel back, and this machine alone reads and writes.
"""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import PenstockError, RunBroken
from penstock.trajectories.ray_cluster import RayCluster, first_line
from penstock.trajectories.shards import Done, Shard
from penstock.trajectories.working import SummariesFile, compress_shard, write_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.trajectories.kept import Kept
    from penstock.trajectories.working import Job

__all__ = ["RayEngine"]

_TRIES = 4  # of a shard whose process or machine goes away; Ray Data itself would try for ever
_ENCODER = msgspec.msgpack.Encoder()
_SHARD = msgspec.msgpack.Decoder(Shard)
_DONE = msgspec.msgpack.Decoder(Done)


class RayEngine:
    """Does shards with Ray Data. Without an address, on a cluster of its own with `workers` processes.

    With one ("auto", or HOST:PORT), on that cluster, with all its cores or at most `workers` of them. Penstock in the
    same version, and the variable with the key of a model, must be on every machine of it.
    """

    def __init__(self, workers: int, address: str | None = None) -> None:
        """Raises SettingsError where Ray is not installed, or nobody answers at the address."""
        self._workers = workers
        self.cluster = RayCluster(workers, address)

    def run(self, shards: Iterable[Shard], job: Job) -> Iterator[Done]:
        """See `Engine.run`. Raises SettingsError where there is no cluster, RunBroken where it fails."""
        ray = self.cluster.ray
        with self.cluster.connected() as cores:
            try:
                yield from self._done(shards, job, cores)
            except ray.exceptions.RayError as error:
                raise _ours(error) or RunBroken(
                    f"the Ray cluster failed ({first_line(error)}); what was done is kept: "
                    "give the same command with --resume"
                ) from error

    def _done(self, shards: Iterable[Shard], job: Job, cores: int) -> Iterator[Done]:
        """What came of each shard. Its part is written."""
        parts = Path(job.parts) if job.parts is not None else None
        keeper = self._keeper(job)
        most = self._workers
        if job.model is not None:
            most = min(cores, self._workers or cores, job.model.concurrency)
            job = msgspec.structs.replace(job, at_once=max(1, job.model.concurrency // most))
        dataset = self._dataset(shards, msgspec.structs.replace(job, parts=None), keeper, most)
        for block in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for encoded, part in zip(block["done"], block["part"], strict=True):
                done = _DONE.decode(encoded.as_py())
                if parts is not None:
                    write_part(parts, done.shard, part.as_py())
                keeper.forget.remote(done.shard)
                yield done

    def _dataset(self, shards: Iterable[Shard], job: Job, keeper: Any, most: int) -> Any:
        """The dataset: nothing is done before somebody asks for its blocks. `most` is how many shards at once, if not 0."""
        data = self.cluster.ray.data
        context = data.DataContext.get_current().copy()
        context.enable_progress_bars = False
        context.target_max_block_size = 1  # no block waits for a second shard
        here = {"ray.io/node-id": self.cluster.ray.get_runtime_context().get_node_id()}
        with context.current(context):
            return (
                data.from_items([{"data_set": 0}])
                .map_batches(_cut, fn_args=(shards,), num_cpus=0, label_selector=here)
                .map_batches(
                    _compress,
                    batch_format="pyarrow",
                    fn_args=(job, keeper),
                    num_cpus=1,
                    compute=data.TaskPoolStrategy(size=most or None),
                )
            )

    def _keeper(self, job: Job) -> Any:
        ray = self.cluster.ray
        strategies = import_module("ray.util.scheduling_strategies")
        here = strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        return ray.remote(num_cpus=0, scheduling_strategy=here)(_Keeper).remote(job)


class _Keeper:
    """Knows, on this machine, of the shards that are on their way on any: how often they were begun, and what models wrote.

    What models wrote is kept as soon as it is there, and a shard that is begun again asks for no row again.
    """

    def __init__(self, job: Job) -> None:
        self._begun: Counter[int] = Counter()
        self._known: dict[int, list[Kept]] = {}
        self._file = SummariesFile(job.parts) if job.parts is not None and job.model is not None else None

    def begin(self, shard: int) -> tuple[int, list[Kept]]:
        """How often a shard was begun, this time counted, and what was written for rows of it since the run began."""
        self._begun[shard] += 1
        return self._begun[shard], self._known.get(shard, [])

    def put(self, shard: int, kept: Kept) -> None:
        """See `SummariesFile.put`."""
        if self._file is not None:
            self._file.put(shard, kept)
        self._known.setdefault(shard, []).append(kept)

    def forget(self, shard: int) -> None:
        """The shard is done."""
        self._begun.pop(shard, None)
        self._known.pop(shard, None)


def _cut(_: Any, shards: Iterable[Shard]) -> Iterator[Any]:
    """The task on this machine: cuts the files, a block for each shard. It waits while there is no room for the next."""
    for shard in shards:
        yield _block(shard=_ENCODER.encode(shard))


def _compress(block: Any, job: Job, keeper: Any) -> Any:
    """The task of a shard: it runs on some machine, which has nothing of ours but the package."""
    ray = import_module("ray")
    (encoded,) = block["shard"]
    shard = _SHARD.decode(encoded.as_py())
    times, written = ray.get(keeper.begin.remote(shard.number))
    if times > _TRIES:
        rows = f"rows {shard.first_row:,} to {shard.first_row + shard.rows - 1:,} of input file {shard.file + 1:,}"
        raise RunBroken(
            f"whatever process does {rows} is killed, perhaps for want of memory; what was done is kept: "
            "give the same command with --resume, on a larger machine or with --engine local"
        )

    def keep(number: int, one: Kept) -> None:
        ray.get(keeper.put.remote(number, one))

    done, part = compress_shard(msgspec.structs.replace(shard, kept=(*shard.kept, *written)), job, keep)
    return _block(done=_ENCODER.encode(done), part=part)


def _block(**columns: bytes) -> Any:
    """A block of one row."""
    pa = import_module("pyarrow")
    return pa.table({name: pa.array([value], pa.large_binary()) for name, value in columns.items()})


def _ours(error: BaseException) -> PenstockError | OSError | None:
    """What our code raised in a task, under what Ray and Ray Data put around it."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, (PenstockError, OSError)):
        seen = getattr(seen, "cause", None) or seen.__cause__
    return seen
