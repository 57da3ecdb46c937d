"""What holds over several compactions of one conversation that goes on, and for messages that are pinned."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from compaction_claims import (
    RULE,
    Case,
    Seen,
    cases,
    claim,
    decoded,
    growing,
    is_quoted,
    keep_quick,
    quotable,
    spoken,
    tokens,
    told_target,
)
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import redactor_of_process
from penstock.engine.compress import CompressRequest, compress_list
from penstock.engine.compressor import ContextCompressor
from penstock.errors import TargetTooSmall
from penstock.measure.tokens import tokenizer_for
from penstock.writing.handoff import HandoffSection
from penstock.writing.notebook import Notebook

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

each_dialect = pytest.mark.parametrize("name", keep_quick("anthropic", "chat"))


class Round(NamedTuple):
    """One compaction: the log up to then, what was given, what came back."""

    log: list
    seen: Seen
    target: int


def rounds(name, portions, share):
    """Each portion is appended to the last result, and all of it is compacted again.

    It ends where a target left no room for a handoff: without its mark a list does not say what is gone.
    """
    notebook = Notebook(tokenizer_for(None), redactor_of_process())
    log, view = [], []
    for portion in portions:
        log, view = log + portion, view + portion
        target = max(1, int(share * tokens(name, view)))
        try:
            result = compress_list(view, CompressRequest(target_tokens=target, dialect=name), notebook)
        except TargetTooSmall as error:
            target = told_target(error)
            result = compress_list(view, CompressRequest(target_tokens=target, dialect=name), notebook)
        seen = Seen(name, view, result)
        yield Round(log, seen, target)
        if result.receipt.summarised and not seen.summaries:
            return
        view = result.messages


@each_dialect
@claim(8)
@given(data=st.data(), share=st.floats(0.1, 0.9))
def test_every_round_is_legal_and_within_its_target(name, data, share):
    for _, seen, target in rounds(name, data.draw(growing(name)), share):
        assert seen.tokens == seen.result.receipt.tokens_after <= target
        assert seen.breaches == set()


@each_dialect
@claim(8)
@given(data=st.data(), share=st.floats(0.1, 0.9))
def test_no_round_leaves_more_than_one_handoff_or_one_inside_another(name, data, share):
    for _, seen, _ in rounds(name, data.draw(growing(name)), share):
        assert len(seen.summaries) <= 1
        assert all("<penstock-handoff" not in summary.text for summary in seen.summaries)


@each_dialect
@claim(8)
@given(data=st.data(), share=st.floats(0.1, 0.9))
def test_a_number_names_the_same_message_in_every_round(name, data, share):
    for log, seen, _ in rounds(name, data.draw(growing(name)), share):
        number_of = {id(wire): at for at, wire in enumerate(log, start=1)}
        named = {
            handle: seen.result.original(handle) for handle in seen.result.handles if handle != "handoff"
        }
        for handle, wire in named.items():
            assert id(wire) not in number_of or handle == f"m{number_of[id(wire)]}"
        untouched = {id(wire) for wire in seen.wires} & number_of.keys()
        assert untouched <= {id(wire) for wire in named.values()}
        assert all(1 <= entry.number <= len(log) for entry in seen.entries)


@each_dialect
@claim(8)
@given(data=st.data(), share=st.floats(0.1, 0.9))
def test_what_later_handoffs_quote_still_stands_in_the_messages_they_name(name, data, share):
    """As it was said first, or as the view of a later round told it: in a stub, or in the handoff before."""
    said = {}
    for log, seen, _ in rounds(name, data.draw(growing(name)), share):
        for handle in seen.result.handles:
            if handle != "handoff":
                said.setdefault(int(handle[1:]), []).extend(quotable(name, seen.result.original(handle)))
        for entry in seen.entries:
            if entry.section is HandoffSection.CONTEXT:
                texts = [*quotable(name, log[entry.number - 1]), *said.get(entry.number, ())]
                for line in entry.text.split("\n"):
                    assert is_quoted(line, texts), (entry.number, line)
        for entry in seen.entries:
            said.setdefault(entry.number, []).append(entry.text)


@each_dialect
@claim(8)
@given(data=st.data(), share=st.floats(0.3, 0.9))
def test_what_the_user_forbade_at_the_start_survives_every_round(name, data, share):
    for _, seen, target in rounds(name, data.draw(growing(name)), share):
        left = target - sum(verdict.tokens_after for verdict, _ in seen.standing)
        if seen.result.receipt.summarised and left < 300:
            return  # a line of constraints does not fit its share of so short a handoff
        assert RULE in " ".join(seen.text.split())


@claim(10)
@given(data=st.data(), share=st.floats(0.1, 0.9))
def test_an_engine_gives_back_every_original_of_every_round(data, share):
    engine = ContextCompressor()
    log, view = [], []
    for portion in data.draw(growing("chat")):
        log, view = log + portion, view + portion
        try:
            result = engine.compact(view, target_tokens=max(1, int(share * tokens("chat", view))))
        except TargetTooSmall as error:
            result = engine.compact(view, target_tokens=told_target(error))
        for number, wire in enumerate(log, start=1):
            assert engine.original(f"m{number}") == wire
        if result.receipt.summarised and not Seen("chat", view, result).summaries:
            return
        view = result.messages


@each_dialect
@claim(8)
@given(data=st.data(), shares=st.lists(st.floats(0.3, 0.9), min_size=2, max_size=3))
def test_a_result_can_be_compacted_further_and_further(name, data, shares):
    case = data.draw(cases(name, shares=(0.6, 0.9)))
    log, view = case.wires, case.wires
    target = case.target
    for share in shares:
        try:
            seen = Case(name, view, target).fitting()
        except TargetTooSmall:
            return
        assert seen.tokens <= seen.result.receipt.target_tokens
        assert seen.breaches == set()
        assert len(seen.summaries) <= 1
        for entry in seen.entries:
            assert 1 <= entry.number <= len(log)
        view, target = seen.result.messages, max(1, int(share * seen.tokens))


@each_dialect
@claim(12)
@given(data=st.data())
def test_pinned_messages_are_kept_whole(name, data):
    case = data.draw(cases(name, shares=(0.05, 0.9)))
    numbers = st.integers(1, len(case.wires))
    pins = data.draw(st.frozensets(numbers, min_size=1, max_size=3))
    seen = case.fitting(pins=pins)
    assert seen.tokens <= seen.result.receipt.target_tokens
    assert seen.breaches == set()
    standing = {verdict.number: (verdict, wire) for verdict, wire in seen.standing}
    for number in pins:
        verdict, wire = standing[number]
        assert wire is case.wires[number - 1] or "handoff stands in front" in verdict.reason
        assert_says_all(name, wire, case.wires[number - 1])


def assert_says_all(name, wire, pinned):
    said = "\n".join(spoken(decoded(name, [wire])[0]))
    for text in spoken(decoded(name, [pinned])[0]):
        assert text in said


@claim(8)
@given(data=st.data(), share=st.floats(0.1, 0.9))
def test_a_message_that_is_pinned_once_stays_in_every_round(data, share):
    portions = data.draw(growing("chat"))
    engine = ContextCompressor()
    engine.pins.add(data.draw(st.integers(1, len(portions[0]))))
    pinned = portions[0][next(iter(engine.pins)) - 1]
    saying = "\n".join(spoken(decoded("chat", [pinned])[0]))
    view = []
    for portion in portions:
        view = view + portion
        try:
            result = engine.compact(view, target_tokens=max(1, int(share * tokens("chat", view))))
        except TargetTooSmall as error:
            result = engine.compact(view, target_tokens=told_target(error))
        seen, view = Seen("chat", view, result), result.messages
        assert any(saying in "\n".join(spoken(message)) for message in decoded("chat", view))
        if result.receipt.summarised and not seen.summaries:
            return
