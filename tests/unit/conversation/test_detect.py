from __future__ import annotations

import pytest

from penstock.conversation.dialects import DIALECTS, detect, dialect_named
from penstock.errors import UnknownDialect

WORDS = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("wires", "name"),
    [
        ([], "chat"),
        ([WORDS, {"role": "assistant", "content": "ho"}], "chat"),
        ([WORDS, {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}], "chat"),
        ([WORDS] * 50 + [{"role": "tool", "tool_call_id": "c", "content": "x"}], "chat"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "chat"),
        ([{"role": "developer", "content": "x"}, WORDS], "chat"),
        ([{"role": "wizard", "content": "x"}], "chat"),
        ([WORDS, {"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}], "anthropic"),
        (
            [WORDS] * 50 + [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}],
            "anthropic",
        ),
        ([{"role": "user", "content": [{"type": "image", "source": {"type": "url"}}]}], "anthropic"),
        (
            [{"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "s"}]}],
            "anthropic",
        ),
        ([WORDS, {"type": "function_call", "call_id": "c"}], "responses"),
        ([{"role": "user", "content": [{"type": "input_text", "text": "x"}]}], "responses"),
        ([{"type": "reasoning", "summary": []}], "responses"),
        ([{"id": "msg_1"}, WORDS], "responses"),
        ([{"from": "human", "value": "x"}], "sharegpt"),
    ],
)
def test_a_dialect_is_known_by_what_only_it_has(wires, name):
    assert detect(wires) is DIALECTS[name]


@pytest.mark.parametrize(
    ("wires", "telling"),
    [
        ([WORDS, 5], ["a number", "message 2", "chat, anthropic, responses, sharegpt"]),
        ([{"foo": 1, "bar": 2}], ["an object with the keys 'foo', 'bar'", "message 1"]),
        (
            [WORDS, WORDS, {"from": "human", "value": "x"}],
            ["does not fit the messages before it", "message 3"],
        ),
        ([None], ["null", "message 1"]),
        (
            [{"id": "row 1", "conversations": []}],
            ["an object with the keys 'id', 'conversations'", "message 1"],
        ),
    ],
)
def test_what_is_no_dialect_is_said_with_its_place(wires, telling):
    with pytest.raises(UnknownDialect) as caught:
        detect(wires)
    assert all(piece in str(caught.value) for piece in telling)


def test_a_name_that_is_no_dialect():
    with pytest.raises(UnknownDialect, match="no dialect 'gemini': use one of chat"):
        dialect_named("gemini")


@pytest.mark.parametrize(
    "wire",
    [{"role": []}, {"role": {}, "type": "x"}, {"role": "user", "content": [{"type": []}]}, {"type": {}}],
)
def test_names_of_any_type_are_looked_at(wire):
    try:
        detect([wire])
    except UnknownDialect:
        return
    assert wire["role"] == "user"
