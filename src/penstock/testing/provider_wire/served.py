"""A reply together with what the request decides about it, and one event of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.conversation.wire import encode_wire
from penstock.providers.exchange import Called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.measure.usage import Usage
    from penstock.testing.scripted import Reply

__all__ = ["CREATED", "Frame", "Served", "pieces"]

# One moment for every answer, so that a script answers the same bytes each time.
CREATED = 1_760_000_000


class Frame(NamedTuple):
    """One event of a stream. Without a name it is a bare `data:` line; text data is sent as it is."""

    event: str
    data: dict[str, Any] | str

    def encode(self) -> bytes:
        """Returns the event as it goes over the wire."""
        data = self.data.encode() if isinstance(self.data, str) else encode_wire(self.data)
        name = f"event: {self.event}\n".encode() if self.event else b""
        return name + b"data: " + data + b"\n\n"


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A reply on its way to request `number`, its usage known. `include_usage` asks for it in a stream of Chat."""

    reply: Reply
    number: int
    model: str
    usage: Usage
    include_usage: bool = False

    @property
    def calls(self) -> tuple[Called, ...]:
        """The calls, each with an id of its own."""
        return tuple(
            call if call.id else Called(f"call_{self.number}_{index}", call.name, call.arguments)
            for index, call in enumerate(self.reply.calls, start=1)
        )


def pieces(text: str, served: Served) -> Iterator[str]:
    """Yields the text in the pieces in which a stream brings it."""
    size = max(1, served.reply.chunk_chars)
    for start in range(0, len(text), size):
        yield text[start : start + size]
