"""The compiled twins of inner loops: `Finder`, which finds values in texts, and `Greedy`, which chooses excerpts.

`penstock_core` is a separate package, in `core/`. If it is missing, the loops in Python run; both give the same results.
The core finds values in one pass over the bytes, without the interpreter's lock. It reads ASCII; a token with any other
character comes back, and `values` reads it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock._core import HAS_CORE, HAS_OTHER_CORE, core
from penstock.writing.excerpts import excerpts
from penstock.writing.finder import (
    END_OF_TEXT,
    LABELS,
    UNKNOWN,
    Finder,
    FoundValues,
    ValueFinder,
    describe_token,
    join_texts,
)
from penstock.writing.greedy import Greedy
from penstock.writing.value_looks import NewValues, ValueWords, look_at
from penstock.writing.values import (
    END,
    NO_SUBJECT,
    QUOTES,
    SEPARATORS,
    parts_of_paths,
    plain_words,
    values_in_phrase,
    values_in_token,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.writing.greedy import GreedyLoop
    from penstock.writing.importance import BesideRows, ExcerptRows

__all__ = [
    "HAS_CORE",
    "HAS_OTHER_CORE",
    "CompiledFinder",
    "add_leaves",
    "count_equal",
    "count_fortunes",
    "count_known_words",
    "count_mentions",
    "count_owners",
    "count_plain_words",
    "count_sources",
    "cut_text",
    "find_each",
    "find_holding",
    "find_least_of_most",
    "find_path_parts",
    "look_beside",
    "make_shares",
    "open_finder",
    "open_greedy",
    "score_rule",
    "squash",
    "sum_lacks",
]

_CHARACTERS = 65_536  # those beyond part no tokens


def open_finder() -> ValueFinder:
    """Returns the fastest available finder."""
    return CompiledFinder() if HAS_CORE else Finder()


def open_greedy(weights: NDArray[np.float32], covered: NDArray[np.float32]) -> GreedyLoop:
    """Returns the fastest available loop, for values with these weights; it raises `covered` as it chooses."""
    return core.Greedy(weights, covered) if HAS_CORE else Greedy(weights, covered)


def count_known_words(texts: Sequence[str], most: int) -> list[int]:
    """Returns `plain_words` of each text if the core is there, which counts in next to no time; otherwise -1, unknown."""
    return [core.plain_words(text, most) if HAS_CORE else -1 for text in texts]


def count_plain_words(text: str, most: int) -> int:
    """Returns the same as `values.plain_words`, only faster."""
    counted: int = core.plain_words(text, most) if HAS_CORE else -1
    return plain_words(text, most) if counted < 0 else counted


def look_beside(rows: ExcerptRows, found: BesideRows) -> bool:
    """Fills `found` with the surroundings of values in their excerpts; returns False, and does nothing, without the core.

    `found` comes with the answers for a value that is in no excerpt. `importance` has the same in Python.
    """
    if HAS_CORE:
        core.beside(rows, found)
    return HAS_CORE


# Passes over the rows of a conversation. Each fills the last of its arrays in place, or returns False where the core is
# missing, and nothing is done: its twin stands where it is called.


def sum_lacks(*arrays: NDArray[Any]) -> bool:
    """Fills what the values of excerpts lack. See `choice`."""
    if HAS_CORE:
        core.sum_lacks(*arrays)
    return HAS_CORE


def add_leaves(*arrays: NDArray[Any]) -> bool:
    """Adds to the totals of values the leaves of trees that they come to. See `importance`."""
    if HAS_CORE:
        core.add_leaves(*arrays)
    return HAS_CORE


def count_mentions(*arrays: NDArray[Any]) -> bool:
    """Fills who mentions values, and how many values of a source are used. See `importance`."""
    if HAS_CORE:
        core.count_mentions(*arrays)
    return HAS_CORE


def count_sources(*arrays: NDArray[Any]) -> bool:
    """Adds to how many sources hold words. See `vocabulary.Postings`."""
    if HAS_CORE:
        core.count_sources(*arrays)
    return HAS_CORE


def make_shares(*arrays: NDArray[Any]) -> bool:
    """Turns the numbers of words that values share with a text into shares of their words. See `vocabulary`."""
    if HAS_CORE:
        core.make_shares(*arrays)
    return HAS_CORE


def score_rule(*arrays: NDArray[Any]) -> bool:
    """Fills the logits of values by the rule. See `importance`."""
    if HAS_CORE:
        core.score_rule(*arrays)
    return HAS_CORE


def count_fortunes(*arrays: NDArray[Any]) -> bool:
    """Counts by group what the assistant said, said again, and used after it was told. See `importance`."""
    if HAS_CORE:
        core.count_fortunes(*arrays)
    return HAS_CORE


def squash(*arrays: NDArray[Any]) -> bool:
    """Fills the logistic curve at logits. See `importance`."""
    if HAS_CORE:
        core.squash(*arrays)
    return HAS_CORE


def find_least_of_most(numbers: NDArray[np.int32], most: int) -> int:
    """Returns the least of the `most` greatest numbers, of which there are as many at least."""
    if not HAS_CORE:
        return int(np.partition(numbers, -most)[-most])
    least = np.zeros(1, np.int32)
    core.find_least_of_most(numbers, np.array([most], np.int32), least)
    return int(least[0])


def count_owners(*arrays: NDArray[Any]) -> bool:
    """Adds to what was found how many of the words that are wanted each owner holds. See `vocabulary.Postings`."""
    if HAS_CORE:
        core.count_owners(*arrays)
    return HAS_CORE


def count_equal(copies: list[Any], wires: Sequence[Any]) -> int:
    """Returns how many JSON values at the start of both are certainly equal and written alike; the next one may be as well.

    Without the core, or for another sequence than a list, nothing is certain.
    """
    return core.count_equal(copies, wires) if HAS_CORE and type(wires) is list else 0


def cut_text(text: str, *, items: bool = False, spoken: bool = False) -> tuple[list[str], list[int] | None]:
    """Returns the same as `excerpts`, only faster, and where each begins in the text; -1 if it is not there verbatim.

    Without the core, the places are not known.
    """
    if not HAS_CORE:
        return excerpts(text, items=items, spoken=spoken), None
    cut: tuple[list[str], list[int]] = core.cut(text, items, spoken)
    return cut


def find_each(text: str, pieces: tuple[str, ...], farthest: int) -> list[int]:
    """Returns where each piece begins in the text, at most `farthest` characters after the one before it; -1 for nowhere."""
    if HAS_CORE:
        return core.find_each(text, pieces, farthest)
    places: list[int] = []
    after = 0  # the end of the last piece that was found
    for piece in pieces:
        found = text.find(piece, after, after + farthest)
        if found >= 0:
            after = found + len(piece)
        places.append(found)
    return places


def find_holding(texts: Sequence[str], words: Sequence[str]) -> Sequence[list[int]]:
    """Returns for each word the places of those texts that hold it."""
    if HAS_CORE:
        held: tuple[list[int], ...] = core.find_holding(tuple(texts), tuple(words))
        return held
    return [[place for place, text in enumerate(texts) if word in text] for word in words]


def find_path_parts(texts: Sequence[str]) -> list[list[str]]:
    """Returns the same as `values.parts_of_paths`, sooner."""
    if not HAS_CORE:
        return parts_of_paths(texts)
    found = core.path_parts(list(texts))
    beyond = iter(parts_of_paths([text for text, parts in zip(texts, found, strict=True) if parts is None]))
    return [next(beyond) if parts is None else parts for parts in found]


class CompiledFinder:
    """A `ValueFinder` in C."""

    def __init__(self) -> None:
        labels = {word.encode(): int(label) for word, label in LABELS.items()}
        # Values are told apart by their hash alone. Its seed is Python's own secret of this process, so that nobody can
        # construct two values with one hash.
        seed = hash(END) % (1 << 64)
        self._table = core.ValueTable(seed, labels, [word.encode() for word in NO_SUBJECT])

    def __len__(self) -> int:
        return len(self._table)

    def find(self, texts: Sequence[str]) -> tuple[FoundValues, NewValues | None]:
        """Returns the values of each text, and the looks of new ones, which get the next free numbers."""
        joined, separators = _join_encoded(texts)
        (ids, starts, labels, words, word_counts, kinds, shapes, counts, buckets, owners, rest, rest_text) = (
            self._table.find(joined, separators, _describe_each)
        )
        found = FoundValues(
            np.frombuffer(ids, np.int32),
            np.frombuffer(starts, np.int64),
            np.frombuffer(labels, np.uint8),
            np.frombuffer(words, np.uint16),
            np.frombuffer(word_counts, np.int32),
        )
        if not kinds:
            return found, None
        new = NewValues(
            np.frombuffer(kinds, np.int8),
            np.frombuffer(shapes, np.int16),
            np.frombuffer(counts, np.int32),
            ValueWords(np.frombuffer(buckets, np.uint16), np.frombuffer(owners, np.int32)),
        )
        return found, _look_beyond(new, np.frombuffer(rest, np.uint32), rest_text) if rest else new

    def find_known(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Returns the numbers of the known values in these texts, in any order and perhaps repeatedly."""
        joined = b"\n".join(_encode_each(texts)).replace(END.encode(), b" ")
        known, beyond = self._table.find_known(joined, None if joined.isascii() else _table_of_separators())
        numbers: NDArray[np.int32] = np.frombuffer(known, np.int32)
        if not beyond:
            return numbers
        tokens = beyond.decode("utf-8", "surrogatepass").split("\n")[:-1]
        others = self.look_up([value for token in set(tokens) for value in _values_of(token)])
        return np.concatenate([numbers, others[others != UNKNOWN]])

    def look_up(self, values: Sequence[str]) -> NDArray[np.int32]:
        """Returns the number of each value; UNKNOWN for a value that is new."""
        numbers: NDArray[np.int32] = np.frombuffer(self._table.look_up(list(values)), np.int32)
        return numbers


def _join_encoded(texts: Sequence[str]) -> tuple[bytes, bytes | None]:
    """Returns what `join_texts` does, encoded, and the separators for it.

    Unless all are ASCII, each text is encoded for itself: most are ASCII, which takes next to no time, and joined to one
    that is not they would take as long as that one.
    """
    if all(map(str.isascii, texts)):
        return join_texts(texts).encode(), None
    joined = END_OF_TEXT.encode().join([*_encode_each(texts), b""])
    if joined.count(0) > len(texts):
        joined = _encode(join_texts(texts))
    return joined, _table_of_separators()


def _encode_each(texts: Sequence[str]) -> list[bytes]:
    try:
        return list(map(str.encode, texts))
    except UnicodeEncodeError:  # a lone surrogate
        return list(map(_encode, texts))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _values_of(token: str) -> list[str]:
    return values_in_phrase(token) if token[0] in QUOTES else values_in_token(token)


def _describe_each(tokens: Sequence[bytes]) -> list[tuple[tuple[bytes, ...], int, int]]:
    """Returns what the core asks of tokens beyond ASCII: the values of each, its label, its bucket as a plain word."""
    texts = [token.decode("utf-8", "surrogatepass") for token in tokens]
    return [(tuple(map(_encode, _values_of(text))), *describe_token(text)) for text in texts]


def _look_beyond(new: NewValues, places: NDArray[np.uint32], texts: bytearray) -> NewValues:
    """Returns the new values, with the rows of those beyond ASCII filled in, which the core leaves empty."""
    looked = look_at(texts.decode("utf-8", "surrogatepass").split("\n")[:-1])
    new.kinds[places], new.shapes[places], new.word_counts[places] = (
        looked.kinds,
        looked.shapes,
        looked.word_counts,
    )
    owners = np.concatenate([new.words.owners, places.astype(np.int32)[looked.words.owners]])
    order = np.argsort(owners, kind="stable")
    buckets = np.concatenate([new.words.buckets, looked.words.buckets])[order]
    return new._replace(words=ValueWords(buckets, owners[order]))


@cache
def _table_of_separators() -> bytes:
    """Returns for each of the first 65,536 characters whether it parts tokens."""
    table = bytearray(_CHARACTERS)
    for separator in {*SEPARATORS, *filter(str.isspace, map(chr, range(_CHARACTERS)))}:
        table[ord(separator)] = True
    return bytes(table)
