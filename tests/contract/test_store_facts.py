"""What every store does with the facts of a ledger: they come and go with the compaction that they were written with."""

from __future__ import annotations

import pytest
from store_talk import append, compact, started

from penstock.errors import StoreError
from penstock.stores.values import NewFact, NewSession


def fact(position, text, kind="constraint", **more):
    return NewFact(position=position, kind=kind, text=text, **more)


def texts(store, session="a"):
    return [row.text for row in store.facts(session)]


def test_facts_come_with_their_compaction_and_have_the_time_of_their_message(store):
    started(store, "a")
    append(store, "a", "one", "two", at=2.0)
    append(store, "a", "three", at=3.0)
    given = [
        fact(2, "decided: ü 🧭", "decision"),
        fact(0, "never", superseded=2),
        fact(1, "ran make → exit 0", "action", label="terminal", uses=4),
    ]
    row = compact(store, "a", "a2", facts=given)
    found = store.facts("a2")
    assert [(one.position, one.kind, one.text) for one in found] == [
        (0, "constraint", "never"),
        (1, "action", "ran make → exit 0"),
        (2, "decision", "decided: ü 🧭"),
    ]
    assert [(one.label, one.uses, one.superseded, one.at, one.compaction) for one in found] == [
        ("", 1, 2, 2.0, row.key),
        ("terminal", 4, None, 2.0, row.key),
        ("", 1, None, 3.0, row.key),
    ]
    assert store.facts("a") == found
    assert not store.faults()


def test_undoing_takes_the_facts_back(store):
    started(store, "a")
    append(store, "a", "one", "two")
    compact(store, "a", "a2", facts=[fact(0, "first")])
    compact(store, "a2", "a3", facts=[fact(1, "second")])
    assert texts(store) == ["first", "second"]
    store.undo("a", 20.0)
    assert texts(store) == ["first"]
    store.undo("a", 21.0)
    assert texts(store) == []
    compact(store, "a3", "a4", facts=[fact(0, "anew")])
    assert texts(store) == ["anew"]


def test_a_fact_that_is_written_again_counts_once_and_as_it_was_last(store):
    started(store, "a")
    append(store, "a", "one", "two", "three")
    compact(store, "a", "a2", facts=[fact(0, "never"), fact(0, "always")])
    compact(store, "a2", "a3", facts=[fact(0, "never", superseded=2)])
    assert [(one.text, one.superseded) for one in store.facts("a")] == [("never", 2), ("always", None)]
    store.undo("a", 20.0)
    assert [(one.text, one.superseded) for one in store.facts("a")] == [("never", None), ("always", None)]


def test_a_commit_that_is_retried_writes_its_facts_once(store):
    started(store, "a")
    append(store, "a", "one")
    for _ in range(2):
        compact(store, "a", "a2", over=0, key="try", facts=[fact(0, "never")])
    assert texts(store) == ["never"]


def test_facts_of_messages_that_the_compaction_cannot_know_are_refused(store):
    started(store, "a")
    append(store, "a", "one")
    for position in (1, -1):
        with pytest.raises(StoreError, match="beyond"):
            compact(store, "a", "a2", facts=[fact(position, "x")])
    assert store.newest_compaction("a") is None


def test_facts_go_with_their_conversation_and_nobody_else_has_them(store):
    started(store, "a")
    append(store, "a", "one", "two")
    compact(store, "a", "a2", facts=[fact(0, "mine")])
    store.branch("a", 2, NewSession(id="b", at=3.0))
    assert texts(store, "b") == []
    compact(store, "b", "b2", facts=[fact(1, "of the branch")])
    assert (texts(store, "a"), texts(store, "b")) == (["mine"], ["of the branch"])
    assert store.facts("b")[0].at == 2.0  # of a message that the branch shares
    store.delete("a")
    assert texts(store, "b") == ["of the branch"]
    assert not store.faults()
    store.delete("b")
    with store.database.reading() as do:
        assert do.rows("SELECT * FROM facts") == []


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800 lone", "x" * 100_000])
def test_odd_texts_do_not_stop_a_compaction(store, text):
    started(store, "a")
    append(store, "a", "one")
    compact(store, "a", "a2", facts=[fact(0, text, label=text)])
    (found,) = store.facts("a")
    assert found.text == found.label == text.replace("\0", "\ufffd").replace("\ud800", "\ufffd")
