"""`penstock trajectories` when a worker dies, and when somebody interrupts it: one line, and nothing done is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from cli_process import COMMAND, assert_one_clear_error, environment, penstock
from trajectory_runs import (
    TARGET,
    alive_in_session,
    command_line,
    has_done_a_shard,
    many_rows,
    save,
    started,
    wait_for,
)


def last_line(told):
    """What was said at the end; nothing but progress before it, which a busy machine is slow enough to show."""
    *progress, last = told.decode().splitlines()
    assert all(re.fullmatch(r"penstock: (\d+% · .+|starting, \d+ s)", line) for line in progress), progress
    return last


@pytest.fixture(scope="module")
def rows():
    return many_rows(15)  # more work for two than the second command needs to be refused


def test_a_worker_that_dies_ends_the_run_with_one_line_and_what_was_done_is_kept(rows, tmp_path):
    source, target = save(rows, tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    parts = tmp_path / "out.jsonl.parts"
    command = ("trajectories", source, target, *TARGET, "--workers", "2", "--resume")
    process = started(command)
    wait_for(lambda: has_done_a_shard(parts))
    second = penstock(*command)
    workers = [path for path in alive_in_session(process.pid) if b"spawn_main" in command_line(path)]
    os.kill(int(workers[0].parent.name), signal.SIGKILL)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 2
    last = last_line(told)
    assert last.startswith("penstock: a worker process was killed")
    assert "--resume" in last
    assert_one_clear_error(second, "another run")  # while the first was at work
    assert not target.exists()
    ran = penstock(*command, "--json")
    assert json.loads(ran.text)["totals"]["rows"] == len(rows)
    assert json.loads(ran.text)["resumed_rows"] > 0


def test_an_interruption_leaves_what_was_done_and_says_how_to_go_on(rows, tmp_path):
    source, target = save(rows, tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    process = started(("trajectories", source, target, *TARGET, "--workers", "2"))
    wait_for(lambda: has_done_a_shard(tmp_path / "out.jsonl.parts"))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers too
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert last_line(told) == "penstock: stopped; run the same command with --resume to continue"
    assert not target.exists()
    assert any((tmp_path / "out.jsonl.parts").glob("*.part"))


@pytest.mark.skipif(sys.platform != "linux", reason="limits of a process")
def test_a_disk_that_is_full_ends_the_run_with_one_line_and_what_was_done_is_kept(rows, tmp_path):
    import resource

    source, target = save(rows[:240], tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    command = [COMMAND, "trajectories", str(source), str(target), *TARGET, "--workers", "1"]
    room = 1 << 20  # bytes of a file at most: enough for every part, and not for the whole
    ran = subprocess.run(
        command,
        env=environment(),
        capture_output=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
    )
    told = ran.stderr.decode().splitlines()[-1]
    assert ran.returncode == 2
    assert told.startswith(f"penstock: {target} cannot be written: ")
    assert told.endswith("--resume")
    assert not target.exists()
    assert penstock(*command[1:], "--resume").code == 0
    assert penstock("trajectories", source, tmp_path / "whole.jsonl", *TARGET, "--workers", "1").code == 0
    assert target.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
