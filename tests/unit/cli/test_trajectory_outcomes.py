"""What `penstock trajectories` says at the end."""

from __future__ import annotations

import io
from pathlib import Path

from penstock.cli.screen import Screen
from penstock.cli.trajectories import _lines
from penstock.trajectories.metrics import BadRow, Totals, TrajectoryMetrics, TrajectoryOutcome
from penstock.trajectories.options import TrajectoryOptions
from penstock.trajectories.run import Run, RunResult
from penstock.trajectories.shards import ShardJob

RUN = Run(source=Path("in.jsonl"), target=Path("out.jsonl"), job=ShardJob(options=TrajectoryOptions()))


def test_reasons_of_bad_rows_are_not_told_as_those_of_degraded_ones():
    totals = Totals()
    for reason in ("no answer", "no answer", "too late"):
        totals.add(TrajectoryMetrics(outcome=TrajectoryOutcome.DEGRADED, reason=reason, model_calls=1))
    totals.add(TrajectoryMetrics(outcome=TrajectoryOutcome.BAD, reason="the line is no JSON"))
    finished = RunResult(
        totals=totals,
        files=("in.jsonl",),
        bad=(BadRow("in.jsonl", 4, "the line is no JSON"),),
        seconds=1.0,
        read_bytes=1,
        written_bytes=1,
        resumed_rows=0,
    )
    lines = list(_lines(RUN, finished, Screen(io.StringIO())))
    told = [line.strip() for line in lines]
    assert told[told.index("degraded        3 of them without the model's words") :][1:3] == [
        "2: no answer",
        "1: too late",
    ]
    assert sum("the line is no JSON" in line for line in lines) == 1
    assert told[-1] == "row 4: the line is no JSON"
