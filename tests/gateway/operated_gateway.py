"""A real gateway with keys, limits, metrics and logs on the loopback, before an upstream that answers as it is told."""

from __future__ import annotations

import contextlib
import io
import json
import re

import aiohttp
import msgspec
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from penstock.config import SecretText
from penstock.gateway.fitting import ConversationFitter
from penstock.gateway.keys import KeyRules, create_key
from penstock.gateway.operations import GatewayOperations
from penstock.gateway.server import Gateway
from penstock.gateway.upstreams import Upstream, Upstreams
from penstock.gateway.workers import Workers
from penstock.providers.address import read_address
from penstock.settings import GatewaySettings, Settings, StoreSettings
from penstock.stores.store import open_store

BODY = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Hello."}]}
USAGE = {"prompt_tokens": 100, "completion_tokens": 11}


class Operated:
    """What a test holds: the gateway's address, a client, its store, what the upstream saw, what was logged."""

    def __init__(self, gateway, operations, store, client, log):
        self.gateway, self.operations, self.store = gateway, operations, store
        self.client, self._log = client, log
        self.seen = []
        self.answer = web.json_response

    def make_key(self, name="test", **rules):
        text = create_key(self.store, name, rules=KeyRules(**rules), now=1.0).text
        self.operations._ring.refresh()
        return text

    async def ask(self, path="/v1/chat/completions", body=BODY, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.post(path, data=json.dumps(body), headers=named) as answer:
            return answer.status, answer.headers.copy(), await answer.text()

    async def look(self, path, method="GET", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.request(method, path, headers=named) as answer:
            return answer.status, await answer.text()

    async def figures(self):
        """The samples of `/metrics`, by name and labels."""
        _, text = await self.look("/metrics")
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def lines(self):
        """What was logged; the log is closed by it."""
        self.operations._log.close()
        return [json.loads(line) for line in self._log.getvalue().splitlines()]


@contextlib.asynccontextmanager
async def operated_gateway(*, upstream_key=None, tracer=None, store_url=None, **settings):
    """Runs one. `upstream_key` is the operator's own for the upstream; `settings` are those of the gateway.

    With the address of a store it has a worker and keeps conversations there; else it passes requests on.
    """
    holder = []

    async def answer(request):
        (operated,) = holder
        body = await request.read()
        operated.seen.append((request.path_qs, request.headers.copy(), body))
        return operated.answer({"model": "gpt-5-mini", "choices": [], "usage": USAGE})

    app = web.Application(client_max_size=1 << 28)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = read_address(f"http://127.0.0.1:{runner.addresses[0][1]}")
    key = SecretText(upstream_key) if upstream_key else None
    upstreams = Upstreams([Upstream(name="up", address=address, key=key)])
    # A worker that has not written its books by then is killed.
    drain_seconds = 30 if store_url else 0.5
    given = msgspec.convert({"port": 0, "drain_seconds": drain_seconds, **settings}, GatewaySettings)
    whole = Settings(gateway=given, store=StoreSettings(url=store_url))
    store, log = open_store(store_url or "memory:"), io.StringIO()
    workers = Workers(whole) if store_url else None
    fitter = None
    if workers is not None:
        await workers.start()
        fitter = ConversationFitter(given, workers)
    try:
        async with (
            GatewayOperations(whole, store, tracer=tracer, log_stream=log) as operations,
            Gateway(upstreams, whole, fitter=fitter, operations=operations) as gateway,
            aiohttp.ClientSession(gateway.address) as client,
        ):
            if workers is not None:
                operations.watch_workers(workers)
            holder.append(Operated(gateway, operations, store, client, log))
            yield holder[0]
    finally:
        if fitter is not None:
            await fitter.aclose()
        await runner.cleanup()
        store.close()


def error_of(text):
    """The error in an answer, in whichever dialect."""
    return json.loads(text)["error"]


def upstream_headers(operated):
    return {name.lower(): value for name, value in operated.seen[-1][1].items()}


def is_moment(text):
    return re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text) is not None
