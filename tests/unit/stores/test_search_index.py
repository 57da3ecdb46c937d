"""The search index in its tables: what is added is found, what is removed is not, whatever blocks it stands in."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import pairwise

import pytest
from store_rows import add, rows, run

from penstock.errors import StoreError
from penstock.stores import index
from penstock.stores.deletion import delete_conversations
from penstock.stores.index import (
    FoundRange,
    Look,
    PassageTerms,
    add_blocks,
    count_held_passages,
    empty_index,
    find_purge,
    hash_term,
    join_blocks,
    pack_blocks,
    prepare_join,
    unpack_pages,
)
from penstock.stores.store import open_store
from penstock.stores.values import NewSession

VOCABULARY = [f"w{n}" for n in range(60)]


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    url = (
        f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    )
    opened = open_store(url)
    yield opened
    opened.close()


def add_passages(do, passages):
    """Adds passages as a keeper does, and joins blocks while there are small ones."""
    add_blocks(do, pack_blocks([terms for _, terms in passages]), passages[0][0])
    while (join := prepare_join(do)) is not None:
        assert join_blocks(do, join)


def purge_some(do):
    """Takes what was removed out of one block; returns False where there is none."""
    purge = find_purge(do)
    while purge is not None and purge.rewrite_some(do):
        pass
    return purge is not None


class Model:
    """Which passages there are, kept the plain way."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.held = {}
        self.next = 1

    def more(self, count):
        made = []
        for _ in range(count):
            terms = {
                VOCABULARY[min(59, int(self.rng.expovariate(0.1)))] for _ in range(self.rng.randint(1, 6))
            }
            made.append((self.next, sorted(terms)))
            self.next += 1
        self.held.update(made)
        return made

    def remove(self):
        first = self.rng.choice(sorted(self.held))
        count = self.rng.randint(1, 6)
        gone = [number for number in range(first, first + count) if number in self.held]
        for number in gone:
            del self.held[number]
        return [(number, 1) for number in gone]

    def newest(self, terms, limit):
        found = [
            number
            for number, held in self.held.items()
            if set(terms.all_of) <= set(held) and all(set(group) & set(held) for group in terms.within)
        ]
        return sorted(found, reverse=True)[:limit]


def agree(do, model):
    look = Look(do)
    for _ in range(12):
        one, other, *some = model.rng.sample(VOCABULARY, 4)
        limit = model.rng.choice((1, 7, 10_000))
        for terms in (
            PassageTerms((one,)),
            PassageTerms((one, other)),
            PassageTerms((one,), (tuple(some),)),
            PassageTerms((one,), ((other,),)),
            PassageTerms((one,), ((other,), tuple(some))),
        ):
            assert look.find_newest(terms, limit).tolist() == model.newest(terms, limit)
        spreads = look.measure_spreads([one, other, "unheard of"], (tuple(some),), limit)
        for term in (one, other):
            found = model.newest(PassageTerms((term,), (tuple(some),)), limit)
            assert spreads[term] == FoundRange(len(found), min(found, default=0))
        assert spreads["unheard of"] == FoundRange(0, 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_adding_and_removing_gives_what_a_plain_list_gives(store, seed, monkeypatch):
    monkeypatch.setattr(index, "_STEPS", (4, 16, 64))
    monkeypatch.setattr(index, "_PAGES_AT_ONCE", 1)
    monkeypatch.setattr(index, "_PAGE_BYTES", 100)
    model = Model(seed)
    for _ in range(25):
        with store.database.writing() as do:
            if model.held and model.rng.random() < 0.4:
                do.run_many("INSERT INTO removed (first, passages) VALUES (?, ?)", model.remove())
                agree(do, model)  # before it has left its block
                if model.rng.random() < 0.5:
                    while purge_some(do):
                        pass
            else:
                add_passages(do, model.more(model.rng.randint(1, 9)))
            agree(do, model)
            assert count_held_passages(do) == len(model.held)
    blocks = rows(store, "SELECT first, span FROM blocks ORDER BY first")
    assert all(first + span <= after for (first, span), (after, _) in pairwise(blocks))


def test_small_blocks_are_joined_so_that_there_are_few(store):
    model = Model(1)
    with store.database.writing() as do:
        for _ in range(400):
            add_passages(do, model.more(7))
    assert len(rows(store, "SELECT first FROM blocks")) < 20
    with store.database.reading() as do:
        agree(do, model)


def test_a_text_longer_than_a_block_is_found_and_removed(store, monkeypatch):
    monkeypatch.setattr(index, "SPAN", 32)
    model = Model(2)
    with store.database.writing() as do:
        add_passages(do, model.more(100))
        agree(do, model)
        do.run("INSERT INTO removed (first, passages) VALUES (?, ?)", 10, 70)
        for number in range(10, 80):
            del model.held[number]
        steps = 0
        while purge_some(do):
            steps += 1
            agree(do, model)
        assert steps == 3  # one block at a time
        assert count_held_passages(do) == 30
        empty_index(do)
        assert (count_held_passages(do), Look(do).find_newest(PassageTerms(("w1",)), 5).tolist()) == (0, [])


def hashes_in(store):
    """Every hash of a term that is kept in the index."""
    return {
        int(pair) >> 16
        for (page,) in rows(store, "SELECT page FROM postings")
        for pair in unpack_pages([page])
    }


def test_no_term_of_a_deleted_conversation_stays(store):
    for name in ("gone", "stays"):
        store.create(NewSession(id=name, at=1.0))
        add(store, name, *(f"{name}{n} common" for n in range(50)))
    store.index()
    assert hashes_in(store) >= {hash_term("gone7"), hash_term("stays7"), hash_term("common")}
    store.delete("gone")
    left = hashes_in(store)
    assert not left & {hash_term(f"gone{n}") for n in range(50)}
    assert left >= {hash_term(f"stays{n}") for n in range(50)} | {hash_term("common")}
    assert rows(store, "SELECT * FROM removed") == []


@pytest.mark.parametrize("page", [None, "", "07", "ffffffff00", "010000000a0000000000010002"])
def test_a_damaged_page_is_told_and_made_anew(store, page):
    store.create(NewSession(id="a", at=1.0))
    add(store, "a", "a puffin", "a gannet")
    store.index()
    if page is None:
        run(store, "DELETE FROM postings")
    else:
        run(store, "UPDATE postings SET page = ?", bytes.fromhex(page))
    faults = store.faults()
    assert [(fault.where, fault.mendable) for fault in faults] == [("search index", True)]
    with suppress(StoreError):  # or nothing is found
        assert list(store.search("puffin")) == []
    store.repair()
    assert len(store.search("puffin")) == 1
    assert not store.faults()


def test_a_damaged_index_does_not_keep_a_conversation_from_being_deleted(store, caplog):
    store.create(NewSession(id="a", at=1.0))
    add(store, "a", "a puffin", "a gannet")
    store.index()
    run(store, "UPDATE postings SET page = ?", b"\x07")
    assert store.delete("a") == 2
    assert "doctor --repair" in caplog.text
    assert list(store.list()) == []
    store.repair()
    store.index()
    assert rows(store, "SELECT count(*) FROM postings") == [(0,)]
    assert not store.faults()


def test_what_a_killed_process_left_in_the_index_is_not_found_and_goes_with_the_next(store):
    for name in ("stays", "gone"):
        store.create(NewSession(id=name, at=1.0))
        add(store, name, f"{name} albatross")
    store.index()
    with store.database.writing() as do:  # and no more
        (key,) = do.one("SELECT key FROM conversations WHERE id = 'gone'")
        delete_conversations(do, key)
    assert [finding.session for finding in store.search("albatross")] == ["stays"]
    assert not store.faults()
    store.create(NewSession(id="new", at=2.0))
    add(store, "new", "an albatross again")  # whose passage gets the number of the one that is gone
    assert {finding.session for finding in store.search("albatross")} == {"stays", "new"}
    store.index()
    assert hash_term("gone") not in hashes_in(store)
    assert not store.faults()
