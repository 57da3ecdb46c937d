"""What every store tells of many conversations at once, and of one without reading its messages."""

from __future__ import annotations

from store_talk import append, compact, started

from penstock.measure.usage import Usage
from penstock.stores.values import SUBAGENT, NewSession, UsageRow


def use(session, at, task="turn", tokens=10):
    return UsageRow(session=session, at=at, model="m", task=task, usage=Usage(tokens, 1))


def test_heads_are_those_of_the_list(store):
    for name, at in (("a", 3.0), ("b", 5.0), ("c", 4.0)):
        started(store, name)
        append(store, name, "hello", at=at)
    store.branch("a", 0, NewSession(id="helper", at=6.0, kind=SUBAGENT))
    assert store.heads() == {"a": 3.0, "b": 5.0, "c": 4.0}
    assert store.heads() == {row.id: row.updated for row in store.list()}


def test_conversations_are_shown_by_id_as_the_list_shows_them(store):
    for name in "abc":
        started(store, name)
        append(store, name, "hello", at=ord(name))
    listed = {row.id: row for row in store.list()}
    assert store.show(["c", "nobody", "a", "\0"]) == [listed["c"], listed["a"]]
    assert store.show([]) == []


def test_the_shape_of_a_log_has_all_messages_also_those_of_its_trunk(store):
    started(store, "a")
    append(store, "a", "one", "two", at=2.0)
    store.branch("a", 1, NewSession(id="b", at=3.0))
    append(store, "b", "three", at=4.0)
    entries = store.read_from("b", 0)
    shape = store.shape("b")
    assert list(shape.tokens) == [entry.tokens for entry in entries]
    assert list(shape.created) == [2.0, 4.0] == [entry.created for entry in entries]


def test_the_last_request_is_that_of_the_session_alone(store):
    started(store, "a")
    append(store, "a", "one", "two")
    assert store.last_request("a", "turn") is None
    store.book_all([use("a", 3.0), use("a", 5.0, tokens=70), use("a", 6.0, "summary")])
    assert store.last_request("a", "turn").usage.input_tokens == 70
    compact(store, "a", "after", at=7.0)
    assert store.last_request(store.tip("a").id, "turn") is None


def test_moments_and_users_tell_what_was_booked_since(store):
    for name in "ab":
        started(store, name)
    store.book_all([use("a", 3.0), use("a", 9.0)])
    assert store.moments(4.0) == [9.0]
    found, mark = store.users()
    assert found == {"a"}
    assert store.users(mark) == (set(), mark)
    store.book(use("b", 1.0))  # booked late, of an early request
    assert store.users(mark)[0] == {"b"}


def test_owners_see_their_own(store):
    ann, ben = store.for_owner("ann"), store.for_owner("ben")
    started(ann, "a")
    append(ann, "a", "one", "two")
    compact(ann, "a", "a later", at=4.0)
    ann.book(use("a", 3.0))
    assert ben.heads() == {}
    assert ben.show(["a"]) == []
    assert ben.users()[0] == set()
    assert ben.moments(0.0) == []
    assert ben.list_compacted() == set()
    assert ann.list_compacted() == {"a"} == store.list_compacted()


def test_an_undo_may_be_of_one_compaction_alone(store):
    started(store, "a")
    append(store, "a", "one", "two")
    first = compact(store, "a", "b", at=3.0)
    append(store, "b", "three", at=4.0)
    second = compact(store, "b", "c", at=5.0)
    assert store.undo("a", 6.0, only=first.key) is None
    assert store.newest_compaction("a").key == second.key
    assert store.undo("a", 7.0, only=second.key).key == second.key
    assert store.list_compacted() == {"a"}  # undone ones count
