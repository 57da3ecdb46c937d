"""Finds what people said that a text holds word for word, without comparing the text with all that people said."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from penstock.writing.reading import Speaker, append_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.writing.reading import Index

__all__ = ["SHORTEST_TOLD", "find_said_in"]

SHORTEST_TOLD = 12  # characters of an excerpt that is not quoted where a section holds it
_AT_ONCE = 256  # excerpts, so that looking at them takes little memory
_BASE = np.uint64(0x9E37_79B9_7F4A_7C15)  # any odd number: what has equal marks is compared in full


def find_said_in(text: str, index: Index) -> list[int]:
    """Returns the excerpts of people, but for the shortest, that this text holds word for word, whatever the white space.

    In the text, single spaces stand between words. Only those excerpts are compared that begin as some part of it does, and
    the index keeps a mark of how each begins.
    """
    looked, numbers, openings = index.openings
    fresh = looked + np.flatnonzero(index.speakers[index.source_of[looked:]] == Speaker.USER)
    for start in range(0, len(fresh), _AT_ONCE):
        part = fresh[start : start + _AT_ONCE].astype(np.int32)
        spoken = [" ".join(said.split()) for said in index.quote_each(part.tolist())]
        is_long = [len(said) >= SHORTEST_TOLD for said in spoken]
        begun = "".join(said[:SHORTEST_TOLD] for said in compress(spoken, is_long))
        numbers = append_rows(numbers, [part[np.array(is_long, np.bool_)]])
        openings = append_rows(openings, [_mark_parts(begun)[::SHORTEST_TOLD]])
    index.openings = len(index.source_of), numbers, openings
    parts = _mark_parts(text)
    parts.sort()
    if not len(parts):
        return []
    places = np.searchsorted(parts, openings)
    places[places == len(parts)] = 0
    some = numbers[parts[places] == openings].tolist()
    quotes = zip(some, index.quote_each(some), strict=True)
    return [number for number, said in quotes if " ".join(said.split()) in text]


def _mark_parts(text: str) -> NDArray[np.uint64]:
    """Returns for each place of the text a mark of the next `SHORTEST_TOLD` characters, the same for the same ones."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    marks = np.zeros(max(0, len(codes) - SHORTEST_TOLD + 1), np.uint64)
    for place in range(SHORTEST_TOLD):
        marks *= _BASE
        marks += codes[place : place + len(marks)]
    return marks
