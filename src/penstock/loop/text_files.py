"""Text files as the file tools read and write them: whole, in UTF-8, replaced in one step."""

from __future__ import annotations

import difflib
import os
import secrets
import stat
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ToolFailure

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "TextFile",
    "difference",
    "line_count",
    "looks_binary",
    "read_text",
    "replace_file",
    "size_in_words",
]


_MOST_BYTES = 64 << 20
_SNIFFED_BYTES = 8_192


class TextFile(msgspec.Struct, frozen=True):
    """The text of a file. `exact` is False where bytes that are no UTF-8 were replaced by �."""

    text: str
    size_bytes: int
    exact: bool = True


def read_text(path: Path, shown: str) -> TextFile:
    """The text of a file. Raises ToolFailure for what is no text, no file, or too large to be read at once."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise ToolFailure(f"{shown} is no regular file and cannot be read")
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
    """True where the beginning has a null byte, which no text has."""
    return b"\0" in data[:_SNIFFED_BYTES]


def replace_file(path: Path, text: str, mode: int = 0o666) -> int:
    """Write the text and put it in place of the file in one step; how many bytes it has.

    The mode of a file that is there is kept; a new one gets `mode`, less what the umask takes.
    A reader at the same time sees the old file or the new one.
    """
    data = text.encode()
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
    except BaseException:  # whatever happened, also a cancellation, no half of a file is left
        beside.unlink(missing_ok=True)
        raise
    return len(data)


def line_count(text: str) -> int:
    """The number of lines; a last one without an end counts."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def size_in_words(size_bytes: int) -> str:
    """The size as people say it."""
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
    """A unified difference of at most 200 lines; only the sizes where the files are very long."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > _MOST_COMPARED:
        return f"{name}: {len(old):,} → {len(new):,} lines"
    lines = difflib.unified_diff(old, new, f"{name} (now)", f"{name} (then)", lineterm="")
    shown = list(islice(lines, _MOST_LINES + 1))
    more = ["…"] if len(shown) > _MOST_LINES else []
    return "\n".join([*shown[:_MOST_LINES], *more])
