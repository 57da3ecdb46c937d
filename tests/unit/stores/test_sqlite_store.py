"""SQLite: who may read the file, what is left in it after deleting, who is told what when it cannot be used."""

from __future__ import annotations

import random
import stat
import threading
import time

import apsw
import pytest
from store_rows import add, filled, rows, run

from penstock.errors import SchemaTooNew, SettingsError, StoreError, StoreUnavailable
from penstock.stores.encoding import pack
from penstock.stores.store import open_store
from penstock.stores.values import NewSession, StoredResult


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "sessions.db"


def test_the_file_is_for_its_owner_alone(path):
    store = open_store(f"sqlite:///{path}")
    store.create(NewSession(id="a", at=1.0))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    assert {"sessions.db", "sessions.db-wal"} <= set(modes)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["sessions.db"]


@pytest.mark.parametrize("becomes", ["nothing", "another file"])
def test_what_is_written_to_a_file_that_has_gone_is_not_acknowledged(path, becomes):
    store = open_store(f"sqlite:///{path}")
    store.create(NewSession(id="a", at=1.0))
    path.parent.rename(path.parent.with_name("elsewhere"))
    if becomes == "another file":
        path.parent.mkdir()
        path.touch()
    with pytest.raises(StoreUnavailable, match="is no longer the file") as told:
        store.create(NewSession(id="b", at=2.0))
    assert str(path) in str(told.value)
    if becomes == "another file":
        path.unlink()
        path.parent.rmdir()
    path.parent.with_name("elsewhere").rename(path.parent)
    store.create(NewSession(id="b", at=3.0))
    assert [row.id for row in store.list()] == ["b", "a"]
    store.close()


def test_commits_are_synced_and_readers_are_not_held_up(path):
    store = filled(path)
    with store._database.writing():
        assert rows(store, "PRAGMA journal_mode") == [("wal",)]
        assert rows(store, "PRAGMA synchronous") == [(2,)]
        assert len(store.list()) == 2
    store.close()


def test_an_append_writes_few_pages(path):
    store = filled(path)
    # What every append writes stands in the order of its primary key, in one tree each.
    trees = "SELECT name FROM pragma_table_list WHERE name IN ('entries', 'unindexed') AND wr"
    assert sorted(rows(store, trees)) == [("entries",), ("unindexed",)]
    store.close()


def needles(count, seed):
    rng = random.Random(seed)
    return [f"needle-{n}-{rng.randbytes(12).hex()}" for n in range(count)]


def test_nothing_of_a_deleted_conversation_is_left_in_the_files(path):
    store = open_store(f"sqlite:///{path}")
    gone, stay = needles(300, 1), needles(300, 2)
    for name in ("gone", "stay"):
        store.create(NewSession(id=name, at=1.0, title=f"title of {name}"))
    for n in range(0, 300, 10):  # page by page, one with the other
        add(store, "gone", *gone[n : n + 10])
        add(store, "stay", *stay[n : n + 10])
    long = " ".join(needles(400, 3))
    add(store, "gone", long)
    store.put_result(StoredResult(id="r", session="gone", tool="t", text="needle-result", created=1.0))
    store.put_note("notes", "gone/1", b"needle-note")
    store.delete("gone")

    def everything():
        return b"".join(file.read_bytes() for file in path.parent.iterdir())

    left = everything()
    assert not [
        needle
        for needle in (*gone, "title of gone", "needle-result", "needle-note")
        if needle.encode() in left
    ]
    assert all(needle.encode() in left for needle in stay)
    raw, packed = pack(b'{"role":"user","content":"' + long.encode() + b'"}')
    assert packed
    assert not [start for start in range(0, len(raw) - 64, 64) if raw[start : start + 64] in left]
    store.close()
    assert not [needle for needle in gone if needle.encode() in everything()]


def test_what_a_reader_keeps_in_the_file_goes_later(path):
    store = open_store(f"sqlite:///{path}", wait_seconds=0.1)
    store.create(NewSession(id="gone", at=1.0))
    add(store, "gone", "needle-in-the-log")
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN; SELECT * FROM messages").fetchall()
    assert store.delete("gone") == 1
    wal = path.with_name("sessions.db-wal")
    assert b"needle-in-the-log" in wal.read_bytes()
    reader.execute("ROLLBACK")
    store.create(NewSession(id="next", at=2.0))
    store.delete("next")
    assert b"needle-in-the-log" not in wal.read_bytes() + path.read_bytes()
    reader.close()
    store.close()


def test_a_newer_schema_is_refused_and_not_touched(path):
    filled(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE penstock_schema SET version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew, match=r"schema version 99.*newer version"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_store_opens_while_somebody_writes(path):
    filled(path).close()
    writer = apsw.Connection(str(path))
    writer.execute("BEGIN IMMEDIATE")
    store = open_store(f"sqlite:///{path}", wait_seconds=0.1)
    assert len(store.list()) == 2
    with pytest.raises(StoreUnavailable, match="another process has locked it"):
        store.create(NewSession(id="x", at=1.0))
    writer.execute("ROLLBACK")
    store.create(NewSession(id="x", at=1.0))
    writer.close()
    store.close()


def test_what_is_no_store_is_said_to_be_none(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("dear diary, " * 100)
    with pytest.raises(StoreError, match="not a Penstock store"):
        open_store(f"sqlite:///{file}")
    assert file.read_text() == "dear diary, " * 100
    with pytest.raises(StoreUnavailable):
        open_store(f"sqlite:///{file}/inside.db")
    with pytest.raises(StoreUnavailable):
        open_store(f"sqlite:///{tmp_path}")


def test_the_database_of_another_program_is_told_as_such_and_not_touched(tmp_path):
    file = tmp_path / "places.sqlite"
    other = apsw.Connection(str(file))
    other.execute("CREATE TABLE moz_places (id INTEGER PRIMARY KEY, url TEXT)")
    other.close()
    before = file.read_bytes()
    with pytest.raises(
        StoreError, match=r"another program \(it has a table 'moz_places'\).*name another file"
    ):
        open_store(f"sqlite:///{file}")
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["places.sqlite"]


@pytest.mark.parametrize("url", ["", "sqlite:", "sqlite:///", "mysql://u:secret@h/d", "memory"])
def test_an_address_that_is_none_is_refused_without_being_repeated(url):
    with pytest.raises(SettingsError, match="sqlite:///FILE") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "address"),
    [("x.db", "sqlite:///x.db"), ("/tmp/a b.db", "sqlite:////tmp/a%20b.db")],
)
def test_who_gives_a_path_is_told_its_address(path, address):
    with pytest.raises(SettingsError, match=f"use {address}$"):
        open_store(path)


def test_an_address_may_hold_escapes(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/a%20b%3F.db")
    assert (tmp_path / "a b?.db").exists()
    store.close()


def test_damaged_pages_are_found(path):
    store = filled(path)
    add(store, "b", *(f"text {n}" for n in range(300)))
    run(store, "DROP INDEX entries_of_message")
    assert not store.faults()
    with store._database.writing() as do:
        do.run("PRAGMA writable_schema = ON")
        do.run("UPDATE sqlite_master SET rootpage = 3 WHERE name = 'usage_of_session'")
        do.run("PRAGMA writable_schema = OFF")
    store.close()
    again = open_store(f"sqlite:///{path}")
    assert any(fault.where == "database" for fault in again.faults())
    again.close()


def test_connections_are_used_again(path):
    store = filled(path)
    for _ in range(20):
        thread = threading.Thread(target=store.list)
        thread.start()
        thread.join()
    assert len(store._database._idle) == 1
    store.close()


def test_few_connections_are_kept_after_many_were_needed(path):
    store = filled(path)
    barrier = threading.Barrier(20)

    def hold():
        with store.database.reading() as do:
            barrier.wait(30)
            assert do.one("SELECT count(*) FROM conversations") == (2,)

    threads = [threading.Thread(target=hold) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store._database._idle) == 8
    store.close()


def test_a_transaction_inside_another_sees_the_same_memory():
    store = filled()
    with store.database.reading(), pytest.raises(StoreError, match="within a transaction"):
        store.list()
    assert len(store.list()) == 2
    store.close()


def test_a_writer_goes_on_as_soon_as_another_of_its_process_is_done(path):
    """SQLite sleeps and looks again, up to a tenth of a second at a time: whoever waits so is late each time."""
    store = open_store(f"sqlite:///{path}")
    assert any(_find_lateness(store.database) < 0.03 for _ in range(3))
    store.close()


def _find_lateness(database, held_seconds=0.37):
    """Seconds between the end of one transaction and the beginning of the next, which waited for it."""
    begun, ended, holds = [], [], threading.Event()

    def hold():
        with database.writing():
            holds.set()
            time.sleep(held_seconds)
            ended.append(time.perf_counter())

    holder = threading.Thread(target=hold)
    holder.start()
    assert holds.wait(10)
    with database.writing():
        begun.append(time.perf_counter())
    holder.join()
    return begun[0] - ended[0]
