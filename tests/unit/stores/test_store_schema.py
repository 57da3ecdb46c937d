"""Steps of the schema: forward only, each whole or not at all."""

from __future__ import annotations

import json

import pytest
from released_schemas import RELEASED, restored
from store_rows import add, filled, rows

from penstock.errors import StoreError
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
    assert version(store) == len(schema.STEPS)
    store.close()
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, GOOD))
    for _ in range(2):
        store = open_store(url)
        assert version(store) == len(schema.STEPS)
        assert rows(store, "SELECT at FROM extra") == [(7.5,)]
        assert store.log_tip("a").length == 1
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
    assert version(store) == len(before)
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


RELEASES = sorted(RELEASED.glob("schema_*.json"))


def test_the_first_schema_is_among_those_that_are_tried():
    assert RELEASED / "schema_1.json" in RELEASES


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.stem)
def test_every_released_schema_is_brought_up_to_date(url, release, monkeypatch):
    """All that the released version kept is there, is found without fault, and can be worked with."""
    restored(url, int(release.stem.removeprefix("schema_")), json.loads(release.read_text()), monkeypatch)
    store = open_store(url)
    assert version(store) == len(schema.STEPS)
    assert not store.faults()
    listed = {row.id: row for row in store.list()}
    assert list(listed) == ["empty", "twig", "branch", "work"]
    assert [row.messages for row in listed.values()] == [0, 5, 6, 9]
    assert len(store.read_from("helper", 0)) == 1
    assert store.read_from("twig", 0)[:3] == store.read_from("work", 0)[:3]
    assert [row.undone for row in store.compactions("work", undone=True)] == [None, 11.0, None]
    assert (store.tip("work").id, store.pins("work")) == ("work-4", {2})
    assert store.result("large").text == "line\n" * 500
    assert [row.cost for row in store.usage(session_id="work")] == [0.25, None]
    assert store.note("window", "gpt-4.1") == b"1000000"
    add(store, "twig", "goes on")
    assert store.undo("work", 40.0).session == "work-4"
    assert store.delete("work") == 5  # its last four, and the one of its helper
    assert not store.faults()
    store.close()


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.stem)
def test_a_log_knows_how_many_tokens_it_has(url, release, monkeypatch):
    restored(url, int(release.stem.removeprefix("schema_")), json.loads(release.read_text()), monkeypatch)
    store = open_store(url)
    held = dict(rows(store, "SELECT id, tokens FROM conversations"))
    for name, tokens in held.items():
        assert tokens == sum(entry.tokens for entry in store.read_from(name, 0)), name
    assert held["twig"] > 1_500
    store.close()


def test_an_index_of_a_database_of_its_own_kind_is_made_anew(url, monkeypatch):
    """The fifth step puts blocks in the place of FTS5 and GIN."""
    release = RELEASED / "schema_1.json"
    restored(url, 1, json.loads(release.read_text()), monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", schema.STEPS[:4])
        store = open_store(url)
        terms = "message" if url.startswith("sqlite:") else [7]
        column = "rowid" if url.startswith("sqlite:") else "number"
        with store.database.writing() as do:
            do.run(f"INSERT INTO passages ({column}, terms) VALUES (1, ?)", terms)
            do.run("INSERT INTO indexed (kind, source, conversation, first, passages) VALUES (0, 1, 1, 1, 1)")
            do.run("INSERT INTO index_version (version) VALUES (1)")
        store.close()
    store = open_store(url)
    assert not store.faults()
    found = store.search("message", session_id="work")
    assert len(found) > 1
    with store.database.reading() as do:
        assert do.one(store.database.words.find_table, "passages") is None
    store.delete("work")
    assert not store.faults()
    store.close()
