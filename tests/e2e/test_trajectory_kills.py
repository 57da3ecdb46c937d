"""`penstock trajectories`, killed at any moment: the same command goes on, and ends in the same bytes.

PENSTOCK_KILLS says how often a run is killed; `make soak` does it more often.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys

import pytest
from cli_process import COMMAND, assert_one_clear_error, environment, penstock
from trajectory_runs import TARGET, has_done_a_shard, killed, many_rows, save

KILLS = int(os.environ.get("PENSTOCK_KILLS", "2"))


@pytest.fixture(scope="module")
def rows():
    return many_rows(max(8, 3 * KILLS))  # 3 MB and more: some shards for every kill


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
        ("trajectories", source, target, *TARGET, "--workers", "1"), lambda: has_done_a_shard(parts)
    )
    journal = parts / "journal.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"done": {"sha')
    (parts / "00000000.part").write_bytes(b"half a part")
    ran = penstock("trajectories", source, target, *TARGET, "--resume")
    assert ran.code == 0, ran.err
    assert penstock("trajectories", source, tmp_path / "whole.jsonl", *TARGET, "--workers", "1").code == 0
    assert target.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the limit is not kept to")
def test_without_enough_memory_no_half_file_is_left_and_with_more_it_goes_on(rows, tmp_path):
    """A limit on the address space stands in for a machine under pressure: memory is refused at any place."""
    source, target = save(rows[:96], tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    command = ("trajectories", source, target, *TARGET, "--workers", "1", "--resume")
    codes = []
    for megabytes in (200, 250):
        limit = megabytes << 20
        ran = subprocess.run(
            [COMMAND, *map(str, command)],
            env=environment(OPENBLAS_NUM_THREADS="1"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda most=limit: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
            check=False,
        )
        codes.append(ran.returncode)
        assert target.exists() == (ran.returncode == 0)
    assert any(codes)
    if not target.exists():
        ran = penstock(*command)
        assert ran.code == 0, ran.err
    assert penstock("trajectories", source, tmp_path / "whole.jsonl", *TARGET, "--workers", "1").code == 0
    assert target.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not (tmp_path / "out.jsonl.parts").exists()
