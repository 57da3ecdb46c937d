"""What the rules promise for every conversation."""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations, conversations

from penstock.conversation.dialects import DIALECTS, decode_all, wire_of
from penstock.conversation.message import Message, Role, Summary, Text, ToolCall, ToolResult
from penstock.conversation.opening import repair
from penstock.conversation.pairing import match
from penstock.conversation.rules import check, legal_cuts

SOME = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
each_dialect = pytest.mark.parametrize("name", tuple(DIALECTS))


@each_dialect
@SOME
@given(data=st.data())
def test_legal_conversations_break_no_rule_and_need_no_repair(name, data):
    dialect = DIALECTS[name]
    messages = decode_all(dialect, data.draw(conversations(name)))
    assert check(messages, dialect.rules) == []
    repaired = repair(messages, dialect)
    assert (repaired.removed, repaired.stubbed, repaired.renamed) == (0, 0, 0)
    assert all(mended is message for mended, message in zip(repaired.messages, messages, strict=True))


@each_dialect
@SOME
@given(data=st.data())
def test_what_is_left_between_two_legal_cuts_is_legal(name, data):
    dialect = DIALECTS[name]
    messages = decode_all(dialect, data.draw(conversations(name)))
    cuts = legal_cuts(messages, dialect.rules)
    assert cuts[0] == 0
    assert cuts[-1] == len(messages)
    assert cuts == sorted(set(cuts))
    # With an empty head the first message is the assembler's choice.
    rules = [rule for rule in dialect.rules if rule.name != "opening"]
    for head in cuts:
        for tail in cuts:
            if head <= tail:
                joined = messages[:head] + messages[tail:]
                assert check(joined, rules if head == 0 else dialect.rules) == []


@each_dialect
@SOME
@given(data=st.data())
def test_every_illegal_cut_has_its_reason(name, data):
    """A cut is refused only where one of the two sides would lose something that belongs to it."""
    dialect = DIALECTS[name]
    messages = decode_all(dialect, data.draw(conversations(name)))
    legal = set(legal_cuts(messages, dialect.rules))
    for cut in range(1, len(messages)):
        if cut in legal:
            continue
        tail = messages[cut:]
        calls = {
            part.call_id for message in messages[:cut] for part in message.parts if isinstance(part, ToolCall)
        }
        splits = any(isinstance(part, ToolResult) and part.call_id in calls for m in tail for part in m.parts)
        opening = all(message.role is Role.SYSTEM for message in messages[:cut])
        bound = type(messages[cut - 1].parts[0]).__name__ == "Reasoning"
        assert splits or opening or bound


@each_dialect
@SOME
@given(data=st.data())
def test_whatever_is_broken_passes_the_check_after_repair(name, data):
    dialect = DIALECTS[name]
    wires = data.draw(broken_conversations(name))
    before = copy.deepcopy(wires)
    messages = decode_all(dialect, wires)
    repaired = repair(messages, dialect)
    assert check(repaired.messages, dialect.rules) == []
    assert wires == before
    again = repair(repaired.messages, dialect)
    assert (again.removed, again.stubbed, again.renamed) == (0, 0, 0)
    originals = {id(message) for message in messages}
    changed = [message for message in repaired.messages if id(message) not in originals]
    counted = repaired.removed + repaired.stubbed + 2 * repaired.renamed
    assert len(changed) <= counted
    if not check(messages, dialect.rules):
        assert counted == 0


@each_dialect
@SOME
@given(data=st.data())
def test_a_repaired_conversation_is_legal_on_the_wire_too(name, data):
    dialect = DIALECTS[name]
    repaired = repair(decode_all(dialect, data.draw(broken_conversations(name))), dialect)
    wires = [dict(wire_of(message, dialect)) for message in repaired.messages]
    again = decode_all(dialect, wires)
    rules = [rule for rule in dialect.rules if rule.name != "alternation"]
    assert check(again, rules) == []


@each_dialect
@SOME
@given(data=st.data())
def test_calls_at_the_end_may_still_run(name, data):
    dialect = DIALECTS[name]
    messages = decode_all(dialect, data.draw(conversations(name)))
    calling = [index for index, message in enumerate(messages) if _calls(message)]
    for index in calling:
        running = messages[: index + 1]
        assert check(running, dialect.rules) == []
        assert index in {place.message for place in match(running, dialect.pairing).open}
        assert repair(running, dialect).stubbed == 0
    assert match(messages, dialect.pairing).open == []


def _calls(message):
    return any(isinstance(part, ToolCall) for part in message.parts)


@pytest.mark.parametrize("name", ["chat", "anthropic", "sharegpt"])
@SOME
@given(data=st.data())
def test_a_handoff_stands_where_can_follow_says(name, data):
    dialect = DIALECTS[name]
    messages = decode_all(dialect, data.draw(conversations(name)))
    cuts = legal_cuts(messages, dialect.rules)
    cut = data.draw(st.sampled_from(cuts))
    previous = messages[cut - 1].role if cut else None
    following = messages[cut].role if cut < len(messages) else None
    for role in (Role.USER, Role.ASSISTANT):
        fits = dialect.can_follow(previous, role) and (following is None or following is not role)
        handoff = Message(role, (Summary("text", 1), Text("more")))
        joined = [*messages[:cut], handoff, *messages[cut:]]
        if fits:
            assert check(joined, dialect.rules) == []
        elif role in (previous, following):
            assert any(violation.rule == "alternation" for violation in check(joined, dialect.rules))
