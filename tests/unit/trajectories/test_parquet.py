"""Parquet there and back: schema, metadata, types, nulls, row groups; only what was compressed changes."""

from __future__ import annotations

import json

import pytest
from benchmarks.trajectory_rows import chat_row, sharegpt_row

import penstock
from penstock.trajectories.options import TrajectoryOptions
from penstock.trajectories.run import LocalEngine, Run, run
from penstock.trajectories.shards import ShardJob

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

OPTIONS = TrajectoryOptions(target_tokens=3_000, summary_tokens=400)
SIZES = (1_500, 6_000, 2_000, 9_000)
TURN = pa.struct([("from", pa.string()), ("value", pa.string()), ("weight", pa.float32())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("conversations", pa.list_(TURN), metadata={"note": "turns"}),
        pa.field("reward", pa.float64()),
        pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
        pa.field("blob", pa.binary()),
        pa.field("loss_mask", pa.list_(pa.int8())),
        pa.field("when", pa.timestamp("us", tz="UTC")),
    ],
    metadata={"huggingface": '{"info": {}}'},
)


def rows(count=12):
    found = []
    for number in range(1, count + 1):
        row = sharegpt_row(number, SIZES[number % len(SIZES)])
        turns = [{**turn, "weight": float(turn["from"] == "gpt")} for turn in row["conversations"]]
        found.append(
            {
                **row,
                "conversations": turns,
                "kind": ["code", "chat", None][number % 3],
                "blob": bytes([number]) if number % 2 else None,
                "loss_mask": [int(turn["from"] == "gpt") for turn in turns] if number % 4 else None,
                "when": 1_700_000_000_000_000 + number,
            }
        )
    found[5]["conversations"] = None
    return found


def done(source, target, **changes):
    job = ShardJob(options=OPTIONS, **changes.pop("job", {}))
    return run(Run(source=source, target=target, job=job, workers=1), **changes)


@pytest.mark.outside
def test_columns_types_metadata_and_row_groups_stay(tmp_path):
    given = rows()
    table = pa.Table.from_pylist(given, SCHEMA)
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(table, source, row_group_size=5, compression="zstd")
    finished = done(source, target)
    with pq.ParquetFile(target) as new, pq.ParquetFile(source) as old:
        assert new.schema_arrow.equals(old.schema_arrow, check_metadata=True)
        groups = [new.metadata.row_group(at).num_rows for at in range(new.metadata.num_row_groups)]
        assert groups == [5, 5, 2]
        assert new.metadata.row_group(0).column(0).compression == "ZSTD"
        after = new.read()
    untouched = ("id", "reward", "kind", "blob", "when")
    assert after.select(untouched).equals(table.select(untouched))
    assert finished.totals.outcomes["bad"] == 1
    assert [bad.row for bad in finished.bad] == [6]
    compressed = 0
    for old_row, new_row in zip(given, after.to_pylist(), strict=True):
        if old_row["conversations"] is None:
            assert new_row["conversations"] is None
            continue
        expected, metrics = penstock.compress_trajectory(
            old_row["conversations"], target_tokens=3_000, summary_tokens=400
        )
        assert new_row["conversations"] == expected
        compressed += metrics.outcome == "compressed"
        if old_row["loss_mask"] is not None:
            assert len(new_row["loss_mask"]) == len(expected)
    assert compressed >= 4


@pytest.mark.outside  # takes long
def test_chat_messages_with_nested_calls_and_turns_spelled_as_json(tmp_path):
    chats = [chat_row(number, 7_000) for number in range(1, 4)]
    nested, spelled = tmp_path / "nested.parquet", tmp_path / "spelled.parquet"
    pq.write_table(pa.Table.from_pylist(chats), nested)
    pq.write_table(
        pa.Table.from_pylist([{**row, "messages": json.dumps(row["messages"])} for row in chats]), spelled
    )
    done(nested, tmp_path / "nested.out.parquet")
    done(spelled, tmp_path / "spelled.out.parquet")
    one = pq.read_table(tmp_path / "nested.out.parquet").to_pylist()
    two = pq.read_table(tmp_path / "spelled.out.parquet").to_pylist()
    for row, nested_row, spelled_row in zip(chats, one, two, strict=True):
        expected, metrics = penstock.compress_trajectory(
            row["messages"], target_tokens=3_000, summary_tokens=400
        )
        assert metrics.outcome == "compressed"
        assert json.loads(spelled_row["messages"]) == expected
        assert [turn["content"] for turn in nested_row["messages"]] == [turn["content"] for turn in expected]
        calls = [call["function"] for turn in expected for call in turn.get("tool_calls") or ()]
        stored = [call["function"] for turn in nested_row["messages"] for call in turn["tool_calls"] or ()]
        assert stored == calls


def test_turns_in_two_lists_side_by_side(tmp_path):
    """As `datasets` stores a sequence of objects: one list for each field."""
    given = [sharegpt_row(number, 6_000) for number in (1, 2)]
    wide = [
        {
            "id": row["id"],
            "conversations": {
                "from": [turn["from"] for turn in row["conversations"]],
                "value": [turn["value"] for turn in row["conversations"]],
            },
        }
        for row in given
    ]
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.Table.from_pylist(wide), source)
    assert done(source, target).totals.outcomes == {"compressed": 2}
    for row, new in zip(given, pq.read_table(target).to_pylist(), strict=True):
        expected, _ = penstock.compress_trajectory(
            row["conversations"], target_tokens=3_000, summary_tokens=400
        )
        assert new["conversations"]["value"] == [turn["value"] for turn in expected]
        assert new["conversations"]["from"] == [turn["from"] for turn in expected]


@pytest.mark.outside
def test_samples_and_processes_give_the_same_bytes(tmp_path):
    source = tmp_path / "in.parquet"
    pq.write_table(pa.Table.from_pylist(rows(), SCHEMA), source, row_group_size=3)
    sample = {"sample_percent": 50.0, "seed": 4}
    done(source, tmp_path / "one.parquet", job=sample)
    done(source, tmp_path / "two.parquet", job=sample, engine=LocalEngine(2))
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    taken = pq.read_table(tmp_path / "one.parquet").column("id").to_pylist()
    assert 1 < len(taken) < 12
    assert taken == [row["id"] for row in rows() if row["id"] in set(taken)]


def test_an_empty_table_stays_one(tmp_path):
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.Table.from_pylist([], SCHEMA), source)
    assert done(source, target).totals.rows == 0
    assert pq.read_table(target).schema.equals(pq.read_table(source).schema, check_metadata=True)
