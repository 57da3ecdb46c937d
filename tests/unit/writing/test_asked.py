"""The lines that a request means by its plain words."""

from __future__ import annotations

import json
from pathlib import Path

import penstock

FILLER = "the quick brown fox jumps over the lazy dog and sleeps\n" * 12


def read(call_id, path, output):
    function = {"name": "read_file", "arguments": json.dumps({"path": path})}
    made = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": call_id, "content": output},
    ]


LISTING = "\n".join(
    f'{{\n"id": "gate-{n}{n}x",\n"place": "{place}",\n"owner": "department {n}"\n}},'
    for n, place in enumerate(["attic", "cellar", "garden", "kitchen"], 3)
)


def view(request, tokens=2_200):
    messages = [
        {"role": "user", "content": "Look after the house with me."},
        *read("a1", "docs/handbook.md", f"{FILLER}Water the ferns with 3 cups at a time.\n{FILLER}"),
        *read(
            "a2",
            "logs/alarm.log",
            f"{FILLER}21:02:39 alarm refused by sensor\n21:09:11 alarm refused again\n{FILLER}",
        ),
        *read("a3", "lists/gates.json", f"gates follow\n{LISTING}\n{FILLER}"),
        *(
            one
            for n in range(40)
            for one in read(f"f{n}", f"notes/{n}.txt", f"value_{n} = {n * 7}\n{FILLER}")
        ),
        {"role": "assistant", "content": "All of the notes are read."},
        {"role": "user", "content": request},
    ]
    kept = penstock.compress(messages, target_tokens=tokens, dialect="chat").messages
    return "\n".join(str(message["content"]) for message in kept)


def test_each_thing_that_a_request_asks_for_is_looked_for_by_itself():
    text = view(
        "Write it up for me: the id of the gate in the cellar from the listing of gates, the time of the first refused "
        "alarm, and how many cups the handbook gives the ferns."
    )
    assert "3 cups" in text
    assert "21:02:39" in text
    assert "gate-44x" in text


def test_a_line_of_data_comes_with_what_it_is_of():
    assert "gate-55x" in view("Which gate is in the garden?")


def test_the_example_holds_what_its_last_request_asks_for():
    example = Path(__file__).parents[3] / "examples" / "long_session.json"
    messages = json.loads(example.read_text(encoding="utf-8"))["messages"]
    text = json.dumps(penstock.compress(messages, target_tokens=6_000, model="gpt-4.1").messages)
    assert "we_5Kd2Rv81Qx" in text  # the endpoint id
    assert "2025-11-13T21:02:39.139Z" in text  # the first rejected event
    assert "A batch of 25" in text  # what the runbook asks for
    assert "--since <ISO time> --batch <n> --dry-run" in text  # the command
