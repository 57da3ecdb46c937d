"""What is read of a message: nothing that only a client needs."""

from __future__ import annotations

import json

from penstock.conversation.message import Message, Role, ToolCall, ToolResult
from penstock.redaction import Redactor
from penstock.writing.reading import Reader


def read(*parts, role):
    (reading,) = Reader(Redactor()).read([Message(role, parts)])
    return [source.text for source in reading.sources]


def test_lines_about_a_run_are_left_out():
    head = "Chunk ID: 99950b\nWall time: 3.2 seconds\nProcess exited with code 0\nOriginal token count: 12\nOutput:\n"
    assert read(ToolResult("c1", f"{head}9 passed in 3 s"), role=Role.TOOL) == ["9 passed in 3 s"]


def test_but_not_the_one_that_names_what_goes_on():
    head = "Wall time: 3.2 seconds\nProcess running with session ID 4711\nOutput:\n"
    assert read(ToolResult("c1", f"{head}starting"), role=Role.TOOL) == [
        "Process running with session ID 4711\nstarting"
    ]


def test_an_output_that_has_such_a_line_inside_stays():
    text = "Here is what I found\nName: relay\nOutput:\nfine"
    assert read(ToolResult("c1", text), role=Role.TOOL) == [text]


def read_call(**arguments):
    (reading,) = Reader(Redactor()).read(
        [Message(Role.ASSISTANT, (ToolCall("c1", "tool", json.dumps(arguments)),))]
    )
    (source,) = reading.sources
    return [source.excerpt(place) for place in range(source.end_excerpt - source.first_excerpt)]


def test_a_command_is_read_as_it_was_written_and_keeps_its_options():
    assert read_call(command="pytest -q tests/unit", description="Run the unit tests", timeout=60_000) == [
        "pytest -q tests/unit",
        "Run the unit tests\ntimeout 60000",
    ]


def test_an_edit_says_which_text_is_the_old_one_and_which_the_new():
    found = read_call(file_path="/srv/a.py", old_string="port = 1\nhost = 2", new_string="port = 3\nhost = 4")
    assert "\n".join(found) == "/srv/a.py\nold_string:\nport = 1\nhost = 2\nnew_string:\nport = 3\nhost = 4"


def test_other_arguments_keep_their_keys():
    assert read_call(order_id="#W123", item_ids=["1001", "1002"], reason="no longer needed") == [
        "order_id #W123, item_ids 1001 1002, reason no longer needed"
    ]


def test_a_secret_in_a_command_is_not_read():
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    read = "\n".join(
        read_call(command=f'curl -H "Authorization: Bearer {token}"\nexport GITHUB_TOKEN={token}')
    )
    assert token not in read
    assert "curl" in read
