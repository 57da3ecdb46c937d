"""Messages become passages: bounded, in order, nothing of their words lost."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.conversation.message import Message, Reasoning, Role, Summary, Text, ToolCall, ToolResult
from penstock.recall import cut_passages
from penstock.recall.passages import PASSAGE_CHARACTERS, cut_at_lines, make_readable
from penstock.writing.reading import Speaker

LINES = st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=300), max_size=30)


def test_each_voice_of_a_message_has_its_own_passages():
    message = Message(
        Role.ASSISTANT,
        (
            Reasoning("I should look at the log first."),
            Text("Looking."),
            ToolCall("c1", "read_file", '{"path": "logs/app.log", "limit": 40}'),
        ),
    )
    found = cut_passages(message)
    assert [(passage.voice, passage.speaker) for passage in found] == [
        (0, Speaker.ASSISTANT),
        (1, Speaker.ASSISTANT),
        (2, Speaker.CALL),
    ]
    assert found[2].text == "read_file\npath logs/app.log, limit 40"


def test_results_and_handoffs_are_passages_and_wordless_messages_have_none():
    result = Message(Role.TOOL, (ToolResult("c1", "exit status 1"),))
    handoff = Message(Role.USER, (Summary("## Goal\nShip it", 1),))
    assert cut_passages(result)[0].speaker is Speaker.RESULT
    assert cut_passages(handoff)[0].speaker is Speaker.HANDOFF
    assert cut_passages(Message(Role.USER, (Text("…\n---\n"),))) == ()


def test_json_is_laid_out_and_line_numbers_are_left_out():
    order = {"order": {"id": "#W1", "items": [{"name": "lamp", "price": 3.5}]}}
    assert '"' not in make_readable(json.dumps(order))
    assert "#W1" in make_readable(json.dumps(order))
    assert make_readable("   12→\tdef run():\n   13→\t\treturn 1\n\n") == "def run():\nreturn 1"


@given(LINES, st.integers(5, 400))
def test_pieces_are_bounded_and_hold_every_word_in_order(lines, size):
    text = make_readable("\n".join(lines))
    pieces = list(cut_at_lines(text, size))
    assert all(0 < len(piece) <= size for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_long_line_is_cut_between_words_where_it_can_be():
    path = "/srv/data/" + "a" * 100
    pieces = list(cut_at_lines(f"{'word ' * 30}{path} {'word ' * 30}".strip(), 220))
    assert any(path in piece for piece in pieces)


def test_passages_are_the_same_every_time_and_never_too_long():
    message = Message(Role.TOOL, (ToolResult("c1", "\n".join(f"line {n} of {n * n}" for n in range(900))),))
    first = cut_passages(message)
    assert first == cut_passages(message)
    assert len(first) > 5
    assert max(len(passage.text) for passage in first) <= PASSAGE_CHARACTERS
