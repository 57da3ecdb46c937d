"""A gateway with hosted conversations before a scripted provider, and a client that speaks its API."""

from __future__ import annotations

import asyncio
import contextlib
import json

import aiohttp
import msgspec

from penstock.config import SecretText
from penstock.gateway.hosted import HostedSessions
from penstock.gateway.keys import KeyRules, create_key
from penstock.gateway.operations import GatewayOperations
from penstock.gateway.server import Gateway
from penstock.gateway.upstreams import Upstream, Upstreams
from penstock.providers.address import read_address
from penstock.settings import CompressionSettings, GatewaySettings, ModelSettings, Settings
from penstock.stores.store import open_store
from penstock.testing.provider_server import ScriptedProvider

WAIT = 20.0  # seconds, for what takes a fraction of one


class HostedClient:
    """Asks one gateway. `key` is one of its own."""

    def __init__(self, http, key=""):
        self.http, self.key = http, key

    def _headers(self, more):
        return {**({"x-penstock-key": self.key} if self.key else {}), **more}

    async def ask(self, method, path, body=None, **headers):
        """Status and JSON of an answer."""
        data = None if body is None else json.dumps(body)
        named = self._headers({name.replace("_", "-"): value for name, value in headers.items()})
        async with self.http.request(method, path, data=data, headers=named) as answer:
            text = await answer.text()
            self.headers = answer.headers
            return answer.status, json.loads(
                text
            ) if text and answer.content_type == "application/json" else text

    async def get(self, path, **headers):
        return await self.ask("GET", path, **headers)

    async def post(self, path, body=None, **headers):
        return await self.ask("POST", path, {} if body is None else body, **headers)

    async def open(self, **body):
        status, made = await self.post("/sessions", {"model": "gpt-5-mini", **body})
        assert status == 201, made
        return made["id"]

    async def say(self, session, text=None, **more):
        """The reply to a message that is answered."""
        body = {key: value for key, value in more.items() if not key.startswith("h_")}
        headers = {key[2:]: value for key, value in more.items() if key.startswith("h_")}
        if text is not None:
            body["text"] = text
        status, reply = await self.post(f"/sessions/{session}/messages", body, **headers)
        assert status == 200, reply
        return reply

    async def stream(self, session, text, **headers):
        """Yields the events of a streamed reply, as (name, data)."""
        named = self._headers({"accept": "text/event-stream", **headers})
        body = json.dumps({"text": text})
        async with self.http.post(f"/sessions/{session}/messages", data=body, headers=named) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            name = ""
            async for line in answer.content:
                text = line.decode().rstrip("\n")
                if text.startswith("event: "):
                    name = text[7:]
                elif text.startswith("data: "):
                    yield name, json.loads(text[6:])


class Hosted:
    """What a test holds: the gateway and its store, the provider, clients."""

    def __init__(self, gateway, sessions, operations, store, provider, http):
        self.gateway, self.sessions, self.operations = gateway, sessions, operations
        self.store, self.provider, self._http = store, provider, http
        self.client = HostedClient(http)

    def client_with_key(self, name="test", **rules):
        text = create_key(self.store, name, rules=KeyRules(**rules), now=1.0).text
        self.operations._ring.refresh()
        return HostedClient(self._http, text)


def hosted_settings(window=None, compression=None, model=None, **gateway):
    given = msgspec.convert(
        {"port": 0, "drain_seconds": 5.0, "request_log": False, **gateway}, GatewaySettings
    )
    return Settings(
        gateway=given,
        model=ModelSettings(name=model, context_length=window),
        compression=CompressionSettings(**(compression or {})),
    )


@contextlib.asynccontextmanager
async def instance(provider, store, settings):
    """One instance of a gateway over a store."""
    upstream = Upstream(
        name="up", address=read_address(provider.base_url), key=SecretText("key-of-the-upstream")
    )
    upstreams = Upstreams([upstream])
    async with (
        GatewayOperations(settings, store) as operations,
        HostedSessions(settings, store, upstreams) as sessions,
        Gateway(upstreams, settings, operations=operations, hosted=sessions) as gateway,
        aiohttp.ClientSession(gateway.address, timeout=aiohttp.ClientTimeout(total=60)) as http,
    ):
        yield Hosted(gateway, sessions, operations, store, provider, http)


@contextlib.asynccontextmanager
async def hosted_gateway(
    replies, *, store_url="memory:", window=None, compression=None, model=None, served=None, **gateway
):
    """Runs one before a provider that answers with `replies`."""
    settings = hosted_settings(window, compression, model, **gateway)
    store = open_store(store_url)
    try:
        async with (
            ScriptedProvider(replies, **(served or {})) as provider,
            instance(provider, store, settings) as hosted,
        ):
            yield hosted
            assert provider.violations == ()
    finally:
        store.close()


def run(work):
    """Runs a test that is a coroutine."""
    asyncio.run(asyncio.wait_for(work, 120))


def run_for(work, seconds):
    """As `run`, for what takes longer."""
    asyncio.run(asyncio.wait_for(work, seconds))
