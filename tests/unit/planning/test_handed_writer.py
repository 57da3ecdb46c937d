"""The planner asks whatever writer it is handed, and fits its handoff into the target."""

from __future__ import annotations

import pytest

from penstock.engine.compress import CompressRequest, compress_list
from penstock.planning.receipt import NOTHING_TO_DO
from penstock.testing.engine_contract import long_conversation
from penstock.writing.extractive import ExtractiveWriter
from penstock.writing.writer import HandoffText


class Haiku:
    """A writer that is neither of ours: as many lines as fit, and a note of what it was told."""

    mark_version = 1
    names_runs = False
    handles = "m-numbers"
    note = "Three lines on what happened."
    has_prose = False

    def __init__(self, material, asked):
        self.material = material
        self.asked = asked

    def write(self, budget, measure, beside):
        self.asked.append((self.material, budget, beside))
        lines = ["an old silent pond", "a frog jumps into the pond", "splash! silence again"] * 200
        while lines and measure("\n".join(lines)) > budget:
            lines.pop()
        return HandoffText("\n".join(lines), quoted={20: 2}, struck=3)


def compress(messages, target, asked):
    request = CompressRequest(target_tokens=target, make_writer=lambda material: Haiku(material, asked))
    return compress_list(messages, request)


@pytest.mark.parametrize("target", [800, 2_000, 4_000])
def test_the_handoff_is_the_writers(target):
    asked = []
    result = compress(long_conversation(40), target, asked)
    handoff = next(m["content"] for m in result.messages if "frog" in str(m["content"]))
    assert handoff.count("silent pond") > 3
    assert result.receipt.tokens_after <= target
    assert result.receipt.facts_struck == 3
    assert "older than the tail: 2 excerpts in the handoff" in {verdict.reason for verdict in result.verdicts}
    material, budget, beside = asked[-1]
    assert material.handoff_tokens >= budget > 0
    assert beside.kept >= beside.kept_verbatim
    assert beside.request in beside.kept


def test_no_writer_is_made_where_nothing_is_summarised():
    asked = []
    messages = long_conversation(10)
    assert compress(messages, 1_000_000, asked).receipt.outcome == NOTHING_TO_DO
    assert asked == []


def test_without_a_wish_the_handoff_is_made_of_excerpts():
    messages = long_conversation(40)
    given = CompressRequest(target_tokens=2_000, make_writer=ExtractiveWriter)
    assert (
        compress_list(messages, given).messages
        == compress_list(messages, CompressRequest(target_tokens=2_000)).messages
    )
