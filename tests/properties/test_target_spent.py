"""A target that was granted is spent: to 95 % or more, or until no message that is out would fit."""

from __future__ import annotations

from itertools import pairwise

import pytest
from compaction_claims import NAMES, cases, claim, decoded
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.conversations import conversations
from tests.strategies.long_sessions import long_conversations

from penstock.conversation.dialects import DIALECTS
from penstock.conversation.message import Summary
from penstock.conversation.rules import legal_cuts
from penstock.planning.plan import Fate

SHARES = (0.3, 0.95)
SPENT = 0.95

each_dialect = pytest.mark.parametrize("name", NAMES)
each_kind = pytest.mark.parametrize("kind", [conversations, long_conversations])


def sizes_to_come_back(seen):
    """How many tokens more the view has with each message that is out, and those that it may not be parted from."""
    cuts = legal_cuts(decoded(seen.name, seen.wires), DIALECTS[seen.name].rules)
    for start, end in pairwise(cuts):
        out = [verdict for verdict in seen.result.verdicts[start:end] if verdict.fate is Fate.SUMMARISED]
        if out:
            yield sum(verdict.tokens_before for verdict in out)


@each_kind
@each_dialect
@claim(16)
@given(data=st.data())
def test_a_target_is_spent_or_no_message_that_is_out_would_fit(name, kind, data):
    seen = data.draw(cases(name, kind, SHARES)).fitting()
    receipt = seen.result.receipt
    left = receipt.target_tokens - receipt.tokens_after
    if receipt.outcome == "nothing_to_do" or left <= (1 - SPENT) * receipt.target_tokens:
        return
    assert all(size > left for size in sizes_to_come_back(seen))


@each_kind
@each_dialect
@claim(16)
@given(data=st.data())
def test_while_much_is_unspent_no_message_is_shortened_that_would_fit_whole(name, kind, data):
    seen = data.draw(cases(name, kind, SHARES)).fitting()
    receipt = seen.result.receipt
    left = receipt.target_tokens - receipt.tokens_after
    if left <= (1 - SPENT) * receipt.target_tokens:
        return
    standing = decoded(name, [wire for _, wire in seen.standing])
    for (verdict, _), message in zip(seen.standing, standing, strict=True):
        if verdict.fate is Fate.ELIDED and not any(isinstance(part, Summary) for part in message.parts):
            assert verdict.tokens_before - verdict.tokens_after > left
