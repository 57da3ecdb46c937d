"""The full-text index: passages by their terms, in blocks that are written once, in portable SQL.

A passage has a number and the terms that `penstock.recall` makes of it, which are taken as they are: no
database cuts words here. New passages come as a small block behind all others. Small neighbours are joined
from time to time, so that there are never many. What is deleted is noted by its numbers (`removed`), is found
no more from then on, and leaves its blocks one by one: no writer waits for more than one of them.

A block stands for up to 65,536 passages with neighbouring numbers. In memory it is one sorted array of pairs:
the hash of a term, and the place of a passage that holds it, counted from where the block begins. In the
database it is cut by hashes into pages of about a kilobyte, so that a term is found in one page of each
block.

Four bytes for a term take less room than the term, and leave nothing in the store that could be read. Two
terms with one hash cost a candidate that the ranking, which reads the text, puts aside.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.errors import StoreError
from penstock.stores.rows import cut_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.stores.database import Row, Transaction

    Pairs = NDArray[np.uint64]
    Places = NDArray[np.uint16]
    Numbers = NDArray[np.int64]

__all__ = [
    "FoundRange",
    "Look",
    "PassageTerms",
    "add_passages",
    "count_damaged_blocks",
    "count_held_passages",
    "empty_index",
    "find_next_number",
    "find_within",
    "purge_some",
    "sort_ranges",
]

SPAN = 1 << 16
"""Passages of a block, at most, those that are gone included: a place in it takes two bytes."""
_PAGE_BYTES = 1_200  # PostgreSQL keeps what is larger than 2,000 elsewhere, SQLite what is larger than a page
_BITS = np.uint64(16)
_PLACE = np.uint64(SPAN - 1)
_NONE: Places = np.zeros(0, "<u2")
# A page: how many terms, their hashes in order, how many places each has (less one), the places of one after
# the other.
_HASH, _COUNT = np.dtype("<u4"), np.dtype("<u2")
_HEAD = 4
_DAMAGED = "the search index is damaged; `penstock doctor --repair` builds it again"
_STEPS = (128, 1_024, 8_192, 49_152)
"""Blocks that are smaller than a step are joined as soon as they reach it together.

So each passage is written a few times at most.
"""
_BLOCK = "SELECT first, span, pages FROM blocks"
_LEAST_BLOCKS = 4  # that are looked at together, the newest; then twice as many each time
_MOST_SMALL = 64  # blocks that may be joined
_NOTHING: Numbers = np.zeros(0, np.int64)


class PassageTerms(msgspec.Struct, frozen=True):
    """The passages that are meant: those that hold all of these terms and, where given, one of those."""

    all_of: tuple[str, ...]
    one_of: tuple[str, ...] = ()


class FoundRange(msgspec.Struct, frozen=True):
    """The count of passages that were found, from the highest number down, and the lowest number among them (0 for none)."""

    passages: int
    lowest: int


class _Block(msgspec.Struct, frozen=True, gc=False):
    """Passages from a number on, within a span of numbers, and how many pages their terms take."""

    first: int
    span: int
    pages: int

    @property
    def end(self) -> int:
        """The number behind the last."""
        return self.first + self.span


def add_passages(do: Transaction, passages: Sequence[tuple[int, Sequence[str]]]) -> int:
    """Adds passages from `find_next_number` on, with their terms.

    Nobody else may add or remove any meanwhile. Returns how many of those before them were written anew.
    """
    for start in range(0, len(passages), SPAN):
        some = passages[start : start + SPAN]
        first = some[0][0]
        _write(do, first, some[-1][0] - first + 1, make_pairs(some, first))
    return _join(do)


def find_next_number(do: Transaction) -> int:
    """Returns the number of the next passage.

    No passage has it, nor one that was removed and still stands in its block.
    """
    row = do.one("SELECT first + span FROM blocks ORDER BY first DESC LIMIT 1")
    return int(row[0]) if row is not None else 1


def purge_some(do: Transaction) -> bool:
    """Writes one block anew without what was removed from it; returns False where there is none.

    Nobody else may change the index meanwhile.
    """
    row = do.one("SELECT min(first) FROM removed")
    if row is None or row[0] is None:
        return False
    found = do.one(f"{_BLOCK} WHERE first <= ? ORDER BY first DESC LIMIT 1", row[0])
    block = _Block(*found) if found is not None else None
    if block is None or block.end <= row[0]:  # in no block: of an index that was damaged
        do.run("DELETE FROM removed WHERE first = ?", row[0])
        return True
    gone = do.rows("SELECT first, passages FROM removed WHERE first < ?", block.end)
    pairs = drop_places(
        _read(do, block), [(first - block.first, first + count - block.first) for first, count in gone]
    )
    _delete(do, block)
    if len(pairs):
        _write(do, block.first, block.span, pairs)
    do.run("DELETE FROM removed WHERE first < ?", block.end)
    first, count = max(gone)
    if first + count > block.end:  # a very long text, whose passages go on in the next block
        do.run("INSERT INTO removed (first, passages) VALUES (?, ?)", block.end, first + count - block.end)
    return True


def empty_index(do: Transaction) -> None:
    """Removes all passages."""
    for table in ("postings", "blocks", "removed"):
        do.run(f"DELETE FROM {table}")


def count_held_passages(do: Transaction) -> int:
    """Returns how many passages there are."""
    row = do.one(
        "SELECT (SELECT coalesce(sum(passages), 0) FROM blocks) - (SELECT coalesce(sum(passages), 0) FROM removed)"
    )
    return int(row[0]) if row is not None else 0


def count_damaged_blocks(do: Transaction) -> int:
    """Returns how many blocks are not what they are said to be."""
    found = 0
    for *block, passages in do.rows("SELECT first, span, pages, passages FROM blocks"):
        try:
            found += count_passages(_read(do, _Block(*block))) != passages
        except StoreError:
            found += 1
    return found


def sort_ranges(rows: Iterable[Row]) -> NDArray[np.int64]:
    """Returns ranges of numbers, each a first one and how many, sorted for `find_within`.

    No two of them may overlap.
    """
    return np.array(sorted(rows), np.int64).reshape(-1, 2)


def find_within(numbers: Numbers, ranges: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns which of the numbers stand in one of the ranges."""
    if not len(ranges):
        return np.zeros(len(numbers), np.bool_)
    # For each number the index of the last range that begins at it or before it, -1 where there is none.
    before = np.searchsorted(ranges[:, 0], numbers, side="right") - 1
    found: NDArray[np.bool_] = (before >= 0) & (numbers < ranges[before].sum(axis=1))
    return found


class Look:
    """The index as one transaction sees it. What was read for one question is there for the next."""

    def __init__(self, do: Transaction) -> None:
        self._do = do
        self._blocks = [_Block(*row) for row in do.rows(f"{_BLOCK} ORDER BY first DESC")]
        self._removed = sort_ranges(do.rows("SELECT first, passages FROM removed"))
        self._found: dict[tuple[int, str], Numbers] = {}

    def find_newest(self, terms: PassageTerms, limit: int) -> Numbers:
        """Returns the highest numbers among the passages that are meant, highest first."""
        found: list[Numbers] = []
        count = 0
        for blocks in self._group_newest_first():
            for block in self._load_holding(blocks, terms.all_of, terms.one_of):
                numbers = self._match(block, terms)
                found.append(numbers[::-1])
                count += len(numbers)
                if count >= limit:
                    return np.concatenate(found)[:limit]
        return np.concatenate(found) if found else _NOTHING

    def measure_spreads(
        self, terms: Sequence[str], one_of: tuple[str, ...], limit: int
    ) -> dict[str, FoundRange]:
        """Returns how often each term is held, within `one_of` where given, counted up to a limit.

        See `FoundRange`.
        """
        found = {term: FoundRange(0, 0) for term in terms}
        for blocks in self._group_newest_first():
            rare = [term for term, spread in found.items() if spread.passages < limit]
            if not rare:
                break
            for block in self._load_holding(blocks, rare, one_of):
                for term in rare:
                    before = found[term].passages
                    numbers = self._match(block, PassageTerms((term,), one_of))
                    if len(numbers) and before < limit:
                        taken = numbers[-(limit - before) :]
                        found[term] = FoundRange(before + len(taken), int(taken[0]))
        return found

    def _group_newest_first(self) -> Iterator[list[_Block]]:
        """Returns the blocks from the newest on, some at a time: a common term needs few, a rare one all."""
        start, count = 0, _LEAST_BLOCKS
        while start < len(self._blocks):
            yield self._blocks[start : start + count]
            start, count = start + count, 2 * count

    def _load_holding(
        self, blocks: list[_Block], terms: Sequence[str], one_of: Sequence[str]
    ) -> list[_Block]:
        """Returns the blocks that may hold what is meant, with what they know of the terms at hand."""
        if one_of:
            self._load(blocks, one_of)
            blocks = [
                block for block in blocks if any(len(self._found[block.first, term]) for term in one_of)
            ]
        self._load(blocks, terms)
        return blocks

    def _load(self, blocks: Sequence[_Block], terms: Sequence[str]) -> None:
        """Reads which passages of the blocks hold the terms."""
        hashes = {term: hash_term(term) for term in terms}
        wanted = {
            (block.first, term): _place_page(block, choose_page(hashes[term], block.pages))
            for block in blocks
            for term in terms
            if (block.first, term) not in self._found
        }
        pages: dict[int, bytes] = {}
        for some in cut_batches(sorted(set(wanted.values()))):
            marks = ", ".join("?" * len(some))
            pages.update(self._do.rows(f"SELECT place, page FROM postings WHERE place IN ({marks})", *some))
        for (first, term), place in wanted.items():
            page = pages.get(place)
            numbers = find_places(hashes[term], page) + np.int64(first) if page is not None else _NOTHING
            self._found[first, term] = self._drop_removed(numbers)

    def _drop_removed(self, numbers: Numbers) -> Numbers:
        """Returns the numbers without those that were removed."""
        return numbers[~find_within(numbers, self._removed)] if len(self._removed) else numbers

    def _match(self, block: _Block, terms: PassageTerms) -> Numbers:
        """Returns the numbers of passages in a block that is loaded, in order."""
        some = [self._found[block.first, term] for term in terms.one_of]
        lists = [self._found[block.first, term] for term in terms.all_of]
        if len(some) == 1:
            lists += some
        elif some:
            lists.append(np.unique(np.concatenate(some)))
        numbers = lists[0]
        for other in lists[1:]:
            numbers = np.intersect1d(numbers, other, assume_unique=True)
        return numbers


def _join(do: Transaction) -> int:
    """Makes one block of the newest ones where these are small and many.

    Returns how many passages were written anew.
    """
    anew = 0
    blocks = [_Block(*row) for row in do.rows(f"{_BLOCK} ORDER BY first DESC LIMIT ?", _MOST_SMALL)]
    for step in _STEPS:
        small: list[_Block] = []
        for block in blocks:
            if block.span >= step or blocks[0].end - block.first > SPAN:
                break
            small.append(block)
        if len(small) > 1 and small[0].end - small[-1].first >= step:
            small.reverse()
            pairs = join_pairs([(block.first, _read(do, block)) for block in small])
            for block in small:
                _delete(do, block)
            whole = _write(do, small[0].first, small[-1].end - small[0].first, pairs)
            blocks[: len(small)] = [whole]
            anew += whole.span
    return anew


def _read(do: Transaction, block: _Block) -> Pairs:
    low, high = _place_page(block, 0), _place_page(block, block.pages)
    rows = do.rows("SELECT page FROM postings WHERE place >= ? AND place < ? ORDER BY place", low, high)
    return unpack_pages([row[0] for row in rows])


def _write(do: Transaction, first: int, span: int, pairs: Pairs) -> _Block:
    pages, packed = pack_pages(pairs)
    block = _Block(first, span, pages)
    do.run(
        "INSERT INTO blocks (first, span, passages, pages) VALUES (?, ?, ?, ?)",
        *(first, span, count_passages(pairs), pages),
    )
    do.run_many(
        "INSERT INTO postings (place, page) VALUES (?, ?)",
        [(_place_page(block, page), data) for page, data in packed],
    )
    return block


def _delete(do: Transaction, block: _Block) -> None:
    do.run(
        "DELETE FROM postings WHERE place >= ? AND place < ?",
        _place_page(block, 0),
        _place_page(block, block.pages),
    )
    do.run("DELETE FROM blocks WHERE first = ?", block.first)


def _place_page(block: _Block, page: int) -> int:
    """Returns where a page of a block is kept."""
    return block.first * SPAN + page


# A block as pairs in memory, and as pages of bytes.


def make_pairs(passages: Iterable[tuple[int, Sequence[str]]], first: int) -> Pairs:
    """Returns the pairs of passages by number, with their terms; `first` is where the block begins."""
    hashes: dict[str, int] = {}
    pairs = []
    for number, terms in passages:
        place = number - first
        for term in terms:
            if term not in hashes:
                hashes[term] = hash_term(term) << 16
            pairs.append(hashes[term] | place)
    table = np.sort(np.array(pairs, np.uint64))
    fresh = np.ones(len(table), np.bool_)
    fresh[1:] = table[1:] != table[:-1]  # two terms of a passage may have one hash
    return table[fresh]


def join_pairs(blocks: Sequence[tuple[int, Pairs]]) -> Pairs:
    """Returns the pairs of blocks, each with where it begins, as one that begins where the first of them does."""
    first = blocks[0][0]
    return np.sort(np.concatenate([pairs + np.uint64(begins - first) for begins, pairs in blocks]))


def drop_places(pairs: Pairs, ranges: Iterable[tuple[int, int]]) -> Pairs:
    """Returns the pairs without places in these ranges, each from one place up to another."""
    gone = np.zeros(SPAN, np.bool_)
    for low, high in ranges:
        gone[max(0, low) : max(0, high)] = True
    kept: Pairs = pairs[~gone[pairs & _PLACE]]
    return kept


def count_passages(pairs: Pairs) -> int:
    """Returns how many passages there are in a block."""
    return int(np.count_nonzero(np.bincount((pairs & _PLACE).astype(np.int64))))


def pack_pages(pairs: Pairs) -> tuple[int, list[tuple[int, bytes]]]:
    """Returns how many pages there are, and those with something in them by their place."""
    hashes, places = (pairs >> _BITS).astype(_HASH), (pairs & _PLACE).astype(_COUNT)
    # The pairs are sorted, so those of one term stand together: `starts` are the indices at which a term
    # begins.
    starts = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1])))
    counts = np.diff(starts, append=len(pairs))
    terms, rest = hashes[starts], (counts - 1).astype(_COUNT)
    size = len(terms) * (_HASH.itemsize + _COUNT.itemsize) + len(pairs) * _COUNT.itemsize
    pages = min(SPAN, 1 + size // _PAGE_BYTES)
    # Each page has an equal share of all hashes; `borders` are the indices, among the terms, of the first of
    # each page.
    borders = np.searchsorted(
        terms.astype(np.uint64) * np.uint64(pages) >> np.uint64(32), np.arange(pages + 1)
    )
    ends = np.append(starts, len(pairs))
    packed = []
    for page, (low, high) in enumerate(zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)):
        if low < high:
            head = (
                (high - low).to_bytes(_HEAD, "little") + terms[low:high].tobytes() + rest[low:high].tobytes()
            )
            packed.append((page, head + places[ends[low] : ends[high]].tobytes()))
    return pages, packed


def unpack_pages(pages: Iterable[bytes]) -> Pairs:
    """Returns the pairs of a block, by its pages in order. Raises StoreError where they are damaged."""
    parts = [_split_page(page) for page in pages]
    if not parts:
        return np.zeros(0, np.uint64)
    hashes = np.concatenate([np.repeat(terms, rest.astype(np.uint32) + 1) for terms, rest, _ in parts])
    places = np.concatenate([places for *_, places in parts])
    if len(hashes) != len(places):
        raise StoreError(_DAMAGED)
    pairs: Pairs = hashes.astype(np.uint64) << _BITS | places
    return pairs


def hash_term(term: str) -> int:
    """Returns the hash of a term: four bytes."""
    return zlib.crc32(term.encode())


def choose_page(term_hash: int, pages: int) -> int:
    """Returns which of so many pages holds the term, if any does."""
    return term_hash * pages >> 32


def find_places(term_hash: int, page: bytes) -> Places:
    """Returns the places of a term, in order, by the page that it would stand in."""
    terms, rest, places = _split_page(page)
    # The places of all terms before this one stand before its own; each count is kept less one.
    at = int(np.searchsorted(terms, np.uint32(term_hash)))
    if at == len(terms) or terms[at] != term_hash:
        return _NONE
    start = int(rest[:at].sum()) + at
    return places[start : start + int(rest[at]) + 1]


def _split_page(page: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint16], Places]:
    count = int.from_bytes(page[:_HEAD], "little")
    behind_terms = _HEAD + count * _HASH.itemsize
    behind_counts = behind_terms + count * _COUNT.itemsize
    try:
        terms = np.frombuffer(page, _HASH, count, _HEAD)
        rest = np.frombuffer(page, _COUNT, count, behind_terms)
        return terms, rest, np.frombuffer(page, _COUNT, -1, behind_counts)
    except ValueError as error:  # shorter than it says
        raise StoreError(_DAMAGED) from error
