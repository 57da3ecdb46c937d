"""Runs on one Ray cluster, with what can go wrong on the way. Writes what it saw as JSON, to the last file named.

    python ray_process.py ROWS OUT MODEL_ROWS MODEL_OUT SEEN

The first run is stopped after some shards and goes on, while a worker is killed. In the second a model writes, and the
worker that asks it is killed. Then comes a file that cannot be read to its end, and at last rows of a dataset, without
a run.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

from ray_sessions import processes_of

from penstock import compress_trajectories
from penstock.testing import Reply, scripted_provider
from penstock.trajectories.options import ModelOptions, TrajectoryOptions
from penstock.trajectories.ray_engine import RayEngine
from penstock.trajectories.run import Run, run
from penstock.trajectories.shards import ShardJob

OPTIONS = TrajectoryOptions(target_tokens=3_000, summary_tokens=400)


class Stop(Exception):
    pass


def workers():
    """The processes of this cluster that do shards, and those that may."""
    names = processes_of(os.getsid(0))
    at_work = [pid for pid, name in names.items() if name.startswith("ray::MapBatches")]
    return at_work + [pid for pid, name in names.items() if name == "ray::IDLE"]


def stopped(source, target):
    wanted = Run(
        source=source, target=target, job=ShardJob(options=OPTIONS), engine="ray", workers=2, resume=True
    )
    seen = {"before": 0, "killed": 0}

    def stop(progress):
        seen["before"] += 1
        if seen["before"] == 2:
            raise Stop

    def kill(progress):
        if not seen["killed"]:
            seen["killed"] = workers()[0]
            os.kill(seen["killed"], signal.SIGKILL)

    try:
        run(wanted, on_progress=stop)
    except Stop:
        seen["in_journal"] = Path(f"{target}.parts", "journal.jsonl").read_bytes().count(b'{"done"')
    finished = run(wanted, on_progress=kill)
    return {**seen, "resumed_rows": finished.resumed_rows, "rows": finished.totals.rows}


def broken(source):
    """A file that ends in the middle: what is told of it."""
    path = source.with_name("broken.jsonl.gz")
    path.write_bytes(gzip.compress(source.read_bytes())[:-9])
    finished = run(
        Run(
            source=path,
            target=path.with_name("mended.jsonl.gz"),
            job=ShardJob(options=OPTIONS),
            engine="ray",
        )
    )
    return [f"{bad.file} {bad.reason}" for bad in finished.bad if bad.file in finished.damaged]


def dataset(ray, source):
    """Rows of a dataset of one's own, as the guide has it."""
    with source.open("rb") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(12), strict=False)]
    ray.data.DataContext.get_current().enable_progress_bars = False
    options = {"target_tokens": OPTIONS.target_tokens, "summary_tokens": OPTIONS.summary_tokens}
    shorter = ray.data.from_items(rows).flat_map(lambda row: compress_trajectories([row], **options))
    return sorted(shorter.take_all(), key=lambda row: row["id"])


def model(source, target):
    asked = []

    def answer(received):
        number = int(re.search(r"shelf S(\d+)-", received.text)[1])
        asked.append(number)
        if len(asked) == 5:
            for pid in workers():
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)
        return Reply(
            f"## Goal\nLook at the shelves, such as S{number}-3.\n\n## Completed Actions\n"
            f"1. Looked at shelf S{number}-3 (m8).\n"
        )

    with scripted_provider(answer) as server:
        options = ModelOptions(name="writer-1", base_url=server.base_url, window_tokens=32_000, concurrency=1)
        job = ShardJob(options=TrajectoryOptions(target_tokens=900, summary_tokens=300), model=options)
        finished = run(Run(source=source, target=target, job=job, engine="ray", workers=1))
    return {"asked": asked, "outcomes": finished.totals.outcomes, "reasons": finished.totals.reasons}


if __name__ == "__main__":
    rows, rows_out, model_rows, model_out, seen = map(Path, sys.argv[1:])
    cluster = RayEngine(2).cluster
    with cluster.connect():  # one for all: a run takes the cluster that is connected
        scenes = {"stopped": stopped(rows, rows_out), "model": model(model_rows, model_out)}
        scenes["broken"] = broken(model_rows)
        scenes["dataset"] = dataset(cluster.ray, rows)
    seen.write_text(json.dumps(scenes))
