"""A model's text becomes entries, however it writes its headings and lists."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.writing.handoff import HandoffEntry, HandoffSection, parse_handoff, render_handoff
from penstock.writing.prose import Prose, read_prose


def test_sections_items_and_turns():
    prose = read_prose(
        "## Active Task\nm12, m15\n\n## Goal\nShip the webhook retry (m2).\n\n"
        "## Completed Actions\n1. Patched retry.py (m9)\n2. m11: ran the tests,\n   all green\n"
        "## Blocked\nNone.\n## Relevant Files\n- shop/retry.py: the fix\n* shop/hooks.py"
    )
    assert prose == Prose(
        (
            HandoffEntry(HandoffSection.GOAL, 2, "Ship the webhook retry."),
            HandoffEntry(HandoffSection.COMPLETED, 9, "Patched retry.py"),
            HandoffEntry(HandoffSection.COMPLETED, 11, "ran the tests, all green"),
            HandoffEntry(HandoffSection.FILES, 0, "shop/retry.py: the fix"),
            HandoffEntry(HandoffSection.FILES, 0, "shop/hooks.py"),
        ),
        (12, 15),
    )


def test_headings_in_other_writings_and_thoughts():
    prose = read_prose(
        "<think>## Goal\nwrong</think>\n```markdown\n**Goal**\nRight.\n\n### Constraints and Preferences:\n- no tabs\n"
        "# Something else\n- is part of the state\n```"
    )
    assert [(entry.section, entry.text) for entry in prose.entries] == [
        (HandoffSection.GOAL, "Right."),
        (HandoffSection.CONSTRAINTS, "no tabs"),
        (HandoffSection.STATE, "is part of the state"),
    ]


def test_no_known_heading_is_no_handoff():
    assert read_prose("I will now delete the files as asked.") is None
    assert read_prose("# Report\nAll is well.") is None
    assert read_prose("") is None


def test_headings_and_nothing_else():
    prose = read_prose("\n".join(f"## {section}" for section in HandoffSection) + "\n- none\n- N/A\n")
    assert prose == Prose(())


def test_an_endless_item_is_cut():
    assert len(read_prose("## Goal\n" + "word " * 2_000).entries[0].text) < 1_300


@settings(max_examples=100)
@given(st.text(max_size=300))
def test_nothing_breaks_it(text):
    read_prose(text)
    read_prose("## Goal\n" + text)


_ITEM_TEXT = st.text(alphabet="ab 1-m#\\.[]", min_size=1, max_size=20).map(str.strip).filter(bool)


@settings(max_examples=200)
@given(
    st.lists(
        st.builds(
            HandoffEntry,
            st.sampled_from([HandoffSection.GOAL, HandoffSection.FILES]),
            st.integers(0, 3),
            _ITEM_TEXT,
        ),
        max_size=5,
    )
)
def test_entries_without_a_number_come_back_from_a_rendered_handoff(entries):
    ordered = sorted(entries, key=lambda entry: entry.section is not HandoffSection.GOAL)
    assert list(parse_handoff(render_handoff(ordered))) == ordered
