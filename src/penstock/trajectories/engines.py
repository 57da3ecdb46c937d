"""Who does the shards. An engine maps them to what came of each, in any order, and holds few of them at a time.

`local` uses the cores of this machine, a process each; `penstock.trajectories.ray_engine` those of a cluster.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING, Protocol

from penstock.errors import RunBroken
from penstock.trajectories.working import process_shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.trajectories.shards import Done, Shard
    from penstock.trajectories.working import ShardJob

__all__ = ["Engine", "LocalEngine", "SerialEngine"]

_AHEAD = 2  # shards in flight for each worker: one that it works on, one that waits


class Engine(Protocol):
    """Does shards. What it raises ends the run; what was done before it stands in the journal."""

    def run(self, shards: Iterable[Shard], job: ShardJob) -> Iterator[Done]:
        """What came of each shard, as soon as it is there. Takes the next shard only when there is room for it.

        `shards` of a run can be pickled and are cut when they are asked for, so that another process may do that.
        """


class SerialEngine:
    """Does one shard after the other, in this process."""

    def run(self, shards: Iterable[Shard], job: ShardJob) -> Iterator[Done]:
        """See `Engine.run`."""
        for shard in shards:
            yield process_shard(shard, job)


class LocalEngine:
    """Does shards in as many processes as there are workers."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def run(self, shards: Iterable[Shard], job: ShardJob) -> Iterator[Done]:
        """See `Engine.run`. Raises RunBroken where a process was killed."""
        # A fresh interpreter for each: what this process holds (threads, locks, a terminal) is not carried over.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=_begin)
        running: set[Future[Done]] = set()
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
                "a worker process was killed, perhaps for want of memory; what was done is kept: "
                "give the same command with --resume, with fewer --workers if memory is short"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Prepare a worker: an interruption is for the one who started it, and where that one dies, it ends too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinel: int) -> None:
        wait_for([sentinel])
        os._exit(1)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True, name="penstock-parent").start()
