"""What holds for every message of every dialect."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations, conversations, json_values, texts
from tests.strategies.respelling import respell

from penstock.conversation import mark
from penstock.conversation.dialects import DIALECTS, Dialect, candidates, decode_all, detect
from penstock.conversation.document import read_document
from penstock.conversation.identity import chain_ids, content_digest
from penstock.conversation.message import Image, Opaque, Reasoning, Role, Summary, Text, ToolCall, ToolResult
from penstock.conversation.wire import encode_wire
from penstock.errors import UnknownDialect

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = tuple(DIALECTS)
FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
each_dialect = pytest.mark.parametrize("name", NAMES)


@each_dialect
@FEW
@given(data=st.data())
def test_a_message_keeps_what_it_came_from(name, data):
    wires = data.draw(conversations(name))
    messages = decode_all(DIALECTS[name], wires)
    assert len(messages) == len(wires)
    assert all(message.origin is wire for message, wire in zip(messages, wires, strict=True))


@each_dialect
@FEW
@given(data=st.data(), compact=st.booleans())
def test_documents_give_back_the_bytes_of_every_message(name, data, compact):
    wires = data.draw(conversations(name))
    separators = (",", ":") if compact else None
    written = json.dumps(wires, separators=separators, ensure_ascii=not compact).encode()
    document = read_document(written, name)
    assert [json.loads(raw) for raw in document.raws] == wires
    assert all(message.origin == raw for message, raw in zip(document.messages, document.raws, strict=True))
    again = read_document(document.with_messages(document.raws), name)
    assert again.raws == document.raws
    if compact:
        assert document.with_messages(document.raws) == written


@each_dialect
@FEW
@given(data=st.data())
def test_the_dialect_of_a_whole_conversation_is_found(name, data):
    wires = data.draw(conversations(name))
    found = detect(wires)
    # Plain words alone fit three dialects; what is found must then read the same.
    assert found.name == name or [m.parts for m in decode_all(found, wires)] == [
        m.parts for m in decode_all(DIALECTS[name], wires)
    ]


@each_dialect
@FEW
@given(data=st.data())
def test_what_is_built_reads_the_same(name, data):
    dialect = DIALECTS[name]
    for message in decode_all(dialect, data.draw(conversations(name))):
        if name == "sharegpt" and any(isinstance(part, Text) for part in message.parts):
            continue  # words there may look like tags, and line ends beside a tag are not words
        expected = [part for part in message.parts if not isinstance(part, Image | Opaque)]
        if not expected or (name == "chat" and any(isinstance(part, ToolResult) for part in expected)):
            continue
        again = dialect.decode(dialect.build(message))
        kept = [part for part in again.parts if not isinstance(part, Image | Opaque)]
        assert [_comparable(part) for part in kept] == [_comparable(part) for part in expected]


def _comparable(part):
    if isinstance(part, ToolCall):
        return part.call_id, part.name, _parsed(part.arguments)
    if isinstance(part, ToolResult):
        return part.call_id, part.text, part.is_error
    return part


def _parsed(arguments):
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


@each_dialect
@FEW
@given(data=st.data())
def test_a_rewrite_changes_what_it_says_and_nothing_else(name, data):
    dialect = DIALECTS[name]
    wires = data.draw(conversations(name))
    before = copy.deepcopy(wires)
    for message in decode_all(dialect, wires):
        changes = {
            index: new for index, part in enumerate(message.parts) if (new := _shortened(part)) is not None
        }
        wire = dialect.rewrite(message, changes)
        assert {key: value for key, value in wire.items() if key not in _CHANGING} == {
            key: value for key, value in message.origin.items() if key not in _CHANGING
        }
        wanted = [changes.get(index, part) for index, part in enumerate(message.parts)]
        assert [_without_id(part) for part in dialect.decode(wire).parts] == [
            _without_id(part) for part in wanted
        ]
        for block, old in _blocks_of(wire, message.origin):
            assert {
                key: block[key]
                for key in old.keys() & {"x", "cache_control", "signature", "title", "payload"}
            } == {
                key: old[key] for key in old.keys() & {"x", "cache_control", "signature", "title", "payload"}
            }
    assert wires == before


_CHANGING = {"content", "value", "output", "tool_calls", "arguments", "input"}


def _shortened(part):
    if isinstance(part, ToolResult):
        return ToolResult(part.call_id, "[terminal] npm test → exit 0", part.is_error)
    if isinstance(part, ToolCall):
        return ToolCall(part.call_id, part.name, '{"path":"short"}')
    return Text("[image]") if isinstance(part, Image) else None


def _without_id(part):
    """Calls and results without their ids, which the wire of ShareGPT may lack."""
    if isinstance(part, ToolCall):
        return part.name, json.loads(part.arguments)
    return (part.text, part.is_error, part.images) if isinstance(part, ToolResult) else part


def _blocks_of(wire, origin):
    content, old = wire.get("content"), origin.get("content")
    if not isinstance(old, list):
        return []
    return [
        (new, was) for new, was in zip(content, old, strict=True) if was["type"] not in ("image", "image_url")
    ]


@each_dialect
@FEW
@given(data=st.data())
def test_an_empty_rewrite_is_the_identity(name, data):
    dialect = DIALECTS[name]
    for message in decode_all(dialect, data.draw(conversations(name))):
        assert dialect.rewrite(message, {}) == message.origin
        same = {
            index: part for index, part in enumerate(message.parts) if isinstance(part, ToolResult | ToolCall)
        }
        assert dialect.decode(dialect.rewrite(message, same)).parts == dialect.decode(message.origin).parts


@each_dialect
@FEW
@given(data=st.data(), text=texts(min_size=1), extra=texts(min_size=1))
def test_a_handoff_put_before_a_message_is_found_again(name, data, text, extra):
    dialect = DIALECTS[name]
    handoff = mark.wrap(text, {"of": extra})
    wires = data.draw(conversations(name))
    before = copy.deepcopy(wires)
    for message in decode_all(dialect, wires):
        if message.role is not Role.USER or any(isinstance(part, ToolResult) for part in message.parts):
            continue
        for wire in (dialect.prepend_text(message, handoff), dialect.append_text(message, handoff)):
            again = dialect.decode(wire)
            summaries = [part for part in again.parts if isinstance(part, Summary)]
            assert summaries == [Summary(text, 1, {"of": extra})]
            rest = [part for part in again.parts if not isinstance(part, Summary)]
            assert rest == list(message.parts)
    assert wires == before


@each_dialect
@FEW
@given(data=st.data())
def test_ids_survive_another_serialisation(name, data):
    dialect = DIALECTS[name]
    wires = data.draw(conversations(name))
    ids = chain_ids(decode_all(dialect, wires))
    reserialised = json.loads(json.dumps([respell(wire) for wire in wires], sort_keys=True))
    assert chain_ids(decode_all(dialect, reserialised)) == ids
    assert len(set(ids)) == len(ids)


@each_dialect
@FEW
@given(data=st.data())
def test_another_text_is_another_id(name, data):
    dialect = DIALECTS[name]
    for message in decode_all(dialect, data.draw(conversations(name))):
        texts_at = [index for index, part in enumerate(message.parts) if isinstance(part, Text | ToolResult)]
        for index in texts_at:
            part = message.parts[index]
            other = (
                Text(part.text + "!") if isinstance(part, Text) else ToolResult(part.call_id, part.text + "!")
            )
            changed = dialect.decode(dialect.rewrite(message, {index: other}))
            assert content_digest(changed) != content_digest(dialect.decode(message.origin))


@FEW
@given(
    text=st.text(),
    attributes=st.dictionaries(st.from_regex(r"[a-uw-z][a-z0-9_-]{0,6}", fullmatch=True), st.text()),
)
def test_a_mark_gives_back_any_text_and_attributes(text, attributes):
    for inner in (
        text,
        mark.wrap(text, attributes),
        text + "\n</penstock-handoff>",
        text + "<\\/penstock-handoff>",
    ):
        wrapped = mark.wrap(inner, attributes)
        found = mark.find(wrapped)
        assert found == (0, len(wrapped), 1, attributes, inner)
        placed = mark.find(f"before {wrapped} after")
        assert (placed.start, placed.text) == (7, inner)


@each_dialect
@FEW
@given(data=st.data())
def test_broken_conversations_still_decode(name, data):
    wires = data.draw(broken_conversations(name))
    before = copy.deepcopy(wires)
    assert len(decode_all(DIALECTS[name], wires)) == len(wires)
    assert wires == before


@each_dialect
@FEW
@given(value=json_values(), block=json_values())
def test_any_content_is_kept_never_dropped(name, value, block):
    field = "value" if name == "sharegpt" else "content"
    who = {"from": "human"} if name == "sharegpt" else {"role": "user"}
    for content in (value, [block], [{"type": "x", "y": block}]):
        wire = {**who, field: content}
        message = DIALECTS[name].decode(wire)
        assert message.origin is wire
        if content not in (None, []):
            assert message.parts
        content_digest(message)
        encode_wire(wire)


@FEW
@given(data=st.data())
def test_linking_a_conversation_piece_by_piece_gives_the_same_ids(data):
    dialect = DIALECTS["sharegpt"]
    wires = data.draw(conversations("sharegpt"))
    whole = decode_all(dialect, wires)
    grown = []
    while len(grown) < len(wires):
        step = data.draw(st.integers(1, 3))
        grown += decode_all(dialect, wires[len(grown) : len(grown) + step], before=grown)
    assert grown == whole
    calls = [part.call_id for message in whole for part in message.parts if isinstance(part, ToolCall)]
    results = [part.call_id for message in whole for part in message.parts if isinstance(part, ToolResult)]
    assert sorted(calls) == sorted(results)
    assert len(set(calls)) == len(calls)
    assert not any(isinstance(part, Reasoning) and part.sealed for message in whole for part in message.parts)


_FIELDS = {
    "role": st.sampled_from(
        ("user", "assistant", "system", "developer", "tool", "function", "wizard", 5, None)
    ),
    "content": st.sampled_from(
        (
            "x",
            None,
            [{"type": "text", "text": "x"}],
            [{"type": "tool_use", "id": "t"}],
            [{"type": "input_text", "text": "x"}],
            [{"type": "image", "source": {}}],
        )
    ),
    "type": st.sampled_from(("message", "function_call", "reasoning", "human", None)),
    "tool_calls": st.sampled_from(([], [{"id": "c"}])),
    "function_call": st.sampled_from((None, {"name": "look"})),
    "id": st.just("i"),
    "from": st.sampled_from(("human", 5)),
    "value": st.just("x"),
}
_OBJECTS = st.fixed_dictionaries({}, optional=_FIELDS)
_SPOKEN = st.fixed_dictionaries(
    {"role": _FIELDS["role"]},
    optional={name: _FIELDS[name] for name in ("content", "tool_calls", "from", "value")},
)
_LISTS = st.lists(st.one_of(_SPOKEN, _SPOKEN, _SPOKEN, _OBJECTS, st.none()), max_size=5)


@settings(max_examples=150, deadline=None)
@given(wires=_LISTS)
def test_a_short_look_finds_the_first_of_the_candidates(wires):
    assert _outcome(detect, wires) == _outcome(lambda wires: candidates(wires)[0], wires)


def _outcome(find: Callable[[list[Any]], Dialect], wires: list[Any]) -> str:
    try:
        return find(wires).name
    except UnknownDialect as error:
        return str(error)
