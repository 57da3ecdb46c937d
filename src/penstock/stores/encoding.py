"""Values as every database can hold them: texts without NUL and lone surrogates, finite times, packed bytes.

Messages, results and notes are bytes and hold anything. What people and programs name things by is text, and
PostgreSQL refuses NUL in it. A label (a title, a model, a tool) gets a replacement character there; an id is
refused, since two ids must not become one.
"""

from __future__ import annotations

import math
import zlib

from penstock.errors import StoreError

__all__ = ["clean_label", "is_storable", "pack", "require_identifier", "require_moment", "unpack"]

_REPLACEMENT = "\ufffd"
_WORTH_IT = 256  # bytes: below, compressing saves little


def is_storable(text: str) -> bool:
    """Returns whether every database can hold the text as it is."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text))


def clean_label(text: str) -> str:
    """Returns the text, with U+FFFD for each character that cannot be held."""
    if is_storable(text):
        return text
    return "".join(_REPLACEMENT if char == "\0" or "\ud800" <= char <= "\udfff" else char for char in text)


def require_identifier(text: str) -> str:
    """Returns the text. Raises StoreError where it is empty or cannot be held as it is."""
    if text and is_storable(text):
        return text
    raise StoreError(f"{text[:40]!r} cannot be an id; use text without NUL and lone surrogates")


def require_moment(at: float) -> float:
    """Returns seconds since 1970 as they are. Raises StoreError for NaN and infinity."""
    if math.isfinite(at):
        return float(at)
    raise StoreError(f"{at} is not a point in time; give seconds since 1970")


def pack(data: bytes) -> tuple[bytes, int]:
    """Returns the bytes as they are kept, and 1 where they are compressed."""
    if len(data) >= _WORTH_IT:
        packed = zlib.compress(data, 1)
        if len(packed) < len(data):
            return packed, 1
    return data, 0


def unpack(data: bytes, packed: int) -> bytes:
    """Returns the bytes as they were given. Raises StoreError where they are damaged."""
    if not packed:
        return bytes(data)
    try:
        return zlib.decompress(data)
    except zlib.error:
        raise StoreError("these bytes are damaged on disk; `penstock doctor` shows what else is") from None
