"""Operating a gateway: lets callers in by their keys and limits, counts and logs what was served, and tells how it is.

    async with GatewayOperations(settings, store) as operations:
        async with Gateway(upstreams, settings, fitter=fitter, operations=operations) as gateway: …

It answers `/health`, `/ready`, `/metrics`, `/openapi.json`, `/join` and `/runs` itself, and has the pages of the dashboard.
Callers on this machine or with a key see the metrics and why the gateway is not ready; others learn that it runs, and
whether it is ready.

On the dashboard, the holder of a key of the gateway sees the conversations of that key. A browser on this machine sees all of
them, unless the gateway requires keys. Others only see that there is a gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final, Self

from aiohttp import HttpVersion11, web

from penstock._log import log
from penstock.conversation.wire import encode_wire
from penstock.errors import SettingsError, StoreError
from penstock.gateway.callers import Caller, Refused
from penstock.gateway.joining import NONCE, RunTallies, prove, write_terms
from penstock.gateway.keys import KeyRing
from penstock.gateway.limits import Limits
from penstock.gateway.logs import RequestLog, describe_request, read_tokens
from penstock.gateway.metrics import CONTENT_TYPE, GatewayMetrics
from penstock.gateway.openapi import OWN_PATHS, describe_api
from penstock.gateway.tracing import open_tracer
from penstock.providers.address import is_loopback
from penstock.web.door import COOKIE, Seal, name_of_host
from penstock.web.serving import PageServer
from penstock.web.site import Site, Visitor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import TextIO

    from penstock.gateway.callers import PlainHandler, ServedRequest
    from penstock.gateway.keys import Refusal
    from penstock.gateway.tracing import RequestTracer
    from penstock.gateway.upstreams import Upstreams
    from penstock.gateway.workers import Workers
    from penstock.settings import Settings
    from penstock.stores.store import Store

__all__ = ["GatewayOperations", "require_safe_address"]

_CHECK_SECONDS: Final = 3.0
_COUNTED_SECONDS: Final = 0.005  # after a request has ended
_FRESH_SECONDS: Final = 1.0  # how long what a check found holds
_BYTES_PER_TOKEN: Final = 4
_STREAM_BYTES_PER_TOKEN: Final = 200  # of an answer: each token comes in an event
_JSON: Final = "application/json"
# A proxy on this machine asks for another one.
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_LOCAL: Final = "local"


class GatewayOperations:
    """Keys, limits, metrics, logs, spans and health of one gateway. `async with` keeps its keys current."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        tracer: RequestTracer | None = None,
        log_stream: TextIO | None = None,
        version: str = "0",
    ) -> None:
        gateway = settings.gateway
        self._settings = gateway
        self._store = store
        self._version = version
        self._ring = KeyRing(
            store,
            required=gateway.require_keys,
            models=gateway.models,
            retention_days=settings.store.retention_days,
        )
        self._limits = Limits(gateway, self._ring)
        self.pages = _open_pages(settings, store, self._ring)
        self._log = RequestLog(log_stream) if gateway.request_log else None
        self._tracer = tracer or (open_tracer() if gateway.otel else None)
        self._checks: dict[str, Callable[[], Awaitable[bool]]] = {"store": self._store_takes_writes}
        self._found: tuple[float, dict[str, bool]] = (0.0, {})
        self._looking = asyncio.Lock()
        self._drains = False
        self._terms: dict[str, bytes] = {}
        self._runs = RunTallies()
        self._tending: asyncio.Task[None] | None = None
        self._ended: list[ServedRequest] = []  # that no metric and no log has yet
        self._counting: asyncio.TimerHandle | None = None
        self.metrics = GatewayMetrics()
        self._add_gauges()
        handlers: dict[str, PlainHandler] = {
            "/health": self._tell_health,
            "/ready": self._tell_readiness,
            "/metrics": self._tell_metrics,
            "/openapi.json": self._tell_api,
            "/join": self._tell_proof,
            "/runs": self._tell_run,
        }
        self.routes: Mapping[str, PlainHandler] = {path: _reading(handlers[path]) for path in OWN_PATHS}

    def _add_gauges(self) -> None:
        page = self.metrics.page
        began = time.time()
        page.watch(
            "penstock_start_time_seconds", "When the gateway started, in seconds since 1970.", lambda: began
        )
        page.watch(
            "penstock_requests_open",
            "Requests under way, streams among them.",
            lambda: self._limits.open_total,
        )
        if self._log is not None:
            written = self._log
            page.watch(
                "penstock_log_lines_lost_total",
                "Log lines that could not be written.",
                lambda: written.dropped,
            )

    def watch_workers(self, workers: Workers) -> None:
        """Has readiness depend on the workers' answers, and shows their queue and their restarts."""
        self.add_check("workers", workers.answer)
        page = self.metrics.page
        page.watch(
            "penstock_worker_orders", "Orders that wait for a worker's answer.", lambda: workers.under_way
        )
        page.watch(
            "penstock_worker_restarts_total",
            "Workers that ended and were started again.",
            lambda: workers.restarts,
        )

    def let_join(self, settings: Settings, upstreams: Upstreams) -> None:
        """Lets clients of `penstock wrap` use this gateway, where they would start one just like it."""
        terms = {
            dialect: write_terms(settings, upstreams, dialect, self._version)
            for dialect in ("chat", "responses", "anthropic")
        }
        self._terms = {dialect: one for dialect, one in terms.items() if one is not None}

    def add_check(self, name: str, check: Callable[[], Awaitable[bool]]) -> None:
        """Has readiness depend on a check."""
        self._checks[name] = check

    async def __aenter__(self) -> Self:
        self._tending = asyncio.get_running_loop().create_task(self._ring.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._count_ended()
        if self._tending is not None:
            self._tending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._tending
        if self.pages is not None:
            await asyncio.to_thread(self.pages.close)
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.close)
        if self._log is not None:
            await asyncio.to_thread(self._log.close)

    # Requests.

    async def authorise(self, request: web.BaseRequest, served: ServedRequest) -> Caller:
        """Returns the caller of a request, by its headers. Raises Refused for a wrong key, and over a limit."""
        headers = request.headers
        served.client_request_id = headers.get("x-request-id") or headers.get("x-client-request-id") or ""
        served.trace_parent = headers.get("traceparent", "")
        found = self._ring.authorise(headers)
        if isinstance(found, Caller):
            refusal = self._limits.admit(found.owner, self._ring.rules_of(found.key_id))
            if refusal is None:
                return found
            served.refused_key_id = found.key_id
        else:
            refusal = found
        served.refused = refusal.reason
        raise _make_refused(refusal)

    def observe(self, served: ServedRequest) -> None:
        """Takes in a request that has ended."""
        if (caller := served.caller) is not None:
            self._limits.release(caller.owner)
            tokens = _estimate_tokens(served) if served.usage is None else served.usage.total_tokens
            if tokens:
                self._limits.spend(caller.owner, self._ring.rules_of(caller.key_id), tokens)
        self._ended.append(served)
        if self._counting is None:  # a moment later: a client that got its answer may ask again at once
            loop = asyncio.get_running_loop()
            self._counting = loop.call_later(_COUNTED_SECONDS, self._count_ended)

    def _count_ended(self) -> None:
        """Shows the requests that have ended in metrics, tallies, log and spans."""
        if self._counting is not None:
            self._counting.cancel()
            self._counting = None
        ended, self._ended = self._ended, []
        for served in ended:
            self.metrics.observe(served)
            if served.run:
                self._runs.add(served.run, served)
            if self._log is not None:
                self._log.write(describe_request(served))
            if self._tracer is not None:
                self._tracer.write(served)

    def drain(self) -> None:
        """Readiness says no from now on."""
        self._drains = True

    # How it is.

    async def _tell_health(self, _request: web.BaseRequest) -> web.Response:
        return _answer({"status": "ok"})

    async def _tell_readiness(self, request: web.BaseRequest) -> web.Response:
        found = await self._check()
        ready = not self._drains and all(found.values())
        told: dict[str, object] = {"ready": ready}
        if self._may_look(request):
            told["checks"] = {**found, "draining": self._drains}
        return _answer(told, 200 if ready else 503)

    async def _tell_metrics(self, request: web.BaseRequest) -> web.Response:
        if not self._may_look(request):
            text = "metrics need a key; gateway.open_metrics shows them to everybody"
            return _answer({"error": {"message": text, "type": "authentication_error"}}, 401)
        self._count_ended()
        return web.Response(body=self.metrics.page.write().encode(), headers={"content-type": CONTENT_TYPE})

    async def _tell_api(self, _request: web.BaseRequest) -> web.Response:
        return _answer(describe_api(self._version))

    async def _tell_proof(self, request: web.BaseRequest) -> web.Response:
        nonce, dialect = request.query.get("nonce", ""), request.query.get("dialect", "")
        if not NONCE.match(nonce) or dialect not in {"chat", "responses", "anthropic"}:
            return _refuse("give a nonce of 32 hexadecimal digits, and a dialect", 400)
        terms, place = (
            self._terms.get(dialect),
            request.transport and request.transport.get_extra_info("sockname"),
        )
        if terms is None or not place or self._drains or not _is_local(request):
            return _refuse("this gateway cannot be joined", 404)
        return _answer({"proof": prove(self._ring.secret, nonce, place[:2], terms)})

    async def _tell_run(self, request: web.BaseRequest) -> web.Response:
        run = request.query.get("run", "")
        if not NONCE.match(run):
            return _refuse("give a run, 32 hexadecimal digits", 400)
        if not _is_local(request):
            return _refuse("runs are counted for clients on the gateway's machine", 404)
        self._count_ended()
        return _answer(self._runs.find(run).to_dict())

    def _may_look(self, request: web.BaseRequest) -> bool:
        """Returns True for a request from this machine that no proxy passes on, and for one with a key of ours."""
        if self._settings.open_metrics or _is_local(request):
            return True
        found = self._ring.authorise(request.headers)
        return isinstance(found, Caller) and bool(found.key_id)

    async def _check(self) -> dict[str, bool]:
        async with self._looking:  # however many ask, one looks
            at, found = self._found
            if time.monotonic() - at > _FRESH_SECONDS:
                results = await asyncio.gather(*(_try(name, check) for name, check in self._checks.items()))
                found = dict(zip(self._checks, results, strict=True))
                self._found = time.monotonic(), found
            return found

    async def _store_takes_writes(self) -> bool:
        await asyncio.to_thread(self._store.put_note, "gateway", "ready", str(time.time()).encode())
        return True


def require_safe_address(settings: Settings) -> None:
    """Raises SettingsError for a gateway that would lend the keys of its upstreams to everyone who can reach it."""
    gateway = settings.gateway
    lends = any(one.api_key_env for one in (gateway.upstreams or {}).values())
    if lends and not gateway.require_keys and not is_loopback(gateway.host):
        raise SettingsError(
            f"gateway.host {gateway.host} can be reached by others, who could use the keys of gateway.upstreams: "
            "set gateway.require_keys, and make keys with penstock keys create"
        )


def _estimate_tokens(served: ServedRequest) -> int:
    """Returns about what a request used where no provider reports it: a budget must not depend on what a caller asks to be told.

    A stream of Chat Completions reports nothing unless it is asked to, and an answer that was broken off reports nothing.
    """
    if not served.sent_at or served.status >= 400 or not served.bytes_in:
        return 0
    sent = read_tokens(served.headers, "after") or served.bytes_in // _BYTES_PER_TOKEN
    return sent + served.bytes_out // _STREAM_BYTES_PER_TOKEN


def _make_refused(refusal: Refusal) -> Refused:
    """Returns the exception for a refusal.

    The official clients ask again after any 429: where only another day or key helps, a header tells them not to.
    """
    headers: dict[str, str] = {}
    if refusal.retry_after_seconds is not None:
        headers["retry-after"] = str(refusal.retry_after_seconds)
    if not refusal.kind.transient:
        headers["x-should-retry"] = "false"
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Refused(refusal.message, status=refusal.status, kind=refusal.kind, headers=headers)


async def _try(name: str, check: Callable[[], Awaitable[bool]]) -> bool:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            return await check()
    except (StoreError, TimeoutError, OSError) as error:
        log.warning("the gateway is not ready: %s failed (%s)", name, type(error).__name__)
        return False


def _reading(handler: PlainHandler) -> PlainHandler:
    """Returns the handler for GET and HEAD alone."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.method in {"GET", "HEAD"}:
            return await handler(request)
        return _answer(
            {"error": {"message": "use GET", "type": "invalid_request_error"}}, 405, allow="GET, HEAD"
        )

    return answer


def _answer(told: Mapping[str, object], status: int = 200, **headers: str) -> web.Response:
    more = {"www-authenticate": "Bearer"} if status == 401 else {}
    return web.Response(
        body=encode_wire(told), status=status, headers={"content-type": _JSON, **more, **headers}
    )


def _refuse(text: str, status: int) -> web.Response:
    return _answer({"error": {"message": text, "type": "invalid_request_error"}}, status)


def _open_pages(settings: Settings, store: Store, ring: KeyRing) -> PageServer | None:
    """Returns the dashboard of a gateway; None where the settings have none."""
    if not settings.gateway.dashboard:
        return None
    return PageServer(Site(store, settings), _KeyDoor(ring, needs_key=settings.gateway.require_keys))


def _is_local(request: web.BaseRequest) -> bool:
    """Returns True for a request of this machine, as far as it can be told: not for one that a proxy here passes on."""
    return is_loopback(request.remote or "") and not any(name in request.headers for name in _FORWARDED)


class _KeyDoor:
    """Lets in holders of keys, and who sits at this machine."""

    def __init__(self, ring: KeyRing, *, needs_key: bool) -> None:
        self._ring = ring
        self._needs_key = needs_key
        self._seal = Seal()

    @property
    def asks_for(self) -> str:
        """The thing that a stranger is asked for."""
        return "One of this gateway's keys"

    def admit(self, request: web.BaseRequest) -> Visitor | None:
        """Returns the reader by the cookie, by a key in the headers, or by where the request comes from."""
        name = self._seal.read(request.cookies.get(COOKIE, ""))
        key = self._ring.find_working(name, time.time()) if name else None
        if key is not None:
            return Visitor(key.owner, self._seal.make_form_token(name), may_leave=True)
        caller = self._ring.authorise(request.headers)
        if isinstance(caller, Caller) and caller.key_id:
            return Visitor(caller.owner, self._seal.make_form_token(caller.key_id))
        if not self._needs_key and _sits_here(request):
            return Visitor(None, self._seal.make_form_token(_LOCAL))
        return None

    def open_with(self, presented: str) -> str:
        """Returns the cookie for a key."""
        caller = self._ring.authorise({"x-penstock-key": presented})
        return self._seal.write(caller.key_id) if isinstance(caller, Caller) and caller.key_id else ""


def _sits_here(request: web.BaseRequest) -> bool:
    """Returns True for a browser on this machine.

    A site can make a name of its own point here: then `Host` tells it. No browser speaks HTTP/1.0; proxies do that forget to
    say for whom they ask.
    """
    named_here = is_loopback(name_of_host(request.headers.get("host", "")))
    return _is_local(request) and named_here and request.version >= HttpVersion11
