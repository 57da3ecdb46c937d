"""Turns that alternate still do after any compaction: many servers behind the chat dialect refuse others."""

from __future__ import annotations

import json
import random
from itertools import pairwise

from compaction_claims import claim, tokens
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.engine.compress import CompressRequest, compress_list
from penstock.errors import TargetTooSmall

WORDS = [
    "port",
    "queue",
    "worker",
    "retry",
    "ledger",
    "cache",
    "deploy",
    "staging",
    "branch",
    "ratio",
    "error",
    "order",
    "invoice",
]
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.95)
ROUNDS = 3


def write_text(source):
    count = source.choice((3, 20, 60, 200, 600))
    return " ".join(
        f"{source.choice(WORDS)}{source.randrange(9_999) if source.random() < 0.3 else ''}"
        for _ in range(count)
    )


def write_turn(source, number):
    """A request, some calls with their results, and an answer; at times the system speaks in between."""
    wires = [{"role": "user", "content": write_text(source)}]
    for batch in range(source.choice((0, 0, 1, 2, 5))):
        ids = [f"call-{number}-{batch}-{place}" for place in range(source.choice((1, 1, 3)))]
        calls = [
            {
                "id": name,
                "type": "function",
                "function": {"name": "run", "arguments": json.dumps({"text": write_text(source)})},
            }
            for name in ids
        ]
        said = write_text(source) if source.random() < 0.5 else None
        wires.append({"role": "assistant", "content": said, "tool_calls": calls})
        wires += [{"role": "tool", "tool_call_id": name, "content": write_text(source)} for name in ids]
    if source.random() < 0.05:
        wires.append({"role": "system", "content": write_text(source)})
    return [*wires, {"role": "assistant", "content": write_text(source)}]


def build_conversation(source):
    """Turns that alternate; the last one is whole, a request alone, calls with results, or calls that still run."""
    wires = [{"role": "system", "content": write_text(source)}] if source.random() < 0.5 else []
    for number in range(source.randrange(2, 14)):
        wires += write_turn(source, number)
    end = source.random()
    if end < 0.4:
        wires.append({"role": "user", "content": write_text(source)})
    elif end < 0.7:
        wires.pop()
    if 0.6 < end < 0.7:
        while wires[-1]["role"] == "tool":
            wires.pop()
    return wires


def find_neighbours(wires):
    return [
        (place, one["role"])
        for place, (one, other) in enumerate(pairwise(wires))
        if one["role"] == other["role"] and one["role"] in {"user", "assistant"}
    ]


def go_on(wires, source):
    """The list with what a client adds after a compaction."""
    if wires[-1]["role"] == "user":
        wires = [*wires, {"role": "assistant", "content": write_text(source)}]
    if wires[-1]["role"] == "assistant" and not wires[-1].get("tool_calls"):
        wires = [*wires, *write_turn(source, len(wires))]
    return wires


def check_rounds(seed):
    source = random.Random(seed)
    wires = build_conversation(source)
    for _ in range(ROUNDS):
        assert find_neighbours(wires) == []
        target = max(100, int(tokens("chat", wires) * source.choice(SHARES)))
        focus = source.choice((None, "ledger"))
        try:
            result = compress_list(wires, CompressRequest(target_tokens=target, dialect="chat", focus=focus))
        except TargetTooSmall:
            return
        assert find_neighbours(result.messages) == []
        wires = go_on(list(result.messages), source)


@given(st.integers(0, 1 << 32))
@example(1_053)  # a handoff without room for a word, between two requests: it was left out
@claim(10)
def test_turns_that_alternate_still_do(seed):
    check_rounds(seed)
