"""`LiteralFinder` finds what an automaton with leftmost-longest matches does, with the core and without it."""

from __future__ import annotations

import ahocorasick_rs
from hypothesis import given
from hypothesis import strategies as st

from penstock.trajectories.summary import LiteralFinder

_TEXTS = st.text("ab_é→ \n\ud800", max_size=40)
_VALUES = st.lists(st.text("ab_é→ ", min_size=1, max_size=6), min_size=1, max_size=12, unique=True)


@given(_VALUES, _TEXTS)
def test_it_finds_the_first_and_of_those_the_longest(values, text):
    automaton = ahocorasick_rs.AhoCorasick(values, matchkind=ahocorasick_rs.MatchKind.LeftmostLongest)
    read = text.replace("\ud800", "\ufffd")
    assert LiteralFinder(values).scan(text) == automaton.find_matches_as_indexes(read)


@given(_VALUES, _TEXTS)
def test_a_value_inside_a_longer_word_does_not_count(values, text):
    for which, start, end in LiteralFinder(values).find(text):
        assert text[start:end] == values[which]
        assert not (start and text[start - 1].isalnum() and text[start].isalnum())
        assert not (end < len(text) and text[end].isalnum() and text[end - 1].isalnum())
