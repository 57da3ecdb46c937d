"""Where a run reads and writes: nothing that was not meant to be written is ever replaced."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import zlib
from pathlib import Path

import msgspec
import pytest

from penstock.errors import InputError, SettingsError
from penstock.trajectories.files import output_of
from penstock.trajectories.options import TrajectoryOptions
from penstock.trajectories.run import Run, run
from penstock.trajectories.shards import ShardJob

JOB = ShardJob(options=TrajectoryOptions(target_tokens=400, summary_tokens=150))
ROW = json.dumps({"conversations": [{"from": "human", "value": "Hello."}]}).encode() + b"\n"


def done(source, target):
    return run(Run(source=Path(source), target=Path(target), job=JOB, workers=1))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.jsonl").write_bytes(ROW)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.mark.parametrize("target", [".", "../work", "./", "out.jsonl", "in.jsonl"])
def test_a_file_goes_into_a_folder_under_its_own_name(target, folder):
    done("../data/in.jsonl", target)
    assert [path.name for path in Path().iterdir()] == ["in.jsonl" if target != "out.jsonl" else "out.jsonl"]
    assert sorted(path.name for path in folder.iterdir()) == ["data", "work"]


def test_a_folder_goes_into_the_one_where_people_are(folder):
    done("../data", ".")
    assert [path.name for path in Path().iterdir()] == ["in.jsonl"]
    assert sorted(path.name for path in folder.iterdir()) == ["data", "work"]


@pytest.mark.parametrize(
    ("source", "target"),
    [("../data/in.jsonl", "../data"), ("../data", "../data"), ("../data/in.jsonl", "link.jsonl")],
)
def test_the_input_is_never_replaced(source, target, folder):
    Path("link.jsonl").symlink_to(folder / "data" / "in.jsonl")
    before = (folder / "data" / "in.jsonl").stat()
    with pytest.raises(SettingsError, match="take the place of the input"):
        done(source, target)
    assert (folder / "data" / "in.jsonl").stat() == before


def test_no_file_of_a_folder_is_replaced_by_another(folder):
    (folder / "data" / "data").mkdir()
    (folder / "data" / "data" / "in.jsonl").write_bytes(ROW * 2)
    with pytest.raises(SettingsError, match="take the place of the input"):
        done(folder / "data", folder)
    assert (folder / "data" / "in.jsonl").read_bytes() == ROW


def test_what_is_no_file_is_neither_read_nor_replaced(folder):
    os.mkfifo("pipe")
    with pytest.raises(InputError, match="pipe: neither a file nor a folder"):
        done("pipe", "out.jsonl")
    with pytest.raises(SettingsError, match="pipe: not a file"):
        done("../data/in.jsonl", "pipe")
    assert Path("pipe").is_fifo()
    assert [path.name for path in Path().iterdir()] == ["pipe"]


@pytest.mark.parametrize(("source", "target"), [("-", "out.jsonl"), ("../data/in.jsonl", "-")])
def test_streams_are_refused_with_a_way_out(source, target, folder):
    with pytest.raises((InputError, SettingsError), match=r"-: .* file"):
        done(source, target)
    assert list(Path().iterdir()) == []


def test_the_root_is_no_place_for_a_folder(folder):
    with pytest.raises(SettingsError, match="name a folder in it"):
        output_of(Path("../data"), Path("/"))


@pytest.mark.parametrize("kind", ["metrics", "report"])
@pytest.mark.parametrize("place", ["../data/in.jsonl", "out.jsonl", ".", "pipe", "-", "other.html"])
def test_metrics_and_report_take_the_place_of_nothing_else(kind, place, folder):
    os.mkfifo("pipe")
    asked = {"metrics": Path("other.html"), "report": Path("other.html")} | {kind: Path(place)}
    if place != "other.html":
        asked = {kind: Path(place)}
    wanted = Run(source=Path("../data/in.jsonl"), target=Path("out.jsonl"), job=JOB, workers=1, **asked)
    for one in (wanted, msgspec.structs.replace(wanted, target=None)):
        if one.target is None and place == "out.jsonl":
            continue
        with pytest.raises(SettingsError, match=f"^{re.escape(place)}: .*{kind}|another"):
            run(one)
    assert (folder / "data" / "in.jsonl").read_bytes() == ROW
    assert [path.name for path in Path().iterdir()] == ["pipe"]


def test_what_an_unfinished_run_left_is_no_data(folder):
    parts = folder / "data" / "other.jsonl.parts"
    parts.mkdir()
    (parts / "journal.jsonl").write_bytes(b"{}\n")
    assert done("../data", "out").files == ("in.jsonl",)


@pytest.mark.parametrize("share", [0.35, 0.7, 1.0])
def test_a_gzipped_file_that_breaks_off_gives_all_rows_before_the_damage(tmp_path, share):
    rng = random.Random(7)
    turns = [
        [{"from": "human", "value": rng.randbytes(400).hex()}, {"from": "gpt", "value": "ok"}]
        for _ in range(300)
    ]
    lines = [json.dumps({"conversations": one}).encode() + b"\n" for one in turns]
    source, target = tmp_path / "in.jsonl.gz", tmp_path / "out.jsonl"
    whole = gzip.compress(b"".join(lines))
    source.write_bytes(whole[: round(share * len(whole)) - 5])
    finished = done(source, target)
    given = target.read_bytes()
    count = given.count(b"\n")
    readable = zlib.decompressobj(31).decompress(source.read_bytes())
    assert count == readable.count(b"\n") > 300 * share - 20
    assert finished.totals.rows == count
    assert finished.damaged == (source.name,)
    assert [one.row for one in finished.bad] == [count + 1]
    assert f"cannot be read after row {count:,}: " in finished.bad[0].reason
    assert not list(tmp_path.glob("*.parts"))
