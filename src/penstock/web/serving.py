"""The dashboard over HTTP: who may look, forms, compression, and headers that let a browser load nothing else.

    pages = PageServer(Site(store, settings), door)
    if pages.serves(path): response = await pages.answer(request)

`Dashboard` is a server of its own around it, for a store without a gateway.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from penstock._log import log
from penstock.providers.address import is_loopback
from penstock.web.door import COOKIE, name_of_host
from penstock.web.markup import element, fragment
from penstock.web.page import asset_path, read_asset, render_served_page
from penstock.web.site import PageRequest

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.web.door import Door, LinkDoor
    from penstock.web.site import PageAnswer, Site, Visitor

__all__ = ["Dashboard", "PageServer"]

_ASSETS: Final = {
    "style.css": "text/css; charset=utf-8",
    "uPlot.min.css": "text/css; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "uPlot.iife.min.js": "text/javascript; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "mark.svg": "image/svg+xml",
}
_ROOTS: Final = frozenset(("c", "search", "usage", "usage.json", "assets", "login", "logout"))
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: browsers would then hide the origin of our own forms, too.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_FOR_GOOD: Final = "public, max-age=31536000, immutable"
_FORM_BYTES: Final = 1 << 16
_FORM_SECONDS: Final = 10.0
_AT_ONCE: Final = 4  # pages that are made at the same time
_LEAST_PACKED: Final = 1_000
_ONE_LINE: Final = "Penstock. The dashboard is at /login; a gateway also has its APIs, under /v1."


class PageServer:
    """Answers requests for pages. The door says who asks; URLs and forms are only data."""

    def __init__(self, site: Site, door: Door) -> None:
        self._site = site
        self._door = door
        self._making = asyncio.Semaphore(_AT_ONCE)

    def close(self) -> None:
        """Stops background reading for pages."""
        self._site.close()

    def serves(self, path: str) -> bool:
        """Returns True for the paths of the dashboard."""
        return path == "/" or path[1:].split("/", 1)[0] in _ROOTS

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Returns the answer to a request for one of these paths."""
        parts = urlsplit(request.raw_path)
        path, query = parts.path, dict(parse_qsl(parts.query))
        if request.method not in {"GET", "HEAD", "POST"}:
            return _say(request, "use GET or POST", 405, allow="GET, HEAD, POST")
        if path.startswith("/assets/"):
            return _answer_asset(request, path)
        if path == "/login":
            return await self._log_in(request)
        reader = self._door.admit(request)
        if reader is None:
            return self._answer_stranger(request, path, query)
        if query.get("token"):
            return _send_on(request, "/")  # out of the address bar
        return await self._answer_reader(request, path, query, reader)

    def _answer_stranger(self, request: web.BaseRequest, path: str, query: dict[str, str]) -> web.Response:
        cookie = self._door.open_with(query["token"]) if query.get("token") else ""
        if cookie:
            return _hand_out(request, cookie)
        return _say(request, _ONE_LINE, 200) if path == "/" else _send_on(request, "/login")

    async def _answer_reader(
        self, request: web.BaseRequest, path: str, query: dict[str, str], reader: Visitor
    ) -> web.Response:
        form: dict[str, str] = {}
        if request.method == "POST":
            refusal, form = await self._read_form(request, reader)
            if refusal:
                return _say(request, refusal, 403)
            if path == "/logout":
                answer = _send_on(request, "/login")
                answer.del_cookie(COOKIE, path="/")
                return answer
        asked = PageRequest("POST" if request.method == "POST" else "GET", path, query, form, reader)
        async with self._making:
            made: PageAnswer = await asyncio.to_thread(self._site.answer, asked)
        if made.place:
            return _send_on(request, made.place)
        cached = "private, max-age=3600" if made.keep else "no-store"
        return _write(request, made.body, made.status, made.content_type, cache_control=cached)

    async def _log_in(self, request: web.BaseRequest) -> web.Response:
        wrong = False
        if request.method == "POST":
            if not _is_own_origin(request):
                return _say(request, "this form was sent by another site", 403)
            form = await _read_form_body(request)
            if (form or {}).get("key") and (cookie := self._door.open_with((form or {})["key"].strip())):
                return _hand_out(request, cookie)
            wrong = True
        label = self._door.asks_for
        main = fragment(
            element("h1", "Look at this gateway" if "key" in label.lower() else "Look at this store"),
            element("p", "That does not fit: it is unknown, expired or revoked.", class_="notice bad", role="alert")
            if wrong
            else "",
            element(
                "section",
                element(
                    "form",
                    # Managers of passwords look for a name beside one.
                    element("input", type="text", name="user", autocomplete="username", hidden=True),
                    element(
                        "label",
                        element("span", label),
                        element("input", type="password", name="key", autocomplete="current-password", required=True, autofocus=True),
                        class_="grow",
                    ),
                    element("button", "Go in", class_="main-button"),
                    action="/login",
                    method="post",
                    class_="line",
                ),
                class_="gate",
                aria_label="Log in",
            ),
        )  # fmt: skip
        page = render_served_page("Log in", main, places=False)
        return _write(request, page.encode(), 403 if wrong else 200, "text/html; charset=utf-8")

    async def _read_form(self, request: web.BaseRequest, reader: Visitor) -> tuple[str, dict[str, str]]:
        """Returns why a form is refused (empty if it is not), and its values."""
        if not _is_own_origin(request):
            return "this form was sent by another site", {}
        form = await _read_form_body(request)
        if form is None:
            return "this form cannot be read", {}
        if not hmac.compare_digest(form.get("token", "").encode(), reader.form_token.encode()):
            return "this form has expired: go back, load the page again, and send it once more", {}
        return "", form


class Dashboard:
    """A server for the pages of one store, on this machine alone. `async with` listens; `address` is where."""

    def __init__(self, site: Site, door: LinkDoor, port: int) -> None:
        self._site = site
        self._pages = PageServer(site, door)
        self._door = door
        self._wished_port = port
        self._port = 0
        self._runner: web.ServerRunner | None = None

    @property
    def address(self) -> str:
        """The address that it listens at, with the token that lets a browser in."""
        return f"http://127.0.0.1:{self._port}/?token={self._door.token}"

    async def __aenter__(self) -> Self:
        """Starts listening. Raises OSError if the port cannot be used."""
        silent = logging.getLogger("penstock.web.http")
        silent.setLevel(logging.CRITICAL + 1)
        runner = web.ServerRunner(
            web.Server(self._handle, access_log=None, logger=silent), shutdown_timeout=1.0
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self._wished_port).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner, self._port = runner, runner.addresses[0][1]
        # Made once before anybody asks: prices and rules are loaded, and the conversations begin to be read.
        await asyncio.to_thread(self._site.answer, PageRequest("GET", "/"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops listening."""
        if self._runner is not None:
            await self._runner.cleanup()
        await asyncio.to_thread(self._pages.close)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        # A page of another site can make a name of its own point at this machine: then Host tells it.
        if not is_loopback(name_of_host(request.headers.get("host", ""))):
            return _say(request, "the Host header names another machine", 403)
        path = request.raw_path.partition("?")[0]
        if not self._pages.serves(path):
            return _say(request, "there is nothing here", 404)
        try:
            return await self._pages.answer(request)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - the entry of the server: a fault is one request's, and is told
            log.error("a page could not be made: %s", type(error).__name__, exc_info=error)
            return _say(request, "this page could not be made; the terminal says why", 500)


def _answer_asset(request: web.BaseRequest, path: str) -> web.Response:
    name = path.rpartition("/")[2]
    if name not in _ASSETS or path != asset_path(name):
        return _say(request, "there is no such file", 404)
    packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {
        "cache-control": _FOR_GOOD,
        "content-type": _ASSETS[name],
        "vary": "accept-encoding",
        **_HEADERS,
    }
    if packed:
        headers["content-encoding"] = "gzip"
    return web.Response(body=_pack_asset(name) if packed else read_asset(name), headers=headers)


@lru_cache(maxsize=16)
def _pack_asset(name: str) -> bytes:
    return gzip.compress(read_asset(name), 9, mtime=0)


def _write(
    request: web.BaseRequest, body: bytes, status: int, content_type: str, **headers: str
) -> web.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    given = {"content-type": content_type, "cache-control": "no-store", **_HEADERS, **named}
    if status == 204:
        del given["content-type"]
    can_pack = content_type.startswith(("text/", "application/json")) and len(body) >= _LEAST_PACKED
    if can_pack and "gzip" in request.headers.get("accept-encoding", ""):
        # Pages hold no secret of ours beside a form token, which is not repeated from the request: packing tells nothing.
        body = gzip.compress(body, 5, mtime=0)
        given["content-encoding"] = "gzip"
    given["vary"] = "accept-encoding, cookie"
    return web.Response(body=body, status=status, headers=given)


def _say(request: web.BaseRequest, text: str, status: int, **headers: str) -> web.Response:
    return _write(request, f"{text}\n".encode(), status, "text/plain; charset=utf-8", **headers)


def _send_on(request: web.BaseRequest, place: str) -> web.Response:
    return _write(request, b"", 303, "text/plain; charset=utf-8", location=place)


def _hand_out(request: web.BaseRequest, cookie: str) -> web.Response:
    answer = _send_on(request, "/")
    secure = request.headers.get("x-forwarded-proto", "") == "https"
    answer.set_cookie(COOKIE, cookie, httponly=True, samesite="Strict", path="/", secure=secure)
    return answer


async def _read_form_body(request: web.BaseRequest) -> dict[str, str] | None:
    if request.content_type != "application/x-www-form-urlencoded":
        return None
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            body = await request.content.read(_FORM_BYTES)
            while not request.content.at_eof() and len(body) < _FORM_BYTES:
                body += await request.content.read(_FORM_BYTES)
        return dict(parse_qsl(body[:_FORM_BYTES].decode("utf-8"), keep_blank_values=True))
    except (TimeoutError, UnicodeDecodeError, ValueError):
        return None


def _is_own_origin(request: web.BaseRequest) -> bool:
    """Returns True if a form was sent by one of our pages: browsers always say which page sent it."""
    origin = request.headers.get("origin", "")
    return bool(origin) and urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
