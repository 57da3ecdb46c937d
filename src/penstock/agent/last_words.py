"""What a program complains about while it runs: the end of it is kept, so that one that dies can be quoted."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["LastWords"]

_KEPT_BYTES = 4_096
_CHUNK_BYTES = 1 << 16
_DRAIN_SECONDS = 0.3  # for what a process outside still holds back
_LONGEST_CHARS = 200


class LastWords:
    """A stream for a program's errors, of which the last bytes are kept. Nothing of it reaches the screen by itself."""

    def __init__(self) -> None:
        self._kept = b""

    @property
    def line(self) -> str:
        """The last line that says something; empty where there is none."""
        lines = [line.strip() for line in self._kept.decode(errors="replace").splitlines()]
        return next((line[:_LONGEST_CHARS] for line in reversed(lines) if line), "")

    @contextlib.asynccontextmanager
    async def stream(self) -> AsyncIterator[TextIO]:
        """The end that the program writes to. When the block ends, what was written before is known."""
        read_end, write_end = os.pipe()
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
        )
        reading = asyncio.create_task(self._read(reader))
        try:
            with os.fdopen(write_end, "w", encoding="utf-8") as stream:
                yield stream
        finally:
            await asyncio.wait({reading}, timeout=_DRAIN_SECONDS)
            transport.close()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            self._kept = (self._kept + data)[-_KEPT_BYTES:]
