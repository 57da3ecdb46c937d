"""What every store deletes when nobody has used it for long. Times are given; nobody waits."""

from __future__ import annotations

import math

import pytest
from store_talk import append, compact, started

from penstock.errors import StoreError, UnknownSession
from penstock.sessions.retention import expire, honour_retention
from penstock.settings import settings_from
from penstock.stores.values import LAST_USED, SUBAGENT, NewSession, StoredResult

DAY = 86_400.0
SETTINGS = settings_from({"store": {"retention_days": 30}})


def there(store):
    return sorted(row.id for row in store.list())


def conversation(store, name, at):
    started(store, name, at=at)
    append(store, name, f"said in {name}", f"answered in {name}", at=at)


def test_what_was_not_used_since_goes_the_oldest_first(store):
    for name, at in (("new", 30.0), ("old", 20.0), ("older", 10.0)):
        conversation(store, name, at)
    assert [(one.id, one.updated, one.messages) for one in store.due(30.0)] == [
        ("older", 10.0, 2),
        ("old", 20.0, 2),
    ]
    assert there(store) == ["new", "old", "older"]
    assert [(one.id, one.messages) for one in store.expire(30.0)] == [("older", 2), ("old", 2)]
    assert there(store) == ["new"]
    assert store.expire(30.0) == []
    assert not store.faults()


def test_every_use_counts(store):
    for name in ("appended", "compacted", "undone", "unused"):
        conversation(store, name, 1.0)
    append(store, "appended", "more", at=50.0)
    compact(store, "compacted", "c2", at=50.0)
    compact(store, "undone", "u2", at=2.0)
    store.undo("undone", 50.0)
    assert [one.id for one in store.expire(40.0)] == ["unused"]


def test_what_was_brought_from_elsewhere_counts_from_then(store):
    conversation(store, "brought", 1.0)
    store.put_note(LAST_USED, "brought", b"50.0")
    assert store.due(40.0) == []
    assert [one.id for one in store.expire(60.0)] == ["brought"]
    assert store.note(LAST_USED, "brought") is None


def test_sub_agents_go_with_those_they_work_for_and_keep_them(store):
    conversation(store, "a", 1.0)
    store.branch("a", 0, NewSession(id="helper", at=2.0, kind=SUBAGENT))
    append(store, "helper", "look", at=50.0)
    conversation(store, "b", 1.0)
    store.branch("b", 0, NewSession(id="idle", at=2.0, kind=SUBAGENT))
    append(store, "idle", "nothing", at=3.0)
    assert [(one.id, one.messages) for one in store.expire(40.0)] == [("b", 3)]
    with pytest.raises(UnknownSession):
        store.session("idle")
    assert store.session("helper").parent == "a"
    assert [one.id for one in store.expire(60.0)] == ["a"]
    assert not store.faults()


def test_branches_keep_what_they_share_with_what_goes(store):
    conversation(store, "a", 1.0)
    store.put_result(StoredResult(id="r", session="a", tool="", text="x", created=1.0))
    store.pin("a", 0)
    store.branch("a", 1, NewSession(id="b", at=50.0))
    store.pin("b", 0)
    assert [(one.id, one.messages) for one in store.expire(40.0)] == [("a", 1)]
    assert len(store.read_from("b", 0)) == 1
    assert store.pins("b") == {0}
    assert store.result("r") is None
    assert not store.faults()


def test_a_use_that_comes_first_wins(store):
    """Somebody appends after it was seen that the conversation is due."""
    conversation(store, "a", 1.0)
    seen = store.due(40.0)
    append(store, "a", "back again", at=50.0)
    assert [one.id for one in seen] == ["a"]
    assert store.expire(40.0) == []
    assert there(store) == ["a"]


def test_what_is_no_time_is_refused(store):
    conversation(store, "a", 1.0)
    for at in (math.nan, math.inf):
        with pytest.raises(StoreError):
            store.expire(at)
    assert there(store) == ["a"]


class TestBySettings:
    def test_nothing_goes_without_the_setting(self, store):
        conversation(store, "a", 1.0)
        assert honour_retention(store, settings_from({}), 1_000 * DAY) == ()
        assert store.note("retention", "checked") is None

    def test_it_is_looked_for_once_an_hour(self, store):
        conversation(store, "a", 1 * DAY)
        assert honour_retention(store, SETTINGS, 31 * DAY) == []  # used at that very moment
        assert honour_retention(store, SETTINGS, 31 * DAY + 3_599) == ()
        assert there(store) == ["a"]
        assert [one.id for one in honour_retention(store, SETTINGS, 31 * DAY + 3_600)] == ["a"]
        assert store.note("retention", "last") == (
            b'{"at":2682000.0,"days":30,"conversations":1,"messages":2}'
        )

    def test_a_clock_that_was_put_back_does_not_stop_it(self, store):
        store.put_note("retention", "checked", b"9999999999999.0")
        conversation(store, "a", 1.0)
        assert [one.id for one in honour_retention(store, SETTINGS, 40 * DAY)] == ["a"]

    def test_by_days(self, store):
        conversation(store, "a", 1 * DAY)
        conversation(store, "b", 9 * DAY)
        assert [one.id for one in expire(store, 10 * DAY, 2)] == ["a"]
