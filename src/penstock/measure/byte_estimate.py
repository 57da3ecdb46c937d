"""An estimate of tokens from the UTF-8 bytes of a text, for when no tokenizer can be had.

Every character costs a share of a token that depends on its script, read off its first UTF-8 byte. The
shares are fitted to o200k on agent sessions and on prose in twenty languages; of 2,000 messages from the
same sessions 98 % come out within 25 %. Long runs of one character are overestimated, random letters and digits (hashes,
base64) underestimated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ByteEstimate", "estimate_tokens"]

# (first bytes of a character, tokens per character). Continuation bytes cost nothing.
_SHARES: tuple[tuple[bytes, float], ...] = (
    (b"abcdefghijklmnopqrstuvwxyz", 0.22),
    (b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", 0.40),
    (b"0123456789", 0.70),
    (bytes(range(0x21, 0x30)) + b":;<=>?@[\\]^_`{|}~", 0.48),
    (b" ", 0.06),
    (bytes(range(0x20)) + b"\x7f", 0.52),  # line breaks, tabs, controls
    (bytes(range(0xC0, 0xC4)), 0.95),  # Western European accents
    (bytes(range(0xC4, 0xCE)), 1.25),  # Central European and Turkish accents, combining marks
    (bytes(range(0xCE, 0xD0)), 0.43),  # Greek
    (bytes(range(0xD0, 0xD6)), 0.31),  # Cyrillic
    (bytes(range(0xD6, 0xD8)), 0.45),  # Hebrew
    (bytes(range(0xD8, 0xE0)), 0.35),  # Arabic, Persian
    (b"\xe0", 0.37),  # Indic scripts, Thai
    (b"\xe1", 0.51),  # Vietnamese, Georgian, Khmer
    (b"\xe2", 0.60),  # typography, arrows, box drawing
    (b"\xe3", 0.76),  # kana
    (bytes(range(0xE4, 0xEA)), 0.77),  # Han
    (bytes(range(0xEA, 0xEE)), 0.71),  # Hangul
    (bytes(range(0xEE, 0xF0)), 0.60),  # full-width forms
    (bytes(range(0xF0, 0x100)), 2.25),  # emoji and rare planes
)
_REST = len(_SHARES)


def _class_table() -> bytes:
    """Byte to class number; what is in no class (continuation bytes) is `_REST`."""
    table = bytearray([_REST]) * 256
    for number, (firsts, _) in enumerate(_SHARES):
        for first in firsts:
            table[first] = number
    return bytes(table)


_CLASS_OF = _class_table()


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` has; 0 only for the empty text."""
    if not text:
        return 0
    classes = text.encode("utf-8", "replace").translate(_CLASS_OF)
    total = sum(share * classes.count(number) for number, (_, share) in enumerate(_SHARES))
    return max(1, math.ceil(total))


class ByteEstimate(msgspec.Struct, frozen=True):
    """The estimate in the place of a tokenizer."""

    name: str = "utf8-bytes"
    exact: bool = False

    def count(self, text: str) -> int:
        """About how many tokens `text` has."""
        return estimate_tokens(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """The same for each of `texts`."""
        return [estimate_tokens(text) for text in texts]
