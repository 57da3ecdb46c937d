"""`penstock trajectories`, killed at any moment: the same command goes on, and ends in the same bytes.

PENSTOCK_KILLS says how often a run is killed; `make soak` does it more often.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from benchmarks.trajectory_rows import sharegpt_row
from cli_process import COMMAND, assert_one_clear_error, environment, penstock

TARGET = ("--target-tokens", "3000", "--summary-tokens", "400")
KILLS = int(os.environ.get("PENSTOCK_KILLS", "2"))
SIZES = (1_500, 2_500, 6_000, 9_000)


@pytest.fixture(scope="module")
def rows():
    return [
        sharegpt_row(number + 1, SIZES[number % len(SIZES)]) for number in range(24)
    ] * 8  # 3 MB: some shards


def save(rows, path):
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet

        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=40)
    else:
        path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)
    return path


def killed(command, is_time, seconds=60.0):
    """Start the command and kill it with -9 when it is time. Says whether it was still running."""
    process = subprocess.Popen(
        [COMMAND, *map(str, command)],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + seconds
    while not is_time() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 10
    while alive_in_session(process.pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive_in_session(process.pid)  # the workers end with the one who started them
    return process.returncode == -signal.SIGKILL


def alive_in_session(leader):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            found.append(path)
    return found


@pytest.mark.parametrize(
    "suffix", [".jsonl", ".parquet"] if KILLS < 5 else [".jsonl", ".jsonl.gz", ".parquet"]
)
def test_killed_again_and_again_it_ends_in_the_same_file(suffix, rows, tmp_path):
    chance = random.Random(KILLS)
    source, whole, target = (
        save(rows, tmp_path / f"in{suffix}"),
        tmp_path / f"whole{suffix}",
        tmp_path / f"out{suffix}",
    )
    assert penstock("trajectories", source, whole, *TARGET, "--workers", "1").code == 0
    workers = "2" if suffix == ".jsonl" else "1"
    command = ("trajectories", source, target, *TARGET, "--workers", workers, "--resume")
    parts = tmp_path / f"{target.name}.parts"
    hits = 0
    for _ in range(KILLS if suffix == ".jsonl" else KILLS - 1):
        before = len(list(parts.glob("*.part")))
        more = chance.randrange(2)
        hits += killed(command, lambda least=before + more: len(list(parts.glob("*.part"))) > least)
        if target.exists():
            break
    assert hits
    if not target.exists():
        if suffix == ".jsonl":
            assert_one_clear_error(penstock("trajectories", source, target, *TARGET), "--resume", "out")
            other = ("--target-tokens", "2000", "--summary-tokens", "400", "--resume")
            assert_one_clear_error(
                penstock("trajectories", source, target, *other), "target_tokens", "3000", "2000"
            )
        ran = penstock(*command, "--json", "--metrics", tmp_path / "metrics.json")
        assert ran.code == 0, ran.err
        assert json.loads(ran.text)["totals"]["rows"] == len(rows)
        told = [row["row"] for row in json.loads((tmp_path / "metrics.json").read_bytes())["rows"]]
        assert told == list(range(1, len(rows) + 1))
    assert target.read_bytes() == whole.read_bytes()
    assert not parts.exists()


def test_a_journal_that_was_cut_off_in_a_line_is_read_up_to_it(rows, tmp_path):
    source, target = save(rows[:96], tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    parts = tmp_path / "out.jsonl.parts"
    assert killed(
        ("trajectories", source, target, *TARGET, "--workers", "1"), lambda: any(parts.glob("*.rows"))
    )
    journal = parts / "journal.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"done": {"sha')
    (parts / "00000000.part").write_bytes(b"half a part")
    ran = penstock("trajectories", source, target, *TARGET, "--resume")
    assert ran.code == 0, ran.err
    assert penstock("trajectories", source, tmp_path / "whole.jsonl", *TARGET).code == 0
    assert target.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def started(command):
    return subprocess.Popen(
        [COMMAND, *map(str, command)],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_for(is_time, seconds=60.0):
    until = time.monotonic() + seconds
    while not is_time():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_worker_that_dies_ends_the_run_with_one_line_and_what_was_done_is_kept(rows, tmp_path):
    source, target = save(rows, tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    parts = tmp_path / "out.jsonl.parts"
    command = ("trajectories", source, target, *TARGET, "--workers", "2", "--resume")
    process = started(command)
    wait_for(lambda: any(parts.glob("*.rows")))
    second = penstock(*command)
    workers = [path for path in alive_in_session(process.pid) if b"spawn_main" in _command_line(path)]
    os.kill(int(workers[0].parent.name), signal.SIGKILL)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 2
    assert told.decode().startswith("penstock: a worker process was killed")
    assert "--resume" in told.decode()
    assert_one_clear_error(second, "another run")  # while the first was at work
    assert not target.exists()
    ran = penstock(*command, "--json")
    assert json.loads(ran.text)["totals"]["rows"] == len(rows)
    assert json.loads(ran.text)["resumed_rows"] > 0


def _command_line(stat):
    try:
        return (stat.parent / "cmdline").read_bytes()
    except OSError:
        return b""


def test_an_interruption_leaves_what_was_done_and_says_how_to_go_on(rows, tmp_path):
    source, target = save(rows, tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    process = started(("trajectories", source, target, *TARGET, "--workers", "2"))
    wait_for(lambda: any((tmp_path / "out.jsonl.parts").glob("*.rows")))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers too
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.decode() == "penstock: stopped; the same command with --resume goes on\n"
    assert not target.exists()
    assert any((tmp_path / "out.jsonl.parts").glob("*.part"))
