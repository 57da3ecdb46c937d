from __future__ import annotations

import pytest

from penstock.conversation.dialects import DIALECTS, decode_all, wire_of
from penstock.conversation.message import Message, Reasoning, Role, Summary, Text, ToolCall, ToolResult
from penstock.conversation.opening import NO_RESULT, repair
from penstock.conversation.pairing import match
from penstock.conversation.rules import check, legal_cuts

CHAT, ANTHROPIC, RESPONSES = (DIALECTS[name] for name in ("chat", "anthropic", "responses"))


def user(text="go"):
    return Message(Role.USER, (Text(text),), {"role": "user", "content": text})


def says(*parts):
    return Message(Role.ASSISTANT, parts, CHAT.build(Message(Role.ASSISTANT, parts)))


def calls(*ids):
    return says(*(ToolCall(each, "f", "{}") for each in ids))


def result(call_id, text="out"):
    part = ToolResult(call_id, text)
    return Message(Role.TOOL, (part,), {"role": "tool", "tool_call_id": call_id, "content": text})


def shape(messages):
    return [[getattr(part, "call_id", type(part).__name__) for part in message.parts] for message in messages]


def test_an_orphan_result_is_removed():
    messages = [user(), result("x"), says(Text("a"))]
    assert [(v.index, v.rule) for v in check(messages, CHAT.rules)] == [(1, "pairs")]
    repaired = repair(messages, CHAT)
    assert repaired.removed == 1
    assert repaired.messages == [messages[0], messages[2]]


def test_a_call_without_result_gets_a_stub_after_its_batch():
    messages = [user(), calls("a", "b"), result("b"), user("on")]
    repaired = repair(messages, CHAT)
    assert shape(repaired.messages) == [["Text"], ["a", "b"], ["b"], ["a"], ["Text"]]
    assert repaired.messages[3] == Message(Role.TOOL, (ToolResult("a", NO_RESULT),))
    assert (repaired.stubbed, repaired.removed) == (1, 0)


def test_a_result_after_something_else_is_too_late_in_chat():
    messages = [user(), calls("a"), user("wait"), result("a")]
    assert {v.index for v in check(messages, CHAT.rules)} == {1, 3}
    assert shape(repair(messages, CHAT).messages) == [["Text"], ["a"], ["a"], ["Text"]]


def test_two_calls_with_one_id_and_their_results_are_told_apart():
    messages = [user(), calls("a", "a"), result("a", "1"), result("a", "2")]
    repaired = repair(messages, CHAT)
    assert shape(repaired.messages) == [["Text"], ["a", "a-2"], ["a"], ["a-2"]]
    assert [wire_of(message, CHAT).get("tool_call_id") for message in repaired.messages[2:]] == ["a", "a-2"]
    assert [each["id"] for each in repaired.messages[1].origin["tool_calls"]] == ["a", "a-2"]
    assert messages[1].origin["tool_calls"][1]["id"] == "a"
    assert repaired.renamed == 1


def test_an_id_used_again_in_a_later_turn_is_fine_in_chat_but_not_in_anthropic():
    assert check([user(), calls("a"), result("a"), calls("a"), result("a")], CHAT.rules) == []
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
    round_ = [{"role": "assistant", "content": [block]}, {"role": "user", "content": [answer]}]
    messages = decode_all(ANTHROPIC, [{"role": "user", "content": "go"}, *round_, *round_])
    assert [violation.index for violation in check(messages, ANTHROPIC.rules)] == [3]
    assert shape(repair(messages, ANTHROPIC).messages)[3:] == [["a-2"], ["a-2"]]


def test_calls_at_the_end_are_left_as_they_are():
    for end in ([calls("a")], [calls("a", "b"), result("a")]):
        messages = [user(), *end]
        assert check(messages, CHAT.rules) == []
        assert repair(messages, CHAT).messages == messages
        assert {place.message for place in match(messages, CHAT.pairing).open} == {1}
    assert match([user(), calls("a"), user()], CHAT.pairing).open == []


def test_anthropic_stubs_join_the_next_user_message():
    wires = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {"role": "user", "content": "never mind"},
    ]
    repaired = repair(decode_all(ANTHROPIC, wires), ANTHROPIC)
    assert len(repaired.messages) == 3
    assert repaired.messages[2].origin["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": NO_RESULT},
        {"type": "text", "text": "never mind"},
    ]
    assert wires[2]["content"] == "never mind"


def test_anthropic_neighbours_of_one_role_count_as_one_message():
    use = {"type": "tool_use", "name": "f", "input": {}}
    wires = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{**use, "id": "a"}]},
        {"role": "assistant", "content": [{**use, "id": "b"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "x"}]},
        {"role": "system", "content": "a reminder"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]},
        {"role": "assistant", "content": "ok"},
    ]
    messages = decode_all(ANTHROPIC, wires)
    assert check(messages, ANTHROPIC.rules) == []
    assert legal_cuts(messages, ANTHROPIC.rules) == [0, 1, 6, 7]


def test_anthropic_blank_text_late_thinking_and_opening():
    wires = [
        {"role": "assistant", "content": [{"type": "text", "text": "hi"}]},
        {"role": "user", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": " \n"}, {"type": "text", "text": "go"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "thinking", "thinking": "t", "signature": "s"},
            ],
        },
        {"role": "user", "content": None},
    ]
    messages = decode_all(ANTHROPIC, wires)
    assert [v.rule for v in check(messages, ANTHROPIC.rules)] == [
        "opening",
        "nonempty",
        "nonempty",
        "thinking",
        "nonempty",
    ]
    repaired = repair(messages, ANTHROPIC)
    assert check(repaired.messages, ANTHROPIC.rules) == []
    wires_after = [wire_of(message, ANTHROPIC) for message in repaired.messages]
    assert [wire["role"] for wire in wires_after] == ["user", "assistant", "user", "assistant"]
    assert wires_after[2]["content"] == [{"type": "text", "text": "go"}]
    assert [block["type"] for block in wires_after[3]["content"]] == ["thinking", "text"]


def test_server_tools_stay_together_across_a_pause():
    use = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    go, used, told = (
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [use]},
        {"role": "assistant", "content": [found, {"type": "text", "text": "x"}]},
    )
    messages = decode_all(ANTHROPIC, [go, used, told])
    assert legal_cuts(messages, ANTHROPIC.rules) == [0, 1, 3]
    alone = decode_all(ANTHROPIC, [go, told])
    assert [violation.rule for violation in check(alone, ANTHROPIC.rules)] == ["server tools"]
    assert repair(alone, ANTHROPIC).messages[1].parts == (Text("x"),)


def items(*parts):
    roles = {ToolResult: Role.TOOL, Text: Role.USER}
    messages = [Message(roles.get(type(part), Role.ASSISTANT), (part,)) for part in parts]
    return [RESPONSES.decode(RESPONSES.build(message)) for message in messages]


def test_responses_results_may_come_later_and_reasoning_stays():
    a, out = ToolCall("a", "f", "{}"), ToolResult("a", "x")
    thought = Reasoning("t", sealed=True, seal="s")
    messages = items(Text("go"), thought, a, Text("meanwhile"), out, Text("on"))
    assert check(messages, RESPONSES.rules) == []
    assert legal_cuts(messages, RESPONSES.rules) == [0, 1, 5, 6]


def test_responses_dangling_reasoning_and_calls_are_mended():
    thought = Reasoning("t", sealed=True, seal="s")
    a, b = ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}")
    messages = items(thought, a, b, Text("go"), thought, thought, Text("on"), ToolResult("x", "?"))
    repaired = repair(messages, RESPONSES)
    assert shape(repaired.messages) == [["Reasoning"], ["a"], ["b"], ["a"], ["b"], ["Text"], ["Text"]]
    assert (repaired.removed, repaired.stubbed) == (3, 2)
    assert check(repaired.messages, RESPONSES.rules) == []


def test_a_reference_may_stand_for_the_call():
    wires = [
        {"type": "item_reference", "id": "fc_1"},
        {"type": "function_call_output", "call_id": "a", "output": ""},
    ]
    assert check(decode_all(RESPONSES, wires), RESPONSES.rules) == []


def test_a_handoff_of_ours_beside_its_own_role_is_a_violation():
    ours = Message(Role.USER, (Summary("s", 1),))
    assert [v.rule for v in check([ours, user()], CHAT.rules)] == ["alternation"]
    assert check([user(), user()], CHAT.rules) == []
    assert check([ours, says(Text("a"))], CHAT.rules) == []


@pytest.mark.parametrize("count", [2_000])
def test_cost_grows_with_the_number_of_messages_only(count):
    """One batch of very many calls, answered in reverse: quadratic matching would take minutes."""
    ids = [f"c{number}" for number in range(count * 5)]
    messages = [user(), calls(*ids), *(result(each) for each in reversed(ids))]
    assert check(messages, CHAT.rules) == []
    assert legal_cuts(messages, CHAT.rules) == [0, 1, len(messages)]
