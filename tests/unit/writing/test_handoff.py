"""The text of a handoff, written and read back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.writing.handoff import HandoffEntry, HandoffSection, parse_handoff, render_handoff

RENDERED = """\
## Constraints & Preferences
- m1 never touch migrations/
## Completed Actions
1. m4 ran make → exit 0
2. m9 wrote a.py → done
## Critical Context
[m14 read_file]
DATABASE_PORT = 5433
DATABASE_HOST = db
[m15]
words"""
ENTRIES = (
    HandoffEntry(HandoffSection.CONSTRAINTS, 1, "never touch migrations/"),
    HandoffEntry(HandoffSection.COMPLETED, 4, "ran make → exit 0"),
    HandoffEntry(HandoffSection.COMPLETED, 9, "wrote a.py → done"),
    HandoffEntry(HandoffSection.CONTEXT, 14, "DATABASE_PORT = 5433\nDATABASE_HOST = db", "read_file"),
    HandoffEntry(HandoffSection.CONTEXT, 15, "words"),
)


def test_it_reads_as_sections_of_numbered_entries():
    assert render_handoff(ENTRIES) == RENDERED


def test_it_is_read_back():
    assert parse_handoff(RENDERED) == ENTRIES


def test_sections_stand_in_their_order_whatever_the_order_given():
    assert render_handoff(reversed(ENTRIES)).split("\n")[0] == "## Constraints & Preferences"


def test_prose_and_unknown_sections_are_left_out():
    text = "A note of ours.\n## Something Else\n- m3 not ours\n" + RENDERED
    assert parse_handoff(text) == ENTRIES


def test_an_empty_text_has_no_entries():
    assert parse_handoff("") == ()
    assert render_handoff([]) == ""


_LINES = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.sampled_from(
        [
            "## Goal",
            "[m3 user]",
            "[m3]",
            "- m3 item",
            "1. m3 item",
            "\\begin{x}",
            "\\\\server\\share",
            "\\[m3]",
            "",
            "\\",
        ]
    ),
)
_TEXTS = st.lists(_LINES, min_size=1, max_size=4).map("\n".join)
_ENTRIES = st.lists(
    st.one_of(
        st.builds(
            HandoffEntry,
            st.just(HandoffSection.CONTEXT),
            st.integers(0, 10**6),
            _TEXTS,
            st.text(st.characters(codec="utf-8", exclude_characters="]\n\r"), max_size=20),
        ),
        st.builds(
            HandoffEntry,
            st.sampled_from([section for section in HandoffSection if section is not HandoffSection.CONTEXT]),
            st.integers(0, 10**6),
            _TEXTS,
        ),
    ),
    max_size=6,
)


@given(_ENTRIES)
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_whatever_the_entries_say_they_are_read_back(entries):
    order = list(HandoffSection)
    expected = sorted(entries, key=lambda entry: order.index(entry.section))
    assert parse_handoff("A note.\n" + render_handoff(entries)) == tuple(expected)
