"""The store of the workers: appends that share a transaction, and books that may wait."""

from __future__ import annotations

import threading
import time

import pytest
from msgspec import structs

from penstock.conversation.dialects import dialect_named
from penstock.errors import StoreConflict, StoreError, UnknownSession
from penstock.gateway.write_behind import WriteBehindStore
from penstock.measure.tokens import ByteEstimate
from penstock.measure.usage import Usage
from penstock.sessions.appending import prepare_given
from penstock.stores.store import Store, open_store
from penstock.stores.values import NewSession, UsageRow


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/log.db"


@pytest.fixture
def store(url):
    store = WriteBehindStore(open_store(url).database)
    yield store
    store.close()


def new_message(text):
    return prepare_given([{"role": "user", "content": text}], dialect_named("chat"), ByteEstimate()).new


def create(store, name):
    return store.create(NewSession(id=name, at=1.0))


def test_appends_that_come_together_are_committed_together_and_fail_each_for_itself(store, url, monkeypatch):
    names = [f"s{n}" for n in range(8)]
    for name in names:
        create(store.for_owner(name), name)
    commits, results, gate = [], {}, threading.Barrier(len(names) + 3)
    writing = store.database.writing

    def slow_writing():
        commits.append(time.monotonic())
        time.sleep(0.05)
        return writing()

    monkeypatch.setattr(store.database, "writing", slow_writing)

    def append(key, owner, name, after):
        gate.wait()
        try:
            results[key] = store.for_owner(owner).append(name, new_message(f"from {key}"), after, 2.0)
        except (StoreConflict, UnknownSession) as error:
            results[key] = type(error)

    wanted = [(name, name, name, "") for name in names]
    wanted += [("late", "s0", "s0", "ff" * 16), ("stranger", "s1", "s0", ""), ("nobody", "s0", "none", "")]
    threads = [threading.Thread(target=append, args=one) for one in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(commits) < len(wanted)
    assert results["late"] is StoreConflict
    assert results["stranger"] is results["nobody"] is UnknownSession
    other = open_store(url)
    for name in names:
        assert [entry.raw for entry in other.read_from(name, 0)] == [new_message(f"from {name}")[0].raw]
    assert other.faults() == []


def test_announced_appends_share_one_transaction_and_fail_each_for_itself(store, url, monkeypatch):
    """One thread with many conversations waits for the disk once."""
    names = [f"s{n}" for n in range(4)]
    for name in names:
        create(store.for_owner(name), name)
    commits, writing = [], store.database.writing

    def count():
        commits.append(1)
        return writing()

    monkeypatch.setattr(store.database, "writing", count)
    appends = [(store.for_owner(name), name, new_message(f"for {name}"), "") for name in names]
    appends.append((store.for_owner("s0"), "s1", new_message("of a stranger"), ""))
    for view, name, messages, after in appends:
        view.announce(name, messages, after)
    with pytest.raises(UnknownSession):
        appends[-1][0].append("s1", appends[-1][2], "", 2.0)
    for view, name, messages, after in [appends[0], *appends[2:4]]:
        assert view.append(name, messages, after, 2.0).tip.length == 1
    assert len(commits) == 1
    other = open_store(url)
    assert [entry.raw for entry in other.read_from("s0", 0)] == [appends[0][2][0].raw]
    assert other.faults() == []
    other.close()


def test_an_append_of_other_messages_than_were_announced_is_its_own(store):
    create(store, "s")
    store.announce("s", new_message("announced"), "")
    first = store.append(
        "s", new_message("announced"), "", 2.0
    )  # the same words in another list: they are there already
    assert first.again
    assert store.append("s", new_message("more"), first.tip.id, 2.0).tip.length == 2


def test_books_are_seen_at_once_and_written_with_the_next_flush(store, url):
    create(store, "s")
    other = open_store(url)
    used = UsageRow(session="s", at=3.0, model="m", task="turn", usage=Usage(input_tokens=5), cost=None)
    store.put_note("n", "k", b"old")
    store.put_note("n", "k", b"new")
    store.book(used)
    assert store.note("n", "k") == b"new"
    assert other.note("n", "k") is None
    assert list(other.usage()) == []
    store.flush()
    assert other.note("n", "k") == store.note("n", "k") == b"new"
    assert list(other.usage()) == list(store.usage()) == [used]
    store.put_note("n", "k", b"newer")
    assert store.note("n", "k") == b"newer"
    store.book(used)
    assert len(store.usage(session_id="s")) == 2  # whoever asks for the books gets all of them


def test_what_a_deleted_session_used_goes_with_it_and_nothing_else(store):
    for name in ("gone", "stays"):
        create(store, name)
        store.book(
            UsageRow(session=name, at=3.0, model="m", task="turn", usage=Usage(input_tokens=5), cost=None)
        )
    store.delete("gone")
    assert [row.session for row in store.usage()] == ["stays"]


def test_books_wait_where_the_store_cannot_be_written(store, url, caplog):
    create(store, "s")
    store.put_note("n", "k", b"value")
    locked = open_store(url)
    with locked.database.writing():
        impatient = WriteBehindStore(open_store(url, wait_seconds=0.01).database)
        impatient.put_note("n", "other", b"value")
        for _ in range(3):
            impatient.flush()
        assert impatient.note("n", "other") == b"value"
        assert len(caplog.records) == 1  # flushes come every moment, and one is enough to say so
    impatient.flush()
    assert locked.note("n", "other") == b"value"
    with locked.database.writing():
        impatient.put_note("n", "other", b"more")
        impatient.flush()
    assert len(caplog.records) == 2
    impatient.close()
    assert locked.note("n", "other") == b"more"


def test_nothing_that_no_store_can_hold_waits_to_be_written(store, url):
    """It would keep everything else from being written, and every turn from ending."""
    create(store, "s")
    used = UsageRow(session="s", at=3.0, model="m", task="turn", usage=Usage(input_tokens=5), cost=None)
    for name, key, session_id in (("n", "k\0", None), ("n\0", "k", None), ("n", "k", "s\0"), ("n", "", None)):
        with pytest.raises(StoreError):
            store.put_note(name, key, b"value", session_id=session_id)
    for odd in ({"cost": float("nan")}, {"at": float("inf")}):
        with pytest.raises(StoreError):
            store.book_all([used, structs.replace(used, **odd)])
    store.book(used)
    store.flush()
    other = open_store(url)
    assert list(other.usage()) == [used]
    other.close()


def open_turn(store, name):
    now = time.time()
    assert store.open_turn(name, "holder", now, now + 8.0) is not None


def test_a_note_that_the_end_of_a_turn_writes_stays_the_newest_beside_a_look_at_the_books(url, monkeypatch):
    """The look at the books is held up before it writes; meanwhile the note changes, and the turn ends."""
    store = WriteBehindStore.beside(open_store(url))
    create(store, "s")
    open_turn(store, "s")
    store.put_note("n", "s", b"old", session_id="s")
    store.book(UsageRow(session="s", at=3.0, model="m", task="turn", usage=Usage(input_tokens=5), cost=None))
    writing, looks, go_on = store.database.writing, threading.Event(), threading.Event()

    def write_late():
        if threading.current_thread() is looker:
            looks.set()
            assert go_on.wait(30)
        return writing()

    looker = threading.Thread(target=store.usage)
    monkeypatch.setattr(store.database, "writing", write_late)
    looker.start()
    assert looks.wait(30)
    store.put_note("n", "s", b"new", session_id="s")
    store.close_turn("s", "holder", time.time())
    go_on.set()
    looker.join()
    other = open_store(url)
    assert other.note("n", "s") == b"new"
    assert len(other.usage()) == 1
    other.close()
    store.close()


def test_a_note_that_is_written_while_it_is_read_is_read_again(url, monkeypatch):
    store = WriteBehindStore.beside(open_store(url))
    create(store, "s")
    read = Store.note

    def read_slowly(self, name, key):
        found = read(self, name, key)
        monkeypatch.setattr(Store, "note", read)
        store.put_note("n", "s", b"new", session_id="s")
        store.flush()
        return found

    monkeypatch.setattr(Store, "note", read_slowly)
    store.note("n", "s")
    assert store.note("n", "s") == b"new"
    store.close()
