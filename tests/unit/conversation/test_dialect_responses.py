from __future__ import annotations

import copy
import json

import pytest

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Image, Message, Opaque, Reasoning, Role, Text, ToolCall, ToolResult
from penstock.conversation.rules import check, legal_cuts
from penstock.errors import InputError

RESPONSES = DIALECTS["responses"]

# As the Codex CLI sends it: two developer items, no ids, sealed reasoning.
CODEX = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix the test."}]},
    {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "**Look**"}],
        "encrypted_content": "gAAA",
    },
    {
        "type": "function_call",
        "name": "exec_command",
        "arguments": '{"cmd":"ls"}',
        "call_id": "call_1",
        "status": "completed",
    },
    {"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"pwd"}', "call_id": "call_2"},
    {"type": "function_call_output", "call_id": "call_1", "output": "a.py"},
    {"type": "function_call_output", "call_id": "call_2", "output": "/w"},
    {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch", "call_id": "call_3"},
    {"type": "custom_tool_call_output", "call_id": "call_3", "output": "Done"},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
        "phase": "final_answer",
    },
]


def test_items_of_a_codex_request():
    messages = decode_all(RESPONSES, CODEX)
    assert [message.role for message in messages] == [
        Role.SYSTEM,
        Role.USER,
        Role.USER,
        Role.ASSISTANT,
        Role.ASSISTANT,
        Role.ASSISTANT,
        Role.TOOL,
        Role.TOOL,
        Role.ASSISTANT,
        Role.TOOL,
        Role.ASSISTANT,
    ]
    assert messages[3].parts == (Reasoning("**Look**", sealed=True, seal="gAAA"),)
    assert messages[5].parts == (ToolCall("call_2", "exec_command", '{"cmd":"pwd"}'),)
    assert messages[8].parts == (ToolCall("call_3", "apply_patch", "*** Begin Patch", "custom_tool_call"),)
    assert check(messages, RESPONSES.rules) == []
    assert legal_cuts(messages, RESPONSES.rules) == [0, 1, 2, 3, 8, 10, 11]


def test_calls_of_built_in_tools_are_paired():
    shell = {
        "type": "local_shell_call",
        "id": "ls_1",
        "call_id": "c1",
        "action": {"type": "exec", "command": ["ls"]},
    }
    output = {"type": "local_shell_call_output", "id": "c1", "output": "a.py"}
    made, result = decode_all(RESPONSES, [shell, output])
    assert made.parts == (
        ToolCall("c1", "local_shell", '{"type":"exec","command":["ls"]}', "local_shell_call"),
    )
    assert result.parts == (ToolResult("c1", "a.py", kind="local_shell_call_output"),)
    patched = RESPONSES.rewrite(made, {0: ToolCall("c1", "local_shell", '{"type":"exec"}')})
    assert patched["action"] == {"type": "exec"}


def test_a_screenshot_is_a_picture_and_stays():
    url = "data:image/gif;base64,R0lGODlhAgADAAAA"
    item = {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", "image_url": url},
    }
    message = RESPONSES.decode(item)
    (result,) = message.parts
    assert [(image.width, image.height) for image in result.images] == [(2, 3)]
    assert RESPONSES.rewrite(message, {0: ToolResult("c", "[image]")}) == item


def test_an_unknown_item_is_opaque_and_the_assistants():
    item = {"type": "web_search_call", "id": "ws", "action": {"query": "q"}}
    message = RESPONSES.decode(item)
    assert message.role is Role.ASSISTANT
    assert isinstance(message.parts[0], Opaque)
    assert json.loads(message.parts[0].text) == item


def test_an_output_may_be_a_list_of_blocks():
    blocks = [
        {"type": "input_text", "text": "one"},
        {"type": "input_image", "image_url": "https://example.com/a.png"},
        {"type": "input_text", "text": "two"},
        {"type": "x_other", "n": 1},
    ]
    message = RESPONSES.decode({"type": "function_call_output", "call_id": "c", "output": blocks})
    (result,) = message.parts
    assert result.text == 'one\ntwo\n{"type":"x_other","n":1}'
    assert len(result.images) == 1
    short = RESPONSES.rewrite(message, {0: ToolResult("c", "s", images=result.images)})
    assert short["output"] == [{"type": "input_text", "text": "s"}, blocks[1]]


def test_message_blocks_and_picture_stub():
    wire = {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "file_id": "file_1", "detail": "auto"},
            {"type": "input_file", "file_id": "f"},
        ],
    }
    before = copy.deepcopy(wire)
    message = RESPONSES.decode(wire)
    assert [type(part) for part in message.parts] == [Text, Image, Opaque]
    changed = RESPONSES.rewrite(message, {1: Text("[image]")})
    assert changed["content"] == [
        wire["content"][0],
        {"type": "input_text", "text": "[image]"},
        wire["content"][2],
    ]
    assert wire == before


@pytest.mark.parametrize(
    "wire", [{"role": "wizard", "content": ""}, {"content": "x"}, {"type": 5, "role": "user"}, "x"]
)
def test_what_cannot_be_an_item(wire):
    with pytest.raises(InputError):
        RESPONSES.decode(wire)


def test_text_goes_into_messages_and_outputs_but_not_into_calls():
    output = RESPONSES.decode({"type": "function_call_output", "call_id": "c", "output": "x"})
    assert RESPONSES.prepend_text(output, "a")["output"] == "a\n\nx"
    said = RESPONSES.decode(CODEX[-1])
    assert RESPONSES.append_text(said, "b")["content"][-1] == {"type": "output_text", "text": "b"}
    for item in (CODEX[3], CODEX[4]):
        with pytest.raises(ValueError, match="cannot carry text"):
            RESPONSES.prepend_text(RESPONSES.decode(item), "a")


def test_building():
    assert RESPONSES.build(Message(Role.ASSISTANT, (Text("a"),))) == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "a"}],
    }
    sealed = Message(Role.ASSISTANT, (Reasoning("", sealed=True, seal="s"),))
    assert RESPONSES.build(sealed) == {"type": "reasoning", "summary": [], "encrypted_content": "s"}
    assert RESPONSES.text_message(Role.USER, "x")["content"] == [{"type": "input_text", "text": "x"}]
