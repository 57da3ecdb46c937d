"""Runs on a Ray cluster of several nodes, of which one goes away in the middle. Writes what it saw as JSON.

    python ray_nodes_process.py ROWS OUT SEEN ORDERS

Every node is a raylet of its own with its own object store, as on a machine of its own. Another node comes and goes, the
process that cuts the files is killed, and then whatever process does the first row of ORDERS.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from cli_process import COMMAND
from ray_sessions import processes_of

from penstock.errors import RunBroken
from penstock.testing import Reply, scripted_provider
from penstock.trajectories.options import ModelOptions, TrajectoryOptions
from penstock.trajectories.ray_engine import RayEngine
from penstock.trajectories.run import Run, run
from penstock.trajectories.shards import ShardJob

OPTIONS = TrajectoryOptions(target_tokens=3_000, summary_tokens=400)
HERE = {"node_ip_address": "127.0.0.1", "object_store_memory": 96 << 20, "num_cpus": 1}
QUICK = {"health_check_period_ms": 500, "health_check_timeout_ms": 1_000, "health_check_failure_threshold": 2}


def started():
    """A head without cores of its own, so that all shards travel."""
    from ray.cluster_utils import Cluster

    head = {**HERE, "num_cpus": 0, "include_dashboard": False, "_system_config": QUICK}
    return Cluster(initialize_head=True, head_node_args=head)


def kill(name):
    """Kill the processes of this cluster that have that name, and say how many there were."""
    found = [pid for pid, one in processes_of(os.getsid(0)).items() if one == name]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


class Troubles:
    """What happens on the way, by the number of shards that are done."""

    def __init__(self, cluster, nodes):
        self._cluster = cluster
        self._nodes = nodes
        self._done = 0
        self.seen = {"removed": 0, "added": 0, "cutters": 0, "workers": 0}

    def __call__(self, progress):
        self._done += 1
        if self._done == 3:
            self._remove()
        if self._done == 12:
            self.seen["cutters"] += kill("ray::MapBatches(_cut)")
        if self._done == 16:
            self._nodes.append(self._cluster.add_node(**HERE))
            self.seen["added"] += 1
        if self._done == 24:
            self.seen["workers"] += kill("ray::MapBatches(_compress)")
        if self._done == 30:
            self._remove()

    def _remove(self):
        self._cluster.remove_node(self._nodes.pop(), allow_graceful=False)
        self.seen["removed"] += 1


def by_address(address, rows):
    """The command, as people give it: from a folder of their own, to a cluster that runs."""
    options = (
        "--target-tokens",
        "3000",
        "--summary-tokens",
        "400",
        "--engine",
        "ray",
        "--ray-address",
        address,
    )
    ran = subprocess.run(
        [COMMAND, "trajectories", rows.name, "by-address.jsonl", *options],
        cwd=rows.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return {"code": ran.returncode, "told": ran.stderr}


def poisoned(source):
    """Whatever process asks for the first row is killed: the run must come to an end all the same."""
    asked = []

    def answer(received):
        asked.append("shelf S1-" in received.text)
        if asked[-1]:
            kill("ray::MapBatches(_compress)")
        return Reply("## Goal\nLook at the shelves.\n")

    with scripted_provider(answer) as server:
        model = ModelOptions(name="writer-1", base_url=server.base_url, window_tokens=32_000, concurrency=1)
        job = ShardJob(options=TrajectoryOptions(target_tokens=900, summary_tokens=300), model=model)
        try:
            run(Run(source=source, target=source.with_suffix(".out.jsonl"), job=job, engine="ray"))
        except RunBroken as error:
            return {"told": str(error), "asked": sum(asked)}
    return {"told": "", "asked": sum(asked)}


def main(rows, target, seen, orders):
    engine = RayEngine(0)  # loads Ray, with all that keeps it to this machine
    ray = engine.cluster.ray
    cluster = started()
    try:
        nodes = [cluster.add_node(**HERE) for _ in range(2)]
        ray.init(address=cluster.address, log_to_driver=False, logging_level="CRITICAL")
        troubles = Troubles(cluster, nodes)
        finished = run(Run(source=rows, target=target, job=ShardJob(options=OPTIONS)), engine, troubles)
        told = {**troubles.seen, "rows": finished.totals.rows, "shards": troubles._done}
        told["by_address"] = by_address(cluster.address, rows)
        told["poisoned"] = poisoned(orders)
        seen.write_text(json.dumps(told))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
