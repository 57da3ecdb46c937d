"""Bytes of messages and results, compressed where that saves something."""

from __future__ import annotations

import zlib

from penstock.errors import StoreError

__all__ = ["pack", "unpack"]

_WORTH_IT = 256  # bytes: below, there is little to save


def pack(data: bytes) -> tuple[bytes, int]:
    """The bytes as they are kept, and 1 where they are compressed."""
    if len(data) >= _WORTH_IT:
        packed = zlib.compress(data, 1)
        if len(packed) < len(data):
            return packed, 1
    return data, 0


def unpack(data: bytes, packed: int) -> bytes:
    """The bytes as they were given. Raises StoreError where they are damaged."""
    if not packed:
        return bytes(data)
    try:
        return zlib.decompress(data)
    except zlib.error:
        raise StoreError(
            "what is kept here is damaged on disk: `penstock doctor` says what else is"
        ) from None
