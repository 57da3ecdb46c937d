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
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
import numpy as np

from penstock.compaction.values import (
    PHRASE,
    SUB_WORD,
    is_plain_name,
    tokens_of,
    values_in,
    values_in_phrase,
    values_in_token,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["Found", "Kind", "Vocabulary", "sorted_distinct"]


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
_REMEMBERED = 100_000  # tokens, and words
_BUCKETS = 1 << 20
_END_OF_TEXT = "\n\x00\n"
_QUOTES = "\"'`"
_PHRASE_OR_END = re.compile(r"\x00|" + PHRASE.pattern)
_WORD_OR_END = re.compile(SUB_WORD.pattern + r"|\n")
_ASCII_WORD_OR_END = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}|[0-9]{3,}|\n")  # the same for ASCII, and quicker


class _Tokens(dict[str, int]):
    """A number for each token of late, and the values that each holds, one token after the other."""

    def __init__(self, ids: dict[str, int]) -> None:
        super().__init__()
        self.ids = ids
        self.fresh: list[str] = []  # values that were not met before
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
        ids, held, first = self.ids, self.held, self.first  # this runs for every new token: no detours
        if token.isalpha() and (token.islower() or token.istitle()):
            pass  # a plain word
        elif is_plain_name(token):
            known = ids.get(token)
            if known is None:
                known = ids[token] = len(ids)
                self.fresh.append(token)
            held.append(known)
        else:
            for value in values_in_phrase(token) if token[0] in _QUOTES else values_in_token(token):
                known = ids.get(value)
                if known is None:
                    known = ids[value] = len(ids)
                    self.fresh.append(value)
                held.append(known)
        number = self[token] = len(first) - 1
        first.append(len(held))
        return number


class _Words(dict[str, int]):
    """A number below `_BUCKETS` for each word, whatever its case; the end of a value is -1.

    Two words may share a number. That makes a few values seem related that are not, and saves a table of all
    words there are.
    """

    def __missing__(self, word: str) -> int:
        if len(self) >= _REMEMBERED:
            self.clear()
        number = self[word] = _bucket(word.lower()) if word != "\n" else -1
        return number


def _bucket(word: str) -> int:
    return crc32(word.encode(errors="replace")) % _BUCKETS


class Found(msgspec.Struct, frozen=True, eq=False):
    """The distinct values of each text: `ids[starts[t]:starts[t + 1]]` are those of text t."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]


class Vocabulary:
    """The values met so far: `ids` gives each its number, in the order of meeting. It only grows."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self._tokens = _Tokens(self.ids)
        self.keys: set[int] = set()  # the values that name other values in JSON
        self._kinds = np.zeros(0, np.int8)
        self._words = _Words()
        self._word_count = np.zeros(0, np.int32)
        self._word = np.zeros(0, np.int32)  # every word of every value, one value after the other,
        self._owner = np.zeros(0, np.int32)  # and the value it is of

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, texts: Sequence[str]) -> Found:
        """The values of each text. New ones get numbers."""
        if len(self._tokens) > _REMEMBERED:
            self._tokens.forget()
        joined = _END_OF_TEXT.join([*texts, ""])
        if joined.count(_END) > len(texts):
            joined = _END_OF_TEXT.join([*(text.replace(_END, " ") for text in texts), ""])
        texts_of, ids = self._values_of(tokens_of(joined))
        if any(quote in joined for quote in _QUOTES):
            phrases_of, phrases = self._values_of(_PHRASE_OR_END.findall(joined))
            texts_of, ids = np.concatenate([texts_of, phrases_of]), np.concatenate([ids, phrases])
        self._look_at_fresh()
        size = max(1, len(self.ids))
        distinct = sorted_distinct(texts_of * size + ids)
        per_text = np.bincount(distinct // size, minlength=len(texts))[: len(texts)]
        return Found((distinct % size).astype(np.int32), np.concatenate([[0], np.cumsum(per_text)]))

    def _values_of(self, tokens: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The values of the tokens, and for each the text it is of; an end token leads to the next text."""
        codes = np.fromiter(map(self._tokens.__getitem__, tokens), np.int64, len(tokens))
        first = np.frombuffer(self._tokens.first, np.intc).astype(np.int64)
        counts = first[codes + 1] - first[codes]
        before = np.cumsum(counts) - counts
        places = np.arange(int(counts.sum())) + np.repeat(first[codes] - before, counts)
        return np.repeat(np.cumsum(codes == 0), counts), np.frombuffer(self._tokens.held, np.intc).astype(
            np.int64
        )[places]

    def known_in(self, texts: Iterable[str]) -> NDArray[np.int32]:
        """The values that stand in these texts and were met before. None gets a number."""
        ids = self.ids
        values = {value for text in texts for value in values_in(text)}
        return np.array(sorted(ids[value] for value in values if value in ids), np.int32)

    def kinds(self) -> NDArray[np.int8]:
        """What each value looks like, as a `Kind`."""
        return self._kinds

    def relation(self, words: Iterable[str]) -> NDArray[np.float32]:
        """For each value the share of its words that are among these, which are lower case."""
        total = len(self._kinds)
        wanted = np.zeros(_BUCKETS, np.bool_)
        wanted[[_bucket(word) for word in words]] = True
        hits = np.bincount(self._owner[wanted[self._word]], minlength=total)
        share: NDArray[np.float32] = np.divide(hits, self._word_count, dtype=np.float32)
        return share

    def _look_at_fresh(self) -> None:
        """Work out kinds and words of the values that were added since."""
        fresh = self._tokens.fresh
        if not fresh:
            return
        joined = "\n".join([*fresh, ""])
        pattern = _ASCII_WORD_OR_END if joined.isascii() else _WORD_OR_END
        words = np.fromiter(map(self._words.__getitem__, pattern.findall(joined)), np.int32)
        ends = words < 0
        owner = len(self._kinds) + np.cumsum(ends, dtype=np.int32)
        count = np.bincount(owner[~ends] - len(self._kinds), minlength=len(fresh))
        self._word_count = np.concatenate([self._word_count, np.maximum(count, 1).astype(np.int32)])
        self._word = np.concatenate([self._word, words[~ends]])
        self._owner = np.concatenate([self._owner, owner[~ends]])
        data = np.frombuffer(joined.encode(errors="replace"), np.uint8)
        self._kinds = np.concatenate([self._kinds, _kinds(data)])
        fresh.clear()


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
