"""The clients against a server that answers from a script, over real HTTP."""

import asyncio

import msgspec
import pytest
from client_talk import CALLS, HELLO, KEY, PROVIDERS, RICH, ask_for, failure_of, stream_of, talk

from penstock.errors import ErrorKind
from penstock.measure.usage import Usage
from penstock.providers.exchange import Answered, Ask, CallDelta, Finish, ReasoningDelta, TextDelta
from penstock.testing.scripted import Reply


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_has_text_calls_reasoning_usage_and_what_to_append(provider):
    answer, server = talk(provider, [RICH], ask_for(HELLO))
    assert answer.text == RICH.text
    assert answer.reasoning == RICH.reasoning
    assert [(call.name, msgspec.json.decode(call.arguments)) for call in answer.calls] == [
        ("read_file", {"path": "a.py"}),
        ("list", {"folder": "src", "deep": True}),
    ]
    assert answer.finish is Finish.TOOL_CALLS
    assert answer.usage.cache_read_tokens == 1000
    assert answer.usage.prompt_tokens == 1130
    assert answer.usage.output_tokens == 50
    assert answer.model == "scripted-model"
    assert answer.request_id == "req_scripted0001"
    assert answer.requests == 1
    assert answer.seconds > 0
    assert server.violations == ()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_was_answered_can_be_sent_back(provider):
    async def use(model):
        first = await model.answer(HELLO)
        results = [result_of(model.dialect, call) for call in first.calls]
        if model.dialect == "anthropic":
            results = [{"role": "user", "content": results}]
        return await model.answer(Ask(messages=[*HELLO.messages, *first.wires, *results]))

    answer, server = talk(provider, [RICH, "Done."], use)
    assert answer.text == "Done."
    assert server.violations == ()


def result_of(dialect, call):
    if dialect == "chat":
        return {"role": "tool", "tool_call_id": call.id, "content": "ok"}
    if dialect == "responses":
        return {"type": "function_call_output", "call_id": call.id, "output": "ok"}
    return {"type": "tool_result", "tool_use_id": call.id, "content": "ok"}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_says_the_same_as_a_whole_answer_bit_by_bit(provider):
    events, server = talk(provider, [RICH], stream_of(HELLO))
    whole, _ = talk(provider, [RICH], ask_for(HELLO))
    *deltas, last = events
    assert isinstance(last, Answered)
    said = "".join(event.text for event in deltas if isinstance(event, TextDelta))
    thought = "".join(event.text for event in deltas if isinstance(event, ReasoningDelta))
    assert (said, thought) == (RICH.text, RICH.reasoning)
    written = {}
    for event in deltas:
        if isinstance(event, CallDelta):
            name, arguments = written.get(event.id, ("", ""))
            written[event.id] = (name + event.name, arguments + event.arguments)
    assert written == {call.id: (call.name, call.arguments) for call in last.answer.calls}
    assert [call.arguments for call in last.answer.calls] == [call.arguments for call in CALLS]
    same = msgspec.structs.replace(last.answer, seconds=0, calls=())
    assert same == msgspec.structs.replace(whole, seconds=0, calls=())
    assert server.received[0].streaming
    assert server.violations == ()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_system_tools_cap_and_extra_reach_the_server_in_its_dialect(provider):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    if provider == "responses":
        tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    elif provider == "anthropic":
        tool = {"name": "f", "input_schema": {"type": "object"}}
    ask = Ask(
        messages=HELLO.messages,
        system="Be brief.",
        tools=[tool],
        max_output_tokens=77,
        extra={"temperature": 0.5},
    )
    _, server = talk(provider, ["Yes."], ask_for(ask))
    received = server.received[0]
    assert received.max_output_tokens == 77
    assert received.tools == [tool]
    assert received.body["temperature"] == 0.5
    assert "stream" not in received.body
    if provider == "openai":
        assert received.messages[0] == {"role": "system", "content": "Be brief."}
        assert "max_tokens" in received.body
    else:
        assert received.system == "Be brief."
    if provider == "responses":
        assert received.body["store"] is False
        assert "include" not in received.body
    assert server.violations == ()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_key_goes_where_the_dialect_wants_it_and_nowhere_else(provider):
    _, server = talk(provider, ["Yes."], ask_for(HELLO), api_key=KEY)
    received = server.received[0]
    holders = {name for name, value in received.headers.items() if KEY in value}
    assert holders == {"x-api-key" if provider == "anthropic" else "authorization"}
    assert KEY.encode() not in received.raw
    assert ("anthropic-version" in received.headers) == (provider == "anthropic")


def test_a_message_that_is_bytes_is_sent_as_it_stands():
    message = b'{"role" : "user",  "content":"1.0e0 \\u00e9", "x":1.50}'
    ask = Ask(messages=[{"role": "user", "content": "lone \ud800"}, message])
    _, server = talk("openai", ["Yes."], ask_for(ask))
    assert message in server.received[0].raw
    assert b"\\ud800" in server.received[0].raw


@pytest.mark.parametrize("finish", [Finish.STOP, Finish.LENGTH, Finish.REFUSED, Finish.OTHER])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_why_it_stopped(provider, finish):
    answer, _ = talk(provider, [Reply("Well", finish=finish)], ask_for(HELLO))
    assert answer.finish is finish
    events, _ = talk(provider, [Reply("Well", finish=finish)], stream_of(HELLO))
    assert events[-1].answer.finish is finish


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_that_ends_at_its_cap_to_the_token_was_cut_whatever_the_server_says(provider):
    ask = Ask(messages=HELLO.messages, max_output_tokens=12)
    for tokens, finish in ((11, Finish.STOP), (12, Finish.LENGTH), (13, Finish.STOP)):
        reply = Reply("Hello and", finish=Finish.STOP, usage=Usage(5, tokens))
        assert talk(provider, [reply], ask_for(ask))[0].finish is finish
        assert talk(provider, [reply], stream_of(ask))[0][-1].answer.finish is finish


@pytest.mark.parametrize("provider", PROVIDERS)
def test_models_and_window(provider):
    async def use(model):
        return await model.models(), await model.window_tokens()

    (listed, window), _ = talk(provider, [], use, window_tokens=32_000, models=("other", "scripted-model"))
    assert [entry.id for entry in listed] == ["other", "scripted-model"]
    assert window == 32_000
    assert talk(provider, [], lambda model: model.window_tokens())[0] is None


def test_tokens_are_counted_where_there_is_a_route_for_it():
    ask = Ask(messages=HELLO.messages, system="Be brief.", max_output_tokens=5, extra={"temperature": 1})
    counted, server = talk("anthropic", [], lambda model: model.count_tokens(ask))
    assert counted == server.received[0].prompt_tokens > 0
    assert "max_tokens" not in server.received[0].body
    assert talk("openai", [], lambda model: model.count_tokens(ask))[0] is None


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_server_that_does_not_stream_still_answers(provider):
    whole, _ = talk(provider, [RICH], ask_for(HELLO))
    bodies = {
        "openai": {"choices": [{"message": whole.wires[0], "finish_reason": "tool_calls"}]},
        "responses": {"output": list(whole.wires), "status": "completed"},
        "anthropic": {**whole.wires[0], "stop_reason": "tool_use"},
    }
    body = msgspec.json.encode(bodies[provider])
    events, _ = talk(provider, [Reply.malformed(body)], stream_of(HELLO))
    assert events[-1].answer.text == RICH.text
    assert [type(event) for event in events] == [ReasoningDelta, TextDelta, CallDelta, CallDelta, Answered]


@pytest.mark.parametrize(
    ("provider", "refusal", "field"),
    [
        (
            "openai",
            "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "max_completion_tokens",
        ),
        ("openai", "Unrecognized request argument supplied: stream_options", "max_tokens"),
    ],
)
def test_a_field_that_the_server_refuses_by_name_is_left_out_from_then_on(provider, refusal, field):
    body = {"error": {"message": refusal, "type": "invalid_request_error", "code": "unsupported_parameter"}}
    ask = Ask(messages=HELLO.messages, max_output_tokens=9)

    async def use(model):
        events = [event async for event in model.stream(ask)]
        return events[-1].answer, await model.answer(ask)

    (first, second), server = talk(provider, [Reply.failing(400, body), "Yes.", "Again."], use)
    assert (first.text, first.requests) == ("Yes.", 2)
    assert (second.text, second.requests) == ("Again.", 1)
    assert [set(received.body) & {"max_tokens", "max_completion_tokens"} for received in server.received] == [
        {"max_tokens"},
        {field},
        {field},
    ]
    assert ("stream_options" in server.received[1].body) == ("stream_options" not in refusal)


def test_a_server_that_refuses_either_name_is_asked_twice_and_no_more():
    body = {"error": {"message": "max_tokens and max_completion_tokens are not supported", "code": "no"}}
    ask = Ask(messages=HELLO.messages, max_output_tokens=9)
    error, server = talk("openai", [Reply.failing(400, body)], failure_of(ask_for(ask)), repeat_last=True)
    assert error.failure.kind is ErrorKind.BAD_REQUEST
    assert len(server.received) == 2


def test_many_at_once_share_connections():
    async def use(model):
        return await asyncio.gather(*(model.answer(HELLO) for _ in range(30)))

    answers, server = talk("openai", ["Yes."], use, repeat_last=True)
    assert {answer.text for answer in answers} == {"Yes."}
    assert len(server.received) == 30
