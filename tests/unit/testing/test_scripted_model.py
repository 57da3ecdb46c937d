"""The scripted model: what it answers, how it fails, what it remembers."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from penstock.errors import ErrorKind, ProviderError
from penstock.measure.usage import Usage
from penstock.providers.exchange import Answered, Ask, CallDelta, Called, Finish, ReasoningDelta, TextDelta
from penstock.testing.prompt_cache import PromptCache
from penstock.testing.scripted import Headers, Reply
from penstock.testing.scripted_model import ScriptedModel

DIALECTS = ("chat", "responses", "anthropic")
HELLO = [{"role": "user", "content": "Hello"}]
CALL = Called("call_a", "read_file", '{"path": "a.py"}')


def answer(model, ask=None):
    return asyncio.run(model.answer(ask or Ask(messages=HELLO)))


def stream(model, ask=None):
    async def run():
        async for event in model.stream(ask or Ask(messages=HELLO)):
            events.append(event)  # noqa: PERF401  # what came before a failure is looked at too

    events = []
    try:
        asyncio.run(run())
    except ProviderError as error:
        return events, error
    return events, None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_can_be_appended_to_the_conversation(dialect):
    reply = Reply("I look.", reasoning="Where?", calls=(CALL,))
    model = ScriptedModel([reply, "Done."], dialect=dialect, name="gpt-x")
    got = answer(model)
    assert (got.text, got.reasoning, got.calls, got.finish) == (
        "I look.",
        "Where?",
        (CALL,),
        Finish.TOOL_CALLS,
    )
    assert (got.model, got.requests) == ("gpt-x", 1)
    assert got.usage.prompt_tokens == model.received[0].prompt_tokens > 0
    assert 0 < got.usage.reasoning_tokens < got.usage.output_tokens
    result = {
        "chat": {"role": "tool", "tool_call_id": "call_a", "content": "ok"},
        "responses": {"type": "function_call_output", "call_id": "call_a", "output": "ok"},
        "anthropic": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "call_a", "content": "ok"}],
        },
    }[dialect]
    assert answer(model, Ask(messages=[*HELLO, *got.wires, result])).text == "Done."
    assert model.violations == ()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_was_asked_is_there_as_a_client_would_have_sent_it(dialect):
    tools = [{"name": "read_file"}]
    model = ScriptedModel(["Yes."], dialect=dialect)
    answer(
        model,
        Ask(messages=HELLO, system="Be brief.", tools=tools, max_output_tokens=9, extra={"temperature": 0}),
    )
    received = model.received[0]
    assert received.dialect == dialect
    assert received.max_output_tokens == 9
    assert received.tools == tools
    assert received.body["temperature"] == 0
    if dialect == "chat":
        assert received.messages == [{"role": "system", "content": "Be brief."}, *HELLO]
    else:
        assert (received.system, received.messages) == ("Be brief.", HELLO)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_adds_up_to_the_answer(dialect):
    reply = Reply("Some text.", reasoning="Hm, so.", calls=(CALL,), chunk_chars=3)
    model = ScriptedModel([reply], repeat_last=True, dialect=dialect)
    events, error = stream(model)
    assert error is None
    last = events.pop()
    assert isinstance(last, Answered)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == last.answer.text == "Some text."
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "Hm, so."
    calls = [e for e in events if isinstance(e, CallDelta)]
    assert [e.name for e in calls if e.name] == ["read_file"]
    assert "".join(e.arguments for e in calls) == CALL.arguments
    assert {e.id for e in calls} == {"call_a"}
    whole = answer(model)
    assert (whole.text, whole.usage, whole.calls) == (
        last.answer.text,
        last.answer.usage,
        last.answer.calls,
    )


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply.rate_limited(retry_after=7), ErrorKind.RATE_LIMIT),
        (Reply.overloaded(), ErrorKind.OVERLOAD),
        (Reply.server_error(), ErrorKind.OVERLOAD),
        (Reply.unauthorised(), ErrorKind.AUTH),
        (Reply.quota_exceeded(), ErrorKind.QUOTA),
        (Reply.payload_too_large(), ErrorKind.PAYLOAD_TOO_LARGE),
        (Reply.too_long(window=8192, prompt=9000), ErrorKind.PROMPT_TOO_LONG),
        (Reply.output_over_window(window=8192, prompt=5000, asked=4000), ErrorKind.OUTPUT_CAP_TOO_LARGE),
        (Reply.output_cap(cap=4096, asked=9999), ErrorKind.OUTPUT_CAP_TOO_LARGE),
        (Reply.page(), ErrorKind.OVERLOAD),
        (Reply.malformed(), ErrorKind.BAD_REQUEST),
        (Reply("half", cut_after_chunks=1), ErrorKind.NETWORK),
        (Reply.failing(400, ["odd"]), ErrorKind.BAD_REQUEST),
    ],
)
def test_failures_are_understood(dialect, reply, kind):
    model = ScriptedModel([reply], dialect=dialect, repeat_last=True)
    with pytest.raises(ProviderError) as caught:
        answer(model)
    assert caught.value.failure.kind is kind
    _, error = stream(model)
    assert error.failure.kind is kind
    assert len(model.received) == 2


def test_numbers_of_a_failure_come_through():
    model = ScriptedModel([Reply.rate_limited(retry_after=7), Reply.too_long(window=8192, prompt=9000)])
    with pytest.raises(ProviderError) as caught:
        answer(model)
    assert caught.value.failure.retry_after_seconds == 7
    with pytest.raises(ProviderError) as caught:
        answer(model)
    assert (caught.value.failure.window_tokens, caught.value.failure.prompt_tokens) == (8192, 9000)


def test_a_stream_may_fail_half_way():
    overloaded = Reply.overloaded().failure
    model = ScriptedModel(
        [
            Reply("abcdef", chunk_chars=2, cut_after_chunks=2),
            Reply("abcdef", chunk_chars=2, cut_after_chunks=1, stream_failure=overloaded),
            Reply("abcdef", chunk_chars=2, stream_failure=overloaded),
        ]
    )
    outcomes = [stream(model) for _ in range(3)]
    assert [[event.text for event in events] for events, _ in outcomes] == [
        ["ab", "cd"],
        ["ab"],
        ["ab", "cd", "ef"],
    ]
    kinds = [error.failure.kind for _, error in outcomes]
    assert kinds == [ErrorKind.NETWORK, ErrorKind.OVERLOAD, ErrorKind.OVERLOAD]


@pytest.mark.alone
def test_patience_ends():
    model = ScriptedModel(
        [Reply("late", delay_seconds=30), Reply("abc", chunk_chars=1, chunk_delay_seconds=30)]
    )
    started = time.monotonic()
    with pytest.raises(ProviderError, match=r"within 0\.05 seconds") as caught:
        answer(model, Ask(messages=HELLO, timeout_seconds=0.05))
    events, error = stream(model, Ask(messages=HELLO, timeout_seconds=0.05))
    assert caught.value.failure.kind is error.failure.kind is ErrorKind.TIMEOUT
    assert events == [TextDelta("a")]
    assert 0.1 <= time.monotonic() - started < 5
    assert model.disconnects == 0


def test_a_delay_is_waited_for():
    assert answer(ScriptedModel([Reply("late", delay_seconds=0.1)])).seconds >= 0.1


def test_cancelling_ends_the_request():
    async def run():
        task = asyncio.create_task(model.answer(Ask(messages=HELLO)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    model = ScriptedModel([Reply("late", delay_seconds=30)])
    asyncio.run(run())
    assert model.disconnects == 1


def test_leaving_a_stream_is_seen_but_not_after_its_end():
    async def run(count):
        async with contextlib.aclosing(model.stream(Ask(messages=HELLO))) as events:
            for _ in range(count):
                await anext(events)

    model = ScriptedModel([Reply("abc", chunk_chars=1)], repeat_last=True)
    asyncio.run(run(1))
    assert model.disconnects == 1
    asyncio.run(run(4))
    assert model.disconnects == 1


def test_the_end_of_the_script_fails_the_test_and_not_the_provider():
    model = ScriptedModel(["One."])
    answer(model)
    with pytest.raises(AssertionError, match="has 1 replies and was asked for one more"):
        answer(model)
    assert [breach.rule for breach in model.violations] == ["script"]


def test_the_last_reply_may_be_repeated():
    model = ScriptedModel(["One.", "Two."], repeat_last=True)
    assert [answer(model).text for _ in range(4)] == ["One.", "Two.", "Two.", "Two."]


def test_a_conversation_that_the_api_would_refuse():
    model = ScriptedModel(["Never said."])
    with pytest.raises(ProviderError) as caught:
        answer(model, Ask(messages=[{"role": "tool", "tool_call_id": "x", "content": "42"}]))
    assert caught.value.failure.kind is ErrorKind.BAD_REQUEST
    assert [breach.rule for breach in model.violations] == ["pairs"]


def test_the_window_and_the_cache_are_those_of_the_server():
    model = ScriptedModel(
        ["Yes."], repeat_last=True, window_tokens=3000, prompt_cache=PromptCache(min_tokens=100)
    )
    long = [{"role": "user", "content": "word " * 500}]
    usages = [answer(model, Ask(messages=long)).usage for _ in range(2)]
    assert usages[1] == Usage(cache_read_tokens=usages[0].input_tokens, output_tokens=usages[0].output_tokens)
    with pytest.raises(ProviderError) as caught:
        answer(model, Ask(messages=long * 7))
    assert caught.value.failure.kind is ErrorKind.PROMPT_TOO_LONG


def test_calls_without_an_id_get_one_each():
    reply = Reply(calls=(*Reply.calling("read_file", path="a.py").calls, Called("", "ls", "{}")))
    calls = answer(ScriptedModel([reply])).calls
    assert [call.name for call in calls] == ["read_file", "ls"]
    assert calls[0].arguments == '{"path":"a.py"}'
    assert len({call.id for call in calls}) == 2


def test_headers_are_found_in_lower_case_and_keys_are_not_shown():
    headers = Headers({"X-Api-Key": "made-up-key", "Accept": "json"})
    assert headers["x-api-key"] == "made-up-key"
    assert repr(headers) == "{'x-api-key': '[REDACTED]', 'accept': 'json'}"
