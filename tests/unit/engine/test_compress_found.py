"""Conversations that once broke a compaction, each as small as it was found."""

from __future__ import annotations

import re

import pytest

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.rules import check
from penstock.engine.compress import CompressRequest, compress_list
from penstock.errors import TargetTooSmall
from penstock.measure.tokens import tokenizer_for
from penstock.measure.weigh import weigh

pytestmark = pytest.mark.sampled(4)  # each of its cases is long


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def use(call_id):
    return assistant(
        [{"type": "tool_use", "id": call_id, "name": "read_file", "input": {"path": "src/a.py"}}]
    )


def answer(call_id, content=""):
    return user([{"type": "tool_result", "tool_use_id": call_id, "content": content}])


def size(name, wires):
    return sum(weigh(decode_all(DIALECTS[name], wires), tokenizer_for(None)))


def compacted(name, wires, share, **wishes):
    """The result at that share of the tokens, or at the target that the error names; legal and within it."""
    dialect, target = DIALECTS[name], max(1, int(share * size(name, wires)))
    try:
        result = compress_list(wires, CompressRequest(target_tokens=target, dialect=name, **wishes))
    except TargetTooSmall as error:
        target = int(re.search(r"at least ([\d,]+)", str(error))[1].replace(",", ""))
        result = compress_list(wires, CompressRequest(target_tokens=target, dialect=name, **wishes))
    assert size(name, result.messages) <= target
    assert check(decode_all(dialect, result.messages), dialect.rules) == []
    return result


SHARES = (0.05, 0.2, 0.4, 0.6, 0.75, 0.9, 1.0)
each_share = pytest.mark.parametrize("share", SHARES)


@each_share
def test_a_nul_inside_a_text(share):
    compacted("chat", [user("job_1 \x00 job_2\n" * 30), assistant("abc " * 50)], share)


@each_share
def test_a_reminder_of_the_system_after_a_giant_request(share):
    wires = [
        user("word " * 6_000),
        {"role": "system", "content": "A reminder."},
        assistant("I see."),
        user("Now look at it."),
        use("c1"),
        answer("c1", "line\n" * 100),
        assistant("Done."),
        user("And now?"),
        use("c2"),
        answer("c2", "line\n" * 300),
    ]
    compacted("anthropic", wires, share)


@each_share
def test_a_conversation_whose_opening_is_lost(share):
    compacted("anthropic", [use("c1"), user("0"), answer("c1"), assistant("0")], share)


@each_share
def test_a_lost_opening_before_a_batch_of_calls(share):
    uses = [{"type": "tool_use", "id": f"c{n}", "name": "read_file", "input": {}} for n in range(3)]
    uses[2]["input"] = {"text": "a\n" * 50, "all": None}
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": ""} for n in range(3)]
    compacted("anthropic", [assistant(uses), user(results), user("0"), assistant("0")], share)


@each_share
@pytest.mark.parametrize("pin", range(1, 9))
def test_a_pin_beside_a_request_that_is_clipped(share, pin):
    ask = "Fix the retry in worker/queue.py."
    wires = [
        user(ask),
        use("c1"),
        answer("c1"),
        assistant("I will look at it."),
        user(ask),
        assistant("I will look at it."),
        user(f"{ask}\n     1\tdef handle_0_1(event): return route_1(event, 0)\nThat is all of it."),
        assistant("I will look at it."),
    ]
    result = compacted("anthropic", wires, share, pins=frozenset([pin]))
    said = [message["content"] for message in result.messages]
    whole = wires[pin - 1]["content"]
    assert whole in said or any(whole in text for text in said if isinstance(text, str))


@each_share
def test_a_call_that_is_never_answered_is_given_a_stub(share):
    call = {"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": "{}"}
    done = {"type": "function_call_output", "call_id": "c2", "output": "x " * 200}
    wires = [user("0"), call, {**call, "call_id": "c2"}, done, user("1 " * 50)]
    compacted("responses", wires, share)
