"""Describes values by their looks: their kinds, their shapes, and the words inside them.

All of it comes from passes over the bytes of many values, laid side by side; no value is read by itself.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "LONGEST_SHAPE",
    "SHAPES",
    "Kind",
    "NewValues",
    "ValueWords",
    "bucket",
    "buckets",
    "find_words",
    "hash_words",
    "look_at",
]


class Kind(IntEnum):
    """The looks of a value."""

    NAME = 0
    PATH = 1
    FLAG = 2
    NUMBER = 3
    ID = 4
    HEX = 5
    SNAKE = 6
    PHRASE = 7


LONGEST_SHAPE = 63  # bytes: longer values are of one length
SHAPES = (LONGEST_SHAPE + 1) << 8

_SPACE, _SLASH, _DIGIT, _LETTER, _UNDERSCORE, _NOT_HEX, _NOT_NUMBER, _DOT = (1 << bit for bit in range(8))
_SHORTEST_HEX = 7


def _classes_of_bytes() -> NDArray[np.uint8]:
    """Returns for each byte the classes it belongs to, as bits."""
    table = np.zeros(256, np.uint8)
    for byte in range(256):
        character = chr(byte)
        table[byte] = (
            _SPACE * (character == " ")
            | _SLASH * (character in "/\\")
            | _DIGIT * (character in "0123456789")
            | _LETTER * (byte >= 128 or character.isalpha())
            | _UNDERSCORE * (character == "_")
            | _NOT_HEX * (character not in "0123456789abcdef")
            | _NOT_NUMBER * (character not in "0123456789.,%")
            | _DOT * (character == ".")
        )
    return table


_CLASSES = _classes_of_bytes()


def _looks(data: NDArray[np.uint8]) -> tuple[NDArray[np.int8], NDArray[np.int16]]:
    """Returns the kind and the shape of each value. `data` are the bytes of all of them, each with a line break
    at its end.
    """
    # starts[v] is where value v begins; has[v] are the classes of all its bytes but the line break.
    starts = np.concatenate([[0], np.flatnonzero(data == ord("\n")) + 1])
    classes = _CLASSES[data]
    classes[starts[1:] - 1] = 0
    has = np.bitwise_or.reduceat(classes, starts[:-1])
    length = np.diff(starts) - 1
    flag = (data[starts[:-1]] == ord("-")) & (data[starts[:-1] + 1] == ord("-"))
    kinds = np.full(len(length), Kind.NAME, np.int8)
    rules: tuple[tuple[Kind, NDArray[np.bool_]], ...] = (
        (Kind.SNAKE, (has & _UNDERSCORE) > 0),
        (Kind.ID, (has & _DIGIT) > 0),
        (Kind.NAME, (has & _DOT) > 0),
        (Kind.HEX, ((has & _NOT_HEX) == 0) & ((has & _DIGIT) > 0) & (length >= _SHORTEST_HEX)),
        (Kind.NUMBER, (has & _NOT_NUMBER) == 0),
        (Kind.PATH, (has & _SLASH) > 0),
        (Kind.FLAG, flag),
        (Kind.PHRASE, (has & _SPACE) > 0),
    )
    for kind, applies in rules:  # later ones win
        kinds[applies] = kind
    shapes = np.minimum(length, LONGEST_SHAPE).astype(np.int16) << np.int16(8) | has
    return kinds, shapes.astype(np.int16)


_OTHER, _UPPER, _LOWER, _NUMERAL, _HIGH = range(5)
_LEAST_BYTES = np.array([1 << 30, 3, 3, 3, 4])  # of a run of each class, to be a word
_LONGEST = 256  # bytes that count
_FACTORS = np.cumprod(
    np.full(_LONGEST, 0x9E3779B97F4A7C15, np.uint64)
)  # wraps, and is odd: every byte counts


def _word_classes() -> NDArray[np.uint8]:
    """Returns for each byte the class whose runs may be words."""
    table = np.full(256, _OTHER, np.uint8)
    table[ord("A") : ord("Z") + 1] = _UPPER
    table[ord("a") : ord("z") + 1] = _LOWER
    table[ord("0") : ord("9") + 1] = _NUMERAL
    table[128:] = _HIGH
    return table


_WORD_CLASSES = _word_classes()


class ValueWords(NamedTuple):
    """Row by row: the number of a word, and the place of the value that it is in."""

    buckets: NDArray[np.uint16]
    owners: NDArray[np.int32]


class NewValues(NamedTuple):
    """Values that were just met: a row for each in three arrays, and the words of all of them."""

    kinds: NDArray[np.int8]
    shapes: NDArray[np.int16]
    word_counts: NDArray[np.int32]  # at least 1, since it divides
    words: ValueWords


def look_at(values: Sequence[str]) -> NewValues:
    """Returns kinds, shapes and words of values that were just met; no value holds a line break."""
    joined = "\n".join([*values, ""])
    words = find_words(joined)
    counts = np.maximum(np.bincount(words.owners, minlength=len(values)), 1).astype(np.int32)
    kinds, shapes = _looks(np.frombuffer(joined.encode(errors="replace"), np.uint8))
    return NewValues(kinds, shapes, counts, words)


def bucket(word: str) -> int:
    """Returns the number of a word in lower case."""
    return buckets([word])[0]


def buckets(words: Sequence[str]) -> list[int]:
    """Returns the numbers of words in lower case, 0 for an empty one."""
    parts = [word.encode(errors="replace")[:_LONGEST] or b"\0" for word in words]
    if not parts:
        return []
    sizes = np.array([len(part) for part in parts])
    firsts = np.cumsum(sizes) - sizes
    within = np.arange(int(sizes.sum())) - np.repeat(firsts, sizes)
    numbers = hash_words(np.frombuffer(b"".join(parts), np.uint8), firsts, within).tolist()
    return [number if word else 0 for number, word in zip(numbers, words, strict=True)]


def find_words(joined: str) -> ValueWords:
    """Returns the words of all values in a text of which each line is one value and the last is empty.

    A word is what `values.sub_words` finds, told by bytes: three or more letters or digits of one kind, a
    capital before small letters included; of letters beyond ASCII, four or more bytes. It is known by a
    number of 16 bits, whatever its case. Two words may share a number. That makes a few values seem
    related that are not, and saves a table of all words there are.
    """
    data = np.frombuffer(joined.encode(errors="replace"), np.uint8)
    lowered = np.frombuffer(joined.lower().encode(errors="replace"), np.uint8)
    breaks = np.flatnonzero(data == ord("\n"))
    if not np.array_equal(np.flatnonzero(lowered == ord("\n")), breaks):
        # A few letters have a small form of another length: their values stay as they are.
        lowered = np.frombuffer(b"\n".join(map(_lower_in_place, joined.split("\n"))), np.uint8)
    classes = _WORD_CLASSES[data]
    starts = np.concatenate([[0], np.flatnonzero(classes[1:] != classes[:-1]) + 1])
    lengths = np.diff(np.concatenate([starts, [len(data)]]))
    kinds = classes[starts]  # of each run of bytes of one class
    begins = starts.copy()
    # A run of small letters takes along the capital before it, unless that ends a word of capitals.
    begins[1:] -= (kinds[1:] == _LOWER) & (kinds[:-1] == _UPPER) & (lengths[:-1] <= 2)
    wanted = np.flatnonzero(lengths >= _LEAST_BYTES[kinds])
    if not len(wanted):
        return ValueWords(np.zeros(0, np.uint16), np.zeros(0, np.int32))
    begins, ends = begins[wanted], starts[wanted] + lengths[wanted]
    # The bytes of all words, one word after the other: word w has sizes[w] of them, from firsts[w] on.
    sizes = np.minimum(ends - begins, _LONGEST)
    firsts = np.cumsum(sizes) - sizes
    within = np.arange(int(sizes.sum())) - np.repeat(firsts, sizes)
    owners = np.searchsorted(breaks, begins).astype(np.int32)
    return ValueWords(hash_words(lowered[np.repeat(begins, sizes) + within], firsts, within), owners)


def _lower_in_place(value: str) -> bytes:
    """Returns a value in lower case where that takes as many bytes, else as it is."""
    plain, lowered = value.encode(errors="replace"), value.lower().encode(errors="replace")
    return lowered if len(lowered) == len(plain) else plain


def hash_words(
    data: NDArray[np.uint8], firsts: NDArray[np.int64], within: NDArray[np.int64]
) -> NDArray[np.uint16]:
    """Returns the numbers of words that stand one after the other; `within` is each byte's place in its word."""
    mixed = np.add.reduceat((data.astype(np.uint64) + np.uint64(1)) * _FACTORS[within], firsts)
    return (mixed >> np.uint64(48)).astype(np.uint16)
