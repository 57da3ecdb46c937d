"""What is read of a message: nothing that only a client needs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.conversation.message import Message, Role, Text, ToolCall, ToolResult
from penstock.redaction import Redactor
from penstock.writing import reading
from penstock.writing.reading import Reader, split_runs


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
    return source.excerpts


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


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 40))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_runs_are_looked_at_some_at_a_time_each_of_them_once(sizes, rows):
    edges = np.append(0, np.cumsum(np.array(sizes, np.int32), dtype=np.int32)).astype(np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_ROWS_AT_ONCE", rows)
        stretches = list(split_runs(edges))
    assert [run for first, after in stretches for run in range(first, after)] == list(range(len(sizes)))
    for first, after in stretches:
        assert after == first + 1 or sum(sizes[first:after]) <= rows


@given(st.lists(st.text("aΣσ'Aİıſ. \u0345é→", min_size=1, max_size=9), min_size=1, max_size=5))
def test_a_source_in_lower_case_is_its_text_in_lower_case(lines):
    text = "\n".join(f"word {line} word" for line in lines)
    (read,) = Reader(Redactor()).read([Message(Role.USER, (Text(text),))])
    for source in read.sources:
        assert source.lowered == source.text.lower()
