"""Compactions of conversations in which a client speaks in user messages."""

from __future__ import annotations

import re

import pytest

import penstock
from penstock.conversation import mark
from penstock.writing.handoff import HandoffSection, parse_handoff

RULES = (
    "<system-reminder>\nAs you answer, you can use the following context:\n# claudeMd\n"
    "Contents of /srv/rows/CLAUDE.md (project instructions):\n\n"
    "- Required before every commit: make check\n- Never edit migrations/.\n- The service is called rowsd.\n\n"
    "IMPORTANT: this context may or may not be relevant. You should not respond to this context.\n"
    "</system-reminder>\n"
)
SKILL = (
    "Base directory for this skill: /skills/tidy\n\n# Tidy\n\n"
    + "".join(
        f"Step {n}: look at module_{n}.py and compare it with what the plan says.\n" for n in range(200)
    )
    + "\nNever delete a file.\n"
)
FIRST = "Please make the importer of rowsd skip rows that are empty, and say how many it skipped."
LAST = "Now write the release notes for version 4.7 in CHANGES.md, two lines at most."


def turn(number):
    return [
        {
            "role": "assistant",
            "content": f"I look at part {number} of the importer, since rows_{number} is odd.",
        },
        {
            "role": "user",
            "content": f"Fine, then go to part {number + 1} and keep row_{number}.csv as it is.",
        },
    ]


def conversation(first, last, *between):
    turns = [message for number in range(60) for message in turn(number)]
    half = len(turns) // 2
    middle = [
        message
        for text in between
        for message in ({"role": "user", "content": text}, {"role": "assistant", "content": "Done."})
    ]
    return [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": first},
        *turns[:half],
        *middle,
        *turns[half:],
        {"role": "assistant", "content": "All parts are done."},
        {"role": "user", "content": last},
    ]


def compress(messages, target=1_500, **options):
    result = penstock.compress(messages, target_tokens=target, dialect="chat", **options)
    texts = [message["content"] for message in result.messages]
    handoff = next(found.text for text in texts if (found := mark.find(text)) is not None)
    return texts, parse_handoff(handoff)


def section(entries, wanted):
    return [entry.text for entry in entries if entry.section is wanted]


@pytest.mark.parametrize("target", [400, 800, 1_500, 2_000])
def test_task_goal_and_constraints_are_never_the_words_of_a_client(target):
    last = f"{LAST}\n<system-reminder>\nYou must never mention this list.\n</system-reminder>"
    messages = conversation(
        RULES + FIRST, last, "<task-notification>\nYou must read it all.\n</task-notification>"
    )
    messages.append({"role": "user", "content": "Stop hook feedback:\nyou must never stop"})
    texts, entries = compress(messages, target)
    told = section(entries, HandoffSection.ACTIVE_TASK) + section(entries, HandoffSection.GOAL)
    assert told
    for text in told:
        assert not re.search(r"reminder|hook|notification|claudeMd", text)
    assert not any("mention this" in text for text in section(entries, HandoffSection.CONSTRAINTS))
    assert any(LAST in text for text in texts)
    assert section(entries, HandoffSection.GOAL) == [FIRST]


def test_rules_in_force_are_kept_under_the_message_that_states_them():
    messages = conversation("Hello, are you there and ready to go?", LAST, RULES + FIRST)
    _, entries = compress(messages)
    number = next(n for n, message in enumerate(messages, 1) if FIRST in message["content"])
    stated = [(entry.number, entry.text) for entry in entries if entry.section is HandoffSection.CONSTRAINTS]
    assert (number, "Required before every commit: make check") in stated
    assert (number, "Never edit migrations/.") in stated
    assert not any("respond to this context" in text for _, text in stated)


def test_of_rules_that_come_again_the_newest_stand_once():
    changed = RULES.replace("make check", "make lint test")
    messages = conversation(
        "Hello, are you there and ready to go?", LAST, RULES + FIRST, RULES + FIRST, changed + FIRST
    )
    texts, _ = compress(messages)
    view = "\n".join(texts)
    assert view.count("Required before every commit: make lint test") == 1
    assert "make check" not in view


def test_rules_that_do_not_fit_are_named_with_their_handle():
    many = RULES.replace(
        "- Never edit", "".join(f"- Never call rule_{n}() from tests.\n" for n in range(90)) + "- Never edit"
    )
    messages = conversation("Hello, are you there and ready to go?", LAST, many + FIRST)
    _, entries = compress(messages, 900)
    number = next(n for n, message in enumerate(messages, 1) if FIRST in message["content"])
    assert any(
        entry.number == number and entry.text.startswith("rules in force: Contents of /srv/rows/CLAUDE.md")
        for entry in entries
    )


def test_a_long_skill_gives_way_and_the_words_around_it_stay():
    messages = conversation(FIRST, f"<attachment type=skill>\n{SKILL}</attachment>\n{LAST}")
    texts, _ = compress(messages)
    last = texts[-1]
    assert last.endswith(f"</attachment>\n{LAST}")
    assert f"all of it: m{len(messages)}" in last
    assert "Never delete a file." in last
    assert len(last) < len(SKILL) // 10


def test_a_skill_takes_no_room_from_what_follows_it():
    messages = conversation(FIRST, LAST)
    messages[2:2] = [{"role": "user", "content": SKILL}]
    texts, _ = compress(messages)
    assert sum(text.count("Step ") for text in texts) < 40
    assert any(LAST in text for text in texts)


def test_text_of_a_client_that_is_shortened_is_known_for_it_the_next_time():
    messages = conversation(f"<attachment type=skill>\n{SKILL}</attachment>\n{FIRST}", LAST)
    once = penstock.compress(messages, target_tokens=2_500, dialect="chat").messages
    again = penstock.compress(once, target_tokens=1_000, dialect="chat").messages
    entries = [
        entry
        for message in again
        if (found := mark.find(message["content"]))
        for entry in parse_handoff(found.text)
    ]
    assert all("Step " not in text for text in section(entries, HandoffSection.GOAL))


def test_a_request_that_says_little_stands_with_the_one_it_goes_on_from():
    messages = conversation(FIRST, LAST)
    messages += [
        {"role": "assistant", "content": "Shall I write them now?"},
        {"role": "user", "content": "Yes"},
    ]
    for target in (400, 2_000):
        _, entries = compress(messages, target)
        assert any(LAST in text for text in section(entries, HandoffSection.ACTIVE_TASK))


def test_a_summary_of_another_maker_is_no_goal_and_no_constraint():
    summary = (
        "This session is being continued from a previous conversation that ran out of context.\n"
        "The user must always be asked about order_4711. The port is 6622.\n"
    )
    texts, entries = compress(conversation(summary + "More of it. " * 50, LAST))
    assert section(entries, HandoffSection.GOAL)[0].startswith("Fine, then go to part 1")
    assert not any("order_4711" in text for text in section(entries, HandoffSection.CONSTRAINTS))
    assert any("order_4711" in text for text in texts)


def test_a_head_in_which_nobody_speaks_does_not_stay():
    printed = "<local-command-stdout>" + "Fixed a crash of the lamp.\n" * 40 + "</local-command-stdout>"
    harness = [
        {"role": "user", "content": "<local-command-caveat>Caveat: not for you.</local-command-caveat>"},
        {"role": "user", "content": "<command-name>/release-notes</command-name>"},
        {"role": "user", "content": printed},
    ]
    messages = conversation(FIRST, LAST)
    view = penstock.compress([messages[0], *harness, *messages[1:]], target_tokens=1_500).messages
    assert mark.OPENING in view[1]["content"]
    assert FIRST in view[1]["content"]


CAVEAT = (
    "Caveat: The messages below were generated by the user while running local commands.\n"
    "DO NOT respond to these messages unless the user explicitly asks you to."
)


@pytest.mark.parametrize("caveat", [CAVEAT, f"<local-command-caveat>{CAVEAT}</local-command-caveat>"])
def test_a_caveat_on_local_commands_is_not_quoted(caveat):
    messages = conversation(FIRST, LAST)
    before = [
        messages[0],
        {"role": "user", "content": caveat},
        {
            "role": "user",
            "content": "<command-name>/ide</command-name>\n<command-args>attach rows</command-args>",
        },
    ]
    for tokens in (400, 800, 1_500):
        texts, _ = compress([*before, *messages[1:]], tokens)
        assert not any("DO NOT respond" in text for text in texts)
