"""The `penstock` command: from its arguments to an exit code."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.cli.options import carry_store
from penstock.cli.parser import build_parser
from penstock.cli.screen import complain, forget_stdout, keep_errors_quiet
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

__all__ = ["HOMES", "main"]

INTERRUPTED, PIPE_CLOSED = 130, 141

# The function of each command. Its module is imported when the command runs: help and mistakes need none of it.
HOMES = {
    "compress": "compress:run",
    "explain": "explain:run",
    "tokens": "tokens:run",
    "chat": "chat:run",
    "serve": "serve:run",
    "dashboard": "dashboard:run",
    "wrap": "wrap:run",
    "mcp": "mcp:run",
    "trajectories": "trajectories:run",
    "sessions list": "sessions:run_list",
    "sessions show": "sessions:run_show",
    "sessions export": "session_files:run_export",
    "sessions import": "session_files:run_import",
    "sessions delete": "session_changes:run_delete",
    "sessions expire": "session_changes:run_expire",
    "sessions undo": "session_changes:run_undo",
    "sessions pin": "session_changes:run_pin",
    "sessions unpin": "session_changes:run_pin",
    "search": "search:run",
    "usage": "spending:run_usage",
    "insights": "spending:run_insights",
    "doctor": "setup:run_doctor",
    "keys create": "keys:run_create",
    "keys list": "keys:run_list",
    "keys revoke": "keys:run_revoke",
    "keys delete-data": "keys:run_delete_data",
    "keys rotate-seal": "keys:run_rotate_seal",
    "bench recall": "bench:run_recall",
    "bench replay": "bench:run_replay",
    "engines": "setup:run_engines",
    "config": "setup:run_config",
    "completion": "completion:run",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. Every failure is one line on standard error."""
    args = None
    keep_errors_quiet()
    try:
        args = build_parser().parse_args(_ask_for_help(sys.argv[1:] if argv is None else argv))
        code = _run(args)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a full disk or a closed pipe can still be answered
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        forget_stdout()
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - the entry of the application: nothing may pass it as a traceback
        return _report(error, args)
    return code


def _ask_for_help(argv: Sequence[str]) -> Sequence[str]:
    """Returns the arguments; without any, and for `help COMMAND`, those that show help."""
    if argv and argv[0] != "help":
        return argv
    return [*argv[1:], "--help"]


def _run(args: argparse.Namespace) -> int:
    command = " ".join(filter(None, (args.command, getattr(args, "action", None))))
    module, _, name = HOMES[command].partition(":")
    _show_warnings()
    code: int = getattr(import_module(f"penstock.cli.{module}"), name)(args)
    return code


def _show_warnings() -> None:
    """Prints the library's warnings on standard error; on its own it prints nothing."""
    import logging  # noqa: PLC0415 - help and mistakes do without

    if (handler := logging.lastResort) is not None:
        logging.getLogger("penstock").addHandler(handler)


def _report(error: Exception, args: argparse.Namespace | None) -> int:
    """Says what failed, in one line, and returns the exit code."""
    from penstock.cli.failure import describe_failure  # noqa: PLC0415 - only a failure needs it

    if isinstance(error, OSError) and not isinstance(error, PenstockError):
        forget_stdout()
    failure = describe_failure(error, getattr(args, "file", None))
    if sys.stderr is None:
        return failure.code
    if getattr(args, "debug", False):
        import traceback  # noqa: PLC0415 - as above

        traceback.print_exception(error)
    complain(carry_store(failure.text, args))
    return failure.code
