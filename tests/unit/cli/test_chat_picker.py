"""The list that a conversation is picked from: what it shows in any window, and what any keys do to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.accounts.conversations import ListedConversation, filter_conversations
from penstock.cli.chat.picker import ConversationList
from penstock.cli.screen import width_of
from penstock.measure.usage import Usage
from penstock.stores.values import ConversationRow, SessionRow

MARK = "› "


def conversation(number, title):
    session_id = f"{number:016x}"
    tip = SessionRow(
        id=session_id,
        conversation=session_id,
        parent="",
        kind="main",
        started=0.0,
        ended=None,
        end_reason="",
        model="gpt-4.1",
        title=title,
        dialect="chat",
    )
    row = ConversationRow(
        id=session_id,
        tip=tip,
        title=title,
        started=0.0,
        updated=1_700_000_000.0 - number,
        messages=number * 37,
        tokens=9,
        view_tokens=number * 1_234,
        compactions=0,
        usage=Usage(),
        cost=None,
    )
    return ListedConversation(row, title)


def listed(*titles):
    return [conversation(number, title) for number, title in enumerate(titles)]


def test_every_typed_word_must_occur_in_any_order_and_case():
    found = listed("Count the Invoices", "Fix the fixture", "Invoices of May: count them")
    assert [one.title for one in filter_conversations(found, "COUNT invoices")] == [
        "Count the Invoices",
        "Invoices of May: count them",
    ]
    assert filter_conversations(found, f"{1:016x}") == [found[1]]
    assert filter_conversations(found, "fixtures") == []
    assert filter_conversations(found, " ") == found


def test_at_60_columns_there_is_room_for_time_size_and_first_words():
    found = listed("", *["Look at the failing tests of the exporter and at the rest"] * 30)
    lines = [line for _, line in ConversationList(found, "").draw(59, 15)]
    assert lines[0].split() == ["last", "used", "msgs", "tokens", "title"]
    assert lines[10].split()[2:4] == ["333", "11k"]
    assert lines[10].endswith("Look at the failing test…")
    assert len(lines) == 16


def test_the_present_conversation_is_marked_and_another_one_is_selected():
    choice = ConversationList(listed("Here I am", "Before that"), f"{0:016x}")
    lines = [line for _, line in choice.draw(60, 10)]
    assert lines[1].endswith("(this one) Here I am")
    assert lines[2].startswith(MARK)
    assert lines[2].endswith("Before that")
    choice.narrow("nothing like it")
    assert choice.selected is None
    assert "no conversation has these words" in choice.draw(60, 10)[0][1]


keys = st.one_of(st.integers(-30, 30), st.text("abc \x1b界", max_size=3))


@given(
    st.lists(st.text(max_size=80), min_size=1, max_size=40),
    st.lists(keys, max_size=20),
    st.integers(30, 120),
    st.integers(3, 30),
)
def test_whatever_is_pressed_the_selected_row_shows_and_no_row_is_too_wide(titles, pressed, columns, rows):
    choice = ConversationList(listed(*titles), f"{0:016x}")
    for key in pressed:
        if isinstance(key, int):
            choice.move(key)
        else:
            choice.narrow(key)
        lines = [line for _, line in choice.draw(columns, rows)]
        assert len(lines) <= rows + 1
        if choice.selected is None:
            assert not choice.left
            continue
        assert all(width_of(line) <= columns and line.isprintable() for line in lines)
        (marked,) = [number for number, line in enumerate(lines[1:]) if line.startswith(MARK)]
        shown = len(lines) - 1
        assert choice.left[choice.at] is choice.selected
        assert shown == min(rows, len(choice.left))
        assert marked == choice.at or shown == rows
