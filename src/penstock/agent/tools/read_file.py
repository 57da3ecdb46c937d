"""`read_file`: reads a text file or a stored result, page by page with line numbers."""

from __future__ import annotations

import asyncio
import difflib
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from penstock.agent.tools.walking import looks_secret
from penstock.errors import ToolFailure
from penstock.loop.approvals import Access, Permission
from penstock.loop.text_files import TextFile, read_text
from penstock.loop.tools import OwnTool, ToolContext, ToolOutcome

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LINE_CHARS", "Page", "ReadFile", "Start", "page_of"]


_LINES = 2_000
_NAMED = 30  # entries of a folder that are named where a file was wanted


class ReadArguments(msgspec.Struct, frozen=True):
    """Arguments of `read_file`."""

    path: Annotated[str, Meta(description="a file, or the handle of a stored result")]
    offset: Annotated[int, Meta(ge=1, description="first line, from 1")] = 1
    limit: Annotated[int, Meta(ge=1, description="lines at most")] = _LINES
    column: Annotated[int, Meta(ge=1, description="first character of that line, for long lines")] = 1


class ReadFile(OwnTool[ReadArguments]):
    """Reads pages. A page is bounded by the context; there is no other limit, so that reading back never loops."""

    name = "read_file"
    description = "Read a text file with line numbers. Long ones come page by page: go on with offset."
    most_chars = None
    arguments = ReadArguments

    async def act(self, wanted: ReadArguments, context: ToolContext) -> ToolOutcome:
        """Reads a page."""
        found = await self._find_text(wanted.path, context)
        lines = [line.removesuffix("\r") for line in found.text.split("\n")]
        if lines[-1] == "":
            lines.pop()
        if not lines:
            return ToolOutcome(f"[{wanted.path} is empty]", summary="empty")
        if wanted.offset > len(lines):
            raise ToolFailure(
                f"offset {wanted.offset:,} is past the end: {wanted.path} has {len(lines):,} lines"
            )
        length = len(lines[wanted.offset - 1])
        if wanted.column > max(1, length):
            raise ToolFailure(
                f"column {wanted.column:,} is past the end: line {wanted.offset:,} has {length:,} characters"
            )
        start = Start(wanted.offset, wanted.column)
        page = page_of(lines, start, most_lines=wanted.limit, most_chars=context.page_chars)
        notes = _notes(page, len(lines), exact=found.exact)
        text = "\n".join([page.text, *(f"[{note}]" for note in notes)])
        return ToolOutcome(text, summary=f"lines {wanted.offset:,} to {page.last_line:,} of {len(lines):,}")

    async def _find_text(self, name: str, context: ToolContext) -> TextFile:
        """Returns the text of the file, else of the stored result with that handle."""
        try:
            path = context.workspace.resolve(name)
        except ToolFailure:
            if (text := await context.stored(name)) is not None:
                return TextFile(text, len(text))
            raise
        if path.is_dir():
            raise ToolFailure(f"{name} is a folder; in it: {_entries(path)}")
        if path.exists():
            if looks_secret(name) or looks_secret(context.workspace.relative_name(path)):
                await self._require_yes(name, context)
            return await asyncio.to_thread(read_text, path, name)
        if (text := await context.stored(name)) is not None:
            return TextFile(text, len(text))
        raise ToolFailure(_suggest(name, path, context))

    async def _require_yes(self, name: str, context: ToolContext) -> None:
        """Raises ToolFailure unless the person approves: such a file is read by mistake more often than on purpose."""
        asked = Permission(
            tool=self.name, access=Access.READ, subject=name, why="a file that looks like it holds secrets"
        )
        decision = await context.approve(asked)
        if not decision.allowed:
            raise ToolFailure(
                f"{name} looks like it holds secrets, and reading it was not allowed: {decision.reason}"
            )


def _notes(page: Page, total: int, *, exact: bool) -> list[str]:
    notes = [
        f"line {number:,} has {length:,} characters, the first {LINE_CHARS:,} are shown; "
        f"offset {number}, column {LINE_CHARS + 1} goes on"
        for number, length in page.cut
    ]
    if not exact:
        notes.append("some bytes are not UTF-8 and are shown as �; patch and write_file would lose them")
    if page.following is not None:
        column = f", column {page.following.column}" if page.following.column > 1 else ""
        notes.append(f"{total:,} lines in all; go on with offset {page.following.line}{column}")
    return notes


def _suggest(name: str, path: Path, context: ToolContext) -> str:
    """Returns a hint for a wrong path: similar names, or the contents of the nearest folder."""
    folder = next(parent for parent in path.parents if parent.is_dir())
    where = context.workspace.relative_name(folder)
    names = [entry.name for entry in folder.iterdir()]
    alike = difflib.get_close_matches(path.name, names, n=5) if folder == path.parent else []
    there = f"alike: {', '.join(alike)}" if alike else f"in {where}: {_entries(folder)}"
    return f"there is no file or stored result {name}; {there}"


def _entries(folder: Path) -> str:
    names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in folder.iterdir())
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more if names else "nothing"


# A text as numbered lines, page by page. Pure.
#
# Every character of the text is on some page: a page says where the next one begins, also inside a line that is too long
# for it.

LINE_CHARS = 2_000
"""The most that is shown of a line, unless a page begins inside it."""


class Start(msgspec.Struct, frozen=True):
    """The beginning of a page: the line and the character in it, both from 1 on."""

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
    """Returns the page from there on, within the limit including line numbers, but with at least one character of text.

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
