"""Any conversation of any item and block types: legal, within its target or one error, the same every time."""

from __future__ import annotations

import copy
import json
import random

import pytest
from compaction_claims import claim, tokens, told_target
from hypothesis import given
from tests.strategies.items import SECRET, item_cases, sample_block, sample_item
from tests.strategies.legality import refusals

from penstock.conversation.dialects import DIALECTS
from penstock.conversation.dialects.protocol import ANTHROPIC_BLOCKS, RESPONSES_ITEMS
from penstock.engine.compress import CompressRequest, compress_list
from penstock.errors import TargetTooSmall

# The parts that an error may name: docs/concepts/how-it-compacts.md lists them.
UNAVOIDABLE = {
    "system prompt",
    "open calls",
    "last user message",
    "items that the provider needs",
    "messages that belong to these",
}


def compress(case, target):
    return compress_list(case.wires, CompressRequest(target_tokens=target, dialect=case.dialect))


def check_case(case):
    before = copy.deepcopy(case.wires)
    refused = set()
    target = max(60, int(case.share * tokens(case.dialect, case.wires)))
    try:
        result = compress(case, target)
    except TargetTooSmall as error:
        refused = set(error.parts)
        target = told_target(error)
        result = compress(case, target)
    assert refused <= UNAVOIDABLE
    assert case.wires == before
    said = json.dumps(result.messages, ensure_ascii=False)
    assert refusals(case.dialect, case.wires, result.messages) == []
    assert tokens(case.dialect, result.messages) == result.receipt.tokens_after <= target
    ours = [wire for wire in result.messages if not any(wire is one for one in case.wires)]
    for wire in ours:
        if "penstock-handoff" in (text := json.dumps(wire, ensure_ascii=False)):
            handoff = text.split("</penstock-handoff")[0].split("penstock-handoff", 1)[1]
            assert SECRET not in handoff
    again = compress(case, target)
    assert json.dumps(again.messages, ensure_ascii=False) == said


@given(item_cases("responses"))
@claim(20)
def test_responses_items(case):
    check_case(case)


@given(item_cases("anthropic"))
@claim(15)
def test_anthropic_blocks(case):
    check_case(case)


@given(item_cases("chat"))
@claim(10)
def test_chat_messages(case):
    check_case(case)


@pytest.mark.parametrize("name", RESPONSES_ITEMS)
def test_every_item_comes_back_as_it_came(name):
    item = sample_item(name, random.Random(1))
    message = DIALECTS["responses"].decode(item)
    assert message.parts
    assert DIALECTS["responses"].rewrite(message, {}) == item


@pytest.mark.parametrize("name", ANTHROPIC_BLOCKS)
def test_every_block_comes_back_as_it_came(name):
    wire = {"role": "user", "content": [sample_block(name, random.Random(1))]}
    message = DIALECTS["anthropic"].decode(wire)
    assert message.parts
    assert DIALECTS["anthropic"].rewrite(message, {}) == wire
