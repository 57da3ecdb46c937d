"""`patch`: replaces a text in a file, exactly."""

from __future__ import annotations

import asyncio
import difflib
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.errors import ToolFailure
from penstock.loop.approvals import Access, Permission
from penstock.loop.text_files import difference, read_text, replace_file
from penstock.loop.tools import OwnTool, ToolContext, ToolOutcome, refuse

__all__ = ["Patch", "Patched", "patch_text", "why_not_found"]


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
        """Finds the place, asks with the difference, and writes."""
        path = context.workspace.resolve(wanted.path)
        shown = context.workspace.relative_name(path)
        if not path.is_file():
            raise ToolFailure(
                f"there is no file {shown}; list_files shows what there is, write_file makes new ones"
            )
        file = await asyncio.to_thread(read_text, path, shown)
        if not file.exact:
            raise ToolFailure(
                f"{shown} has bytes that are not UTF-8 and would be lost; change it with terminal"
            )
        result = patch_text(file.text, wanted.old, wanted.new, everywhere=wanted.all)
        detail = difference(file.text, result.text, shown)
        asked = Permission(tool=self.name, access=self.access, subject=shown, detail=detail)
        decision = await context.approve(asked)
        if not decision.allowed:
            return refuse(decision)
        if (await asyncio.to_thread(read_text, path, shown)).text != file.text:
            raise ToolFailure(f"{shown} was changed by another program meanwhile; read it again")
        await asyncio.to_thread(replace_file, path, result.text)
        said = f"patched {shown} at {_places(result.lines)}"
        return ToolOutcome(said, summary=said)


def patch_text(text: str, old: str, new: str, *, everywhere: bool = False) -> Patched:
    """Returns the changed text. If all line endings of the text are CR LF, those of `old` and `new` become CR LF, too.

    Raises ToolFailure that says why it cannot be made: not found, with the nearest lines; found more than once; or nothing
    to change.
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
            f"old occurs {len(lines):,} times, at {_places(lines)}; "
            "give more of the lines around it, or all = true to replace each"
        )
    return Patched(text.replace(old, new), lines)


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _lines_of(text: str, old: str) -> tuple[int, ...]:
    """Returns the line of each occurrence, none overlapping another."""
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


# Why a text does not stand in a file, and what stands there that is most like it. Pure.

_SHOWN_LINES = 12
_LONGEST_LINE = 200  # characters of a line that are compared and shown
_MOST_LINES = 20_000  # that are compared
_ALIKE = 0.6


def why_not_found(text: str, old: str) -> str:
    """Returns a text for the model, with the nearest lines as they stand there."""
    lines, wanted = text.split("\n"), old.strip("\n").split("\n")
    if (at := _same_but_white_space(lines, wanted)) is not None:
        return (
            "old is not in the file, but lines that differ from it only in white space are\n"
            f"Copy them as they stand:\n{_excerpt(lines, at, len(wanted))}"
        )
    at = _most_alike(lines, wanted)
    if at is None:
        return "old is not in the file, nor anything like it; read the file again before changing it"
    return f"old is not in the file\nThe nearest lines are:\n{_excerpt(lines, at, len(wanted))}"


def _same_but_white_space(lines: list[str], wanted: list[str]) -> int | None:
    """Returns the place where the lines are the same but for white space."""
    sought = ["".join(line.split()) for line in wanted]
    if not any(sought):
        return None
    bare = ["".join(line.split()) for line in lines]
    first, length = sought[0], len(sought)
    if length == 1:
        return next((at for at, line in enumerate(bare) if first and first in line), None)
    candidates = range(len(bare) - length + 1)
    return next((at for at in candidates if bare[at] == first and bare[at : at + length] == sought), None)


def _most_alike(lines: list[str], wanted: list[str]) -> int | None:
    """Returns where the wanted lines would begin, going by the line that is most like the longest of them."""
    key = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    sought = wanted[key].strip()[:_LONGEST_LINE]
    if not sought:
        return None
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(sought)
    best, place = _ALIKE, None
    for at, line in enumerate(lines[:_MOST_LINES]):
        matcher.set_seq1(line.strip()[:_LONGEST_LINE])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, place = matcher.ratio(), max(0, at - key)
    return place


def _excerpt(lines: list[str], at: int, count: int) -> str:
    end = min(len(lines), at + min(count, _SHOWN_LINES))
    width = len(str(end))
    shown = [f"{number + 1:>{width}}\t{_short(lines[number])}" for number in range(at, end)]
    return "\n".join(shown + (["…"] if count > _SHOWN_LINES else []))


def _short(line: str) -> str:
    line = line.removesuffix("\r")
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
