"""Values as every database can hold them: texts without NUL and lone surrogates, finite times, packed bytes.

Messages, results and notes are bytes and hold anything. Names that people and programs give are text, and
PostgreSQL refuses NUL in it. A label (a title, a model, a tool) gets a replacement character there; an id is
refused, since two ids must not become one.
"""

from __future__ import annotations

import math
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "clean_label",
    "is_storable",
    "pack",
    "reading_kept",
    "require_identifier",
    "require_moment",
    "require_price",
    "unpack",
]

_REPLACEMENT = "\ufffd"
_WORTH_IT = 512  # bytes: below, compressing saves a hundred of them and takes 10 µs


def is_storable(text: str) -> bool:
    """Returns True if every database can hold the text as it is."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text))


def clean_label(text: str) -> str:
    """Returns the text, with U+FFFD for each character that cannot be held."""
    if is_storable(text):
        return text
    return "".join(_REPLACEMENT if char == "\0" or "\ud800" <= char <= "\udfff" else char for char in text)


def require_identifier(text: str) -> str:
    """Returns the text. Raises StoreError if it is empty or cannot be held as it is."""
    if text and is_storable(text):
        return text
    raise StoreError(f"{text[:40]!r} cannot be an id; use text without NUL and lone surrogates")


def require_moment(at: float) -> float:
    """Returns seconds since 1970 as they are. Raises StoreError for NaN and infinity."""
    if math.isfinite(at):
        return float(at)
    raise StoreError(f"{at} is not a point in time; give seconds since 1970")


def require_price(cost: float | None) -> float | None:
    """Returns the cost as it is. Raises StoreError for NaN and infinity, which one database keeps and another makes NULL."""
    if cost is None or math.isfinite(cost):
        return cost
    raise StoreError(f"{cost} is not a cost; give a number, or None if it is unknown")


@contextmanager
def reading_kept(what: str) -> Iterator[None]:
    """Raises StoreError, with the next step, if the record of `what` cannot be read."""
    try:
        yield
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreError(
            f"the record of {what} is damaged ({error}); `penstock doctor` shows what else is, "
            "and whole conversations can be exported"
        ) from error


def pack(data: bytes) -> tuple[bytes, int]:
    """Returns the bytes as they are stored, and 1 if they are compressed."""
    if len(data) >= _WORTH_IT:
        packed = zlib.compress(data, 1)
        if len(packed) < len(data):
            return packed, 1
    return data, 0


def unpack(data: bytes, packed: int) -> bytes:
    """Returns the bytes as they were given. Raises StoreError if they are damaged."""
    try:
        return zlib.decompress(data) if packed else bytes(data)
    except (zlib.error, TypeError):
        raise StoreError("these bytes are damaged on disk; `penstock doctor` shows what else is") from None
