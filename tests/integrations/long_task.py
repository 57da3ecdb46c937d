"""A long task for the tests of all integrations: what the model does at each call, what its tools answer, and what must hold.

40 calls, most of them with two or three tools at once. Early on a file names a value that nothing repeats; near the end
the model looks it up with the recall tools, by search and by handle.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.mark import OPENING
from penstock.conversation.rules import check
from penstock.conversation.wire import encode_wire
from penstock.measure.tokens import tokenizer_for

CALLS = 40
WINDOW = 12_000
SECRET_PLACE = "reef-7431-quartz"  # said once, in the result of the second call
ASKED = "Read every part of the archive and write down what is odd. Never touch part 9."


class Step(NamedTuple):
    """One answer of the model: its text, and its calls as (id, name, arguments)."""

    text: str
    calls: tuple[tuple[str, str, dict], ...] = ()


def read_part(number: int, half: str = "a") -> str:
    """The tool of the task: a page of the archive."""
    lines = [
        f"record {number}.{half}.{n}: {(number * 7919 + n * 104729) % 99991} units, shelf {n % 13}"
        for n in range(24)
    ]
    if number == 2 and half == "a":
        lines.insert(11, f"The anchor depot is called {SECRET_PLACE}; the keys are kept there.")
    return "\n".join(lines)


def read(path: str) -> str:
    """The tool of the examples."""
    return read_part(int(path))


def next_step(number: int, *, recall: bool = True) -> Step:
    """What the model answers to request `number`, from 1."""
    if recall and number == CALLS - 3:
        return Step(
            "Where was the anchor depot?", ((f"c{number}", "history_search", {"query": "anchor depot keys"}),)
        )
    if recall and number == CALLS - 2:
        return Step("", ((f"c{number}", "history_expand", {"handle": "m2", "limit": 400}),))
    if number >= CALLS:
        return Step("All parts are read. The anchor depot is known.")
    halves = "abc"[: 1 + number % 3]
    return Step(
        f"Reading part {number}.",
        tuple((f"c{number}{half}", "read_part", {"number": number, "half": half}) for half in halves),
    )


def require_legal(wires, dialect: str) -> None:
    """No orphan, no broken order: a provider would take it."""
    broken = check(decode_all(dialect_named(dialect), wires), dialect_named(dialect).rules)
    assert not broken, broken[:3]


def count_tokens(wires) -> int:
    """What the fake provider reports: some more than we count."""
    return tokenizer_for(None).count(encode_wire(wires).decode())


def holds_handoff(wires) -> bool:
    return OPENING in encode_wire(wires).decode()


def require_recalled(answers) -> None:
    """The answers of history_search and history_expand, as JSON texts."""
    assert len(answers) == 2, answers
    found, page = (json.loads(one) for one in answers)
    assert SECRET_PLACE in json.dumps(found), found
    assert page.get("text"), page
