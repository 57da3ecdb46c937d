"""Server-sent events out of bytes, however the bytes were split on their way. Pure.

What providers send, a little more leniently than the standard: an event that the stream ends on without its
blank line counts, since some servers leave the last one out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DONE", "EventParser", "OversizedEvent", "ServerEvent"]

DONE = "[DONE]"
"""The data by which Chat Completions ends a stream."""

_MOST_BYTES = 32 << 20
_BOM = b"\xef\xbb\xbf"


class ServerEvent(msgspec.Struct, frozen=True):
    """One event: its name, `message` where the server gave none, and its lines of data joined."""

    name: str
    data: str


class OversizedEvent(ValueError):
    """An event grew past the limit: the server does not send a stream of answers."""


class EventParser:
    """Takes bytes as they come and gives the events that they complete.

    Lines end in CR, LF or both. Comments and fields other than `event` and `data` are skipped. Bytes that are
    not UTF-8 become U+FFFD. `feed` raises OversizedEvent when one event passes `most_bytes`.
    """

    __slots__ = ("_after_cr", "_data", "_held_bytes", "_line", "_most_bytes", "_name", "_start")

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._line: list[bytes] = []  # the unfinished line in pieces, so that a long one is joined once
        self._held_bytes = 0  # of the unfinished event, its unfinished line included
        self._start: bytes | None = b""  # until it is known whether the stream opens with a byte order mark
        self._after_cr = False
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Returns the events that these bytes complete."""
        if self._start is not None:
            data = self._start + data
            if _BOM.startswith(data):
                self._start = data
                return []
            self._start = None
            data = data.removeprefix(_BOM)
        return list(self._events(data))

    def close(self) -> list[ServerEvent]:
        """Returns the event that was open when the stream ended, if it had data."""
        start, self._start = self._start or b"", None
        return list(self._events(start.removeprefix(_BOM) + b"\n\n"))

    def _events(self, data: bytes) -> Iterator[ServerEvent]:
        if not data:
            return
        if self._after_cr:
            data = data.removeprefix(b"\n")
        for piece in data.splitlines(keepends=True):  # of bytes: at CR, LF and CRLF alone
            self._hold(len(piece))
            if not piece.endswith((b"\n", b"\r")):
                self._line.append(piece)
                continue
            line = b"".join((*self._line, piece)).rstrip(b"\r\n")
            self._line.clear()
            if line:
                self._read(line)
            else:
                yield from self._dispatch()
        self._after_cr = data.endswith(b"\r")

    def _hold(self, size: int) -> None:
        self._held_bytes += size
        if self._held_bytes > self._most_bytes:
            raise OversizedEvent(f"an event of the stream is larger than {self._most_bytes:,} bytes")

    def _read(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field not in {b"data", b"event"}:
            return
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"data":
            self._data.append(text)
        else:
            self._name = text

    def _dispatch(self) -> Iterator[ServerEvent]:
        name, data = self._name or "message", self._data
        self._name, self._data, self._held_bytes = "", [], 0
        if data:
            yield ServerEvent(name, "\n".join(data))
