"""Writes a result: all of it or nothing, whatever happens on the way."""

from __future__ import annotations

import errno
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.screen import printable
from penstock.loop.text_files import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["write_file", "write_output", "write_stdout"]

_TERMINATED = 143


def write_output(name: str | None, data: bytes) -> bool:
    """Writes to the file that `--output` names, or to standard output for none or `-`; returns True for a file.

    The report then goes to the other stream: to standard error beside data on standard output. Raises OSError.
    """
    if name is None or name == "-":
        write_stdout(data)
        return False
    write_file(name, data)
    return True


def write_file(name: str, data: bytes) -> None:
    """Writes the file. It holds all of `data` or what it held before, even after an interruption or a crash.

    Missing folders are created. Links are followed; a device or a pipe is written to directly. Raises OSError.
    """
    path = Path(name).resolve()
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        _make_folder(path.parent)
        with _termination_unwinds():
            replace_file(path, data)
    except OSError as error:  # names the file that was given, not the temporary one
        raise OSError(error.errno, error.strerror, name) from error


def write_stdout(data: bytes) -> None:
    """Writes to standard output, to a terminal with escapes for what would move its cursor or change its colours.

    Raises OSError, BrokenPipeError if nothing reads it any more.
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, "it is closed", "standard output")
    sys.stdout.flush()
    if sys.stdout.isatty():
        data = _clean_for_terminal(data)
    sys.stdout.buffer.write(data)
    if sys.stdout.isatty() and not data.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")  # so that the report begins on a line of its own
    sys.stdout.buffer.flush()


def _clean_for_terminal(data: bytes) -> bytes:
    lines = data.decode(errors="backslashreplace").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines).encode()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # would mislead: a folder was not asked for
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


@contextmanager
def _termination_unwinds() -> Iterator[None]:
    """Has SIGTERM raise SystemExit until the end of the block, so that `except` and `finally` blocks run."""

    def leave(_number: int, _frame: object) -> None:
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
