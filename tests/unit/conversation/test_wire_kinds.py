"""The table of item and block types: complete by the official packages, and what follows from a line of it."""

from __future__ import annotations

import typing

import pytest

from penstock.conversation.dialects import DIALECTS
from penstock.conversation.dialects.wire_kinds import (
    ANTHROPIC_BLOCKS,
    CHAT_BLOCKS,
    RESPONSES_BLOCKS,
    RESPONSES_ITEMS,
    Nature,
    find_barrier,
    is_barrier,
    read_words,
)
from penstock.conversation.message import Message, Opaque, Role, ToolResult
from penstock.conversation.opening import repair
from penstock.conversation.rules import check, legal_cuts

RESPONSES, ANTHROPIC = DIALECTS["responses"], DIALECTS["anthropic"]


def types_of(union):
    """The values of `type` that the members of a union of the official packages allow."""
    if typing.get_origin(union) is typing.Annotated:
        return types_of(typing.get_args(union)[0])
    members = typing.get_args(union)
    if members:
        return {name for member in members for name in types_of(member)}
    field = getattr(union, "model_fields", {}).get("type")
    hint = field.annotation if field else typing.get_type_hints(union, include_extras=False).get("type")
    return literals(hint)


def literals(hint):
    if typing.get_origin(hint) is typing.Literal:
        return set(typing.get_args(hint))
    return {name for inner in typing.get_args(hint) for name in literals(inner)}


@pytest.mark.outside  # reads all of the package
def test_every_item_type_of_the_openai_package_is_in_the_table():
    responses = pytest.importorskip("openai.types.responses")
    known = types_of(responses.ResponseInputItemParam) | types_of(responses.ResponseOutputItem)
    known |= types_of(responses.ResponseItem)
    assert len(known) > 25
    assert known - RESPONSES_ITEMS.keys() == set(), "the package knows an item type that wire_kinds.py lacks"


@pytest.mark.outside  # reads all of the package
def test_every_content_block_of_the_openai_package_is_in_the_table():
    responses = pytest.importorskip("openai.types.responses")
    chat = pytest.importorskip("openai.types.chat")
    known = types_of(responses.ResponseInputContentParam)
    assert known - RESPONSES_BLOCKS.keys() == set()
    assert types_of(chat.ChatCompletionContentPartParam) - CHAT_BLOCKS.keys() == set()


@pytest.mark.outside  # reads all of the package
def test_every_block_type_of_the_anthropic_package_is_in_the_table():
    types = pytest.importorskip("anthropic.types")
    beta = pytest.importorskip("anthropic.types.beta")
    known = types_of(types.ContentBlockParam) | types_of(beta.BetaContentBlockParam)
    known |= types_of(types.ContentBlock) | types_of(beta.BetaContentBlock)
    assert len(known) > 20
    assert known - ANTHROPIC_BLOCKS.keys() == set(), "the package knows a block type that wire_kinds.py lacks"


@pytest.mark.parametrize("table", [RESPONSES_ITEMS, ANTHROPIC_BLOCKS])
def test_pairs_name_each_other(table):
    for kind in table.values():
        if kind.pair:
            assert kind.key
            assert (
                table[kind.pair].nature
                in {
                    Nature.CALL: {Nature.OUTPUT},
                    Nature.OUTPUT: {Nature.CALL},
                    Nature.USE: {Nature.RESULT},
                    Nature.RESULT: {Nature.USE},
                }[kind.nature]
            )


USER = {"type": "message", "role": "user", "content": "Go on."}


def decode(items):
    return [RESPONSES.decode(item) for item in items]


@pytest.mark.parametrize(
    "call",
    [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
        {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
        {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "computer_call", "call_id": "c", "actions": [{"type": "screenshot"}]},
        {"type": "tool_search_call", "call_id": "c", "arguments": {}, "execution": "client"},
    ],
    ids=lambda call: call["type"],
)
def test_an_unanswered_call_gets_an_output_of_its_own_type(call):
    repaired = repair(decode([USER, call, USER]), RESPONSES)
    output = RESPONSES.build(repaired.messages[2])
    assert output["type"] == RESPONSES_ITEMS[call["type"]].pair
    assert "c" in (output.get("call_id"), output.get("id"))
    assert RESPONSES.decode(output).parts == repaired.messages[2].parts
    assert check(repaired.messages, RESPONSES.rules) == []


def test_the_answer_of_a_shell_and_a_computer_have_the_shapes_that_the_api_wants():
    shell = RESPONSES.build(RESPONSES.decode(RESPONSES.build(made("shell_call_output"))))
    assert shell["output"][0]["outcome"] == {"type": "exit", "exit_code": 0}
    picture = RESPONSES.build(made("computer_call_output"))["output"]
    assert picture["type"] == "computer_screenshot"
    assert picture["image_url"].startswith("data:image/png;base64,")


def made(kind):
    return Message(Role.TOOL, (ToolResult("c", "nothing", kind=kind),))


def test_an_approval_stays_with_its_request_and_a_program_with_its_calls():
    request = {
        "type": "mcp_approval_request",
        "id": "r",
        "name": "pay",
        "arguments": "{}",
        "server_label": "b",
    }
    answer = {"type": "mcp_approval_response", "approval_request_id": "r", "approve": True}
    program = {"type": "program", "id": "p", "call_id": "p1", "code": "x", "fingerprint": "f"}
    nested = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "1"}
    ended = {"type": "program_output", "id": "o", "call_id": "p1", "result": "1", "status": "completed"}
    messages = decode([USER, request, answer, USER, program, nested, output, ended, USER])
    assert legal_cuts(messages, RESPONSES.rules) == [0, 1, 3, 4, 8, 9]
    assert [message.role for message in repair(decode([USER, answer]), RESPONSES).messages] == [Role.USER]


def test_what_the_server_searched_itself_is_a_pair_without_ids():
    call = {"type": "tool_search_call", "call_id": None, "arguments": {}, "execution": "server"}
    output = {"type": "tool_search_output", "call_id": None, "tools": [], "execution": "server"}
    messages = decode([USER, call, output, USER])
    assert not repair(messages, RESPONSES).mends
    assert 2 not in legal_cuts(messages, RESPONSES.rules)


def test_an_unknown_type_stays_with_what_names_it():
    new = {"type": "x_call", "id": "x1", "payload": 1}
    named = {"type": "x_call_result", "x_id": "x1"}
    assert legal_cuts(decode([USER, new, USER, named]), RESPONSES.rules) == [0, 1, 4]


def test_a_reference_may_leave_its_type_out():
    wire = {"id": "msg_1"}
    assert RESPONSES.recognises(wire)
    part = RESPONSES.decode(wire).parts[0]
    assert isinstance(part, Opaque)
    assert part.kind == "item_reference"


def test_an_output_that_answers_no_call_is_kept():
    unasked = {"type": "function_call_output", "id": "fco_1", "name": "clock", "output": "12:00"}
    assert not repair(decode([USER, unasked, USER]), RESPONSES).mends


def test_a_failed_compaction_is_no_barrier():
    done = ANTHROPIC.decode(
        {"role": "assistant", "content": [{"type": "compaction", "content": "All so far"}]}
    )
    failed = ANTHROPIC.decode({"role": "assistant", "content": [{"type": "compaction", "content": None}]})
    assert is_barrier(done.parts[0])
    assert not is_barrier(failed.parts[0])
    assert find_barrier([done, failed]) == 0
    assert check([done], ANTHROPIC.rules) == []


def test_ciphertext_is_never_read():
    found = {"type": "web_search_tool_result", "content": [{"title": "News", "encrypted_content": "gAAAA"}]}
    part = ANTHROPIC.decode({"role": "assistant", "content": [found]}).parts[0]
    assert isinstance(part, Opaque)
    assert "News" in read_words(part)
    assert "gAAAA" not in read_words(part)
    assert read_words(Opaque("compaction", '{"encrypted_content":"gAAAA"}')) == ""
