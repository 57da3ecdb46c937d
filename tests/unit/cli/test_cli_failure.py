from __future__ import annotations

import pytest

from penstock.cli.failure import describe_failure
from penstock.errors import (
    IllegalResult,
    InputError,
    MalformedJSON,
    SettingsError,
    TargetTooSmall,
    UnknownDialect,
    UnknownHandle,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("no"), 2),
        (MalformedJSON("no", position="byte 1"), 2),
        (UnknownDialect("no"), 2),
        (UnknownHandle("no"), 2),
        (SettingsError("no"), 2),
        (TargetTooSmall("no", target_tokens=1, parts={}), 3),
        (IllegalResult("no"), 1),
        (MemoryError(), 1),
        (PermissionError(13, "Permission denied", "out.json"), 2),
        (RecursionError("deep"), 1),
    ],
)
def test_exit_codes(error, code):
    failure = describe_failure(error, "in.json")
    assert failure.code == code
    assert failure.text


def test_an_input_error_names_the_file():
    assert (
        describe_failure(MalformedJSON("bad", position="byte 3"), "a\nb.json").text
        == "a\\nb.json: bad (byte 3)"
    )
    assert describe_failure(InputError("bad"), "-").text == "standard input: bad"


def test_a_quote_of_the_input_is_redacted():
    token = "ghp_" + "Q7w8E9r0T1y2U3i4O5p6" + "A7s8D9f0G1h2J3k4"
    assert token not in describe_failure(InputError(f"role {token!r} is not known"), "x.json").text


def test_a_fault_says_where_and_what_to_do_but_not_what_it_was_about():
    try:
        {}["words of the conversation"]
    except KeyError as error:
        failure = describe_failure(error)
    assert failure.text.startswith("unexpected KeyError in cli/test_cli_failure.py:")
    assert "words of" not in failure.text
    assert "--debug" in failure.text


def test_an_output_that_cannot_be_written_names_it_and_why():
    text = describe_failure(OSError(28, "No space left on device", "out.json")).text
    assert text.startswith("out.json cannot be written: No space left on device; ")
    assert describe_failure(OSError(28, "No space left on device")).text.startswith("the output cannot")
