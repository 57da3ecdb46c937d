"""The compiled search for anchors finds what the automaton finds, in the same order, for any text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.redaction.anchors import open_anchors, open_automaton
from penstock.redaction.redactor import _RULES

core = pytest.importorskip("penstock_core")

LETTERS = st.sampled_from(["a", "b", "ab", "aba", "pw", "\0", "密", "码", "é", "\U0001f600"])
ANCHORS = st.lists(
    st.lists(LETTERS, min_size=1, max_size=6).map("".join).filter(lambda text: len(text.encode()) > 1),
    min_size=1,
    max_size=12,
    unique=True,
)
TEXTS = st.lists(LETTERS | st.sampled_from(["x", "\ud800", "\udfff", "\ufffd", "퟿"]), max_size=40).map(
    "".join
)
OF_RULES = list(dict.fromkeys(anchor for rule in _RULES for anchor in rule.anchors))
NEAR_RULES = st.lists(st.sampled_from(OF_RULES) | st.text(max_size=3), max_size=20).map("".join)


@settings(max_examples=500, deadline=None)
@given(ANCHORS, TEXTS)
def test_anchors_of_any_kind(anchors, text):
    assert open_anchors(anchors)(text) == open_automaton(anchors)(text)


@pytest.fixture(scope="module")
def both():
    return open_anchors(OF_RULES), open_automaton(OF_RULES)


@settings(max_examples=300, deadline=None)
@given(text=NEAR_RULES)
def test_the_anchors_of_all_rules(both, text):
    compiled, automaton = both
    assert compiled(text) == automaton(text)


def test_an_anchor_of_one_byte_is_refused():
    with pytest.raises(ValueError, match="two bytes"):
        core.Anchors([b"a"])


def test_half_a_surrogate_pair_is_read_as_the_replacement_character():
    find = open_anchors(["a\ufffdb"])
    assert find("xa\udc00b") == find("xa\ufffdb") == [(0, 1, 4)]
