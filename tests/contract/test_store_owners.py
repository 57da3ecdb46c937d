"""An owner's store: it sees what is its own, whatever others hold, and keeps nothing from the operator."""

from __future__ import annotations

import pytest
from store_talk import append, compact, message, started

from penstock.accounts.conversations import find_conversation, list_conversations, search_conversations
from penstock.accounts.usage import report_usage
from penstock.errors import PenstockError, StoreError, UnknownSession
from penstock.measure.usage import Usage
from penstock.recall.ranking import Wish
from penstock.sessions.session import Session
from penstock.stores.values import NewSession, StoredResult, UsageRow

SAME = ("the deploy key of the harbour is in the vault", "understood", "the port is 5433")


@pytest.fixture
def two(store):
    """Two owners whose conversations begin with the very same messages, and a local one beside them."""
    ann, ben = store.for_owner("ann"), store.for_owner("ben")
    for own, name in ((ann, "ann-1"), (ben, "ben-1"), (store, "local-1")):
        started(own, name)
        append(own, name, *SAME, at=3.0)
        append(own, name, f"only {name} said marmalade", at=4.0)
        own.book(UsageRow(session=name, at=5.0, model="m", task="turn", usage=Usage(7, 1)))
        own.put_result(StoredResult(id=f"r-{name}", session=name, tool="t", text="lighthouse", created=5.0))
    return ann, ben


def test_rows_say_whose_they_are(store, two):
    ann, _ = two
    assert [store.session(name).owner for name in ("ann-1", "ben-1", "local-1")] == ["ann", "ben", ""]
    assert ann.branch("ann-1", 2, NewSession(id="ann-2", at=6.0)).owner == "ann"
    compact(store, "ann-1", "ann-3")  # by the operator
    assert store.session("ann-3").owner == "ann"
    assert store.branch("ann-1", 2, NewSession(id="ann-4", at=6.0)).owner == "ann"


@pytest.mark.parametrize(
    "call",
    [
        lambda own, name: own.session(name),
        lambda own, name: own.tip(name),
        lambda own, name: own.list_children(name),
        lambda own, name: own.log_tip(name),
        lambda own, name: own.ids(name),
        lambda own, name: own.read(name, [0]),
        lambda own, name: own.read_from(name, 0),
        lambda own, name: own.compactions(name),
        lambda own, name: own.newest_compaction(name),
        lambda own, name: own.facts(name),
        lambda own, name: own.pins(name),
        lambda own, name: own.usage(session_id=name),
        lambda own, name: own.entities(name, redact=str),
        lambda own, name: own.search("port", session_id=name),
        lambda own, name: own.result(f"r-{name}", session_id=name),
        lambda own, name: own.branch(name, 1, NewSession(id="x", at=9.0)),
        lambda own, name: own.append(name, [message("mine")], "", 9.0),
        lambda own, name: own.end(name, "closed", 9.0),
        lambda own, name: own.update(name, title="mine"),
        lambda own, name: own.pin(name, 0),
        lambda own, name: own.undo(name, 9.0),
        lambda own, name: own.put_result(StoredResult(id="y", session=name, tool="", text="z", created=1.0)),
        lambda own, name: own.book(UsageRow(session=name, at=1.0, model="m", task="turn", usage=Usage())),
        lambda own, name: own.delete(name),
        Session.resume,
        find_conversation,
        lambda own, name: find_conversation(own, name[:3]),
    ],
)
def test_a_session_of_another_owner_is_an_unknown_one(store, two, call):
    ann, _ = two
    before = store.ids("ben-1"), list(store.list()), store.compactions("ben-1"), store.usage()
    with pytest.raises(UnknownSession):
        call(ann, "ben-1")
    with pytest.raises(UnknownSession):
        call(ann, "local-1")
    assert (store.ids("ben-1"), list(store.list()), store.compactions("ben-1"), store.usage()) == before


def test_a_look_up_by_hash_finds_the_own_log_alone(store, two):
    ann, ben = two
    ids = list(store.ids("ben-1"))
    assert ann.find_known_prefix(ids) == ("ann-1", 3)
    assert ben.find_known_prefix(ids) == ("ben-1", 4)
    assert store.for_owner("").find_known_prefix(ids) == ("local-1", 3)
    assert store.for_owner("cleo").find_known_prefix(ids) is None


def test_lists_and_usage_are_the_owners(store, two):
    ann, ben = two
    assert [row.id for row in ann.list()] == ["ann-1"]
    assert [row.id for row in store.for_owner("").list()] == ["local-1"]
    assert {row.id for row in store.list()} == {"ann-1", "ben-1", "local-1"}
    assert [row.session for row in ben.usage()] == ["ben-1"]
    assert [row.session for row in ben.usage(since=5.5)] == []
    assert len(store.usage()) == 3
    assert report_usage(ann).total.requests == 1
    assert [one.row.id for one in list_conversations(ann)] == ["ann-1"]
    assert [one.id for one in ann.due(4.5)] == ["ann-1"]
    assert ann.result("r-ann-1").text == "lighthouse"
    assert ann.result("r-ben-1") is None


def test_a_search_finds_nothing_of_others(store, two):
    ann, ben = two
    for own, name in ((ann, "ann-1"), (ben, "ben-1"), (store.for_owner(""), "local-1")):
        for query in ("marmalade", "port harbour", "lighthouse"):
            found = own.search(query)
            assert found, query
            assert {one.session for one in found} == {name}
    assert {one.session for one in store.search("marmalade")} == {"ann-1", "ben-1", "local-1"}
    assert not store.for_owner("cleo").search("marmalade")
    assert {hit.session for hit in search_conversations(ben, "marmalade", Wish()).hits} == {"ben-1"}


def test_deleting_one_owners_log_leaves_the_same_messages_of_the_other(store, two):
    ann, ben = two
    store.index()
    assert ann.delete("ann-1") == 4
    assert not ann.list()
    assert not ann.search("port")
    assert ben.search("port")
    assert [entry.position for entry in ben.read_from("ben-1", 0)] == [0, 1, 2, 3]
    assert not store.faults()


def test_an_owner_is_deleted_as_a_whole(store, two):
    ann, _ = two
    ann.branch("ann-1", 2, NewSession(id="ann-2", at=6.0))
    append(ann, "ann-2", "of the branch")
    assert store.delete_owner("ann") == 5
    assert not ann.list()
    assert not ann.usage()
    assert ann.result("r-ann-1") is None
    assert {row.id for row in store.list()} == {"ben-1", "local-1"}
    assert not store.faults()
    assert store.delete_owner("ann") == 0
    with pytest.raises(StoreError, match="another owner"):
        ann.delete_owner("ben")
    with pytest.raises(PenstockError):
        store.delete_owner("")


def test_retention_of_one_owner_leaves_the_others(store, two):
    ann, ben = two
    assert [gone.id for gone in ann.expire(100.0)] == ["ann-1"]
    assert not ann.list()
    assert ben.list()


def test_a_session_lives_in_its_owners_store(store):
    own = store.for_owner("ann")
    session = Session.create(own, model="gpt-4.1")
    session.append([{"role": "user", "content": "the tide table is on page nine"}])
    session.append([{"role": "assistant", "content": "noted"}])
    assert own.search("tide table")
    assert Session.resume(own, session.id).row.owner == "ann"
    with pytest.raises(UnknownSession):
        Session.resume(store.for_owner("ben"), session.id)


@pytest.mark.parametrize("owner", ["a\0b", "\ud800", 7, None])
def test_what_cannot_be_an_owner_is_refused(store, owner):
    with pytest.raises(StoreError, match="owner"):
        store.for_owner(owner)


def test_conversations_are_found_by_the_beginning_of_any_session(store):
    for n in range(40):
        started(store, f"many-{n:02}")
    started(store, "café-1")
    append(store, "café-1", "one", "two")
    compact(store, "café-1", "later-1")
    store.branch("café-1", 1, NewSession(id="helper-1", at=3.0, kind="subagent"))
    assert [row.id for row in store.find("caf")] == ["later-1"]
    assert [row.id for row in store.find("café-1")] == ["later-1"]
    assert [row.conversation for row in store.find("lat")] == ["café-1"]
    assert not store.find("helper")
    assert not store.find("zz")
    assert not store.find("a\0")
    assert len(store.find("many-", limit=5)) == 5
    assert len(store.find("many-", limit=99)) == 40
    assert [row.id for row in store.find("many-1", limit=99)] == [f"many-{n}" for n in range(10, 20)]
    assert find_conversation(store, "many-07").id == "many-07"
    with pytest.raises(UnknownSession, match=r"several ids \(many-00, many-01, many-02, many-03, …\)"):
        find_conversation(store, "many")
