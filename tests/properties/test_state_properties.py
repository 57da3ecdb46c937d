"""What the sections on the state of the work promise, on conversations of any kind."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations, json_values, texts

import penstock
from penstock.conversation import mark
from penstock.conversation.message import Message, Role, Text, ToolCall, ToolResult
from penstock.redaction import Redactor
from penstock.writing.handoff import HandoffSection, parse_handoff
from penstock.writing.ledger import Progress, facts_in
from penstock.writing.state import State, entries_of, signs_in

OPEN_SECTIONS = {HandoffSection.PENDING, HandoffSection.REMAINING, HandoffSection.IN_PROGRESS}
STATUSES = {"pending": False, "in_progress": False, "completed": True, "done": True, "todo": False}
COMMANDS = ("pytest", "pytest -x tests", "npm test", "make", "make lint", "grep -n x a.py", "git push")


def state_of(messages):
    redactor = Redactor()
    return State.of(
        [
            msgspec.structs.replace(fact, number=number)
            for number, message in enumerate(messages, start=1)
            for fact in (*signs_in(message, redactor), *facts_in(message, redactor))
        ]
    )


@st.composite
def lists_of_things_to_do(draw):
    """Successive versions of a list: the same items, each time with other statuses."""
    names = draw(st.lists(st.integers(1, 99), min_size=1, max_size=6, unique=True))
    versions = draw(
        st.lists(st.lists(st.sampled_from(sorted(STATUSES)), min_size=6, max_size=6), min_size=1, max_size=4)
    )
    return [
        [
            {"content": f"Item number {name}", "status": status}
            for name, status in zip(names, statuses, strict=False)
        ]
        for statuses in versions
    ]


@given(lists_of_things_to_do())
def test_done_items_are_never_open_and_open_ones_are_told(versions):
    calls = [
        Message(Role.ASSISTANT, (ToolCall(f"c{n}", "todo", json.dumps({"todos": items})),))
        for n, items in enumerate(versions)
    ]
    told = " | ".join(
        f"{entry.text} " for entry in entries_of(state_of(calls), range(99)) if entry.section in OPEN_SECTIONS
    )
    for item in versions[-1]:
        assert (f"{item['content']} " in told) is not STATUSES[item["status"]]


@given(st.lists(st.tuples(st.sampled_from(COMMANDS), st.booleans()), max_size=12))
def test_a_command_that_succeeded_last_is_never_blocked(runs):
    messages = []
    for n, (command, failed) in enumerate(runs):
        messages.append(
            Message(Role.ASSISTANT, (ToolCall(f"c{n}", "terminal", json.dumps({"command": command})),))
        )
        messages.append(Message(Role.TOOL, (ToolResult(f"c{n}", f"exit code {int(failed)}", failed),)))
    blocked = [fact.text.partition(":")[0] for fact in state_of(messages).failing]
    last = dict(runs)
    assert all(last[command] for command in blocked)
    assert not any(command.startswith("grep") for command in blocked)


@given(st.lists(st.tuples(st.sampled_from(sorted(Role)), texts(max_size=120), json_values()), max_size=12))
def test_anything_can_be_read_and_what_is_quoted_stands_in_it(parts):
    messages = []
    for n, (role, text, value) in enumerate(parts):
        messages.append(
            Message(role, (Text(text), ToolCall(f"c{n}", "todo_plan", json.dumps({"todos": value}))))
        )
        messages.append(Message(Role.TOOL, (ToolResult(f"c{n}", text),)))
    state = state_of(messages)
    said = "\n".join(text for _, text, _ in parts)
    for fact in (*state.promises, *state.questions, *state.waiting, *((state.doing,) if state.doing else ())):
        assert all(piece in said for piece in fact.text.split() if "…" not in piece)
    assert all(item.progress in set(Progress) for item in state.todo)


@pytest.mark.parametrize("dialect", ["chat", "anthropic", "responses"])
@given(data=st.data())
def test_broken_conversations_are_compacted_with_their_state(dialect, data):
    wires = data.draw(broken_conversations(dialect))
    try:
        result = penstock.compress(wires, target_tokens=800, dialect=dialect)
    except penstock.PenstockError:
        return
    for wire in result.messages:
        found = mark.find(json.dumps(wire, ensure_ascii=False)) if mark.OPENING in str(wire) else None
        assert found is None or isinstance(parse_handoff(found.text), tuple)
