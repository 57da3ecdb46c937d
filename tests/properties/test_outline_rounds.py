"""What holds for outlines that follow each other while a conversation goes on, in all dialects."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from compaction_claims import RULE, Seen, claim, growing, keep_quick, tokens, told_target
from hypothesis import given
from hypothesis import strategies as st
from outline_claims import DialectEngine, numbers, outline, short_segments

from penstock.errors import TargetTooSmall
from penstock.lossless.outline import children_of
from penstock.planning.plan import Fate

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

__all__ = ["short_segments"]

each_dialect = pytest.mark.parametrize("name", keep_quick("anthropic", "chat"))


class Round(NamedTuple):
    """One compaction: the log up to then, what was given, what came back."""

    log: list
    seen: Seen
    target: int


def rounds(name, portions, share, engine):
    """Each portion is appended to the last view, and all of it is compacted again, until a handoff has no room."""
    log, view = [], []
    for portion in portions:
        log, view = log + portion, view + portion
        target = max(1, int(share * tokens(name, view)))
        try:
            result = engine.compact(view, target_tokens=target)
        except TargetTooSmall as error:
            target = told_target(error)
            result = engine.compact(view, target_tokens=target)
        seen = Seen(name, view, result)
        yield Round(log, seen, target)
        if result.receipt.summarised and not outline(seen):
            return
        view = result.messages


@each_dialect
@claim(5)
@given(data=st.data(), share=st.floats(0.1, 0.9))
def test_every_round_is_legal_and_within_its_target(name, data, share):
    for _, seen, target in rounds(name, data.draw(growing(name)), share, DialectEngine(name)):
        assert seen.tokens == seen.result.receipt.tokens_after <= target
        assert seen.breaches == set()
        assert len(seen.summaries) <= 1


@each_dialect
@claim(5)
@given(data=st.data(), share=st.floats(0.1, 0.9))
def test_in_every_round_the_nodes_hold_every_message_that_is_not_in_the_view(name, data, share):
    for log, seen, _ in rounds(name, data.draw(growing(name)), share, DialectEngine(name)):
        if not outline(seen):
            continue
        told = [number for node in outline(seen) for number in numbers(node)]
        assert len(told) == len(set(told))
        standing = {verdict.number for verdict in seen.result.verdicts if verdict.fate is not Fate.SUMMARISED}
        assert set(told) | standing >= set(range(1, len(log) + 1))
        assert not set(told) & standing


@each_dialect
@claim(5)
@given(data=st.data(), share=st.floats(0.1, 0.9))
def test_a_node_that_stays_keeps_its_text_and_its_messages(name, data, share):
    before = {}
    for _, seen, _ in rounds(name, data.draw(growing(name)), share, DialectEngine(name)):
        nodes = {node.handles: node for node in outline(seen)}
        for handles, node in nodes.items():
            known = before.get(handles)
            if known is not None:
                assert node.runs == known.runs
                assert node.text in {known.text, ""}
        assert_parents_hold_their_children(before, nodes)
        before = nodes


def assert_parents_hold_their_children(before, nodes):
    for (handle,), node in ((handles, node) for handles, node in nodes.items() if len(handles) == 1):
        inside = [before[(child,)] for child in children_of(handle) if (child,) in before]
        for child in inside:
            assert set(numbers(child)) <= set(numbers(node))


@each_dialect
@claim(5)
@given(data=st.data(), share=st.floats(0.1, 0.9))
def test_from_the_nodes_in_the_view_every_original_can_be_reached_by_opening_them(name, data, share):
    engine = DialectEngine(name)
    for log, seen, _ in rounds(name, data.draw(growing(name)), share, engine):
        history = engine._recollection.history
        for node in outline(seen):
            reached = set()
            for handle in node.handles:
                reached |= messages_below(history, f"n{handle}")
            assert reached == set(numbers(node))
            for number in reached:
                assert engine.original(f"m{number}") == log[number - 1]


def messages_below(history, handle):
    """The messages that are found by looking at what is inside, again and again."""
    if handle.startswith("m"):
        return {int(handle[1:])}
    inside = history.describe(handle).inside
    return set().union(*(messages_below(history, one) for one in inside))


@each_dialect
@claim(5)
@given(data=st.data(), share=st.floats(0.3, 0.9))
def test_what_the_user_forbade_at_the_start_survives_every_round(name, data, share):
    for _, seen, target in rounds(name, data.draw(growing(name)), share, DialectEngine(name)):
        left = target - sum(verdict.tokens_after for verdict, _ in seen.standing)
        if seen.result.receipt.summarised and left < 300:
            return  # a line of constraints does not fit its share of so short a handoff
        assert RULE in " ".join(seen.text.split())
