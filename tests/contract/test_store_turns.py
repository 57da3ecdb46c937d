"""Turns: one process at a time has one, what comes meanwhile waits for it, and a delivery is known when it comes again."""

from __future__ import annotations

import threading
import time

import pytest
from store_talk import SHARED, append, compact, message, messages, started

from penstock.errors import StoreConflict, UnknownSession
from penstock.sessions.handovers import HandoverOrigin, keep_origin
from penstock.stores.shelf import open_shelf
from penstock.stores.values import Delivery


@pytest.fixture
def talk(store):
    started(store, "talk")
    append(store, "talk", "hello", "hi")
    return store


def deliver(store, text, name="k1", digest=b"d", **more):
    tip = store.log_tip("talk")
    return store.deliver("talk", [message(text)], tip.id, 5.0, delivery=Delivery(name, digest), **more)


def test_a_turn_has_one_holder_until_it_ends_or_runs_out(talk):
    assert talk.claim_turn("talk", "a", 10.0, 18.0)
    assert not talk.claim_turn("talk", "b", 17.9, 26.0)
    assert talk.claim_turn("talk", "a", 12.0, 20.0)  # renewed
    assert talk.find_turn("talk", 19.0) == "a"
    assert not talk.claim_turn("talk", "b", 19.9, 28.0)
    assert talk.find_turn("talk", 20.5) == ""
    assert talk.claim_turn("talk", "b", 20.5, 28.0)
    assert talk.close_turn("talk", "a", 21.0)  # too late: it changes nothing
    assert talk.find_turn("talk", 21.0) == "b"
    assert talk.close_turn("talk", "b", 21.0)
    assert talk.find_turn("talk", 21.0) == ""
    assert talk.claim_turn("talk", "a", 21.0, 29.0)


def test_a_turn_is_opened_and_closed_with_all_that_a_host_has_to_know(talk):
    deliver(talk, "the port is 5433", name="k0")
    opened = talk.open_turn("talk", "a", 10.0, 18.0, "k0")
    assert (opened.row, opened.standing) == (talk.tip("talk"), talk.standing("talk"))
    assert opened.delivery == Delivery("k0", b"d", 2, None)
    assert not opened.has_queued
    assert talk.open_turn("talk", "b", 11.0, 19.0) is None
    talk.queue_message("talk", b"wait", 12.0)
    settled = Delivery("k0", b"d", 2, b"done")
    assert talk.close_turn("talk", "a", 12.0, settled) is None  # something waits
    assert talk.delivery("talk", "k0").answer is None
    assert talk.open_turn("talk", "a", 12.0, 19.0).has_queued
    talk.deliver(
        "talk",
        [message("wait")],
        talk.log_tip("talk").id,
        13.0,
        queued_upto=talk.queued_messages("talk")[0].key,
    )
    assert talk.close_turn("talk", "a", 13.0, settled) == talk.standing("talk")
    assert talk.delivery("talk", "k0") == settled
    compact(talk, "talk", "talk-2")
    assert talk.open_turn("talk", "b", 14.0, 19.0).row.id == "talk-2"


def test_of_many_who_claim_at_once_one_gets_the_turn(talk):
    ready, won = threading.Barrier(6), []

    def claim(name):
        ready.wait()
        if talk.claim_turn("talk", name, 10.0, 18.0):
            won.append(name)

    threads = [threading.Thread(target=claim, args=(str(number),)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert talk.find_turn("talk", 11.0) == won[0]


def test_a_message_waits_for_the_turn_that_is_under_way_and_no_other(talk):
    assert not talk.queue_message("talk", b"early", 10.0)
    assert talk.claim_turn("talk", "a", 10.0, 18.0)
    assert talk.queue_message("talk", b"one", 11.0)
    assert talk.queue_message("talk", b"two", 12.0, Delivery("k2", b"d"))
    assert not talk.queue_message("talk", b"late", 18.5)
    waiting = talk.queued_messages("talk")
    assert [one.raw for one in waiting] == [b"one", b"two"]
    assert talk.close_turn("talk", "a", 13.0) is None  # something waits
    tip = talk.log_tip("talk")
    talk.deliver("talk", [message("one")], tip.id, 13.0, queued_upto=waiting[0].key)
    assert [one.raw for one in talk.queued_messages("talk")] == [b"two"]
    with pytest.raises(StoreConflict):  # the log goes on elsewhere: then nothing is taken
        talk.deliver("talk", [message("two")], tip.id, 13.0, queued_upto=waiting[1].key)
    assert [one.raw for one in talk.queued_messages("talk")] == [b"two"]
    talk.deliver("talk", [message("two")], talk.log_tip("talk").id, 13.0, queued_upto=waiting[1].key)
    assert talk.close_turn("talk", "a", 13.0)
    assert talk.delivery("talk", "k2") == Delivery("k2", b"d", -1, None)


def test_a_delivery_is_noted_with_its_message_or_not_at_all(talk):
    assert talk.delivery("talk", "k1") is None
    before = talk.log_tip("talk")
    deliver(talk, "the port is 5433")
    assert talk.delivery("talk", "k1") == Delivery("k1", b"d", 2, None)
    with pytest.raises(StoreConflict):  # the same name again
        deliver(talk, "the port is 5433")
    with pytest.raises(StoreConflict):  # another delivery of the same words, made before the first was known
        talk.deliver("talk", [message("the port is 5433")], before.id, 5.0, delivery=Delivery("k9", b"d"))
    assert talk.log_tip("talk").length == 3
    assert talk.delivery("talk", "k9") is None
    talk.settle_delivery("talk", Delivery("k1", b"d", 2, b"done"), 6.0)
    assert talk.delivery("talk", "k1") == Delivery("k1", b"d", 2, b"done")
    talk.settle_delivery("talk", Delivery("k3", b"e", -1, b"searched"), 6.0)
    assert talk.delivery("talk", "k3") == Delivery("k3", b"e", -1, b"searched")


def test_old_deliveries_are_forgotten_and_all_go_with_the_conversation(talk):
    deliver(talk, "one")
    tip = talk.log_tip("talk")
    talk.deliver("talk", [message("two")], tip.id, 5.0 + 90_000, delivery=Delivery("k2", b"d"))
    assert talk.delivery("talk", "k1") is None
    talk.claim_turn("talk", "a", 10.0, 18.0)
    talk.queue_message("talk", b"x", 11.0)
    talk.delete("talk")
    with talk.database.reading() as do:
        for table in ("turns", "queued", "deliveries"):
            assert do.rows(f"SELECT * FROM {table}") == []
    assert not talk.faults()


def test_an_owner_cannot_touch_the_turns_of_another(talk):
    other = talk.for_owner("other")
    for call in (
        lambda: other.claim_turn("talk", "x", 1.0, 2.0),
        lambda: other.open_turn("talk", "x", 1.0, 2.0),
        lambda: other.close_turn("talk", "x", 1.0),
        lambda: other.find_turn("talk", 1.0),
        lambda: other.queue_message("talk", b"", 1.0),
        lambda: other.queued_messages("talk"),
        lambda: other.delivery("talk", "k1"),
        lambda: other.settle_delivery("talk", Delivery("k1", b""), 1.0),
        lambda: other.standing("talk"),
    ):
        with pytest.raises(UnknownSession):
            call()


def test_a_standing_changes_with_the_log_and_with_the_view(talk):
    before = talk.standing("talk")
    assert talk.standing("talk") == before
    append(talk, "talk", "more")
    after = talk.standing("talk")
    assert after != before
    compact(talk, "talk", "talk-2")
    assert talk.standing("talk").tip == after.tip
    assert talk.standing("talk").view != after.view
    talk.undo("talk", 9.0)
    assert talk.standing("talk") == after


def test_a_note_is_changed_in_one_step(store):
    assert store.change_note("n", "k", lambda kept: kept + b"a") == b"a"
    with pytest.raises(ZeroDivisionError):
        store.change_note("n", "k", lambda kept: kept + bytes(1 // 0))
    assert store.note("n", "k") == b"a"

    def add(letter):
        for _ in range(10):
            store.change_note("n", "k", lambda kept: kept + letter)

    threads = [threading.Thread(target=add, args=(letter,)) for letter in (b"x", b"y", b"z")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(store.note("n", "k")) == sorted(b"a" + b"x" * 10 + b"y" * 10 + b"z" * 10)


def test_a_page_of_the_list_begins_behind_the_last_one_seen(store):
    for number in range(7):
        started(store, f"c{number}", at=float(number // 2))  # some share their moment
    seen, after = [], None
    while page := store.list(limit=2, after=after):
        seen += [row.id for row in page]
        after = (page[-1].updated, page[-1].id)
    assert seen == [row.id for row in store.list(limit=50)]
    assert len(seen) == 7


def test_nothing_that_is_noted_of_a_conversation_while_it_is_deleted_stays_behind(talk):
    shelf = open_shelf(talk, "talk")
    assert shelf.get("node") is None
    talk.delete("talk")
    shelf.put("node", b"made of it")
    keep_origin(talk, "talk", HandoverOrigin("another", 2, 1))
    with talk.database.reading() as do:
        assert do.rows("SELECT * FROM notes") == []


def test_a_note_on_a_session_is_kept_only_while_that_is_there(talk):
    talk.put_note("n", "talk", b"1", session_id="talk")
    assert talk.note("n", "talk") == b"1"
    talk.put_note("n", "talk", b"2", session_id="talk")
    assert talk.change_note("n", "talk", lambda kept: kept + b"+", session_id="talk") == b"2+"
    talk.delete("talk")
    talk.put_note("n", "talk", b"3", session_id="talk")
    assert talk.note("n", "talk") is None
    with pytest.raises(UnknownSession):
        talk.change_note("n", "talk", lambda _: b"4", session_id="talk")
    assert talk.note("n", "talk") is None


@SHARED
def test_what_is_delivered_is_indexed_beside_as_what_is_appended_is(talk):
    """Nobody has to search, or to append, before it is."""
    for number in range(4):
        tip = talk.log_tip("talk").id
        given = messages(*(f"the berth {number} {place} is free" for place in range(60)))
        talk.deliver("talk", given, tip, 5.0, delivery=Delivery(f"k{number}", b"d"))
    until = time.monotonic() + 20
    while talk.count_unindexed() and time.monotonic() < until:
        time.sleep(0.01)
    assert talk.count_unindexed() == 0
