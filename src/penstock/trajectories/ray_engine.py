"""Shards on a Ray cluster: on the machines of one that runs, or in processes of this one.

    run(Run(source=…, target=…, job=…, engine="ray", ray_address="auto"))

These are plain tasks, not a Ray dataset: a shard is already what the journal knows and what can be done again, so the
only state of the cluster is the few shards that are on their way. Machines need no folder in common: shards travel
there, their parts travel back, and this process alone writes.
"""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import RunBroken, SettingsError
from penstock.trajectories.working import SummariesFile, compress_shard, write_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.trajectories.kept import Kept
    from penstock.trajectories.shards import Done, Shard
    from penstock.trajectories.working import Job

__all__ = ["RayEngine"]

_AHEAD = 2  # shards in flight for each core: one that is worked on, one that waits
_STORE_BYTES = 256 << 20  # for the shards in flight, of which none has more than a few megabytes
_STORE_BYTES_PER_WORKER = 64 << 20
_RETRIES = 3  # of a shard whose process or machine went away
_REACHED_SECONDS = 5.0
_SILENT = {"RAY_USAGE_STATS_ENABLED": "0"}  # nothing is told to anybody
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # so named, but Linux keeps to it too


class RayEngine:
    """Does shards as tasks of Ray. Without an address, on a cluster of its own with `workers` processes.

    With one ("auto", or HOST:PORT), on that cluster, with all its cores or at most `workers` of them. Penstock in the
    same version, and the variable with the key of a model, must be on every machine of it.
    """

    def __init__(self, workers: int, address: str | None = None) -> None:
        """Raises SettingsError where Ray is not installed, or nobody answers at the address."""
        self._workers = workers
        self._address = address
        if address is not None:
            _require_answer(address)
        self._ray = _ray(address)

    def run(self, shards: Iterable[Shard], job: Job) -> Iterator[Done]:
        """See `Engine.run`. Raises SettingsError where there is no cluster, RunBroken where it fails."""
        with self._cluster() as cores:
            try:
                yield from self._tasks(shards, job, cores)
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self._ray.exceptions.RayError as error:
                raise RunBroken(
                    f"the Ray cluster failed ({_first_line(error)}); what was done is kept: "
                    "give the same command with --resume"
                ) from error

    def _tasks(self, shards: Iterable[Shard], job: Job, cores: int) -> Iterator[Done]:
        ray = self._ray
        parts = Path(job.parts) if job.parts is not None else None
        keeper = self._keeper(parts) if parts is not None and job.model is not None else None
        if job.model is not None:
            cores = min(cores, job.model.concurrency)
            job = msgspec.structs.replace(job, at_once=max(1, job.model.concurrency // cores))
        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_compress)
        job = msgspec.structs.replace(job, parts=None)
        waiting: list[Any] = []
        for shard in shards:
            waiting.append(task.remote(shard, job, keeper))
            if len(waiting) >= cores * _AHEAD:
                yield self._next(waiting, parts, keeper)
        while waiting:
            yield self._next(waiting, parts, keeper)

    def _next(self, waiting: list[Any], parts: Path | None, keeper: Any) -> Done:
        """Take the shard that is done first from those on their way, and write its part."""
        (ready,), waiting[:] = self._ray.wait(waiting, num_returns=1)
        done: Done
        done, part = self._ray.get(ready)
        if parts is not None:
            write_part(parts, done.shard, part)
        if keeper is not None:
            keeper.forget.remote(done.shard)
        return done

    def _keeper(self, parts: Path) -> Any:
        """Who keeps, on this machine, what models write on any."""
        strategies = import_module("ray.util.scheduling_strategies")
        here = strategies.NodeAffinitySchedulingStrategy(
            self._ray.get_runtime_context().get_node_id(), soft=False
        )
        keeper = self._ray.remote(num_cpus=0, scheduling_strategy=here)(_Keeper)
        return keeper.remote(str(parts))

    @contextmanager
    def _cluster(self) -> Iterator[int]:
        """A cluster, and how many shards it does at once. One that the caller had connected to stays connected."""
        ray = self._ray
        ours = not ray.is_initialized()
        if ours:
            self._connect()
        try:
            cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
            yield min(cores, self._workers) if self._workers else cores
        finally:
            if ours:
                ray.shutdown()

    def _connect(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if self._address is not None:
                self._ray.init(address=self._address, **quiet)
                return
            self._ray.init(
                address="local",
                num_cpus=self._workers,
                include_dashboard=False,
                object_store_memory=_STORE_BYTES + self._workers * _STORE_BYTES_PER_WORKER,
                **quiet,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise _no_cluster(self._address or "this machine", _first_line(error)) from error


class _Keeper(SummariesFile):
    """Keeps what models wrote, and knows it for shards on their way: one that Ray begins anew asks for no row again."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._known: dict[int, list[Kept]] = {}

    def put(self, shard: int, kept: Kept) -> None:
        """See `SummariesFile.put`."""
        super().put(shard, kept)
        self._known.setdefault(shard, []).append(kept)

    def known(self, shard: int) -> list[Kept]:
        """What was written for rows of a shard since the run began."""
        return self._known.get(shard, [])

    def forget(self, shard: int) -> None:
        """The shard is done."""
        self._known.pop(shard, None)


def _compress(shard: Shard, job: Job, keeper: Any) -> tuple[Done, bytes]:
    """The task: it runs on some machine, which has nothing of ours but the package."""
    if keeper is None:
        return compress_shard(shard, job)
    ray = import_module("ray")
    kept = (*shard.kept, *ray.get(keeper.known.remote(shard.number)))

    def keep(number: int, one: Kept) -> None:
        ray.get(keeper.put.remote(number, one))

    return compress_shard(msgspec.structs.replace(shard, kept=kept), job, keep)


def _ray(address: str | None) -> Any:
    """Ray, slow to load and without a word about its types. What it may do must be said before that."""
    os.environ.update(_SILENT)
    if address is None or _is_here(address):
        os.environ.update(_LOOPBACK)
    if address is None:  # else Ray would write a key for its clusters into the user's home
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))
    try:
        return import_module("ray")
    except ImportError:
        raise SettingsError(
            "the engine ray needs the package ray: pip install 'penstock[ray]'; or use --engine local"
        ) from None


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
        raise _no_cluster(address, _first_line(error)) from error


def _is_here(address: str) -> bool:
    return address.rpartition(":")[0].strip("[]") in ("127.0.0.1", "localhost", "::1")


def _no_cluster(address: str, why: str) -> SettingsError:
    return SettingsError(
        f"no Ray cluster could be used at {address} ({why.partition('. ')[0].rstrip('.')}); "
        "start one with `ray start --head`, set RAY_AUTH_MODE and RAY_AUTH_TOKEN as it has them, or use --engine local"
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
