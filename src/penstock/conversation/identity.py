"""The identity of a message: a digest of its canonical content, chained to its parent's id.

Clients send "the same" message differently each time: keys in another order, `cache_control` elsewhere,
a string instead of a list with one text block, an item without its `id`. None of that is content.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from penstock.conversation.message import (
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Summary,
    Text,
    ToolCall,
    ToolResult,
)
from penstock.conversation.wire import canonical_json, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["chain", "chain_ids", "content_digest", "extends"]

# Fields of a block or item that change from one request to the next without changing what is said.
_VOLATILE = frozenset(
    (
        "annotations",
        "cache_control",
        "internal_chat_message_metadata_passthrough",
        "metadata",
        "phase",
        "status",
    )
)


def content_digest(message: Message) -> bytes:
    """Returns 16 bytes that are equal for messages with the same role and content.

    Sealed reasoning counts by its seal alone, a call by its id, name and parsed arguments. Empty text is no
    content.
    """
    digest = hashlib.blake2b(message.role.encode(), digest_size=16)
    for part in message.parts:
        for field in _fields(part):
            # The length keeps two neighbouring fields from being read as one.
            digest.update(b"%d:" % len(field))
            digest.update(field)
    return digest.digest()


def chain(parent: str, digest: bytes) -> str:
    """Returns the id (32 hex digits) of a message with this content after the message with the id `parent`."""
    return hashlib.blake2b(parent.encode() + digest, digest_size=16).hexdigest()


def chain_ids(messages: Iterable[Message], parent: str = "") -> list[str]:
    """Returns the id of each message in turn."""
    ids: list[str] = []
    for message in messages:
        parent = chain(parent, content_digest(message))
        ids.append(parent)
    return ids


def extends(longer: Message, shorter: Message) -> bool:
    """Returns True if a message says everything that another one of its role says, and then more.

    The last text of the shorter one may go on in the longer one.
    """
    long, short = ([fields for part in one.parts if (fields := _fields(part))] for one in (longer, shorter))
    if longer.role is not shorter.role or not short or len(long) < len(short):
        return False
    *before, last = short
    own = long[len(before)]
    goes_on = own[0] == last[0] == b"text" and own[1].startswith(last[1])
    return long[: len(before)] == before and (goes_on or own == last) and long != short


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _fields(part: Part) -> tuple[bytes, ...]:
    if isinstance(part, Text):
        return (b"text", _bytes(part.text)) if part.text else ()
    if isinstance(part, ToolResult):
        images = b",".join(_image(image) for image in part.images)
        return (b"error" if part.is_error else b"result", _bytes(part.call_id), _bytes(part.text), images)
    if isinstance(part, ToolCall):
        return (b"call", _bytes(part.call_id), _bytes(part.name), _arguments(part.arguments))
    if isinstance(part, Reasoning):
        return (b"sealed", _bytes(part.seal)) if part.sealed else (b"reasoning", _bytes(part.text))
    if isinstance(part, Image):
        return (b"image", _image(part))
    return _rare_fields(part)


def _rare_fields(part: Summary | Opaque) -> tuple[bytes, ...]:
    if isinstance(part, Summary):
        return (b"summary", b"%d" % part.version, canonical_json(part.attributes), _bytes(part.text))
    return (b"opaque", _bytes(part.kind), _opaque(part.text))


def _image(image: Image) -> bytes:
    return _bytes(f"{image.media_type} {image.digest}")


def _arguments(text: str) -> bytes:
    try:
        return canonical_json(parse_json(text))
    except (ValueError, RecursionError):
        return _bytes(text)


def _opaque(text: str) -> bytes:
    try:
        value = parse_json(text)
    except ValueError:
        return _bytes(text)
    if isinstance(value, dict) and value.keys() - {"type", "id"} - _VOLATILE:
        value.pop("id", None)  # where there is more than the id, the id is not what is said
    try:
        return canonical_json(_stable(value))
    except RecursionError:
        return _bytes(text)


def _stable(value: Any) -> Any:
    """Returns the value without volatile fields, at any depth."""
    if isinstance(value, dict):
        return {key: _stable(item) for key, item in value.items() if key not in _VOLATILE}
    return [_stable(item) for item in value] if isinstance(value, list) else value
