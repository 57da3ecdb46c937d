"""An item of ours in front of a provider's answer, and streams that say nothing, without end."""

from __future__ import annotations

import asyncio
import itertools
import json
import time

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway import event_streams
from penstock.gateway.event_streams import ItemInserter, hold_error, hold_opening

ITEM = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
EVENTS = [
    {"type": "response.created", "sequence_number": 0, "response": {"output": []}},
    {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": MESSAGE},
    {"type": "response.output_text.delta", "sequence_number": 2, "output_index": 0, "delta": "Hé\n"},
    {"type": "response.output_item.done", "sequence_number": 3, "output_index": 0, "item": MESSAGE},
    {"type": "response.completed", "sequence_number": 4, "response": {"output": [MESSAGE]}},
]


def write(events, newline=b"\n"):
    lines = [
        b"event: %b%b" % (event["type"].encode(), newline)
        + b"data: %b%b%b" % (json.dumps(event).encode(), newline, newline)
        for event in events
    ]
    return b": a comment" + newline + newline + b"".join(lines) + b"data: [DONE]" + newline + newline


@given(st.lists(st.integers(0, 1_200), max_size=12), st.sampled_from([b"\n", b"\r\n"]))
def test_however_a_stream_is_cut_the_item_comes_first_and_the_rest_is_counted_up(cuts, newline):
    stream = write(EVENTS, newline)
    inserter = ItemInserter(ITEM, "responses")
    places = [0, *sorted(cuts), len(stream)]
    out = b"".join(inserter.feed(stream[a:b]) for a, b in itertools.pairwise(places))
    out += inserter.feed(stream[max(places) :]) + inserter.end()
    assert out.startswith(b": a comment")
    assert out.endswith(b"data: [DONE]" + newline + newline)
    events = [json.loads(line[6:]) for line in out.splitlines() if line.startswith(b"data: {")]
    assert [event["sequence_number"] for event in events] == list(range(7))
    assert [event.get("output_index") for event in events] == [None, 0, 0, 1, 1, 1, None]
    assert events[1]["item"] == events[2]["item"] == ITEM
    assert events[4]["delta"] == "Hé\n"
    assert events[-1]["response"]["output"] == [ITEM, MESSAGE]


@given(st.binary(max_size=300))
def test_what_is_not_understood_goes_on_as_it_came(data):
    for dialect in ("responses", "anthropic"):
        inserter = ItemInserter(ITEM, dialect)
        if b"data:" not in data:
            assert inserter.feed(data) + inserter.end() == data
        if not data.lstrip().startswith(b"{"):
            assert inserter.insert_whole(data) == data


def test_an_event_without_end_goes_on_and_is_not_held(monkeypatch):
    monkeypatch.setattr(event_streams, "_MOST_EVENT_BYTES", 1_000)
    inserter = ItemInserter(ITEM, "responses")
    sent = [b"data: " + b"x" * 600, b"x" * 600, b"x" * 600, b"\n\n" + write(EVENTS)]
    assert [inserter.feed(piece) for piece in sent] == [b"", sent[0] + sent[1], sent[2], sent[3]]
    assert inserter.end() == b""


class Pieces:
    """The body of an answer, as it comes."""

    def __init__(self, *pieces):
        self._pieces = list(pieces)
        self.content = self

    def read_nowait(self):
        return b""

    async def readany(self):
        return self._pieces.pop(0) if self._pieces else b""


class BrokenOff(Pieces):
    """A body whose connection was closed at once."""

    def read_nowait(self):
        raise aiohttp.ClientPayloadError


def test_an_answer_that_has_broken_off_by_then_is_no_refusal():
    assert asyncio.run(hold_error(BrokenOff())) == (b"", None)
    assert asyncio.run(hold_opening(BrokenOff(), "chat")) == (b"", None)


# A megabyte that is searched to its end for each of its events takes a minute.
@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("event", [b"\n\n", b": \n\n", b"\r\n\r\n"])
def test_a_stream_of_empty_events_takes_no_longer_than_others_of_its_size(dialect, event):
    data = event * ((1 << 20) // len(event))
    started = time.process_time()
    held, refusal = asyncio.run(hold_opening(Pieces(data, data), dialect))
    inserter = ItemInserter(ITEM, dialect)
    assert inserter.feed(data) + inserter.end() == data
    assert time.process_time() - started < 5.0
    assert (held, refusal) == (data, None)
