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
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.compaction.values import SUB_WORD, TOKEN, values_in_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["Found", "Kind", "Vocabulary"]


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
_END_OF_TEXT = "\n\x00\n"
_TOKEN_OR_END = re.compile(r"\x00|" + TOKEN.pattern)
_WORD_OR_END = re.compile(SUB_WORD.pattern + r"|\n")


class _Words(dict[str, int]):
    """A number for each word, whatever its case; the end of a value is 0."""

    def __init__(self) -> None:
        super().__init__({"\n": 0})
        self.numbers: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        number = self[word] = self.numbers.setdefault(word.lower(), len(self.numbers) + 1)
        return number


class _Tokens(dict[str, int]):
    """A number for each token, and the values that each token holds, one token after the other."""

    def __init__(self, ids: dict[str, int]) -> None:
        super().__init__({_END: 0})
        self.ids = ids
        self.held = array("i")
        self.first = array("i", [0, 0])  # token t holds held[first[t]:first[t + 1]]

    def __missing__(self, token: str) -> int:
        ids = self.ids
        for value in values_in_token(token):
            self.held.append(ids.setdefault(value, len(ids)))
        number = self[token] = len(self.first) - 1
        self.first.append(len(self.held))
        return number


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
        self._seen = 0
        self._kinds = np.zeros(0, np.int8)
        self._words = _Words()
        self._word = np.zeros(0, np.int32)  # every word of every value, one value after the other,
        self._owner = np.zeros(0, np.int32)  # and the value it is of

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, texts: Sequence[str]) -> Found:
        """The values of each text. New ones get numbers."""
        joined = _END_OF_TEXT.join([*texts, ""])
        if joined.count(_END) > len(texts):
            joined = _END_OF_TEXT.join([*(text.replace(_END, " ") for text in texts), ""])
        codes = np.fromiter(map(self._tokens.__getitem__, _TOKEN_OR_END.findall(joined)), np.int64)
        first = np.array(self._tokens.first, np.int64)
        counts = first[codes + 1] - first[codes]
        total = int(counts.sum())
        before = np.cumsum(counts) - counts
        places = np.arange(total) + np.repeat(first[codes] - before, counts)
        ids = np.array(self._tokens.held, np.int64)[places]
        text_of = np.repeat(np.cumsum(codes == 0), counts)
        size = max(1, len(self.ids))
        distinct = np.unique(text_of * size + ids)
        per_text = np.bincount(distinct // size, minlength=len(texts))[: len(texts)]
        return Found((distinct % size).astype(np.int32), np.concatenate([[0], np.cumsum(per_text)]))

    def known_in(self, texts: Iterable[str]) -> NDArray[np.int32]:
        """The values that stand in these texts and were met before. None gets a number."""
        tokens = {token for text in texts for token in TOKEN.findall(text)}
        ids = self.ids
        found = {ids[value] for token in tokens for value in values_in_token(token) if value in ids}
        return np.array(sorted(found), np.int32)

    def kinds(self) -> NDArray[np.int8]:
        """What each value looks like, as a `Kind`."""
        self._catch_up()
        return self._kinds

    def relation(self, words: Iterable[str]) -> NDArray[np.float64]:
        """For each value the share of its words that are among these, which are lower case."""
        self._catch_up()
        total = len(self._kinds)
        wanted = np.zeros(len(self._words.numbers) + 1, np.bool_)
        wanted[[self._words.numbers[word] for word in words if word in self._words.numbers]] = True
        hits = np.bincount(self._owner[wanted[self._word]], minlength=total)
        count = np.bincount(self._owner, minlength=total)
        share: NDArray[np.float64] = hits / np.maximum(count, 1)
        return share

    def _catch_up(self) -> None:
        """Bring the arrays up to date with the values that were added since."""
        if self._seen == len(self.ids):
            return
        joined = "\n".join([*islice(self.ids, self._seen, None), ""])
        words = np.fromiter(map(self._words.__getitem__, _WORD_OR_END.findall(joined)), np.int32)
        ends = words == 0
        owner = self._seen + np.cumsum(ends, dtype=np.int32)
        self._word = np.concatenate([self._word, words[~ends]])
        self._owner = np.concatenate([self._owner, owner[~ends]])
        data = np.frombuffer(joined.encode(errors="replace"), np.uint8)
        self._kinds = np.concatenate([self._kinds, _kinds(data)])
        self._seen = len(self.ids)


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
