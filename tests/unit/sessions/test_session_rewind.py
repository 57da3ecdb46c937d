"""`rewind` and `clear`: what leaves the view, what stays, and what others make of the record."""

from __future__ import annotations

import pytest

from penstock.accounts.conversations import describe_conversation
from penstock.accounts.spending import sum_compactions
from penstock.errors import SettingsError, StoreConflict
from penstock.sessions.session import Session
from penstock.stores.store import open_store
from penstock.testing.engine_contract import agent_turns, long_conversation


@pytest.fixture
def session():
    return Session.create(open_store("memory:"), model="gpt-4o")


def contents(session):
    return [message["content"] for message in session.view()]


def test_the_last_message_comes_back_as_it_was_appended(session):
    session.append(long_conversation(2))
    last = long_conversation(2)[-1]
    assert session.rewind() == [last]
    assert session.view() == long_conversation(2)[:-1]
    session.append([{"role": "user", "content": "Another question."}])
    assert contents(session)[-2:] == ["Part 1 is fine.", "Another question."]
    assert session.original(f"m{len(long_conversation(2))}") == last


def test_a_small_rewind_keeps_the_compaction(session):
    session.append(long_conversation(30))
    session.compact(target_tokens=3_000)
    before = session.view()
    session.rewind(1)
    assert session.view() == before[:-1]


def test_a_rewind_into_what_was_summarised_brings_back_the_view_from_before(session):
    session.append(long_conversation(30))
    session.compact(target_tokens=3_000)
    session.append(agent_turns(50, 52))
    session.rewind(8 + 100)
    assert session.view() == long_conversation(30)[:-100]


def test_a_cleared_session_begins_anew_and_can_be_had_back(session):
    session.append(long_conversation(3))
    session.clear()
    assert session.view() == []
    session.append([{"role": "user", "content": "Hello."}])
    assert contents(session) == ["Hello."]
    resumed = Session.resume(session.store, session.id)
    assert contents(resumed) == ["Hello."]
    assert resumed.undo()
    assert resumed.view() == [*long_conversation(3), {"role": "user", "content": "Hello."}]


def test_clearing_nothing_records_nothing(session):
    session.clear()
    assert session.rewind(3) == []
    assert session.undo() is False


def test_a_rewind_is_listed_as_no_compaction(session):
    def listed():
        (row,) = session.store.list()
        return row.compactions

    session.append(long_conversation(30))
    session.rewind(1)
    assert listed() == 0
    session.compact(target_tokens=3_000)
    session.rewind(1)
    assert listed() == 1
    session.clear()
    assert listed() == 1
    session.undo(), session.undo(), session.undo()
    assert listed() == 0


def test_a_pinned_message_that_was_rewound_does_not_come_back(session):
    session.append(long_conversation(30))
    session.pin("m3")
    session.clear()
    session.append(agent_turns(100, 130))
    session.append([{"role": "user", "content": "Go on."}])
    session.compact(target_tokens=3_000)
    assert "part_0.py" not in str(session.view())


def test_it_is_no_compaction_in_any_account(session):
    session.append(long_conversation(3))
    session.rewind(2)
    rows = session.store.compactions(session.id)
    assert sum_compactions(rows, []).count == 0
    assert session.receipts() == []
    told = describe_conversation(session.store, session.row)
    assert [one.headline for one in told.compactions] == ["rewound by 2 messages"]
    assert told.view_tokens == session.count()


def test_a_compaction_that_was_prepared_before_is_late(session):
    session.append(long_conversation(30))
    base = session.workings.read_view_base()
    from penstock.engine.compress import compress

    result = compress(base.view.wires, target_tokens=3_000)
    session.rewind(1)
    with pytest.raises(StoreConflict):
        session.workings.commit(base, result)


def test_a_branch_begins_with_the_rewound_view(session):
    session.append(long_conversation(5))
    session.rewind(3)
    assert session.branch().view() == session.view()


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", True, None])
def test_a_wrong_number_says_what_to_give(session, count):
    with pytest.raises(SettingsError, match="at least 1"):
        session.rewind(count)
