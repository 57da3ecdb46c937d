"""Calls that have no result yet are looked for in the last turn alone; no older one is ever missed."""

from __future__ import annotations

import pytest
from compaction_claims import claim
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations, conversations

from penstock.config import redactor_of_process
from penstock.conversation.dialects import DIALECTS
from penstock.conversation.pairing import match
from penstock.measure.tokens import tokenizer_for
from penstock.planning.layout import _find_open
from penstock.writing.notebook import Notebook


@pytest.mark.parametrize("kind", [conversations, broken_conversations])
@pytest.mark.parametrize("name", DIALECTS)
@claim(60)
@given(data=st.data())
def test_the_last_turn_has_all_open_calls(name, kind, data):
    wires = data.draw(kind(name))
    end = data.draw(st.integers(0, len(wires)))
    opened = Notebook(tokenizer_for(None), redactor_of_process()).open(wires[:end], DIALECTS[name])
    messages = opened.transcript.messages
    everywhere = {place.message for place in match(messages, DIALECTS[name].pairing).open}
    assert everywhere <= _find_open(opened.transcript)
    assert {place for place in _find_open(opened.transcript) if place not in everywhere} <= {
        place
        for rule in DIALECTS[name].rules
        if hasattr(rule, "open_uses")
        for place in rule.open_uses(messages)
    }
