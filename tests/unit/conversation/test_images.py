from __future__ import annotations

import base64
import struct

import pytest

from penstock.conversation.dialects.content import image_from_base64, image_from_reference, image_from_url

PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", 1920, 1080) + bytes(40)
GIF = b"GIF89a" + struct.pack("<HH", 12, 34) + bytes(40)
EXIF = b"\xff\xe1" + struct.pack(">H", 5_002) + bytes(5_000)
JPEG = b"\xff\xd8" + EXIF + b"\xff\xff\xc2" + struct.pack(">HBHH", 17, 8, 600, 800) + bytes(20)
WEBP_X = (
    b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + (99).to_bytes(3, "little") + (49).to_bytes(3, "little") + bytes(20)
)
WEBP_L = b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f" + (299 | 199 << 14).to_bytes(4, "little") + bytes(20)
WEBP = b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 320, 240) + bytes(20)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (PNG, (1920, 1080)),
        (GIF, (12, 34)),
        (JPEG, (800, 600)),
        (WEBP_X, (100, 50)),
        (WEBP_L, (300, 200)),
        (WEBP, (320, 240)),
        (b"\xff\xd8\xff\xe1\0\0", (0, 0)),
        (PNG[:20], (0, 0)),
        (b"", (0, 0)),
        (b"BM not known", (0, 0)),
    ],
)
def test_dimensions_from_the_header(data, size):
    image = image_from_base64("image/x", base64.b64encode(data).decode())
    assert (image.width, image.height) == size
    assert image.size_bytes == len(data)


@pytest.mark.parametrize("data", ["!!!", "\ud800", "A", "é" * 100])
def test_data_that_is_not_base64(data):
    image = image_from_base64("image/png", data)
    assert (image.width, image.height) == (0, 0)


def test_urls():
    data = base64.b64encode(GIF).decode()
    inline = image_from_url(f"data:image/gif;base64,{data}")
    assert (inline.media_type, inline.width) == ("image/gif", 12)
    assert inline.digest == image_from_base64("image/gif", data).digest
    remote = image_from_url("https://example.com/a.png")
    assert remote == image_from_reference("", "https://example.com/a.png")
    assert remote.digest != inline.digest
    assert image_from_url("data:image/svg+xml,<svg/>").size_bytes == 0
