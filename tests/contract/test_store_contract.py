"""What every store does with sessions and logs: in memory, in a SQLite file, in a real PostgreSQL."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from store_talk import SHARED, append, compact, message, messages, raw_message, started

from penstock.conversation.identity import chain
from penstock.errors import StoreConflict, StoreError, UnknownSession
from penstock.measure.usage import Usage
from penstock.stores.conversations import find_longest_known
from penstock.stores.store import open_store
from penstock.stores.values import BRANCH, SUBAGENT, LogTip, NewSession, StoredResult, UsageRow

ODD_TEXTS = [
    "",
    "naïve café",
    "日本語のテキスト",
    "🧭" * 50,
    "NUL \0 inside",
    "lone \ud800 surrogate",
    "%s ? %% '?' \"?\"",
]


def raws(store, session_id):
    return [entry.raw for entry in store.read_from(session_id, 0)]


def test_a_new_conversation_has_one_session_and_an_empty_log(store):
    row = started(store, "s1", 5.25, dialect="anthropic", model="claude", title="First")
    assert row == store.session("s1") == store.tip("s1")
    assert (row.id, row.conversation, row.parent, row.kind) == ("s1", "s1", "", "main")
    assert (row.started, row.ended, row.end_reason) == (5.25, None, "")
    assert (row.dialect, row.model, row.title) == ("anthropic", "claude", "First")
    assert store.log_tip("s1") == LogTip("", 0)
    assert list(store.ids("s1")) == list(store.read_from("s1", 0)) == list(store.list_children("s1")) == []


def test_an_id_is_given_once(store):
    started(store, "s1")
    with pytest.raises(StoreError, match="s1"):
        started(store, "s1")
    assert len(store.list()) == 1


def test_appended_messages_come_back_byte_for_byte_with_chained_ids(store):
    started(store)
    new = [*messages("one", "two"), raw_message(b'{ "content":"three",  "role":"user" }')]
    done = store.append("s", new, "", 3.5)
    first = chain("", new[0].digest)
    second = chain(first, new[1].digest)
    assert done.ids == (first, second, chain(second, new[2].digest))
    assert done.tip == store.log_tip("s") == LogTip(done.ids[-1], 3)
    assert not done.again
    entries = store.read_from("s", 0)
    assert [entry.raw for entry in entries] == [one.raw for one in new]
    assert [entry.id for entry in entries] == list(done.ids) == list(store.ids("s"))
    assert [entry.position for entry in entries] == [0, 1, 2]
    assert [entry.role for entry in entries] == ["user", "assistant", "user"]
    assert [entry.tokens for entry in entries] == [one.tokens for one in new]
    assert {entry.created for entry in entries} == {3.5}


def test_the_same_append_again_changes_nothing(store):
    started(store)
    new = messages("one", "two")
    first = store.append("s", new, "", 2.0)
    again = store.append("s", new, "", 3.0)
    assert again.again
    assert again.ids == first.ids
    append(store, "s", "three")
    late = store.append("s", new, "", 4.0)
    assert late.again
    assert late.tip.length == 3


def test_an_append_after_another_message_is_refused_and_changes_nothing(store):
    started(store)
    done = append(store, "s", "one", "two")
    for after in ("", done.ids[0], "00" * 16):
        with pytest.raises(StoreConflict):
            store.append("s", [message("other")], after, 3.0)
    # What is partly there already is no retry.
    with pytest.raises(StoreConflict):
        store.append("s", [*messages("one", "two"), message("three")], "", 3.0)
    assert list(store.ids("s")) == list(done.ids)


def test_appending_nothing_is_allowed_at_the_end(store):
    started(store)
    done = append(store, "s", "one")
    assert store.append("s", [], done.ids[-1], 3.0).tip == done.tip


def test_messages_are_read_by_their_positions(store):
    started(store)
    append(store, "s", *(f"text {n}" for n in range(1_200)))
    assert [entry.position for entry in store.read("s", [7, 3, 1_199, 5_000, 3, -1])] == [7, 3, 1_199, 3]
    assert [entry.position for entry in store.read("s", range(1_200))] == list(range(1_200))
    assert [entry.position for entry in store.read_from("s", 1_195)] == list(range(1_195, 1_200))
    assert [entry.position for entry in store.read_from("s", 10, 3)] == [10, 11, 12]
    assert list(store.read_from("s", 1_200)) == list(store.read_from("s", 0, 0)) == []


def test_conversations_that_begin_alike_share_ids_and_differ_in_nothing_else(store):
    started(store, "a")
    started(store, "b")
    same = append(store, "a", "one", "two", at=5.0).ids
    other = store.append(
        "b", [raw_message(b'{"content": "one", "role": "user"}'), *messages("one", "two")[1:]], "", 6.0
    )
    assert same == other.ids
    assert raws(store, "b")[0] == b'{"content": "one", "role": "user"}'
    assert raws(store, "a")[0] == message("one").raw
    assert [entry.created for entry in store.read_from("b", 0)] == [6.0, 6.0]
    assert not store.faults()


def test_a_conversation_is_known_by_the_ids_of_its_beginning(store):
    started(store, "a")
    started(store, "b", 2.0)
    long = append(store, "a", "one", "two", "three").ids
    short = append(store, "b", "one", "two").ids
    assert store.find_known_prefix(long) == ("a", 3)
    assert store.find_known_prefix([*long, "ab" * 16]) == ("a", 3)
    assert store.find_known_prefix(short) == ("b", 2)
    assert store.find_known_prefix(["cd" * 16]) is None
    assert store.find_known_prefix([]) is None
    compact(store, "a", "a2")
    assert store.find_known_prefix(long) == ("a2", 3)


@pytest.mark.parametrize("known", [0, 1, 2, 150, 585, 599, 600])
def test_the_end_of_what_is_known_is_found_in_few_statements(store, known):
    """Each is a round trip, and most clients send all that is known, and a little more."""
    started(store, "a")
    ids = append(store, "a", *(f"message {number}" for number in range(known))).ids if known else []
    asked = [*ids, *(f"{number:032x}" for number in range(600 - known))]
    statements = []
    with store.database.reading() as do:
        counted = SimpleNamespace(owner=None, rows=lambda *given: statements.append(given) or do.rows(*given))
        assert find_longest_known(counted, asked) == (("a", known) if known else None)
    assert len(statements) <= (1 if known == 0 or known > 584 else 3)


def test_a_branch_shares_the_beginning_and_goes_its_own_way(store):
    started(store, "a")
    ids = append(store, "a", "one", "two", "three").ids
    branch = store.branch("a", 2, NewSession(id="b", at=3.0, title="Another way"))
    assert (branch.parent, branch.kind, branch.conversation) == ("a", BRANCH, "b")
    assert store.log_tip("b") == LogTip(ids[1], 2)
    append(store, "b", "other")
    append(store, "a", "four")
    assert raws(store, "b") == [one.raw for one in messages("one", "two", "other")]
    assert [entry.position for entry in store.read("b", [2, 0])] == [2, 0]
    twig = store.branch("b", 1, NewSession(id="c", at=4.0))
    append(store, "c", "twig")
    assert raws(store, "c") == [message("one").raw, message("twig").raw]
    assert list(store.ids("c"))[:1] == [ids[0]]
    assert [row.id for row in store.list_children("a")] == ["b"]
    assert twig.parent == "b"
    assert len(store.read_from("a", 0)) == 4
    assert not store.faults()


def test_a_branch_begins_inside_its_log(store):
    started(store, "a")
    append(store, "a", "one")
    with pytest.raises(StoreError, match="2 messages"):
        store.branch("a", 2, NewSession(id="b", at=3.0))
    with pytest.raises(StoreError):
        store.branch("a", -1, NewSession(id="b", at=3.0))
    assert store.branch("a", 0, NewSession(id="b", at=3.0)).parent == "a"
    assert store.log_tip("b") == LogTip("", 0)


def test_the_tip_follows_compression_children_only(store):
    started(store, "a")
    append(store, "a", "one", "two")
    store.branch("a", 1, NewSession(id="branch", at=20.0, kind=BRANCH))
    store.branch("a", 0, NewSession(id="helper", at=21.0, kind=SUBAGENT))
    assert store.tip("a").id == "a"
    compact(store, "a", "a2", at=30.0)
    compact(store, "a2", "a3", at=31.0)
    assert [store.tip(name).id for name in ("a", "a2", "a3")] == ["a3"] * 3
    assert store.tip("branch").id == "branch"
    assert store.tip("helper").id == "helper"
    assert [(row.id, row.kind) for row in store.list_children("a")] == [
        ("branch", "branch"),
        ("helper", "subagent"),
        ("a2", "compression"),
    ]
    assert store.log_tip("a") == store.log_tip("a3")


def test_a_conversation_that_ended_and_was_resumed_goes_on_in_one_line(store):
    started(store, "a")
    append(store, "a", "one")
    store.end("a", "closed", 100.0)
    compact(store, "a", "a2", at=50.0)  # a clock that went back
    compact(store, "a", "a3", at=60.0)  # by somebody who knows the first session only
    assert store.tip("a").id == store.tip("a2").id == "a3"
    assert store.session("a").end_reason == store.session("a2").end_reason == "compression"
    assert store.session("a3").ended is None
    assert not store.faults()


def test_a_list_has_one_row_for_each_conversation_and_none_for_sub_agents(store):
    started(store, "a", 1.0, title="Old title")
    append(store, "a", "one", "two", at=2.0)
    started(store, "b", 3.0)
    store.branch("a", 0, NewSession(id="helper", at=4.0, kind=SUBAGENT))
    compact(store, "a", "a2", at=10.0)
    rows = store.list()
    assert [(row.id, row.tip.id) for row in rows] == [("a", "a2"), ("b", "b")]
    assert (rows[0].title, rows[0].messages, rows[0].compactions) == ("Old title", 2, 1)
    assert (rows[0].started, rows[0].updated) == (1.0, 10.0)
    store.update("a2", title="New title", model="other")
    assert store.list(limit=1)[0].title == "New title"
    assert store.session("a2").model == "other"
    assert [row.id for row in store.list(limit=1, offset=1)] == ["b"]
    assert list(store.list(offset=2)) == []


def test_a_session_ends_once(store):
    started(store, "a")
    store.end("a", "user left", 7.0)
    store.end("a", "again", 8.0)
    assert (store.session("a").ended, store.session("a").end_reason) == (7.0, "user left")


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts_come_back(store, text):
    started(store, "s", title=text, model=text)
    append(store, "s", text, text)
    assert raws(store, "s") == [one.raw for one in messages(text, text)]
    kept = text.replace("\0", "\ufffd").replace("\ud800", "\ufffd")
    assert (store.session("s").title, store.session("s").model) == (kept, kept)
    store.put_result(StoredResult(id="r", session="s", tool=text, text=text, created=1.0))
    assert store.result("r").text == text
    compact(store, "s", "s2", kept=(0,), text=text)
    newest = store.newest_compaction("s")
    assert newest.compaction.pieces[0].summary.text == text
    assert newest.receipt["text"] == text
    store.end("s2", text, 3.0)
    store.update("s2", title=text)
    assert store.list()[0].title == kept
    assert not store.faults()


@pytest.mark.parametrize("name", ["", "a\0b", "\udcff"])
def test_what_no_database_can_hold_is_no_id(store, name):
    with pytest.raises(StoreError, match="id"):
        started(store, name)
    with pytest.raises(UnknownSession):
        store.session(name)
    assert store.result(name) is None
    assert store.note("n", name) is None
    assert list(store.list()) == []


@pytest.mark.parametrize("name", ["ünïcode", "会話", "a b/c?d%e", "x" * 500, "🧵"])
def test_ids_may_be_any_other_text(store, name):
    started(store, name)
    append(store, name, "one")
    assert store.session(name).id == name
    assert len(store.read_from(name, 0)) == 1


def test_a_large_message_comes_back(store):
    started(store)
    text = "".join(chr(0x4E00 + n % 9_000) for n in range(1_700_000))
    append(store, "s", text)
    assert store.read("s", [0])[0].raw == message(text).raw
    assert len(message(text).raw) > 5_000_000


@pytest.mark.parametrize("at", [0.0, -1.5, 1e-9, 1_900_000_000.123457, 1e15, 3])
def test_times_are_kept_exactly(store, at):
    started(store, "s", at)
    append(store, "s", "one", at=at)
    assert store.session("s").started == at
    assert store.read("s", [0])[0].created == at


@pytest.mark.parametrize("at", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_time_is_refused(store, at):
    with pytest.raises(StoreError, match="point in time"):
        started(store, "s", at)
    started(store, "s")
    with pytest.raises(StoreError, match="point in time"):
        append(store, "s", "one", at=at)
    assert store.log_tip("s").length == 0


def test_a_session_that_is_not_there_is_named(store):
    new = NewSession(id="n", at=1.0)
    for ask in (
        lambda: store.session("x"),
        lambda: store.tip("x"),
        lambda: store.list_children("x"),
        lambda: store.branch("x", 0, new),
        lambda: store.end("x", "", 1.0),
        lambda: store.update("x", title=""),
        lambda: store.append("x", messages("a"), "", 1.0),
        lambda: store.log_tip("x"),
        lambda: store.read("x", [0]),
        lambda: store.read_from("x", 0),
        lambda: store.ids("x"),
        lambda: store.compactions("x"),
        lambda: store.newest_compaction("x"),
        lambda: store.undo("x", 1.0),
        lambda: store.pin("x", 0),
        lambda: store.pins("x"),
        lambda: store.usage(session_id="x"),
        lambda: store.delete("x"),
        lambda: store.put_result(StoredResult(id="r", session="x", tool="", text="", created=1.0)),
        lambda: store.book(UsageRow(session="x", at=1.0, model="", task="", usage=Usage())),
    ):
        with pytest.raises(UnknownSession, match="'x'"):
            ask()
    assert list(store.list()) == []


def test_results_are_kept_once(store):
    started(store)
    first = StoredResult(id="r1", session="s", tool="grep", text="line\n" * 10_000, created=4.0)
    store.put_result(first)
    store.put_result(StoredResult(id="r1", session="s", tool="other", text="other", created=5.0))
    assert store.result("r1") == first
    assert store.result("r2") is None


def test_usage_is_booked_by_session_and_added_up_by_conversation(store):
    started(store, "a")
    started(store, "b")
    append(store, "a", "one")
    used = Usage(10, 20, 30, 40, 5, 6)
    first = UsageRow(session="a", at=2.0, model="m", task="turn", usage=used, cost=0.25)
    store.book(first)
    compact(store, "a", "a2")
    second = UsageRow(session="a2", at=1.0, model="m", task="summary", usage=used, cost=0.5)
    store.book(second)
    other = UsageRow(session="b", at=3.0, model="m", task="turn", usage=Usage(1))
    store.book(other)
    assert list(store.usage()) == [second, first, other]
    assert list(store.usage(since=2.0)) == [first, other]
    assert list(store.usage(session_id="a")) == list(store.usage(session_id="a2")) == [second, first]
    by_id = {row.id: row for row in store.list()}
    assert by_id["a"].usage == used + used
    assert by_id["a"].cost == 0.75
    assert by_id["b"].cost is None


def test_a_cost_that_is_not_known_of_all_is_not_known(store):
    started(store)
    for cost in (0.5, None):
        store.book(UsageRow(session="s", at=1.0, model="m", task="t", usage=Usage(), cost=cost))
    assert store.list()[0].cost is None


def test_notes_are_kept_by_name_and_key(store):
    store.put_note("window", "model", b"\0\xff")
    store.put_note("window", "model", b"128000")
    store.put_note("calibration", "model", b"")
    assert store.note("window", "model") == b"128000"
    assert store.note("calibration", "model") == b""
    assert store.note("window", "other") is None


@SHARED
def test_what_was_acknowledged_is_there_after_opening_again(store_url, store):
    started(store)
    append(store, "s", "one", "two")
    compact(store, "s", "s2", kept=(1,))
    again = open_store(store_url)
    assert raws(again, "s") == [one.raw for one in messages("one", "two")]
    assert again.tip("s").id == "s2"
    assert again.newest_compaction("s2").compaction.length == 2
    again.close()
    with pytest.raises(StoreError, match="closed"):
        again.session("s")
    again.close()


def test_of_those_that_open_one_session_at_once_one_succeeds_and_the_others_are_told(store):
    gate, told = threading.Barrier(6), []

    def open_it():
        gate.wait()
        try:
            told.append(started(store).id)
        except (
            StoreConflict
        ) as error:  # not just any StoreError: whoever is told this goes on with the first one's
            told.append(type(error))

    threads = [threading.Thread(target=open_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told, key=str) == [StoreConflict] * 5 + ["s"]


def test_threads_that_append_at_once_make_one_log(store):
    started(store)
    refused = []

    def write(name):
        for number in range(10):
            while True:
                try:
                    append(store, "s", f"{name} {number}")
                except StoreConflict:
                    refused.append(name)
                else:
                    break

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = [entry.raw for entry in store.read_from("s", 0)]
    assert sorted(texts) == sorted(message(f"{name} {n}").raw for name in "abcd" for n in range(10))
    assert not store.faults()


@pytest.mark.parametrize("attempt", range(5))
def test_closing_while_another_thread_reads_ends_both_in_peace(store_url, attempt):
    """A server that stops cancels what it waits for; the thread that was reading goes on for a moment."""
    opened, reading, ends = open_store(store_url), threading.Event(), []

    def read_on():
        while True:
            opened.list()
            reading.set()

    def read():
        with pytest.raises(StoreError) as refused:
            read_on()
        ends.append(str(refused.value))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    assert reading.wait(20)
    opened.close()
    for reader in readers:
        reader.join(20)
    assert len(ends) == 3
    opened.close()  # again does nothing
