from __future__ import annotations

import json

import pytest

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.mark import wrap
from penstock.conversation.message import (
    Message,
    Opaque,
    Reasoning,
    Role,
    Summary,
    Text,
    ToolCall,
    ToolResult,
)
from penstock.conversation.opening import repair
from penstock.conversation.rules import check, legal_cuts
from penstock.errors import InputError

SHAREGPT = DIALECTS["sharegpt"]


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def response(content, **fields):
    return f"<tool_response>\n{json.dumps({**fields, 'content': content})}\n</tool_response>"


ROWS = [
    {"from": "system", "value": "Be brief."},
    {"from": "human", "value": "List it."},
    {
        "from": "gpt",
        "value": f"<think>\nTwo steps.\n</think>\nI look.\n{call('ls', path='/')}\n{call('pwd')}",
    },
    {
        "from": "tool",
        "value": f"{response('a.py', tool_call_id='toolu_9')}\n{response('/w', tool_call_id='toolu_8')}",
    },
    {"from": "gpt", "value": "There is a.py."},
]


def test_blocks_in_a_turn_and_ids_by_turn_and_order():
    messages = decode_all(SHAREGPT, ROWS)
    assert messages[2].parts == (
        Reasoning("Two steps."),
        Text("I look."),
        ToolCall("turn-3-1", "ls", '{"path":"/"}'),
        ToolCall("turn-3-2", "pwd", "{}"),
    )
    assert messages[3].parts == (ToolResult("turn-3-1", "a.py"), ToolResult("turn-3-2", "/w"))
    assert check(messages, SHAREGPT.rules) == []
    assert legal_cuts(messages, SHAREGPT.rules) == [0, 1, 2, 4, 5]


def test_rewriting_a_response_keeps_its_own_id_and_its_neighbour():
    message = decode_all(SHAREGPT, ROWS)[3]
    wire = SHAREGPT.rewrite(message, {0: ToolResult("turn-3-1", "[ls] / → é")})
    first = response("[ls] / → é", tool_call_id="toolu_9").replace("\\u2192", "→").replace("\\u00e9", "é")
    assert wire == {"from": "tool", "value": f"{first}\n{response('/w', tool_call_id='toolu_8')}"}


def test_rewriting_a_call_leaves_the_words_around_it():
    message = decode_all(SHAREGPT, ROWS)[2]
    wire = SHAREGPT.rewrite(message, {2: ToolCall("turn-3-1", "ls", '{"path":"…"}')})
    assert wire["value"].startswith("<think>\nTwo steps.\n</think>\nI look.\n<tool_call>")
    assert '{"path": "…"}' in wire["value"]
    assert wire["value"].endswith(call("pwd"))


def test_a_closing_tag_inside_json_does_not_close():
    inside = "see </tool_response> and <tool_response>"
    turn = {"from": "tool", "value": f"{response(inside)}\n{response('b')}"}
    assert [part.text for part in SHAREGPT.decode(turn).parts] == [inside, "b"]
    said = {"from": "gpt", "value": call("write", text="a </tool_call> b") + "\n" + call("ls")}
    assert [part.name for part in SHAREGPT.decode(said).parts] == ["write", "ls"]


def test_broken_json_in_a_call_is_still_a_call():
    turn = {"from": "gpt", "value": '<tool_call>\n{"name": "ls", "arguments": {"path": \n</tool_call>'}
    (part,) = SHAREGPT.decode(turn).parts
    assert (part.name, part.arguments) == ("ls", '{"name": "ls", "arguments": {"path":')


def test_a_tag_that_is_not_closed_is_words():
    text = "Use <tool_call> and <think> tags."
    assert SHAREGPT.decode({"from": "gpt", "value": text}).parts == (Text(text),)


def test_other_names_for_turns():
    rows = [
        {"from": "user", "value": "go"},
        {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'},
        {"from": "observation", "value": "plain output"},
        {"from": "assistant", "value": "ok"},
    ]
    messages = decode_all(SHAREGPT, rows)
    assert messages[1].parts == (ToolCall("turn-2-1", "f", '{"a":1}'),)
    assert messages[2].parts == (ToolResult("turn-2-1", "plain output"),)
    assert SHAREGPT.rewrite(messages[2], {0: ToolResult("turn-2-1", "s")})["value"] == "s"


def test_results_of_calls_that_we_cannot_read_stay_with_their_turn():
    rows = [
        {"from": "human", "value": "go"},
        {"from": "gpt", "value": "Action: ls"},
        {"from": "tool", "value": "a.py"},
        {"from": "gpt", "value": "ok"},
    ]
    messages = decode_all(SHAREGPT, rows)
    assert check(messages, SHAREGPT.rules) == []
    assert legal_cuts(messages, SHAREGPT.rules) == [0, 1, 3, 4]
    assert repair(messages, SHAREGPT).removed == 0


def test_a_stub_joins_the_turn_of_the_other_results():
    rows = [ROWS[1], ROWS[2], {"from": "tool", "value": response("a.py")}, ROWS[4]]
    repaired = repair(decode_all(SHAREGPT, rows), SHAREGPT)
    assert (repaired.stubbed, len(repaired.messages)) == (1, 4)
    assert check(repaired.messages, SHAREGPT.rules) == []
    assert repaired.messages[2].origin["value"].count("<tool_response>") == 2


@pytest.mark.parametrize("value", [None, 5, ["x"]])
def test_values_that_are_not_text(value):
    parts = SHAREGPT.decode({"from": "human", "value": value}).parts
    assert parts == (() if value is None else (Opaque("value", json.dumps(value, separators=(",", ":"))),))


def test_a_handoff_between_words_and_calls():
    value = f"{wrap('so far', {})}\n\nI go on.\n{call('ls')}"
    parts = SHAREGPT.decode({"from": "gpt", "value": value}).parts
    assert parts == (Summary("so far", 1, {}), Text("I go on."), ToolCall("", "ls", "{}"))


def test_tags_quoted_inside_a_handoff_are_its_words():
    inside = f"It ran {call('ls')} and <think>thought</think>."
    value = f"{wrap(inside, {})}\n\n{call('pwd')}"
    parts = SHAREGPT.decode({"from": "gpt", "value": value}).parts
    assert parts == (Summary(inside, 1, {}), ToolCall("", "pwd", "{}"))


def test_unknown_speaker_is_refused():
    with pytest.raises(InputError, match="from 'wizard' is not known: use one of human"):
        SHAREGPT.decode({"from": "wizard", "value": "x"})


def test_building_a_turn():
    made = Message(Role.ASSISTANT, (Text("I look."), ToolCall("", "ls", '{"path":"/"}')))
    assert SHAREGPT.build(made) == {"from": "gpt", "value": f"I look.\n{call('ls', path='/')}"}
    assert SHAREGPT.text_message(Role.USER, "x") == {"from": "human", "value": "x"}
