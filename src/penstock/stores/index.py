"""The full-text index: passages by their terms, in blocks that are written once, in portable SQL.

A passage has a number and the terms that `penstock.recall` makes of it, which are taken as they are: no
database cuts words here. New passages come as a small block behind all others. Small neighbours are joined
from time to time, so that there are never many. Deleted passages are noted by their numbers (`removed`), are found
no more from then on, and leave their blocks some pages at a time.

No writer waits long for any of this: blocks are packed and joined in memory first, from a transaction that only reads. The
transaction that writes makes sure that nothing has changed since, and puts the pages in place.

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
from penstock.stores.rows import cut_batches, require_row

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
    "PackedBlock",
    "PassageTerms",
    "PreparedJoin",
    "Purge",
    "add_blocks",
    "count_damaged_blocks",
    "count_held_passages",
    "drop_old_blocks",
    "empty_index",
    "find_lowest_number",
    "find_next_number",
    "find_purge",
    "find_within",
    "join_blocks",
    "pack_blocks",
    "prepare_join",
    "sort_ranges",
]

SPAN = 1 << 16
"""Passages of a block, at most, those that are gone included: a place in it takes two bytes."""
_PAGE_BYTES = 1_200  # PostgreSQL keeps rows over 2,000 bytes elsewhere, SQLite rows over a page
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
_BLOCK_ROW = "SELECT first, span, passages, pages FROM blocks"
_PAGES_AT_ONCE = 1_200  # that are rewritten in one transaction
_LEAST_BLOCKS = 4  # that are looked at together, the newest; then twice as many each time
_MOST_SMALL = 64  # blocks that may be joined
_NOTHING: Numbers = np.zeros(0, np.int64)


class PassageTerms(msgspec.Struct, frozen=True):
    """The passages that are meant: those that hold all of these terms, and one term of each group in `within`."""

    all_of: tuple[str, ...]
    within: tuple[tuple[str, ...], ...] = ()


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


class PackedBlock(msgspec.Struct, frozen=True):
    """A block that is ready to be written: where it begins behind the number that it will get, and its pages."""

    offset: int
    span: int
    passages: int
    pages: int
    packed: list[tuple[int, bytes]]


class PreparedJoin(msgspec.Struct, frozen=True):
    """Small blocks, as their rows were, and the one that they make together."""

    rows: tuple[Row, ...]
    whole: PackedBlock


def pack_blocks(passages: Sequence[Sequence[str]]) -> list[PackedBlock]:
    """Returns the blocks of passages that follow each other, by the terms of each."""
    made = []
    for start in range(0, len(passages), SPAN):
        some = passages[start : start + SPAN]
        made.append(_pack(start, len(some), make_pairs(enumerate(some), 0)))
    return made


def _pack(offset: int, span: int, pairs: Pairs) -> PackedBlock:
    pages, packed = pack_pages(pairs)
    return PackedBlock(offset, span, count_passages(pairs), pages, packed)


def add_blocks(do: Transaction, blocks: Sequence[PackedBlock], number: int) -> None:
    """Writes blocks from a number on, that of `find_next_number`. No other process may change the index meanwhile."""
    for block in blocks:
        _write(do, number + block.offset, block)


def prepare_join(do: Transaction) -> PreparedJoin | None:
    """Returns the newest blocks as one, where these are small and many."""
    rows = do.rows(f"{_BLOCK_ROW} ORDER BY first DESC LIMIT ?", _MOST_SMALL)
    blocks = [_Block(first, span, pages) for first, span, _, pages in rows]
    for step in _STEPS:
        count = 0
        for block in blocks:
            if block.span >= step or blocks[0].end - block.first > SPAN:
                break
            count += 1
        small = blocks[:count][::-1]
        if count > 1 and small[-1].end - small[0].first >= step:
            pairs = join_pairs([(block.first, _read(do, block)) for block in small])
            return PreparedJoin(tuple(rows[:count][::-1]), _pack(0, small[-1].end - small[0].first, pairs))
    return None


def join_blocks(do: Transaction, join: PreparedJoin) -> int:
    """Puts one block in the place of several, unless one of them has changed since, and returns how many passages it has.

    No other process may change the index meanwhile.
    """
    low, high = join.rows[0][0], join.rows[-1][0]
    if do.rows(f"{_BLOCK_ROW} WHERE first >= ? AND first <= ? ORDER BY first", low, high) != list(join.rows):
        return 0
    for first, span, _, pages in join.rows:
        _delete(do, _Block(first, span, pages))
    _write(do, low, join.whole)
    return join.whole.span


def find_next_number(do: Transaction) -> int:
    """Returns the number of the next passage.

    No passage has it, nor one that was removed and still stands in its block.
    """
    row = do.one("SELECT first + span FROM blocks ORDER BY first DESC LIMIT 1")
    return int(row[0]) if row is not None else 1


def find_lowest_number(do: Transaction) -> int:
    """Returns the lowest number that a passage has, or 0: passages below it were made anew or deleted."""
    row = do.one("SELECT min(first) FROM indexed WHERE passages > 0")
    return int(row[0]) if row is not None and row[0] is not None else 0


def drop_old_blocks(do: Transaction) -> None:
    """Removes the oldest block if all its passages were made anew. No other process may change the index meanwhile."""
    found = do.one(f"{_BLOCK} ORDER BY first LIMIT 1")
    if found is not None and (block := _Block(*found)).end <= find_lowest_number(do):
        _delete(do, block)
        do.run("DELETE FROM removed WHERE first < ?", block.end)


def find_purge(do: Transaction) -> Purge | None:
    """Returns the work of removing deleted passages from one block, or None if there is none."""
    row = do.one("SELECT min(first) FROM removed")
    if row is None or row[0] is None:
        return None
    found = do.one(f"{_BLOCK_ROW} WHERE first <= ? ORDER BY first DESC LIMIT 1", row[0])
    if found is None or found[0] + found[1] <= row[0]:  # in no block: of an index that was damaged
        return Purge(None, [(row[0], 1)])
    gone = do.rows("SELECT first, passages FROM removed WHERE first < ?", found[0] + found[1])
    return Purge(found, gone)


class Purge:
    """Takes removed passages out of a block, some pages in each transaction, so that no writer waits for all of them."""

    def __init__(self, row: Row | None, gone: list[Row]) -> None:
        self._row = row
        self._gone = gone
        self._page = 0
        self._left = np.zeros(SPAN, np.bool_)  # which places still hold something
        self._removed = np.zeros(SPAN, np.bool_)
        if row is not None:
            for first, count in gone:
                self._removed[first - row[0] : max(0, first + count - row[0])] = True

    def rewrite_some(self, do: Transaction) -> bool:
        """Rewrites the next pages; returns False if those were the last, or if the block has changed meanwhile.

        No other process may change the index meanwhile.
        """
        if self._row is None:
            do.run("DELETE FROM removed WHERE first = ?", self._gone[0][0])
            return False
        first, span, _, pages = self._row
        if do.one(f"{_BLOCK_ROW} WHERE first = ?", first) != self._row:
            return False
        block = _Block(first, span, pages)
        until = min(pages, self._page + _PAGES_AT_ONCE)
        low, high = _place_page(block, self._page), _place_page(block, until)
        before: dict[int, bytes] = dict(
            do.rows(
                "SELECT place, page FROM postings WHERE place >= ? AND place < ? ORDER BY place", low, high
            )
        )
        pairs = unpack_pages(before.values())
        kept: Pairs = pairs[~self._removed[pairs & _PLACE]]
        self._left[kept & _PLACE] = True
        after = {_place_page(block, page): data for page, data in _cut_pages(kept, pages)}
        changed = [(data, place) for place, data in after.items() if data != before[place]]
        do.run_many("UPDATE postings SET page = ? WHERE place = ?", changed)
        do.run_many(
            "DELETE FROM postings WHERE place = ?", [(place,) for place in before.keys() - after.keys()]
        )
        self._page = until
        if until < pages:
            return True
        self._finish(do, block)
        return False

    def _finish(self, do: Transaction, block: _Block) -> None:
        """Notes how many passages the block has now, and forgets what was removed from it."""
        if self._left.any():
            do.run("UPDATE blocks SET passages = ? WHERE first = ?", int(self._left.sum()), block.first)
        else:
            _delete(do, block)
        do.run_many("DELETE FROM removed WHERE first = ?", [(first,) for first, _ in self._gone])
        first, count = max(self._gone)
        if first + count > block.end:  # a very long text, whose passages go on in the next block
            do.run(
                "INSERT INTO removed (first, passages) VALUES (?, ?)", block.end, first + count - block.end
            )


def empty_index(do: Transaction) -> None:
    """Removes all passages."""
    for table in ("postings", "blocks", "removed"):
        do.run(f"DELETE FROM {table}")


def count_held_passages(do: Transaction) -> int:
    """Returns how many passages there are, without those that were removed or made anew and still stand in a block."""
    lowest = find_lowest_number(do)
    held = require_row(do.one("SELECT coalesce(sum(passages), 0) FROM blocks WHERE first >= ?", lowest))
    gone = require_row(do.one("SELECT coalesce(sum(passages), 0) FROM removed WHERE first >= ?", lowest))
    found = int(held[0]) - int(gone[0])
    row = do.one(f"{_BLOCK} WHERE first < ? ORDER BY first DESC LIMIT 1", lowest)
    if row is not None and (block := _Block(*row)).end > lowest:
        places = np.unique(_read(do, block) & _PLACE)
        found += int(np.count_nonzero(places >= lowest - block.first))
    return found


def count_damaged_blocks(do: Transaction) -> int:
    """Returns how many blocks do not match their record."""
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
    """The index as one transaction sees it. What one question read is there for the next."""

    def __init__(self, do: Transaction) -> None:
        self._do = do
        lowest = find_lowest_number(do)
        blocks = [_Block(*row) for row in do.rows(f"{_BLOCK} ORDER BY first DESC")]
        self._blocks = [block for block in blocks if block.end > lowest]
        removed = do.rows("SELECT first, passages FROM removed WHERE first >= ?", lowest)
        self._removed = sort_ranges([(0, lowest), *removed] if lowest else removed)
        self._found: dict[tuple[int, str], Numbers] = {}

    def find_newest(self, terms: PassageTerms, limit: int) -> Numbers:
        """Returns the highest numbers among the passages that are meant, highest first."""
        found: list[Numbers] = []
        count = 0
        for blocks in self._group_newest_first():
            for block in self._load_holding(blocks, terms.all_of, terms.within):
                numbers = self._match(block, terms)
                found.append(numbers[::-1])
                count += len(numbers)
                if count >= limit:
                    return np.concatenate(found)[:limit]
        return np.concatenate(found) if found else _NOTHING

    def find_down_to(self, term: str, lowest: int) -> list[int]:
        """Returns all passages that hold a term, down to a number."""
        blocks = [block for block in self._blocks if block.end > lowest]
        self._load(blocks, (term,))
        found = [self._found[block.first, term] for block in blocks]
        return [int(number) for numbers in found for number in numbers if number >= lowest]

    def measure_spreads(
        self, terms: Sequence[str], within: tuple[tuple[str, ...], ...], limit: int
    ) -> dict[str, FoundRange]:
        """Returns how often each term is held, within a term of each group, counted up to a limit.

        See `FoundRange`.
        """
        found = {term: FoundRange(0, 0) for term in terms}
        for blocks in self._group_newest_first():
            rare = [term for term, spread in found.items() if spread.passages < limit]
            if not rare:
                break
            for block in self._load_holding(blocks, rare, within):
                for term in rare:
                    before = found[term].passages
                    numbers = self._match(block, PassageTerms((term,), within))
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
        self, blocks: list[_Block], terms: Sequence[str], within: Sequence[Sequence[str]]
    ) -> list[_Block]:
        """Returns the blocks that may hold passages that are meant, with their entries for the terms loaded."""
        for group in within:
            self._load(blocks, group)
            blocks = [block for block in blocks if any(len(self._found[block.first, term]) for term in group)]
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
        lists = [self._found[block.first, term] for term in terms.all_of]
        for group in terms.within:
            some = [self._found[block.first, term] for term in group]
            lists.append(some[0] if len(some) == 1 else np.unique(np.concatenate(some)))
        numbers = lists[0]
        for other in lists[1:]:
            numbers = np.intersect1d(numbers, other, assume_unique=True)
        return numbers


def _read(do: Transaction, block: _Block) -> Pairs:
    low, high = _place_page(block, 0), _place_page(block, block.pages)
    rows = do.rows("SELECT page FROM postings WHERE place >= ? AND place < ? ORDER BY place", low, high)
    return unpack_pages([row[0] for row in rows])


def _write(do: Transaction, first: int, block: PackedBlock) -> None:
    do.run(
        "INSERT INTO blocks (first, span, passages, pages) VALUES (?, ?, ?, ?)",
        *(first, block.span, block.passages, block.pages),
    )
    placed = _Block(first, block.span, block.pages)
    do.run_many(
        "INSERT INTO postings (place, page) VALUES (?, ?)",
        [(_place_page(placed, page), data) for page, data in block.packed],
    )


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


def count_passages(pairs: Pairs) -> int:
    """Returns how many passages there are in a block."""
    return int(np.count_nonzero(np.bincount((pairs & _PLACE).astype(np.int64))))


def pack_pages(pairs: Pairs) -> tuple[int, list[tuple[int, bytes]]]:
    """Returns how many pages there are, and those with something in them by their place."""
    terms = len(_group_terms(pairs)[2])
    size = terms * (_HASH.itemsize + _COUNT.itemsize) + len(pairs) * _COUNT.itemsize
    pages = min(SPAN, 1 + size // _PAGE_BYTES)
    return pages, _cut_pages(pairs, pages)


def _cut_pages(pairs: Pairs, pages: int) -> list[tuple[int, bytes]]:
    """Returns pairs as pages of a block that has so many, each with its place; pages without a pair are left out."""
    hashes, places, starts = _group_terms(pairs)
    terms, rest = hashes[starts], (np.diff(starts, append=len(pairs)) - 1).astype(_COUNT)
    # Each page has an equal share of all hashes. `borders` are the indices, among the terms, of the first of
    # each page that has one, and that behind the last term.
    held, borders = np.unique(terms.astype(np.uint64) * np.uint64(pages) >> np.uint64(32), return_index=True)
    borders = np.append(borders, len(terms))
    ends = np.append(starts, len(pairs))
    packed = []
    for page, low, high in zip(held.tolist(), borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        head = (high - low).to_bytes(_HEAD, "little") + terms[low:high].tobytes() + rest[low:high].tobytes()
        packed.append((page, head + places[ends[low] : ends[high]].tobytes()))
    return packed


def _group_terms(pairs: Pairs) -> tuple[NDArray[np.uint32], Places, NDArray[np.intp]]:
    """Returns the hash and the place of each pair, and the indices at which a term begins.

    The pairs are sorted, so those of one term stand together.
    """
    hashes, places = (pairs >> _BITS).astype(_HASH), (pairs & _PLACE).astype(_COUNT)
    first = np.ones(len(hashes), np.bool_)
    first[1:] = hashes[1:] != hashes[:-1]
    return hashes, places, np.flatnonzero(first)


def unpack_pages(pages: Iterable[bytes]) -> Pairs:
    """Returns the pairs of a block, by its pages in order. Raises StoreError if they are damaged."""
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
    """Returns which of a block's pages holds the term, if any does."""
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
