"""`compression.system_note`: the system prompt says that earlier turns may be a summary, and nothing else changes."""

from __future__ import annotations

import pytest

import penstock
from penstock.testing.engine_contract import long_conversation
from penstock.writing.handoff import SYSTEM_NOTE

NOTED = {"compression.system_note": True}
TALK = long_conversation()


@pytest.mark.parametrize("target", [1_500, 3_000])
def test_the_system_prompt_of_the_list_gets_the_note_within_the_target(target):
    result = penstock.compress(TALK, target_tokens=target, settings=NOTED)
    assert result.messages[0]["content"] == f"{TALK[0]['content']}\n\n{SYSTEM_NOTE}"
    plain = penstock.compress(result.messages, target_tokens=10**6)
    assert plain.receipt.tokens_before == result.receipt.tokens_after <= target
    assert result.verdicts[0].reason == "system prompt, with a note on compaction"


def test_it_is_added_once():
    first = penstock.compress(TALK, target_tokens=4_000, settings=NOTED).messages
    more = [*first, *TALK[1:]]
    again = penstock.compress(more, target_tokens=3_000, settings=NOTED).messages
    assert again[0] == first[0]
    assert str(again).count(SYSTEM_NOTE) == 1


@pytest.mark.parametrize("talk", [TALK, TALK[1:]])
def test_without_the_setting_or_without_a_system_prompt_there_is_none(talk):
    settings = {} if talk is TALK else NOTED
    result = penstock.compress(talk, target_tokens=3_000, settings=settings)
    assert SYSTEM_NOTE not in str(result.messages)
    assert result.receipt.outcome == "compacted"


def test_where_nothing_is_summarised_nothing_is_noted():
    result = penstock.compress(TALK, target_tokens=10**6, settings=NOTED)
    assert result.messages == TALK
