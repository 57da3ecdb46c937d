"""Gives values numbers, so that a long conversation can be scored with array operations.

A `ValueFinder` finds the values of texts and numbers them. The vocabulary keeps the looks of every value, a row for each
number, and knows which values share a word with a request.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from penstock.writing.compiled import count_owners, count_sources, make_shares, open_finder
from penstock.writing.finder import UNKNOWN
from penstock.writing.value_looks import buckets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.writing.finder import FoundValues, ValueFinder
    from penstock.writing.value_looks import NewValues

__all__ = ["RELATION_STEPS", "Postings", "Vocabulary", "holds_each", "sort_distinct"]

_Number = TypeVar("_Number", np.int32, np.int64)
_AT_ONCE = 1 << 16  # values
_SMALL_PIECE = 10_000  # words: a smaller piece is joined with the next one
_MOST_PIECES = 8  # roughly, so that looking into each of them stays cheap


class Vocabulary:
    """All values so far, numbered in the order of their first appearance. It only grows."""

    def __init__(self, finder: ValueFinder | None = None) -> None:
        self._finder = finder or open_finder()
        # One row per value: its kind, its shape, and how many words it has (at least 1, since it divides).
        self._kinds = np.zeros(0, np.int8)
        self._shapes = np.zeros(0, np.int16)
        self._word_count: NDArray[np.unsignedinteger[Any]] = np.zeros(0, np.uint8)
        self._words = Postings()  # the values that hold each word

    def __len__(self) -> int:
        return len(self._finder)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and len(self.numbers_of([value])) > 0

    def find(self, texts: Sequence[str]) -> FoundValues:
        """Returns the values of each text, and gives new ones numbers."""
        found, new = self._finder.find(texts)
        if new is not None:
            self._add(new)
        return found

    def find_known(self, texts: Iterable[str]) -> NDArray[np.int32]:
        """Returns the numbers of the known values in these texts, sorted."""
        return sort_distinct(self._finder.find_known(list(texts)))

    def numbers_of(self, values: Iterable[str]) -> NDArray[np.int32]:
        """Returns the numbers of those values that are known, sorted. No value gets a new number."""
        numbers = self.look_up(values)
        return np.sort(numbers[numbers != UNKNOWN])

    def look_up(self, values: Iterable[str]) -> NDArray[np.int32]:
        """Returns the number of each value; UNKNOWN for a value that is new."""
        return self._finder.look_up(list(values))

    def kinds(self) -> NDArray[np.int8]:
        """Returns the `Kind` of each value, by its number."""
        return self._kinds

    def shapes(self) -> NDArray[np.int16]:
        """Returns the shape of each value, below `SHAPES`: values of one shape are probably of one sort.

        A shape is made of the classes of characters in a value, and its length. Except for names, this distinguishes
        order numbers from item numbers, prices from dates, and hashes from ids.
        """
        return self._shapes

    def word_counts(self) -> NDArray[np.unsignedinteger[Any]]:
        """Returns how many words each value has, by its number; 1 for none. The array has no more bits than it needs."""
        return self._word_count

    def relation(self, words: Iterable[str], some: NDArray[np.int64] | None = None) -> NDArray[np.int32]:
        """Returns for each value the share of its words that are among these lower-case words, in steps of 1/64.

        Covers all values, or only `some`, by their numbers.
        """
        shared = Counter(buckets(list(words)))  # two words may share a bucket, which then counts twice
        found, of = np.zeros(len(self), np.int32), self._word_count
        wanted = sorted(shared)
        self._words.count_owners(wanted, [shared[word] for word in wanted], found)
        if some is not None:
            found, of = found[some], of[some]
        if of.dtype == np.uint8 and make_shares(of, found):
            return found
        for start in range(0, len(found), _AT_ONCE):
            part = found[start : start + _AT_ONCE]
            related = np.flatnonzero(part)
            part[related] = _look_up_share(part[related], of[start : start + _AT_ONCE][related])
        return found

    def _add(self, new: NewValues) -> None:
        """Adds rows for new values."""
        self._words.add(new.words.buckets, new.words.owners + np.int32(len(self._kinds)))
        # As many bits as the wider of the two has.
        bits = np.min_scalar_type(int(new.word_counts.max(initial=0)))
        self._word_count = np.concatenate([self._word_count, new.word_counts.astype(bits)])
        self._kinds = np.concatenate([self._kinds, new.kinds])
        self._shapes = np.concatenate([self._shapes, new.shapes])


class Postings:
    """Looks up rows by their words, which are numbers of 16 bits. It only grows.

    The rows are in pieces, each sorted by word: new rows make a new piece, and no large array is sorted again.
    """

    def __init__(self) -> None:
        # For each piece: its words, in order; where the owners of each word begin, with one more entry for the end; and
        # the owners. The owners of one word are in the order in which they were added.
        self._words: list[NDArray[np.uint16]] = [np.zeros(0, np.uint16)]
        self._edges: list[NDArray[np.int32]] = [np.zeros(1, np.int32)]
        self._owners: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
        self._rows = 0

    def add(self, word: NDArray[np.uint16], owner: NDArray[np.int32]) -> None:
        """Adds words, each with its owner."""
        self._rows += len(word)
        while self._owners and self._is_joined(len(self._owners[-1]), len(word)):
            word = np.concatenate([np.repeat(self._words.pop(), np.diff(self._edges.pop())), word])
            owner = np.concatenate([self._owners.pop(), owner])
        order = np.argsort(word, kind="stable")  # 16 bits are sorted by counting, not by comparing
        word = word[order]
        first = np.flatnonzero(np.diff(word, prepend=word[:1] + np.uint16(1)))
        self._words.append(word[first])
        self._edges.append(np.append(first, len(word)).astype(np.int32))
        self._owners.append(owner[order])

    def _is_joined(self, last: int, more: int) -> bool:
        """Returns True if a new piece and the last one, of these sizes, become one: small ones, and those of similar sizes.

        So a few words more cost the same however many there are, and there are never many pieces.
        """
        return last < _SMALL_PIECE or last < min(2 * more, self._rows // _MOST_PIECES)

    def count_sources(self, words: NDArray[np.uint16], source_of: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns how many sources hold each of these words, which are in order; the owners of a source stand together.

        `source_of` has the source of each owner.
        """
        last, many = np.full(len(words), -1, np.int32), np.zeros(len(words), np.int32)
        for stand, edges, owners in zip(self._words, self._edges, self._owners, strict=True):
            if not count_sources(stand, edges, owners, words, source_of, last, many):
                runs, held = _find_runs(stand, edges, owners, words)
                for run, word in zip(runs, held.tolist(), strict=True):
                    sources = source_of.take(run)
                    many[word] += np.count_nonzero(np.diff(sources, prepend=last[word]))
                    last[word] = sources[-1]
        return many

    def count_owners(
        self,
        words: Sequence[int] | NDArray[np.uint16],
        times: Sequence[int] | NDArray[np.int32],
        found: NDArray[np.int32],
    ) -> None:
        """Adds to `found`, by owner, how many times each of these words counts; they are in order."""
        wanted, counts = np.asarray(words, np.uint16), np.asarray(times, np.int32)
        for stand, edges, owners in zip(self._words, self._edges, self._owners, strict=True):
            if not count_owners(stand, edges, owners, wanted, counts, found):
                runs, held = _find_runs(stand, edges, owners, wanted)
                for run, word in zip(runs, held.tolist(), strict=True):
                    np.add.at(found, run, np.full(len(run), counts[word]))


def _find_runs(
    stand: NDArray[np.uint16],
    edges: NDArray[np.int32],
    owners: NDArray[np.int32],
    words: NDArray[np.uint16],
) -> tuple[list[NDArray[np.int32]], NDArray[np.int64]]:
    """Returns the runs of owners of one piece that hold the same word, and the place of that word."""
    if not len(stand):
        return [], np.zeros(0, np.int64)
    at = np.searchsorted(stand, words)
    held = np.flatnonzero(stand.take(at, mode="clip") == words)
    ends = edges.take(at[held] + 1).tolist()
    return [owners[a:z] for a, z in zip(edges.take(at[held]).tolist(), ends, strict=True)], held


RELATION_STEPS = 64
_WORDS_BITS = 6
_MANY_WORDS = (1 << _WORDS_BITS) - 1  # few values have this many


def _share(found: NDArray[np.integer], of: NDArray[np.integer]) -> NDArray[np.int32]:
    """Returns the quotients in steps, computed in single precision, so that all platforms round alike."""
    quotients = (found / of).astype(np.float32)
    result: NDArray[np.int32] = np.rint(quotients * np.float32(RELATION_STEPS)).astype(np.int32)
    return result


def _look_up_share(found: NDArray[np.int32], of: NDArray[np.integer]) -> NDArray[np.int32]:
    """Returns what `_share` returns, mostly from a table."""
    case = np.minimum(found, _MANY_WORDS) << _WORDS_BITS
    case += np.minimum(of, _MANY_WORDS)
    share: NDArray[np.int32] = _SHARES.take(case)
    long = np.flatnonzero((found >= _MANY_WORDS) | (of >= _MANY_WORDS))
    share[long] = _share(found[long], of[long])
    return share


# Indexed by found << 6 | of, for fewer than 63 of each. A value has at least one word.
_SHARES = _share(
    np.arange(1 << 2 * _WORDS_BITS) >> _WORDS_BITS,
    np.maximum(np.arange(1 << 2 * _WORDS_BITS) & _MANY_WORDS, 1),
)


def holds_each(ordered: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns for each number whether it is in `ordered`, which ascends."""
    if not len(ordered):
        return np.zeros(len(numbers), np.bool_)
    found: NDArray[np.bool_] = ordered.take(np.searchsorted(ordered, numbers), mode="clip") == numbers
    return found


def sort_distinct(numbers: NDArray[_Number]) -> NDArray[_Number]:
    """Returns each number once, in order. With many repeats, sorting is far faster than `np.unique`."""
    ordered = np.sort(numbers)
    fresh = np.ones(len(ordered), np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh]
