"""Passages in fragments of a few lines, and how much each has to do with a query.

A fragment is scored by BM25 over its own terms and, at less weight, those of the fragments beside it, and by
the pairs of neighbouring words that it shares with the query. How rare a term is comes from the index; how
rare a pair is, from the fragments at hand.

A search looks at some two thousand fragments, so they are a table of numbers: each token, term and value has one, by a
`PassageReader`. It also keeps what it has read of a passage, since searches in one conversation meet the same passages.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.recall.passages import cut_at_lines
from penstock.recall.query import find_phrases, find_token_values
from penstock.recall.terms import find_terms, locate_tokens, split_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from penstock.recall.query import Query, Statistics
    from penstock.writing.reading import Speaker

__all__ = [
    "FRAGMENT_CHARACTERS",
    "FragmentTable",
    "Origin",
    "PassageReader",
    "cut_fragments",
    "find_reader",
    "score_fragments",
]

FRAGMENT_CHARACTERS = 100

_SATURATION = 1.2  # k1 of BM25
_LENGTH = 0.75  # b of BM25
_BESIDE = 0.4  # of a neighbour in the same voice
_NEXT_VOICE = 0.1
_PAIRS = 0.5
_MOST_STRINGS = 1 << 16  # of a reader that is kept
_MOST_PASSAGES = 2_000  # a few kilobytes each


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The origin of a fragment. Passages that follow each other have numbers that follow each other."""

    passage: int
    turn: int
    message: int
    voice: int
    speaker: Speaker


class _ReadPassage(msgspec.Struct, frozen=True, gc=False):
    """The fragments of a passage. Numbers are C integers in bytes, so that those of many passages are joined at once."""

    texts: tuple[str, ...]
    tokens_of_row: bytes
    tokens: bytes
    terms_of_token: bytes
    terms: bytes
    values_of_token: bytes
    values: bytes


class PassageReader:
    """Numbers of strings, and the passages that were read with them. It only grows, until another is begun."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._tokens: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {}
        self._passages: dict[tuple[str, int], _ReadPassage] = {}
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """True if it is large enough to begin another."""
        return len(self.numbers) > _MOST_STRINGS or len(self._passages) > _MOST_PASSAGES

    def read_passages(self, texts: Iterable[str], size: int) -> list[_ReadPassage]:
        """Returns passages cut into fragments of at most `size` characters, each passage read once."""
        with self._lock:
            known = self._passages
            return [known.get((text, size)) or self._read_passage(text, size) for text in texts]

    def _read_passage(self, text: str, size: int) -> _ReadPassage:
        pieces = tuple(cut_at_lines(text, size))
        tokens_of_row, tokens = array("i"), array("i")
        terms_of_token, terms = array("i"), array("i")
        values_of_token, values = array("i"), array("i")
        for piece in pieces:
            read = list(map(self._read_token, split_tokens(piece)))
            held = self._add_phrases(piece, [own for _, _, own in read])
            tokens_of_row.append(len(read))
            for (token, own, _), own_values in zip(read, held, strict=True):
                tokens.append(token)
                terms_of_token.append(len(own))
                terms.extend(own)
                values_of_token.append(len(own_values))
                values.extend(own_values)
        columns = (tokens_of_row, tokens, terms_of_token, terms, values_of_token, values)
        found = self._passages[text, size] = _ReadPassage(pieces, *map(array.tobytes, columns))
        return found

    def _read_token(self, token: str) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Returns the number of a token, those of its terms, and those of its values."""
        found = self._tokens.get(token)
        if found is None:
            terms, values = map(self._number, find_terms(token)), map(self._number, find_token_values(token))
            found = self._tokens[token] = self._number(token), tuple(terms), tuple(values)
        return found

    def _number(self, string: str) -> int:
        return self.numbers.setdefault(string, len(self.numbers))

    def _add_phrases(self, text: str, values: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Returns the values of each token with phrases in quotes: each is a value of its first token."""
        phrases = find_phrases(text)
        if phrases:
            begins = locate_tokens(text)
            for place, phrase in phrases:
                at, number = bisect_left(begins, place), self._number(phrase)
                if at < len(values) and number not in values[at]:
                    values[at] = (*values[at], number)
        return values


_kept = [PassageReader()]


def find_reader() -> PassageReader:
    """Returns the reader of this process, a new one if the last has grown large."""
    if _kept[0].is_full:
        _kept[0] = PassageReader()
    return _kept[0]


class FragmentTable(msgspec.Struct, frozen=True, eq=False):
    """Fragments in their order, a row each, and their tokens, terms and values by number, one after the other."""

    numbers: Mapping[str, int]
    strings: int
    """The count of numbers that the table may hold: the reader may have grown since."""
    origins: list[Origin]
    texts: list[str]
    places: NDArray[np.int64]
    """Counted through all fragments, with a gap where text was left out."""
    beside: NDArray[np.float64]
    """How much of each fragment counts for the next one, and the other way round."""
    tokens: NDArray[np.intc]
    token_rows: NDArray[np.int64]
    terms: NDArray[np.intc]
    term_tokens: NDArray[np.int64]
    values: NDArray[np.intc]
    value_tokens: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.texts)

    def find_numbers(self, strings: Iterable[str]) -> list[int]:
        """Returns the numbers of those of the strings that may stand in the table."""
        found = (self.numbers.get(string, self.strings) for string in strings)
        return [number for number in found if number < self.strings]

    def find_rows_with(self, terms: Iterable[str]) -> NDArray[np.bool_]:
        """Returns which fragments hold one of the terms."""
        holding = np.zeros(len(self), np.bool_)
        found = np.isin(self.terms, self.find_numbers(terms))
        holding[self.token_rows[self.term_tokens[found]]] = True
        return holding

    def spread_numbers(self, by_string: Mapping[str, float], otherwise: float = 0.0) -> NDArray[np.float64]:
        """Returns an array with a place for each number, which holds the value given for its string."""
        spread = np.full(self.strings, otherwise)
        for string, one in by_string.items():
            number = self.numbers.get(string, self.strings)
            if number < self.strings:
                spread[number] = one
        return spread


def cut_fragments(
    passages: Iterable[tuple[Origin, str]],
    reader: PassageReader | None = None,
    size: int = FRAGMENT_CHARACTERS,
) -> FragmentTable:
    """Returns the fragments of passages that come in the order of their numbers.

    Without a reader, nothing is kept of them.
    """
    reader = reader or PassageReader()
    given = list(passages)
    read = reader.read_passages((text for _, text in given), size)
    origins: list[Origin] = []
    texts: list[str] = []
    shifts: list[int] = []  # of the places of a passage's fragments from their rows
    shift, last = 0, None
    for (origin, _), own in zip(given, read, strict=True):
        shift += last is not None and origin.passage != last + 1
        last = origin.passage
        shifts.append(shift)
        texts += own.texts
        origins += [origin] * len(own.texts)
    sizes = [len(own.texts) for own in read]
    voices = np.array([(origin.message, origin.voice) for origin, _ in given], np.int64).reshape(-1, 2)
    places = np.arange(len(texts)) + np.repeat(np.array(shifts, np.int64), sizes)
    tokens = _join(own.tokens for own in read)
    token_rows = np.repeat(np.arange(len(texts)), _join(own.tokens_of_row for own in read))
    each = np.arange(len(tokens))
    return FragmentTable(
        numbers=reader.numbers,
        strings=len(reader.numbers),
        origins=origins,
        texts=texts,
        places=places,
        beside=_weigh_neighbours(places, np.repeat(voices, sizes, axis=0)),
        tokens=tokens,
        token_rows=token_rows,
        terms=_join(own.terms for own in read),
        term_tokens=np.repeat(each, _join(own.terms_of_token for own in read)),
        values=_join(own.values for own in read),
        value_tokens=np.repeat(each, _join(own.values_of_token for own in read)),
    )


def _join(parts: Iterable[bytes]) -> NDArray[np.intc]:
    return np.frombuffer(b"".join(parts), np.intc)


def _weigh_neighbours(places: NDArray[np.int64], voices: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns how much of each fragment counts for the next one, and the other way round."""
    same = (voices[1:] == voices[:-1]).all(axis=1)
    return np.where(np.diff(places) == 1, np.where(same, _BESIDE, _NEXT_VOICE), 0.0)


def score_fragments(query: Query, table: FragmentTable, statistics: Statistics) -> NDArray[np.float64]:
    """Returns a score for each fragment.

    It is 0 if neither the fragment nor those beside it share anything with the query.
    """
    rarities = {term: weight * statistics.rarity(term) for term, weight in query.weights.items()}
    columns = {term: column for column, term in enumerate(term for term in rarities if rarities[term])}
    if not len(table) or not columns:
        return np.zeros(len(table))
    weights = np.array([rarities[term] for term in columns])
    term_rows = table.token_rows[table.term_tokens]
    column_of = table.spread_numbers(columns, -1).astype(np.int64)[table.terms]
    found = np.flatnonzero(column_of >= 0)
    places = term_rows[found] * len(columns) + column_of[found]
    counts = np.bincount(places, minlength=len(table) * len(columns)).astype(np.float64)
    counts = _spread(counts.reshape(len(table), len(columns)), table.beside)
    lengths = _spread(np.bincount(term_rows, minlength=len(table)).astype(np.float64), table.beside)
    norm = _SATURATION * (1 - _LENGTH + _LENGTH * lengths / max(float(lengths.mean()), 1.0))
    scores: NDArray[np.float64] = (counts * (_SATURATION + 1) / (counts + norm[:, None])) @ weights
    return scores + _PAIRS * _spread(_score_pairs(query, table), table.beside)


def _spread(numbers: NDArray[np.float64], beside: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns each fragment's numbers with a part of its neighbours'."""
    part = beside if numbers.ndim == 1 else beside[:, None]
    spread = numbers.copy()
    spread[1:] += part * numbers[:-1]
    spread[:-1] += part * numbers[1:]
    return spread


def _score_pairs(query: Query, table: FragmentTable) -> NDArray[np.float64]:
    scores = np.zeros(len(table))
    begins, ends = ({pair[side]: 1.0 for pair in query.pairs} for side in (0, 1))
    # The word of a token is its first term.
    first = np.flatnonzero(np.diff(table.term_tokens, prepend=-1))
    words, rows = table.terms[first].astype(np.int64), table.token_rows[table.term_tokens[first]]
    is_pair = (table.spread_numbers(begins)[words[:-1]] > 0.0) & (table.spread_numbers(ends)[words[1:]] > 0.0)
    found = np.flatnonzero(is_pair & (rows[1:] == rows[:-1]))
    if not len(found):
        return scores
    pairs = words[found] * table.strings + words[found + 1]
    for pair in sorted(query.pairs):
        numbers = table.find_numbers(pair)
        if len(numbers) < len(pair):
            continue
        holding = np.unique(rows[found[pairs == numbers[0] * table.strings + numbers[1]]])
        if len(holding):
            rarity = math.log1p((len(table) - len(holding) + 0.5) / (len(holding) + 0.5))
            scores[holding] += query.pairs[pair] * rarity
    return scores
