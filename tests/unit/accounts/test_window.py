from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import conversations

from penstock.accounts.window import KINDS, measure_fill
from penstock.cli.labels import label_messages
from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import (
    Image,
    Message,
    Reasoning,
    Role,
    Summary,
    Text,
    ToolCall,
    ToolResult,
)
from penstock.measure.tokens import tokenizer_for
from penstock.measure.weigh import weigh

TOKENS = tokenizer_for(None)
PICTURE = Image("image/png", 100, "digest", 640, 480)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_kinds_add_up_to_the_weights(dialect, data):
    messages = decode_all(DIALECTS[dialect], data.draw(conversations(dialect)))
    fill = measure_fill(messages, TOKENS, system_tokens=3, tools_tokens=5)
    assert fill.messages == tuple(weigh(messages, TOKENS))
    assert fill.total_tokens == sum(fill.messages) + 8
    assert set(fill.kinds) <= set(KINDS)
    assert all(tokens > 0 for tokens in fill.kinds.values())


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Message(Role.SYSTEM, (Text("be brief"),)), "system prompt"),
        (Message(Role.USER, (Text("hello"),)), "user"),
        (Message(Role.ASSISTANT, (Text("hello"),)), "assistant text"),
        (Message(Role.ASSISTANT, (ToolCall("1", "f", "{}"),)), "tool calls"),
        (Message(Role.ASSISTANT, (Reasoning("so"),)), "reasoning"),
        (Message(Role.TOOL, (ToolResult("1", "done"),)), "tool results"),
        (Message(Role.USER, (ToolResult("1", "done"),)), "tool results"),
        (Message(Role.USER, (Summary("before", 1),)), "handoff"),
        (Message(Role.USER, (PICTURE,)), "images"),
        (Message(Role.USER, ()), "user"),
    ],
)
def test_each_kind(message, kind):
    assert set(measure_fill([message], TOKENS).kinds) == {kind}


def test_a_message_of_several_kinds_is_parted():
    parts = (Text("I will look. " * 20), ToolCall("1", "search", '{"q": "x"}'), Reasoning("because " * 30))
    kinds = measure_fill([Message(Role.ASSISTANT, parts)], TOKENS).kinds
    assert set(kinds) == {"assistant text", "tool calls", "reasoning"}
    assert kinds["tool calls"] == 8 + TOKENS.count("search") + TOKENS.count('{"q": "x"}')
    assert kinds["reasoning"] == TOKENS.count("because " * 30)


def test_pictures_in_a_result_are_pictures():
    kinds = measure_fill([Message(Role.TOOL, (ToolResult("1", "a shot", images=(PICTURE,)),))], TOKENS).kinds
    assert kinds["tool results"] == 4 + TOKENS.count("a shot")
    assert kinds["images"] > 100


class TestLabels:
    def test_a_result_has_the_name_of_the_newest_call_with_its_id(self):
        messages = [
            Message(Role.ASSISTANT, (ToolCall("1", "first", "{}"),)),
            Message(Role.TOOL, (ToolResult("1", "a"),)),
            Message(Role.ASSISTANT, (ToolCall("1", "second", "{}"), ToolCall("2", "second", "{}"))),
            Message(Role.TOOL, (ToolResult("1", "b"), ToolResult("none", "c"))),
        ]
        labels = label_messages(messages, [1, 2, 3, 4])
        assert [label.tools_text for label in labels] == ["first", "first", "second ×2", "second"]

    def test_a_tool_name_cannot_write_on_the_terminal(self):
        message = Message(Role.ASSISTANT, (ToolCall("1", "x\x1b[2J\n", "{}"),))
        assert label_messages([message], [1])[0].tools_text == "x\\x1b[2J\\n"

    def test_a_handoff_alone_has_no_handle(self):
        alone = Message(Role.USER, (Summary("before", 1),))
        merged = Message(Role.USER, (Summary("before", 1), Text("go on")))
        labels = label_messages([alone, merged], [0, 9])
        assert [(label.handle, label.role) for label in labels] == [("", "handoff"), ("m9", "user")]
