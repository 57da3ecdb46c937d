"""Prepares messages for a log: their bytes, their digests and their weights."""

from __future__ import annotations

import math
from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import decode_each
from penstock.conversation.dialects.base import require_list
from penstock.conversation.identity import content_digest
from penstock.conversation.message import ToolResult
from penstock.conversation.pairing import Pairing, link_calls
from penstock.conversation.wire import encode_wire, parse_json, to_plain
from penstock.errors import InputError, MalformedJSON
from penstock.measure.weigh import weigh
from penstock.sessions.results import find_stored_handles
from penstock.stores.values import NewMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.dialects.base import Dialect
    from penstock.conversation.message import Message
    from penstock.measure.tokens import Tokenizer

__all__ = [
    "PreparedMessages",
    "describe_messages",
    "encode_given",
    "prepare_given",
    "prepare_messages",
    "read_given",
]

_JSON = (str, bytes, bytearray)


class PreparedMessages(msgspec.Struct, frozen=True, eq=False):
    """Messages that only have to be written to a log: the bytes and the object of each, and what the store takes."""

    raws: list[bytes]
    wires: list[Any]
    new: list[NewMessage]

    @property
    def tokens(self) -> int:
        """The tokens of all of them."""
        return sum(message.tokens for message in self.new)

    def take(self, length: int) -> PreparedMessages:
        """Returns the first `length` messages."""
        return PreparedMessages(self.raws[:length], self.wires[:length], self.new[:length])

    def drop(self, length: int) -> PreparedMessages:
        """Returns all but the first `length` messages."""
        return PreparedMessages(self.raws[length:], self.wires[length:], self.new[length:])


def prepare_given(given: Sequence[Any], dialect: Dialect, tokenizer: Tokenizer) -> PreparedMessages:
    """Prepares messages as a caller hands them over. Raises InputError for one that is not one of the dialect."""
    raws, wires = encode_given(given, read_given(given))
    return PreparedMessages(raws, wires, prepare_messages(raws, wires, dialect, tokenizer))


def read_given(given: Sequence[Any]) -> list[Any]:
    """Returns messages as a caller hands them over, dicts, objects of an SDK or their JSON, as JSON objects.

    Raises InputError for anything but a list of messages, MalformedJSON with the number of one whose JSON cannot be read.
    """
    return [
        _parse(one, number) if isinstance(one, _JSON) else to_plain(one)
        for number, one in enumerate(require_list(given), start=1)
    ]


def encode_given(given: Sequence[Any], wires: Sequence[Any]) -> tuple[list[bytes], list[Any]]:
    """Returns the bytes of each message as the log keeps them, and the object that these bytes say.

    JSON stays as it was given. An object is encoded once, here; where JSON cannot say it as it is (a tuple), the log has
    what its bytes say, and the message is known by that. Raises InputError for NaN and infinity, which would become null.
    """
    raws = [
        (_utf8(one) if isinstance(one, _JSON) else None) or encode_wire(wire)
        for one, wire in zip(given, wires, strict=True)
    ]
    for number, (raw, wire) in enumerate(zip(raws, wires, strict=True), start=1):
        if b"null" in raw and _has_no_number(wire):
            raise InputError(
                "JSON has no NaN and no infinity; leave the field out, or send the number as a string",
                position=f"message {number}",
            )
    read = [
        wire if isinstance(one, _JSON) else parse_json(raw)
        for one, wire, raw in zip(given, wires, raws, strict=True)
    ]
    return raws, read


def _has_no_number(value: Any) -> bool:
    """Returns True if the value holds a float that JSON cannot express."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_no_number, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_no_number, value))


def _utf8(given: str | bytes | bytearray) -> bytes | None:
    """Returns the JSON as it can stand inside other JSON; None for another encoding, a byte order mark or a lone surrogate."""
    try:
        raw = given.encode() if isinstance(given, str) else bytes(given)
        raw.decode()
    except UnicodeError:
        return None
    # UTF-16 and UTF-32 are read too. Their bytes may be valid UTF-8, but JSON in UTF-8 never has a zero byte.
    return None if raw.startswith(BOM_UTF8) or b"\0" in raw else raw


def _parse(text: str | bytes | bytearray, number: int) -> Any:
    try:
        return parse_json(bytes(text) if isinstance(text, bytearray) else text)
    except ValueError as error:
        raise MalformedJSON(f"the message is not JSON: {error}", position=f"message {number}") from None


def prepare_messages(
    raws: Sequence[bytes], wires: Sequence[Any], dialect: Dialect, tokenizer: Tokenizer
) -> list[NewMessage]:
    """Returns the messages as a store takes them. Raises InputError with the number of one that cannot be read.

    A message is known by itself alone: ids that a list makes up for calls without one depend on what stands before
    them, and would give the same message another identity in another batch.
    """
    alone = decode_each(dialect, wires)
    return describe_messages(raws, alone, [content_digest(one) for one in alone], dialect, tokenizer)


def describe_messages(
    raws: Sequence[bytes],
    alone: list[Message],
    digests: Sequence[bytes],
    dialect: Dialect,
    tokenizer: Tokenizer,
) -> list[NewMessage]:
    """Returns messages that were read each for itself (`decode_each`), with the digest of each, as a store takes them."""
    linked = alone if dialect.pairing is Pairing.ANYWHERE else link_calls(alone)
    return [
        NewMessage(raw, digest, message.role.value, tokens, results=_stands_for(message))
        for raw, digest, message, tokens in zip(raws, digests, linked, weigh(linked, tokenizer), strict=True)
    ]


def _stands_for(message: Message) -> tuple[str, ...]:
    """Returns the stored results whose previews are in the message."""
    found: tuple[str, ...] = ()
    for part in message.parts:
        if isinstance(part, ToolResult):
            found += find_stored_handles(part.text)
    return found
