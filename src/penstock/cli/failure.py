"""Describes failures to people: one line that names the value, the limit and the next step, and an exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from penstock import __version__
from penstock.cli.screen import printable
from penstock.errors import IllegalResult, InputError, PenstockError, TargetTooSmall

__all__ = ["BAD_INPUT", "FAULT", "TOO_SMALL", "CommandFailure", "describe_failure"]

FAULT, BAD_INPUT, TOO_SMALL = 1, 2, 3


class CommandFailure(NamedTuple):
    """The line to print and the exit code."""

    text: str
    code: int


def describe_failure(error: Exception, file: str | None = None) -> CommandFailure:
    """Returns the line and the exit code for an exception. `file` is the input, named if it is at fault."""
    match error:
        case TargetTooSmall():
            text, code = str(error), TOO_SMALL
        case IllegalResult():
            text, code = f"{error}; nothing was written. {_ask_for_report()}", FAULT
        case InputError():
            name = "standard input" if file == "-" else file
            text, code = f"{name}: {_redact(str(error))}" if name else _redact(str(error)), BAD_INPUT
        case PenstockError():
            text, code = str(error), BAD_INPUT
        case MemoryError():
            text, code = "not enough memory for this input: split it into smaller files", FAULT
        case OSError():
            where = error.filename if isinstance(error.filename, str) else "the output"
            why = error.strerror or type(error).__name__
            text, code = f"{where} cannot be written: {why}; choose another place", BAD_INPUT
        case _:
            text, code = f"unexpected {type(error).__name__}{_locate(error)}. {_ask_for_report()}", FAULT
    return CommandFailure(printable(text), code)


def _ask_for_report() -> str:
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        "This is a fault in Penstock: run the command again with --debug and report the traceback "
        f"(penstock {__version__}, Python {python}, {sys.platform})"
    )


def _locate(error: Exception) -> str:
    """Returns where the error was raised, without its text, which may quote the conversation."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    file = "/".join(Path(trace.tb_frame.f_code.co_filename).parts[-2:])
    return f" in {file}:{trace.tb_lineno}"


def _redact(text: str) -> str:
    """Removes secrets: an error about the input may quote a word of it."""
    from penstock.accounts.display import redact  # noqa: PLC0415 - only errors about the input need it

    return redact(text)
