"""The clients against a real server with a real model: llama.cpp speaks all three dialects."""

import asyncio
import time

import pytest

from penstock.errors import ErrorKind, ProviderError
from penstock.providers.connect import connect
from penstock.providers.exchange import Answered, Ask, Finish, TextDelta

PROVIDERS = ("llamacpp", "openai", "responses", "anthropic")
HELLO = Ask(
    messages=[{"role": "user", "content": "Say hello."}],
    system="Be brief.",
    max_output_tokens=8,
    extra={"temperature": 0},
)


def use(server, provider, work):
    async def run():
        async with connect(provider, server.model, base_url=server.base_url) as model:
            return await work(model)

    return asyncio.run(run())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_it_answers_whole_and_streamed(local_model, provider):
    async def work(model):
        return await model.answer(HELLO), [event async for event in model.stream(HELLO)]

    whole, (*deltas, last) = use(local_model, provider, work)
    assert whole.text
    assert whole.finish is Finish.LENGTH
    assert whole.usage.output_tokens == 8
    assert whole.usage.prompt_tokens > 5
    assert isinstance(last, Answered)
    assert len(deltas) > 3
    assert "".join(event.text for event in deltas if isinstance(event, TextDelta)) == last.answer.text
    assert last.answer.usage.prompt_tokens == whole.usage.prompt_tokens


@pytest.mark.parametrize("provider", PROVIDERS)
def test_it_states_its_window_and_refuses_what_does_not_fit(local_model, provider):
    async def work(model):
        with pytest.raises(ProviderError) as caught:
            await model.answer(
                Ask(
                    messages=[{"role": "user", "content": "word " * (local_model.context_tokens + 100)}],
                    max_output_tokens=4,
                )
            )
        return await model.window_tokens(), caught.value

    window, error = use(local_model, provider, work)
    assert window == local_model.context_tokens
    assert error.failure.kind is ErrorKind.PROMPT_TOO_LONG
    assert error.failure.window_tokens == local_model.context_tokens


def test_a_cancelled_answer_stops_the_model(local_model):
    async def work(model):
        story = Ask(messages=[{"role": "user", "content": "Tell a long story."}], max_output_tokens=400)
        task = asyncio.create_task(model.answer(story))
        await asyncio.sleep(0.2)
        task.cancel()
        started = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - started, await model.answer(HELLO)

    seconds, after = use(local_model, "openai", work)
    assert seconds < 5  # the story takes longer
    assert after.text
