"""Greetings and what is said twice take no room from what says something."""

from __future__ import annotations

import pytest

import penstock
from penstock.conversation import mark
from penstock.writing.handoff import HandoffSection, parse_handoff

LAST = "Now write the release note for the importer, please."


def steps(count=24):
    turns = []
    for n in range(count):
        turns += [
            {"role": "user", "content": f"Please look at row {n} of table_{n}.csv and tell me its sum."},
            {"role": "assistant", "content": f"Row {n} of table_{n}.csv sums up to {n * 731} in part_{n}."},
        ]
    return turns


def compress(messages, target):
    kept = penstock.compress(messages, target_tokens=target, dialect="chat").messages
    found = next(one for message in kept if (one := mark.find(message["content"])) is not None)
    return [message["content"] for message in kept], parse_handoff(found.text)


@pytest.mark.parametrize("greeting", ["hi", "Hello there, thank you!"])
def test_a_greeting_does_not_stay_as_the_head(greeting):
    answer = {"role": "assistant", "content": "Hello! How can I help you today?"}
    messages = [{"role": "user", "content": greeting}, answer, *steps(), {"role": "user", "content": LAST}]
    texts, _ = compress(messages, 400)
    assert mark.find(texts[0]) is not None


@pytest.mark.parametrize("opening", ["Hi!", "Good.", "Great work! Thanks."])
def test_a_request_in_part_begins_with_what_it_asks_for(opening):
    asks = "The importer of the shop drops every second row of a table. " + " ".join(
        f"It was seen with table number {n} of the set." for n in range(40)
    )
    messages = [
        {"role": "user", "content": f"{opening} {asks}"},
        *steps()[1:],
        {"role": "user", "content": LAST},
    ]
    _, entries = compress(messages, 300)
    goal = next(entry.text for entry in entries if entry.section is HandoffSection.GOAL)
    assert goal.startswith("The importer of the shop drops every second row of a table.")


def test_a_request_that_was_sent_twice_is_told_once():
    asks = "Find out why the importer drops rows, and mend it. " + " ".join(
        f"In shop_{n} it reads ledger_{n}.csv and leaves out each row with the code Z-{n}40."
        for n in range(4)
    )
    read = "\n".join(f"Row {n} of the ledger is read as {n * 731}." for n in range(200))
    messages = [
        {"role": "user", "content": asks},
        {"role": "assistant", "content": "A hook has stopped this."},
        {"role": "user", "content": f"{asks}\nThe hook is gone by now."},
        {"role": "assistant", "content": read},
        {"role": "user", "content": "How are the rows of the other ledger read?"},
        {"role": "assistant", "content": read.replace("the ledger", "the other")},
        {"role": "user", "content": LAST},
    ]
    texts, entries = compress(messages, 900)
    assert [entry.text for entry in entries if entry.section is HandoffSection.GOAL] == [asks]
    assert "\n".join(texts).count("Z-340") == 1


def test_a_courtesy_comes_back_after_everything_else():
    polite = "Thank you very much for waiting, and for your patience with me today."
    telling = "The ledger of the shop was closed by its owner on the last Monday of June."
    messages = [
        {"role": "user", "content": "Which ledger was closed, and when was that?"},
        {"role": "assistant", "content": telling},
        {"role": "user", "content": "And is it the one that we looked at first?"},
        {"role": "assistant", "content": polite},
        *steps(),
        {"role": "user", "content": LAST},
    ]
    for target in range(300, 1_200, 100):
        texts, _ = compress(messages, target)
        assert polite not in texts or telling in texts


@pytest.mark.parametrize("brief", ["Reading the inbox.", "查看邮件。"])
def test_the_agent_in_a_few_words_says_nothing(brief):
    letters = "\n".join(f"Letter {n} says that part {n * 7} has come." for n in range(90))
    read = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "What stands in my letters of this week? Read all of them to the end."},
        {"role": "assistant", "content": brief, "tool_calls": [read]},
        {"role": "tool", "tool_call_id": "c1", "content": letters},
        {"role": "assistant", "content": "The vice-dean waits for an answer before the weekend."},
        *steps(6),
        {"role": "user", "content": LAST},
    ]
    for target in (300, 400, 500):
        texts, _ = compress(messages, target)
        assert brief not in "\n".join(texts)
