"""Rows of data sets: where turns are found, and that what is not ours keeps its bytes."""

from __future__ import annotations

import json

import pytest

from penstock.errors import InputError
from penstock.trajectories.compress import Compressor
from penstock.trajectories.options import TrajectoryOptions
from penstock.trajectories.rows import compress_row, read_line

COMPRESSOR = Compressor(TrajectoryOptions(target_tokens=400, summary_tokens=150))


def turns(count=30):
    found = [{"from": "human", "value": "Count, please."}]
    for number in range(count):
        found += [
            {
                "from": "gpt",
                "value": f"That is number {number}, and so it goes on for a while, step by step.",
            },
            {
                "from": "human",
                "value": f"Go on after {number}, in the same way, and tell me what you find there.",
            },
        ]
    return [*found, {"from": "gpt", "value": "Done."}]


def rewritten(line):
    read = read_line(line)
    done = COMPRESSOR.compress(read.turns)
    assert done.summary is not None
    return read.with_result(done), done


def spelled(row, **style):
    return json.dumps(row, **style).encode() + b"\n"


def test_what_python_writes_for_a_missing_reward_is_kept():
    line = spelled({"reward": float("nan"), "limit": float("inf"), "conversations": turns()})
    written, done = rewritten(line)
    assert written.startswith(b'{"reward": NaN, "limit": Infinity, "conversations": [{"from"')
    assert json.loads(written)["conversations"] == done.turns(turns())


def test_half_a_character_is_kept_as_its_escape():
    row = {"note": "\ud83d", "conversations": turns()}
    row["conversations"][-1]["value"] = "cut \ud83d off"
    written, _ = rewritten(spelled(row))
    assert b'"note": "\\ud83d"' in written
    assert b'{"from": "gpt", "value": "cut \\ud83d off"}' in written


def test_numbers_keep_their_digits_and_columns_their_spacing():
    line = b'{"id":1.50,"big":123456789012345678901234567890,"odd":{"a" :1},"conversations":'
    line += json.dumps(turns(), separators=(",", ":")).encode() + b"}\r\n"
    written, _ = rewritten(line)
    assert written.startswith(
        b'{"id":1.50,"big":123456789012345678901234567890,"odd":{"a" :1},"conversations":[{'
    )
    assert written.endswith(b"}\r\n")


def test_a_line_that_is_a_list_of_turns_stays_one_and_a_mark_of_order_stays():
    line = b"\xef\xbb\xbf" + json.dumps(turns()).encode()
    written, done = rewritten(line)
    assert written.startswith(b"\xef\xbb\xbf[{")
    assert json.loads(written[3:]) == done.turns(turns())


def test_turns_in_a_string_stay_in_one():
    inner = turns()
    inner[-1]["value"] = "schön \ud83d"
    written, done = rewritten(spelled({"conversations": json.dumps(inner)}))
    assert json.loads(json.loads(written)["conversations"]) == done.turns(inner)


def test_turns_in_one_list_for_each_field():
    wide = {"from": [turn["from"] for turn in turns()], "value": [turn["value"] for turn in turns()]}
    written, done = rewritten(spelled({"conversations": wide, "id": 3}))
    new = json.loads(written)
    assert new["conversations"]["value"] == [turn["value"] for turn in done.turns(turns())]
    assert list(new["conversations"]) == ["from", "value"]


def test_columns_with_an_entry_for_each_turn_are_cut_by_name_and_length():
    count = len(turns())
    row = {
        "conversations": turns(),
        "loss_mask": [True] * count,
        "weights": [0.5] * count,
        "rewards": [1, 2, 3],
        "tags": ["x"] * count,
        "timestamps": [f"t{at}" for at in range(count)],
    }
    read = read_line(spelled(row))
    done = COMPRESSOR.compress(read.turns)
    new = json.loads(read.with_result(done))
    length = len(new["conversations"])
    assert [len(new[name]) for name in ("loss_mask", "weights", "timestamps")] == [length] * 3
    assert new["loss_mask"][done.start] is False
    assert new["weights"][done.start] == 0.0
    assert new["timestamps"][done.start] is None
    assert new["rewards"] == [1, 2, 3]
    assert len(new["tags"]) == count
    assert len(json.loads(read.with_result(done, ["tags"]))["tags"]) == length


def test_the_column_can_be_named():
    line = spelled({"messages": "something else", "run": turns()})
    assert read_line(line, "run").turns == turns()
    with pytest.raises(InputError, match=r"'run'.*it has 'messages'"):
        read_line(spelled({"messages": []}), "run")


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"",
            b"{",
            b"nothing",
            b'{"a": 1}',
            b'{"conversations": 3}',
            b'{"conversations": null}',
            b"[1",
            b"3",
        ),
        *(b'"x"', b'{"conversations": "[1"}', b'{"conversations": []} more', b"[" * 100_000, b"\xff"),
    ],
)
def test_what_is_no_row_is_told(line):
    with pytest.raises(InputError):
        read_line(line)


def test_rows_of_a_frame_hold_arrays_and_are_cut_alike():
    import numpy as np

    given = turns()
    row = {"messages": np.array(given, dtype=object), "loss_mask": np.ones(len(given), dtype=np.int8)}
    new = compress_row(row, COMPRESSOR, None)
    assert new["penstock"]["outcome"] == "compressed"
    assert len(new["messages"]) == len(new["loss_mask"]) < len(given)
    assert sorted(new["loss_mask"])[:2] == [0, 1]  # 0 for the summary alone
    small = compress_row({**row, "messages": row["messages"][:3]}, COMPRESSOR, None)
    assert small["loss_mask"] is row["loss_mask"]


@pytest.mark.parametrize("place", [0, 14, 60, -30])
def test_what_is_not_utf8_is_told_alike_wherever_it_stands(place):
    line = bytearray(spelled({"note": "a" * 40, "conversations": turns()}))
    line[place] = 0x80
    with pytest.raises(InputError, match=rf"^the line is not UTF-8: .*\(byte {place % len(line) + 1}\)$"):
        read_line(bytes(line))
