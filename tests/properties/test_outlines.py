"""What holds for every handoff that is an outline, in all dialects."""

from __future__ import annotations

import pytest
from compaction_claims import cases, claim, decoded, keep_quick, last_request, spoken, told_target
from hypothesis import given
from hypothesis import strategies as st
from outline_claims import OUTLINED, DialectEngine, numbers, outline, short_segments
from tests.strategies.conversations import broken_conversations, conversations
from tests.strategies.long_sessions import long_conversations

from penstock.errors import TargetTooSmall
from penstock.lossless.outline import children_of, parse_outline, render_outline, spot_of
from penstock.planning.plan import Fate
from penstock.writing.handoff import HandoffSection, parse_handoff

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

__all__ = ["short_segments"]

each_dialect = pytest.mark.parametrize("name", keep_quick("anthropic", "chat"))


@pytest.mark.parametrize("kind", [conversations, broken_conversations, long_conversations])
@each_dialect
@claim(6)
@given(data=st.data())
def test_a_result_is_legal_and_within_its_target_or_one_error_names_a_target_that_works(name, kind, data):
    case = data.draw(cases(name, kind))
    target = case.target
    try:
        seen = case.compress(make_writer=OUTLINED)
    except TargetTooSmall as error:
        target = told_target(error)
        seen = case.compress(target, make_writer=OUTLINED)
    assert seen.tokens == seen.result.receipt.tokens_after <= target
    assert seen.breaches == set()


@each_dialect
@claim(6)
@given(data=st.data())
def test_the_last_request_stands_in_the_result_as_it_was_said(name, data):
    case = data.draw(cases(name, shares=(0.2, 0.9)))
    place = last_request(name, case.wires)
    seen = case.fitting(make_writer=OUTLINED)
    verdict = seen.result.verdicts[place]
    if verdict.fate is Fate.KEPT:
        words = "\n".join(spoken(decoded(name, case.wires)[place]))
        assert any(words == "\n".join(spoken(message)) for message in seen.messages)
    else:  # it was too large for the target, or the handoff stands in front of it
        assert verdict.fate is Fate.ELIDED


@each_dialect
@claim(6)
@given(data=st.data())
def test_every_message_that_is_gone_is_below_one_node_of_the_outline(name, data):
    seen = data.draw(cases(name)).fitting(make_writer=OUTLINED)
    gone = [verdict.number for verdict in seen.result.verdicts if verdict.fate is Fate.SUMMARISED]
    if seen.summaries and "## Outline" in seen.text:
        told = [number for node in outline(seen) for number in numbers(node)]
        assert sorted(told) == sorted(gone)


@each_dialect
@claim(5)
@given(data=st.data())
def test_the_same_conversation_gives_the_same_outline_and_a_result_is_not_made_smaller_again(name, data):
    case = data.draw(cases(name))
    first, second = (case.fitting(make_writer=OUTLINED).result for _ in range(2))
    assert first.messages == second.messages
    again = DialectEngine(name).compact(first.messages, target_tokens=first.receipt.target_tokens)
    assert again.receipt.outcome == "nothing_to_do"
    assert again.messages == first.messages


@each_dialect
@claim(5)
@given(data=st.data())
def test_an_outline_reads_back_as_it_was_written(name, data):
    seen = data.draw(cases(name)).fitting(make_writer=OUTLINED)
    for summary in seen.summaries:
        nodes = parse_outline(summary.text)
        assert render_outline(nodes) in summary.text
        quoted = [entry for entry in parse_handoff(summary.text) if entry.section is HandoffSection.CONTEXT]
        told = "\n".join(node.text for node in nodes)
        for entry in quoted:
            if entry.number in {number for node in nodes for number in numbers(node)}:
                assert all(line in told for line in entry.text.split("\n"))


@claim(30)
@given(st.integers(1, 1 << 40))
def test_the_place_of_a_node_follows_from_its_handle(handle):
    level, ordinal = spot_of(handle)
    assert level >= 0
    assert ordinal >= 0
    for child in children_of(handle):
        assert child < handle
        assert spot_of(child).level == level - 1
