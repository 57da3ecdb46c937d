"""Writing for people: text in lines and columns, and a screen that shows it as well as its stream can.

A terminal gets colour and bars, anything else plain text, and ASCII where the encoding has nothing more. Written by
hand, and light: every command loads it, `--help` included, and `rich` comes with the chat only.
"""

from __future__ import annotations

import io
import os
import re
import sys
import textwrap
import unicodedata
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TextIO

from penstock.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = [
    "DECLINED",
    "Screen",
    "align",
    "clip",
    "complain",
    "confirm",
    "drop_columns",
    "forget_stdout",
    "keep_errors_quiet",
    "print_address",
    "printable",
    "screen_of",
    "width_of",
    "wrap",
    "wrap_painted",
]

DECLINED = 130
"""The exit code of a command whose question was answered with no."""
_PAINTED = re.compile(r"(\x1b\[\d+m)(.*)(\x1b\[0m)")
_JOINERS = "\u200c\u200d"  # without a width of their own: Persian words and composed emoji have them


def printable(text: str) -> str:
    """Returns the text in one line, with escapes for what would move the cursor or cannot be encoded."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in _JOINERS else char.encode("unicode_escape").decode()
        for char in text
    )


def width_of(text: str) -> int:
    """Returns the columns that the text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(char) or char in _JOINERS
        else 2
        if unicodedata.east_asian_width(char) in "WF"
        else 1
        for char in text
    )


def clip(text: str, columns: int, unicode: bool = True) -> str:
    """Returns the text in at most that many columns, with an ellipsis where something is missing."""
    if width_of(text) <= columns:
        return text
    dots = "…" if unicode else "..."
    room = columns - len(dots)
    kept = ""
    for char in text:
        room -= width_of(char)
        if room < 0:
            break
        kept += char
    return kept + dots


def wrap(text: str, columns: int, indent: int = 0) -> list[str]:
    """Breaks the text between words into lines of at most that many columns; 0 columns mean no limit.

    Lines after the first begin with `indent` blanks. A word that is longer than a line is not broken.
    """
    if not columns or width_of(text) <= columns:
        return [text]
    return textwrap.wrap(
        text,
        max(columns, indent + 1),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def wrap_painted(line: str, columns: int) -> list[str]:
    """As `wrap`, for a line that may be in a colour from its beginning to its end; one with colours inside stays whole."""
    painted = _PAINTED.fullmatch(line)
    before, text, after = painted.groups() if painted else ("", line, "")
    if "\x1b" in text:
        return [line]
    return [f"{before}{part}{after}" for part in wrap(text, columns, len(text) - len(text.lstrip()))]


def align(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[list[str]]:
    """Pads each column but the last to one width; columns in `right` are flush right."""
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        [
            cell if at == last and at not in right else _pad(cell, width, flush_right=at in right)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]


def drop_columns(rows: Sequence[Sequence[str]], columns: int, give_way: Sequence[int]) -> list[list[str]]:
    """Leaves out columns until the rest fits, with two blanks between them; 0 columns mean no limit.

    Columns in `give_way` are left out first to last.
    """
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    kept = list(range(len(widths)))
    for at in give_way if columns else ():
        if sum(widths[one] + 2 for one in kept) - 2 <= columns:
            break
        kept.remove(at)
    return [[row[at] for at in kept] for row in rows]


def _pad(cell: str, width: int, *, flush_right: bool) -> str:
    blank = " " * (width - width_of(cell))
    return blank + cell if flush_right else cell + blank


_CODES = {"bold": "1", "dim": "2", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}
_EIGHTHS = " ▏▎▍▌▋▊▉"
_ASCII = str.maketrans({"→": "->", "…": "...", "·": "-", "–": "-", "’": "'", "×": "x"})
_PLAIN_COLUMNS = 100
_LEAST_COLUMNS = 40


class Screen(NamedTuple):
    """A stream and what it can show. `columns` is 0 if lines have no limit."""

    stream: TextIO
    colour: bool = False
    bars: bool = False
    unicode: bool = True
    columns: int = 0

    @property
    def arrow(self) -> str:
        """Returns the sign between before and after."""
        return "→" if self.unicode else "->"

    def say(self, text: str) -> None:
        """Writes lines."""
        print(text if self.unicode else _make_encodable(text, self.stream), file=self.stream)

    def paint(self, text: str, colour: str) -> str:
        """Returns the text in a colour, or as it is if the screen has none."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colour and text else text

    def bar(self, share: float, columns: int) -> str:
        """Returns a bar of `share` of that many columns; anything above 0 is visible."""
        share = min(1.0, max(0.0, share))
        if not self.unicode:
            return "#" * max(round(share * columns), int(share > 0))
        eighths = max(round(share * columns * 8), int(share > 0))
        full, rest = divmod(eighths, 8)
        return "█" * full + (_EIGHTHS[rest] if rest else "")

    def clip(self, text: str, used: int) -> str:
        """Cuts the text to what is left of the line after `used` columns."""
        return clip(text, max(8, self.columns - used), self.unicode) if self.columns else text


def screen_of(stream: TextIO | None) -> Screen:
    """Returns the screen of a stream; None, a stream that was closed before the start, shows nothing."""
    if stream is None:
        return Screen(io.StringIO())

    from penstock.config import wants_colour  # noqa: PLC0415 - help and mistakes do without

    terminal = stream.isatty()
    return Screen(
        stream,
        colour=terminal and wants_colour(),
        bars=terminal,
        unicode=_can_show("█→…", stream),
        columns=_count_columns(stream) if terminal else 0,
    )


def complain(text: str) -> None:
    """Writes an error to standard error: one line, which a terminal shows broken between words."""
    if sys.stderr is not None:
        columns = _count_columns(sys.stderr) if sys.stderr.isatty() else 0
        print("\n".join(wrap(f"penstock: {text}", columns)), file=sys.stderr)


class _StandardError(io.TextIOWrapper):
    """Standard error that drops what it cannot write: a full disk there fails no command whose work is done."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def keep_errors_quiet() -> None:
    """Lets nothing fail for want of room, or of a reader, on standard error."""
    stderr = sys.stderr
    if stderr is not None and stderr is sys.__stderr__ and isinstance(stderr, io.TextIOWrapper):
        sys.stderr = _StandardError(
            stderr.buffer, encoding=stderr.encoding, errors=stderr.errors, line_buffering=True
        )


def print_address(address: str, *, json_too: bool) -> None:
    """Prints the address of a server that has begun to listen; does nothing if standard output was closed before.

    Raises SettingsError if it cannot be printed: an OSError would look like one of the server's own.
    """
    import json  # noqa: PLC0415 - only servers need it

    try:
        screen_of(sys.stdout).say(json.dumps({"address": address}) if json_too else address)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        forget_stdout()
        why = error.strerror or type(error).__name__
        raise SettingsError(f"the output cannot be written: {why}; choose another place") from None


def forget_stdout() -> None:
    """Discards what is still to be written, so that the interpreter's own last flush is quiet."""
    if sys.stdout is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _can_show(text: str, stream: TextIO) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _make_encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "ascii"
    return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)


def _count_columns(stream: TextIO) -> int:
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        columns = 0
    return max(_LEAST_COLUMNS, columns or _PLAIN_COLUMNS)


def confirm(question: str) -> bool:
    """Asks at the terminal; returns True for yes. Raises SettingsError if there is no terminal to ask at."""
    if sys.stdin is None or sys.stderr is None or not sys.stdin.isatty():
        raise SettingsError("deleting cannot be undone, and there is no terminal to ask at: add --yes")
    asked = wrap(f"penstock: {question} [y/N]", screen_of(sys.stderr).columns)
    print("\n".join(asked), end=" ", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
