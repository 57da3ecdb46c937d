"""Which passages hold a term, as bytes.

A block stands for up to 65,536 passages with neighbouring numbers. In memory it is one sorted array of pairs: the hash
of a term, and the place of a passage that holds it, counted from where the block begins. In the database it is cut by
hashes into pages of about a kilobyte, so that a term is found in one page of each block.

Four bytes for a term take less room than the term, and leave nothing in the store that could be read. Two terms with
one hash cost a candidate that the ranking, which reads the text, puts aside.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Pairs = NDArray[np.uint64]
    Places = NDArray[np.uint16]

__all__ = [
    "SPAN",
    "hash_of",
    "joined",
    "pack",
    "page_of",
    "pairs_of",
    "passages_in",
    "places_of",
    "unpack",
    "without",
]

SPAN = 1 << 16
"""Passages of a block, at most, those that are gone included: a place in it takes two bytes."""
_PAGE_BYTES = 1_200  # PostgreSQL keeps what is larger than 2,000 elsewhere, SQLite what is larger than a page
_BITS = np.uint64(16)
_PLACE = np.uint64(SPAN - 1)
_NONE: Places = np.zeros(0, "<u2")

# A page: how many terms, their hashes in order, how many places each has (less one), the places of one after the other.
_HASH, _COUNT = np.dtype("<u4"), np.dtype("<u2")
_HEAD = 4
_DAMAGED = "the search index is damaged: penstock doctor --repair makes it anew"


def hash_of(term: str) -> int:
    """Four bytes."""
    return zlib.crc32(term.encode())


def page_of(term_hash: int, pages: int) -> int:
    """Which of so many pages holds the term, if any does."""
    return term_hash * pages >> 32


def pairs_of(passages: Iterable[tuple[int, Sequence[str]]], first: int) -> Pairs:
    """The pairs of passages by number, with their terms; `first` is where the block begins."""
    hashes: dict[str, int] = {}
    pairs = []
    for number, terms in passages:
        place = number - first
        for term in terms:
            if term not in hashes:
                hashes[term] = hash_of(term) << 16
            pairs.append(hashes[term] | place)
    table = np.sort(np.array(pairs, np.uint64))
    fresh = np.ones(len(table), np.bool_)
    fresh[1:] = table[1:] != table[:-1]  # two terms of a passage may have one hash
    return table[fresh]


def joined(blocks: Sequence[tuple[int, Pairs]]) -> Pairs:
    """The pairs of blocks, each with where it begins, as one that begins where the first of them does."""
    first = blocks[0][0]
    return np.sort(np.concatenate([pairs + np.uint64(begins - first) for begins, pairs in blocks]))


def without(pairs: Pairs, ranges: Iterable[tuple[int, int]]) -> Pairs:
    """The pairs without places in these ranges, each from one place up to another."""
    gone = np.zeros(SPAN, np.bool_)
    for low, high in ranges:
        gone[max(0, low) : max(0, high)] = True
    kept: Pairs = pairs[~gone[pairs & _PLACE]]
    return kept


def passages_in(pairs: Pairs) -> int:
    """How many passages there are in a block."""
    return int(np.count_nonzero(np.bincount((pairs & _PLACE).astype(np.int64))))


def pack(pairs: Pairs) -> tuple[int, list[tuple[int, bytes]]]:
    """How many pages there are, and those with something in them by their place."""
    hashes, places = (pairs >> _BITS).astype(_HASH), (pairs & _PLACE).astype(_COUNT)
    starts = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1])))
    counts = np.diff(starts, append=len(pairs))
    terms, rest = hashes[starts], (counts - 1).astype(_COUNT)
    size = len(terms) * (_HASH.itemsize + _COUNT.itemsize) + len(pairs) * _COUNT.itemsize
    pages = min(SPAN, 1 + size // _PAGE_BYTES)
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


def places_of(term_hash: int, page: bytes) -> Places:
    """The places of a term, in order, by the page that it would stand in."""
    terms, rest, places = _parts(page)
    at = int(np.searchsorted(terms, np.uint32(term_hash)))
    if at == len(terms) or terms[at] != term_hash:
        return _NONE
    start = int(rest[:at].sum()) + at
    return places[start : start + int(rest[at]) + 1]


def unpack(pages: Iterable[bytes]) -> Pairs:
    """The pairs of a block, by its pages in order. Raises StoreError where they are damaged."""
    parts = [_parts(page) for page in pages]
    if not parts:
        return np.zeros(0, np.uint64)
    hashes = np.concatenate([np.repeat(terms, rest.astype(np.uint32) + 1) for terms, rest, _ in parts])
    places = np.concatenate([places for *_, places in parts])
    if len(hashes) != len(places):
        raise StoreError(_DAMAGED)
    pairs: Pairs = hashes.astype(np.uint64) << _BITS | places
    return pairs


def _parts(page: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint16], Places]:
    count = int.from_bytes(page[:_HEAD], "little")
    behind_terms = _HEAD + count * _HASH.itemsize
    behind_counts = behind_terms + count * _COUNT.itemsize
    try:
        terms = np.frombuffer(page, _HASH, count, _HEAD)
        rest = np.frombuffer(page, _COUNT, count, behind_terms)
        return terms, rest, np.frombuffer(page, _COUNT, -1, behind_counts)
    except ValueError as error:  # shorter than it says
        raise StoreError(_DAMAGED) from error
