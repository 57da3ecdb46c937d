from __future__ import annotations

import pytest

from penstock.conversation.dialects import DIALECTS
from penstock.conversation.identity import chain, chain_ids, content_digest
from penstock.conversation.message import Message, Opaque, Role, Text

CHAT, ANTHROPIC, RESPONSES = (DIALECTS[name] for name in ("chat", "anthropic", "responses"))


def digests(dialect, *wires):
    return [content_digest(dialect.decode(wire)) for wire in wires]


def same(dialect, *wires):
    return len(set(digests(dialect, *wires))) == 1


def test_what_claude_code_changes_from_request_to_request_is_not_content():
    block = {"type": "text", "text": "X"}
    assert same(
        ANTHROPIC,
        {"role": "user", "content": "X"},
        {"content": [block], "role": "user"},
        {"role": "user", "content": [{**block, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
    )
    result = {"type": "tool_result", "tool_use_id": "t", "content": "out"}
    assert same(
        ANTHROPIC,
        {"role": "user", "content": [result]},
        {"role": "user", "content": [{**result, "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "user",
            "content": [{**result, "content": [{"type": "text", "text": "out"}], "is_error": False}],
        },
    )


def test_what_codex_and_opencode_leave_out_is_not_content():
    reasoning = {
        "type": "reasoning",
        "encrypted_content": "s",
        "summary": [{"type": "summary_text", "text": "t"}],
    }
    assert same(
        RESPONSES, reasoning, {"type": "reasoning", "id": "rs", "encrypted_content": "s", "summary": []}
    )
    made = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1, "b": 2}'}
    assert same(RESPONSES, made, {**made, "id": "fc", "status": "completed", "arguments": '{"b":2,"a":1}'})
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
    block = {"type": "output_text", "text": "x", "annotations": []}
    assert same(RESPONSES, said, {**said, "id": "m", "phase": "final_answer", "content": [block]})


def test_unknown_blocks_are_compared_without_their_marks():
    block = {"type": "document", "source": {"data": "x"}, "title": "t"}
    marked = {
        "title": "t",
        "cache_control": {"type": "ephemeral"},
        "source": {"data": "x"},
        "type": "document",
    }
    assert same(ANTHROPIC, {"role": "user", "content": [block]}, {"role": "user", "content": [marked]})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}),
        ({"role": "user", "content": "ab"}, {"role": "user", "content": ["a", "b"]}),
        ({"role": "user", "content": ["ab", "c"]}, {"role": "user", "content": ["a", "bc"]}),
        (
            {"role": "tool", "tool_call_id": "1", "content": "x"},
            {"role": "tool", "tool_call_id": "2", "content": "x"},
        ),
        ({"role": "user", "content": "1:a"}, {"role": "user", "content": "a"}),
    ],
)
def test_other_content_is_another_digest(one, other):
    assert not same(CHAT, one, other)


def test_an_error_is_not_the_same_as_its_text():
    block = {"type": "tool_result", "tool_use_id": "t", "content": "out"}
    assert not same(
        ANTHROPIC,
        {"role": "user", "content": [block]},
        {"role": "user", "content": [{**block, "is_error": True}]},
    )


def test_references_differ_by_their_id():
    assert not same(RESPONSES, {"type": "item_reference", "id": "a"}, {"type": "item_reference", "id": "b"})


def test_surrogates_broken_arguments_and_deep_values_have_a_digest():
    parts = (Text("\ud800"), Opaque("x", "[" * 900 + "]" * 900), Opaque("x", "{"))
    assert len(content_digest(Message(Role.USER, parts))) == 16
    broken = {
        "role": "assistant",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "[" * 20_000}}],
    }
    assert len(digests(CHAT, broken)[0]) == 16


def test_ids_are_chained():
    messages = [CHAT.decode({"role": "user", "content": text}) for text in ("a", "b", "c")]
    ids = chain_ids(messages)
    assert all(len(each) == 32 for each in ids)
    assert chain_ids(messages[1:], ids[0]) == ids[1:]
    assert chain_ids([messages[1], messages[0]])[1] not in ids
    assert ids[0] == chain("", content_digest(messages[0]))


def test_ids_do_not_change_between_releases():
    """Stores keep ids: a change here needs a migration."""
    messages = [
        CHAT.decode({"role": "user", "content": "Hello"}),
        CHAT.decode({"role": "assistant", "content": "Hi"}),
    ]
    assert chain_ids(messages) == ["efde8eaf0d1ecdfa6a10c90c3ee0fd60", "7976fba04ddc42872f0a339da5cbb91d"]
