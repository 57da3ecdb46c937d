"""Numbers for values, so that a long conversation can be scored with array operations.

The way of a text:

    tokens    runs of characters that can stand in a value (`values`); each distinct one is read once (`_Tokens`)
    values    each gets the next free number, by its hash, when it is first met (`Interner`)
    kinds     what a new value looks like: a path, a flag, a number … (`Kind`)
    words     the words inside a new value, by which it is related to a request (`find_words`)

After the first reading, finding the values of a megabyte of text is one look-up per token and a few array
operations. Kinds and words come from passes over the bytes of all new values, laid side by side; no value is
looked at by itself.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from enum import IntEnum, IntFlag
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
import numpy as np

from penstock.writing.token_values import CLASSES, LETTERS, UNDERSCORE, gather, lay_tokens, read_tokens
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
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.writing.token_values import LaidTokens

__all__ = [
    "BUCKETS",
    "IS_KEY",
    "LONGEST_SHAPE",
    "RELATION_STEPS",
    "SHAPES",
    "UNKNOWN",
    "FoundValues",
    "Interned",
    "Interner",
    "Kind",
    "Postings",
    "ValueLabel",
    "ValueWords",
    "Vocabulary",
    "bucket",
    "find_words",
    "holds_each",
    "sort_distinct",
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
_LABELS: dict[str, int] = {}
for _label, _words in _LABEL_WORDS.items():
    for _word in _words.split():
        _LABELS[_word] = _LABELS.get(_word, 0) | _label

_Number = TypeVar("_Number", np.int32, np.int64)
UNKNOWN = -1
_LABEL_BITS = 7
IS_KEY = 1 << _LABEL_BITS  # beside the labels: the value names others in JSON
LONGEST_SHAPE = 63  # bytes: longer values are of one length
SHAPES = (LONGEST_SHAPE + 1) << 8
_REMEMBERED = 100_000  # tokens: with more, all are forgotten
_SMALL_PIECE = 10_000  # words: a smaller piece is joined with the next
_MOST_PIECES = 8  # about: so that a look into each of them stays cheap
_END_OF_TEXT = f"\n{END}\n"
_PHRASE_OR_END = re.compile(r"\x00|" + PHRASE.pattern)


class FoundValues(msgspec.Struct, frozen=True, eq=False):
    """The distinct values of each text: `ids[starts[t]:starts[t + 1]]` are those of text t.

    `labels` has a row for each of them: the `ValueLabel` of all words that stand right before the value in its text.
    `words` are the buckets of the plain words of all texts, one text after the other, `word_counts[t]` of text t.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    labels: NDArray[np.uint8]
    words: NDArray[np.uint16]
    word_counts: NDArray[np.int32]


class Vocabulary:
    """The values met so far, each with a number, in the order of meeting. It only grows."""

    def __init__(self) -> None:
        self._interner = Interner()
        self._tokens = _Tokens()
        # One row per value: its kind, its shape, and how many words it has (at least 1, since it divides).
        self._kinds = np.zeros(0, np.int8)
        self._shapes = np.zeros(0, np.int16)
        self._word_count = np.zeros(0, np.int32)
        self._words = Postings()  # the values that hold each word

    def __len__(self) -> int:
        return len(self._interner)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and len(self.numbers_of([value])) > 0

    def find(self, texts: Sequence[str]) -> FoundValues:
        """Returns the values of each text. New ones get numbers."""
        if len(self._tokens) > _REMEMBERED:
            self._tokens.forget()
        joined = _END_OF_TEXT.join([*texts, ""])
        if joined.count(END) > len(texts):
            joined = _END_OF_TEXT.join([*(text.replace(END, " ") for text in texts), ""])
        codes = self._codes_of(space_out(joined).split())
        texts_of, numbers, labels = self._values_of(codes)
        words = np.frombuffer(self._tokens.words, np.uint16)[codes]
        plain = np.flatnonzero(words)
        word_counts = np.bincount(np.cumsum(codes == 0)[plain], minlength=len(texts))[: len(texts)]
        if any(quote in joined for quote in QUOTES):
            phrases_of, phrases, _ = self._values_of(self._codes_of(_PHRASE_OR_END.findall(joined)))
            texts_of, numbers = np.concatenate([texts_of, phrases_of]), np.concatenate([numbers, phrases])
            labels = np.concatenate([labels, np.zeros(len(phrases), np.uint8)])
        # Text, value and label in one number: one sort, and the values of each text stand together.
        size = max(1, len(self))
        ordered = np.sort((texts_of * size + numbers) << _LABEL_BITS | labels)
        values = ordered >> _LABEL_BITS
        first = np.ones(len(values), np.bool_)
        first[1:] = values[1:] != values[:-1]
        distinct, runs = values[first], np.flatnonzero(first)
        labelled = (ordered & ((1 << _LABEL_BITS) - 1)).astype(np.uint8)
        if len(runs):
            labelled = np.bitwise_or.reduceat(labelled, runs)
        per_text = np.bincount(distinct // size, minlength=len(texts))[: len(texts)]
        starts = np.concatenate([[0], np.cumsum(per_text)])
        return FoundValues(
            (distinct % size).astype(np.int32), starts, labelled, words[plain], word_counts.astype(np.int32)
        )

    def _codes_of(self, tokens: list[str]) -> NDArray[np.int64]:
        """Returns the number of each token; new ones are read."""
        codes = np.fromiter(map(self._tokens.__getitem__, tokens), np.int64, len(tokens))
        if fresh := self._tokens.take_fresh():
            self._read(fresh)
        return codes

    def _values_of(
        self, codes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8]]:
        """Returns the values of all tokens, one token after the other, each with the text it is of and its label.

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

    def _read(self, fresh: list[str]) -> None:
        """Read tokens that were met for the first time: their values get numbers, new ones are looked at."""
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
        if len(interned.fresh):
            self._look_at([values[place] for place in interned.fresh.tolist()])

    def numbers_of(self, values: Iterable[str]) -> NDArray[np.int32]:
        """Returns the numbers of those values that were met before, sorted. No value gets a new number."""
        numbers = self.look_up(values)
        return np.sort(numbers[numbers != UNKNOWN])

    def numbers_of_each(self, groups: Sequence[Sequence[str]]) -> list[list[int]]:
        """Returns for each group of values the numbers of those that were met before."""
        distinct = set().union(*groups)
        looked_up = zip(distinct, self.look_up(distinct).tolist(), strict=True)
        known = {value: number for value, number in looked_up if number != UNKNOWN}
        return [[known[value] for value in group if value in known] for group in groups]

    def look_up(self, values: Iterable[str]) -> NDArray[np.int32]:
        """Returns the number of each value, UNKNOWN for one that was not met before."""
        return self._interner.look_up(np.fromiter(map(hash, values), np.int64))

    def find_known(self, texts: Iterable[str]) -> NDArray[np.int32]:
        """Returns the numbers of the values that stand in these texts and were met before, sorted."""
        texts = list(texts)
        tokens = list(set(tokens_of("\n".join(texts))))
        codes = list(map(self._tokens.get, tokens))  # what is quoted was read, and most of it of late
        first, held = self._tokens.first, self._tokens.held
        known = [number for code in codes if code for number in held[first[code] : first[code + 1]]]
        others = {
            value
            for token, code in zip(tokens, codes, strict=True)
            if code is None
            for value in values_in_token(token)
        }
        phrases = {
            value for text in texts for phrase in PHRASE.findall(text) for value in values_in_phrase(phrase)
        }
        return sort_distinct(np.concatenate([np.array(known, np.int32), self.numbers_of(others | phrases)]))

    def kinds(self) -> NDArray[np.int8]:
        """Returns the `Kind` of each value, by its number."""
        return self._kinds

    def shapes(self) -> NDArray[np.int16]:
        """Returns the shape of each value, below `SHAPES`: values of one shape are likely of one sort.

        A shape is the classes of characters in a value and its length, which for all that is not a name tells
        order numbers from item numbers, prices from dates, and hashes from ids.
        """
        return self._shapes

    def word_counts(self) -> NDArray[np.int32]:
        """Returns how many words each value has, by its number; 1 for one without."""
        return self._word_count

    def relation(self, words: Iterable[str], some: NDArray[np.int64] | None = None) -> NDArray[np.int32]:
        """Returns for each value the share of its words that are among these, in steps of 1/64. They are in lower case.

        Of all values, or of `some` by their numbers.
        """
        shared = Counter(_buckets(list(words)))  # two words may share a number, which then counts twice
        found, of = np.zeros(len(self), np.int32), self._word_count
        for times in set(shared.values()):
            buckets = sorted(number for number, many in shared.items() if many == times)
            owners = self._words.find_owners(np.array(buckets, np.uint16))
            np.add.at(found, owners, np.full(len(owners), times, np.int32))
        if some is not None:
            found, of = found[some], of[some]
        case = np.minimum(of, _MANY_WORDS)
        case += np.minimum(found, _MANY_WORDS) << _WORDS_BITS
        share: NDArray[np.int32] = _SHARES.take(case)
        long = np.flatnonzero((found >= _MANY_WORDS) | (of >= _MANY_WORDS))
        share[long] = _share(found[long], of[long])
        return share

    def _look_at(self, fresh: list[str]) -> None:
        """Work out kinds and words of values that were just met."""
        joined = "\n".join([*fresh, ""])
        words = find_words(joined)
        of_each = np.bincount(words.owners, minlength=len(fresh))
        self._word_count = np.concatenate([self._word_count, np.maximum(of_each, 1).astype(np.int32)])
        self._words.add(words.buckets, words.owners + np.int32(len(self._kinds)))
        data = np.frombuffer(joined.encode(errors="replace"), np.uint8)
        kinds, shapes = _looks(data)
        self._kinds = np.concatenate([self._kinds, kinds])
        self._shapes = np.concatenate([self._shapes, shapes])


class Postings:
    """Rows by the words that they hold, for words that are numbers below `BUCKETS`. It only grows.

    They stand in pieces, each sorted by word, so that new rows make a new piece and no large array is sorted again.
    """

    def __init__(self) -> None:
        # Row by row: a word, and its owner. Of one word, owners stand in the order in which they came.
        self._word: list[NDArray[np.uint16]] = [np.zeros(0, np.uint16)]
        self._owner: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
        self._rows = 0

    def add(self, word: NDArray[np.uint16], owner: NDArray[np.int32]) -> None:
        """Add words, each with its owner."""
        self._rows += len(word)
        if len(self._word[-1]) < max(_SMALL_PIECE, self._rows // _MOST_PIECES):
            word = np.concatenate([self._word.pop(), word])
            owner = np.concatenate([self._owner.pop(), owner])
        order = np.argsort(word, kind="stable")  # of 16 bits: by counting, not by comparing
        self._word.append(word[order])
        self._owner.append(owner[order])

    def find(self, words: NDArray[np.uint16]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the owners of these words, one for each word that each holds, and beside each the place of its word."""
        runs, held, sizes = self._find_runs(words)
        return np.concatenate([*runs, np.zeros(0, np.int32)]), np.repeat(held, sizes)

    def find_owners(self, words: NDArray[np.uint16]) -> NDArray[np.int32]:
        """Returns the same without the places, which take as long again."""
        return np.concatenate([*self._find_runs(words)[0], np.zeros(0, np.int32)])

    def _find_runs(
        self, words: NDArray[np.uint16]
    ) -> tuple[list[NDArray[np.int32]], NDArray[np.int64], NDArray[np.int64]]:
        """Returns runs of owners that hold the same word, the place of that word, and how long each run is."""
        runs: list[NDArray[np.int32]] = []
        held: list[NDArray[np.int64]] = []
        sizes: list[NDArray[np.int64]] = []
        for word, owner in zip(self._word, self._owner, strict=True):
            first, after = np.searchsorted(word, words), np.searchsorted(word, words, "right")
            some = np.flatnonzero(after > first)
            runs += [owner[a:z] for a, z in zip(first[some].tolist(), after[some].tolist(), strict=True)]
            held.append(some)
            sizes.append((after - first)[some])
        return runs, np.concatenate(held), np.concatenate(sizes)


RELATION_STEPS = 64
_WORDS_BITS = 6
_MANY_WORDS = (1 << _WORDS_BITS) - 1  # few values have as many


def _share(found: NDArray[np.integer], of: NDArray[np.integer]) -> NDArray[np.int32]:
    """Returns the quotients in steps, as they are in single precision, so that all platforms round alike."""
    quotients = (found / of).astype(np.float32)
    result: NDArray[np.int32] = np.rint(quotients * np.float32(RELATION_STEPS)).astype(np.int32)
    return result


# By found << 6 | of, for fewer than 63 of each. A value has at least one word.
_SHARES = _share(
    np.arange(1 << 2 * _WORDS_BITS) >> _WORDS_BITS,
    np.maximum(np.arange(1 << 2 * _WORDS_BITS) & _MANY_WORDS, 1),
)


def _label_of(token: str) -> int:
    """Returns what the token, or the last word in it, says of a value behind it."""
    word = token.rpartition("_")[2]
    return _LABELS.get(word.lower(), ValueLabel.IDENTIFIER if word[-2:] in {"Id", "ID"} else 0)


def _pack(word: str) -> int:
    """Returns a number for a word of ASCII letters, whatever their case: five bits for each, of at most twelve."""
    return sum((ord(letter) & 31) << 5 * place for place, letter in enumerate(word))


_LONGEST_PACKED = 12
_PACKED_LABELS = np.array(sorted((_pack(word), label) for word, label in _LABELS.items()), np.int64)
_PACKED_NO_SUBJECT = np.array(sorted(map(_pack, NO_SUBJECT)), np.int64)


def _describe_each(tokens: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Returns the label of each token, and the bucket of each that is a plain word, 0 for any other."""
    beyond = [token for token in tokens if not token.isascii()]
    is_beyond = ~np.fromiter(map(str.isascii, tokens), np.bool_, len(tokens))
    labels, words = np.zeros(len(tokens), np.uint8), np.zeros(len(tokens), np.uint16)
    labels[is_beyond] = list(map(_label_of, beyond))
    words[is_beyond] = _buckets(list(map(plain_stem, beyond)))
    if len(beyond) < len(tokens):
        described = _describe(lay_tokens([token for token in tokens if token.isascii()]))
        labels[~is_beyond], words[~is_beyond] = described
    return labels, words


def _describe(laid: LaidTokens) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Returns what `_label_of` and `plain_stem` say of tokens that lie side by side."""
    _, data, starts, ends, has = laid
    is_id = (data[ends - 1] | 32 == ord("d")) & (data[np.maximum(ends - 2, starts)] == ord("I"))
    labels = (is_id * ValueLabel.IDENTIFIER).astype(np.uint8)
    # The last word of each token: what stands behind its last underscore.
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
        words[plain] = _hash_words(data[stems.places] | np.uint8(32), stems.firsts, within)
    return labels, words


class _Tokens(defaultdict[str, int]):
    """A number for each token of late, and the values that each holds.

    Looking up a new token gives it the next number, so that a whole text is looked up by one `map`; its
    values are found afterwards, for all new tokens together. Token t holds the values `held[first[t] :
    first[t + 1]]`. Token 0 is the end of a text and holds none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held = array("i")
        self.first = array("i")
        self.labels = array("B")  # what each token says of a value behind it
        self.words = array("H")  # the bucket of each token that is a plain word, 0 for any other
        self.forget()

    def forget(self) -> None:
        """Start anew: tokens are cheap to read again and many to remember."""
        self.clear()
        self.default_factory = count(1).__next__
        self[END] = 0
        del self.held[:]
        self.first[:] = array("i", [0, 0])
        self.labels[:] = array("B", [0])
        self.words[:] = array("H", [0])

    def take_fresh(self) -> list[str]:
        """Returns the tokens that have a number and were not read yet, in the order of meeting."""
        fresh = list(islice(reversed(self), len(self) - len(self.labels)))
        fresh.reverse()
        return fresh


class Interned(NamedTuple):
    """The number of each hash that was given, and the places of the new ones, in the order of their numbers."""

    numbers: NDArray[np.int32]
    fresh: NDArray[np.int64]


class Interner:
    """Numbers for very many distinct texts, without keeping the texts. It only grows.

    A text is known by its 64-bit hash. The hashes stand in one sorted array, so that half a million of them
    take six megabytes where a table of objects takes sixty, and many are looked up at once. Numbers are given
    in the order in which texts are met, so that they do not depend on what the hashes happen to be.
    """

    def __init__(self) -> None:
        # Row by row: a hash, in ascending order, and the number that it has.
        self._hashes = np.zeros(0, np.int64)
        self._numbers = np.zeros(0, np.int32)

    def __len__(self) -> int:
        return len(self._hashes)

    def intern(self, hashes: NDArray[np.int64]) -> Interned:
        """Returns a number for each hash; new ones get the next free numbers, in the order given."""
        if not len(hashes):
            return Interned(np.zeros(0, np.int32), np.zeros(0, np.int64))
        # The distinct hashes in ascending order, and the first place at which each of them stands.
        order = np.argsort(hashes)
        ordered = hashes[order]
        first = np.ones(len(ordered), np.bool_)
        first[1:] = ordered[1:] != ordered[:-1]
        distinct, met_at = ordered[first], np.minimum.reduceat(order, np.flatnonzero(first))
        # New ones are numbered by the place at which they were met, and put where they belong among the
        # hashes.
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
        """Returns the number of each hash, UNKNOWN for one that was never met."""
        at = np.searchsorted(self._hashes, hashes)
        known = self._stands(hashes, at)
        numbers = np.full(len(hashes), UNKNOWN, np.int32)
        numbers[known] = self._numbers[at[known]]
        return numbers

    def _stands(self, hashes: NDArray[np.int64], at: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Returns for each hash whether it is the one at this place among those that were met."""
        inside = at < len(self._hashes)
        known = np.zeros(len(hashes), np.bool_)
        known[inside] = self._hashes[at[inside]] == hashes[inside]
        return known


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


BUCKETS = 1 << 16
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


def bucket(word: str) -> int:
    """Returns the number of a word in lower case."""
    return _buckets([word])[0]


def _buckets(words: Sequence[str]) -> list[int]:
    """Returns the numbers of words in lower case, 0 for an empty one."""
    parts = [word.encode(errors="replace")[:_LONGEST] or b"\0" for word in words]
    if not parts:
        return []
    sizes = np.array([len(part) for part in parts])
    firsts = np.cumsum(sizes) - sizes
    within = np.arange(int(sizes.sum())) - np.repeat(firsts, sizes)
    numbers = _hash_words(np.frombuffer(b"".join(parts), np.uint8), firsts, within).tolist()
    return [number if word else 0 for number, word in zip(numbers, words, strict=True)]


def find_words(joined: str) -> ValueWords:
    """Returns the words of all values in a text of which each line is one value and the last is empty.

    A word is what `values.sub_words` finds, told by bytes: three or more letters or digits of one kind, a
    capital before small letters included; of letters beyond ASCII, four or more bytes. It is known by a
    number below `BUCKETS`, whatever its case. Two words may share a number. That makes a few values seem
    related that are not, and saves a table of all words there are.
    """
    data = np.frombuffer(joined.encode(errors="replace"), np.uint8)
    lowered = np.frombuffer(joined.lower().encode(errors="replace"), np.uint8)
    if len(lowered) != len(data):  # a few letters have a small form of another length
        lowered = data
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
    owners = np.searchsorted(np.flatnonzero(data == ord("\n")), begins).astype(np.int32)
    return ValueWords(_hash_words(lowered[np.repeat(begins, sizes) + within], firsts, within), owners)


def _hash_words(
    data: NDArray[np.uint8], firsts: NDArray[np.int64], within: NDArray[np.int64]
) -> NDArray[np.uint16]:
    """Returns the numbers of words that stand one after the other; `within` is each byte's place in its word."""
    mixed = np.add.reduceat((data.astype(np.uint64) + np.uint64(1)) * _FACTORS[within], firsts)
    return (mixed >> np.uint64(48)).astype(np.uint16)


def holds_each(ordered: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns for each number whether it is one of those, which are in ascending order."""
    if not len(ordered):
        return np.zeros(len(numbers), np.bool_)
    found: NDArray[np.bool_] = ordered.take(np.searchsorted(ordered, numbers), mode="clip") == numbers
    return found


def sort_distinct(numbers: NDArray[_Number]) -> NDArray[_Number]:
    """Returns each number once, in order. Sorting beats `np.unique` by far on lists with many repeats."""
    ordered = np.sort(numbers)
    fresh = np.ones(len(ordered), np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh]
