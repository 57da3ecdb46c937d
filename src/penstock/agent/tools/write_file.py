"""`write_file`: creates or overwrites a whole file in one step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from penstock.errors import ToolFailure
from penstock.loop.approvals import Access, Permission
from penstock.loop.text_files import difference, line_count, read_text, replace_file
from penstock.loop.tools import OwnTool, ToolContext, ToolOutcome, refuse
from penstock.measure.wording import pluralise

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["WriteFile"]


class WriteArguments(msgspec.Struct, frozen=True):
    """Arguments of `write_file`."""

    path: str
    content: Annotated[str, Meta(description="all of the file")]


class WriteFile(OwnTool[WriteArguments]):
    """Writes files; missing folders are created."""

    name = "write_file"
    description = "Write a whole file: creates it, or overwrites it. To change a part of one, use patch."
    access = Access.WRITE
    arguments = WriteArguments

    async def act(self, wanted: WriteArguments, context: ToolContext) -> ToolOutcome:
        """Asks with the difference, then writes."""
        path = context.workspace.resolve(wanted.path)
        if path.is_dir():
            raise ToolFailure(f"{wanted.path} is a folder; give the path of a file")
        shown = context.workspace.relative_name(path)
        before = await asyncio.to_thread(_text_before, path, shown)
        asked = Permission(
            tool=self.name,
            access=self.access,
            subject=shown,
            detail=difference(before or "", wanted.content, shown),
        )
        decision = await context.approve(asked)
        if not decision.allowed:
            return refuse(decision)
        size_bytes = await asyncio.to_thread(_write, path, wanted.content)
        lines = line_count(wanted.content)
        if before is None:
            said = f"created {shown}: {pluralise(lines, 'line')}, {pluralise(size_bytes, 'byte')}"
        else:
            said = f"overwrote {shown}: {line_count(before):,} → {pluralise(lines, 'line')}, {pluralise(size_bytes, 'byte')}"
        return ToolOutcome(said, summary=said)


def _text_before(path: Path, shown: str) -> str | None:
    """Returns the text that would be overwritten; empty for a file that is not text, None if there is no file."""
    if not path.exists():
        return None
    if not path.is_file():
        raise ToolFailure(f"{shown} is not a regular file and is not overwritten")
    try:
        return read_text(path, shown).text
    except ToolFailure:
        return ""


def _write(path: Path, content: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return replace_file(path, content)
