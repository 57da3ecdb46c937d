"""What a session notes of messages when they leave its view."""

from __future__ import annotations

import re

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.strategies.long_sessions import long_conversations

from penstock.conversation.dialects import DIALECTS
from penstock.errors import TargetTooSmall
from penstock.sessions.facts import MOST_FACTS
from penstock.sessions.session import Session
from penstock.stores.store import open_store

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

LONG = "\n".join(f"line {n}: nothing of note happened in this part of the build" for n in range(60))


def turn(n, command, outcome, request="Go on."):
    call = {
        "id": f"c{n}",
        "type": "function",
        "function": {"name": "terminal", "arguments": f'{{"command": "{command}"}}'},
    }
    return [
        {"role": "user", "content": request},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": f"{LONG}\n{outcome}"},
        {"role": "assistant", "content": f"Turn {n} is over."},
    ]


@pytest.fixture
def session(store):
    """Begun: its first messages stay in every view."""
    begun = Session.create(store)
    begun.append(turn(-1, "ls", "exit code: 0"))
    return begun


def filled(session, first, count=12):
    for n in range(first, first + count):
        session.append(turn(n, f"make part-{n}", "exit code: 0"))


def facts(session):
    return session.store.facts(session.id)


def texts(session, kind):
    return [fact.text for fact in facts(session) if fact.kind == kind]


def test_what_leaves_the_view_is_noted_with_its_message(session):
    session.append(
        turn(
            0,
            "make all",
            "error: no rule to make target 'all'\nexit code: 2",
            f"Never touch ./dist.\n\n{LONG}",
        )
    )
    filled(session, 1)
    session.compact(target_tokens=1_200)
    (constraint,) = [fact for fact in facts(session) if fact.kind == "constraint"]
    assert (constraint.position, constraint.text) == (4, "Never touch ./dist.")
    assert "ran make all → error: no rule to make target 'all'" in texts(session, "action")
    assert "make all: error: no rule to make target 'all'" in texts(session, "error")
    called = [fact.position for fact in facts(session) if fact.kind == "action"]
    assert all("tool_calls" in session.original(f"m{position + 1}") for position in called)


def test_what_stays_is_noted_when_it_leaves_and_only_then(session):
    filled(session, 0)
    session.compact(target_tokens=3_500)
    first = texts(session, "action")
    assert "ran make part-0 → exit 0" in first
    assert "ran make part-11 → exit 0" not in first
    filled(session, 12)
    session.compact(target_tokens=3_500)
    second = texts(session, "action")
    assert second[: len(first)] == first
    assert "ran make part-11 → exit 0" in second
    assert len(second) == len(set(second))


def test_an_outcome_that_was_elided_first_is_still_known(session):
    """Eliding takes the result; the call leaves with a later compaction."""
    filled(session, 0)
    session.compact(target_tokens=6_000)
    assert session.store.newest_compaction(session.id).receipt["summarised"] == 0
    assert "ran make part-0 → exit 0" in texts(session, "action")
    filled(session, 12)
    session.compact(target_tokens=1_200)
    assert [text for text in texts(session, "action") if "part-0 " in text] == ["ran make part-0 → exit 0"]
    assert not [text for text in texts(session, "action") if "not confirmed" in text]


def test_a_constraint_says_what_changed_it_even_after_it_left(session):
    session.append([{"role": "user", "content": f"Always use port 8080 for the preview server.\n\n{LONG}"}])
    session.append([{"role": "assistant", "content": "Understood."}])
    filled(session, 0)
    session.compact(target_tokens=1_200)
    assert [fact.superseded for fact in facts(session) if "8080" in fact.text] == [None]
    change = len(session)
    session.append(
        [
            {"role": "user", "content": "Actually, always use port 9090 for the preview server instead."},
            {"role": "assistant", "content": "Changed."},
        ]
    )
    filled(session, 12)
    session.compact(target_tokens=1_200)
    assert [fact.superseded for fact in facts(session) if "8080" in fact.text] == [change]
    session.undo()
    assert [fact.superseded for fact in facts(session) if "8080" in fact.text] == [None]


def test_secrets_are_not_noted(session):
    secret = "hunter2-and-more"
    session.append([{"role": "user", "content": f"Never print it: password={secret}\n\n{LONG}"}])
    session.append([{"role": "assistant", "content": "I will not."}])
    filled(session, 0)
    session.compact(target_tokens=1_200)
    noted = [fact.text for fact in facts(session) if "Never print" in fact.text]
    assert noted
    assert not any(secret in text for text in noted)


@pytest.mark.outside
def test_there_is_a_most(session):
    for n in range(1_100):
        session.append(turn(n, f"touch file-{n} && make", "exit code: 0", f"Never use name_{n} again."))
    session.compact(target_tokens=2_000)
    noted = facts(session)
    assert 1_000 < len(noted) <= MOST_FACTS
    assert {fact.kind for fact in noted} >= {"constraint", "action"}


def test_numbers_are_those_of_the_log_where_a_list_had_to_be_mended(session):
    """A call without a result gets a stub in the view, which is in no log and has no number."""
    open_call = turn(0, "make all", "")[1]
    session.append(
        [{"role": "user", "content": "Build it."}, open_call, {"role": "user", "content": "Stop."}]
    )
    filled(session, 1)
    for n in range(3):
        session.append([{"role": "user", "content": f"Never forget rule_{n}."}])
        session.append([{"role": "assistant", "content": "Noted."}])
    filled(session, 20)
    result = session.compact(target_tokens=1_500)
    assert result.receipt.repaired == 1
    assert "[m0" not in str(session.view())
    named = re.findall(r"\bm(\d+) (Never forget rule_\d)", str(session.view()))
    assert named
    for number, words in named:
        assert words in session.original(f"m{number}")["content"]
    for fact in facts(session):
        if fact.kind == "constraint":
            assert fact.text in session.original(f"m{fact.position + 1}")["content"]


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@settings(max_examples=6, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(data=st.data())
def test_facts_are_of_messages_that_left_in_every_dialect(dialect, data):
    store = open_store("memory:")
    session = Session.create(store, dialect=dialect)
    session.append(data.draw(long_conversations(dialect)))
    size = sum(entry.tokens for entry in store.read_from(session.id, 0))
    try:
        session.compact(target_tokens=max(400, size // 3))
    except TargetTooSmall:
        return
    noted = facts(session)
    assert all(0 <= fact.position < len(session) for fact in noted)
    assert len({(fact.position, fact.kind, fact.label, fact.text) for fact in noted}) == len(noted)
    assert not store.faults()
    store.close()
