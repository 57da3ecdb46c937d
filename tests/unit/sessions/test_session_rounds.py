"""Many compactions of one stored conversation, with pins set and lifted in between: the record is what was returned."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.strategies.long_sessions import long_conversations

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.opening import without_handoff
from penstock.conversation.rules import check
from penstock.conversation.view import Handoff
from penstock.errors import TargetTooSmall
from penstock.sessions.session import Session
from penstock.stores.store import open_store

LINES = "\n".join(f"line {n} of the output says little" for n in range(40))


def turns(count, first=0, times=1):
    messages = []
    for n in range(first, first + count):
        function = {"name": "terminal", "arguments": f'{{"command": "make part-{n}"}}'}
        messages += [
            {"role": "user", "content": f"Step {n}, please."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": LINES * times},
            {"role": "assistant", "content": f"Step {n} is done."},
        ]
    return messages


@pytest.fixture
def session():
    store = open_store("memory:")
    yield Session.create(store)
    store.close()


def handoffs(session):
    pieces = session.store.newest_compaction(session.id).compaction.pieces
    return [piece for piece in pieces if isinstance(piece, Handoff)]


def test_a_handoff_stays_where_eliding_is_enough(session):
    messages = turns(20)
    messages[0]["content"] += f"\n\n{LINES}"  # too long to come back, with the handoff merged into it
    session.append(messages)
    session.compact(target_tokens=800)
    before = handoffs(session)
    session.append(turns(6, 20, times=12))
    result = session.compact(target_tokens=12_000)
    assert result.receipt.summarised == 0
    assert session.view() == result.messages
    assert handoffs(session) == before


class TestPins:
    @pytest.mark.outside  # takes long
    def test_a_message_that_was_summarised_comes_back_with_the_next_compaction(self, session):
        messages = turns(30)
        messages[40]["content"] += f"\n\n{LINES * 4}"  # too long to come back by itself
        session.append(messages)
        session.compact(target_tokens=2_000)
        assert messages[40] not in session.view()
        assert session.pin("m41") is False
        assert messages[40] not in session.view()  # the prefix stays as it is until then
        session.append(turns(10, 30))
        result = session.compact(target_tokens=3_000)
        assert session.view() == result.messages
        assert messages[40] in session.view()
        assert all(40 not in handoff.covers for handoff in handoffs(session))
        session.append(turns(10, 40))
        session.compact(target_tokens=3_000)
        assert messages[40] in session.view()
        assert session.pin("m41") is True
        session.unpin("m41")
        session.append(turns(10, 50))
        session.compact(target_tokens=3_000)
        assert messages[40] not in session.view()
        assert any(40 in handoff.covers for handoff in handoffs(session))
        assert not session.store.faults()

    def test_a_result_comes_back_with_its_call(self, session):
        messages = turns(30)
        session.append(messages)
        session.compact(target_tokens=2_000)
        assert session.pin("m43") is False  # a result
        session.append(turns(10, 30))
        session.compact(target_tokens=3_500)
        view = session.view()
        assert view.index(messages[42]) == view.index(messages[41]) + 1
        assert check(decode_all(DIALECTS["chat"], view), DIALECTS["chat"].rules) == []

    def test_a_message_that_was_shortened_comes_back_whole(self, session):
        messages = turns(12, times=4)
        session.append(messages)
        assert session.compact(target_tokens=8_000).receipt.summarised == 0
        assert messages[10] not in session.view()
        assert session.pin("m11") is False
        session.append(turns(20, 12, times=2))
        result = session.compact(target_tokens=9_000)
        assert session.view() == result.messages
        assert messages[10] in session.view()

    def test_one_that_does_not_fit_is_told(self, session):
        session.append([{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello."}])
        session.append(turns(1, times=30))
        session.append(turns(30, 1))
        session.compact(target_tokens=3_000)
        session.pin("m5")
        session.append(turns(10, 40))
        before = session.view()
        with pytest.raises(TargetTooSmall, match="unpin"):
            session.compact(target_tokens=3_000)
        assert session.view() == before


@pytest.mark.outside
@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@settings(max_examples=12, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(data=st.data())
def test_rounds_in_every_dialect(dialect, data):
    store = open_store("memory:")
    session = Session.create(store, dialect=dialect)
    rules = DIALECTS[dialect].rules
    for number in range(4):
        drawn = json.dumps(data.draw(long_conversations(dialect)))
        given_now = re.sub(r'"call_(\d)', rf'"call{number}_\1', drawn)  # no id is given twice
        if number:
            session.pin(f"m{data.draw(st.integers(1, len(session)))}")
        session.append(json.loads(given_now))
        size = sum(entry.tokens for entry in store.read_from(session.id, 0))
        had = {one.rule for one in check(decode_all(DIALECTS[dialect], session.view()), rules)}
        try:
            result = session.compact(target_tokens=max(600, size // data.draw(st.integers(2, 5))))
        except TargetTooSmall:
            continue
        if result.receipt.outcome == "nothing_to_do" or result.receipt.repaired:
            continue  # a log keeps its faults, such as an id that was given twice; what is returned is mended
        assert session.view() == result.messages
        broken = check(decode_all(DIALECTS[dialect], session.view()), rules)
        assert {one.rule for one in broken} <= had
        for position in store.pins(session.id):
            assert session.original(f"m{position + 1}") in _plain(session.view())
    assert not store.faults()
    store.close()


def _plain(view):
    """The messages of a view; one that a handoff was put in front of, without it, too."""
    return [*view, *(without_handoff(wire) for wire in view if isinstance(wire, dict))]
