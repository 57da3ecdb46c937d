"""The usual loops of the official clients, which know nothing of compaction, through a gateway that compacts twice or more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading

import pytest
from examples import anthropic_messages
from tests.gateway.stateless_agent import LISTS, fitted_gateway
from tests.wire.test_sdk_loops import ASKED, DIALECTS, LOOPS, client_of, name_of, read_file, script

from penstock.engine.compressor import ContextCompressor
from penstock.settings import settings_from
from penstock.testing.provider_server import scripted_provider

WINDOW = 8_000
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Address:
    """What `client_of` takes: where a client is led to."""

    def __init__(self, base_url):
        self.base_url = base_url


@contextlib.contextmanager
def running_gateway(provider, tmp_path):
    """A gateway with its own loop in a thread: clients that are not async would stop one of this thread."""
    settings = settings_from(
        {
            "gateway.port": 0,
            "gateway.drain_seconds": 0.5,
            "model.context_length": WINDOW,
            "store.url": f"sqlite:///{tmp_path}/gateway.db",
        }
    )
    ready, ended, found = threading.Event(), threading.Event(), []

    async def serve():
        async with fitted_gateway(provider, settings) as (gateway, _, _):
            found.append(gateway.address)
            ready.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield found[0]
    finally:
        ended.set()
        thread.join(30)


def base_url_for(loop, address):
    return Address(address if loop is anthropic_messages else f"{address}/v1")


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("loop", LOOPS, ids=name_of)
def test_a_loop_that_never_compacts_goes_through_two_compactions(loop, is_async, streaming, tmp_path, capsys):
    never = ContextCompressor(10_000_000)

    async def work(client):
        async with client:
            run = loop.stream_async if streaming else loop.run_async
            return await run(client, never, ASKED, read_file)

    with scripted_provider(script(), window_tokens=WINDOW) as server:
        with running_gateway(server, tmp_path) as address:
            client = client_of(loop, base_url_for(loop, address), is_async=is_async)
            if is_async:
                messages = asyncio.run(work(client))
            else:
                with client:
                    messages = (loop.stream if streaming else loop.run)(client, never, ASKED, read_file)
        received = server.received
    capsys.readouterr()
    assert server.violations == ()
    assert never.compression_count == 0
    assert len(received) == 13
    assert max(one.prompt_tokens for one in received) <= WINDOW
    assert "All parts are read." in json.dumps(messages, default=lambda item: item.model_dump())
    name = LISTS[DIALECTS[loop]]
    handoffs = {_find_handoff(one.body[name]) for one in received} - {""}
    assert len(handoffs) >= 2
    assert "Never change src/part_9.py" in json.dumps(received[-1].body)


def _find_handoff(messages):
    """The text of the handoff in a list of messages; empty where there is none."""
    texts = (json.dumps(message) for message in messages)
    return next((text for text in texts if "<penstock-handoff" in text), "")


def test_a_picture_thinking_and_parallel_calls_survive_two_compactions(tmp_path):
    """The caller's pictures, sealed thoughts and batches of calls: what is sent of them is legal, and none is half there."""
    with scripted_provider(script(parts=14), window_tokens=WINDOW) as server:
        with (
            running_gateway(server, tmp_path) as address,
            client_of(anthropic_messages, Address(address)) as client,
        ):
            image = {"type": "base64", "media_type": "image/png", "data": PIXEL}
            messages = [
                {
                    "role": "user",
                    "content": [{"type": "image", "source": image}, {"type": "text", "text": ASKED}],
                }
            ]
            for _ in range(15):
                answer = client.messages.create(
                    model="scripted-model",
                    max_tokens=500,
                    messages=messages,
                    thinking={"type": "enabled", "budget_tokens": 1_024},
                    tools=[{"name": "read_file", "input_schema": {"type": "object"}}],
                )
                messages.append({"role": "assistant", "content": answer.content})
                calls = [block for block in answer.content if block.type == "tool_use"]
                messages.append(
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": one.id,
                                "content": read_file(one.input["path"]),
                            }
                            for one in calls
                        ]
                        or "And now?",
                    }
                )
        received = server.received
    assert server.violations == ()
    assert len({_find_handoff(one.body["messages"]) for one in received} - {""}) >= 2
    assert max(one.prompt_tokens for one in received) <= WINDOW
    assert any(json.dumps(one.body).count('"thinking"') > 2 for one in received)
