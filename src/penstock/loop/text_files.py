"""Reads text files whole, replaces files in one step, and locks a folder against other processes."""

from __future__ import annotations

import difflib
import os
import secrets
import stat
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ToolFailure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "TextFile",
    "difference",
    "line_count",
    "lock_folder",
    "looks_binary",
    "read_text",
    "replace_file",
    "size_in_words",
]


_MOST_BYTES = 64 << 20
_SNIFFED_BYTES = 8_192


class TextFile(msgspec.Struct, frozen=True):
    """The text of a file. `exact` is False if bytes that are not UTF-8 were replaced by �."""

    text: str
    size_bytes: int
    exact: bool = True


def read_text(path: Path, shown: str) -> TextFile:
    """Returns the text of a file. Raises ToolFailure for a file that is not text, not regular, or too large to read at once."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise ToolFailure(f"{shown} is not a regular file and cannot be read")
    if about.st_size > _MOST_BYTES:
        raise ToolFailure(
            f"{shown} has {size_in_words(about.st_size)}, more than the {size_in_words(_MOST_BYTES)} that can be read at "
            "once; take a part of it with terminal (head, tail, sed -n, grep)"
        )
    data = path.read_bytes()
    if looks_binary(data):
        raise ToolFailure(
            f"{shown} is a binary file of {size_in_words(len(data))}; terminal has programs that can look into it"
        )
    try:
        return TextFile(data.decode(), len(data))
    except UnicodeDecodeError:
        return TextFile(data.decode(errors="replace"), len(data), exact=False)


def looks_binary(data: bytes) -> bool:
    """Returns True if the beginning has a null byte, which no text has."""
    return b"\0" in data[:_SNIFFED_BYTES]


def replace_file(path: Path, content: str | bytes, mode: int = 0o666) -> int:
    """Puts the content in place of the file in one step, and returns its size in bytes.

    An existing file keeps its mode; a new one gets `mode`, less what the umask takes. Concurrent readers, and
    readers after a crash, see the old file or the new one.
    """
    data = content.encode() if isinstance(content, str) else content
    beside = path.with_name(f".penstock-{secrets.token_hex(6)}.new")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            beside.chmod(stat.S_IMODE(path.stat().st_mode))
        beside.replace(path)
    finally:  # it is gone after the replacement; after a failure or a cancellation no half of it may stay
        beside.unlink(missing_ok=True)
    return len(data)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Locks the folder: other processes that lock it wait until the block ends."""
    import fcntl  # noqa: PLC0415 - Windows has none, and writes files all the same

    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # which lets go of the lock


def line_count(text: str) -> int:
    """Returns the number of lines; a last one without an end counts."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def size_in_words(size_bytes: int) -> str:
    """Returns the size as people say it."""
    size = float(size_bytes)
    for unit in ("bytes", "KB", "MB"):
        if size < 1_000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} GB"


# What a write changes, for the person who is asked. Pure.

_MOST_LINES = 200
_MOST_COMPARED = 20_000  # lines; comparing more takes longer than anybody waits for a question


def difference(before: str, after: str, name: str) -> str:
    """Returns a unified difference of at most 200 lines; only the sizes if the files are very long."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > _MOST_COMPARED:
        return f"{name}: {len(old):,} → {len(new):,} lines"
    lines = difflib.unified_diff(old, new, f"{name} (now)", f"{name} (then)", lineterm="")
    shown = list(islice(lines, _MOST_LINES + 1))
    more = ["…"] if len(shown) > _MOST_LINES else []
    return "\n".join([*shown[:_MOST_LINES], *more])
