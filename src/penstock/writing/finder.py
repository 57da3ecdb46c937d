"""Finds the values of texts and numbers them in the order of their first appearance.

The way of a text:

    tokens    runs of characters that can stand in a value (`values`); each distinct one is read once (`_Tokens`)
    values    each gets the next free number, by its hash, when it first appears (`Interner`)
    looks     a new value is described: its kind, its shape, its words (`value_looks`)

Once its tokens are known, a megabyte of text costs one look-up per token and a few array operations. If `penstock_core`
is installed, `compiled` does the same in one pass over the bytes.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from enum import IntFlag
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
import numpy as np

from penstock.writing.token_values import CLASSES, LETTERS, UNDERSCORE, gather, lay_tokens, read_tokens
from penstock.writing.value_looks import NewValues, buckets, hash_words, look_at
from penstock.writing.values import (
    END,
    NO_SUBJECT,
    PHRASE,
    QUOTES,
    SHORTEST_WORD,
    STEM,
    plain_stem,
    space_out,
    tokens_of,
    values_in_phrase,
    values_in_token,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.writing.token_values import LaidTokens

__all__ = [
    "END_OF_TEXT",
    "IS_KEY",
    "LABELS",
    "UNKNOWN",
    "Finder",
    "FoundValues",
    "Interned",
    "Interner",
    "ValueFinder",
    "ValueLabel",
    "describe_token",
    "join_texts",
]


class ValueLabel(IntFlag):
    """The kind that the word before a value names: `order_id 4711`, `price: 12.50`, `def parse_date`."""

    IDENTIFIER = 1
    AMOUNT = 2
    TIME = 4
    PLACE = 8
    NAME = 16
    STATE = 32
    DEFINITION = 64


_LABEL_WORDS = {
    ValueLabel.IDENTIFIER: "id ids uid uuid guid number numbers no num nr code codes key keys ref reference sku token hash sha "
    "digest commit ticket issue pr serial account order orders reservation reservations tracking invoice",
    ValueLabel.AMOUNT: "price prices amount total subtotal cost costs fee fees balance paid refund count size bytes length "
    "limit max min rate score tokens seconds ms timeout duration",
    ValueLabel.TIME: "date dates time times at on day year month created updated modified timestamp expires since until dob "
    "birthday deadline start end departure arrival",
    ValueLabel.PLACE: "path paths file files filename dir directory folder line lines url uri host port address street city zip "
    "origin destination source target branch repo repository cwd in from to",
    ValueLabel.NAME: "name names title label user username email mail author owner customer passenger contact package module "
    "model version tag release",
    ValueLabel.STATE: "status state type kind mode level result error warning failed exit reason available enabled",
    ValueLabel.DEFINITION: "def class function func fn const let var struct enum interface type trait impl import export "
    "test tests describe table column field method",
}
LABELS: dict[str, int] = {}
for _label, _words in _LABEL_WORDS.items():
    for _word in _words.split():
        LABELS[_word] = LABELS.get(_word, 0) | _label

UNKNOWN = -1
LABEL_BITS = 7
IS_KEY = 1 << LABEL_BITS  # next to the labels: the value is a key in JSON
_REMEMBERED = 100_000  # tokens: once there are more, all are forgotten
END_OF_TEXT = f"\n{END}\n"
_PHRASE_OR_END = re.compile(r"\x00|" + PHRASE.pattern)


class FoundValues(msgspec.Struct, frozen=True, eq=False):
    """The distinct values of each text: `ids[starts[t]:starts[t + 1]]` are those of text t.

    `labels` has a row for each of them: the `ValueLabel` of all words that come right before the value in its text.
    `words` are the buckets of the plain words of all texts, one text after the other; text t has `word_counts[t]`.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    labels: NDArray[np.uint8]
    words: NDArray[np.uint16]
    word_counts: NDArray[np.int32]


class ValueFinder(Protocol):
    """Finds values and numbers them. Two finders that get the same texts give the same numbers."""

    def __len__(self) -> int:
        """Returns the number of known values."""

    def find(self, texts: Sequence[str]) -> tuple[FoundValues, NewValues | None]:
        """Returns the values of each text, and the looks of new ones, which get the next free numbers."""

    def find_known(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Returns the numbers of the known values in these texts, in any order and perhaps repeatedly."""

    def look_up(self, values: Sequence[str]) -> NDArray[np.int32]:
        """Returns the number of each value; UNKNOWN for a value that is new."""


def join_texts(texts: Sequence[str]) -> str:
    """Returns the texts as one, with `END` after each, and nowhere else."""
    joined = END_OF_TEXT.join([*texts, ""])
    if joined.count(END) > len(texts):
        joined = END_OF_TEXT.join([*(text.replace(END, " ") for text in texts), ""])
    return joined


def describe_token(token: str) -> tuple[int, int]:
    """Returns the label that a token gives to a value after it, and its bucket if it is a plain word, else 0."""
    stem = plain_stem(token)
    return _label_of(token), buckets([stem])[0] if stem else 0


class Finder:
    """A `ValueFinder` in Python and numpy."""

    def __init__(self) -> None:
        self._interner = Interner()
        self._tokens = _Tokens()

    def __len__(self) -> int:
        return len(self._interner)

    def find(self, texts: Sequence[str]) -> tuple[FoundValues, NewValues | None]:
        """Returns the values of each text, and the looks of new ones, which get the next free numbers."""
        if len(self._tokens) > _REMEMBERED:
            self._tokens.forget()
        fresh: list[str] = []
        joined = join_texts(texts)
        codes = self._codes_of(space_out(joined).split(), fresh)
        texts_of, numbers, labels = self._values_of(codes)
        words = np.frombuffer(self._tokens.words, np.uint16)[codes]
        plain = np.flatnonzero(words)
        word_counts = np.bincount(np.cumsum(codes == 0)[plain], minlength=len(texts))[: len(texts)]
        if any(quote in joined for quote in QUOTES):
            phrases_of, phrases, _ = self._values_of(self._codes_of(_PHRASE_OR_END.findall(joined), fresh))
            texts_of, numbers = np.concatenate([texts_of, phrases_of]), np.concatenate([numbers, phrases])
            labels = np.concatenate([labels, np.zeros(len(phrases), np.uint8)])
        # Text, value and label in one number: a single sort brings the values of each text together.
        size = max(1, len(self))
        ordered = np.sort((texts_of * size + numbers) << LABEL_BITS | labels)
        values = ordered >> LABEL_BITS
        first = np.ones(len(values), np.bool_)
        first[1:] = values[1:] != values[:-1]
        distinct, runs = values[first], np.flatnonzero(first)
        labelled = (ordered & ((1 << LABEL_BITS) - 1)).astype(np.uint8)
        if len(runs):
            labelled = np.bitwise_or.reduceat(labelled, runs)
        per_text = np.bincount(distinct // size, minlength=len(texts))[: len(texts)]
        starts = np.concatenate([[0], np.cumsum(per_text)])
        found = FoundValues(
            (distinct % size).astype(np.int32), starts, labelled, words[plain], word_counts.astype(np.int32)
        )
        return found, look_at(fresh) if fresh else None

    def _codes_of(self, tokens: list[str], fresh_values: list[str]) -> NDArray[np.int64]:
        """Returns the number of each token; reads new ones, and adds new values to `fresh_values`."""
        codes = np.fromiter(map(self._tokens.__getitem__, tokens), np.int64, len(tokens))
        if fresh := self._tokens.take_fresh():
            fresh_values += self._read(fresh)
        return codes

    def _values_of(
        self, codes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8]]:
        """Returns the values of all tokens, one token after the other, each with its text and its label.

        An end token leads to the next text.
        """
        # Token t holds counts[t] values from first[t] on. `places` are the indices of all of them in `held`:
        # for each token the run first[t], first[t] + 1, …, made from one `arange` by shifting each token's
        # part of it.
        first = np.frombuffer(self._tokens.first, np.intc).astype(np.int64)
        counts = first[codes + 1] - first[codes]
        before = np.cumsum(counts) - counts
        places = np.arange(int(counts.sum())) + np.repeat(first[codes] - before, counts)
        held = np.frombuffer(self._tokens.held, np.intc)[places]
        before_it = np.concatenate([[0], codes[:-1]]) if len(codes) else codes
        labels = np.frombuffer(self._tokens.labels, np.uint8)[before_it]
        return np.repeat(np.cumsum(codes == 0), counts), held, np.repeat(labels, counts)

    def _read(self, fresh: list[str]) -> list[str]:
        """Reads new tokens. Returns those of their values that are new, in the order of their numbers."""
        tokens = self._tokens
        laid = lay_tokens(fresh) if all(map(str.isascii, fresh)) else None
        values, counts = read_tokens(fresh, laid)
        labels, words = _describe(laid) if laid is not None else _describe_each(fresh)
        tokens.labels.frombytes(labels.tobytes())
        tokens.words.frombytes(words.tobytes())
        ends = np.cumsum(counts, dtype=np.intc) + np.intc(tokens.first[-1])
        tokens.first.frombytes(ends.tobytes())
        interned = self._interner.intern(np.fromiter(map(hash, values), np.int64, len(values)))
        tokens.held.frombytes(interned.numbers.astype(np.intc).tobytes())
        return [values[place] for place in interned.fresh.tolist()]

    def find_known(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Returns the numbers of the known values in these texts, in any order and perhaps repeatedly."""
        joined = "\n".join(texts).replace(END, " ")
        tokens = list(set(tokens_of(joined)))
        codes = list(map(self._tokens.get, tokens))  # quoted text was read before, and most of it recently
        first, held = self._tokens.first, self._tokens.held
        known = [number for code in codes if code for number in held[first[code] : first[code + 1]]]
        others = {
            value
            for token, code in zip(tokens, codes, strict=True)
            if code is None
            for value in values_in_token(token)
        }
        phrases = {value for phrase in PHRASE.findall(joined) for value in values_in_phrase(phrase)}
        numbers = self.look_up([*others, *phrases])
        return np.concatenate([np.array(known, np.int32), numbers[numbers != UNKNOWN]])

    def look_up(self, values: Sequence[str]) -> NDArray[np.int32]:
        """Returns the number of each value; UNKNOWN for a value that is new."""
        return self._interner.look_up(np.fromiter(map(hash, values), np.int64, len(values)))


def _label_of(token: str) -> int:
    """Returns the label that the token, or its last word, gives to a value after it."""
    word = token.rpartition("_")[2]
    return LABELS.get(word.lower(), ValueLabel.IDENTIFIER if word[-2:] in {"Id", "ID"} else 0)


def _pack(word: str) -> int:
    """Returns a number for a word of up to twelve ASCII letters, whatever their case: five bits for each."""
    return sum((ord(letter) & 31) << 5 * place for place, letter in enumerate(word))


_LONGEST_PACKED = 12
_PACKED_LABELS = np.array(sorted((_pack(word), label) for word, label in LABELS.items()), np.int64)
_PACKED_NO_SUBJECT = np.array(sorted(map(_pack, NO_SUBJECT)), np.int64)


def _describe_each(tokens: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Returns the label of each token, and the bucket of each that is a plain word, 0 for any other."""
    beyond = [token for token in tokens if not token.isascii()]
    is_beyond = ~np.fromiter(map(str.isascii, tokens), np.bool_, len(tokens))
    labels, words = np.zeros(len(tokens), np.uint8), np.zeros(len(tokens), np.uint16)
    labels[is_beyond] = list(map(_label_of, beyond))
    words[is_beyond] = buckets(list(map(plain_stem, beyond)))
    if len(beyond) < len(tokens):
        described = _describe(lay_tokens([token for token in tokens if token.isascii()]))
        labels[~is_beyond], words[~is_beyond] = described
    return labels, words


def _describe(laid: LaidTokens) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Returns what `_label_of` and `plain_stem` return, for tokens that lie side by side."""
    _, data, starts, ends, has = laid
    is_id = (data[ends - 1] | 32 == ord("d")) & (data[np.maximum(ends - 2, starts)] == ord("I"))
    labels = (is_id * ValueLabel.IDENTIFIER).astype(np.uint8)
    # The last word of each token: everything after its last underscore.
    tails = starts.copy()
    joined = np.flatnonzero(has & UNDERSCORE)
    if len(joined):
        underscores = np.where(data == ord("_"), np.arange(len(data)), -1)
        tails[joined] = np.maximum.reduceat(underscores, starts)[joined] + 1
    packed = np.zeros(len(starts), np.int64)
    short = np.flatnonzero((ends > tails) & (ends - tails <= _LONGEST_PACKED))
    if len(short):
        places, firsts, sizes = gather(tails[short], ends[short])
        within = np.arange(len(places)) - np.repeat(firsts, sizes)
        letters = np.add.reduceat((data[places] & 31).astype(np.int64) << 5 * within, firsts)
        of_letters = np.bitwise_or.reduceat(CLASSES[data[places]], firsts) & ~np.uint8(LETTERS) == 0
        packed[short] = letters * of_letters
    rows = np.searchsorted(_PACKED_LABELS[:, 0], packed).clip(max=len(_PACKED_LABELS) - 1)
    known = _PACKED_LABELS[rows, 0] == packed
    labels[known] = _PACKED_LABELS[rows[known], 1]
    words = np.zeros(len(starts), np.uint16)
    is_word = ((has & ~np.uint8(LETTERS)) == 0) & (ends - starts >= SHORTEST_WORD)
    rows = np.searchsorted(_PACKED_NO_SUBJECT, packed).clip(max=len(_PACKED_NO_SUBJECT) - 1)
    plain = np.flatnonzero(is_word & (_PACKED_NO_SUBJECT[rows] != packed))
    if len(plain):
        stems = gather(starts[plain], np.minimum(ends[plain], starts[plain] + STEM))
        within = np.arange(len(stems.places)) - np.repeat(stems.firsts, stems.sizes)
        words[plain] = hash_words(data[stems.places] | np.uint8(32), stems.firsts, within)
    return labels, words


class _Tokens(defaultdict[str, int]):
    """Numbers for recent tokens, and the values that each holds.

    Looking up a new token gives it the next number, so that one `map` looks up a whole text. The values are
    found afterwards, for all new tokens together. Token t holds the values `held[first[t] : first[t + 1]]`.
    Token 0 is the end of a text and holds none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held = array("i")
        self.first = array("i")
        self.labels = array("B")  # the label that each token gives to a value after it
        self.words = array("H")  # the bucket of each plain word; 0 for any other token
        self.forget()

    def forget(self) -> None:
        """Forgets all tokens, which are cheap to read again and too many to remember."""
        self.clear()
        self.default_factory = count(1).__next__
        self[END] = 0
        del self.held[:]
        self.first[:] = array("i", [0, 0])
        self.labels[:] = array("B", [0])
        self.words[:] = array("H", [0])

    def take_fresh(self) -> list[str]:
        """Returns the tokens that have a number but were not read yet, in order."""
        fresh = list(islice(reversed(self), len(self) - len(self.labels)))
        fresh.reverse()
        return fresh


class Interned(NamedTuple):
    """The number of each hash, and the places of the new ones, in the order of their numbers."""

    numbers: NDArray[np.int32]
    fresh: NDArray[np.int64]


class Interner:
    """Numbers for very many distinct texts, without keeping the texts. It only grows.

    A text is known by its 64-bit hash. The hashes are in one sorted array: half a million of them take six
    megabytes, where a table of objects takes sixty, and many are looked up at once. Texts are numbered in the
    order of their appearance, so that the numbers do not depend on the hashes.
    """

    def __init__(self) -> None:
        # Row by row: a hash, in ascending order, and its number.
        self._hashes = np.zeros(0, np.int64)
        self._numbers = np.zeros(0, np.int32)

    def __len__(self) -> int:
        return len(self._hashes)

    def intern(self, hashes: NDArray[np.int64]) -> Interned:
        """Returns a number for each hash; new ones get the next free numbers, in the order given."""
        if not len(hashes):
            return Interned(np.zeros(0, np.int32), np.zeros(0, np.int64))
        # The distinct hashes in ascending order, and the first place of each.
        order = np.argsort(hashes)
        ordered = hashes[order]
        first = np.ones(len(ordered), np.bool_)
        first[1:] = ordered[1:] != ordered[:-1]
        distinct, met_at = ordered[first], np.minimum.reduceat(order, np.flatnonzero(first))
        # New ones are numbered by the place of their first appearance, and inserted where they belong among
        # the hashes.
        at = np.searchsorted(self._hashes, distinct)
        new = ~self._stands(distinct, at)
        by_meeting = np.argsort(met_at[new])
        numbers = np.empty(len(by_meeting), np.int32)
        numbers[by_meeting] = np.arange(len(self), len(self) + len(by_meeting), dtype=np.int32)
        fresh = met_at[new][by_meeting]
        self._hashes = np.insert(self._hashes, at[new], distinct[new])
        self._numbers = np.insert(self._numbers, at[new], numbers)
        # Back from the distinct hashes to all: the running sum says, for each ordered hash, which distinct one.
        numbers_of_distinct = self._numbers[np.searchsorted(self._hashes, distinct)]
        result = np.empty(len(hashes), np.int32)
        result[order] = numbers_of_distinct[np.cumsum(first) - 1]
        return Interned(result, fresh)

    def look_up(self, hashes: NDArray[np.int64]) -> NDArray[np.int32]:
        """Returns the number of each hash; UNKNOWN for a hash that is new."""
        at = np.searchsorted(self._hashes, hashes)
        known = self._stands(hashes, at)
        numbers = np.full(len(hashes), UNKNOWN, np.int32)
        numbers[known] = self._numbers[at[known]]
        return numbers

    def _stands(self, hashes: NDArray[np.int64], at: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Returns for each hash whether it is the known hash at this place."""
        inside = at < len(self._hashes)
        known = np.zeros(len(hashes), np.bool_)
        known[inside] = self._hashes[at[inside]] == hashes[inside]
        return known
