"""Any conversation of any item and block types: legal, within its target or one error, the same every time."""

from __future__ import annotations

import copy
import json
import random
from itertools import pairwise

import pytest
from compaction_claims import claim, tokens, told_target
from hypothesis import given
from tests.strategies.items import SECRET, build_case, item_cases, sample_block, sample_item
from tests.strategies.legality import refusals

from penstock.conversation.dialects import DIALECTS
from penstock.conversation.dialects.wire_kinds import ANTHROPIC_BLOCKS, RESPONSES_ITEMS
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


def has_neighbours(wires):
    """Two turns of one speaker in a row, which many servers behind the chat dialect refuse."""
    roles = [wire["role"] for wire in wires]
    return any(one == other and one in {"user", "assistant"} for one, other in pairwise(roles))


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
    if (room := result.receipt.room) is not None:
        assert sum(room.parts.values()) == result.receipt.tokens_after
    if case.dialect == "chat" and not has_neighbours(case.wires):
        assert not has_neighbours(result.messages)
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


@pytest.mark.parametrize(
    ("dialect", "seed", "share"),
    [
        ("responses", 18567, 0.8),  # calls without a result before a provider's compaction
        (
            "anthropic",
            49930,
            0.15,
        ),  # an item that must stay, said by the assistant, before a provider's compaction
        ("anthropic", 49930, 0.05),
        ("anthropic", 7714, 0.05),  # a provider's compaction and an open call in one message, then more words
        *(("chat", seed, 0.4) for seed in range(12)),  # messages brought back beside others of the same role
    ],
)
def test_what_a_soak_has_found(dialect, seed, share):
    check_case(build_case(dialect, seed, share))


@pytest.mark.parametrize("target", [200, 400, 600, 1_000])
def test_nothing_of_ours_stands_behind_an_open_call_beside_a_compaction_of_the_provider(target):
    """A handoff would have to stand behind the one, and may not stand behind the other."""
    words = "The importer fails on line 7. " * 40
    wires = [{"role": role, "content": words} for role in ("user", "assistant") * 6]
    call = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"line": 7}}
    wires += [
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": [{"type": "compaction", "content": SECRET + "x" * 300}, call]},
        {"role": "assistant", "content": words * 5},
        {"role": "assistant", "content": "Fine."},
    ]
    result = compress_list(wires, CompressRequest(target_tokens=target, dialect="anthropic"))
    assert refusals("anthropic", wires, result.messages) == []
    assert result.receipt.tokens_after <= target
    assert call in result.messages[1]["content"]
    assert {wire["role"] for wire in result.messages[1:]} == {"assistant"}


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
