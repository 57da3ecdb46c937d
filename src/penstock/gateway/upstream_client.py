"""Sends requests to upstreams over connections that are kept, and gives the answers as they arrive.

`aiohttp` resolves names, connects, keeps connections and parses. Its client's own way of a request is left out: for every
request it makes a URL, headers, a body, cookies, timers and a task anew, which took a quarter of the time that the gateway
adds. Here a request is one write.

Header values go out as the bytes that came in. Errors are those of `aiohttp`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

import aiohttp
from aiohttp.http import HttpProcessingError, StreamWriter

from penstock.gateway.callers import Refused
from penstock.gateway.headers import LONGEST_LINE_BYTES, write_head

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from multidict import CIMultiDict, CIMultiDictProxy
    from yarl import URL

__all__ = ["ArrivingAnswer", "BodyStream", "UpstreamClient"]

_BUFFER_BYTES: Final = 1 << 18
_KEPT_SECONDS: Final = 60.0
_MOST_PLACES: Final = 256  # addresses that are remembered as they are needed for each request
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # what no header may hold; llhttp lets some pass
_WITHOUT_BODY: Final = frozenset(
    {"GET", "HEAD", "OPTIONS", "TRACE", "DELETE"}
)  # else the length is said, even 0


class BodyStream:
    """A body that is passed on as it arrives. `problem` is the reason why it was broken off."""

    def __init__(self, pieces: AsyncIterator[bytes], length: int | None) -> None:
        self.length = length
        self.problem: Refused | None = None
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._pieces:
                yield piece
        except Refused as refused:
            self.problem = refused
            raise


class ArrivingAnswer:
    """An answer whose head has arrived. Its connection is kept once `content` was read to its end; `close` gives it up before."""

    def __init__(
        self,
        method: str,
        message: Any,
        content: aiohttp.StreamReader,
        connection: Connection,
        writing: asyncio.Task[None] | None,
    ) -> None:
        self.method = method
        self.status: int = message.code
        self.reason: str = message.reason
        self.headers: CIMultiDictProxy[str] = message.headers
        self.content = content
        length = self.headers.get("content-length")
        self.content_length = None if length is None else int(length)
        self._connection: Connection | None = connection
        self._writing = writing
        content.on_eof(self._release)

    @property
    def content_type(self) -> str:
        """The type of its body, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def _release(self) -> None:
        """Keeps the connection for another request, unless this one has not gone out whole."""
        if self._writing is not None and not self._writing.done():
            self.close()
        elif self._connection is not None:
            self._connection.release()
            self._connection = None

    def close(self) -> None:
        """Closes the connection if there is more of the answer to come."""
        if self._writing is not None:
            self._writing.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Place(NamedTuple):
    """What is the same for all requests to an address."""

    key: aiohttp.ClientRequest
    """By which the pool finds connections to it, or makes one."""
    target: str
    host: str


class UpstreamClient:
    """A pool of connections. `async with` opens it."""

    def __init__(self, *, connect_seconds: float | None, idle_seconds: float | None) -> None:
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=connect_seconds, sock_read=idle_seconds
        )
        self._connector: aiohttp.TCPConnector | None = None
        self._places: dict[URL, _Place] = {}

    async def __aenter__(self) -> Self:
        self._connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connector is not None:
            await self._connector.close()

    async def ask(
        self, method: str, url: URL, headers: CIMultiDict[str], body: bytes | BodyStream | None
    ) -> ArrivingAnswer:
        """Sends a request and returns its answer once that has begun. Raises aiohttp's errors, and OSError."""
        place = self._places.get(url) or self._find_place(url)
        connection = await self._connect(place)
        writing, answer = None, None
        try:
            protocol = _require_open(connection)
            protocol.set_response_params(
                skip_payload=method == "HEAD",
                read_until_eof=True,
                auto_decompress=False,  # what is packed is relayed as it is
                read_timeout=self._timeout.sock_read,
                read_bufsize=_BUFFER_BYTES,
                max_line_size=LONGEST_LINE_BYTES,
                max_field_size=LONGEST_LINE_BYTES,
            )
            head = write_head(f"{method} {place.target} HTTP/1.1", headers, _frame(method, place.host, body))
            writing = _write(protocol, head, body)
            message, content = await _read_head(protocol, place)
            answer = ArrivingAnswer(method, message, content, connection, writing)
        finally:
            if answer is None:
                if writing is not None:
                    writing.cancel()
                connection.close()
        return answer

    async def _connect(self, place: _Place) -> Connection:
        if self._connector is None:
            raise RuntimeError("the client is not open: use it in `async with`")
        try:
            return await self._connector.connect(place.key, [], self._timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(*error.args) from None

    def _find_place(self, url: URL) -> _Place:
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
        key = aiohttp.ClientRequest("GET", url, loop=asyncio.get_running_loop())
        place = self._places[url] = _Place(key, url.raw_path_qs, key.headers["Host"])
        return place


def _frame(method: str, host: str, body: bytes | BodyStream | None) -> dict[str, str]:
    """Returns the headers that belong to this connection: where the request goes, and where its body ends."""
    if body is None:
        return {"Host": host} if method in _WITHOUT_BODY else {"Host": host, "Content-Length": "0"}
    length = len(body) if isinstance(body, bytes) else body.length
    if length is None:
        return {"Host": host, "Transfer-Encoding": "chunked"}
    return {"Host": host, "Content-Length": str(length)}


def _require_open(connection: Connection) -> ResponseHandler:
    """Returns the protocol of a connection. Raises ServerDisconnectedError if it was closed meanwhile."""
    protocol = connection.protocol
    if protocol is None or not protocol.is_connected():
        raise aiohttp.ServerDisconnectedError
    return protocol


def _write(
    protocol: ResponseHandler, head: bytes, body: bytes | BodyStream | None
) -> asyncio.Task[None] | None:
    """Sends a request; returns the task that sends the rest of it, None if it is on its way."""
    transport = cast("asyncio.Transport", protocol.transport)
    if isinstance(body, BodyStream):
        transport.write(head)
        return asyncio.create_task(_write_stream(protocol, body))
    transport.writelines((head, body) if body else (head,))
    if protocol.writing_paused:
        return asyncio.create_task(_wait_until_written(protocol))
    protocol.start_timeout()
    return None


async def _read_head(protocol: ResponseHandler, place: _Place) -> tuple[Any, aiohttp.StreamReader]:
    """Returns the head of the answer, and its body. Raises ClientResponseError for what is no HTTP."""
    while True:
        try:
            message, content = await protocol.read()
        except HttpProcessingError:
            raise aiohttp.ClientResponseError(place.key.request_info, ()) from None
        if message.code >= 200:
            if _CONTROL.search(message.reason + "".join(message.headers.values())):
                raise aiohttp.ClientResponseError(place.key.request_info, ())
            return message, content
        if (
            message.code < 100 or message.code == 101
        ):  # no status, or a switch that the request did not ask for
            raise aiohttp.ClientResponseError(place.key.request_info, ())


async def _write_stream(protocol: ResponseHandler, body: BodyStream) -> None:
    """Writes a body piece by piece. Where it breaks off, the wait for the answer ends."""
    writer = StreamWriter(protocol, asyncio.get_running_loop())
    if body.length is None:
        writer.enable_chunking()
    try:
        async for piece in body:
            await writer.write(piece)
        await writer.write_eof()
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the request is not whole
        protocol.set_exception(aiohttp.ClientConnectionError("the request's body broke off"), error)
        if protocol.transport is not None:
            protocol.transport.close()  # an answer that has begun breaks off, too
    else:
        protocol.start_timeout()


async def _wait_until_written(protocol: ResponseHandler) -> None:
    """Begins to count the time that the upstream may take once it has the whole request."""
    with contextlib.suppress(OSError, aiohttp.ClientError):  # the wait for the answer meets it, too
        await StreamWriter(protocol, asyncio.get_running_loop()).drain()
        protocol.start_timeout()
