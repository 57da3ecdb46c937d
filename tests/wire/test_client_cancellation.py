"""Cancelling, closing and running out of time: the server sees that the client has gone."""

import asyncio
import contextlib
import gc

import pytest
from client_talk import HELLO, PROVIDERS, model_of, talk

from penstock.errors import ErrorKind, ProviderError
from penstock.providers.connect import ConnectOptions, connect
from penstock.providers.exchange import Ask, TextDelta
from penstock.providers.http import Transport
from penstock.providers.retries import RetryPolicy
from penstock.testing.provider_server import ScriptedProvider, scripted_provider
from penstock.testing.scripted import Reply

SLOW = Reply("too late", delay_seconds=30)
SLOW_STREAM = Reply("one two three four five six seven eight", chunk_chars=4, chunk_delay_seconds=0.05)
STUCK_STREAM = Reply("one two three four", chunk_chars=4, chunk_delay_seconds=30)
ONCE = {"policy": RetryPolicy(tries=1)}


async def until_received(server, count=1):
    for _ in range(1_000):
        if len(server.received) >= count:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the server was not asked")


async def read_all(model):
    async for _ in model.stream(HELLO):
        pass


@pytest.mark.parametrize("start", [lambda model: model.answer(HELLO), read_all], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_cancelling_before_the_answer_begins_closes_the_connection(provider, start):
    async def run():
        async with ScriptedProvider([SLOW]) as server, model_of(server, provider) as model:
            task = asyncio.create_task(start(model))
            await until_received(server)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await server.wait_for_disconnects(1)
            assert len(server.received) == 1

    asyncio.run(run())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_cancelling_in_mid_stream_closes_the_connection(provider):
    async def run():
        async with ScriptedProvider([SLOW_STREAM]) as server, model_of(server, provider) as model:
            begun = asyncio.Event()

            async def read():
                async for event in model.stream(HELLO):
                    if isinstance(event, TextDelta):
                        begun.set()

            task = asyncio.create_task(read())
            async with asyncio.timeout(5):
                await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await server.wait_for_disconnects(1)

    asyncio.run(run())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_closing_a_stream_early_closes_the_connection(provider):
    async def run():
        async with ScriptedProvider([SLOW_STREAM]) as server, model_of(server, provider) as model:
            async with contextlib.aclosing(model.stream(HELLO)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
            assert await server.wait_for_disconnects(1)

    asyncio.run(run())


def test_a_stream_that_is_dropped_unclosed_closes_the_connection():
    async def run():
        async with ScriptedProvider([SLOW_STREAM]) as server, model_of(server, "openai") as model:
            events = model.stream(HELLO)
            await anext(events)
            del events
            gc.collect()
            assert await server.wait_for_disconnects(1)

    asyncio.run(run())


def test_cancelling_while_it_waits_to_try_again_sends_nothing_more():
    async def run():
        async with ScriptedProvider([Reply.rate_limited(retry_after=30)]) as server:
            model = connect("openai", "scripted-model", base_url=server.base_url)
            task = asyncio.create_task(model.answer(HELLO))
            await until_received(server)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(server.received) == 1

    asyncio.run(run())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_answer_in_time_is_a_timeout_and_the_server_is_left(provider):
    async def use(model):
        with pytest.raises(ProviderError) as caught:
            await model.answer(Ask(messages=HELLO.messages, timeout_seconds=0.2))
        return caught.value

    async def run():
        async with ScriptedProvider([SLOW]) as server, model_of(server, provider) as model:
            error = await use(model)
            assert error.failure.kind is ErrorKind.TIMEOUT
            assert "no answer within the time allowed" in str(error)
            assert await server.wait_for_disconnects(1)
            assert len(server.received) == 1  # the time was for all tries together

    asyncio.run(run())


@pytest.mark.parametrize("reply", [SLOW, STUCK_STREAM], ids=["before", "in the midst"])
def test_a_silent_stream_is_a_timeout(reply):
    async def use(model):
        with pytest.raises(ProviderError) as caught:
            await read_all(model)
        return caught.value

    error, _ = talk("openai", [reply], use, given={"timeout_seconds": 0.3, **ONCE})
    assert error.failure.kind is ErrorKind.TIMEOUT


def test_a_stream_that_keeps_talking_may_take_longer_than_the_timeout():
    async def use(model):
        return [event async for event in model.stream(HELLO)]

    events, _ = talk("openai", [SLOW_STREAM], use, given={"timeout_seconds": 0.3, **ONCE})
    assert events[-1].answer.text == SLOW_STREAM.text
    assert events[-1].answer.seconds > 0.3


def test_a_time_that_the_ask_sets_bounds_the_whole_stream():
    async def use(model):
        with pytest.raises(ProviderError) as caught:
            async for _ in model.stream(Ask(messages=HELLO.messages, timeout_seconds=0.3)):
                pass
        return caught.value

    error, _ = talk("openai", [SLOW_STREAM], use)
    assert error.failure.kind is ErrorKind.TIMEOUT


def test_a_model_serves_one_event_loop_after_another_and_leaves_nothing_open():
    with scripted_provider(["Yes."], repeat_last=True) as server:
        model = connect("openai", "scripted-model", base_url=server.base_url)
        for _ in range(3):
            assert asyncio.run(model.answer(HELLO)).text == "Yes."
        assert len(model._transport._sessions) == 1


def test_a_shared_transport_outlives_a_model_that_is_closed():
    async def run():
        async with ScriptedProvider(["Yes."], repeat_last=True) as server, Transport() as transport:
            options = ConnectOptions(transport=transport)
            async with connect("openai", "m", base_url=server.base_url, options=options) as first:
                await first.answer(HELLO)
            session = next(iter(transport._sessions.values())).session
            assert not session.closed
            second = connect("anthropic", "m", base_url=server.base_url, options=options)
            assert (await second.answer(HELLO)).text == "Yes."
            assert next(iter(transport._sessions.values())).session is session
        assert session.closed

    asyncio.run(run())


def test_a_closed_model_opens_again_when_it_is_asked():
    async def run():
        async with ScriptedProvider(["Yes."], repeat_last=True) as server:
            model = connect("openai", "m", base_url=server.base_url)
            await model.answer(HELLO)
            await model.aclose()
            assert (await model.answer(HELLO)).text == "Yes."
            await model.aclose()

    asyncio.run(run())
