"""What is kept of harness text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.conversation.speakers import Voice, VoicedPart, part_voices
from penstock.writing.harness import find_next_steps, house_rules_in, shorten_harness, title_of


def words(text):
    return len(text.split())


@pytest.mark.parametrize(
    "text",
    [
        "<system-reminder>\nContents of /a/CLAUDE.md:\n- Always run make check.\n</system-reminder>",
        "# AGENTS.md instructions for /a\n\n<INSTRUCTIONS>\n1. Always run make check.\n</INSTRUCTIONS>",
        "<user_instructions>\nAlways run make check.\n</user_instructions>",
        "<always_applied_workspace_rules>\n* Always run make check.\n</always_applied_workspace_rules>",
        (
            '<rules>\n<always_applied_workspace_rules description="Rules that must always be followed.">\n'
            '<always_applied_workspace_rule name="/a/AGENTS.md">Always run make check.</always_applied_workspace_rule>\n'
            "</always_applied_workspace_rules>\n</rules>"
        ),
    ],
)
def test_rules_are_found_in_the_forms_of_clients(text):
    (part,) = part_voices(text)
    assert house_rules_in(part) == ("Always run make check.",)


SUMMARY = (
    'This session is being continued from a previous conversation.\n\n6. All user messages:\n   - "next steps?"\n\n'
    "7. Pending Tasks:\n   - Write docs\n\n8. Current Work:\n   The tests fail.\n\n"
)


@pytest.mark.parametrize(
    ("summary", "steps"),
    [
        (
            f"{SUMMARY}9. Optional Next Step:\n   Fix the tests:\n   1. in a.py\n\nIf you need details, read on",
            "Fix the tests:\n   1. in a.py",
        ),
        (SUMMARY, "- Write docs"),
        ("## Goal\nShip it\n\n## Next Steps\n\n- run make\n- push\n\n## Files\na.py", "- run make\n- push"),
        ("## Goal\nShip it\n\n## Current Work\nThe lexer is half done.", "The lexer is half done."),
        ("**Next step:** run make\n**Files:**\na.py", "run make"),
        ("The next steps are up to you.", ""),
    ],
)
def test_what_a_summary_says_is_next(summary, steps):
    assert find_next_steps(summary) == steps


def test_a_line_that_only_announces_rules_is_none():
    text = "<user_instructions>\nYou must follow these steps:\nAlways run make check.\n</user_instructions>"
    assert house_rules_in(part_voices(text)[0]) == ("Always run make check.",)


def test_a_tag_that_a_rule_speaks_of_stays():
    text = "<user_instructions>\n- never use a <b> tag, close it with </b>\n</user_instructions>"
    assert house_rules_in(part_voices(text)[0]) == ("never use a <b> tag, close it with </b>",)


def test_what_a_client_says_of_itself_is_no_rule():
    text = (
        "<system-reminder>\nThis is CLAUDE.md. You must never mention this to anybody.\n"
        "You should not respond to this context.\n</system-reminder>"
    )
    assert house_rules_in(part_voices(text)[0]) == ()


def test_a_reminder_without_a_rules_file_has_no_rules():
    assert (
        house_rules_in(VoicedPart(Voice.REMINDER, "<system-reminder>\nAlways be quick.\n</system-reminder>"))
        == ()
    )


def test_rules_are_titled_by_their_file():
    text = "<system-reminder>\nSome context:\nContents of /a/CLAUDE.md:\nAlways test.\n</system-reminder>"
    assert title_of(part_voices(text)[0]) == "Contents of /a/CLAUDE.md:"


def test_a_short_text_stays_as_it_is():
    part = VoicedPart(Voice.NOTICE, "<task-notification>\ndone\n</task-notification>\n")
    assert shorten_harness(part, 20, words, "m3") == part.text


def test_a_long_text_keeps_how_it_begins_and_its_telling_lines():
    lines = "\n".join(f"line {n} of no use" for n in range(90))
    part = VoicedPart(
        Voice.NOTICE, f"<task-notification>\n{lines}\nstatus: failed\n{lines}\n</task-notification>\n\n"
    )
    short = shorten_harness(part, 30, words, "all of it: m3")
    assert short.startswith("<task-notification>\n")
    assert "status: failed" in short
    assert short.endswith("[… all of it: m3 …]\n</task-notification>\n\n")
    assert words(short) <= 36


@given(
    st.sampled_from(["system-reminder", "environment_context", "attachment"]),
    st.lists(
        st.text(st.characters(exclude_characters="<>\r", exclude_categories=("Cs",)), max_size=30),
        max_size=60,
    ),
    st.integers(10, 60),
)
def test_what_is_left_is_still_harness_text_and_not_longer(name, lines, limit):
    text = f"<{name}>\n" + "\n".join(lines) + f"\n</{name}>\n"
    (part,) = part_voices(text)
    short = shorten_harness(part, limit, words, "all of it: m3")
    assert [one.voice for one in part_voices(short)] == [part.voice]
    assert short == text or words(short) <= limit + 14


def test_rules_under_a_tag_are_titled_by_it_where_their_first_line_is_long():
    long = "Sandboxing says which files may be read or written, and it always asks before anything else is done at all."
    part = VoicedPart(
        Voice.REMINDER, f"<permissions instructions>\n{long}\nNever run rm.\n</permissions instructions>"
    )
    assert title_of(part) == "permissions instructions"
    assert (
        title_of(VoicedPart(Voice.REMINDER, "<user_rules>\nHouse rules\nNever run rm.\n</user_rules>"))
        == "House rules"
    )


def test_a_caveat_in_short_is_its_first_words():
    text = (
        "<local-command-caveat>Caveat: " + "these messages came from local commands and want no answer " * 9
    )
    part = VoicedPart(Voice.COMMAND, f"{text}</local-command-caveat>")
    short = shorten_harness(part, 20, words, "all of it: m3")
    assert short.startswith("<local-command-caveat>Caveat: these messages")
    assert "… …" not in short
