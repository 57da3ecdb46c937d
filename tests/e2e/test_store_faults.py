"""What is done to stores out there: killed writers, full disks, locks, rights, restarts. Nothing acknowledged is lost.

PENSTOCK_KILLS=1000 runs the killing as often as that.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import stat
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path

import pytest
import store_writers
from store_writers import commit, new_messages

from penstock.errors import StoreUnavailable, UnknownSession
from penstock.stores.index import find_purge
from penstock.stores.store import open_store
from penstock.stores.values import NewSession

KILLS = int(os.environ.get("PENSTOCK_KILLS", "8"))
ON_ONE_STORE = 8  # runs before the next begins with an empty one: checking it costs what it holds
WRITERS = 4
TRIED = {"append", "search", "commit", "undo", "delete"}
SEED = int(os.environ.get("PENSTOCK_SEED", "1" if KILLS == 8 else str(time.time_ns())))
PROCESSES = multiprocessing.get_context("forkserver")


@pytest.fixture(scope="module", autouse=True)
def workers():
    """Processes begin to write at once: what they need is loaded where they are forked, or most die before they write.

    That process is not told where our modules are, and skips what it does not find.
    """
    PROCESSES.set_forkserver_preload(
        ["pytest", "penstock.stores.sqlite", "penstock.stores.postgres", "store_writers"]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]))
        forkserver.ensure_running()


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path}/folder/sessions.db"


def with_shared(url, *texts):
    store = open_store(url)
    store.create(NewSession(id="shared", at=1.0))
    if texts:
        store.append("shared", new_messages(*texts), "", 2.0)
    return store


def test_killed_writers_lose_nothing_that_was_acknowledged(tmp_path, postgres_url):
    rng = random.Random(SEED)
    acknowledged = Counter()
    for run in range(12 * KILLS):
        if run >= KILLS and acknowledged.keys() >= TRIED:  # on a busy machine a run may get little done
            break
        if run % ON_ONE_STORE == 0:
            folder = tmp_path / str(run)
            folder.mkdir()
            url = f"sqlite:///{folder}/sessions.db"
            with_shared(url).close()
        acknowledged += killed_run(url, folder, run, rng)
    for run in range(max(1, KILLS // 100)):
        if run == 0:
            with_shared(postgres_url).close()
        acknowledged += killed_run(postgres_url, tmp_path, run, rng)
    assert acknowledged.keys() >= TRIED, f"not all was tried (seed {SEED})"


def killed_run(url, folder, run, rng):
    """Four writers, killed at random moments; then everything that they were told must be true."""
    names = [f"{run}-{number}" for number in range(WRITERS)]
    reports = [folder / f"acknowledged {name}" for name in names]
    writers = [
        PROCESSES.Process(
            target=store_writers.write_until_killed, args=(url, name, rng.randrange(1 << 30), str(report))
        )
        for name, report in zip(names, reports, strict=True)
    ]
    for writer in writers:
        writer.start()
    until = time.monotonic() + 20
    while not any(report.exists() for report in reports) and time.monotonic() < until:
        time.sleep(0.005)
    for writer in rng.sample(writers, WRITERS):
        time.sleep(rng.random() * 0.06)
        assert writer.exitcode is None, f"a writer ended by itself (seed {SEED}, run {run})"
        os.kill(writer.pid, signal.SIGKILL)
    for writer in writers:
        writer.join()
        writer.close()
    return checked(url, reports, f"seed {SEED}, run {run}")


def checked(url, reports, where):
    store = open_store(url)
    try:
        assert not store.faults(), where
        ids, sessions, undone, kinds = {}, {}, {}, Counter()
        for report in reports:
            lines = report.read_text().splitlines() if report.exists() else []
            for session, kind, what in (line.split("\t") for line in lines):
                kinds[kind] += 1
                if kind == "delete":
                    with pytest.raises(UnknownSession):
                        store.session(what)
                    continue
                ids.setdefault(session, frozenset(store.ids(session)))
                rows = sessions.setdefault(session, {})
                if not rows:
                    rows.update({row.session: row for row in store.compactions(session, undone=True)})
                if kind == "append":
                    assert ids[session].issuperset(what.split()), where
                elif kind != "search" and what:
                    assert what in rows, where
                    undone.setdefault(session, set()).update({what} if kind == "undo" else ())
        store.index()  # what was killed on the way is indexed now, and once
        assert not store.faults(), where
        with store.database.reading() as do:
            assert find_purge(do) is None, where  # nothing that was deleted is left in the index
        for session, taken_back in undone.items():
            assert all(sessions[session][name].undone is not None for name in taken_back), where
        return kinds
    finally:
        store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_processes_compacting_one_conversation_have_one_result_for_each_view(kind, request):
    url = request.getfixturevalue("sqlite_url" if kind == "sqlite" else "postgres_url")
    store = with_shared(url, "one", "two")
    rounds, barrier = 200, PROCESSES.Barrier(2)
    pair = [
        PROCESSES.Process(target=store_writers.compete, args=(url, name, barrier, rounds)) for name in "xy"
    ]
    for process in pair:
        process.start()
    for process in pair:
        process.join(120)
    rows = store.compactions("shared", undone=True)
    assert sum(process.exitcode for process in pair) == len(rows) == rounds
    assert len({row.over for row in rows}) == rounds
    assert store.tip("shared").id == rows[-1].session
    assert not store.faults()
    store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_processes_that_append_at_once_make_one_log(kind, request):
    url = request.getfixturevalue("sqlite_url" if kind == "sqlite" else "postgres_url")
    store = with_shared(url)
    writers = [PROCESSES.Process(target=store_writers.race, args=(url, name, 25)) for name in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    raws = {entry.raw for entry in store.read_from("shared", 0)}
    assert raws == {one.raw for name in "abcd" for n in range(25) for one in new_messages(f"{name} {n}")}
    assert not store.faults()
    store.close()


def append_until_refused(store, most):
    """Append until it cannot be; how many were acknowledged, and what was said."""
    for number in range(most):
        try:
            store.append(
                "shared", new_messages(f"{number} {os.urandom(3_000).hex()}"), store.log_tip("shared").id, 3.0
            )
        except StoreUnavailable as error:
            return number, str(error)
    pytest.fail("the disk never was full")


def after_a_full_disk(store, count):
    assert store.log_tip("shared").length == count
    store.append("shared", new_messages("there is room again"), store.log_tip("shared").id, 4.0)
    commit(store, "shared", "next", 0)
    assert len(store.read_from("shared", 0)) == count + 1
    assert not store.faults()
    store.close()


def test_a_full_disk_is_told_and_loses_nothing(sqlite_url):
    store = with_shared(sqlite_url)
    with store._database._hold() as connection:
        connection.execute("PRAGMA max_page_count = 90")
    count, said = append_until_refused(store, 200)
    assert count > 3
    assert "the disk is full; free some space" in said
    with store._database._hold() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    after_a_full_disk(store, count)


def test_writes_that_the_system_refuses_are_told_and_lose_nothing(sqlite_url):
    """A limit on the size of files stands in for a disk with no room: the write of some pages fails half-way."""
    store = with_shared(sqlite_url)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, before[1]))
        count, said = append_until_refused(store, 500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert count > 3
    assert "disk" in said
    after_a_full_disk(store, count)


def test_a_file_that_may_only_be_read_is_told_and_works_again_after():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "sessions.db"
        with_shared(f"sqlite:///{file}", "one").close()
        for mode_of_folder in (0o777, 0o555):
            folder.chmod(mode_of_folder)
            file.chmod(0o444)
            said = as_reader(f"sqlite:///{file}")
            assert "permissions" in said, said
            folder.chmod(0o700)
            file.chmod(0o600)
            store = open_store(f"sqlite:///{file}")
            store.append("shared", new_messages("more"), store.log_tip("shared").id, 3.0)
            assert not store.faults()
            store.close()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def as_reader(url):
    ours, theirs = PROCESSES.Pipe(duplex=False)
    reader = PROCESSES.Process(target=store_writers.read_only, args=(url, theirs))
    reader.start()
    theirs.close()
    said = ours.recv() if ours.poll(20) else "nothing"
    reader.join(20)
    ours.close()
    return said


@pytest.mark.alone
def test_a_database_that_somebody_holds_is_told_and_works_again_after(sqlite_url):
    store = with_shared(sqlite_url, "one")
    store.close()
    path = sqlite_url.removeprefix("sqlite:///")
    held, release = PROCESSES.Event(), PROCESSES.Event()
    holder = PROCESSES.Process(target=store_writers.hold_exclusively, args=(path, held, release))
    holder.start()
    assert held.wait(20)
    store = open_store(sqlite_url, wait_seconds=0.2)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="another process has locked it"):
        store.append("shared", new_messages("more"), store.log_tip("shared").id, 3.0)
    assert 0.15 < time.monotonic() - began < 5
    release.set()
    holder.join(20)
    store.append("shared", new_messages("more"), store.log_tip("shared").id, 3.0)
    assert len(store.read_from("shared", 0)) == 2
    store.close()


def stop_server(server):
    server.stop()
    time.sleep(0.3)


def crash_server(server):
    """Kills all of its processes at once, as a machine out of memory may do: nothing is written out or closed."""
    import psutil  # comes with the server's package

    postmaster = server.get_postmaster_info().process
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs(processes, timeout=20)


@pytest.mark.parametrize("end_server", [stop_server, crash_server])
def test_a_postgresql_that_ends_and_starts_loses_nothing_and_is_used_again(
    postgres_server, postgres_url, end_server
):
    store = open_store(postgres_url, wait_seconds=2)
    store.create(NewSession(id="shared", at=1.0))
    stop, failures, acknowledged = threading.Event(), [], []

    def write():
        after, number = "", 0
        while not stop.is_set():
            new = new_messages(f"message {number}")
            try:
                # The same again after a failure: whether the lost answer was a yes or a no, it is there once.
                after = store.append("shared", new, after, 2.0).ids[-1]
            except StoreUnavailable as error:
                failures.append(str(error))
                continue
            acknowledged.append(after)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            wait_for_more(acknowledged)
            end_server(postgres_server)
            postgres_server.start()
        wait_for_more(acknowledged)
    finally:
        stop.set()
        writer.join()
    # None where the server was back in time: a transaction that had not begun waits for it.
    assert all("try again" in said for said in failures)
    assert list(store.ids("shared")) == acknowledged
    assert not store.faults()
    store.close()


def wait_for_more(acknowledged):
    enough, until = len(acknowledged) + 20, time.monotonic() + 30
    while len(acknowledged) < enough:
        assert time.monotonic() < until, "it does not work again"
        time.sleep(0.01)


def test_a_postgresql_that_is_away_is_told_and_idle_connections_are_replaced_unseen(
    postgres_server, postgres_url
):
    store = open_store(postgres_url, wait_seconds=1)
    store.create(NewSession(id="shared", at=1.0))
    store.append("shared", new_messages("one"), "", 2.0)
    postgres_server.stop()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="try again"):
            store.log_tip("shared")
    postgres_server.start()
    assert store.log_tip("shared").length == 1
    store.append("shared", new_messages("two"), store.log_tip("shared").id, 3.0)
    store.close()


def test_a_damaged_file_is_told(sqlite_url, tmp_path):
    store = with_shared(sqlite_url, *(f"text {n}" for n in range(200)))
    with store.database.reading() as do:
        pages = [row[0] for row in do.rows("SELECT pageno FROM dbstat WHERE name = 'messages' ORDER BY 1")]
    store.close()
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    data = bytearray(path.read_bytes())
    for page in pages[1:]:
        start = 4_096 * (page - 1)
        data[start : start + 64] = os.urandom(64)
    path.write_bytes(data)
    store = open_store(sqlite_url)
    assert any(fault.where == "database" and not fault.mendable for fault in store.faults())
    store.close()
