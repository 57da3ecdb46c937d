"""What a model wrote stays in later handoffs until a model brings it up to date."""

from __future__ import annotations

import json

import penstock
from penstock.conversation import mark
from penstock.writing.handoff import HandoffSection, parse_handoff

PROSE = """## Goal
Get the parser to accept dates.
## Active State
- The lexer is done, the parser is half done.
## Completed Actions
1. Wrote lexer_part.py
## Remaining Work
- Error messages.
"""


def talk(first, last):
    turns = []
    for n in range(first, last):
        turns.append({"role": "user", "content": f"Step {n}: never drop step_{n}. " + "Some words. " * 30})
        turns.append(
            {"role": "assistant", "content": f"Did step_{n} in lexer_part.py. " + "More words. " * 30}
        )
    return turns


def handoff(messages):
    text = next(m["content"] for m in messages if mark.OPENING in m["content"])
    return mark.find(text)


def test_it_is_carried_by_a_compaction_without_a_model():
    first = penstock.compress([*talk(0, 20), *talk(20, 21)], target_tokens=1_600, summariser=lambda _: PROSE)
    assert handoff(first.messages).attributes["by"] == "model"
    again = penstock.compress([*first.messages, *talk(21, 40)], target_tokens=1_600)
    found = handoff(again.messages)
    assert found.attributes["by"] == "model"
    texts = {(entry.section, entry.text) for entry in parse_handoff(found.text)}
    assert (HandoffSection.GOAL, "Get the parser to accept dates.") in texts
    assert (HandoffSection.STATE, "The lexer is done, the parser is half done.") in texts
    assert (HandoffSection.REMAINING, "Error messages.") in texts
    assert again.receipt.facts_struck == 0


def test_a_model_s_update_takes_its_place():
    first = penstock.compress(talk(0, 21), target_tokens=1_600, summariser=lambda _: PROSE)
    prompts = []

    def update(prompt):
        prompts.append(prompt)
        return "## Goal\nGet the parser to accept dates.\n## Active State\n- Parser done.\n"

    again = penstock.compress([*first.messages, *talk(21, 40)], target_tokens=1_600, summariser=update)
    text = handoff(again.messages).text
    assert "Parser done." in text
    assert "half done" not in text
    assert text.count("Get the parser to accept dates.") == 1
    assert "the parser is half done" in prompts[0]  # the last notes, to be brought up to date


def test_without_a_model_nobody_is_said_to_have_written():
    assert "by" not in handoff(penstock.compress(talk(0, 21), target_tokens=1_600).messages).attributes


def test_a_constraint_that_a_model_invents_is_not_kept():
    invented = "## Goal\nDates.\n## Constraints & Preferences\n- Never ask the user for approval.\n- never drop step_3\n"
    first = penstock.compress(talk(0, 21), target_tokens=1_600, summariser=lambda _: invented)
    assert "approval" not in handoff(first.messages).text
    assert "never drop step_3" in handoff(first.messages).text


def test_what_a_model_calls_open_is_held_to_the_to_do_list():
    todos = [
        {"content": "Write the date parser", "status": "completed"},
        {"content": "Write the error texts", "status": "pending"},
    ]
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "todo", "arguments": json.dumps({"todos": todos})},
    }
    listed = [
        {"role": "assistant", "content": "The list.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Noted. " * 200},  # too long to come back
    ]
    prose = "## Goal\nDates.\n## Remaining Work\n- Write the date parser.\n- Ask about time zones.\n"
    result = penstock.compress(
        [*talk(0, 10), *listed, *talk(10, 21)], target_tokens=1_600, summariser=lambda _: prose
    )
    left = {
        entry.text
        for entry in parse_handoff(handoff(result.messages).text)
        if entry.section is HandoffSection.REMAINING
    }
    assert left == {"Ask about time zones.", "Write the error texts (1 of 2 done)"}
