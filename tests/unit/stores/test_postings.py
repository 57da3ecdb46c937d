"""A block of the search index: pairs of terms and places, and the pages that they are kept in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stores.index import (
    SPAN,
    choose_page,
    count_passages,
    find_places,
    hash_term,
    join_pairs,
    make_pairs,
    pack_pages,
    unpack_pages,
)

WORDS = st.sampled_from([f"word{n}" for n in range(40)]) | st.text(max_size=6)
PASSAGES = st.lists(st.lists(WORDS, min_size=1, max_size=8), min_size=1, max_size=30)


def numbered(passages, first):
    return [(first + place, terms) for place, terms in enumerate(passages)]


def found(term, pages, packed):
    page = dict(packed).get(choose_page(hash_term(term), pages))
    return [] if page is None else find_places(hash_term(term), page).tolist()


def holding(term, passages):
    return [place for place, terms in enumerate(passages) if hash_term(term) in map(hash_term, terms)]


@given(PASSAGES, st.integers(1, 1 << 40))
def test_every_term_is_found_where_it_stands_and_nowhere_else(passages, first):
    pages, packed = pack_pages(make_pairs(numbered(passages, first), first))
    for term in {term for terms in passages for term in terms} | {"in none of them"}:
        assert found(term, pages, packed) == holding(term, passages)


@given(PASSAGES)
def test_pages_give_back_the_pairs_that_they_were_made_of(passages):
    pairs = make_pairs(numbered(passages, 5), 5)
    _, packed = pack_pages(pairs)
    assert unpack_pages([data for _, data in packed]).tolist() == pairs.tolist()
    assert count_passages(pairs) == len(passages)


@given(PASSAGES, st.data())
def test_blocks_that_are_joined_are_as_one(passages, data):
    cut = data.draw(st.integers(1, len(passages)))
    parts = [numbered(passages, 7)[:cut], numbered(passages, 7)[cut:]]
    blocks = [(part[0][0], make_pairs(part, part[0][0])) for part in parts if part]
    assert join_pairs(blocks).tolist() == make_pairs(numbered(passages, 7), 7).tolist()


def test_a_block_may_be_full_and_a_term_in_all_of_it():
    passages = [(number, ("everywhere", f"only{number % 500}")) for number in range(SPAN)]
    pages, packed = pack_pages(make_pairs(passages, 0))
    assert found("everywhere", pages, packed) == list(range(SPAN))
    assert found("only77", pages, packed) == list(range(77, SPAN, 500))
    assert len(packed) <= pages < SPAN


@pytest.mark.parametrize("terms", [50_000])
def test_pages_are_small(terms):
    pairs = make_pairs([(number, [f"{number}.{n}" for n in range(50)]) for number in range(terms // 50)], 0)
    _, packed = pack_pages(pairs)
    sizes = np.array([len(data) for _, data in packed])
    assert np.percentile(sizes, 99) < 2_000
