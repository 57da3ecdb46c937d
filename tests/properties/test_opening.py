"""What `open_list` makes of any list, and that it says truly where each message came from."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations, conversations

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Role, Summary
from penstock.conversation.opening import (
    MendAction,
    holds_handoff,
    mend_wires,
    open_list,
    repair,
    without_handoff,
)
from penstock.conversation.rules import check
from penstock.conversation.view import wire_text

SOME = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
each_dialect = pytest.mark.parametrize("name", tuple(DIALECTS))


@st.composite
def lists(draw, name):
    """Legal, broken, and with handoffs of earlier compactions merged into messages or standing alone."""
    dialect = DIALECTS[name]
    wires = draw(st.one_of(conversations(name), broken_conversations(name)))
    for _ in range(draw(st.integers(0, 2))):
        text = wire_text(Summary("what happened", draw(st.sampled_from([1, 2])), {"after": "1 7-8 30+"}))
        at = draw(st.integers(0, len(wires)))
        if at < len(wires) and draw(st.booleans()):
            try:
                wires = [*wires[:at], dialect.prepend_text(dialect.decode(wires[at]), text), *wires[at + 1 :]]
            except ValueError:
                continue  # a call of Responses carries no text
        else:
            role = draw(st.sampled_from([Role.USER, Role.ASSISTANT]))
            wires = [*wires[:at], dialect.text_message(role, text), *wires[at:]]
    return wires


def opened_of(wires, dialect, **options):
    return open_list([dialect.decode(wire) for wire in wires], wires, dialect, **options)


@each_dialect
@SOME
@given(data=st.data())
def test_what_can_be_sent_keeps_every_object_that_needed_no_mending(name, data):
    dialect, wires = DIALECTS[name], [dict(wire) for wire in data.draw(lists(name))]
    sent = mend_wires(wires, dialect)
    assert check(decode_all(dialect, [one.wire for one in sent]), dialect.rules) == []
    places = [one.place for one in sent if one.place is not None]
    assert places == sorted(set(places))
    assert all(one.wire is wires[one.place] for one in sent if one.place is not None)
    if not check(decode_all(dialect, wires), dialect.rules):
        assert places == list(range(len(wires)))


@each_dialect
@SOME
@given(data=st.data())
def test_it_says_of_each_message_where_it_came_from_and_what_was_mended(name, data):
    dialect, wires = DIALECTS[name], data.draw(lists(name))
    opened = opened_of(wires, dialect)
    sources = [source for source in opened.sources if source is not None]
    assert sources == sorted(set(sources))
    assert set(sources) | set(opened.removed) == set(range(len(wires)))
    assert set(sources).isdisjoint(opened.removed)
    assert all(mend.reason for mend in opened.mends)
    assert check(opened.messages, [rule for rule in dialect.rules if rule.name != "alternation"]) == []
    for place, (message, origin, source) in enumerate(
        zip(opened.messages, opened.origins, opened.sources, strict=True)
    ):
        if place in opened.added:
            assert (source, origin) == (None, None)
        elif source is None:
            assert any(isinstance(part, Summary) for part in message.parts)
        elif place not in opened.changed:
            merged = len(dialect.decode(wires[source]).parts) > 1 and holds_handoff(
                dialect.decode(wires[source])
            )
            assert origin == (without_handoff(wires[source]) if merged else wires[source])


@each_dialect
@SOME
@given(data=st.data())
def test_an_earlier_list_changes_nothing(name, data):
    dialect, wires = DIALECTS[name], data.draw(lists(name))
    messages = [dialect.decode(wire) for wire in wires]
    earlier = None
    for end in sorted(data.draw(st.lists(st.integers(0, len(wires)), max_size=4))):
        earlier = open_list(messages[:end], wires[:end], dialect, find_cuts=True, earlier=earlier)
    mine = open_list(messages, wires, dialect, find_cuts=True, earlier=earlier)
    fresh = open_list(messages, wires, dialect, find_cuts=True)
    assert [(m.role, m.parts) for m in mine.messages] == [(m.role, m.parts) for m in fresh.messages]
    assert list(mine.origins) == list(fresh.origins)
    assert list(mine.sources) == list(fresh.sources)
    assert (mine.cuts, mine.mends, mine.repairs) == (fresh.cuts, fresh.mends, fresh.repairs)


@each_dialect
@SOME
@given(data=st.data())
def test_repair_says_what_it_did_with_each_message(name, data):
    dialect = DIALECTS[name]
    messages = decode_all(dialect, data.draw(lists(name)))
    repaired = repair(messages, dialect)
    noted = {(mend.action, mend.source, mend.place) for mend in repaired.mends}
    found = {(MendAction.REMOVED, index, None) for index in set(range(len(messages))) - set(repaired.sources)}
    for place, (message, source) in enumerate(zip(repaired.messages, repaired.sources, strict=True)):
        if source is None:
            found.add((MendAction.ADDED, None, place))
        elif message is not messages[source]:
            found.add((MendAction.CHANGED, source, place))
    assert noted == found
