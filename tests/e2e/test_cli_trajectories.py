"""`penstock trajectories` as people run it: real files, real processes, kills, broken lines."""

from __future__ import annotations

import gzip
import json
import random

import pytest
from benchmarks.trajectory_rows import chat_row, sharegpt_row
from cli_process import assert_one_clear_error, penstock

TARGET = ("--target-tokens", "3000", "--summary-tokens", "400")
SIZES = (1_500, 2_500, 6_000, 9_000)


@pytest.fixture(scope="module")
def rows():
    return [sharegpt_row(number + 1, SIZES[number % len(SIZES)]) for number in range(24)]


def lines_of(rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def read(path):
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.splitlines()]


def assert_rows_are_sound(before, after, target=3_000):
    assert [row["id"] for row in after] == [row["id"] for row in before]
    from penstock.trajectories.compress import compress_trajectory

    for old, new in zip(before, after, strict=True):
        assert list(new) == list(old)
        assert new["reward"] == old["reward"]
        expected, metrics = compress_trajectory(
            old["conversations"], target_tokens=target, summary_tokens=400
        )
        assert new["conversations"] == expected
        assert metrics.tokens_after <= target or metrics.still_over_limit


def test_a_file_is_compressed_row_by_row_and_small_rows_keep_their_bytes(rows, tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines_of(rows))
    ran = penstock("trajectories", source, target, *TARGET, "--metrics", tmp_path / "metrics.json")
    assert (ran.code, ran.err) == (0, "")
    assert "24 rows" in ran.text
    assert_rows_are_sound(rows, read(target))
    old, new = source.read_bytes().splitlines(), target.read_bytes().splitlines()
    assert sum(one == two for one, two in zip(old, new, strict=True)) >= 6
    metrics = json.loads((tmp_path / "metrics.json").read_bytes())
    assert [row["row"] for row in metrics["rows"]] == list(range(1, 25))
    assert metrics["totals"]["rows"] == 24
    assert metrics["totals"]["tokens_after"] == sum(row["metrics"]["tokens_after"] for row in metrics["rows"])
    assert not (tmp_path / "out.jsonl.parts").exists()


def test_a_folder_keeps_its_layout_packed_as_it_was_whatever_the_number_of_workers(rows, tmp_path):
    import zstandard

    source = tmp_path / "in"
    (source / "deep").mkdir(parents=True)
    (source / "a.jsonl").write_bytes(lines_of(rows[:8]))
    (source / "deep" / "b.jsonl.gz").write_bytes(gzip.compress(lines_of(rows[8:16])))
    packer = zstandard.ZstdCompressor()
    half = [lines_of(rows[16:20]), lines_of(rows[20:])]
    (source / "c.jsonl.zst").write_bytes(packer.compress(half[0]) + packer.compress(half[1]))  # two frames
    (source / "README.md").write_text("not a data file")
    for workers in ("1", "2"):
        ran = penstock("trajectories", source, tmp_path / f"out{workers}", *TARGET, "--workers", workers)
        assert (ran.code, ran.err) == (0, "")
        assert "24 rows in 3 files" in ran.text
    names = sorted(
        path.relative_to(tmp_path / "out1").as_posix() for path in (tmp_path / "out1").rglob("*.*")
    )
    assert names == ["a.jsonl", "c.jsonl.zst", "deep/b.jsonl.gz"]
    for name in names:
        assert (tmp_path / "out1" / name).read_bytes() == (tmp_path / "out2" / name).read_bytes()
    assert_rows_are_sound(rows[8:16], read(tmp_path / "out1" / "deep" / "b.jsonl.gz"))
    packed = (tmp_path / "out1" / "c.jsonl.zst").read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(
        packed
    ) as stream:  # one frame: some readers read no further
        assert len(stream.read().splitlines()) == 8


def test_broken_lines_are_copied_as_they_are_and_told_by_their_number(rows, tmp_path):
    chance = random.Random(5)
    lines = lines_of(rows[:6] * 9).splitlines(keepends=True)
    broken = {
        3: b'{"conversations": [{"from": "human", "val\n',
        9: b"\xff\xfe not utf-8\n",
        10: b'{"other": 1}\n',
        20: b'["just", "words"]\n',
        21: b"null\n",
        30: b'{"conversations": "hello"}\n',
        31: b'{"conversations": [{"from": "human", "value": "a"}, 3]}\n',
        40: b"\n",
        50: lines[50][: len(lines[50]) // 2] + b"\n",
        51: bytes(chance.randrange(1, 255) for _ in range(300)).replace(b"\n", b"x") + b"\r\n",
    }
    given = [broken.get(number, line) for number, line in enumerate(lines, start=1)]
    given[-1] = given[-1].rstrip(b"\n")  # no line end at the end of the file
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b"".join(given))
    ran = penstock("trajectories", source, target, *TARGET, "--json")
    assert ran.code == 0
    told = json.loads(ran.text)
    assert [bad["row"] for bad in told["bad"]] == sorted(set(broken) - {40})
    assert all(bad["reason"] for bad in told["bad"])
    written = target.read_bytes().split(b"\n")
    assert len(written) == len(b"".join(given).split(b"\n"))
    whole = penstock(
        "trajectories", _saved(tmp_path / "whole.jsonl", lines), tmp_path / "good.jsonl", *TARGET
    )
    assert whole.code == 0
    good = (tmp_path / "good.jsonl").read_bytes().split(b"\n")
    for number, line in enumerate(written, start=1):
        expected = broken[number].rstrip(b"\n") if number in broken else good[number - 1]
        assert line == expected


def _saved(path, lines):
    path.write_bytes(b"".join(lines))
    return path


def test_chat_rows_and_other_columns(tmp_path):
    rows = [{**chat_row(number, 8_000), "messages_note": "kept", "loss_mask": None} for number in range(1, 4)]
    for row in rows:
        row["loss_mask"] = [int(one["role"] == "assistant") for one in row["messages"]]
        row["marks"] = list(range(len(row["messages"])))
    source = tmp_path / "chat.jsonl"
    source.write_bytes(lines_of(rows))
    ran = penstock(
        "trajectories", source, tmp_path / "out.jsonl", *TARGET, "--per-turn", "marks", "--system-note"
    )
    assert ran.code == 0, ran.err
    for old, new in zip(rows, read(tmp_path / "out.jsonl"), strict=True):
        assert new["messages_note"] == "kept"
        assert len(new["messages"]) == len(new["loss_mask"]) == len(new["marks"]) < len(old["messages"])
        for message, mark in zip(new["messages"][1:], new["marks"][1:], strict=True):
            assert message == old["messages"][mark] or message["content"].startswith("<penstock-handoff")
        assert new["messages"][0]["content"].startswith(old["messages"][0]["content"])
        assert new["messages"][0] != old["messages"][0]


def test_a_dry_run_tells_all_figures_and_writes_nothing(rows, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_bytes(lines_of(rows))
    dry = penstock("trajectories", source, *TARGET, "--dry-run", "--json")
    assert dry.code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl"]
    real = penstock("trajectories", source, tmp_path / "out.jsonl", *TARGET, "--json")
    figures = {name: value for name, value in json.loads(dry.text)["totals"].items() if "seconds" not in name}
    assert figures.items() <= json.loads(real.text)["totals"].items()


def test_a_sample_is_written_alone_by_its_seed_and_said(rows, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_bytes(lines_of(rows))
    sample = ("--sample-percent", "25")
    ran = penstock("trajectories", source, tmp_path / "a.jsonl", *TARGET, *sample, "--seed", "1")
    assert "sample" in ran.text
    assert "left out" in ran.text
    penstock("trajectories", source, tmp_path / "b.jsonl", *TARGET, *sample, "--seed", "1")
    penstock("trajectories", source, tmp_path / "c.jsonl", *TARGET, *sample, "--seed", "2")
    first = (tmp_path / "a.jsonl").read_bytes()
    assert 1 <= first.count(b"\n") < 15
    assert (tmp_path / "b.jsonl").read_bytes() == first != (tmp_path / "c.jsonl").read_bytes()


def test_options_come_from_a_file_and_typed_ones_win(rows, tmp_path):
    source, config = tmp_path / "in.jsonl", tmp_path / "options.yaml"
    source.write_bytes(lines_of(rows[:8]))
    config.write_text("target-tokens: 3k\nsummary_tokens: 400\nkeep_last: 6\nworkers: 1\n")
    ran = penstock("trajectories", source, tmp_path / "out.jsonl", "--config", config, "--keep-last", "4")
    assert ran.code == 0, ran.err
    penstock("trajectories", source, tmp_path / "same.jsonl", *TARGET)
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "same.jsonl").read_bytes()
    config.write_text("dry_run: true\n")
    ran = penstock("trajectories", source, "--config", config)
    assert "nothing (dry run)" in ran.text
    config.write_text("target_token: 3000\n")
    ran = penstock("trajectories", source, tmp_path / "no.jsonl", "--config", config)
    assert_one_clear_error(ran, "target_token", "did you mean target_tokens")
    config.write_text("engine: cloud\n")
    assert_one_clear_error(
        penstock("trajectories", source, tmp_path / "no.jsonl", "--config", config),
        "engine",
        "cloud",
        "local",
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.jsonl", "out.jsonl"), ("missing.jsonl", "no such file")),
        (("in.jsonl",), ("no output", "--dry-run")),
        (("in.jsonl", "in.jsonl"), ("in.jsonl", "name another")),
        (("in.jsonl", "out.parquet"), ("format of the input",)),
        (("in.jsonl", "out.jsonl", "--tokenizer", "gpt-2"), ("gpt-2", "o200k")),
        (("in.jsonl", "out.jsonl", "--summary-tokens", "20000"), ("20,000", "smaller than the target")),
        (("in.jsonl", "out.jsonl", "--timeout", "5"), ("--timeout", "--summary-model")),
        (("empty", "out"), ("empty", ".parquet")),
        (("bad.jsonl.gz", "out.jsonl.gz"), ("bad.jsonl.gz", "cannot be read: ", "repair or replace")),
        (("bad.parquet", "out.parquet"), ("bad.parquet",)),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_under_the_name_of_the_output(
    arguments, words, rows, tmp_path
):
    (tmp_path / "in.jsonl").write_bytes(lines_of(rows[:1]))
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.jsonl.gz").write_bytes(b"no gzip")
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    assert_one_clear_error(penstock("trajectories", *arguments, cwd=tmp_path), *words)
    assert not list(tmp_path.glob("out*.*l")) + list(tmp_path.glob("out.parquet"))
