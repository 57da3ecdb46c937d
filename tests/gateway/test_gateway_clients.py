"""The official clients through the gateway: what they get is what the provider says, and what it gets is what they send."""

import asyncio
import json
import threading

import anthropic
import openai
import pytest
from gateway_stage import HELLO, KEY, gateway_to, scripted

from penstock.measure.usage import Usage
from penstock.providers.exchange import Called
from penstock.testing.provider_server import scripted_provider
from penstock.testing.scripted import Reply

CALLS = (Called("call_1", "read_file", '{"path": "a.py"}'), Called("call_2", "list", '{"folder": "src"}'))
RICH = Reply(
    "Voilà, 漢字 🙂: " * 6, reasoning="First I read. " * 3, calls=CALLS, usage=Usage(100, 50, 1000, 30, 0, 20)
)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


def run(work):
    return asyncio.run(work)


def test_chat_whole_streamed_with_tools_and_an_image():
    async def talk():
        async with (
            scripted(lambda _: RICH) as (gateway, provider),
            openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=KEY, max_retries=0) as client,
        ):
            asked = {
                "model": "m",
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "What is it?"},
                            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                        ],
                    }
                ],
                "tools": [{"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}],
            }
            answer = await client.chat.completions.create(**asked)
            assert answer.choices[0].message.content == RICH.text
            assert [call.function.name for call in answer.choices[0].message.tool_calls] == [
                "read_file",
                "list",
            ]
            assert answer.usage.prompt_tokens == 1130
            pieces = await client.chat.completions.create(
                **asked, stream=True, stream_options={"include_usage": True}
            )
            text = ""
            async for piece in pieces:
                text += (piece.choices and piece.choices[0].delta.content) or ""
                last = piece
            assert text == RICH.text
            assert last.usage.prompt_tokens == 1130
            assert [one.headers["authorization"] for one in provider.received] == [f"Bearer {KEY}"] * 2
            assert not provider.violations

    run(talk())


def test_responses_whole_and_streamed():
    async def talk():
        async with (
            scripted(lambda _: RICH) as (gateway, provider),
            openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=KEY, max_retries=0) as client,
        ):
            answer = await client.responses.create(model="m", input="Hello?", reasoning={"effort": "low"})
            assert answer.output_text == RICH.text
            types = [
                event.type
                async for event in await client.responses.create(model="m", input="Hello?", stream=True)
            ]
            assert types[0] == "response.created"
            assert types[-1] == "response.completed"
            assert not provider.violations

    run(talk())


def test_messages_whole_streamed_counted_and_with_thinking():
    async def talk():
        async with (
            scripted(lambda _: RICH) as (gateway, provider),
            anthropic.AsyncAnthropic(base_url=gateway.address, api_key=KEY, max_retries=0) as client,
        ):
            asked = {
                "model": "m",
                "max_tokens": 4_096,
                "thinking": {"type": "enabled", "budget_tokens": 1_024},
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                            },
                            {"type": "text", "text": "What is it?", "cache_control": {"type": "ephemeral"}},
                        ],
                    }
                ],
                "tools": [{"name": "read_file", "input_schema": SCHEMA}],
            }
            answer = await client.messages.create(**asked)
            assert [block.type for block in answer.content] == ["thinking", "text", "tool_use", "tool_use"]
            async with client.messages.stream(**asked) as stream:
                final = await stream.get_final_message()
            assert [block.type for block in final.content] == ["thinking", "text", "tool_use", "tool_use"]
            assert final.usage.cache_read_input_tokens == 1000
            beta = await client.beta.messages.create(
                model="m", max_tokens=10, messages=HELLO, betas=["context-1m-2025-08-07"]
            )
            assert beta.usage.input_tokens == 100
            assert "context-1m" in provider.received[-1].headers["anthropic-beta"]
            counted = await client.messages.count_tokens(model="m", messages=HELLO)
            assert counted.input_tokens > 0
            assert not provider.violations

    run(talk())


def test_both_clients_list_models():
    async def talk():
        async with (
            scripted([], served={"models": ("a", "b")}) as (gateway, _),
            openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=KEY) as client,
            anthropic.AsyncAnthropic(base_url=gateway.address, api_key=KEY) as other,
        ):
            assert [model.id async for model in client.models.list()] == ["a", "b"]
            assert [model.id async for model in other.models.list()] == ["a", "b"]

    run(talk())


def test_clients_that_are_not_async_and_a_base_path():
    """The gateway runs in a thread of its own, as it would in another process."""
    address, ready, stop = [], threading.Event(), []

    async def serve(url):
        stop.append((asyncio.get_running_loop(), asyncio.Event()))
        async with gateway_to(url) as gateway:
            address.append(gateway.address)
            ready.set()
            await stop[0][1].wait()

    with scripted_provider(lambda _: RICH) as provider:
        thread = threading.Thread(target=lambda: asyncio.run(serve(provider.base_url)), daemon=True)
        thread.start()
        try:
            assert ready.wait(60)
            with openai.OpenAI(base_url=f"{address[0]}/some/where/v1", api_key=KEY) as client:
                answer = client.chat.completions.create(model="m", messages=HELLO)
                assert answer.choices[0].message.content == RICH.text
                stream = client.chat.completions.create(model="m", messages=HELLO, stream=True)
                assert "".join(p.choices[0].delta.content or "" for p in stream if p.choices) == RICH.text
            with anthropic.Anthropic(base_url=f"{address[0]}/some/where", api_key=KEY) as client:
                assert (
                    client.messages.create(model="m", max_tokens=9, messages=HELLO).content[1].text
                    == RICH.text
                )
        finally:
            loop, event = stop[0]
            loop.call_soon_threadsafe(event.set)
            thread.join(60)
        assert [one.path for one in provider.received] == ["/v1/chat/completions"] * 2 + ["/v1/messages"]


@pytest.mark.parametrize("base", ["", "/v1"])
def test_parallel_calls_each_get_their_own_answer(base):
    async def talk():
        def echo(received):
            return json.loads(received.raw)["messages"][0]["content"]

        async with (
            scripted(echo) as (gateway, _),
            openai.AsyncOpenAI(base_url=f"{gateway.address}{base}", api_key=KEY, max_retries=0) as client,
        ):

            async def ask(number):
                answer = await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": f"number {number}"}]
                )
                return answer.choices[0].message.content

            assert await asyncio.gather(*map(ask, range(24))) == [f"number {n}" for n in range(24)]

    run(talk())
