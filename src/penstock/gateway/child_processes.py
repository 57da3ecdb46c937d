"""The common start, logging and end of the gateway's child processes, which end with their parent."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from typing import IO, TYPE_CHECKING, Any

from penstock._log import log
from penstock.conversation.wire import encode_wire

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Sequence

__all__ = ["begin_child", "follow_parent", "log_fault", "start_child"]

_PR_SET_PDEATHSIG = 1
_FROM_OUTSIDE = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
_BUFFER_BYTES = 1 << 20  # of answers that were not read yet


async def start_child(command: Sequence[str], log_file: IO[Any] | None = None) -> Process:
    """Returns a new process that reads and writes frames; `log_file` takes its log in place of standard error.

    It has a session of its own, so that a terminal's Ctrl-C does not reach it before it has imported what would ignore
    that. Raises OSError.
    """
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=log_file, limit=_BUFFER_BYTES, start_new_session=True
    )


def begin_child() -> int:
    """Sets the process up: it is given frames on stdin. Returns where its answers go.

    Signals may reach all processes of a service, and the parent decides: they are ignored.
    """
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - only there

        for number in (0, 1):  # frames are bytes: no line end of theirs is to be changed
            msvcrt.setmode(number, os.O_BINARY)
    for name in _FROM_OUTSIDE:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library may print is no answer
    lines = logging.StreamHandler()
    lines.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
    return answers


class _JsonLines(logging.Formatter):
    """A line of JSON for each, as in the gateway's own log."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "worker": os.getpid(),
            "message": record.getMessage(),
        }
        return encode_wire(line).decode()


def follow_parent(number: signal.Signals) -> bool:
    """Has the system send this signal when the parent ends; False where it has ended already.

    A copy of the pipe in another process may hide that. Only Linux tells; elsewhere the end of stdin has to do.
    """
    if sys.platform != "linux":
        return True
    import ctypes  # noqa: PLC0415 - only here

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    return os.getppid() == parent


def log_fault(error: Exception, order: object) -> str:
    """Logs a fault of ours, without the error's own text, which may quote a conversation; returns its kind, to be told."""
    kind, where = type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
    log.error("%s ended with %s\n%s", type(order).__name__, kind, where)
    return f"an internal error ({kind})"
