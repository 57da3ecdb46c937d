"""What holds for every compaction, whatever the conversation, the dialect and the target."""

from __future__ import annotations

import copy
import json

import pytest
from compaction_claims import NAMES, Case, cases, claim, decoded, last_request, spoken, tokens, told_target
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations, conversations
from tests.strategies.long_sessions import long_conversations

from penstock.conversation.document import read_document
from penstock.conversation.message import Summary
from penstock.engine.compress import CompressRequest, compress_document, compress_list
from penstock.engine.compressor import ContextCompressor
from penstock.errors import TargetTooSmall
from penstock.planning.plan import Fate

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

each_dialect = pytest.mark.parametrize("name", NAMES)
each_kind = pytest.mark.parametrize("kind", [conversations, broken_conversations, long_conversations])


@each_kind
@each_dialect
@claim(14)
@given(data=st.data())
def test_a_result_is_legal_and_within_its_target_or_one_error_names_a_target_that_works(name, kind, data):
    case = data.draw(cases(name, kind))
    target = case.target
    try:
        seen = case.compress()
    except TargetTooSmall as error:
        target = told_target(error)
        seen = case.compress(target)
        assert_names_its_parts(case, error)
    assert seen.tokens == seen.result.receipt.tokens_after <= target
    if (room := seen.result.receipt.room) is not None:
        assert sum(room.parts.values()) == seen.tokens
    assert seen.breaches == set()


def assert_names_its_parts(case, error):
    assert error.target_tokens == case.target < told_target(error)
    assert error.parts
    assert all(f"{part} {size:,}" in str(error) for part, size in error.parts.items())
    with pytest.raises(TargetTooSmall):  # what is named is the least: one token less does not do
        case.compress(told_target(error) - 1)


@each_dialect
@claim(10)
@given(data=st.data())
def test_every_result_has_its_call_and_every_batch_stays_together(name, data):
    seen = data.draw(cases(name)).fitting()
    fates = {verdict.position: verdict.fate for verdict in seen.result.verdicts}
    gone = {at for at, fate in fates.items() if fate is Fate.SUMMARISED}
    called = {}
    for at, message in enumerate(decoded(name, seen.wires)):
        for part in message.parts:
            call_id = getattr(part, "call_id", None)
            if call_id:
                called.setdefault(call_id, set()).add(at)
    for places in called.values():
        assert places <= gone or not places & gone


@each_dialect
@claim(14)
@given(data=st.data())
def test_the_last_request_stands_in_the_result_as_it_was_said(name, data):
    case = data.draw(cases(name))
    seen = case.fitting()
    place = last_request(name, case.wires)
    verdict, wire = next(pair for pair in seen.standing if pair[0].position == place)
    before, after = (decoded(name, [one])[0] for one in (case.wires[place], wire))
    if verdict.fate is Fate.KEPT:
        assert wire is case.wires[place]
        return
    said, kept = "\n".join(spoken(before)), "\n".join(spoken(after))
    if said in kept:  # whole, beside a handoff
        return
    others = sum(other.tokens_after for other, _ in seen.standing if other is not verdict)
    assert verdict.tokens_before + others > seen.result.receipt.target_tokens, "it would have fitted"
    assert f"m{verdict.number}" in kept
    for text in spoken(after):
        head, mark, tail = text.partition(f"[… all of it: m{verdict.number} …]")
        assert not mark or (head.strip().rstrip("…") in said and tail.strip().lstrip("…") in said)


@each_dialect
@claim(10)
@given(data=st.data())
def test_what_is_kept_is_the_callers_own_objects_in_their_order(name, data):
    case = data.draw(cases(name))
    seen = case.fitting()
    positions = [verdict.position for verdict, _ in seen.standing]
    assert positions == sorted(positions)
    for verdict, wire in seen.standing:
        if verdict.fate is Fate.KEPT:
            assert wire is case.wires[verdict.position]


@each_dialect
@claim(8)
@given(data=st.data(), spaced=st.booleans())
def test_what_is_kept_of_a_document_has_the_same_bytes(name, data, spaced):
    case = data.draw(cases(name))
    written = json.dumps(case.wires, indent=1 if spaced else None, ensure_ascii=spaced).encode()
    document = read_document(written, name)
    try:
        result = compress_document(document, CompressRequest(target_tokens=case.target))
    except TargetTooSmall as error:
        result = compress_document(document, CompressRequest(target_tokens=told_target(error)))
    again = read_document(document.with_messages(result.messages), name)
    assert (
        again.wires
        == compress_list(
            case.wires, CompressRequest(target_tokens=result.receipt.target_tokens, dialect=name)
        ).messages
    )
    left = [verdict for verdict in result.verdicts if verdict.fate is not Fate.SUMMARISED]
    kept = [document.raws[verdict.position] for verdict in left if verdict.fate is Fate.KEPT]
    standing = iter(again.raws)
    assert all(raw in standing for raw in kept), "in this order"


@each_dialect
@claim(6)
@given(data=st.data())
def test_the_same_conversation_gives_the_same_result(name, data):
    case = data.draw(cases(name))
    first = case.fitting().result
    second = Case(name, copy.deepcopy(case.wires), case.target).fitting().result
    assert first.messages == second.messages
    assert first.verdicts == second.verdicts
    assert {**first.receipt.to_dict(), "seconds": 0} == {**second.receipt.to_dict(), "seconds": 0}


@claim(6)
@given(data=st.data())
def test_an_engine_that_has_seen_other_conversations_gives_what_a_fresh_one_gives(data):
    engine = ContextCompressor()
    for _ in range(2):
        case = data.draw(cases("chat", shares=(0.2, 0.9)))
        try:
            fresh = ContextCompressor().compact(case.wires, target_tokens=case.target)
        except TargetTooSmall:
            continue
        used = engine.compact(copy.deepcopy(case.wires), target_tokens=case.target)
        assert used.messages == fresh.messages
        assert used.verdicts == fresh.verdicts


@each_kind
@each_dialect
@claim(7)
@given(data=st.data())
def test_compacting_a_result_again_at_the_same_target_changes_nothing(name, kind, data):
    case = data.draw(cases(name, kind))
    seen = case.fitting()
    receipt = seen.result.receipt
    # It weighs what its receipt says, to the token.
    for target in (receipt.target_tokens, max(1, receipt.tokens_after)):
        again = Case(name, seen.result.messages, target).compress()
        assert again.result.messages == seen.result.messages
        assert again.result.receipt.outcome == "nothing_to_do"


@each_kind
@each_dialect
@claim(5)
@given(data=st.data())
def test_what_is_given_is_never_changed(name, kind, data):
    case = data.draw(cases(name, kind))
    before = copy.deepcopy(case.wires)
    result = case.fitting().result
    assert case.wires == before
    for handle in result.handles:
        result.original(handle)
    assert case.wires == before


@each_dialect
@claim(10)
@given(data=st.data())
def test_every_message_that_is_not_kept_is_reachable_by_its_handle(name, data):
    case = data.draw(cases(name))
    seen = case.fitting()
    assert [verdict.position for verdict in seen.result.verdicts] == list(range(len(case.wires)))
    for verdict in seen.result.verdicts:
        assert verdict.number == verdict.position + 1
        assert seen.result.original(f"m{verdict.number}") is case.wires[verdict.position]
    for entry in seen.entries:
        assert f"m{entry.number}" in seen.result.handles
    summarised = [case.wires[v.position] for v in seen.result.verdicts if v.fate is Fate.SUMMARISED]
    if summarised:
        assert seen.result.original("handoff") == summarised


@each_dialect
@claim(12)
@given(data=st.data())
def test_every_part_that_was_rewritten_names_its_message(name, data):
    seen = data.draw(cases(name)).fitting()
    before = decoded(name, seen.wires)
    standing = seen.standing
    after = decoded(name, [wire for _, wire in standing])
    for (verdict, _), message in zip(standing, after, strict=True):
        as_given = "\n".join(spoken(before[verdict.position]))
        for part, text in zip(message.parts, spoken(message), strict=True):
            if not isinstance(part, Summary) and text.strip() not in as_given:
                assert f"m{verdict.number}" in text


@each_dialect
@claim(8)
@given(data=st.data())
def test_the_counts_of_a_receipt_add_up(name, data):
    case = data.draw(cases(name))
    receipt = case.fitting().result.receipt
    assert receipt.kept + receipt.elided + receipt.summarised == receipt.messages_before == len(case.wires)
    assert receipt.tokens_before == tokens(name, case.wires)
    assert receipt.tokens_after < receipt.tokens_before or receipt.outcome == "nothing_to_do"
    assert receipt.facts_struck == receipt.model_calls == 0
