"""Finds the anchors of all rules, the literal strings near which secrets stand, in one pass over a text.

`penstock_core` looks at three bytes from each place on, which is quicker than an automaton by half, needs no table of seven
megabytes, and takes no time to be made. Without it, the automaton of `ahocorasick_rs` does the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from penstock._core import HAS_CORE, core

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["AnchorHit", "open_anchors", "open_automaton", "replace_surrogates"]

AnchorHit: TypeAlias = tuple[int, int, int]
"""Which anchor stands in a text, where it begins, and where it ends."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def open_anchors(anchors: Sequence[str]) -> Callable[[str], list[AnchorHit]]:
    """Returns the quickest function that finds these anchors in a text, also one inside another.

    They come in the order of their ends; of those that end together, the longest comes first. Half a surrogate pair in the
    text is read as U+FFFD.
    """
    if not HAS_CORE:
        return open_automaton(anchors)
    find: Callable[[str], list[AnchorHit]] = core.Anchors([anchor.encode() for anchor in anchors]).find
    return find


def open_automaton(anchors: Sequence[str]) -> Callable[[str], list[AnchorHit]]:
    """Returns the same function without the core."""
    # Loaded here, since it is not needed where the core is.
    from ahocorasick_rs import AhoCorasick, Implementation  # noqa: PLC0415

    automaton = AhoCorasick(list(anchors), store_patterns=False, implementation=Implementation.DFA)

    def find(text: str) -> list[AnchorHit]:
        try:
            return automaton.find_matches_as_indexes(text, overlapping=True)
        except UnicodeEncodeError:
            return automaton.find_matches_as_indexes(replace_surrogates(text), overlapping=True)

    return find


def replace_surrogates(text: str) -> str:
    """Returns the text with U+FFFD for each half of a surrogate pair, which no encoding has."""
    return _SURROGATE.sub("\ufffd", text)
