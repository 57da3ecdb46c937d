"""A model of a scripted server, for the tests of the clients."""

import asyncio
import random

import pytest

from penstock.errors import ProviderError
from penstock.measure.usage import Usage
from penstock.providers.connect import ConnectOptions, connect
from penstock.providers.exchange import Ask, Called
from penstock.providers.retries import Pace, RetryPolicy
from penstock.testing.provider_server import ScriptedProvider
from penstock.testing.scripted import Reply

PROVIDERS = ("openai", "responses", "anthropic")
KEY = "made-up-key-of-a-test-0123456789"
HELLO = Ask(messages=[{"role": "user", "content": "Hello?"}])
CALLS = (Called("", "read_file", '{"path": "a.py"}'), Called("", "list", '{"folder": "src", "deep": true}'))
RICH = Reply(
    "Voilà, 漢字 🙂: " * 6,
    reasoning="First I read, then I list. " * 3,
    calls=CALLS,
    usage=Usage(100, 50, 1000, 30, 0, 20),
)


class Clock:
    """Waits that are noted and not waited."""

    def __init__(self):
        self.slept = []

    async def sleep(self, seconds):
        self.slept.append(seconds)
        await asyncio.sleep(0)

    def pace(self):
        return Pace(sleep=self.sleep, rng=random.Random(1))


def model_of(server, provider, clock=None, **given):
    options = ConnectOptions(
        pace=(clock or Clock()).pace(), environ={"TEST_KEY": KEY}, policy=given.pop("policy", RetryPolicy())
    )
    return connect(
        provider, "scripted-model", base_url=server.base_url, api_key_env="TEST_KEY", options=options, **given
    )


def talk(provider, replies, use, clock=None, given=None, **served):
    """What `use` gives for a model of a server with these replies, and the server."""

    async def run():
        async with (
            ScriptedProvider(replies, **served) as server,
            model_of(server, provider, clock, **(given or {})) as model,
        ):
            return await use(model), server

    return asyncio.run(run())


def ask_for(ask):
    return lambda model: model.answer(ask)


def stream_of(ask):
    async def collect(model):
        return [event async for event in model.stream(ask)]

    return collect


def failure_of(use):
    """The ProviderError that `use` ends in."""

    async def run(model):
        with pytest.raises(ProviderError) as caught:
            await use(model)
        return caught.value

    return run
