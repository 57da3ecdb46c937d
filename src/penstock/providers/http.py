"""The one transport: requests as bytes out, statuses, headers and bytes in, failures as ProviderError.

Speaks HTTP and knows no dialect. aiohttp is imported by the first request.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import msgspec

from penstock.errors import ErrorClass, ErrorKind, ProviderError
from penstock.providers.failures import foreign_errors_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from types import TracebackType

    import aiohttp

    from penstock.config import SecretText

__all__ = ["HttpReply", "HttpRequest", "OpenReply", "TimeLimits", "Transport", "host_of"]

_ERROR_BODY_BYTES = 1 << 20


class TimeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits in seconds: for a connection, between two pieces of an answer, and for all of it. None: no limit."""

    connect_seconds: float | None = 10.0
    read_seconds: float | None = None
    total_seconds: float | None = None


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request. Keys among the headers are SecretText, which no repr shows."""

    url: str
    headers: Mapping[str, str | SecretText]
    body: bytes | None = None

    @property
    def method(self) -> str:
        """POST if there is a body, otherwise GET."""
        return "GET" if self.body is None else "POST"

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {host_of(self.url)})"


class HttpReply(msgspec.Struct, frozen=True):
    """A whole reply; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """HTTP for any number of clients: connections are kept and shared, one session for each event loop.

    A session is made by the first request and closed by `aclose`, by leaving `async with`, or with its event
    loop. Redirects are not followed, cookies are not kept, and proxies and credentials of the environment are
    used only with `trust_environment`. A body over `most_bytes` is refused, a streamed one as well.
    """

    def __init__(
        self,
        *,
        trust_environment: bool = False,
        most_bytes: int = 64 << 20,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._trust_environment = trust_environment
        self._most_bytes = most_bytes
        self._tls = tls
        self._sessions: dict[asyncio.AbstractEventLoop, _KeptSession] = {}

    async def send(self, request: HttpRequest, limits: TimeLimits | None = None) -> HttpReply:
        """Returns the whole reply, whatever its status. Cancelling it closes the connection. Raises ProviderError."""
        async with self.open(request, limits) as reply:
            return HttpReply(reply.status, reply.headers, await reply.read())

    @contextlib.asynccontextmanager
    async def open(self, request: HttpRequest, limits: TimeLimits | None = None) -> AsyncIterator[OpenReply]:
        """Opens a reply whose body is still to be read. Leaving before its end closes the connection."""
        host = host_of(request.url)
        with foreign_errors_of(host):
            session = await self._session()
            response = await session.request(
                request.method,
                request.url,
                data=request.body,
                headers=_plain(request.headers),
                timeout=_timeout(limits or TimeLimits()),
                allow_redirects=False,
            )
        try:
            yield OpenReply(response, host, self._most_bytes)
        finally:
            response.close()  # gives a connection back only if its answer was read to the end

    async def aclose(self) -> None:
        """Closes the connections of the running event loop. The next request would open new ones."""
        kept = self._sessions.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            await kept.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        kept = self._sessions.get(loop)
        if kept is None or kept.session.closed:
            self._sessions = {known: held for known, held in self._sessions.items() if not known.is_closed()}
            kept = self._sessions[loop] = _KeptSession(self._new_session())
            await kept.start()
        return kept.session

    def _new_session(self) -> aiohttp.ClientSession:
        import aiohttp  # noqa: PLC0415 - 150 ms that only those pay who ask a model

        # Callers bound how much they ask for at once; a queue here would run into their time limits unseen.
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls if self._tls is not None else True)
        return aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=self._trust_environment
        )


class OpenReply:
    """A reply of which status and headers are there, and the body comes."""

    def __init__(self, response: aiohttp.ClientResponse, host: str, most_bytes: int) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._content = response.content
        self._host = host
        self._most_bytes = most_bytes

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yields the body in pieces, as they come. Raises ProviderError."""
        size = 0
        while True:
            with foreign_errors_of(self._host):
                data = await self._content.readany()
            if not data:
                return
            size += len(data)
            if size > self._most_bytes:
                raise self._too_large()
            yield data

    async def read(self) -> bytes:
        """Returns the whole body; of an error only the first megabyte."""
        pieces: list[bytes] = []
        size = 0
        async with contextlib.aclosing(self.chunks()) as chunks:
            async for data in chunks:
                pieces.append(data)
                size += len(data)
                if self.status >= 400 and size > _ERROR_BODY_BYTES:
                    break
        return b"".join(pieces)

    def _too_large(self) -> ProviderError:
        text = f"{self._host}: the answer is larger than {self._most_bytes:,} bytes and was not read on"
        failure = ErrorClass(
            kind=ErrorKind.BAD_REQUEST, status=self.status, code="answer_too_large", message=text
        )
        return ProviderError(text, failure=failure)


class _KeptSession:
    """A session that ends with its event loop, even if it is never closed.

    An event loop that shuts down closes the async generators that were started in it: the only hook that
    there is, and `asyncio.run` uses it while connections can still be closed properly.
    """

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self._keeper = _keep(session)

    async def start(self) -> None:
        await anext(self._keeper)

    async def aclose(self) -> None:
        await self._keeper.aclose()


async def _keep(session: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await session.close()


def host_of(url: str) -> str:
    """Returns the host and the port of an address: what an error may show of it."""
    parts = urlsplit(url)
    host = parts.hostname or "the provider"
    return f"{host}:{parts.port}" if parts.port else host


def _plain(headers: Mapping[str, str | SecretText]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else value.reveal() for name, value in headers.items()}


def _timeout(limits: TimeLimits) -> aiohttp.ClientTimeout:
    import aiohttp  # noqa: PLC0415 - as above

    return aiohttp.ClientTimeout(
        total=limits.total_seconds,
        connect=limits.connect_seconds,
        sock_connect=limits.connect_seconds,
        sock_read=limits.read_seconds,
    )
