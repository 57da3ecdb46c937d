"""A text as numbered lines, page by page. Pure.

Every character of the text is on some page: a page says where the next one begins, also inside a line that is too long
for it.
"""

from __future__ import annotations

import msgspec

__all__ = ["LINE_CHARS", "Page", "Start", "page_of"]

LINE_CHARS = 2_000
"""The most that is shown of a line, unless a page begins inside it."""


class Start(msgspec.Struct, frozen=True):
    """Where a page begins: the line and the character in it, both from 1 on."""

    line: int = 1
    column: int = 1


class Page(msgspec.Struct, frozen=True):
    """Numbered lines, the notes on them, and where the next page begins (None at the end of the text).

    `cut` are the lines of which only the beginning is shown, with their lengths. `last_line` is the last one shown.
    """

    lines: tuple[str, ...]
    last_line: int
    cut: tuple[tuple[int, int], ...] = ()
    following: Start | None = None

    @property
    def text(self) -> str:
        """The page as it is shown."""
        return "\n".join(self.lines)


def page_of(all_lines: list[str], start: Start, *, most_lines: int, most_chars: int) -> Page:
    """The page from there on, numbers included, but with one character of text at the least.

    `start` is not past the end.
    """
    room = most_chars
    width = len(str(min(len(all_lines), start.line + most_lines)))
    shown: list[str] = []
    cut: list[tuple[int, int]] = []
    number = start.line
    while number <= len(all_lines) and number < start.line + most_lines:
        line = all_lines[number - 1]
        inside = not shown and start.column > 1
        rest = line[start.column - 1 :] if inside else line
        room -= width + 1  # the number and what parts it from the line
        if shown and min(len(rest), LINE_CHARS) > room:
            break
        longest = max(1, room if inside else min(room, LINE_CHARS))
        shown.append(f"{number:>{width}}\t{rest[:longest]}")
        room -= len(rest[:longest]) + 1
        if len(rest) > longest:
            if inside or longest < LINE_CHARS:  # the page ends inside the line
                column = (start.column if inside else 1) + longest
                return Page(tuple(shown), number, tuple(cut), Start(number, column))
            cut.append((number, len(line)))
        number += 1
    following = Start(number) if number <= len(all_lines) else None
    return Page(tuple(shown), number - 1, tuple(cut), following)
