"""`/compress TOPIC`: the topic gets 60 to 70 % of what is written, whichever way the view is made and however it is named."""

from __future__ import annotations

import json
import re

import pytest

import penstock
from penstock.measure.tokens import tokenizer_for

COUNT = tokenizer_for(None).count
TOPICS = ("shipping labels", "invoice dates", "payment gateway retries", "user avatars", "search index")


def spoken(topic, number):
    """Lines that are about a topic: its words stand apart, as people and logs use them."""
    first, *rest = topic.split()
    return f"job_{number} of {' and its '.join(rest)} for {first}_{number} took {number * 37 % 991} ms <{TOPICS.index(topic)}>"


def conversation(rounds, lines):
    messages = [{"role": "system", "content": "You are an agent."}]
    for at in range(rounds):
        topic = TOPICS[at % len(TOPICS)]
        call = {"name": "terminal", "arguments": json.dumps({"command": f"cat log_{at}.txt"})}
        result = "\n".join(spoken(topic, at * 1_000 + n) for n in range(lines))
        messages += [
            {"role": "user", "content": f"Look at log {at}."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{at}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{at}", "content": result},
            {"role": "assistant", "content": f"Log {at} is fine."},
        ]
    return [*messages, {"role": "user", "content": "Go on, please."}]


def topic_tokens(texts, topic=None):
    """Returns the tokens of the lines from the logs, or of those about a topic."""
    lines = re.findall(r"job_[^<>\n]*<\d>", "\n".join(texts))
    wanted = None if topic is None else f"<{TOPICS.index(topic)}>"
    return sum(COUNT(line) + 1 for line in lines if wanted is None or line.endswith(wanted))


def share_brought_back(result, topic):
    """Returns the topic's share of what came back of the logs that are neither in the head nor in the tail."""
    places = [one.position for one in result.verdicts if not one.reason.startswith(("tail", "head"))]
    texts = [result.messages[place]["content"] or "" for place in places]
    return topic_tokens(texts, topic) / topic_tokens(texts)


def share_of_handoff(result, topic):
    (handoff,) = [one["content"] for one in result.messages if "<penstock-handoff" in str(one["content"])]
    return topic_tokens([handoff], topic) / COUNT(handoff)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("topic", TOPICS)
def test_where_eliding_is_enough(topic):
    messages = conversation(30, 40)
    plain = penstock.compress(messages, target_tokens=9_000)
    assert plain.receipt.summarised == 0  # else this is about handoffs
    result = penstock.compress(messages, target_tokens=9_000, focus=topic)
    assert share_brought_back(plain, topic) < share_brought_back(result, topic)
    assert 0.6 <= share_brought_back(result, topic) <= 0.7
    assert result.receipt.tokens_after <= 9_000


@pytest.mark.parametrize("topic", TOPICS)
def test_where_there_is_room_for_all_of_it_all_of_it_stays(topic):
    messages = conversation(30, 40)
    result = penstock.compress(messages, target_tokens=14_000, focus=topic)
    assert result.receipt.summarised == 0
    before, after = (
        [one["content"] or "" for one in messages],
        [one["content"] or "" for one in result.messages],
    )
    assert topic_tokens(after, topic) == topic_tokens(before, topic)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", [2_500, 4_000])
@pytest.mark.parametrize("topic", TOPICS)
def test_in_a_handoff(topic, target):
    messages = conversation(60, 60)
    plain = penstock.compress(messages, target_tokens=target)
    assert plain.receipt.summarised
    result = penstock.compress(messages, target_tokens=target, focus=topic)
    assert share_of_handoff(plain, topic) < share_of_handoff(result, topic)
    assert 0.6 <= share_of_handoff(result, topic) <= 0.7


@pytest.mark.parametrize("target", [2_500, 8_000])
def test_beside_many_demands_files_and_decisions(target):
    """What the other sections take is no part of the topic's share."""
    messages = conversation(50, 40)
    for place, message in enumerate(messages):
        if message["role"] == "user":
            message["content"] += f" Never touch table orders_{place}; the flag --mode-{place} must stay on."
        elif message["role"] == "assistant" and message["content"]:
            message["content"] += (
                f" Decision: approach {place}, because src/part_{place}.py breaks otherwise. Next is helper_{place}."
            )
    result = penstock.compress(messages, target_tokens=target, focus="payment gateway retries")
    assert 0.6 <= share_of_handoff(result, "payment gateway retries") <= 0.7


def test_a_phrase_that_somebody_used_once_does_not_hide_what_else_is_about_it():
    messages = conversation(60, 60)
    messages[1]["content"] = "It is all about payment gateway retries."
    result = penstock.compress(messages, target_tokens=4_000, focus="payment gateway retries")
    assert share_of_handoff(result, "payment gateway retries") >= 0.6
