"""Responses: items in, items out."""

import json

import pytest

from penstock.errors import ErrorClass, ErrorKind, ProviderError
from penstock.providers import responses
from penstock.providers.exchange import Ask, CallDelta, Called, Finish, ReasoningDelta, TextDelta
from penstock.providers.quirks import Quirks, adapt_quirks, quirks_of
from penstock.providers.sse import ServerEvent

REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "2 and 2"}, {"type": "summary_text", "text": "so 4"}],
    "encrypted_content": "sealed",
}
MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [
        {"type": "output_text", "text": "It is ", "annotations": []},
        {"type": "output_text", "text": "4", "annotations": []},
    ],
}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": '{"x": 1}'}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}


def answer(*output, **body):
    return responses.answer_from_body({"output": list(output), "status": "completed", **body})


def take(*events):
    gathered = responses.ResponsesAccumulator()
    told = [gathered.take(ServerEvent(event["type"], json.dumps(event))) for event in events]
    return [event for some in told for event in some], gathered


def test_items_are_kept_as_they_came():
    got = answer(REASONING, SEARCH, MESSAGE, CALL)
    assert got.wires == (REASONING, SEARCH, MESSAGE, CALL)
    assert got.text == "It is 4"
    assert got.reasoning == "2 and 2\n\nso 4"
    assert got.calls == (Called("call_1", "f", '{"x": 1}'),)
    assert got.finish is Finish.TOOL_CALLS


def test_reasoning_without_a_summary_is_read_itself():
    item = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert answer(item).reasoning == "hm"


@pytest.mark.parametrize(
    ("body", "finish"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, Finish.LENGTH),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, Finish.REFUSED),
        ({"status": "incomplete", "incomplete_details": None}, Finish.OTHER),
        ({"status": "cancelled"}, Finish.OTHER),
        ({"status": "completed"}, Finish.STOP),
        ({"status": None}, Finish.STOP),
    ],
)
def test_why_it_stopped(body, finish):
    assert answer(MESSAGE, **body).finish is finish


def test_a_refusal_part_is_a_refusal():
    item = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert (answer(item).text, answer(item).finish) == ("No.", Finish.REFUSED)


def test_a_response_that_failed_is_an_error():
    with pytest.raises(ProviderError) as caught:
        answer(status="failed", error={"code": "rate_limit_exceeded", "message": "Slow down"})
    assert caught.value.failure.kind is ErrorKind.RATE_LIMIT


def test_a_custom_tool_call_has_its_input():
    item = {"type": "custom_tool_call", "call_id": "c", "name": "shell", "input": "ls -la"}
    assert answer(item).calls == (Called("c", "shell", "ls -la"),)


def test_deltas_of_a_stream():
    added = {**CALL, "arguments": ""}
    events, gathered = take(
        {"type": "response.created", "response": {"output": []}},
        {"type": "response.reasoning_summary_text.delta", "delta": "2 and 2"},
        {"type": "response.output_text.delta", "delta": "It is 4"},
        {"type": "response.output_item.added", "output_index": 2, "item": added},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": '{"x"'},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": ": 1}"},
        {"type": "response.refusal.delta", "delta": "No."},
        {"type": "response.completed", "response": {"output": [MESSAGE, CALL], "status": "completed"}},
    )
    assert events == [
        ReasoningDelta("2 and 2"),
        TextDelta("It is 4"),
        CallDelta("call_1", "f", ""),
        CallDelta("call_1", "", '{"x"'),
        CallDelta("call_1", "", ": 1}"),
        TextDelta("No."),
    ]
    assert gathered.finished
    assert gathered.answer().wires == (MESSAGE, CALL)


def test_items_that_the_last_event_leaves_out_are_taken_from_the_stream():
    _, gathered = take(
        {"type": "response.output_item.done", "output_index": 1, "item": CALL},
        {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
        {"type": "response.completed", "response": {"output": [], "status": "completed"}},
    )
    assert gathered.answer().wires == (MESSAGE, CALL)


def test_a_stream_without_its_last_event_broke_off():
    with pytest.raises(ProviderError, match="before the answer was complete"):
        take({"type": "response.output_text.delta", "delta": "It"})[1].answer()


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "server_is_overloaded", "message": "The engine is currently overloaded"},
        {"type": "error", "error": {"code": "x", "message": "The engine is currently overloaded"}},
    ],
)
def test_an_error_event_is_an_error(event):
    with pytest.raises(ProviderError) as caught:
        take(event)
    assert caught.value.failure.kind is ErrorKind.OVERLOAD


def test_requests():
    ask = Ask(messages=[{"role": "user", "content": "Hi"}], system="Be brief.", max_output_tokens=9)
    body = responses.request_body(ask, "m", quirks_of("api.openai.com"), stream=True)
    assert body == {
        "model": "m",
        "input": [{"role": "user", "content": "Hi"}],
        "store": False,
        "instructions": "Be brief.",
        "max_output_tokens": 9,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
    }
    parts = [{"type": "input_text", "text": "Be brief."}]
    listed = responses.request_body(Ask(messages=[], system=parts), "m", Quirks())
    assert listed["input"] == [{"role": "system", "content": parts}]
    assert "include" not in listed


def test_sealed_reasoning_that_a_model_does_not_have_is_not_asked_for_again():
    failure = ErrorClass(
        kind=ErrorKind.BAD_REQUEST, status=400, message="Encrypted content is not supported with this model."
    )
    quirks = quirks_of("api.openai.com")
    assert adapt_quirks(quirks, frozenset({"include"}), failure).encrypted_reasoning is False
    assert adapt_quirks(quirks, frozenset({"input"}), failure) is None
