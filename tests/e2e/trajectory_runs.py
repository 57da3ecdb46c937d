"""Runs over data sets in processes of their own, which tests stop in every way."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import time
from pathlib import Path

from benchmarks.trajectory_rows import sharegpt_row
from cli_process import COMMAND, environment

TARGET = ("--target-tokens", "3000", "--summary-tokens", "400")
SIZES = (1_500, 2_500, 6_000, 9_000)


def many_rows(times):
    """24 distinct rows, again and again: about 0.4 MB each time."""
    return [sharegpt_row(number + 1, SIZES[number % len(SIZES)]) for number in range(24)] * times


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
    for path in Path("/proc").iterdir():
        try:
            if not path.name.isdecimal() or os.getsid(int(path.name)) != leader:
                continue
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(path / "stat")
    return found


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


def has_done_a_shard(parts):
    """Whether the journal says so: files of a shard may stand there before its line does."""
    journal = parts / "journal.jsonl"
    return journal.is_file() and b'\n{"done"' in journal.read_bytes()


def command_line(stat):
    try:
        return (stat.parent / "cmdline").read_bytes()
    except OSError:
        return b""
