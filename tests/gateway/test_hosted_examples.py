"""The bridges among the examples: a bot of a messenger, and signed webhooks, against a real gateway."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from examples.messenger_bot import Bot
from examples.signed_webhook import Webhook, is_signed, sign
from hosted_stage import WAIT, hosted_gateway, run
from test_hosted_turns import answer_by_what_was_asked


class Server:
    """Serves one app on the loopback."""

    def __init__(self, **handlers):
        self._app = web.Application()
        for name, handler in handlers.items():
            self._app.router.add_post(f"/{name}", handler)

    async def __aenter__(self):
        self._runner = web.AppRunner(self._app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()


class Moody:
    """Before a gateway, as a load balancer is: answers each request with these statuses first, and only then passes it on."""

    def __init__(self, http, gateway, *statuses):
        self._http, self._gateway, self._statuses = http, gateway, statuses
        self._asked = {}

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _answer(self, request):
        left = self._asked.setdefault(request.headers["idempotency-key"], list(self._statuses))
        if left:
            return web.Response(status=left.pop(0), headers={"retry-after": "0"})
        body, headers = await request.read(), {"idempotency-key": request.headers["idempotency-key"]}
        async with self._http.post(self._gateway + request.path, data=body, headers=headers) as answer:
            return web.Response(
                status=answer.status, body=await answer.read(), content_type="application/json"
            )


class Messenger:
    """Hands out updates, the first ones twice, as after a lost answer, and takes messages."""

    def __init__(self, batches, awaited):
        self.batches, self.awaited = batches, awaited
        self.sent = {}
        self.done = asyncio.Event()

    async def get_updates(self, _request):
        if not self.batches:
            await self.done.wait()
            return web.json_response({"ok": True, "result": []})
        return web.json_response({"ok": True, "result": self.batches.pop(0)})

    async def send_message(self, request):
        body = await request.json()
        self.sent.setdefault(body["chat_id"], []).append(body["text"])
        if sum(map(len, self.sent.values())) == self.awaited:
            self.done.set()
        return web.json_response({"ok": True})


def update(number, chat, text):
    return {"update_id": number, "message": {"chat": {"id": chat}, "text": text}}


def test_a_bot_answers_each_chat_in_order_and_each_update_once():
    async def talk():
        others = [
            {"update_id": 0, "edited_message": {}},
            {"update_id": 0, "message": {"chat": {"id": 7}, "photo": []}},
        ]
        first = [update(1, 7, "I am Ann."), *others, update(2, 8, "I am Ben."), update(3, 7, "/usage")]
        messenger = Messenger([first, first, [update(4, 7, "And who am I?")]], awaited=7)
        async with (
            hosted_gateway(answer_by_what_was_asked) as hosted,
            Server(getUpdates=messenger.get_updates, sendMessage=messenger.send_message) as server,
            aiohttp.ClientSession() as http,
            Moody(http, hosted.gateway.address, 409, 429, 503) as moody,
        ):
            bot = Bot(http, server.url, moody.url, "gpt-5-mini")
            running = asyncio.create_task(bot.run())
            await asyncio.wait_for(messenger.done.wait(), WAIT)
            running.cancel()
            await asyncio.wait([running])
            assert messenger.sent[8] == ["You said: I am Ben."] * 2  # told again, asked once
            assert messenger.sent[7][0] == "You said: I am Ann."
            assert messenger.sent[7][1].startswith("1 request, ")
            assert messenger.sent[7][-1] == "You said: And who am I?"
            assert len(hosted.provider.received) == 3
            assert "I am Ann." in hosted.provider.received[-1].text
            assert "I am Ben." not in hosted.provider.received[-1].text
            assert len((await hosted.client.get("/sessions"))[1]["data"]) == 2

    run(talk())


def test_the_bot_is_short():
    lines = Path(__file__).parents[2].joinpath("examples", "messenger_bot.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) < 60


def test_a_webhook_takes_what_is_signed_and_signs_what_it_gives():
    async def talk():
        secret, came, delivered, busy = b"made-up-secret-of-a-test", [], asyncio.Event(), True

        async def take_answer(request):
            nonlocal busy
            body = await request.read()
            if busy:
                busy = False
                return web.Response(status=503, headers={"retry-after": "0"})
            came.append(
                (json.loads(body), is_signed(secret, body, request.headers["x-signature"], time.time()))
            )
            if len(came) == 2:
                delivered.set()
            return web.Response()

        async with (
            hosted_gateway(answer_by_what_was_asked) as hosted,
            Server(answers=take_answer) as shop,
            aiohttp.ClientSession() as http,
            Moody(http, hosted.gateway.address, 409, 429, 503) as moody,
        ):
            hook = Webhook(http, moody.url, f"{shop.url}/answers", secret, "gpt-5-mini")
            async with Server(messages=hook.take) as door:
                body = json.dumps({"id": "d-1", "conversation": "c-1", "text": "Is it open?"}).encode()
                now = time.time()
                for header, status in (
                    (sign(secret, body, now), 202),
                    (sign(secret, body, now), 202),  # delivered again
                    (sign(b"another secret", body, now), 401),
                    (sign(secret, b"another body", now), 401),
                    (sign(secret, body, now - 3_600), 401),
                    (sign(secret, body, now).replace("v1=", "v1=0"), 401),
                    ("", 401),
                    ("t=x,v1=y", 401),
                ):
                    sent = {"x-signature": header} if header else {}
                    async with http.post(f"{door.url}/messages", data=body, headers=sent) as answer:
                        assert answer.status == status, header
                await asyncio.wait_for(delivered.wait(), WAIT)
            assert came == [({"answers": "d-1", "text": "You said: Is it open?"}, True)] * 2
            assert len(hosted.provider.received) == 1

    run(talk())


def test_nobody_is_asked_again_for_ever(monkeypatch):
    async def talk():
        monkeypatch.setattr("examples.messenger_bot.TRIES", 3)
        monkeypatch.setattr("examples.signed_webhook.TRIES", 3)
        async with (
            aiohttp.ClientSession() as http,
            Moody(http, "http://127.0.0.1:9", *[503] * 9) as moody,
        ):
            bot = Bot(http, moody.url, moody.url, "gpt-5-mini")
            hook = Webhook(http, moody.url, moody.url, b"made-up", "gpt-5-mini")
            for asked in (
                bot.answer(1, []),
                hook.answer({"id": "d", "conversation": "c", "text": "t"}),
            ):
                with pytest.raises(aiohttp.ClientResponseError):
                    await asked
            assert [len(left) for left in moody._asked.values()] == [6, 6]

    run(talk())
