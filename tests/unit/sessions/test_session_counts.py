"""The size of the next request is kept up to date as messages come, and is that of the view that would be sent."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations, conversations

from penstock.conversation.dialects import DIALECTS
from penstock.errors import TargetTooSmall
from penstock.sessions.session import Session
from penstock.stores.store import open_store

pytestmark = pytest.mark.sampled(4)  # each of its cases is long


def call(name):
    function = {"name": "terminal", "arguments": "{}"}
    made = [{"id": name, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(name):
    return {"role": "tool", "tool_call_id": name, "content": f"the output of {name}"}


def user(text):
    return {"role": "user", "content": text}


@pytest.mark.parametrize("name", sorted(DIALECTS))
@pytest.mark.parametrize("strategy", [conversations, broken_conversations])
@settings(max_examples=6, deadline=None, phases=[Phase.generate])
@given(data=st.data())
def test_the_count_is_that_of_the_view_however_it_grew(name, strategy, data):
    store = open_store("memory:")
    session = Session.create(store, dialect=name)
    other = Session.resume(store, session.id)
    for _ in range(2):
        wires = data.draw(strategy(name))
        while wires:
            count = data.draw(st.integers(1, 4))
            session.append(wires[:count])
            wires = wires[count:]
            if data.draw(st.booleans()):
                assert session.count() == session.workings.weigh(session.view())
        match data.draw(st.sampled_from(["compact", "undo", ""])):
            case "compact":
                with contextlib.suppress(TargetTooSmall):
                    session.compact(target_tokens=max(300, session.count() // 2))
            case "undo":
                session.undo()
        assert session.count() == other.count() == session.workings.weigh(session.view())
    store.close()


class CountingStore:
    """A store that counts how many messages are read from it."""

    def __init__(self, store):
        self._store = store
        self.messages_read = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def read(self, *args, **options):
        entries = self._store.read(*args, **options)
        self.messages_read += len(entries)
        return entries

    def read_from(self, *args, **options):
        entries = self._store.read_from(*args, **options)
        self.messages_read += len(entries)
        return entries


def test_an_estimate_reads_what_was_logged_since_the_last_one():
    store = CountingStore(open_store("memory:"))
    session = Session.create(store)
    session.append([user("Run them all.")])
    session.estimate()
    for number in range(100):
        session.append([call(f"c{number}")])
        session.append([result(f"c{number}")])
        store.messages_read = 0
        session.estimate()
        assert store.messages_read == 2
        session.estimate()
        assert store.messages_read == 2
    assert session.count() == session.workings.weigh(session.view())
    assert len(session.workings.count_view().last_round) <= 3


def test_an_estimate_after_one_append_reads_nothing_unless_another_process_wrote():
    store = CountingStore(open_store("memory:"))
    session = Session.create(store)
    session.append([user("Run them all.")])
    session.estimate()
    store.messages_read = 0
    session.append([call("c1"), result("c1")])
    session.estimate()
    assert store.messages_read == 0
    session.append([user("And what else?")])
    Session.resume(store, session.id).append([user("Another process said so.")])
    session.estimate()
    assert store.messages_read == 2
    assert session.count() == session.workings.weigh(session.view())


@pytest.mark.parametrize("again", ["c3", "c650"])
def test_an_id_that_was_used_before_is_known_however_long_ago(again):
    """Where no two calls may have one id, the view is mended: the count must be that of the mended one."""
    session = Session.create(open_store("memory:"), dialect="anthropic")

    def round_of(name):
        use = {"type": "tool_use", "id": name, "name": "terminal", "input": {}}
        answer = {"type": "tool_result", "tool_use_id": name, "content": f"the output of {name}"}
        return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]

    session.append([user("Run them all.")])
    for start in range(0, 700, 50):
        session.append([wire for number in range(start, start + 50) for wire in round_of(f"c{number}")])
        session.count()
    session.append(round_of(again))
    assert session.count() == session.workings.weigh(session.view())
    assert session.workings.count_view().broken


def test_a_report_counts_with_what_was_logged_since():
    session = Session.create(open_store("memory:"), model="gpt-4.1")
    session.append([user("One. " * 50)])
    counted = session.count()
    session.record_usage({"prompt_tokens": counted + 1_000, "completion_tokens": 1}, counted)
    assert session.estimate() == counted + 1_000
    session.append([user("Two. " * 50)])
    assert session.estimate() > counted + 1_000
