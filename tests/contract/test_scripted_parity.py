"""The scripted model in the process and a real client at the scripted provider tell the same of one script."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from penstock.errors import ErrorKind, ProviderError
from penstock.measure.usage import Usage
from penstock.providers.connect import ConnectOptions, connect
from penstock.providers.exchange import Answered, Ask, CallDelta, Called, Finish, ReasoningDelta, TextDelta
from penstock.providers.retries import RetryPolicy
from penstock.testing import Reply, ScriptedModel, ScriptedProvider

PROVIDERS = {"chat": "openai", "responses": "responses", "anthropic": "anthropic"}
CALLS = (Called("call_a", "read_file", '{"path":"a.py"}'), Called("call_b", "ls", "{}"))
OVERLOADED = Reply.overloaded().failure
ASK = Ask(
    messages=[{"role": "user", "content": "Hello"}],
    system="Be brief.",
    tools=[{"name": "ls", "type": "function"}],
    max_output_tokens=64,
)
ANSWERS = {
    "text": Reply("Some text, größer."),
    "everything": Reply("I look.", reasoning="Where?", calls=CALLS, chunk_chars=4),
    "only calls": Reply(calls=CALLS),
    "cut short": Reply("So", finish=Finish.LENGTH),
    "refused": Reply("No.", finish=Finish.REFUSED),
    "blank": Reply(" "),
    "usage": Reply("Yes.", usage=Usage(70, 20, 4096, 300, 0, 9)),
}
FAILURES = {
    "rate limit": Reply.rate_limited(retry_after=7),
    "overload": Reply.overloaded(),
    "server error": Reply.server_error(),
    "auth": Reply.unauthorised(),
    "quota": Reply.quota_exceeded(),
    "payload": Reply.payload_too_large(),
    "too long": Reply.too_long(window=8192, prompt=9000),
    "over window": Reply.output_over_window(window=8192, prompt=5000, asked=4000),
    "cap": Reply.output_cap(cap=4096, asked=9999),
    "page": Reply.page(),
    "malformed": Reply.malformed(),
    "dropped": Reply("Some text.", cut_after_chunks=0),
}
BROKEN_STREAMS = {
    "cut": Reply("Some text that is long.", chunk_chars=3, cut_after_chunks=6),
    "error": Reply("Some text that is long.", chunk_chars=3, cut_after_chunks=6, stream_failure=OVERLOADED),
    "error at the end": Reply("Some text.", stream_failure=OVERLOADED),
}


@contextlib.asynccontextmanager
async def both(dialect, reply):
    """The two models, each with the same script."""
    options = ConnectOptions(policy=RetryPolicy(tries=1), environ={})
    async with (
        ScriptedProvider([reply]) as server,
        connect(PROVIDERS[dialect], "m", base_url=f"{server.base_url}/v1", options=options) as client,
    ):
        yield ScriptedModel([reply], name="m", dialect=dialect), client


async def answered(model):
    """What is the same for both: all of the answer but what the way took, or the failure."""
    try:
        answer = await model.answer(ASK)
    except ProviderError as error:
        return known(error)
    return msgspec.structs.replace(answer, seconds=0.0)


async def streamed(model):
    """Text, reasoning and calls as they came, then the answer or the failure."""
    text, reasoning, calls, last = "", "", {}, None
    try:
        async for event in model.stream(ASK):
            match event:
                case TextDelta(piece):
                    text += piece
                case ReasoningDelta(piece):
                    reasoning += piece
                case CallDelta(call_id, name, arguments):
                    before = calls.get(call_id, ("", ""))
                    calls[call_id] = (before[0] + name, before[1] + arguments)
                case Answered(answer):
                    last = msgspec.structs.replace(answer, seconds=0.0)
    except ProviderError as error:
        last = known(error)
    return text, reasoning, calls, last


def known(error):
    failure = error.failure
    return (
        failure.kind,
        failure.window_tokens,
        failure.prompt_tokens,
        failure.output_cap_tokens,
        failure.retry_after_seconds,
    )


def compare(dialect, reply, look):
    async def run():
        async with both(dialect, reply) as models:
            return [await look(model) for model in models]

    scripted, real = asyncio.run(run())
    assert scripted == real
    return real


@pytest.mark.parametrize("dialect", PROVIDERS)
@pytest.mark.parametrize("case", ANSWERS)
def test_answers(dialect, case):
    reply = ANSWERS[case]
    whole = compare(dialect, reply, answered)
    assert (whole.text, whole.finish, whole.calls) == (reply.text, reply.finished, reply.calls)
    text, reasoning, calls, last = compare(dialect, reply, streamed)
    assert (text, reasoning) == (reply.text, reply.reasoning)
    assert calls == {call.id: (call.name, call.arguments) for call in reply.calls}
    assert (last.text, last.usage, last.calls) == (whole.text, whole.usage, whole.calls)


@pytest.mark.parametrize("dialect", PROVIDERS)
@pytest.mark.parametrize("case", FAILURES)
def test_failures(dialect, case):
    assert isinstance(compare(dialect, FAILURES[case], answered), tuple)
    assert isinstance(compare(dialect, FAILURES[case], streamed)[-1], tuple)


@pytest.mark.parametrize("dialect", PROVIDERS)
@pytest.mark.parametrize("case", BROKEN_STREAMS)
def test_streams_that_break(dialect, case):
    async def failed(model):
        text, _, _, failure = await streamed(model)
        assert text
        assert reply.text.startswith(text)
        return failure

    reply = BROKEN_STREAMS[case]
    assert isinstance(compare(dialect, reply, failed), tuple)


@pytest.mark.parametrize("dialect", PROVIDERS)
def test_a_stream_that_fails_at_its_end_has_said_everything(dialect):
    text, _, _, failure = compare(dialect, BROKEN_STREAMS["error at the end"], streamed)
    assert text == "Some text."
    assert failure[0] is ErrorKind.OVERLOAD
