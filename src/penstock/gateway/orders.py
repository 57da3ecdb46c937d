"""The orders that the gateway gives its worker processes, and their answers. Values, and the
frames in which they go: four bytes of length, then a number and an order or its answer as MessagePack.

The gateway's event loop matches requests in memory and splices bytes. All that takes longer is a worker's: reading
messages, the log, counting, deciding, compacting. A conversation belongs to one worker while the gateway runs.

`Open` comes first, then `Append` or `Fit` for each request that brings something new, `TakeUsage` after each answer, `Recover`
after a refusal; `Write` where the client asks for a compaction, and `Unseal` where it brings one back; `LookUp` where the
model uses a recall tool, and `KeepInner` once it has answered. A worker that is started again knows nothing: an order for a conversation that it does not have is
answered `NotOpen`, and the gateway opens it anew from the request at hand.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock.errors import ErrorClass  # noqa: TC001 - a struct's field types are read at run time
from penstock.gateway.exchange import StoreMode, WireDialect  # noqa: TC001 - as above
from penstock.gateway.inner_turns import InnerTurn  # noqa: TC001 - as above
from penstock.gateway.sealing import Sealed  # noqa: TC001 - as above
from penstock.measure.usage import Usage  # noqa: TC001 - as above
from penstock.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "HEADER_BYTES",
    "Answer",
    "Append",
    "Appended",
    "Failed",
    "Fit",
    "Fitted",
    "Forget",
    "FrameSplitter",
    "KeepInner",
    "LookUp",
    "LookedUp",
    "NotOpen",
    "Open",
    "OpenedConversation",
    "Order",
    "Outside",
    "Recover",
    "TakeUsage",
    "Unseal",
    "Unsealed",
    "ViewPrefix",
    "ViewStanding",
    "Write",
    "WrittenHandoff",
    "body_size",
    "read_answer",
    "read_frame",
    "read_order",
    "read_settings",
    "write_frame",
]


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a request beside its messages, as they stand in the body; they count, and are never compacted."""

    model: str = ""
    system: bytes = b""
    tools: bytes = b""
    max_output_tokens: int | None = None
    marked_ttl: str = ""
    """The longest life of the caller's own cache marks, `5m` or `1h`; empty where there are none."""


class ViewPrefix(msgspec.Struct, frozen=True):
    """The compacted beginning of a view: what is sent in place of the first `covers` messages of the conversation.

    `messages` are the JSON of each, without cache marks: bytes that never change until the next compaction. `positions`
    has for each its place in the conversation, where it stands whole, else -1.
    """

    covers: int = 0
    messages: tuple[bytes, ...] = ()
    positions: tuple[int, ...] = ()


class ViewStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a conversation after an order, by which the gateway decides without asking.

    `tokens` is what the provider would report for a request with its view. From `ask_from_tokens` on, or after
    `cold_seconds` without a request where more than `cold_from_tokens` stand, a compaction may be due or pay: then the
    gateway sends `Fit` and waits for it; below, it sends `Append` beside the request.
    """

    tokens: int = 0
    tokens_before: int = 0
    """The tokens of the same request if nothing had been compacted."""
    window_tokens: int = 0
    ask_from_tokens: int = 0
    cold_seconds: float = 300.0
    cold_from_tokens: int = 0
    bytes_per_token: float = 3.5
    """Of this conversation so far: by it the gateway sizes what is new."""


class Open(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Find the conversation of which these are the first messages, or begin it, or branch off where they part; log all of them."""

    owner: str
    dialect: WireDialect
    endpoint: str
    store: StoreMode
    messages: tuple[bytes, ...]
    outside: Outside
    hint: str = ""
    continues: str = ""
    """The conversation that the client has left with its own compaction, where that is known: they are linked."""
    logs: bool = True
    """False for a request that is only counted: find, and write nothing."""


class OpenedConversation(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The conversation. `digests` are the content digests of all its messages (16 bytes each, one after the other)."""

    conversation: str
    digests: bytes
    prefix: ViewPrefix
    standing: ViewStanding
    inner: tuple[InnerTurn, ...] = ()
    """Turns of it that hold rounds which the client did not see."""
    first_sent: dict[int, bytes] = {}
    """By place: messages behind the prefix that came in another spelling now, as they were first sent."""


class TakeUsage(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Requests were answered with these usages, in their order. Answered by `Appended` with the standing.

    `sent_tokens` is what was expected of the last one, `names_cache` says if its report has a field for cached tokens.
    `lost` requests were broken off, or answered without a report: the provider may bill more than it reported.
    """

    conversation: str
    usages: tuple[Usage, ...]
    sent_tokens: int
    names_cache: bool = False
    lost: int = 0
    length: int = 0
    """The number of messages of the conversation that the last one stood for; 0 for all that are logged by now. A report on another
    number, or on what was not its view (-1), is booked, and nothing is learned from it."""


class Append(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Log these messages behind the first `length`; the answer says that they are durable."""

    conversation: str
    length: int
    messages: tuple[bytes, ...]
    outside: Outside | None
    """None where it is what it was at the last order."""
    used: TakeUsage | None = None
    """Reports on earlier requests that the worker does not have yet: taken in first."""


class Appended(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """They are durable. `digests` are their content digests."""

    digests: bytes
    standing: ViewStanding


class Fit(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """As `Append`, and then compact where it is due or pays: the request waits for it."""

    conversation: str
    length: int
    messages: tuple[bytes, ...]
    outside: Outside | None
    target_tokens: int | None = None
    focus: str | None = None
    credential: str = ""

    def __repr__(self) -> str:
        return f"Fit({self.conversation})"  # the rest is a person's


class Fitted(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The view as it is now. `compacted` is True where this order has made the prefix."""

    digests: bytes
    prefix: ViewPrefix
    standing: ViewStanding
    max_output_tokens: int | None = None
    """The most tokens of an answer that may be asked for in the next try; None leaves it as it was."""
    compacted: bool = False
    notice: str = ""
    """For a header: why nothing was compacted although it was asked for, in a few words without content."""


class Recover(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The provider refused a request of the conversation as too large, for the `attempt`-th time; answered by `Fitted` or `Failed`."""

    conversation: str
    failure: ErrorClass
    sent_tokens: int
    attempt: int
    outside: Outside | None
    credential: str = ""

    def __repr__(self) -> str:
        return f"Recover({self.conversation})"  # the rest is a person's


class Forget(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The gateway has dropped the conversation from its memory: so may the worker. Answered by `NotOpen`."""

    conversation: str


class Write(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Write what is logged as one handoff, and seal it for the owner. Answered by `WrittenHandoff`.

    Where its first `behind` messages stand for an earlier handoff, `follows` is what that handoff stands for: the new
    one is written from those messages themselves.
    """

    conversation: str
    length: int = 0
    """The number of messages that it stands for; 0 for all."""
    transcript: str = ""
    """The client's own account of them: the handoff stands for those up to the last one that is told there."""
    client: str = ""
    """The client that keeps it as plain text, by which it is known again: it is not sealed then."""
    follows: Sealed | None = None
    behind: int = 0
    target_tokens: int | None = None
    focus: str | None = None

    def __repr__(self) -> str:
        return f"Write({self.conversation})"  # the rest is a person's


class WrittenHandoff(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A handoff, plain and, where it is not for a client that keeps texts, sealed; its size, and that of what it stands for."""

    text: str
    token: str
    tokens: int
    tokens_before: int = 0

    def __repr__(self) -> str:
        return f"WrittenHandoff({self.tokens:,} tokens)"


class Unseal(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Open these tokens, which an owner has brought. Answered by `Unsealed`."""

    owner: str
    tokens: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Unseal({len(self.tokens)})"


class Unsealed(msgspec.Struct, frozen=True, tag=True):
    """The content of each token; None for one that was not sealed for that owner, or was changed."""

    found: tuple[Sealed | None, ...]


class LookUp(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Answer these calls of recall tools, each a name and its arguments. Answered by `LookedUp`."""

    conversation: str
    calls: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"LookUp({self.conversation})"  # the rest is a person's


class LookedUp(msgspec.Struct, frozen=True, tag=True):
    """The result of each call."""

    texts: tuple[str, ...]

    def __repr__(self) -> str:
        return f"LookedUp({len(self.texts)})"


class KeepInner(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Keep these turns of the conversation, and no others, to be sent again. Answered by `LookedUp`."""

    conversation: str
    turns: tuple[InnerTurn, ...]

    def __repr__(self) -> str:
        return f"KeepInner({self.conversation})"


class NotOpen(msgspec.Struct, frozen=True, tag=True):
    """The worker does not have this conversation, or another process has written to it: open it again."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The order could not be carried out. `text` is for people, without content or secrets."""

    text: str


Order: TypeAlias = Open | Append | Fit | TakeUsage | Recover | Forget | Write | Unseal | LookUp | KeepInner
Answer: TypeAlias = (
    OpenedConversation | Appended | Fitted | WrittenHandoff | Unsealed | LookedUp | NotOpen | Failed
)


HEADER_BYTES = 4
_MOST_FRAME_BYTES = 1 << 30  # no order is larger: a body has its own limit, far below

_HEADER = struct.Struct(">I")
_ENCODER = msgspec.msgpack.Encoder()
_ORDERS = msgspec.msgpack.Decoder(tuple[int, Order])
_ANSWERS = msgspec.msgpack.Decoder(tuple[int, Answer])
_SETTINGS = msgspec.msgpack.Decoder(tuple[int, Settings])


def write_frame(number: int, value: Any) -> bytearray:
    """Returns a frame; the answer to an order has the order's number."""
    frame = bytearray(HEADER_BYTES)
    _ENCODER.encode_into((number, value), frame, HEADER_BYTES)  # it may be large, and is copied once
    _HEADER.pack_into(frame, 0, len(frame) - HEADER_BYTES)
    return frame


def body_size(header: bytes | bytearray) -> int:
    """Returns how many bytes follow this header. Raises ValueError for what no frame of ours begins with."""
    (size,) = _HEADER.unpack(header)
    if size > _MOST_FRAME_BYTES:
        raise ValueError(f"a frame of {size:,} bytes is not valid")
    return int(size)


def read_order(body: bytes) -> tuple[int, Order]:
    """Returns the number and the order of a frame."""
    return _ORDERS.decode(body)


def read_answer(body: bytes) -> tuple[int, Answer]:
    """Returns the number and the answer of a frame."""
    return _ANSWERS.decode(body)


def read_settings(body: bytes) -> Settings:
    """Returns the settings, which are in the first frame that a worker gets."""
    return _SETTINGS.decode(body)[1]


def read_frame(read: Callable[[int], bytes]) -> bytes | None:
    """Returns the body of the next frame; None where the other side has ended, also in the middle of one.

    `read` returns at most so many bytes, and none at the end.
    """
    header = _read_whole(read, HEADER_BYTES)
    return None if header is None else _read_whole(read, body_size(header))


class FrameSplitter:
    """Parts bytes into frames, however they come."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the bodies of all frames that are complete with this."""
        held = self._held
        held += data
        bodies = []
        start = 0
        while len(held) - start >= HEADER_BYTES:
            begin = start + HEADER_BYTES
            end = begin + body_size(held[start:begin])
            if len(held) < end:
                break
            bodies.append(bytes(held[begin:end]))
            start = end
        del held[:start]
        return bodies


def _read_whole(read: Callable[[int], bytes], size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = read(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
