"""Runs on one Ray cluster, with what can go wrong on the way. Writes what it saw as JSON, to the last file named.

    python ray_process.py ROWS OUT MODEL_ROWS MODEL_OUT SEEN

The first run is stopped after some shards and goes on, while a worker is killed. In the second a model writes, and the
worker that asks it is killed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

from penstock.testing import Reply, scripted_provider
from penstock.trajectories.options import ModelOptions, TrajectoryOptions
from penstock.trajectories.ray_engine import RayEngine
from penstock.trajectories.run import Run, run
from penstock.trajectories.working import Job

OPTIONS = TrajectoryOptions(target_tokens=3_000, summary_tokens=400)


class Stop(Exception):
    pass


def workers():
    """The processes that do shards, and those that may."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith((b"ray::_compress", b"ray::IDLE")):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def stopped(source, target):
    wanted = Run(source=source, target=target, job=Job(options=OPTIONS), engine="ray", workers=2, resume=True)
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
        job = Job(options=TrajectoryOptions(target_tokens=900, summary_tokens=300), model=options)
        finished = run(Run(source=source, target=target, job=job, engine="ray", workers=1))
    return {"asked": asked, "outcomes": finished.totals.outcomes, "reasons": finished.totals.reasons}


if __name__ == "__main__":
    rows, rows_out, model_rows, model_out, seen = map(Path, sys.argv[1:])
    with RayEngine(2)._cluster():  # one for both: a run takes the cluster that is connected
        scenes = {"stopped": stopped(rows, rows_out), "model": model(model_rows, model_out)}
    seen.write_text(json.dumps(scenes))
