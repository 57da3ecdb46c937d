"""An engine that has seen a conversation grow, rewound, edited or left for another gives the bytes that a new one gives."""

from __future__ import annotations

import copy
import json

import pytest
from compaction_claims import claim, keep_quick
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.conversations import conversations
from tests.strategies.long_sessions import long_conversations

from penstock.engine.compressor import ContextCompressor
from penstock.errors import TargetTooSmall

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

each_dialect = pytest.mark.parametrize("name", keep_quick("anthropic", "chat"))


@st.composite
def lists_over_time(draw, name):
    """The lists that a host passes one after the other: each made of the last one, or another conversation."""
    long, other = draw(long_conversations(name)), draw(conversations(name))
    last = long[: draw(st.integers(1, len(long)))]
    lists = [last]
    for _ in range(draw(st.integers(1, 4))):
        step = draw(st.sampled_from(["append", "rewind", "edit", "insert", "leave"]))
        at = draw(st.integers(0, len(last)))
        if step == "append":
            last = long[: draw(st.integers(min(len(last), len(long)), len(long)))]
        elif step == "rewind":
            last = last[: max(1, at)]
        elif step == "edit":
            last = [*last[:at], *other[:1], *last[at + 1 :]]
        elif step == "insert":
            last = [*last[:at], *other, *last[at:]]
        else:
            lists.append(other)
        lists.append(last)
    return [one for one in lists if one]


def compact(engine, messages, share):
    """What a compaction to this share says, as bytes; the error where the target is too small."""
    target = max(1, int(share * engine.estimate(messages)))
    try:
        result = engine.compact(messages, target_tokens=target)
    except TargetTooSmall as error:
        return str(error)
    told = [verdict.reason for verdict in result.verdicts]
    receipt = result.receipt
    facts = receipt.facts_kept, receipt.facts_reachable, receipt.facts_struck
    return json.dumps([result.messages, told, facts], default=str)


@each_dialect
@claim(12)
@given(data=st.data(), share=st.floats(0.1, 0.9))
def test_an_engine_with_a_past_gives_what_a_new_one_gives(name, data, share):
    lists = data.draw(lists_over_time(name))
    parsed_anew = data.draw(st.booleans())
    engine = ContextCompressor(100_000)
    for messages in lists:
        given = copy.deepcopy(messages) if parsed_anew else messages
        assert compact(engine, given, share) == compact(ContextCompressor(100_000), messages, share)


def test_a_call_id_that_is_used_again_names_the_call_that_a_new_engine_names():
    def listed(words):
        return "\n".join(f"{words} serves volume_{words[5:7]}{n} at port {5_000 + 7 * n}" for n in range(30))

    def turn(tool, words):
        call = {"id": "call_0", "type": "function", "function": {"name": tool, "arguments": "{}"}}
        return [
            {"role": "user", "content": f"Use {tool} for {words}, please."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_0", "content": listed(words)},
            {"role": "assistant", "content": f"{words} is at port 5433."},
        ]

    past = [message for number in range(12) for message in turn("look_up", f"host_{number}.example")]
    engine = ContextCompressor(100_000)
    compact(engine, past, 0.12)
    grown = [*past, *turn("resolve", "staging.example")]
    assert compact(engine, grown, 0.12) == compact(ContextCompressor(100_000), grown, 0.12)


def read_files(of, turns=24, lines=8):
    """An agent that reads files, whose lines name things of their own."""
    chat = [{"role": "user", "content": "Read all files, please."}]
    for turn in range(turns):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        text = "\n".join(f"{of}_{turn}/part_{line}.py serves {of}_{turn}_{line}" for line in range(lines))
        chat.append({"role": "assistant", "content": None, "tool_calls": [call]})
        chat.append({"role": "tool", "tool_call_id": f"c{turn}", "content": text})
    return [*chat, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks, go on."}]


def test_what_another_conversation_named_is_unknown_in_this_one():
    """A model that speaks of it has invented it."""
    said = "## Active State\n- All is served by harbour_3_2 and by quay_3_2.\n"
    engine, fresh = (ContextCompressor(100_000, summariser=lambda prompt: said) for _ in range(2))
    engine.compact(read_files("harbour"), target_tokens=900)
    result = engine.compact(read_files("quay"), target_tokens=900)
    expected = fresh.compact(read_files("quay"), target_tokens=900)
    assert expected.receipt.facts_struck == 1
    assert result.receipt.facts_struck == 1
    assert result.messages == expected.messages


def test_facts_of_another_conversation_are_not_counted():
    engine, fresh = ContextCompressor(100_000), ContextCompressor(100_000)
    engine.compact(read_files("harbour"), target_tokens=900)
    receipt = engine.compact(read_files("quay"), target_tokens=900).receipt
    expected = fresh.compact(read_files("quay"), target_tokens=900).receipt
    assert (receipt.facts_kept, receipt.facts_reachable) == (expected.facts_kept, expected.facts_reachable)
