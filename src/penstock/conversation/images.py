"""What a picture on the wire is: its type, size and dimensions, read from the first bytes alone."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct

from penstock.conversation.message import Image

__all__ = ["image_from_base64", "image_from_reference", "image_from_url"]

_SNIFF_CHARS = 64  # enough for the header of PNG, GIF and WebP
_JPEG_CHARS = 65_536  # a JPEG may carry a preview before it says its size


def image_from_url(url: str) -> Image:
    """The picture that a `data:` URL holds or another URL points to."""
    if url[:5].lower() == "data:":
        head, comma, data = url.partition(",")
        if comma and head.endswith(";base64"):
            return image_from_base64(head[5:].split(";", 1)[0], data)
    return image_from_reference("", url)


def image_from_reference(media_type: str, reference: str) -> Image:
    """A picture that is not in the message: a URL or the id of a file."""
    return Image(media_type=media_type, size_bytes=0, digest=_digest(reference))


def image_from_base64(media_type: str, data: str) -> Image:
    """A picture in the message. Width and height are 0 where its header does not say."""
    size_bytes = max(0, len(data) * 3 // 4 - data.count("=", -2))
    width, height = _dimensions(data)
    return Image(media_type, size_bytes, _digest(data), width, height)


def _digest(source: str) -> str:
    return hashlib.blake2b(source.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _first_bytes(data: str, chars: int) -> bytes:
    head = data[:chars]
    try:
        return base64.b64decode(head[: len(head) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def _dimensions(data: str) -> tuple[int, int]:
    head = _first_bytes(data, _SNIFF_CHARS)
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        width, height = struct.unpack_from(">II", head, 16)
        return width, height
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        width, height = struct.unpack_from("<HH", head, 6)
        return width, height
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _webp_dimensions(head)
    if head.startswith(b"\xff\xd8"):
        return _jpeg_dimensions(_first_bytes(data, _JPEG_CHARS))
    return 0, 0


def _webp_dimensions(head: bytes) -> tuple[int, int]:
    if len(head) < 30:
        return 0, 0
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def _jpeg_dimensions(head: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", head, at + 5)
            return width, height
        if marker in (0x01, 0xFF) or 0xD0 <= marker <= 0xD8:
            at += 1 if marker == 0xFF else 2  # padding, or a marker that has no length
            continue
        at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return 0, 0
