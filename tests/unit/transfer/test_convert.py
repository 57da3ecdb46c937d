"""A conversation in another dialect: the same words, calls, results and pictures, and nothing lost in silence."""

from __future__ import annotations

import json

import pytest

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Image, Role, Text, ToolCall, ToolResult
from penstock.conversation.rules import check
from penstock.transfer.convert import convert

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
DATA_URL = f"data:image/png;base64,{PIXEL}"


def call(call_id, path):
    function = {"name": "read", "arguments": json.dumps({"path": path})}
    return {"id": call_id, "type": "function", "function": function}


CHAT = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": DATA_URL}}],
    },
    {"role": "assistant", "content": "Both files.", "tool_calls": [call("c1", "a.py"), call("c2", "b.py")]},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    {"role": "tool", "tool_call_id": "c2", "content": "two"},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "Thanks."},
]
ANTHROPIC = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "A look will do.", "signature": "c2ln"},
            {"type": "text", "text": "Both."},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.png"}},
            {"type": "tool_use", "id": "t2", "name": "read", "input": {"path": "b"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "t1",
                "content": [
                    {"type": "text", "text": "a picture"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                ],
            },
            {"type": "tool_result", "tool_use_id": "t2", "content": "no such file", "is_error": True},
            {"type": "text", "text": "And now?"},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
]


def converted(wires, source, target):
    return convert(decode_all(DIALECTS[source], wires), DIALECTS[source], DIALECTS[target])


def said(wires, dialect):
    """Who said what, whichever message it stands in."""
    found = []
    for message in decode_all(DIALECTS[dialect], wires):
        for part in message.parts:
            match part:
                case Text(text=text) if text:
                    found.append((message.role, text))
                case ToolCall(call_id=call_id, name=name, arguments=arguments):
                    found.append((call_id, name, json.loads(arguments)))
                case ToolResult(call_id=call_id, text=text):
                    found.append((call_id, text))
    return found


def images(wires, dialect):
    parts = [part for message in decode_all(DIALECTS[dialect], wires) for part in message.parts]
    held = [part for part in parts if isinstance(part, Image)]
    return sorted(
        image.digest
        for image in held + [one for part in parts if isinstance(part, ToolResult) for one in part.images]
    )


@pytest.mark.parametrize("target", ["responses", "anthropic", "sharegpt"])
def test_from_chat(target):
    result = converted(CHAT, "chat", target)
    assert said(result.wires, target) == said(CHAT, "chat")
    dialect = DIALECTS[target]
    broken = check(decode_all(dialect, result.wires), dialect.rules)
    assert [
        one for one in broken if one.index > 0
    ] == []  # a system message in the list is a matter of its own
    if target != "sharegpt":
        assert images(result.wires, target) == images(CHAT, "chat")


@pytest.mark.parametrize("target", ["chat", "responses", "sharegpt"])
def test_from_anthropic(target):
    result = converted(ANTHROPIC, "anthropic", target)
    assert said(result.wires, target) == said(ANTHROPIC, "anthropic")
    dialect = DIALECTS[target]
    assert check(decode_all(dialect, result.wires), dialect.rules) == []


@pytest.mark.parametrize("target", ["chat", "anthropic", "sharegpt"])
def test_there_and_back_by_responses(target):
    items = converted(CHAT, "chat", "responses").wires
    assert [item["type"] for item in items[2:7]] == ["message", "function_call", "function_call"] + [
        "function_call_output"
    ] * 2
    back = converted(items, "responses", target)
    assert said(back.wires, target) == said(CHAT, "chat")
    if target == "chat":
        assert back.wires == CHAT
        assert back.lost == {}


def test_what_the_other_dialect_cannot_say_is_counted():
    assert converted(CHAT, "chat", "sharegpt").lost == {"picture": 1}
    assert converted(ANTHROPIC, "anthropic", "chat").lost == {
        "mark of a failed call (its text stays)": 1,
        "picture in a tool result": 1,
        "signature of reasoning (its text stays)": 1,
    }
    assert converted(ANTHROPIC, "anthropic", "responses").lost == {
        "mark of a failed call (its text stays)": 1,
        "reasoning": 1,
    }


def test_reasoning_keeps_its_words_where_there_is_a_place():
    assert converted(ANTHROPIC, "anthropic", "chat").wires[1]["reasoning_content"] == "A look will do."
    assert "<think>" in converted(ANTHROPIC, "anthropic", "sharegpt").wires[1]["value"]


def test_fields_and_content_that_nobody_knows_are_counted():
    wires = [
        {"role": "user", "name": "ann", "content": [{"type": "input_audio", "input_audio": {"data": "x"}}]},
        {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
    ]
    lost = converted(wires, "chat", "responses").lost
    assert lost == {"content of type 'input_audio'": 1, "field 'cache_control'": 1, "field 'input_audio'": 1}


def test_a_picture_that_only_its_provider_has():
    wires = [{"type": "message", "role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}]
    result = converted(wires, "responses", "anthropic")
    assert result.wires == []
    assert result.lost == {"empty message": 1, "picture that only its provider has": 1}


def test_a_picture_at_an_address():
    wires = [
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}],
        }
    ]
    (wire,) = converted(wires, "chat", "anthropic").wires
    assert wire["content"] == [
        {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}}
    ]


def test_pictures_in_results_stay_where_results_take_them():
    items = converted(ANTHROPIC, "anthropic", "responses").wires
    output = next(item["output"] for item in items if item.get("call_id") == "t1" and "output" in item)
    assert output[1] == {"type": "input_image", "image_url": DATA_URL}
    back = converted(items, "responses", "anthropic").wires
    assert images(back, "anthropic") == images(ANTHROPIC, "anthropic")


def test_arguments_that_are_no_object_are_put_into_one():
    wires = [
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
    ]
    first = converted(wires, "responses", "anthropic").wires[0]
    assert first["content"][0]["input"] == {"arguments": "*** Begin"}


def test_roles_of_the_converted_messages():
    roles = [
        message.role
        for message in decode_all(DIALECTS["anthropic"], converted(CHAT, "chat", "anthropic").wires)
    ]
    assert roles == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER, Role.ASSISTANT, Role.USER]
