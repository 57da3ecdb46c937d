from __future__ import annotations

import copy

import pytest

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Image, Message, Opaque, Reasoning, Role, Text, ToolCall, ToolResult
from penstock.conversation.rules import check, legal_cuts
from penstock.errors import InputError

ANTHROPIC = DIALECTS["anthropic"]
GIF = "R0lGODlhAgADAAAA"

# As Claude Code sends it: reminders of the system inside the list, thinking, results in order of completion.
CLAUDE_CODE = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "<system-reminder>"}, {"type": "text", "text": "Fix it."}],
    },
    {"role": "system", "content": "# Environment"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Look first.", "signature": "EqQB"},
            {"type": "redacted_thinking", "data": "Emw="},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "/w/a.py"}},
            {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {"command": "ls"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "boom", "is_error": True},
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [
                    {"type": "text", "text": "1\tx"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": GIF}},
                ],
                "cache_control": {"type": "ephemeral"},
            },
            {"type": "text", "text": "<system-reminder>"},
        ],
    },
    {"role": "assistant", "content": "Done."},
]


def test_a_claude_code_conversation():
    messages = decode_all(ANTHROPIC, CLAUDE_CODE)
    assert [message.role for message in messages] == [
        Role.USER,
        Role.SYSTEM,
        Role.ASSISTANT,
        Role.USER,
        Role.ASSISTANT,
    ]
    assert messages[2].parts == (
        Reasoning("Look first.", sealed=True, seal="EqQB"),
        Reasoning("", sealed=True, seal="Emw="),
        Text("I look."),
        ToolCall("toolu_1", "Read", '{"file_path":"/w/a.py"}'),
        ToolCall("toolu_2", "Bash", '{"command":"ls"}'),
    )
    failed, read, reminder = messages[3].parts
    assert failed == ToolResult("toolu_2", "boom", is_error=True)
    assert (read.text, [(image.width, image.height) for image in read.images]) == ("1\tx", [(2, 3)])
    assert reminder == Text("<system-reminder>")
    assert check(messages, ANTHROPIC.rules) == []
    assert legal_cuts(messages, ANTHROPIC.rules) == [0, 1, 2, 4, 5]


def test_eliding_a_result_keeps_its_marks_and_neighbours():
    before = copy.deepcopy(CLAUDE_CODE)
    message = ANTHROPIC.decode(CLAUDE_CODE[3])
    changed = ANTHROPIC.rewrite(message, {1: ToolResult("toolu_1", "[Read] a.py")})
    old = CLAUDE_CODE[3]["content"]
    assert changed["content"][1] == {**old[1], "content": [{"type": "text", "text": "[Read] a.py"}]}
    assert changed["content"][0] is old[0]
    assert changed["content"][2] is old[2]
    assert before == CLAUDE_CODE


def test_arguments_become_an_object_whatever_they_are():
    message = ANTHROPIC.decode(CLAUDE_CODE[2])
    changed = ANTHROPIC.rewrite(message, {3: ToolCall("toolu_1", "Read", '{"file_path":"…"}')})
    assert changed["content"][3]["input"] == {"file_path": "…"}
    broken = ANTHROPIC.build(
        Message(Role.ASSISTANT, (ToolCall("a", "f", "not json"), ToolCall("b", "f", "[1]")))
    )
    assert [block["input"] for block in broken["content"]] == [{"arguments": "not json"}, {"arguments": [1]}]


def test_pictures_documents_and_server_tools():
    wire = {
        "role": "assistant",
        "content": [
            {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
            {"type": "document", "source": {"type": "text", "data": "x"}},
        ],
    }
    parts = ANTHROPIC.decode(wire).parts
    assert [type(part) for part in parts] == [Opaque, Opaque, Image, Image, Opaque]
    assert ANTHROPIC.rewrite(ANTHROPIC.decode(wire), {2: Text("[image]")})["content"][2] == {
        "type": "text",
        "text": "[image]",
    }


def test_text_stands_after_thinking_and_results_and_before_calls():
    said = ANTHROPIC.prepend_text(ANTHROPIC.decode(CLAUDE_CODE[2]), "T")
    assert [block["type"] for block in said["content"]][:3] == ["thinking", "redacted_thinking", "text"]
    assert said["content"][2]["text"] == "T"
    answered = ANTHROPIC.prepend_text(ANTHROPIC.decode(CLAUDE_CODE[3]), "T")
    assert [block.get("text") for block in answered["content"]] == [None, None, "T", "<system-reminder>"]
    ended = ANTHROPIC.append_text(ANTHROPIC.decode(CLAUDE_CODE[2]), "T")
    assert [block["type"] for block in ended["content"]] == [
        "thinking",
        "redacted_thinking",
        "text",
        "text",
        "tool_use",
        "tool_use",
    ]


def test_words_before_the_words_of_a_string():
    message = ANTHROPIC.decode({"role": "user", "content": "b"})
    assert ANTHROPIC.prepend_text(message, "a")["content"] == "a\n\nb"
    assert ANTHROPIC.append_text(message, "c")["content"] == "b\n\nc"
    empty = ANTHROPIC.decode({"role": "user", "content": None})
    assert ANTHROPIC.prepend_text(empty, "a")["content"] == [{"type": "text", "text": "a"}]


def test_a_tool_role_is_refused_with_the_roles_there_are():
    with pytest.raises(InputError, match="'tool' is not known: use one of user, assistant, system"):
        ANTHROPIC.decode({"role": "tool", "content": "x"})


def test_user_and_assistant_take_turns():
    follows = {(p, r) for p in (None, *Role) for r in Role if ANTHROPIC.can_follow(p, r)}
    assert follows == {
        (None, Role.USER),
        (Role.SYSTEM, Role.USER),
        (Role.USER, Role.ASSISTANT),
        (Role.ASSISTANT, Role.USER),
        (Role.TOOL, Role.USER),
    }


def test_results_are_added_after_results():
    message = ANTHROPIC.decode(CLAUDE_CODE[3])
    wire = ANTHROPIC.add_results(message, [ToolResult("toolu_3", "none", is_error=True)])
    assert [block.get("tool_use_id") for block in wire["content"]] == ["toolu_2", "toolu_1", "toolu_3", None]
    assert wire["content"][2]["is_error"] is True
    plain = ANTHROPIC.add_results(
        ANTHROPIC.decode({"role": "user", "content": "go on"}), [ToolResult("a", "n")]
    )
    assert [block["type"] for block in plain["content"]] == ["tool_result", "text"]
