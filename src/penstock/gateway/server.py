"""The gateway's HTTP server: reads requests, admits callers, and hands their requests to the relay.

It answers under any base path: `/v1/messages`, `/x/y/v1/messages`, and `/messages` for clients with a base URL that lacks
`/v1`. It passes unknown paths under `/v1` on unchanged; for all other paths it answers 404 at once.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from aiohttp import web

from penstock._log import log
from penstock.errors import ErrorKind, InputError, ProviderError, SettingsError
from penstock.gateway.callers import AnyCaller, Refused, ServedRequest
from penstock.gateway.exchange import Incoming, PassThrough
from penstock.gateway.headers import LONGEST_LINE_BYTES, copy_request_headers
from penstock.gateway.joining import read_run
from penstock.gateway.named_models import list_models_named, names_several
from penstock.gateway.refusals import answer_error
from penstock.gateway.relay import Relay, RelayRequest, answer_unanswered, drop_caller
from penstock.gateway.requests import (
    RouteKind,
    read_credential,
    read_envelope,
    read_hints,
    read_route,
    read_wishes,
    stricter_store,
    tells_compaction,
)
from penstock.gateway.running import LARGE_BYTES, give_memory_back
from penstock.gateway.upstream_client import BodyStream
from penstock.gateway.upstreams import list_models
from penstock.providers.address import is_loopback
from penstock.web.door import name_of_host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable
    from types import TracebackType

    from penstock.gateway.callers import Caller, Operations
    from penstock.gateway.exchange import Fitter, WireDialect
    from penstock.gateway.hosted import HostedSessions
    from penstock.gateway.requests import Route
    from penstock.gateway.upstreams import Upstream, Upstreams
    from penstock.settings import Settings

__all__ = ["Gateway"]

_SEND_SECONDS: Final = 30.0  # between two pieces of a body
_BODY_SECONDS: Final = 300.0  # for the whole body
_KEPT_ALIVE_SECONDS: Final = 75.0  # also the limit for the headers of a request
_GIVEN_BACK_SECONDS: Final = 2.0  # after a large request
_HEADERS: Final = 200
_BUFFER_BYTES: Final = 1 << 20
# An upstream that obeys shows the caller the key that it was given.
_ECHOING: Final = frozenset({"TRACE", "TRACK", "CONNECT"})
_WITH_MESSAGES: Final = frozenset({RouteKind.CONVERSATION, RouteKind.COUNT, RouteKind.COMPACTION})
_UNPACKED: Final = frozenset({"", "identity"})

# aiohttp would log the text of malformed requests, including their headers.
_SILENT: Final = logging.getLogger("penstock.gateway.http")
_SILENT.setLevel(logging.CRITICAL + 1)


class Gateway:
    """The server. `async with` makes it listen, at `address`.

    `fitter` keeps conversations inside their window, `operations` admits and observes callers, `hosted` serves the
    conversations that live here. The server closes none of them.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        settings: Settings,
        *,
        fitter: Fitter | None = None,
        operations: Operations | None = None,
        hosted: HostedSessions | None = None,
    ) -> None:
        self._upstreams = upstreams
        self._hosted = hosted
        self._settings = settings.gateway
        self._operations: Operations = operations or AnyCaller()
        self._relay = Relay(
            upstreams,
            fitter or PassThrough(),
            settings.gateway,
            max_attempts=settings.compression.max_attempts,
        )
        self._most_bytes = settings.gateway.max_body_mb << 20
        self._passes_credential = settings.gateway.summarise == "same"
        self._hosts = _Hosts(settings.gateway.host, settings.gateway.allowed_hosts or ())
        process = secrets.token_hex(4)
        self._ids = (f"{process}{number:08x}" for number in itertools.count(1))
        self._runner: web.ServerRunner | None = None
        self._giving_back: asyncio.TimerHandle | None = None
        self._port = 0

    @property
    def address(self) -> str:
        """The address at which it listens, as a URL without a path."""
        host = self._settings.host
        shown = "127.0.0.1" if host in {"0.0.0.0", ""} else "::1" if host == "::" else host  # noqa: S104
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self._port}"

    async def __aenter__(self) -> Self:
        """Starts to listen. Raises OSError if the address cannot be used, SettingsError if it is that of an upstream."""
        server = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            logger=_SILENT,
            keepalive_timeout=_KEPT_ALIVE_SECONDS,
            max_line_size=LONGEST_LINE_BYTES,
            max_field_size=LONGEST_LINE_BYTES,
            max_headers=_HEADERS,
            read_bufsize=_BUFFER_BYTES,
            auto_decompress=False,  # relayed bodies stay as they came
        )
        await self._relay.__aenter__()
        runner = web.ServerRunner(server, shutdown_timeout=self._settings.drain_seconds)
        await runner.setup()
        try:
            site = web.TCPSite(
                runner,
                self._settings.host,
                self._settings.port,
                backlog=1_024,
                reuse_port=self._settings.processes > 1 or None,
            )
            await site.start()
            self._port = runner.addresses[0][1]
            self._require_others()
        except (OSError, SettingsError):
            await self._close(runner)
            raise
        self._runner = runner
        return self

    def _require_others(self) -> None:
        """Raises SettingsError if an upstream is this very gateway: requests would go in a circle."""
        own = self._settings.host
        anywhere = own in {"0.0.0.0", "::", "", "localhost"}  # noqa: S104 - it is compared, not bound
        for upstream in self._upstreams:
            address = upstream.address
            same = address.hostname == own or (
                address.loopback and (anywhere or address.hostname == "localhost")
            )
            if same and urlsplit(address.base_url).port == self._port:
                raise SettingsError(
                    f"the gateway would be its own upstream: {upstream.address.base_url} is its address; name the API "
                    "behind it, or another port (--port)"
                )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops listening, waits for running requests, for `gateway.drain_seconds` at most, and closes."""
        self._operations.drain()
        if self._runner is not None:
            await self._close(self._runner)

    async def _close(self, runner: web.ServerRunner) -> None:
        if self._giving_back is not None:
            self._giving_back.cancel()
        await runner.cleanup()
        await self._relay.__aexit__()

    # A request from start to end.

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        served = ServedRequest(next(self._ids), request.method, loop.time())
        try:
            response = await self._answer(request, served)
        except Refused as refused:
            served.status = refused.status
            response = answer_error(
                str(refused),
                served.dialect,
                status=refused.status,
                kind=refused.kind,
                request_id=served.id,
                headers=refused.headers,
            )
        except ProviderError as error:
            served.failure = error.failure
            response = answer_unanswered(error, served.dialect, served)
        except (asyncio.CancelledError, ConnectionError):
            if not served.complete:
                served.cut_off = served.cut_off or "client"
            raise
        except Exception as error:  # noqa: BLE001 - the entry of the server: a fault is one request's, and is told
            response = self._tell_fault(error, served)
            if request.writer.output_size:  # its answer has begun, and no other can follow
                drop_caller(request)
                raise ConnectionResetError from None
        finally:
            served.ended_at = loop.time()
            if served.route:
                loop.call_soon(self._operations.observe, served)  # once the answer has gone out
            if served.bytes_in > LARGE_BYTES and self._giving_back is None:
                self._giving_back = loop.call_later(_GIVEN_BACK_SECONDS, self._give_memory_back)
        return response

    def _give_memory_back(self) -> None:
        self._giving_back = None
        asyncio.get_running_loop().run_in_executor(None, give_memory_back)

    async def _answer(self, request: web.BaseRequest, served: ServedRequest) -> web.StreamResponse:
        self._hosts.check(request)
        path, _, query = request.raw_path.partition("?")
        own = self._operations.routes.get(path)
        if own is not None:
            return await own(request)
        if self._hosted is not None and self._hosted.serves(path):
            return await self._hosted.answer(request, served, self._operations, self._read_body)
        pages = self._operations.pages
        if pages is not None and pages.serves(path):
            return await pages.answer(request)
        route = read_route(path)
        if route is None:
            return _answer_outside(request, path)
        served.run = read_run(path)
        served.route = route.path if route.kind is not RouteKind.OTHER else "other"
        served.dialect = route.dialect or _guess_dialect(request, route.path)
        if request.method in _ECHOING:
            raise Refused(f"{request.method} is not served here", status=405, headers={"allow": "GET, POST"})
        if request.headers.get("upgrade", "").lower() == "websocket":  # others may be ignored, such as h2c
            raise Refused("WebSockets are not served here: send the request with POST", status=426)
        caller = served.caller = await self._operations.authorise(request, served)
        arrival = _Arrival(request, route, query, served, caller)
        if request.method == "POST" and route.kind in _WITH_MESSAGES and route.dialect:
            return await self._converse(arrival, route.dialect)
        if (
            request.method == "GET"
            and route.kind is RouteKind.MODELS
            and (self._upstreams.need_models or caller.models)
        ):
            asked = arrival.ask(self._upstreams.choose_for_other(served.dialect, ""), reads_answer=True)
            return await list_models(self._relay, self._upstreams, asked, caller)
        return await self._pass_on(arrival)

    async def _converse(self, arrival: _Arrival, dialect: WireDialect) -> web.StreamResponse:
        request, caller = arrival.request, arrival.caller
        body = await self._read_body(request)
        arrival.served.bytes_in = len(body)
        packing = request.headers.get("content-encoding", "").strip().lower()
        if packing not in _UNPACKED:
            body = _unpack(body, packing, self._most_bytes)
        asked = arrival.ask(self._choose(dialect, body, arrival), reads_answer=True)
        session, agent = read_hints(request.headers)
        upstream = asked.upstreams[0]
        incoming = Incoming(
            dialect=dialect,
            body=body,
            owner=caller.owner,
            endpoint=upstream.address.base_url,
            credential=self._credential_for(request, upstream, caller),
            session_hint=asked.wishes.session or session,
            agent_hint=agent,
            target_tokens=asked.wishes.target_tokens,
            focus=asked.wishes.focus,
            store=stricter_store(self._settings.store, caller.store, asked.wishes.store),
            counts_only=arrival.route.kind is RouteKind.COUNT,
            compacts_only=arrival.route.kind is RouteKind.COMPACTION,
            summarises=dialect == "responses" and tells_compaction(request.headers),
            opens_only=asked.wishes.open,
        )
        return await self._relay.converse(request, asked, incoming)

    async def _pass_on(self, arrival: _Arrival) -> web.StreamResponse:
        request, caller, path = arrival.request, arrival.caller, arrival.route.path
        body: bytes | None = None
        model = unquote(path.removeprefix("/models/")) if path.startswith("/models/") else ""
        if caller.models and model:
            _require_allowed(caller, [model])
        if caller.models and request.body_exists:
            body = await self._read_body(request)
            _require_allowed(
                caller, list_models_named(body, request.headers.get("content-type", "")) if body else []
            )
            model = read_envelope(body).model_name
        elif self._upstreams.need_models and _is_json(request):
            body = await self._read_body(request)
            model = read_envelope(body).model_name
        elif request.content_length is not None and request.content_length > self._most_bytes:
            raise self._too_large()
        asked = arrival.ask(self._upstreams.choose_for_other(arrival.served.dialect, model))
        sent: bytes | BodyStream | None = body
        if body is None and request.body_exists:
            await _continue(request)
            sent = BodyStream(self._read_pieces(request), request.content_length)
        return await self._relay.pass_on(request, asked, sent)

    def _choose(self, dialect: WireDialect, body: bytes, arrival: _Arrival) -> tuple[Upstream, ...]:
        model, caller = "", arrival.caller
        if self._upstreams.need_models or caller.models:
            model = arrival.served.model = read_envelope(body).model_name
            if caller.models:
                named = list_models_named(body, nested=False) if names_several(body) else []
                _require_allowed(caller, None if named is None else [model, *named])
        upstreams = self._upstreams.choose(dialect, model)
        if not upstreams:
            raise Refused(
                f"no upstream serves the model {model!r} in this API; the gateway's settings name the models "
                "(gateway.upstreams)",
                status=404,
            )
        return upstreams

    def _credential_for(self, request: web.BaseRequest, upstream: Upstream, caller: Caller) -> str:
        """Returns the key for summaries by the same model; empty unless the settings allow them."""
        if not self._passes_credential:
            return ""
        if upstream.key is not None:
            return upstream.key.reveal()
        return read_credential(request.headers) if caller.brings_credential else ""

    # The body.

    async def _read_body(self, request: web.BaseRequest) -> bytes:
        """Returns the whole body. Raises Refused if it is too large or comes too slowly."""
        if request.content_length is not None and request.content_length > self._most_bytes:
            raise self._too_large()
        await _continue(request)
        content = request.content
        if content.is_eof():
            return content.read_nowait()
        return b"".join([piece async for piece in self._read_pieces(request)])

    async def _read_pieces(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """Yields the body as it arrives. Raises Refused if it is too large or comes too slowly."""
        loop = asyncio.get_running_loop()
        last = loop.time() + _BODY_SECONDS
        size = 0
        try:
            while True:
                async with asyncio.timeout_at(min(last, loop.time() + _SEND_SECONDS)):
                    piece = await request.content.readany()
                if not piece:
                    return
                size += len(piece)
                if size > self._most_bytes:
                    raise self._too_large()
                yield piece
        except TimeoutError:
            raise Refused(
                f"the request's body did not arrive: {_SEND_SECONDS:.0f} seconds without a byte, or "
                f"{_BODY_SECONDS:.0f} in all",
                status=408,
                headers={"connection": "close"},
            ) from None
        except web.RequestPayloadError:
            raise Refused("the request's body is not valid HTTP", status=400) from None

    def _too_large(self) -> Refused:
        return Refused(
            f"the request is larger than {self._settings.max_body_mb} MB (gateway.max_body_mb)",
            status=413,
            kind=ErrorKind.PAYLOAD_TOO_LARGE,
            headers={"connection": "close"},
        )

    def _tell_fault(self, error: Exception, served: ServedRequest) -> web.Response:
        """Returns the answer to a fault of ours. Neither the log nor the answer shows the error's own text."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}" if trace is not None else "?"
        log.error("request %s: %s in %s", served.id, type(error).__name__, where)
        served.status = 500
        return answer_error(
            f"the gateway failed ({type(error).__name__}); its log names request {served.id}",
            served.dialect,
            status=500,
            kind=ErrorKind.OVERLOAD,
            request_id=served.id,
        )


class _Arrival(NamedTuple):
    """An admitted request."""

    request: web.BaseRequest
    route: Route
    query: str
    served: ServedRequest
    caller: Caller

    def ask(self, upstreams: tuple[Upstream, ...], *, reads_answer: bool = False) -> RelayRequest:
        """Returns the request for the relay. Raises Refused for an impossible wish."""
        headers = self.request.headers
        try:
            wishes = read_wishes(headers)
        except InputError as error:
            raise Refused(str(error), status=400) from None
        return RelayRequest(
            route=self.route,
            method=self.request.method,
            query=self.query,
            headers=copy_request_headers(
                headers, credential=self.caller.brings_credential, reads_answer=reads_answer
            ),
            dialect=self.served.dialect,
            upstreams=upstreams,
            wishes=wishes,
            served=self.served,
        )


class _Hosts:
    """The host names under which the server answers.

    A web page can make a name of its own point at this machine; then `Host` or `Origin` gives it away.
    """

    def __init__(self, bound: str, allowed: Collection[str]) -> None:
        self._names = {name.lower() for name in (bound, *allowed)}
        self._checks = bool(allowed) or is_loopback(bound)
        self._fine: set[str] = set()

    def check(self, request: web.BaseRequest) -> None:
        """Raises Refused for a request to a foreign name, or from a foreign page."""
        host = request.headers.get("host", "")
        if self._checks and host not in self._fine:
            name = name_of_host(host)
            if name not in self._names and not is_loopback(name):
                raise Refused(
                    "the Host header names another machine; gateway.allowed_hosts lists the names that this gateway "
                    "answers to",
                    status=403,
                )
            if len(self._fine) < 64:
                self._fine.add(host)
        origin = request.headers.get("origin")
        if origin is not None and not self._is_own(origin, host):
            raise Refused(
                "requests from web pages are not served (the Origin header names another site)",
                status=403,
            )

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower()


def _answer_outside(request: web.BaseRequest, path: str) -> web.Response:
    """Answers paths outside `/v1`: the root with one line, all others with 404."""
    if path == "/" and request.method in {"GET", "HEAD"}:
        return web.Response(text="Penstock gateway. APIs are under /v1.\n")
    return answer_error("there is nothing here; APIs are under /v1", None, status=404)


def _guess_dialect(request: web.BaseRequest, path: str) -> WireDialect | None:
    """Returns the dialect of a route that is only relayed; None for routes that both of OpenAI's APIs share."""
    if "anthropic-version" in request.headers or path.startswith("/messages"):
        return "anthropic"
    return "responses" if path.startswith("/responses") else None


def _is_json(request: web.BaseRequest) -> bool:
    return request.method == "POST" and request.content_type.endswith("json")


def _require_allowed(caller: Caller, models: Iterable[str] | None) -> None:
    """Raises Refused unless the caller may use all of these models; None where the request may name any."""
    if models is None:
        text = "this key may use some models only, and which one this request names cannot be read: send plain JSON"
        raise Refused(text, status=403, kind=ErrorKind.AUTH)
    for model in models:
        if not caller.allows(model):
            raise Refused(f"this key may not use the model {model[:80]!r}", status=403, kind=ErrorKind.AUTH)


async def _continue(request: web.BaseRequest) -> None:
    """Tells a waiting client to send its body."""
    if request.headers.get("expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # this does not count as part of the answer


def _unpack(body: bytes, packing: str, most_bytes: int) -> bytes:
    """Unpacks a body. Raises Refused if it is broken, too large, or packed in another way."""
    if packing in {"gzip", "deflate"}:
        unpacker = zlib.decompressobj(wbits=47)  # gzip or zlib, recognised by the first bytes
        try:
            unpacked = unpacker.decompress(body, most_bytes + 1)
        except zlib.error:
            raise Refused(f"the request's body is not valid {packing}", status=400) from None
        if len(unpacked) > most_bytes:
            raise Refused(
                f"the request is larger than {most_bytes >> 20} MB (gateway.max_body_mb)",
                status=413,
                kind=ErrorKind.PAYLOAD_TOO_LARGE,
            )
        if not unpacker.eof:
            raise Refused(f"the request's body breaks off: its {packing} data has no end", status=400)
        if unpacker.unused_data:  # a second member, or rubbish: without it the request would be another one
            raise Refused(f"the request's body goes on after the end of its {packing} data", status=400)
        return unpacked
    raise Refused(
        f"content-encoding {packing[:20]!r} is not supported; send the body plain, or as gzip", status=415
    )
