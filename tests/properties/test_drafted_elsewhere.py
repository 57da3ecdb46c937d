"""A compaction that another process works out is the one that this process would have made."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.gateway.near_compactor import NearCompactor
from tests.strategies.long_sessions import long_conversations

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.rules import check
from penstock.gateway.conversations import Conversations
from penstock.gateway.orders import Fit, Fitted, Open, Outside, Write, WrittenHandoff
from penstock.settings import settings_from
from penstock.stores.store import open_store

FEW = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
_COUNT = itertools.count()


def request_ends(dialect_name, wires):
    dialect = dialect_named(dialect_name)
    return [
        end for end in range(2, len(wires) + 1) if not check(decode_all(dialect, wires[:end]), dialect.rules)
    ]


async def compact_each(url, compactor, dialect, mode, messages, steps):
    """Sends a conversation up to each end, with its target; returns all that the gateway is told, and what is stored."""
    given = settings_from({"store.url": url, "model.context_length": 8_000})
    conversations = Conversations(given, compactor=compactor)
    told = []
    opened = await conversations.carry_out(
        Open(
            owner="ann",
            dialect=dialect,
            endpoint="https://api.example/v1",
            store=mode,
            messages=tuple(messages[: steps[0][0]]),
            outside=Outside(model="claude-sonnet-4-5", marked_ttl="5m"),
        )
    )
    known = steps[0][0]
    for end, target in steps:
        answer = await conversations.carry_out(
            Fit(
                conversation=opened.conversation,
                length=known,
                messages=tuple(messages[known:end]),
                outside=None,
                target_tokens=target,
            )
        )
        assert isinstance(answer, Fitted), answer
        known = end
        told.append((answer.prefix, answer.standing, answer.compacted, answer.notice))
    written = await conversations.carry_out(
        Write(conversation=opened.conversation, target_tokens=max(200, steps[-1][1]))
    )
    assert isinstance(written, WrittenHandoff), written
    told.append((written.text, written.tokens_before))
    await conversations.aclose()
    store = open_store(url)
    kept = [
        (
            row.compaction.pieces,
            {**row.receipt, "seconds": 0},
            [(one.text, one.position) for one in store.facts(head.tip.id)],
        )
        for head in store.list()
        for row in store.compactions(head.tip.id)
    ]
    store.close()
    return told, kept


@pytest.mark.parametrize("dialect", ["chat", "anthropic", "responses"])
@FEW
@given(data=st.data())
def test_it_is_the_same_to_the_last_byte(dialect, data, tmp_path_factory):
    wires = data.draw(long_conversations(dialect))
    ends = request_ends(dialect, wires)
    few = data.draw(st.lists(st.sampled_from(ends), min_size=1, max_size=3, unique=True).map(sorted))
    steps = [(end, data.draw(st.sampled_from([300, 900, 2_500]))) for end in few]
    mode = data.draw(st.sampled_from(["full", "full", "off"]))
    messages = [json.dumps(wire).encode() for wire in wires]
    remembered = data.draw(st.booleans())
    folder = tmp_path_factory.mktemp(f"drafts{next(_COUNT)}")

    async def both():
        far = NearCompactor(100_000_000 if remembered else 0)
        here = await compact_each(f"sqlite:///{folder}/a.db", None, dialect, mode, messages, steps)
        there = await compact_each(f"sqlite:///{folder}/b.db", far, dialect, mode, messages, steps)
        assert "HandoffOrder" in far.carried_out
        if any(compacted for _, _, compacted, _ in here[0][:-1]):  # the last is the handoff
            assert "DraftOrder" in far.carried_out
        return here, there

    here, there = asyncio.run(both())
    assert here[0] == there[0]
    for one, other in zip(here[1], there[1], strict=True):
        if not remembered:  # what was read before an earlier compaction is among the facts that are counted
            one[1].update(facts_kept=0, facts_reachable=0)
            other[1].update(facts_kept=0, facts_reachable=0)
        assert one == other
