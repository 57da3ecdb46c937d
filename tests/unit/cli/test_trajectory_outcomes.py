"""What `penstock trajectories` says at the end."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from benchmarks.trajectory_rows import sharegpt_row
from hypothesis import given
from hypothesis import strategies as st
from tests.e2e.cli_process import assert_one_clear_error

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
    assert told[told.index("degraded        3 rows without the model's words") :][1:3] == [
        "2: no answer",
        "1: too late",
    ]
    assert sum("the line is no JSON" in line for line in lines) == 1
    assert told[-1] == "row 4: the line is no JSON"


TARGET = ("--target-tokens", "3000", "--summary-tokens", "400", "--workers", "1")


@pytest.fixture
def rows(tmp_path):
    """Rows of three kinds: small, large, and one whose last turn alone is too large."""
    huge = sharegpt_row(4, 4_000)
    huge["conversations"][-1]["value"] = "all of it " * 4_000
    made = [sharegpt_row(1, 1_500), sharegpt_row(2, 6_000), sharegpt_row(3, 9_000), huge]
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in made))
    return file


def test_three_counts_make_all_rows_and_those_that_stay_over_are_listed(penstock, rows, tmp_path):
    ran = penstock("trajectories", rows, tmp_path / "out.jsonl", *TARGET)
    assert (ran.code, ran.err) == (0, "")
    told = [line.split() for line in ran.text.splitlines()]
    counts = {
        " ".join(words[:2]): int(words[2].strip(",:"))
        for words in told
        if words[:1] in (["under"], ["still"]) and len(words) > 2
    }
    counts["compressed"] = next(int(words[1]) for words in told if words[0] == "compressed")
    assert counts == {"under target": 1, "compressed": 2, "still over": 1}
    assert any(line.strip().startswith("row 4: ") for line in ran.text.splitlines())
    assert "too large; --shorten-protected cuts them\n" in ran.text


def test_rows_that_stay_over_fail_a_strict_run(penstock, rows, tmp_path):
    ran = penstock("trajectories", rows, tmp_path / "out.jsonl", *TARGET, "--strict")
    assert (ran.code, ran.err) == (3, "penstock: 1 row still over the target (--strict)\n")
    assert (tmp_path / "out.jsonl").exists()
    assert penstock("trajectories", rows, "--dry-run", "--strict", "--target-tokens", "90k").code == 0


def test_a_turn_that_is_too_large_by_itself_is_shortened_where_that_is_wished(penstock, rows, tmp_path):
    out = tmp_path / "out.jsonl"
    ran = penstock("trajectories", rows, out, *TARGET, "--strict", "--shorten-protected")
    assert ran.code == 0
    last = json.loads(out.read_text().splitlines()[3])["conversations"][-1]["value"]
    assert "shortened: the middle is left out" in last


def test_an_output_that_is_there_stays_unless_told_otherwise(penstock, rows, tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    assert_one_clear_error(penstock("trajectories", rows, out, *TARGET), "out.jsonl", "--overwrite")
    assert out.read_text() == "mine"
    assert penstock("trajectories", rows, out, *TARGET, "--overwrite").code == 0
    assert out.read_text() != "mine"


def test_a_mistyped_column_is_told_before_anything_is_written(penstock, rows, tmp_path):
    ran = penstock("trajectories", rows, tmp_path / "out.jsonl", *TARGET, "--column", "conversation")
    assert_one_clear_error(ran, "no column 'conversation'", "did you mean conversations?")
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_where_no_row_can_be_read_the_input_is_bad(penstock, tmp_path):
    (tmp_path / "in.jsonl").write_text('{\nno\n{"conversations": "no"}\n')
    ran = penstock("trajectories", tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert (ran.code, "no row could be read" in ran.err, "--column" in ran.err) == (2, True, True)
    assert "row 3: the column of turns is not JSON" in ran.text
    assert (tmp_path / "out.jsonl").read_text() == '{\nno\n{"conversations": "no"}\n'


outcomes = st.sampled_from(TrajectoryOutcome)


@given(st.lists(st.tuples(outcomes, st.booleans())))
def test_the_counts_make_all_rows(rows):
    totals = Totals()
    for outcome, over in rows:
        compressed = outcome in (TrajectoryOutcome.COMPRESSED, TrajectoryOutcome.DEGRADED)
        still = outcome is TrajectoryOutcome.NOT_COMPRESSIBLE or (compressed and over)
        totals.add(TrajectoryMetrics(outcome=outcome, still_over_limit=still))
    unread = totals.count(TrajectoryOutcome.BAD, TrajectoryOutcome.FAILED)
    under = totals.count(TrajectoryOutcome.UNDER_TARGET)
    assert under + totals.compressed + totals.still_over_limit + unread == totals.rows
