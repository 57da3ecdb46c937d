"""Numbers for very many distinct texts, without keeping the texts.

A text is known by its 64-bit hash. The hashes stand in one sorted array, so that half a million of them take six
megabytes where a table of objects takes sixty, and many are looked up at once. Numbers are given in the order in
which texts are met, so that they do not depend on what the hashes happen to be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["UNKNOWN", "Interned", "Interner"]

UNKNOWN = -1


class Interned(NamedTuple):
    """The number of each hash, and where each new one stands first, in the order of their numbers."""

    numbers: NDArray[np.int32]
    fresh: NDArray[np.int64]


class Interner:
    """The hashes met so far. It only grows."""

    def __init__(self) -> None:
        self._hashes = np.zeros(0, np.int64)
        self._numbers = np.zeros(0, np.int32)

    def __len__(self) -> int:
        return len(self._hashes)

    def intern(self, hashes: NDArray[np.int64]) -> Interned:
        """A number for each hash; new ones get the next free numbers, in the order in which they stand here."""
        if not len(hashes):
            return Interned(np.zeros(0, np.int32), np.zeros(0, np.int64))
        order = np.argsort(hashes)
        ordered = hashes[order]
        first = np.ones(len(ordered), np.bool_)
        first[1:] = ordered[1:] != ordered[:-1]
        distinct, met_at = ordered[first], np.minimum.reduceat(order, np.flatnonzero(first))
        at = np.searchsorted(self._hashes, distinct)
        new = ~self._stands(distinct, at)
        by_meeting = np.argsort(met_at[new])
        numbers = np.empty(len(by_meeting), np.int32)
        numbers[by_meeting] = np.arange(len(self), len(self) + len(by_meeting), dtype=np.int32)
        fresh = met_at[new][by_meeting]
        self._hashes = np.insert(self._hashes, at[new], distinct[new])
        self._numbers = np.insert(self._numbers, at[new], numbers)
        numbers_of_distinct = self._numbers[np.searchsorted(self._hashes, distinct)]
        result = np.empty(len(hashes), np.int32)
        result[order] = numbers_of_distinct[np.cumsum(first) - 1]
        return Interned(result, fresh)

    def look_up(self, hashes: NDArray[np.int64]) -> NDArray[np.int32]:
        """The number of each hash, UNKNOWN for one that was never met."""
        at = np.searchsorted(self._hashes, hashes)
        known = self._stands(hashes, at)
        numbers = np.full(len(hashes), UNKNOWN, np.int32)
        numbers[known] = self._numbers[at[known]]
        return numbers

    def _stands(self, hashes: NDArray[np.int64], at: NDArray[np.intp]) -> NDArray[np.bool_]:
        inside = at < len(self._hashes)
        known = np.zeros(len(hashes), np.bool_)
        known[inside] = self._hashes[at[inside]] == hashes[inside]
        return known
