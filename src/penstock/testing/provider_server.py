"""A provider on the loopback that answers from a script, over real HTTP, in the three dialects.

    with scripted_provider(["Hello."]) as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="any")

One address serves all dialects, with and without `/v1` in front of the route.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Self, Unpack

from aiohttp import web

from penstock.conversation.wire import encode_wire, parse_json
from penstock.testing.provider_wire import stream_frames, wire_named
from penstock.testing.provider_wire.served import CREATED
from penstock.testing.scripted import Failure, Headers
from penstock.testing.stage import Choices, Options, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from penstock.providers.error_answers import ErrorAnswer
    from penstock.testing.provider_wire.served import Served
    from penstock.testing.request_reading import RequestReading
    from penstock.testing.scripted import Breach, Received, Replies

__all__ = ["ScriptedProvider", "scripted_provider"]

_ROUTES = {"/chat/completions": "chat", "/responses": "responses", "/messages": "anthropic"}
_MOST_BYTES = 1 << 30


@contextlib.contextmanager
def scripted_provider(replies: Replies, **options: Unpack[Choices]) -> Iterator[ScriptedProvider]:
    """Runs a provider, for code that is not async. `options` are those of `Options`."""
    with ScriptedProvider(replies, **options) as server:
        yield server


class ScriptedProvider:
    """A provider that answers from a script. `options` are those of `Options`.

    `async with` runs it in the caller's event loop, `with` in a thread of its own.
    """

    def __init__(self, replies: Replies, **options: Unpack[Choices]) -> None:
        self._stage = Stage(replies, Options(**options))
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._thread: threading.Thread | None = None
        self._stop: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._closing = False

    @property
    def base_url(self) -> str:
        """The address, without `/v1`."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def received(self) -> tuple[Received, ...]:
        """Every request so far, in the order of their arrival."""
        return self._stage.received

    @property
    def violations(self) -> tuple[Breach, ...]:
        """Everything that a provider would have refused, and every request that the script had no reply for."""
        return self._stage.violations

    @property
    def disconnects(self) -> int:
        """The number of clients that went away before their answer ended."""
        return self._stage.disconnects

    async def wait_for_disconnects(self, count: int = 1, timeout_seconds: float = 5.0) -> bool:
        """Returns True once that many clients have gone away; a server notices a moment after the client left."""
        for _ in range(max(1, round(timeout_seconds / 0.01))):
            if self.disconnects >= count:
                return True
            await asyncio.sleep(0.01)  # the server may run in another thread, with a loop of its own
        return False

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # Without handler_cancellation nobody would notice a client that goes away before the answer begins.
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._port = runner.addresses[0][1]
        self._runner = runner
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        if self._runner is not None:
            await self._runner.cleanup()

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="scripted-provider", daemon=True
        )
        self._thread.start()
        if not started.wait(timeout=10.0) or self._stop is None:
            raise RuntimeError(
                "the scripted provider did not start within 10 seconds: is the loopback usable?"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stop is not None and self._thread is not None:
            loop, stop = self._stop
            loop.call_soon_threadsafe(stop.set)
            self._thread.join()

    async def _serve(self, started: threading.Event) -> None:
        async with self:
            stop = asyncio.Event()
            self._stop = (asyncio.get_running_loop(), stop)
            started.set()
            await stop.wait()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        route = path.removeprefix("/v1")
        if request.method == "GET" and route == "/models":
            return web.json_response(self._models(Headers(request.headers)))
        counting = route == "/messages/count_tokens"
        dialect = _ROUTES.get(route.removesuffix("/count_tokens") if counting else route)
        raw = await request.read()
        if request.method != "POST" or dialect is None:
            self._stage.note(0, "route", f"there is no {request.method} {path} here")
            return _refuse(Failure(status=404, message=f"no route {path}").answer("chat", 0))
        try:
            body = parse_json(raw)
        except ValueError:
            body = None
        received, reading = self._stage.receive(dialect, path, raw, body, Headers(request.headers))
        failure = self._stage.refuse(received, reading)
        if failure is not None:
            return _refuse(failure.answer(dialect, received.number))
        if counting:
            return web.json_response({"input_tokens": reading.prompt_tokens})
        try:
            return await self._answer(request, received, reading)
        except (asyncio.CancelledError, ConnectionResetError):
            if not self._closing:
                self._stage.left(received.number)
            raise

    async def _answer(
        self, request: web.Request, received: Received, reading: RequestReading
    ) -> web.StreamResponse:
        try:
            reply = self._stage.reply(received)
        except AssertionError as error:
            return _refuse(Failure(message=str(error)).answer(received.dialect, received.number))
        if reply.delay_seconds:
            await asyncio.sleep(reply.delay_seconds)
        if reply.failure is not None:
            return _refuse(reply.failure.answer(received.dialect, received.number))
        if reply.raw is not None:
            raw = reply.raw
            return web.Response(status=raw.status, body=raw.body, headers={"content-type": raw.content_type})
        if reply.cut_after_chunks == 0 and reply.stream_failure is None:
            return _drop(request, web.Response())
        served = self._stage.serve(received, reading, reply)
        if received.streaming:
            return await _stream(request, served, received.dialect)
        return await _whole(request, served, received.dialect)

    def _models(self, headers: Headers) -> dict[str, Any]:
        """Returns the listing, in the shape of the client that asks."""
        options = self._stage.options
        entries: list[dict[str, Any]]
        window = options.window_tokens
        if "anthropic-version" in headers:
            entries = [
                {
                    "type": "model",
                    "id": name,
                    "display_name": name,
                    "created_at": "2025-10-09T08:53:20Z",
                    "lifecycle": "active",
                }
                | ({} if window is None else {"max_input_tokens": window})
                for name in options.models
            ]
            first, last = (options.models[0], options.models[-1]) if options.models else (None, None)
            return {"data": entries, "has_more": False, "first_id": first, "last_id": last}
        entries = [
            {"id": name, "object": "model", "created": CREATED, "owned_by": "scripted"}
            | ({} if window is None else {"context_length": window})
            for name in options.models
        ]
        return {"object": "list", "data": entries}


def _refuse(refused: ErrorAnswer) -> web.Response:
    body = refused.body
    if isinstance(body, str | bytes):
        data = body.encode() if isinstance(body, str) else body
        kind = "text/plain"
    else:
        data, kind = encode_wire(body), "application/json"
    return web.Response(status=refused.status, body=data, headers={"content-type": kind, **refused.headers})


async def _whole(request: web.Request, served: Served, dialect: str) -> web.StreamResponse:
    data = encode_wire(wire_named(dialect).body(served))
    headers = {"content-type": "application/json", **_request_id(served, dialect)}
    if served.reply.cut_after_chunks is None:
        return web.Response(body=data, headers=headers)
    response = web.StreamResponse(headers=headers)
    response.content_length = len(data)
    await response.prepare(request)
    await response.write(data[: len(data) // 2])
    return _drop(request, response)


async def _stream(request: web.Request, served: Served, dialect: str) -> web.StreamResponse:
    headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
    response = web.StreamResponse(headers=headers | _request_id(served, dialect))
    await response.prepare(request)
    reply = served.reply
    for position, frame in enumerate(stream_frames(served, dialect)):
        if position and reply.chunk_delay_seconds:
            await asyncio.sleep(reply.chunk_delay_seconds)
        await response.write(frame.encode())
    if reply.cut_after_chunks is not None and reply.stream_failure is None:
        return _drop(request, response)
    await response.write_eof()
    return response


def _drop(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Closes the connection with the answer unfinished. What was written still arrives."""
    if request.transport is not None:
        request.transport.close()
    return response


def _request_id(served: Served, dialect: str) -> dict[str, str]:
    name = "request-id" if dialect == "anthropic" else "x-request-id"
    return {name: f"req_scripted{served.number:04}"}
