"""Writing for people: colour and bars on a terminal, plain text elsewhere, ASCII where nothing else can be shown."""

from __future__ import annotations

import io
import os
from typing import NamedTuple, TextIO

from penstock.cli.layout import clipped
from penstock.config import wants_colour

__all__ = ["Screen", "screen_of"]

_CODES = {"bold": "1", "dim": "2", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}
_EIGHTHS = " ▏▎▍▌▋▊▉"
_ASCII = str.maketrans({"→": "->", "…": "...", "·": "-", "–": "-", "’": "'", "×": "x"})
_PLAIN_COLUMNS = 100
_LEAST_COLUMNS = 40


class Screen(NamedTuple):
    """A stream and what it can show. `columns` is 0 where lines have no limit."""

    stream: TextIO
    colour: bool = False
    bars: bool = False
    unicode: bool = True
    columns: int = 0

    @property
    def arrow(self) -> str:
        """Between before and after."""
        return "→" if self.unicode else "->"

    def say(self, text: str) -> None:
        """Write lines."""
        print(text if self.unicode else _encodable(text, self.stream), file=self.stream)

    def paint(self, text: str, colour: str) -> str:
        """The text in a colour, or as it is where there are none."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colour and text else text

    def bar(self, share: float, columns: int) -> str:
        """A bar of `share` of that many columns; anything above nothing can be seen."""
        share = min(1.0, max(0.0, share))
        if not self.unicode:
            return "#" * max(round(share * columns), int(share > 0))
        eighths = max(round(share * columns * 8), int(share > 0))
        full, rest = divmod(eighths, 8)
        return "█" * full + (_EIGHTHS[rest] if rest else "")

    def clip(self, text: str, used: int) -> str:
        """The text, cut to what is left of the line after `used` columns."""
        return clipped(text, max(8, self.columns - used), self.unicode) if self.columns else text


def screen_of(stream: TextIO | None) -> Screen:
    """The screen of a stream. A stream that was closed before the start takes everything and shows nothing."""
    if stream is None:
        return Screen(io.StringIO())
    terminal = stream.isatty()
    return Screen(
        stream,
        colour=terminal and wants_colour(),
        bars=terminal,
        unicode=_shows("█→…", stream),
        columns=_columns(stream) if terminal else 0,
    )


def _shows(text: str, stream: TextIO) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "ascii"
    return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)


def _columns(stream: TextIO) -> int:
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        columns = 0
    return max(_LEAST_COLUMNS, columns or _PLAIN_COLUMNS)
