"""Timing on a machine that others use too: the best of several runs, CPU time, and a yardstick beside it.

Waiting for a core that another process has is in the wall clock's time and not in the CPU's, so ratios are taken of
CPU time.
"""

import gc
import hashlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["Times", "cores", "json_seconds", "machine", "note", "timed"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Times:
    """Seconds of several runs of the same work: by the wall clock, and of CPU over all threads."""

    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]
    yardstick: float = 0.0
    """The best CPU time of the yardstick in between, where one was taken."""

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def cpu(self) -> float:
        return min(self.cpu_seconds)

    def __add__(self, other: "Times") -> "Times":
        yardsticks = [times.yardstick for times in (self, other) if times.yardstick]
        cpu = self.cpu_seconds + other.cpu_seconds
        return Times(self.seconds + other.seconds, cpu, min(yardsticks, default=0.0))


def timed(
    work: Callable[[_T], object], prepare: Callable[[], _T], repeat: int, yardstick: bytes = b""
) -> Times:
    """Times of `work` on what `prepare` makes anew before each run, outside the clock.

    Where bytes are given as a yardstick they are parsed before each run, so that both meet the same neighbours.
    """
    seconds, cpu, parsing = [], [], []
    for _ in range(repeat):
        if yardstick:
            parsing.append(json_seconds(yardstick, 3))
        given = prepare()
        gc.collect()
        start, start_cpu = time.perf_counter(), time.process_time()
        work(given)
        cpu.append(time.process_time() - start_cpu)
        seconds.append(time.perf_counter() - start)
        del given
    return Times(tuple(seconds), tuple(cpu), min(parsing, default=0.0))


def json_seconds(data: bytes, repeat: int = 5) -> float:
    """The yardstick: CPU time that the standard library's `json.loads` takes for these bytes, at best."""
    return timed(json.loads, lambda: data, repeat).cpu


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """What the figures were measured on, in general words, with two speeds to compare machines by."""
    rows = [{"id": number, "name": f"row {number}", "open": number % 3 == 0} for number in range(40_000)]
    data = json.dumps(rows).encode()
    digest = timed(lambda block: hashlib.sha256(block).digest(), lambda: data, 9).cpu
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "json_loads_mb_per_s": round(len(data) / 1e6 / json_seconds(data, 9), 1),
        "sha256_mb_per_s": round(len(data) / 1e6 / digest, 1),
    }


def note(text: str) -> None:
    """Progress, for whoever waits."""
    print(f"… {text}", file=sys.stderr, flush=True)
