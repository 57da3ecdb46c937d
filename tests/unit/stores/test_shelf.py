"""Shelves: bytes by key, in memory and in a store."""

from __future__ import annotations

import pytest

from penstock.errors import StoreError, UnknownSession
from penstock.stores.shelf import MemoryShelf, StoreShelf, open_shelf
from penstock.stores.store import open_store
from penstock.stores.values import NewSession


@pytest.fixture
def store(tmp_path):
    with_file = open_store(f"sqlite:///{tmp_path}/s.db")
    yield with_file
    with_file.close()


def test_the_shelf_of_a_session_is_shared_by_what_continues_it_and_goes_with_it(store):
    store.create(NewSession(id="one", at=1.0))
    store.create(NewSession(id="other", at=1.0))
    shelf = open_shelf(store, "one")
    shelf.put("n1", b"text")
    assert open_shelf(store, "one").get("n1") == b"text"
    assert open_shelf(store, "other").get("n1") is None
    store.branch("one", 0, NewSession(id="branch", at=2.0))
    branch = open_shelf(store, "branch")
    assert branch.get("n1") == b"text"
    branch.put("n1", b"its own")
    assert (shelf.get("n1"), branch.get("n1")) == (b"text", b"its own")
    store.delete("one")
    assert store.note("segments", "one/n1") is None


def test_a_shelf_in_memory_keeps_the_newest():
    shelf = MemoryShelf(2)
    for key in "abc":
        shelf.put(key, key.encode())
    assert [shelf.get(key) for key in "abc"] == [None, b"b", b"c"]


def test_a_session_is_looked_up_when_something_is_asked_for(store):
    shelf = open_shelf(store, "nobody")
    with pytest.raises(UnknownSession):
        shelf.get("a")
    store.create(NewSession(id="nobody", at=1.0))
    shelf.put("a", b"1")
    assert shelf.get("a") == b"1"


def test_without_a_session_keys_are_those_of_the_notes(store):
    StoreShelf(store, "window").put("model:m@", b"9")
    assert store.note("window", "model:m@") == b"9"
    assert StoreShelf(store, "other").get("model:m@") is None


def test_where_the_store_fails_a_shelf_raises_or_goes_on_in_memory(store, tmp_path):
    store.create(NewSession(id="a", at=1.0))
    failures = []
    strict, steady = open_shelf(store, "a"), open_shelf(store, "a", failures.append)
    steady.put("kept", b"1")
    store.close()
    with pytest.raises(StoreError):
        strict.get("kept")
    with pytest.raises(StoreError):
        strict.put("kept", b"2")
    assert steady.get("kept") is None
    steady.put("more", b"3")
    assert steady.get("more") == b"3"
    assert len(failures) == 2
