"""An item of ours in front of a provider's answer."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.event_streams import ItemInserter

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
