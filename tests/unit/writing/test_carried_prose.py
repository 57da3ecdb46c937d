"""What a model wrote stays in later handoffs until a model brings it up to date."""

from __future__ import annotations

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
