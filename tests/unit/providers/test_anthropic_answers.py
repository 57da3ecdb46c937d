"""Anthropic Messages: blocks in, blocks out."""

import json

import pytest

from penstock.errors import ErrorKind, ProviderError
from penstock.measure.usage import Usage
from penstock.providers import anthropic
from penstock.providers.exchange import Ask, CallDelta, Called, Finish, ReasoningDelta, TextDelta
from penstock.providers.quirks import Quirks
from penstock.providers.sse import ServerEvent

THINKING = {"type": "thinking", "thinking": "2 and 2", "signature": "EqQBCgIYAhIM-signed"}
SEALED = {"type": "redacted_thinking", "data": "sealed"}
TEXT = {"type": "text", "text": "It is 4", "citations": [{"type": "char_location", "cited_text": "4"}]}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1}}
SERVED = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "four"}}


def answer(*content, stop="end_turn", **body):
    return anthropic.answer_from_body({"content": list(content), "stop_reason": stop, **body})


def start(**usage):
    return {
        "type": "message_start",
        "message": {"id": "m", "role": "assistant", "model": "c", "content": [], "usage": usage},
    }


def block(index, content, *deltas):
    opened = {"type": "content_block_start", "index": index, "content_block": content}
    grown = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [opened, *grown, {"type": "content_block_stop", "index": index}]


def stop(reason="end_turn", **usage):
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]


def take(*events):
    gathered = anthropic.AnthropicAccumulator()
    told = [gathered.take(ServerEvent(event["type"], json.dumps(event))) for event in events]
    return [event for some in told for event in some], gathered


def test_blocks_are_kept_as_they_came():
    got = answer(THINKING, SEALED, SERVED, TEXT, CALL, stop="tool_use", model="c")
    assert got.wires == ({"role": "assistant", "content": [THINKING, SEALED, SERVED, TEXT, CALL]},)
    assert (got.text, got.reasoning, got.model) == ("It is 4", "2 and 2", "c")
    assert got.calls == (Called("toolu_1", "f", '{"x":1}'),)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", Finish.STOP),
        ("stop_sequence", Finish.STOP),
        ("max_tokens", Finish.LENGTH),
        ("model_context_window_exceeded", Finish.LENGTH),
        ("tool_use", Finish.TOOL_CALLS),
        ("refusal", Finish.REFUSED),
        ("pause_turn", Finish.OTHER),
        ("something_new", Finish.OTHER),
        (None, Finish.OTHER),
    ],
)
def test_why_it_stopped(reason, finish):
    assert answer(TEXT, stop=reason).finish is finish


def test_an_answer_without_blocks_has_nothing_to_append():
    got = answer(stop="refusal")
    assert (got.text, got.wires, got.finish) == ("", (), Finish.REFUSED)


def test_a_stream_of_all_kinds_of_blocks():
    events, gathered = take(
        start(input_tokens=25, output_tokens=1),
        {"type": "ping"},
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "2 and"},
            {"type": "thinking_delta", "thinking": " 2"},
            {"type": "signature_delta", "signature": "EqQBCgIYAhIM-signed"},
        ),
        *block(1, SEALED),
        *block(
            2,
            {**SERVED, "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"query": "four"}'},
        ),
        *block(
            3,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "It is"},
            {"type": "citations_delta", "citation": TEXT["citations"][0]},
            {"type": "text_delta", "text": " 4"},
        ),
        *block(
            4,
            {**CALL, "input": {}},
            {"type": "input_json_delta", "partial_json": '{"x"'},
            {"type": "input_json_delta", "partial_json": ": 1}"},
        ),
        *stop("tool_use", output_tokens=15),
    )
    assert events == [
        ReasoningDelta("2 and"),
        ReasoningDelta(" 2"),
        TextDelta("It is"),
        TextDelta(" 4"),
        CallDelta("toolu_1", "f", ""),
        CallDelta("toolu_1", "", '{"x"'),
        CallDelta("toolu_1", "", ": 1}"),
    ]
    got = gathered.answer()
    assert got.wires[0]["content"] == [THINKING, SEALED, SERVED, TEXT, CALL]
    assert got.calls == (Called("toolu_1", "f", '{"x": 1}'),)  # as the model wrote it
    assert got.usage == Usage(25, 15)


@pytest.mark.parametrize(
    ("first", "last", "usage"),
    [
        ({"input_tokens": 25, "output_tokens": 1}, {"output_tokens": 15}, Usage(25, 15)),
        ({"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 30, "output_tokens": 5}, Usage(30, 5)),
        ({"input_tokens": 30, "output_tokens": 1}, {"input_tokens": 0, "output_tokens": 5}, Usage(30, 5)),
        ({"input_tokens": 9, "output_tokens": 3}, {"output_tokens": None}, Usage(9, 3)),
        (
            {
                "input_tokens": 4,
                "cache_read_input_tokens": 1_000,
                "cache_creation_input_tokens": 70,
                "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 50},
                "output_tokens": 2,
            },
            {"input_tokens": 4, "cache_read_input_tokens": 1_000, "output_tokens": 9},
            Usage(4, 9, 1_000, 70, 50),
        ),
    ],
)
def test_usage_of_first_and_last_event_together(first, last, usage):
    events = (start(**first), *block(0, {"type": "text", "text": "a"}), *stop(**last))
    assert take(*events)[1].answer().usage == usage


def test_a_call_that_was_cut_off_keeps_what_was_written():
    events = (
        start(),
        *block(0, {**CALL, "input": {}}, {"type": "input_json_delta", "partial_json": '{"x": [1, 2'}),
        *stop("max_tokens"),
    )
    got = take(*events)[1].answer()
    assert (got.finish, got.calls[0].arguments) == (Finish.LENGTH, '{"x": [1, 2')
    assert got.wires[0]["content"][0]["input"] == {}


def test_a_stream_may_end_without_its_last_event_but_not_without_a_reason():
    assert take(start(), *stop()[:1])[1].answer().finish is Finish.STOP
    with pytest.raises(ProviderError, match="before the answer was complete"):
        take(start(), *block(0, {"type": "text", "text": "a"}))[1].answer()


def test_an_error_event_is_an_error():
    with pytest.raises(ProviderError) as caught:
        take(start(), {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    assert caught.value.failure.kind is ErrorKind.OVERLOAD


def test_requests():
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    ask = Ask(messages=[{"role": "user", "content": "Hi"}], system=system, extra={"temperature": 0})
    body = anthropic.request_body(ask, "c", Quirks())
    assert body == {
        "model": "c",
        "max_tokens": 8_192,
        "messages": [{"role": "user", "content": "Hi"}],
        "system": system,
        "temperature": 0,
    }
    assert set(anthropic.counting_body(ask, "c", Quirks())) == {"model", "messages", "system"}


def test_room_for_thinking_comes_on_top_of_the_default():
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 10_000}}
    assert anthropic.request_body(Ask(messages=[], extra=thinking), "c", Quirks())["max_tokens"] == 18_192
    capped = Ask(messages=[], extra=thinking, max_output_tokens=12_000)
    assert anthropic.request_body(capped, "c", Quirks())["max_tokens"] == 12_000
