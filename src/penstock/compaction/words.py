"""The words inside very many values, found and hashed all at once.

A word is what `values.sub_words` finds, told by bytes: three or more letters or digits of one kind, a capital
before small letters included; of letters beyond ASCII, four or more bytes. A word is known by a number below
`BUCKETS`, whatever its case. Two words may share a number. That makes a few values seem related that are not,
and saves a table of all words there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BUCKETS", "ValueWords", "bucket", "words_of"]

BUCKETS = 1 << 16
_OTHER, _UPPER, _LOWER, _DIGIT, _HIGH = range(5)
_LEAST_BYTES = np.array([1 << 30, 3, 3, 3, 4])  # of a run of each class, to be a word
_LONGEST = 256  # bytes that count
_FACTORS = np.cumprod(
    np.full(_LONGEST, 0x9E3779B97F4A7C15, np.uint64)
)  # wraps, and is odd: every byte counts


def _classes() -> NDArray[np.uint8]:
    table = np.full(256, _OTHER, np.uint8)
    table[ord("A") : ord("Z") + 1] = _UPPER
    table[ord("a") : ord("z") + 1] = _LOWER
    table[ord("0") : ord("9") + 1] = _DIGIT
    table[128:] = _HIGH
    return table


_CLASSES = _classes()


class ValueWords(NamedTuple):
    """The number of each word, and the place of the value it is in."""

    buckets: NDArray[np.uint16]
    owners: NDArray[np.int32]


def bucket(word: str) -> int:
    """The number of a word in lower case."""
    data = np.frombuffer(word.encode(errors="replace")[:_LONGEST], np.uint8)
    return int(_numbers(data, np.zeros(1, np.int64), np.arange(len(data)))[0]) if len(data) else 0


def words_of(joined: str) -> ValueWords:
    """The words of all values in a text of which each line is one value and the last is empty."""
    data = np.frombuffer(joined.encode(errors="replace"), np.uint8)
    lowered = np.frombuffer(joined.lower().encode(errors="replace"), np.uint8)
    if len(lowered) != len(data):  # a few letters have a small form of another length
        lowered = data
    classes = _CLASSES[data]
    starts = np.concatenate([[0], np.flatnonzero(classes[1:] != classes[:-1]) + 1])
    lengths = np.diff(np.concatenate([starts, [len(data)]]))
    kinds = classes[starts]
    begins = starts.copy()
    begins[1:] -= (kinds[1:] == _LOWER) & (kinds[:-1] == _UPPER) & (lengths[:-1] <= 2)
    wanted = np.flatnonzero(lengths >= _LEAST_BYTES[kinds])
    if not len(wanted):
        return ValueWords(np.zeros(0, np.uint16), np.zeros(0, np.int32))
    begins, ends = begins[wanted], starts[wanted] + lengths[wanted]
    sizes = np.minimum(ends - begins, _LONGEST)
    firsts = np.cumsum(sizes) - sizes
    within = np.arange(int(sizes.sum())) - np.repeat(firsts, sizes)
    owners = np.searchsorted(np.flatnonzero(data == ord("\n")), begins).astype(np.int32)
    return ValueWords(_numbers(lowered[np.repeat(begins, sizes) + within], firsts, within), owners)


def _numbers(
    data: NDArray[np.uint8], firsts: NDArray[np.int64], within: NDArray[np.int64]
) -> NDArray[np.uint16]:
    """The numbers of words that stand one after the other; `within` is each byte's place in its word."""
    mixed = np.add.reduceat((data.astype(np.uint64) + np.uint64(1)) * _FACTORS[within], firsts)
    return (mixed >> np.uint64(48)).astype(np.uint16)
