"""A wire to a PostgreSQL server that counts round trips, and that can be made longer.

with Wire(url) as wire:
    store = open_store(wire.url)
    wire.count = 0
    ...
    print(wire.count)
"""

import asyncio
import contextlib
import threading
from typing import Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

__all__ = ["Wire"]


class Wire:
    """Passes bytes between clients and a server. A client that speaks after it was answered begins a round trip."""

    def __init__(self, url: str, delay_seconds: float = 0.0) -> None:
        self.count = 0
        self.delay_seconds = delay_seconds
        """How much longer a round trip takes."""
        self._parts = urlsplit(url)
        query = dict(parse_qsl(self._parts.query))
        self._folder = query.pop("host", "")
        self._query = urlencode(query)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        port = self._server.sockets[0].getsockname()[1]
        user = self._parts.netloc.rpartition("@")[0]
        netloc = f"{user}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"
        self.url = urlunsplit(self._parts._replace(netloc=netloc, query=self._query))
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _stop(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._folder:
            port = self._parts.port or 5432
            server = await asyncio.open_unix_connection(f"{self._folder}/.s.PGSQL.{port}")
        else:
            server = await asyncio.open_connection(self._parts.hostname, self._parts.port or 5432)
        answered = [True]  # whether the server has spoken last
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(
                self._pass_on(reader, server[1], answered, asks=True),
                self._pass_on(server[0], writer, answered, asks=False),
            )
        for end in (writer, server[1]):
            end.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answered: list[bool], *, asks: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(1 << 16):
            if asks:
                self.count += answered[0]
            answered[0] = not asks
            if asks and self.delay_seconds:
                loop.call_later(self.delay_seconds, writer.write, data)
            else:
                writer.write(data)
                await writer.drain()
        writer.write_eof()
