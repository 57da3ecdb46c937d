"""What is exported can be imported: the same log, byte for byte, in every dialect."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations, conversations, json_values

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Text, ToolCall, ToolResult
from penstock.errors import InputError
from penstock.sessions.exporting import export_conversation, write_document
from penstock.sessions.importing import KNOWN, NEW, adopt_conversation
from penstock.sessions.session import Session
from penstock.settings import Settings
from penstock.stores.store import open_store
from penstock.transfer.convert import convert
from penstock.transfer.lines import read_lines
from penstock.transfer.reading import read_recorded

NAMES = sorted(DIALECTS)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), indent=st.sampled_from([None, 1]))
@settings(max_examples=12, deadline=None)
def test_export_then_import_is_the_same_log(name, data, indent):
    wires = data.draw(conversations(name))
    here, there = open_store("memory:"), open_store("memory:")
    try:
        session = Session.create(here, dialect=name)
        session.append([json.dumps(wire, indent=indent).encode() for wire in wires])
        document = write_document(export_conversation(here, session.id).messages)
        (recorded,) = read_recorded(document, name).conversations
        taken = adopt_conversation(there, recorded, Settings(), 1.0)
        assert taken.outcome == NEW
        assert [entry.raw for entry in there.read_from(taken.session, 0)] == [
            entry.raw for entry in here.read_from(session.id, 0)
        ]
        assert there.ids(taken.session) == here.ids(session.id)
        assert adopt_conversation(there, recorded, Settings(), 2.0).outcome == KNOWN
        assert adopt_conversation(here, recorded, Settings(), 2.0).session == session.id
        assert there.faults() == []
        lines = write_document(export_conversation(here, session.id).messages, "jsonl")
        again = read_recorded(lines, name).conversations[0]
        assert [json.loads(one.raw) for one in again.messages] == wires
    finally:
        here.close()
        there.close()


def words(messages):
    """Every text, call and result, in order."""
    found = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, Text) and part.text.strip():
                found.append(part.text.strip())
            elif isinstance(part, ToolCall):
                found.append((part.call_id, part.name))
            elif isinstance(part, ToolResult):
                found.append((part.call_id, part.text.strip()))
    return sorted(map(str, found))


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", NAMES)
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_a_conversion_can_be_read_and_says_the_same(source, target, data):
    """ShareGPT writes tags into its text, so words that look like tags may be read as such there."""
    wires = data.draw(conversations(source))
    messages = decode_all(DIALECTS[source], wires)
    result = convert(messages, DIALECTS[source], DIALECTS[target])
    read = decode_all(DIALECTS[target], result.wires)
    if "sharegpt" not in (source, target):
        assert words(read) == words(messages)


@pytest.mark.parametrize("source", NAMES)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_broken_conversations_are_converted_too(source, data):
    messages = decode_all(DIALECTS[source], data.draw(broken_conversations(source)))
    for target in DIALECTS.values():
        decode_all(target, convert(messages, DIALECTS[source], target).wires)


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_lines_or_faults(data):
    lines, faults = read_lines(data)
    numbers = [line.number for line in lines] + [fault.line for fault in faults]
    assert len(set(numbers)) == len(numbers)


_TYPES = [
    "user",
    "assistant",
    "summary",
    "system",
    "session_meta",
    "response_item",
    "event_msg",
    "compacted",
    "message",
]
_FIELDS = [
    "uuid",
    "parentUuid",
    "sessionId",
    "isSidechain",
    "message",
    "payload",
    "role",
    "content",
    "timestamp",
    "id",
]
_ITEMS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.one_of(
            st.sampled_from(["message", "token_count", "tool_use", "tool_result"]), json_values()
        ),
        "role": st.sampled_from(["user", "assistant", "owl"]),
        "content": st.one_of(
            json_values(), st.lists(st.dictionaries(st.sampled_from(["type", "id", "text"]), json_values()))
        ),
        "info": st.fixed_dictionaries(
            {"last_token_usage": st.dictionaries(st.just("input_tokens"), json_values())}
        ),
        "replacement_history": st.lists(
            st.dictionaries(st.just("type"), json_values(), max_size=1), max_size=2
        ),
        "usage": json_values(),
        "model": json_values(),
        "id": json_values(),
    },
)
_LINES = st.builds(
    lambda kind, item, more: {**more, "type": kind, **item},
    st.sampled_from(_TYPES),
    st.one_of(
        _ITEMS.map(lambda item: {"message": item, "uuid": "u"}), _ITEMS.map(lambda item: {"payload": item})
    ),
    st.dictionaries(st.sampled_from(_FIELDS), json_values(), max_size=4),
)


@example(
    [
        {"type": "user", "uuid": [], "message": {"role": "user", "content": "hi"}},
        {"type": "summary", "leafUuid": {}},
    ]
)
@given(st.lists(_LINES, min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_lines_of_any_shape_are_read_or_refused(lines):
    try:
        reading = read_recorded("\n".join(map(json.dumps, lines)).encode())
    except InputError:
        return
    for recorded in reading.conversations:
        assert recorded.messages
        for one in recorded.messages:
            assert isinstance(json.loads(one.raw), dict)
