"""What a killed process leaves in a log: it stays as it is, and the view can be sent all the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.rules import check
from penstock.errors import StoreError
from penstock.sessions.exporting import export_conversation
from penstock.sessions.session import Session
from penstock.settings import settings_from
from penstock.stores.store import open_store
from penstock.stores.values import NewSession


def user(text):
    return {"role": "user", "content": text}


def calls(*ids):
    function = {"name": "terminal", "arguments": "{}"}
    made = [{"id": one, "type": "function", "function": function} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call_id, text="done"):
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def breaches(messages, dialect="chat"):
    return check(decode_all(DIALECTS[dialect], messages), DIALECTS[dialect].rules)


def test_a_call_whose_process_was_killed_has_a_stub_once_the_conversation_goes_on(store):
    session = Session.create(store)
    session.append([user("Run both."), calls("a", "b"), result("a")])
    assert session.view()[1:] == [calls("a", "b"), result("a")]  # it may still run
    session.append([user("Go on.")])
    view = session.view()
    assert view[:3] == [user("Run both."), calls("a", "b"), result("a")]
    assert (view[3]["tool_call_id"], view[4:]) == ("b", [user("Go on.")])
    assert breaches(view) == []
    assert len(session) == 4  # the log is as it was
    assert session.original("m4") == user("Go on.")


def test_a_result_that_comes_late_takes_the_place_of_the_stub(store):
    session = Session.create(store)
    session.append([user("Run it."), calls("a")])
    session.append([result("a", "late")])
    assert session.view()[-1] == result("a", "late")


def test_what_is_mended_in_a_compaction_is_mended_in_its_view(store):
    session = Session.create(store)
    session.append([user(f"Note {n}: " + "word " * 60) for n in range(20)])
    session.append([calls("a"), user("The tool died."), result("gone"), user("Go on.")])
    compacted = session.compact(target_tokens=900)
    assert breaches(compacted.messages) == []
    assert session.view() == compacted.messages
    assert [
        json.loads(raw) for raw in export_conversation(store, session.id, view=True).messages
    ] == session.view()


def test_what_is_not_broken_keeps_its_bytes(store):
    session = Session.create(store)
    odd = b'{ "role":"user",  "content":"Go \\u006fn." }'
    session.append([user("Run it."), calls("a"), odd])
    found = export_conversation(store, session.id, view=True).messages
    assert (len(found), found[-1]) == (4, odd)
    assert export_conversation(store, session.id).messages[-1] == odd
    assert len(export_conversation(store, session.id).messages) == 3


@pytest.mark.parametrize("dialect", ["anthropic", "responses", "sharegpt"])
def test_a_view_in_another_dialect_can_be_sent_there(store, dialect):
    session = Session.create(store)
    session.append(
        [{"role": "assistant", "content": "Welcome."}, user("Run it."), calls("a"), user("Go on.")]
    )
    view = [
        json.loads(raw) for raw in export_conversation(store, session.id, view=True, dialect=dialect).messages
    ]
    assert breaches(view, dialect) == []
    assert (
        len(export_conversation(store, session.id, dialect=dialect).messages) == 4
    )  # the log is what was said


def test_what_is_counted_is_what_is_sent(store):
    session = Session.create(store)
    session.append([user("Run it."), calls("a"), user("Go on.")])
    assert session.count() == session.workings.weigh(session.view())


@pytest.mark.outside
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic", "sharegpt"])
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_view_is_legal_whatever_the_log_lacks(dialect, data):
    messages = data.draw(broken_conversations(dialect))
    opened = open_store("memory:")
    session = Session.create(opened, dialect=dialect)
    session.append(messages)
    assert breaches(session.view(), dialect) == []
    sent = [json.loads(raw) for raw in export_conversation(opened, session.id, view=True).messages]
    assert sent == session.view()
    opened.close()


def test_a_message_that_is_gone_from_the_store_is_a_clear_error(store):
    row = store.create(NewSession(id="s1", at=0.0))
    session = Session(store, row, settings_from({}))
    session.append([user("One."), user("Two."), user("Three.")])
    with store.database.writing() as do:
        do.run("DELETE FROM entries WHERE position = 1")
    with pytest.raises(StoreError, match=r"m2 .*penstock doctor"):
        session.view()
    found = export_conversation(store, "s1")
    assert (len(found.messages), found.missing) == (2, 1)


def test_a_message_that_was_mended_and_then_shortened_is_recorded_by_its_own_parts(store):
    """Mending drops the blank text in front: the result is the second part of what was logged, and the first of what is sent."""
    session = Session.create(store, dialect="anthropic")
    for n in range(12):
        use = {"type": "tool_use", "id": f"c{n}", "name": "terminal", "input": {}}
        answer = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"line {n}\n" * 400}
        session.append(
            [
                {"role": "user", "content": f"Step {n}."},
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [{"type": "text", "text": " "}, answer]},
                {"role": "assistant", "content": "Done."},
            ]
        )
    compacted = session.compact(target_tokens=12_000)
    assert compacted.receipt.elided
    assert session.view() == compacted.messages
    assert breaches(session.view(), "anthropic") == []
