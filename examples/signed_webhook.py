"""A webhook in and out, both signed: a service posts what a person said, and is posted the answer.

    WEBHOOK_SECRET=… ANSWER_URL=https://shop.example/answers PENSTOCK_URL=http://127.0.0.1:8787 python -m examples.signed_webhook

A body is `{"id": "…", "conversation": "…", "text": "…"}`, and `x-signature` is `t=SECONDS,v1=HEX`: HMAC-SHA256 of the
seconds, a dot and the body, by the shared secret. It is answered with 202 at once. The answer comes to ANSWER_URL, signed in
the same way, with the id of what it answers. A delivery that comes again is answered again, with the same words: send again
what was not answered, for what is under way when the process ends is not kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
import time
from typing import Any

import aiohttp
from aiohttp import web

log = logging.getLogger(__name__)
FRESH_SECONDS = 300.0  # an older signature may have been recorded by somebody else
TRIES, PAUSE_SECONDS = 20, 2.0
BUSY = {429, 503}


def sign(secret: bytes, body: bytes, now: float) -> str:
    """Returns the header for a body."""
    moment = str(int(now))
    digest = hmac.new(secret, moment.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


def is_signed(secret: bytes, body: bytes, header: str, now: float) -> bool:
    """Returns True for a header that somebody made who has the secret, and not long ago."""
    moment = header.partition(",")[0].removeprefix("t=")
    if not (moment.isascii() and moment.isdigit()) or abs(now - int(moment)) > FRESH_SECONDS:
        return False
    return hmac.compare_digest(sign(secret, body, float(moment)).encode(), header.encode())


class Webhook:
    """Takes deliveries in, has them answered, and delivers the answers."""

    def __init__(
        self, http: aiohttp.ClientSession, penstock: str, answers: str, secret: bytes, model: str
    ) -> None:
        self.http, self.penstock, self.answers = http, penstock, answers
        self.secret, self.model = secret, model
        self._running: set[asyncio.Task[None]] = set()

    async def take(self, request: web.Request) -> web.Response:
        """Answers 202 to what is signed, and goes on beside it."""
        body = await request.read()
        if not is_signed(self.secret, body, request.headers.get("x-signature", ""), time.time()):
            return web.Response(status=401, text="the signature is missing, wrong or too old\n")
        task = asyncio.create_task(self.answer(json.loads(body)))
        self._running.add(task)
        task.add_done_callback(self._end)
        return web.Response(status=202)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a delivery could not be answered; it can be sent again", exc_info=task.exception())

    async def answer(self, said: dict[str, str]) -> None:
        """Has one delivery answered, and delivers the answer."""
        opened = await self._ask("/sessions", {"model": self.model}, f"conversation-{said['conversation']}")
        path = f"/sessions/{opened['id']}/messages"
        reply = await self._ask(path, {"text": said["text"]}, f"delivery-{said['id']}")
        body = json.dumps({"answers": said["id"], "text": reply["text"]}).encode()
        await self._post(self.answers, body)

    async def _ask(self, path: str, body: Any, key: str) -> Any:
        return json.loads(await self._post(self.penstock + path, json.dumps(body).encode(), key))

    async def _post(self, url: str, body: bytes, key: str = "") -> bytes:
        """Returns the answer; what cannot be served at the moment is sent again, when `Retry-After` says or a little later."""
        tries_left = TRIES
        while True:
            tries_left -= 1
            now = time.time()  # a signature that waited with its body would be too old
            named = {"idempotency-key": key} if key else {"x-signature": sign(self.secret, body, now)}
            headers = {"content-type": "application/json", **named}
            try:
                async with self.http.post(url, data=body, headers=headers) as answer:
                    pause = answer.headers.get("retry-after", "")
                    if not (tries_left and (pause or answer.status in BUSY)):
                        answer.raise_for_status()
                        return await answer.read()
            except aiohttp.ClientConnectionError:
                if not tries_left:
                    raise
                pause = ""
            await asyncio.sleep(min(int(pause), 60) if pause.isdigit() else PAUSE_SECONDS)


async def main() -> None:
    """Serves on port 8788 as the environment says."""
    given = os.environ
    async with aiohttp.ClientSession() as http:
        secret, model = given["WEBHOOK_SECRET"].encode(), given.get("MODEL", "gpt-5-mini")
        hook = Webhook(http, given["PENSTOCK_URL"], given["ANSWER_URL"], secret, model)
        app = web.Application()
        app.router.add_post("/messages", hook.take)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 8788).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
