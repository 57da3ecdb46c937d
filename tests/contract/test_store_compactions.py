"""What every store does with compactions, pins, deletion and damage."""

from __future__ import annotations

import threading

import pytest
from store_talk import append, compact, message, messages, started

from penstock.conversation.message import Summary, Text
from penstock.conversation.view import Compaction, Handoff, Kept, Rewritten
from penstock.errors import StoreConflict, StoreError, UnknownSession
from penstock.measure.usage import Usage
from penstock.stores.rows import find_session
from penstock.stores.values import SUBAGENT, NewCompaction, NewSession, StoredResult, UsageRow


def test_a_compaction_ends_its_session_and_opens_the_continuation(store):
    started(store, "a", 1.0, model="m")
    tip = append(store, "a", "one", "two", "three").tip
    pieces = (
        Handoff(Summary("said", 1, {"next": "m4"}), (0,), None),
        Rewritten(1, {0: Text("shorter"), 2: Text("🧭")}),
        Kept(2),
    )
    compaction = Compaction(tip.id, 3, pieces)
    new = NewCompaction(
        compaction=compaction,
        over=0,
        receipt={"tokens": {"before": 9, "after": 3}, "notes": ["ü"]},
        session=NewSession(id="a2", at=10.0, model="m2", title="Goes on"),
    )
    row = store.commit("a", new)
    assert row.compaction == compaction
    assert row.receipt == new.receipt
    assert (row.over, row.created, row.session, row.undone) == (0, 10.0, "a2", None)
    assert store.newest_compaction("a") == row == store.newest_compaction("a2")
    assert list(store.compactions("a")) == [row]
    assert (store.session("a").ended, store.session("a").end_reason) == (10.0, "compression")
    child = store.session("a2")
    assert (child.parent, child.kind, child.conversation) == ("a", "compression", "a")
    assert (child.model, child.title, child.started) == ("m2", "Goes on", 10.0)
    assert len(store.read_from("a2", 0)) == 3


def test_the_second_of_two_compactions_of_one_view_is_refused(store):
    started(store, "a")
    append(store, "a", "one", "two")
    first = compact(store, "a", "a2", over=0)
    with pytest.raises(StoreConflict, match="meanwhile"):
        compact(store, "a", "a3", over=0)
    with pytest.raises(UnknownSession):
        store.session("a3")
    second = compact(store, "a2", "a4", over=first.key)
    assert second.over == first.key
    assert [row.key for row in store.compactions("a")] == [first.key, second.key]


def test_who_writes_in_the_last_session_and_who_compacts_by_the_first_do_not_block_each_other(store):
    """One holds the last session and will want the conversation; the other holds the conversation and ends that session."""
    started(store, "a")
    append(store, "a", "one", "two")
    compact(store, "a", "a2")
    append(store, "a2", "three")
    compactor = threading.Thread(target=compact, args=(store, "a", "a3"))
    with store.database.writing() as do:
        _, _, conversation = find_session(do, "a2", store.database.words.hold_session)
        compactor.start()
        compactor.join(0.5)  # PostgreSQL looks for a deadlock after a second
        do.run("UPDATE conversations SET updated = 3.0 WHERE key = ?", conversation)
    compactor.join(10)
    assert [row.session for row in store.compactions("a")] == ["a2", "a3"]


def test_messages_that_arrive_meanwhile_stay_after_the_base(store):
    started(store, "a")
    tip = append(store, "a", "one", "two").tip
    append(store, "a", "three")
    new = NewCompaction(
        compaction=Compaction(tip.id, 2, (Kept(0),)),
        over=0,
        receipt={},
        session=NewSession(id="a2", at=5.0),
    )
    assert store.commit("a", new).compaction.length == 2
    assert store.log_tip("a2").length == 3


def test_a_base_that_is_not_in_the_log_is_refused(store):
    started(store, "a")
    append(store, "a", "one")
    for base, length in (("ab" * 16, 1), (store.log_tip("a").id, 2)):
        new = NewCompaction(
            compaction=Compaction(base, length, ()),
            over=0,
            receipt={},
            session=NewSession(id="a2", at=5.0),
        )
        with pytest.raises(StoreError):
            store.commit("a", new)
    assert store.tip("a").id == "a"
    assert list(store.compactions("a", undone=True)) == []


def test_a_compaction_that_names_what_it_cannot_know_is_refused(store):
    started(store, "a")
    append(store, "a", "one")
    with pytest.raises(StoreError, match="beyond"):
        compact(store, "a", "a2", kept=(1,))
    assert store.newest_compaction("a") is None
    assert store.tip("a").id == "a"


def test_a_commit_that_is_retried_is_done_once(store):
    started(store, "a")
    append(store, "a", "one")
    first = compact(store, "a", "a2", over=0, key="try-1")
    assert compact(store, "a", "a2", over=0, key="try-1") == first
    assert compact(store, "a2", "a9", over=0, key="try-1") == first
    assert len(store.compactions("a", undone=True)) == 1
    started(store, "b")
    append(store, "b", "one")
    assert compact(store, "b", "b2", over=0, key="try-1").key != first.key


def test_undoing_goes_back_to_the_view_before(store):
    started(store, "a")
    append(store, "a", "one", "two")
    first = compact(store, "a", "a2", at=10.0)
    second = compact(store, "a2", "a3", at=11.0)
    taken = store.undo("a", 20.0)
    assert (taken.key, taken.undone) == (second.key, 20.0)
    assert store.newest_compaction("a") == first
    third = compact(store, "a3", "a4", at=21.0)
    assert third.over == first.key
    assert [row.key for row in store.compactions("a")] == [first.key, third.key]
    assert [row.key for row in store.compactions("a", undone=True)] == [first.key, second.key, third.key]
    assert store.undo("a", 30.0).key == third.key
    assert store.undo("a", 31.0).key == first.key
    assert store.undo("a", 32.0) is None
    assert store.newest_compaction("a") is None
    assert store.tip("a").id == "a4"
    assert compact(store, "a4", "a5", at=40.0).over == 0
    assert not store.faults()


def test_a_compaction_that_a_damaged_store_lacks_is_told_and_not_taken_for_none(store):
    """Otherwise the whole log would be sent, and nobody would know why."""
    started(store, "a")
    append(store, "a", "one", "two")
    compact(store, "a", "a2", over=0)
    with store.database.writing() as do:
        do.run("DELETE FROM facts")
        do.run("DELETE FROM compactions")
    for read in (lambda: store.newest_compaction("a"), lambda: store.undo("a", 9.0)):
        with pytest.raises(StoreError, match="penstock doctor"):
            read()


def test_undone_means_late_for_those_who_compact_on_top(store):
    started(store, "a")
    append(store, "a", "one")
    first = compact(store, "a", "a2")
    store.undo("a", 20.0)
    with pytest.raises(StoreConflict):
        compact(store, "a", "a3", over=first.key)


def test_pins_belong_to_the_conversation(store):
    started(store, "a")
    append(store, "a", "one", "two", "three")
    store.pin("a", 2)
    store.pin("a", 0)
    store.pin("a", 2)
    compact(store, "a", "a2")
    assert store.pins("a2") == {0, 2}
    store.pin("a2", 0, pinned=False)
    store.pin("a2", 1, pinned=False)
    assert store.pins("a") == {2}
    for position in (3, -1):
        with pytest.raises(StoreError, match=f"m{position + 1}"):
            store.pin("a", position)


def test_compactors_at_once_have_one_result_for_each_view(store):
    started(store, "a")
    append(store, "a", "one", "two")
    rounds, won, late = 12, [], []
    barrier = threading.Barrier(3)

    def compete(name):
        for number in range(rounds):
            barrier.wait(30)
            newest = store.newest_compaction("a")
            over = newest.key if newest else 0
            barrier.wait(30)
            try:
                won.append(compact(store, "a", f"{name}{number}", over=over).over)
            except StoreConflict:
                late.append(name)

    threads = [threading.Thread(target=compete, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == len(set(won)) == rounds
    assert len(late) == 2 * rounds
    assert len(store.compactions("a")) == rounds
    assert not store.faults()


def test_deleting_takes_all_of_a_conversation(store):
    started(store, "a")
    gone = append(store, "a", "one", "two").ids
    compact(store, "a", "a2")
    store.pin("a2", 0)
    store.put_result(StoredResult(id="r", session="a2", tool="t", text="x", created=1.0))
    store.book(UsageRow(session="a", at=1.0, model="m", task="t", usage=Usage(1)))
    for key in ("a", "a2/part 1", gone[0], f"{gone[1]}/more", "a22", "other"):
        store.put_note("notes", key, b"x")
    started(store, "b")
    append(store, "b", "kept")
    assert store.delete("a2") == 2
    assert [row.id for row in store.list()] == ["b"]
    assert store.result("r") is None
    assert list(store.usage()) == []
    assert store.find_known_prefix(gone) is None
    left = [
        key
        for key in ("a", "a2/part 1", gone[0], f"{gone[1]}/more", "a22", "other")
        if store.note("notes", key)
    ]
    assert left == ["a22", "other"]
    for name in ("a", "a2"):
        with pytest.raises(UnknownSession):
            store.delete(name)
    assert not store.faults()
    started(store, "a")
    assert store.log_tip("a").length == 0


def test_deleting_leaves_what_another_log_holds(store):
    started(store, "a")
    started(store, "b")
    append(store, "a", "same", "only here")
    append(store, "b", "same", "other")
    assert store.delete("a") == 1
    assert [entry.raw for entry in store.read_from("b", 0)] == [one.raw for one in messages("same", "other")]
    assert store.delete("b") == 2
    assert not store.faults()


def test_branches_keep_what_they_share_with_what_is_deleted(store):
    started(store, "a")
    append(store, "a", *(f"a{n}" for n in range(6)))
    store.branch("a", 4, NewSession(id="b", at=3.0))
    append(store, "b", "b4", "b5")
    store.branch("b", 5, NewSession(id="c", at=4.0))
    append(store, "c", "c5")
    store.branch("b", 2, NewSession(id="d", at=5.0))
    store.branch("a", 6, NewSession(id="e", at=6.0))
    append(store, "e", "e6")
    before = {name: [entry.raw for entry in store.read_from(name, 0)] for name in "bcde"}
    ids = {name: list(store.ids(name)) for name in "bcde"}
    compact(store, "c", "c2", kept=(0, 5))

    def unchanged(names):
        for name in names:
            assert [entry.raw for entry in store.read_from(name, 0)] == before[name]
            assert list(store.ids(name)) == ids[name]
        assert not store.faults()

    assert store.delete("a") == 0
    unchanged("bcde")
    assert store.session("b").parent == ""
    assert store.delete("b") == 1  # b5: the others hold the rest
    unchanged("cde")
    append(store, "d", "d2")
    assert store.delete("e") == 3  # a4, a5, e6
    unchanged("c")
    assert store.delete("c") == 4  # all but a0, a1
    assert len(store.read_from("d", 0)) == 3
    assert store.delete("d") == 3
    assert list(store.list()) == []
    assert not store.faults()


def test_sub_agents_go_with_the_conversation_that_they_worked_for(store):
    started(store, "a")
    append(store, "a", "one")
    store.branch("a", 0, NewSession(id="helper", at=2.0, kind=SUBAGENT))
    append(store, "helper", "secret work")
    store.branch("helper", 0, NewSession(id="helper of helper", at=3.0, kind=SUBAGENT))
    append(store, "helper of helper", "more")
    store.branch("a", 1, NewSession(id="branch", at=3.0))
    assert store.delete("a") == 2
    for name in ("helper", "helper of helper"):
        with pytest.raises(UnknownSession):
            store.session(name)
    assert [entry.raw for entry in store.read_from("branch", 0)] == [message("one").raw]
    assert not store.faults()


def test_deleting_while_others_write_leaves_nothing_behind(store):
    started(store, "kept")
    stopped = threading.Event()
    failures = []

    def write(name):
        number = 0
        while not stopped.is_set():
            number += 1
            try:
                append(store, "shared", f"same {number}")
                store.put_result(
                    StoredResult(id=f"{name}{number}", session="shared", tool="", text="x", created=1.0)
                )
                append(store, "kept", f"same {number}")
            except (UnknownSession, StoreConflict):
                pass
            except StoreError as error:
                failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    try:
        for _ in range(15):
            started(store, "shared")
            store.delete("shared")
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert not store.faults()
    assert [row.id for row in store.list()] == ["kept"]
