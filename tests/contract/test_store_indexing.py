"""Indexing beside those who write: in slices, by a thread, in a new version beside the old one, and searched within parts of it."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from store_talk import SHARED, append, raw_message, started

from penstock.conversation.wire import encode_wire
from penstock.errors import StoreUnavailable, UnknownSession
from penstock.recall.passages import INDEX_VERSION
from penstock.stores import indexing, searching
from penstock.stores.indexing import IndexKeeper, add_slice, prepare_slice
from penstock.stores.searching import SearchFilter
from penstock.stores.store import open_store
from penstock.stores.values import NewSession


def handles(findings):
    """The handles of all findings, the most telling of each first."""
    return [handle for finding in findings for handle in finding.handles]


def age(store, version=INDEX_VERSION - 1):
    """Has the index look like one of an older version."""
    with store.database.writing() as do:
        do.run("UPDATE index_version SET version = ?", version)


def test_an_index_of_an_older_version_serves_while_the_new_one_is_made(store):
    started(store)
    append(store, "s", *(f"sparrow number{n} on the roof" for n in range(20)))
    store.index()
    age(store)
    assert store.count_unindexed() == 0  # all of it can be found
    assert handles(store.search("number7"))[0] == "m8"
    assert store.index(1) >= 1
    for number in range(20):
        assert handles(store.search(f"number{number}"))[0] == f"m{number + 1}"
        assert not store.faults()
        store.index(1)
    store.index()
    with store.database.reading() as do:
        assert do.one("SELECT version FROM index_version") == (INDEX_VERSION,)
        assert do.one("SELECT min(first) FROM indexed")[0] > 20  # behind all that were there
        assert do.one("SELECT count(*) FROM blocks WHERE first <= 20")[0] == 0
    assert not store.faults()
    assert store.index() == 0


def test_messages_come_and_go_while_a_new_version_is_made(store, monkeypatch):
    monkeypatch.setattr("penstock.stores.indexing._AT_ONCE", 3)
    for name in ("stays", "gone"):
        started(store, name)
        append(store, name, *(f"{name} wren{n}" for n in range(8)))
    store.index()
    age(store)
    store.index(2)
    append(store, "stays", "a late wren99")
    store.index(2)
    store.delete("gone")
    store.index()
    assert not store.faults()
    assert handles(store.search("wren99"))[0] == "m9"
    assert list(store.search("gone")) == []
    assert {finding.session for finding in store.search("wren3")} == {"stays"}


def test_a_first_index_is_made_while_messages_come(store, monkeypatch):
    """Where the database lets others write meanwhile: what they bring is listed by them, and once."""
    started(store)
    append(store, "s", "one sparrow")

    def list_sources():
        if store.database.words.hold_index:  # else nobody else writes meanwhile
            append(store, "s", "two sparrows")
        yield from sources

    sources = indexing._EVERYTHING
    monkeypatch.setattr(indexing, "_EVERYTHING", list_sources())
    with store.database.writing() as do:
        do.run("DELETE FROM index_version")
    store.index()
    assert store.search("sparrow")
    assert not store.faults()
    assert store.count_unindexed() == 0


def test_a_slice_that_another_process_indexed_meanwhile_is_not_written_twice(store):
    started(store)
    append(store, "s", "one starling", "two starlings")
    store.index()
    append(store, "s", "three starlings")
    with store.database.reading() as do:
        ready = prepare_slice(do)
    assert store.index() == 1
    with store.database.writing() as do:
        assert add_slice(do, ready) == 0
    assert not store.faults()


def test_what_was_deleted_meanwhile_does_not_come_back(store):
    started(store, "a")
    started(store, "b")
    append(store, "a", "a secret kestrel")
    append(store, "b", "a kestrel")
    with store.database.reading() as do:
        ready = prepare_slice(do)
    store.delete("a")
    with store.database.writing() as do:
        assert add_slice(do, ready) == 0
    assert [finding.session for finding in store.search("kestrel")] == ["b"]
    assert not store.faults()


def test_two_threads_of_a_store_do_not_make_the_same_slice(store, monkeypatch):
    started(store)
    append(store, "s", *(f"heron{n} in the reeds" for n in range(100)))
    monkeypatch.setattr("penstock.stores.indexing._AT_ONCE", 10)
    made = []

    def prepare_slowly(*args):
        ready = prepare_slice(*args)
        time.sleep(0.02)
        if ready is not None:
            made.extend(ready.sources)
        return ready

    monkeypatch.setattr(indexing, "prepare_slice", prepare_slowly)
    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(lambda _: store.index(), range(2))) == 100
    assert len(made) == 100


@SHARED
def test_much_that_is_written_is_indexed_beside(store_url):
    store = open_store(store_url)
    try:
        started(store, "beside")
        append(store, "beside", *(f"gull{n} over the harbour" for n in range(indexing._WRITTEN)))
        thread = store._keeper._thread
        assert thread is not None
        thread.join(60)
        assert not thread.is_alive()
        assert store.count_unindexed() == 0
        assert handles(store.search("gull77"))[0] == "m78"
        assert not store.faults()
    finally:
        store.delete("beside")
        store.close()


@SHARED
def test_a_store_that_is_closed_leaves_nothing_running(store_url):
    store = open_store(store_url)
    started(store, "closed")
    append(store, "closed", *(f"tern{n}" for n in range(2 * indexing._WRITTEN)))
    thread = store._keeper._thread
    store.close()
    assert thread is None or not thread.is_alive()
    again = open_store(store_url)
    again.index()
    assert not again.faults()
    again.delete("closed")
    again.close()


@SHARED
def test_writers_searchers_and_indexers_do_not_disturb_each_other(store_url):
    writer, searcher, indexer = stores = [open_store(store_url) for _ in range(3)]
    started(writer, "busy")
    done = threading.Event()

    def keep_on(act, *args):
        while not done.is_set():
            act(*args)

    with ThreadPoolExecutor() as pool:
        beside = [pool.submit(keep_on, searcher.search, "plover marsh"), pool.submit(keep_on, indexer.index)]
        try:
            for number in range(60):
                append(writer, "busy", *(f"plover{number} marsh {n}" for n in range(5)))
        finally:
            done.set()
    for one in beside:
        one.result()
    writer.index()
    assert writer.count_unindexed() == 0
    assert not writer.faults()
    for number in (0, 31, 59):
        assert handles(writer.search(f"plover{number}", session_id="busy"))
    writer.delete("busy")
    for store in stores:
        store.close()


def test_a_search_that_cannot_index_now_finds_what_is_indexed(store, monkeypatch):
    started(store)
    append(store, "s", "an early bittern")
    store.index()
    append(store, "s", "a late bittern")

    def refuse(self):
        raise StoreUnavailable("busy")

    monkeypatch.setattr(IndexKeeper, "_holding", refuse)
    assert handles(store.search("bittern")) == ["m1"]
    assert store.count_unindexed() == 1


def test_a_conversation_deleted_while_its_search_indexes_is_told_as_unknown(store, monkeypatch):
    started(store)
    append(store, "s", "a bittern in the reeds")
    catch_up = IndexKeeper.catch_up

    def delete_then_catch_up(keeper, conversation, embedder=None):
        store.delete("s")
        catch_up(keeper, conversation, embedder)

    monkeypatch.setattr(IndexKeeper, "catch_up", delete_then_catch_up)
    with pytest.raises(UnknownSession):
        store.search("bittern", session_id="s")


def test_what_stands_in_the_view_is_not_indexed_for_a_search_in_its_conversation(store):
    started(store)
    append(store, "s", "an early curlew", "and another curlew")
    store.index()
    append(store, "s", "a curlew that the asker sees")
    assert handles(store.search("curlew", session_id="s", hidden={2}))[0] in ("m1", "m2")
    assert store.count_unindexed() == 1
    assert "m3" in {one for found in store.search("curlew", session_id="s") for one in found.handles}
    assert store.count_unindexed() == 0


def test_a_search_in_a_conversation_makes_a_damaged_index_anew(store):
    """As `penstock doctor --repair` leaves it: nothing waits, and what is there cannot be relied on."""
    started(store)
    append(store, "s", "a curlew", "a plover")
    store.index()
    age(store, version=0)
    assert store.count_unsearched("s") == 2
    assert "m1" in {one for found in store.search("curlew", session_id="s") for one in found.handles}
    assert store.count_unsearched("s") == 0
    with store.database.reading() as do:
        assert do.one("SELECT version FROM index_version") == (INDEX_VERSION,)


@pytest.mark.parametrize("most_waiting", [0, 5_000])
def test_what_a_search_would_miss_is_counted_without_what_the_asker_sees(store, monkeypatch, most_waiting):
    monkeypatch.setattr(searching, "_MOST_WAITING", most_waiting)
    started(store)
    started(store, "other")
    append(store, "s", "a curlew", "a plover", "a heron")
    append(store, "other", "a gull")
    assert store.count_unsearched("s") == 3
    assert store.count_unsearched("s", {1, 2}) == 1
    assert store.count_unsearched("s", {0, 1, 2}) == 0
    store.branch("s", 2, NewSession(id="b", at=3.0))
    append(store, "b", "a tern")
    assert store.count_unsearched("b") == 3
    store.index()
    assert store.count_unsearched("s") == 0


def call(name, number, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


@pytest.fixture
def worked(store):
    started(store)
    wires = [
        {"role": "user", "content": "the flag is in config; look"},
        call("read_file", 1, path="src/app/config.py"),
        {"role": "tool", "tool_call_id": "c1", "content": "flag = 1"},
        call("terminal", 2, command="grep flag"),
        {"role": "tool", "tool_call_id": "c2", "content": "lib/other.py: flag twice"},
        {"role": "assistant", "content": "The flag is set in src/app/config.py."},
    ]
    for at, wire in enumerate(wires):
        tip = store.log_tip("s")
        store.append("s", [raw_message(encode_wire(wire))], tip.id if tip.length else "", 100.0 + at)
    return store


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        (SearchFilter(role="user"), {"m1"}),
        (SearchFilter(role="tool"), {"m3", "m5"}),
        (SearchFilter(role="nobody"), set()),
        (SearchFilter(tool="terminal"), {"m4", "m5"}),
        (SearchFilter(tool="Read_File"), {"m2", "m3"}),
        (SearchFilter(path="config.py"), {"m2", "m3", "m6"}),
        (SearchFilter(path="App\\config.py"), {"m2", "m3", "m6"}),
        (SearchFilter(path="other.py"), {"m5"}),
        (SearchFilter(path="fig.py"), set()),
        (SearchFilter(path="lib/config.py"), set()),
        (SearchFilter(path="src/app/config.py"), {"m2", "m3", "m6"}),
        (SearchFilter(path="src/app/config.py", role="assistant"), {"m6"}),
        (SearchFilter(since=104.0), {"m5", "m6"}),
        (SearchFilter(since=104.0, role="assistant"), {"m6"}),
        (SearchFilter(since=1_000.0), set()),
    ],
)
def test_a_search_is_kept_to_a_role_a_tool_a_file_and_a_time(worked, within, expected):
    found = worked.search("flag", within=within)
    assert {handle for finding in found for handle in finding.handles} == expected


def test_a_question_is_answered_by_whole_messages_in_every_store(store):
    started(store)
    append(
        store,
        "s",
        *(f"It rained all day, number {n}." for n in "abcdefgh"),
        "We were cooking dumplings.",
        "How nice!",
    )
    (best, *_) = store.search("When did we cook a dumpling?")
    assert best.handles[0] == "m9"
    assert "cooking dumplings" in best.excerpt
