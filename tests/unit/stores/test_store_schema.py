"""Steps of the schema: forward only, each whole or not at all."""

from __future__ import annotations

import pytest
from store_rows import add, commit, filled, rows

from penstock.errors import SchemaTooNew, SchemaTooOld, StoreError
from penstock.stores import schema
from penstock.stores.store import open_store
from penstock.stores.values import NewSession

GOOD = "CREATE TABLE extra (key {key}, value {blob}, at {real});\nINSERT INTO extra (at) SELECT created FROM conversations;\n"
BROKEN = "CREATE TABLE extra (key {key});\nCREATE TABLE entries (key {key});\n"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    return (
        f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    )


def version(store):
    with store.database.reading() as do:
        return schema.version_of(do, store.database.words)


def test_a_store_is_brought_forward_with_what_is_in_it(url, monkeypatch):
    store = open_store(url)
    store.create(NewSession(id="a", at=7.5))
    add(store, "a", "one")
    assert version(store) == schema.FIRST_VERSION + len(schema.STEPS) - 1
    store.close()
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, GOOD))
    for _ in range(2):
        store = open_store(url)
        assert version(store) == schema.FIRST_VERSION + len(schema.STEPS) - 1
        assert rows(store, "SELECT at FROM extra") == [(7.5,)]
        assert store.log_tip("a").length == 1
        assert not store.faults()
        store.close()


@pytest.mark.parametrize("steps", range(1, len(schema.STEPS)))
def test_a_store_of_every_older_version_is_brought_forward_whole(url, monkeypatch, steps):
    newest = schema.STEPS
    monkeypatch.setattr(schema, "STEPS", newest[:steps])
    store = open_store(url)
    store.create(NewSession(id="a", at=7.5, title="old"))
    add(store, "a", "one", "two")
    commit(store, "a", "a2", 0)
    add(store, "a2", "three")
    before = [
        list(store.list()),
        store.ids("a2"),
        store.find_known_prefix(store.ids("a")),
        store.compactions("a"),
    ]
    store.close()
    monkeypatch.setattr(schema, "STEPS", newest)
    store = open_store(url)
    assert version(store) == schema.FIRST_VERSION + len(newest) - 1
    now = [
        list(store.list()),
        store.ids("a2"),
        store.find_known_prefix(store.ids("a")),
        store.compactions("a"),
    ]
    assert now == before
    assert store.search("three")
    assert store.entities("a2", redact=str) is not None
    assert not store.faults()
    store.close()


def test_a_step_that_fails_leaves_the_store_as_it_was(url, monkeypatch):
    store = open_store(url)
    store.create(NewSession(id="a", at=7.5))
    store.close()
    before = schema.STEPS
    monkeypatch.setattr(schema, "STEPS", (*before, BROKEN))
    with pytest.raises(StoreError, match="entries"):
        open_store(url)
    monkeypatch.setattr(schema, "STEPS", before)
    store = open_store(url)
    assert version(store) == schema.FIRST_VERSION + len(before) - 1
    assert store.session("a").started == 7.5
    with store.database.reading() as do:
        assert do.one(store.database.words.find_table, "extra") is None
    store.close()


def test_a_store_that_is_up_to_date_is_only_read(tmp_path):
    path = tmp_path / "s.db"
    filled(path).close()
    before = path.read_bytes()
    open_store(f"sqlite:///{path}").close()
    assert path.read_bytes() == before


def set_version(url, number):
    store = open_store(url)
    store.create(NewSession(id="a", at=7.5))
    with store.database.writing() as do:
        do.run("UPDATE penstock_schema SET version = ?", number)
    store.close()


def test_a_schema_from_before_the_first_release_is_refused(url):
    set_version(url, schema.FIRST_VERSION - 1)
    named = "s.db" if url.startswith("sqlite:") else "postgresql://"
    with pytest.raises(SchemaTooOld, match=rf"{named}.*schema version 8.*export.*or delete it"):
        open_store(url)


def test_a_newer_schema_is_refused(url):
    set_version(url, 99)
    with pytest.raises(SchemaTooNew, match=r"schema version 99.*newer version"):
        open_store(url)
