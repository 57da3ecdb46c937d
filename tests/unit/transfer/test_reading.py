"""Files of conversations in a dialect, and what belongs to reading lines."""

from __future__ import annotations

import json

import pytest
from tests.unit.transfer.recorded_files import lines

from penstock.errors import InputError
from penstock.transfer.lines import read_moment
from penstock.transfer.reading import read_recorded

TALK = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}]


def test_an_array_a_body_and_lines_are_the_same_conversation():
    array = json.dumps(TALK).encode()
    body = json.dumps(
        {"model": "gpt-4.1", "tools": [{"type": "function"}], "messages": TALK}, indent=2
    ).encode()
    for data in (array, body, lines(*TALK)):
        (recorded,) = read_recorded(data).conversations
        assert [json.loads(one.raw) for one in recorded.messages] == TALK
        assert (recorded.format, recorded.dialect, recorded.source) == ("file", "chat", "")
    (recorded,) = read_recorded(body).conversations
    assert recorded.model == "gpt-4.1"
    assert recorded.left_out == {"the field 'tools' beside the messages": 1}


def test_the_dialect_may_be_named():
    (recorded,) = read_recorded(json.dumps(TALK).encode(), "anthropic").conversations
    assert recorded.dialect == "anthropic"


def test_one_conversation_per_line():
    rows = [{"conversations": [{"from": "human", "value": f"Hello {n}"}]} for n in range(3)]
    reading = read_recorded(lines(*rows, b"{broken\n", {"conversations": []}))
    assert [one.dialect for one in reading.conversations] == ["sharegpt"] * 3
    assert [fault.line for fault in reading.faults] == [4, 5]


@pytest.mark.parametrize("indent", [None, 1])
def test_an_array_of_conversations(indent):
    rows = [{"id": f"{n}", "conversations": [{"from": "human", "value": f"Hello {n}"}]} for n in range(3)]
    data = json.dumps([*rows, {"id": "3", "conversations": []}, 5], indent=indent).encode()
    reading = read_recorded(data)
    assert [one.dialect for one in reading.conversations] == ["sharegpt"] * 3
    assert [json.loads(one.messages[0].raw)["value"] for one in reading.conversations] == [
        "Hello 0",
        "Hello 1",
        "Hello 2",
    ]
    places = {line.strip(): number for number, line in enumerate(data.decode().splitlines(), start=1)}
    empty, number = reading.faults
    assert (empty.line, number.line) == (
        (1, 1) if indent is None else (places['"id": "3",'] - 1, places["5"])
    )
    assert "element 4" in empty.what
    assert "element 5" in number.what


def test_a_broken_line_among_messages():
    reading = read_recorded(lines(TALK[0], b'{"role": "user", "cont\n', TALK[1]))
    assert [fault.line for fault in reading.faults] == [2]
    assert len(reading.conversations[0].messages) == 2


@pytest.mark.parametrize("data", [b"", b"hello", b"[", b'{\n  "messages": [\n', b'{"a": 1}', b"[1]", b"[]"])
def test_what_holds_no_conversation_is_an_error(data):
    with pytest.raises(InputError):
        read_recorded(data)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-03-14T09:26:53.589Z", 1_773_480_413.589),
        ("2026-03-14T10:26:53+01:00", 1_773_480_413.0),
        ("2026-03-14T04:26:53-0500", 1_773_480_413.0),
        ("2026-03-14 09:26", 1_773_480_360.0),
    ],
)
def test_times(text, seconds):
    assert read_moment(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", [None, 7, "", "yesterday", "2026-13-01T00:00:00Z", "2026-00-10T00:00:00Z", "2026-03-14"]
)
def test_what_is_no_time(value):
    assert read_moment(value) is None
