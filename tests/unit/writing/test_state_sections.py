"""The state of the work in handoffs: what a compaction without a model states, and what the next one makes of it."""

from __future__ import annotations

import json

import penstock
from penstock.conversation import mark
from penstock.measure.tokens import tokenizer_for
from penstock.writing.handoff import HandoffSection, parse_handoff, render_handoff

STATE = {
    HandoffSection.IN_PROGRESS,
    HandoffSection.BLOCKED,
    HandoffSection.PENDING,
    HandoffSection.REMAINING,
    HandoffSection.RESOLVED,
}
LONG = "some words of a file\n" * 60  # a result that takes room and says nothing


def call(call_id, name, output, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    made = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": call_id, "content": output},
    ]


def todo(call_id, *items):
    listed = [{"content": text, "status": status} for text, status in items]
    return call(call_id, "todo", f"ok\n{LONG}", todos=listed)


def reading(first, last):
    """Work that takes room and changes nothing."""
    return [
        one
        for n in range(first, last)
        for one in call(
            f"r{n}", "read_file", f"value_{n} = {n}\n" + "some words of a file\n" * 40, path=f"f{n}.py"
        )
    ]


def sections(messages):
    text = next(m["content"] for m in messages if mark.OPENING in str(m["content"]))
    found: dict[HandoffSection, list[str]] = {}
    for entry in parse_handoff(mark.find(text).text):
        found.setdefault(entry.section, []).append(entry.text)
    return found


def compress(messages, tokens=1_600):
    return penstock.compress(messages, target_tokens=tokens, dialect="chat").messages


WORK = [
    {"role": "user", "content": "Make the parser accept dates."},
    *reading(90, 92),  # the head, which stays as it is
    *todo(
        "t1",
        ("Read the grammar", "completed"),
        ("Extend the lexer", "in_progress"),
        ("Write docs", "pending"),
    ),
    *call("e1", "edit_file", f"done\n{LONG}", path="src/lexer.py"),
    *call(
        "c1",
        "terminal",
        f"{LONG}FAILED tests/test_dates.py::test_leap - ValueError\nexit code 1",
        command="pytest -q",
    ),
    *call("e2", "edit_file", f"done\n{LONG}", path="src/dates.py"),
]


def test_a_handoff_states_how_the_work_stands():
    found = sections(compress([*WORK, *reading(0, 30)]))
    assert found[HandoffSection.BLOCKED] == ["pytest -q: FAILED tests/test_dates.py::test_leap - ValueError"]
    assert found[HandoffSection.IN_PROGRESS] == [
        "Extend the lexer (1 of 3 done)",
        "edited and not tested since: src/dates.py",
    ]
    assert found[HandoffSection.REMAINING] == ["Write docs"]


def test_the_next_handoff_carries_what_still_holds():
    first = compress([*WORK, *reading(0, 30)])
    found = sections(compress([*first, *reading(30, 60)]))
    assert found[HandoffSection.BLOCKED] == ["pytest -q: FAILED tests/test_dates.py::test_leap - ValueError"]
    assert found[HandoffSection.REMAINING] == ["Write docs"]


def test_and_drops_what_was_done_and_works_again():
    first = compress([*WORK, *reading(0, 30)])
    since = [
        *call("c2", "terminal", "9 passed\nexit code 0", command="pytest"),
        *todo("t2", ("Extend the lexer", "completed"), ("Write docs", "completed"), ("Tell Ann", "pending")),
    ]
    found = sections(compress([*first, *since, *reading(30, 60)]))
    assert HandoffSection.BLOCKED not in found
    assert found[HandoffSection.REMAINING] == ["Tell Ann (2 of 3 done)"]
    assert not any("edited" in text for text in found.get(HandoffSection.IN_PROGRESS, ()))


def test_the_state_takes_a_tenth_of_the_room_at_most():
    items = [(f"Do the part number {n} of this rather long list of things", "pending") for n in range(60)]
    found = compress([*WORK, *todo("t3", *items), *reading(0, 40)], tokens=2_000)
    text = mark.find(next(m["content"] for m in found if mark.OPENING in str(m["content"]))).text
    state = render_handoff([entry for entry in parse_handoff(text) if entry.section in STATE])
    count = tokenizer_for(None).count
    assert 0 < count(state) <= 0.1 * count(text)
