"""Reads the usage out of an answer while it passes, in any dialect, streamed or not.

A stream is not parsed: lines without the few words that matter are only looked through, and the others are decoded by
themselves.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.measure.usage import Usage, names_cache, normalise_usage

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MOST_ANSWER_BYTES", "BadPacking", "Unpacker", "UsageTap"]

MOST_ANSWER_BYTES: Final = 64 << 20
"""The size of an answer that is read as a whole, of a line of a stream, or of an answer unpacked. Larger ones are relayed unread."""

_PIECE_BYTES: Final = 1 << 20
_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
_DONE: Final = b"[DONE]"
_ENDS: Final = frozenset(
    {
        "message_stop",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "response.cancelled",
        "error",
    }
)
_END_WORDS: Final = {
    "chat": (b'"usage"', _DONE),
    "anthropic": (b'"usage"', b"message_stop"),
    "responses": (b'"usage"', b"response.failed", b"response.incomplete", b"response.cancelled"),
}


class _Holder(msgspec.Struct, frozen=True):
    usage: Any = None


class _Event(msgspec.Struct, frozen=True):
    """An event of any dialect, or a whole answer: the places where a usage may be."""

    type: Any = None
    usage: Any = None
    message: _Holder | None = None
    response: _Holder | None = None


_EVENT: Final = msgspec.json.Decoder(_Event)


class UsageTap:
    """Looks through an answer. `ended` is True once a stream has said that the answer is complete."""

    def __init__(self, dialect: str, *, streamed: bool, encoding: str = "") -> None:
        self.ended = False
        self._dialect = dialect
        self._streamed = streamed
        self._words = _END_WORDS[dialect]
        self._found: dict[str, Any] = {}
        self._pieces: list[bytes] = []
        self._size = 0
        self._unpacker = Unpacker(encoding) if encoding in Unpacker.ENCODINGS else None
        self._blind = bool(encoding) and self._unpacker is None

    def feed(self, chunk: bytes) -> None:
        """Takes in the next piece of the answer, as it goes to the caller."""
        if self._unpacker is None:
            self._read(chunk)
            return
        try:
            for piece in self._unpacker.feed(chunk) if not self._blind else ():
                self._read(piece)
        except BadPacking:
            self._blind = True

    def _read(self, chunk: bytes) -> None:
        if self._blind:
            return
        if self._streamed:
            self._feed_stream(chunk)
        else:
            self._keep(chunk)

    @property
    def report(self) -> tuple[Usage | None, bool]:
        """The usage, None where there was none, and whether it has a field for cached tokens."""
        if not self._streamed and self._pieces:
            self._read_event(b"".join(self._pieces))
            self._pieces.clear()
        if not self._found:
            return None, False
        return normalise_usage(self._found, self._dialect), names_cache(self._found)

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > MOST_ANSWER_BYTES:
            self._blind = True
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _feed_stream(self, chunk: bytes) -> None:
        """Looks through all lines that are complete now; the beginning of the next one is kept."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._keep(chunk)
            return
        lines = b"".join((*self._pieces, chunk[:end])) if self._pieces else chunk[:end]
        self._pieces.clear()
        self._size = 0
        self._keep(chunk[end:])
        for word in self._words:
            if word in lines:
                self._read_lines(lines)
                return

    def _read_lines(self, lines: bytes) -> None:
        for line in lines.splitlines():
            if line.startswith(b"data:") and any(word in line for word in self._words):
                data = line[5:].strip()
                if data == _DONE:
                    self.ended = True
                else:
                    self._read_event(data)

    def _read_event(self, data: bytes) -> None:
        try:
            event = _EVENT.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return  # rubbish is relayed, not understood
        for usage in (
            event.usage,
            event.message and event.message.usage,
            event.response and event.response.usage,
        ):
            if isinstance(usage, dict):  # Anthropic's comes in two events, the second with the output alone
                self._found.update((name, value) for name, value in usage.items() if value is not None)
        if isinstance(event.type, str) and event.type in _ENDS:
            self.ended = True


class BadPacking(ValueError):
    """An answer is not packed as it says, or holds more than is ever read."""


class Unpacker:
    """Unpacks an answer for reading, where the upstream packed it though it was not asked to.

    A few bytes may hold gigabytes: it gives them piece by piece, and MOST_ANSWER_BYTES in all.
    """

    ENCODINGS: Final = frozenset(_WINDOWS)

    def __init__(self, encoding: str) -> None:
        self._unpack = zlib.decompressobj(_WINDOWS[encoding])
        self._left = MOST_ANSWER_BYTES

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yields the content of the next piece of the answer. Raises BadPacking."""
        full = True
        while chunk or full:
            try:
                piece = self._unpack.decompress(chunk, _PIECE_BYTES)
            except zlib.error:
                raise BadPacking("the answer is not packed as it says") from None
            self._left -= len(piece)
            if self._left < 0:
                raise BadPacking("the packed answer holds too much")
            chunk, full = self._unpack.unconsumed_tail, len(piece) == _PIECE_BYTES
            if piece:
                yield piece
