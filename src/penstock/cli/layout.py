"""Text in lines and columns, without regard to where it is shown."""

from __future__ import annotations

import textwrap
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["aligned", "clipped", "fitting", "plural", "printable", "width_of", "wrapped"]

_JOINERS = "\u200c\u200d"  # without a width of their own: Persian words and composed emoji have them


def printable(text: str) -> str:
    """The text in one line, with escapes for what would move the cursor or cannot be encoded."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in _JOINERS else char.encode("unicode_escape").decode()
        for char in text
    )


def plural(count: int, word: str) -> str:
    """The number and its word: `1 token`, `2,000 tokens`."""
    return f"{count:,} {word if count == 1 else word + 's'}"


def width_of(text: str) -> int:
    """Columns that the text takes on a terminal."""
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


def clipped(text: str, columns: int, unicode: bool = True) -> str:
    """The text in at most that many columns, with an ellipsis where something is missing."""
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


def wrapped(text: str, columns: int, indent: int = 0) -> list[str]:
    """The text in lines of at most that many columns, broken between words; 0 columns know no limit.

    Lines after the first begin with `indent` blanks. A word that is longer than a line stays whole.
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


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[list[str]]:
    """The rows with each column but the last padded to one width; columns in `right` are flush right."""
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        [
            cell if at == last and at not in right else _padded(cell, width, flush_right=at in right)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]


def fitting(rows: Sequence[Sequence[str]], columns: int, give_way: Sequence[int]) -> list[list[str]]:
    """The rows with as many of their columns as fit, two blanks between them; 0 columns know no limit.

    Those in `give_way` go, in their order, until the rest fits.
    """
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    kept = list(range(len(widths)))
    for at in give_way if columns else ():
        if sum(widths[one] + 2 for one in kept) - 2 <= columns:
            break
        kept.remove(at)
    return [[row[at] for at in kept] for row in rows]


def _padded(cell: str, width: int, *, flush_right: bool) -> str:
    blank = " " * (width - width_of(cell))
    return blank + cell if flush_right else cell + blank
