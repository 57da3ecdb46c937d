"""The indexes that the search benchmark compares find the same passages."""

from __future__ import annotations

import random

import pytest
from benchmarks.search_fill import make_conversation
from benchmarks.search_rivals import Blocks, Fts5, quantile, read_passages

from penstock.stores.store import open_store
from penstock.stores.values import NewSession


@pytest.fixture
def indexes(tmp_path):
    made = [Blocks(f"sqlite:///{tmp_path}/blocks.db"), Fts5(f"{tmp_path}/fts5.db")]
    yield made
    for index in made:
        index.close()


def test_blocks_and_fts5_find_the_same_passages_before_and_after_a_removal(indexes):
    chance = random.Random(3)
    terms = [f"{number:08x}" for number in range(60)]
    passages = [(number, chance.sample(terms, 6)) for number in range(1, 401)]
    for start in range(0, len(passages), 50):
        for index in indexes:
            index.add(passages[start : start + 50])
    for gone in ((), range(100, 180)):
        for index in indexes:
            index.remove(list(gone))
        for _ in range(40):
            asked = chance.sample(terms, chance.choice((1, 2)))
            ours, theirs = (index.find(asked, 20) for index in indexes)
            held = [number for number, own in passages if set(asked) <= set(own) and number not in gone]
            assert ours == theirs == held[::-1][:20]


def test_the_passages_of_a_store_are_read_with_their_terms():
    store = open_store("memory:")
    store.create(NewSession(id="s", at=0.0))
    store.append("s", make_conversation(0)[:200], "", 0.0)
    store.index()
    with store.database.reading() as do:
        held = do.one("SELECT sum(passages) FROM blocks")[0]
    passages = list(read_passages(store))
    store.close()
    assert [number for number, _ in passages] == list(range(1, held + 1))
    assert all(terms for _, terms in passages)


def test_a_quantile_is_a_value_that_was_measured():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([float(n) for n in range(100)], 0.99) == 99.0
