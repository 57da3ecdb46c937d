"""Text in lines and columns, without regard to where it is shown."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["aligned", "clipped", "printable", "width_of"]


def printable(text: str) -> str:
    """The text in one line, with escapes for what would move the cursor or cannot be encoded."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def width_of(text: str) -> int:
    """Columns that the text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
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


def _padded(cell: str, width: int, *, flush_right: bool) -> str:
    blank = " " * (width - width_of(cell))
    return blank + cell if flush_right else cell + blank
