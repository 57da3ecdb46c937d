"""The `penstock` command: from its arguments to an exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.cli.parser import build_parser
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

__all__ = ["main"]

INTERRUPTED, PIPE_CLOSED = 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Every failure is one line on standard error."""
    args = None
    try:
        args = build_parser().parse_args(argv)
        code = _run(args)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a full disk or a closed pipe can still be answered
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - the entry of the application: nothing may pass it as a traceback
        return _failed(error, args)
    return code


def _run(args: argparse.Namespace) -> int:
    """Carry out the command. Its module is imported only now: help and mistakes need none of it."""
    module = import_module(f"penstock.cli.{args.command}")
    code: int = module.run(args)
    return code


def _failed(error: Exception, args: argparse.Namespace | None) -> int:
    """Say what failed, in one line, and return the exit code for it."""
    from penstock.cli.failure import failure_of  # noqa: PLC0415 - only a failure needs it

    if isinstance(error, OSError) and not isinstance(error, PenstockError):
        _forget_stdout()
    failure = failure_of(error, getattr(args, "file", None))
    if sys.stderr is None:
        return failure.code
    if getattr(args, "debug", False):
        import traceback  # noqa: PLC0415 - as above

        traceback.print_exception(error)
    print(f"penstock: {failure.text}", file=sys.stderr)
    return failure.code


def _forget_stdout() -> None:
    """Let what is still to be written vanish, so that the interpreter's own last flush is quiet."""
    if sys.stdout is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
