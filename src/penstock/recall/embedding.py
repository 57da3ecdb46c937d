"""Texts as vectors: what a passage means, in a few bytes, and how near that is to what a query means.

An index keeps the signs of a vector's numbers, one bit each, and compares them with the whole vector of the
query: only one of the two is rough. What all texts at hand have in common says nothing about any of them, so
it is taken off before they are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.recall.query import split_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Embedder", "Meaning", "pack_vectors"]

NEAREST = 40  # passages that are looked at for their meaning alone

_SAMPLE = 2_048  # rows that tell what all have in common
_FEW = 8  # texts: of fewer it is hardly known what they have in common
_SIGNS = 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32) - 1.0


class Embedder(Protocol):
    """Makes vectors of texts. Texts that mean much the same have vectors that point much the same way."""

    @property
    def name(self) -> str:
        """The name of the model and of how it is used.

        Vectors of another name cannot be compared with these.
        """

    @property
    def dimensions(self) -> int:
        """The count of numbers in a vector: a multiple of 8."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns a row of length 1 for each text; of zeros for a text that says nothing to the model."""


def pack_vectors(vectors: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Returns the rows as bits. A row of zeros stays one, and is near to nothing."""
    return np.packbits(vectors > 0.0, axis=1)


class Meaning:
    """The meaning of a query: its first words in full, and what stands behind them as its surroundings."""

    def __init__(self, text: str, embedder: Embedder) -> None:
        self._embedder = embedder
        parts = split_query(text)
        weights = np.array([weight for _, weight in parts], np.float32)
        self._vector = _normalise(weights @ embedder.embed([part for part, _ in parts]))

    def find_nearest(self, rows: NDArray[np.uint8]) -> NDArray[np.intp]:
        """Returns the places of the packed rows that are nearest, nearest first.

        Of equals, those farther back come first.
        """
        near = self.measure_packed(rows)
        best = np.lexsort((-np.arange(len(near)), -near))[:NEAREST]
        return best[near[best] > 0.0]

    def measure_packed(self, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Returns how near each packed row is, from -1 to 1."""
        if not len(rows) or not self._vector.any():
            return np.zeros(len(rows), np.float32)
        scale = np.float32(1.0 / np.sqrt(self._embedder.dimensions))
        sample = np.unpackbits(rows[:: -(-len(rows) // _SAMPLE)], axis=1)
        common = (2.0 * sample.mean(axis=0, dtype=np.float32) - 1.0) * scale * _weigh_evidence(len(sample))
        wanted = _normalise(self._vector - common)
        # What eight signs add is looked up by their byte.
        adds = _SIGNS @ wanted.reshape(-1, 8).T * scale
        near = np.full(len(rows), -common @ wanted, np.float32)
        for place in range(rows.shape[1]):
            near += adds[:, place][rows[:, place]]
        near[~rows.any(axis=1)] = 0.0
        return near

    def measure_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns how near each text is, from -1 to 1."""
        if not texts or not self._vector.any():
            return np.zeros(len(texts), np.float32)
        vectors = self._embedder.embed(texts)
        common = vectors.mean(axis=0) * _weigh_evidence(len(texts))
        apart = vectors - common
        lengths = np.maximum(np.linalg.norm(apart, axis=1), np.float32(1e-6))
        near: NDArray[np.float32] = apart @ _normalise(self._vector - common) / lengths
        near[~vectors.any(axis=1)] = 0.0
        return near


def _weigh_evidence(count: int) -> np.float32:
    """Returns how well so many texts tell what they have in common, from 0 to 1."""
    return np.float32(count / (count + _FEW))


def _normalise(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the vector at length 1; zeros stay zeros."""
    return vector / np.float32(max(float(np.linalg.norm(vector)), 1e-6))
