"""A number for every value, which values stand in which text, and what all values look like.

Each distinct token is read once. After that, finding the values of a megabyte of text is one look-up per token
and a few array operations.

Values are laid side by side. What a value looks like (its kind) and how much of it is about something (the
words that it shares with a text) come from passes over all of them; no value is looked at by itself.
"""

from __future__ import annotations

import re
from array import array
from enum import IntEnum
from itertools import accumulate, islice
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.compaction.interning import UNKNOWN, Interner
from penstock.compaction.values import (
    PHRASE,
    QUOTES,
    SEPARATORS,
    values_in,
    values_of_each,
)
from penstock.compaction.words import bucket, words_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["FoundValues", "Kind", "Vocabulary", "sorted_distinct"]


class Kind(IntEnum):
    """What a value looks like."""

    NAME = 0
    PATH = 1
    FLAG = 2
    NUMBER = 3
    ID = 4
    HEX = 5
    SNAKE = 6
    PHRASE = 7


_SPACE, _SLASH, _DIGIT, _LETTER, _UNDERSCORE, _NOT_HEX, _NOT_NUMBER, _DOT = (1 << bit for bit in range(8))
_SHORTEST_HEX = 7


def _classes() -> NDArray[np.uint8]:
    """For each byte the classes it belongs to."""
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


_CLASSES = _classes()
_END = "\x00"
_REMEMBERED = 100_000  # tokens
_SMALL_PIECE = 10_000  # words
_END_OF_TEXT = "\n\x00\n"
_SEPARATORS_BUT_END = {code: space for code, space in SEPARATORS.items() if code != ord(_END)}
_PHRASE_OR_END = re.compile(r"\x00|" + PHRASE.pattern)


class _Tokens(dict[str, int]):
    """A number for each token of late, and the numbers of the values that each holds, one token after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: list[str] = []  # tokens that have a number and were not read yet
        self.held = array("i")
        self.first = array("i")  # token t holds held[first[t]:first[t + 1]]
        self.forget()

    def forget(self) -> None:
        """Start anew: tokens are cheap to read again and many to remember."""
        self.clear()
        self[_END] = 0
        del self.held[:]
        self.first[:] = array("i", [0, 0])

    def __missing__(self, token: str) -> int:
        number = self[token] = len(self)
        self.fresh.append(token)
        return number


class FoundValues(msgspec.Struct, frozen=True, eq=False):
    """The distinct values of each text: `ids[starts[t]:starts[t + 1]]` are those of text t."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]


class Vocabulary:
    """The values met so far, each with a number, in the order of meeting. It only grows."""

    def __init__(self) -> None:
        self.keys: set[int] = set()  # the values that name other values in JSON
        self._interner = Interner()
        self._tokens = _Tokens()
        self._kinds = np.zeros(0, np.int8)
        self._word_count = np.zeros(0, np.int32)
        # Every word of every value, and the value it is of; in pieces, the words of each in order.
        self._word: list[NDArray[np.uint16]] = [np.zeros(0, np.uint16)]
        self._owner: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]

    def __len__(self) -> int:
        return len(self._interner)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and len(self.numbers_of([value])) > 0

    def find(self, texts: Sequence[str]) -> FoundValues:
        """The values of each text. New ones get numbers."""
        if len(self._tokens) > _REMEMBERED:
            self._tokens.forget()
        joined = _END_OF_TEXT.join([*texts, ""])
        if joined.count(_END) > len(texts):
            joined = _END_OF_TEXT.join([*(text.replace(_END, " ") for text in texts), ""])
        texts_of, numbers = self._values_of(joined.translate(_SEPARATORS_BUT_END).split())
        if any(quote in joined for quote in QUOTES):
            phrases_of, phrases = self._values_of(_PHRASE_OR_END.findall(joined))
            texts_of, numbers = np.concatenate([texts_of, phrases_of]), np.concatenate([numbers, phrases])
        size = max(1, len(self))
        distinct = sorted_distinct(texts_of * size + numbers)
        per_text = np.bincount(distinct // size, minlength=len(texts))[: len(texts)]
        return FoundValues((distinct % size).astype(np.int32), np.concatenate([[0], np.cumsum(per_text)]))

    def _values_of(self, tokens: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The numbers of the tokens' values, each with the text it is of; an end token leads to the next text."""
        codes = np.fromiter(map(self._tokens.__getitem__, tokens), np.int64, len(tokens))
        self._read_fresh()
        first = np.frombuffer(self._tokens.first, np.intc).astype(np.int64)
        counts = first[codes + 1] - first[codes]
        before = np.cumsum(counts) - counts
        places = np.arange(int(counts.sum())) + np.repeat(first[codes] - before, counts)
        held = np.frombuffer(self._tokens.held, np.intc)[places]
        return np.repeat(np.cumsum(codes == 0), counts), held

    def _read_fresh(self) -> None:
        """Read the tokens that were met for the first time: their values get numbers, new ones are looked at."""
        tokens = self._tokens
        values, counts = values_of_each(tokens.fresh)
        tokens.fresh.clear()
        tokens.first.extend(islice(accumulate(counts, initial=tokens.first[-1]), 1, None))
        interned = self._interner.intern(np.fromiter(map(hash, values), np.int64, len(values)))
        tokens.held.frombytes(interned.numbers.astype(np.intc).tobytes())
        if len(interned.fresh):
            self._look_at([values[place] for place in interned.fresh.tolist()])

    def numbers_of(self, values: Iterable[str]) -> NDArray[np.int32]:
        """The numbers of those values that were met before, in order. None gets a number."""
        hashes = np.fromiter(map(hash, values), np.int64)
        numbers = self._interner.look_up(hashes)
        return np.sort(numbers[numbers != UNKNOWN])

    def known_in(self, texts: Iterable[str]) -> NDArray[np.int32]:
        """The values that stand in these texts and were met before."""
        return self.numbers_of({value for text in texts for value in values_in(text)})

    def kinds(self) -> NDArray[np.int8]:
        """What each value looks like, as a `Kind`."""
        return self._kinds

    def relation(self, words: Mapping[str, float]) -> NDArray[np.float32]:
        """For each value the mean weight of its words; words are lower case, and others weigh nothing."""
        weighed: dict[int, float] = {}
        for word, weight in words.items():
            weighed[bucket(word)] = weighed.get(bucket(word), 0.0) + weight
        buckets = np.array(sorted(weighed), np.uint16)
        weights = np.array([weighed[one] for one in sorted(weighed)], np.float32)
        total = np.zeros(len(self), np.float32)
        for word_piece, owner_piece in zip(self._word, self._owner, strict=True):
            first = np.searchsorted(word_piece, buckets)
            counts = np.searchsorted(word_piece, buckets, "right") - first
            some = np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts)
            np.add.at(total, owner_piece[some], np.repeat(weights, counts))
        total /= self._word_count
        return total

    def _look_at(self, fresh: list[str]) -> None:
        """Work out kinds and words of values that were just met."""
        joined = "\n".join([*fresh, ""])
        words = words_of(joined)
        count = np.bincount(words.owners, minlength=len(fresh))
        self._word_count = np.concatenate([self._word_count, np.maximum(count, 1).astype(np.int32)])
        self._add_words(words.buckets, words.owners + np.int32(len(self._kinds)))
        data = np.frombuffer(joined.encode(errors="replace"), np.uint8)
        self._kinds = np.concatenate([self._kinds, _kinds(data)])

    def _add_words(self, word: NDArray[np.uint16], owner: NDArray[np.int32]) -> None:
        if len(self._word[-1]) < _SMALL_PIECE:
            word = np.concatenate([self._word.pop(), word])
            owner = np.concatenate([self._owner.pop(), owner])
        order = np.argsort(word, kind="stable")  # of 16 bits: by counting, not by comparing
        self._word.append(word[order])
        self._owner.append(owner[order])


def sorted_distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each number once, in order. Sorting beats `np.unique` by far on lists with many repeats."""
    ordered = np.sort(numbers)
    fresh = np.ones(len(ordered), np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh]


def _kinds(data: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The kind of each value; every value ends with a line break."""
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
    return kinds
