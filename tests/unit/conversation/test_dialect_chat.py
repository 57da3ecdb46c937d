from __future__ import annotations

import copy
import json

import msgspec
import pytest

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.mark import wrap
from penstock.conversation.message import (
    Image,
    Message,
    Opaque,
    Reasoning,
    Role,
    Summary,
    Text,
    ToolCall,
    ToolResult,
)
from penstock.errors import InputError

CHAT = DIALECTS["chat"]


def call(call_id, name="read_file", arguments='{"path": "a.py"}'):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_developer_is_system_and_function_is_tool():
    assert CHAT.decode({"role": "developer", "content": "x"}).role is Role.SYSTEM
    assert CHAT.decode({"role": "function", "name": "f", "content": "x"}).role is Role.TOOL


def test_an_assistant_message_reads_as_reasoning_words_and_calls():
    wire = {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "Where is it?",
        "refusal": None,
        "annotations": [],
        "tool_calls": [
            call("c1"),
            {"id": "c2", "type": "custom", "custom": {"name": "sql", "input": "select 1"}},
        ],
    }
    message = CHAT.decode(wire)
    assert message.parts == (
        Reasoning("Where is it?"),
        Text("I look."),
        ToolCall("c1", "read_file", '{"path": "a.py"}'),
        ToolCall("c2", "sql", "select 1"),
    )
    assert message.origin is wire


def test_reasoning_details_seal_what_they_sign():
    details = [
        {"type": "reasoning.text", "text": "first", "signature": "abc"},
        {"type": "reasoning.encrypted", "data": "xyz"},
    ]
    message = CHAT.decode(
        {"role": "assistant", "content": "", "reasoning": None, "reasoning_details": details}
    )
    assert message.parts[0] == Reasoning("first", sealed=True, seal="abcxyz")


def test_arguments_given_as_an_object_are_read_as_json():
    wire = {"role": "assistant", "tool_calls": [call("c", arguments={"a": [1]})]}
    assert CHAT.decode(wire).parts == (ToolCall("c", "read_file", '{"a":[1]}'),)
    changed = CHAT.rewrite(CHAT.decode(wire), {0: ToolCall("c", "read_file", '{"a":2}')})
    assert changed["tool_calls"][0]["function"]["arguments"] == {"a": 2}


def test_a_legacy_function_call_and_its_result_get_one_id():
    wires = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "done"},
    ]
    made, result = (message.parts[0] for message in decode_all(CHAT, wires)[1:])
    assert made.call_id == result.call_id == "turn-2-1"


def test_content_blocks_of_every_kind():
    png = "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA"
    wire = {
        "role": "user",
        "content": [
            {"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            "bare",
            7,
        ],
    }
    text, picture, remote, audio, bare, number = CHAT.decode(wire).parts
    assert (text, bare) == (Text("see"), Text("bare"))
    assert isinstance(picture, Image)
    assert (picture.media_type, picture.width, picture.height) == ("image/png", 640, 480)
    assert (remote.size_bytes, remote.width) == (0, 0)
    assert picture.digest != remote.digest
    assert (audio.kind, json.loads(audio.text)) == ("input_audio", wire["content"][3])
    assert number == Opaque("unknown", "7")


@pytest.mark.parametrize("content", [None, "", []])
def test_nothing_said_is_no_part_or_an_empty_one(content):
    parts = CHAT.decode({"role": "assistant", "content": content}).parts
    assert parts == ((Text(""),) if content == "" else ())


@pytest.mark.parametrize(
    ("wire", "telling"),
    [
        (5, "not a number"),
        ([], "not a list of 0"),
        ({"content": "x"}, "has no role"),
        ({"role": "wizard", "content": "x"}, "'wizard' is not known: use one of system, developer, user"),
        ({"role": ["user"], "content": "x"}, "(a list of 1) is not known"),
    ],
)
def test_what_cannot_be_a_message_is_refused_with_the_reason(wire, telling):
    with pytest.raises(InputError, match=r".*") as caught:
        CHAT.decode(wire)
    assert telling in str(caught.value)


def test_an_error_says_which_message_it_is():
    with pytest.raises(InputError, match=r"\(message 2\)"):
        decode_all(CHAT, [{"role": "user", "content": "x"}, {"role": "wizard"}])
    before = decode_all(CHAT, [{"role": "user", "content": "x"}] * 4)
    with pytest.raises(InputError, match=r"\(message 5\)"):
        decode_all(CHAT, [None], before=before)


def test_rewriting_a_result_keeps_every_other_field():
    wire = {
        "role": "tool",
        "tool_call_id": "c",
        "name": "terminal",
        "x_trace": {"a": 1},
        "content": [
            {"type": "text", "text": "long"},
            {"type": "image_url", "image_url": {"url": "https://e.com/p"}},
        ],
    }
    before = copy.deepcopy(wire)
    message = CHAT.decode(wire)
    old = message.parts[0]
    assert old.text == "long"
    assert len(old.images) == 1
    shorter = CHAT.rewrite(message, {0: msgspec.structs.replace(old, text="[stub]")})
    assert shorter == {**wire, "content": [{"type": "text", "text": "[stub]"}, wire["content"][1]]}
    without = CHAT.rewrite(message, {0: ToolResult("c", "[stub]")})
    assert without["content"] == [{"type": "text", "text": "[stub]"}]
    pictureless = CHAT.rewrite(message, {0: ToolResult("c", "long")})
    assert pictureless["content"] == wire["content"][:1]
    assert wire == before


def test_a_message_from_bytes_is_rewritten_the_same():
    wire = {"role": "tool", "tool_call_id": "c", "content": "long"}
    for origin in (msgspec.json.encode(wire), msgspec.Raw(msgspec.json.encode(wire))):
        message = CHAT.decode(wire, origin)
        assert message.origin is origin
        assert CHAT.rewrite(message, {0: ToolResult("c", "s")}) == {**wire, "content": "s"}


def test_a_handoff_inside_words_is_found_and_can_be_replaced():
    handoff = wrap("so far", {"n": "1"})
    message = CHAT.decode({"role": "user", "content": f"{handoff}\n\nGo on."})
    assert message.parts == (Summary("so far", 1, {"n": "1"}), Text("Go on."))
    again = CHAT.rewrite(message, {0: Summary("further", 1, {"n": "2"})})
    assert again["content"] == wrap("further", {"n": "2"}) + "\n\nGo on."
    assert CHAT.rewrite(message, {1: Text("Stop.")})["content"] == f"{handoff}\n\nStop."


def test_a_tool_result_that_quotes_a_handoff_stays_a_result():
    wire = {"role": "tool", "tool_call_id": "c", "content": wrap("x", {})}
    assert CHAT.decode(wire).parts == (ToolResult("c", wrap("x", {})),)


def test_building_what_we_made():
    made = Message(Role.ASSISTANT, (Text("ok"), ToolCall("c", "f", "{}")))
    assert CHAT.build(made) == {
        "role": "assistant",
        "content": "ok",
        "tool_calls": [call("c", "f", "{}")],
    }
    assert CHAT.build(Message(Role.TOOL, (ToolResult("c", "out"),))) == {
        "role": "tool",
        "tool_call_id": "c",
        "content": "out",
    }
    assert CHAT.build(Message(Role.ASSISTANT, (ToolCall("c", "f", "{}"),)))["content"] is None


@pytest.mark.parametrize(
    ("content", "front", "back"),
    [
        ("b", "a\n\nb", "b\n\na"),
        (None, "a", "a"),
        (
            [{"type": "x"}],
            [{"type": "text", "text": "a"}, {"type": "x"}],
            [{"type": "x"}, {"type": "text", "text": "a"}],
        ),
    ],
)
def test_text_beside_the_content(content, front, back):
    message = CHAT.decode({"role": "user", "content": content, "name": "n"})
    assert CHAT.prepend_text(message, "a") == {"role": "user", "content": front, "name": "n"}
    assert CHAT.append_text(message, "a") == {"role": "user", "content": back, "name": "n"}


def test_roles_take_turns():
    follows = {(p, r) for p in (None, *Role) for r in Role if CHAT.can_follow(p, r)}
    assert follows == {
        (None, Role.SYSTEM),
        (None, Role.USER),
        (Role.SYSTEM, Role.SYSTEM),
        (Role.SYSTEM, Role.USER),
        (Role.USER, Role.ASSISTANT),
        (Role.ASSISTANT, Role.USER),
        (Role.TOOL, Role.USER),
        (Role.TOOL, Role.ASSISTANT),
    }


def test_no_plain_message_of_a_tool():
    with pytest.raises(ValueError, match="needs the call"):
        CHAT.text_message(Role.TOOL, "x")


def test_keeping_some_calls():
    message = CHAT.decode({"role": "assistant", "content": "t", "tool_calls": [call("a"), call("b")]})
    assert CHAT.keep(message, [0, 2])["tool_calls"] == [call("b")]
    assert "tool_calls" not in CHAT.keep(message, [0])


def test_line_ends_of_the_words_beside_a_handoff_are_kept():
    message = CHAT.decode({"role": "user", "content": "\n\n a \n\n"})
    for wire in (CHAT.prepend_text(message, wrap("s", {})), CHAT.append_text(message, wrap("s", {}))):
        assert Text("\n\n a \n\n") in CHAT.decode(wire).parts
