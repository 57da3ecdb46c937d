"""`patch`: a text in a file replaced by another, exactly."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.agent.approval import Access, Permission
from penstock.agent.tools.base import OwnTool, ToolContext, ToolOutcome, refused
from penstock.agent.tools.differences import difference
from penstock.agent.tools.near_misses import why_not_found
from penstock.agent.tools.text_files import read_text, replace_file
from penstock.errors import ToolFailure

__all__ = ["Patch", "Patched", "patched"]

_MOST_NAMED = 10  # places that are named


class PatchArguments(msgspec.Struct, frozen=True):
    """Arguments of `patch`."""

    path: str
    old: Annotated[str, Meta(description="text as it stands in the file, with its indentation")]
    new: Annotated[str, Meta(description="text to put in its place")]
    all: Annotated[bool, Meta(description="replace every occurrence")] = False


class Patched(msgspec.Struct, frozen=True):
    """The text with the change in it, and the lines at which it was made."""

    text: str
    lines: tuple[int, ...]


class Patch(OwnTool[PatchArguments]):
    """Changes a file where the old text stands in it once, or everywhere with `all`."""

    name = "patch"
    description = "Replace a text in a file. It must stand there exactly as given, and once, unless `all`."
    access = Access.WRITE
    arguments = PatchArguments

    async def act(self, wanted: PatchArguments, context: ToolContext) -> ToolOutcome:
        """Find the place, ask with the difference, write."""
        path = context.workspace.resolve(wanted.path)
        shown = context.workspace.shown(path)
        if not path.is_file():
            raise ToolFailure(
                f"there is no file {shown}; list_files shows what there is, write_file makes new ones"
            )
        file = await asyncio.to_thread(read_text, path, shown)
        if not file.exact:
            raise ToolFailure(
                f"{shown} has bytes that are no UTF-8 and would be lost; change it with terminal"
            )
        result = patched(file.text, wanted.old, wanted.new, everywhere=wanted.all)
        detail = difference(file.text, result.text, shown)
        asked = Permission(tool=self.name, access=self.access, subject=shown, detail=detail)
        decision = await context.approve(asked)
        if not decision.allowed:
            return refused(decision)
        if (await asyncio.to_thread(read_text, path, shown)).text != file.text:
            raise ToolFailure(f"{shown} was changed by somebody else meanwhile; read it again")
        await asyncio.to_thread(replace_file, path, result.text)
        said = f"patched {shown} at {_places(result.lines)}"
        return ToolOutcome(said, summary=said)


def patched(text: str, old: str, new: str, *, everywhere: bool = False) -> Patched:
    """The change, made. Where all line ends of the text are CR LF, those of `old` and `new` become so.

    Raises ToolFailure that says why it cannot be made: not found and what is nearest, found more than once,
    nothing to change.
    """
    if not old:
        raise ToolFailure("old is empty; give the text to replace, or use write_file for a whole file")
    if text.count("\r\n") == text.count("\n") > 0:
        old, new = _with_crlf(old), _with_crlf(new)
    if old == new:
        raise ToolFailure("old and new are the same; nothing to change")
    lines = _lines_of(text, old)
    if not lines:
        raise ToolFailure(why_not_found(text, old))
    if len(lines) > 1 and not everywhere:
        raise ToolFailure(
            f"old stands there {len(lines):,} times, at {_places(lines)}; "
            "give more of the lines around it, or all = true to replace each"
        )
    return Patched(text.replace(old, new), lines)


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _lines_of(text: str, old: str) -> tuple[int, ...]:
    """The line of each occurrence, none overlapping another."""
    lines = []
    line, last = 1, 0
    at = text.find(old)
    while at >= 0:
        line += text.count("\n", last, at)
        lines.append(line)
        last, at = at, text.find(old, at + len(old))
    return tuple(lines)


def _places(lines: tuple[int, ...]) -> str:
    named = ", ".join(map(str, lines[:_MOST_NAMED]))
    more = f" and {len(lines) - _MOST_NAMED:,} more" if len(lines) > _MOST_NAMED else ""
    return f"line {named}" if len(lines) == 1 else f"lines {named}{more}"
