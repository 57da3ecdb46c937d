"""Passages in fragments of a few lines, and how much each has to do with a query.

A fragment is scored by BM25 over its own terms and, at less weight, those of the fragments beside it, and by
the pairs of neighbouring words that it shares with the query. How rare a term is comes from the index; how
rare a pair is, from the fragments at hand.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.recall.passages import cut_at_lines
from penstock.recall.query import find_phrases, find_token_values
from penstock.recall.terms import find_terms, locate_tokens, split_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.recall.query import Query, Statistics
    from penstock.writing.reading import Speaker

__all__ = ["FRAGMENT_CHARACTERS", "Fragment", "Origin", "cut_fragments", "score_fragments"]

FRAGMENT_CHARACTERS = 100

_SATURATION = 1.2  # k1 of BM25
_LENGTH = 0.75  # b of BM25
_BESIDE = 0.4  # of a neighbour in the same voice
_NEXT_VOICE = 0.1
_PAIRS = 0.5


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The origin of a fragment. Passages that follow each other have numbers that follow each other."""

    passage: int
    turn: int
    message: int
    voice: int
    speaker: Speaker


class Fragment(msgspec.Struct, frozen=True, eq=False):
    """A line or a few of a passage, with its tokens and the terms of each."""

    origin: Origin
    place: int  # counted through all fragments; a gap where text was left out
    text: str
    tokens: list[str]
    terms: list[tuple[str, ...]]

    def find_values(self) -> list[tuple[str, ...]]:
        """Returns the values of each token. A phrase in quotes is a value of its first token."""
        values = list(map(find_token_values, self.tokens))
        phrases = find_phrases(self.text)
        if phrases:
            begins = locate_tokens(self.text)
            for place, phrase in phrases:
                at = bisect_left(begins, place)
                if at < len(values) and phrase not in values[at]:
                    values[at] = (*values[at], phrase)
        return values


def cut_fragments(passages: Iterable[tuple[Origin, str]], size: int = FRAGMENT_CHARACTERS) -> list[Fragment]:
    """Returns the fragments of passages that come in the order of their numbers."""
    found: list[Fragment] = []
    place, last = 0, None
    for origin, text in passages:
        place += last is not None and origin.passage != last + 1
        last = origin.passage
        for piece in cut_at_lines(text, size):
            tokens = split_tokens(piece)
            found.append(Fragment(origin, place, piece, tokens, list(map(find_terms, tokens))))
            place += 1
    return found


def score_fragments(
    query: Query, fragments: Sequence[Fragment], statistics: Statistics
) -> NDArray[np.float64]:
    """Returns a score for each fragment.

    It is 0 where neither the fragment nor those beside it share anything with the query.
    """
    rarities = {term: weight * statistics.rarity(term) for term, weight in query.weights.items()}
    columns = {term: column for column, term in enumerate(term for term in rarities if rarities[term])}
    if not fragments or not columns:
        return np.zeros(len(fragments))
    weights = np.array([rarities[term] for term in columns])
    counts = np.zeros((len(fragments), len(columns)))
    np.add.at(counts, _find_places(fragments, columns), 1.0)
    lengths = np.array([float(sum(map(len, fragment.terms))) for fragment in fragments])
    beside = _weigh_neighbours(fragments)
    counts, lengths = _spread(counts, beside), _spread(lengths, beside)
    norm = _SATURATION * (1 - _LENGTH + _LENGTH * lengths / max(float(lengths.mean()), 1.0))
    scores: NDArray[np.float64] = (counts * (_SATURATION + 1) / (counts + norm[:, None])) @ weights
    return scores + _PAIRS * _spread(_score_pairs(query, fragments), beside)


def _find_places(
    fragments: Sequence[Fragment], columns: dict[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the rows and columns of all terms of the query that stand in the fragments, as often as they do."""
    held = {
        token: [columns[term] for term in find_terms(token) if term in columns]
        for token in set[str]().union(*(fragment.tokens for fragment in fragments))
    }
    telling = {token: own for token, own in held.items() if own}
    found = [
        (row, column)
        for row, fragment in enumerate(fragments)
        for token in fragment.tokens
        if token in telling
        for column in telling[token]
    ]
    pairs = np.array(found, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _weigh_neighbours(fragments: Sequence[Fragment]) -> NDArray[np.float64]:
    """Returns how much of each fragment counts for the next one, and the other way round."""
    if len(fragments) < 2:
        return np.zeros(0)
    places = np.array([fragment.place for fragment in fragments])
    voices = np.array([(fragment.origin.message, fragment.origin.voice) for fragment in fragments])
    same = (voices[1:] == voices[:-1]).all(axis=1)
    return np.where(np.diff(places) == 1, np.where(same, _BESIDE, _NEXT_VOICE), 0.0)


def _spread(numbers: NDArray[np.float64], beside: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns each fragment's numbers with a part of its neighbours'."""
    part = beside if numbers.ndim == 1 else beside[:, None]
    spread = numbers.copy()
    spread[1:] += part * numbers[:-1]
    spread[:-1] += part * numbers[1:]
    return spread


def _score_pairs(query: Query, fragments: Sequence[Fragment]) -> NDArray[np.float64]:
    holding: dict[tuple[str, str], set[int]] = {}
    for row, fragment in enumerate(fragments):
        words = [terms[0] for terms in fragment.terms if terms]
        for pair in pairwise(words):
            if pair in query.pairs:
                holding.setdefault(pair, set()).add(row)
    scores = np.zeros(len(fragments))
    for pair, rows in sorted(holding.items()):
        rarity = math.log1p((len(fragments) - len(rows) + 0.5) / (len(rows) + 0.5))
        scores[sorted(rows)] += query.pairs[pair] * rarity
    return scores
