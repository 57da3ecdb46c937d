"""`memory`: adds, replaces and removes entries in the two memory files."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.errors import ToolFailure
from penstock.loop.approvals import Access, Permission
from penstock.loop.memory import MemoryName, add_entry, entries_of, remove_entry, replace_entry
from penstock.loop.text_files import difference
from penstock.loop.tools import OwnTool, ToolContext, ToolOutcome, refuse
from penstock.measure.wording import pluralise

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MemoryTool"]


class MemoryArguments(msgspec.Struct, frozen=True):
    """Arguments of `memory`."""

    action: Literal["add", "replace", "remove"]
    file: Annotated[
        Literal["memory", "user"], Meta(description="memory: facts that stay true. user: the person")
    ]
    text: Annotated[str | None, Meta(description="the entry, for add and replace: one short fact")] = None
    old: Annotated[str | None, Meta(description="the entry to replace or remove, or words only it has")] = (
        None
    )


class MemoryTool(OwnTool[MemoryArguments]):
    """Changes the memory. The system prompt shows the change from the next snapshot on."""

    name = "memory"
    description = "Keep short facts for later sessions: add, replace or remove an entry of the memory."
    access = Access.WRITE
    arguments = MemoryArguments

    async def act(self, wanted: MemoryArguments, context: ToolContext) -> ToolOutcome:
        """Works out the change, asks with the difference, and writes."""
        files = context.memory
        if files is None:
            raise ToolFailure("there is no memory in this session")
        if wanted.text is not None and context.redact(wanted.text) != wanted.text:
            raise ToolFailure(
                "text contains what looks like a secret; do not keep it in memory: say where it is kept"
            )
        name, how = MemoryName(wanted.file), _change(wanted)
        before = await asyncio.to_thread(files.text, name)
        asked = Permission(
            tool=self.name,
            access=self.access,
            subject=name.file_name,
            detail=difference(before, how(before), name.file_name),
        )
        decision = await context.approve(asked)
        if not decision.allowed:
            return refuse(decision)
        after = await asyncio.to_thread(files.change, name, how)
        said = (
            f"{name.file_name}: {_DONE[wanted.action]}; {pluralise(len(entries_of(after)), 'entry', 'entries')}, "
            f"{len(after):,} of {files.limit(name):,} characters"
        )
        return ToolOutcome(
            f"{said}. The system prompt shows it from the next session or compaction on.", summary=said
        )


_DONE = {"add": "entry added", "replace": "entry replaced", "remove": "entry removed"}


def _change(wanted: MemoryArguments) -> Callable[[str], str]:
    """Returns the change to make to the text of the file. Raises ToolFailure if an argument is missing."""
    text, old = wanted.text or "", wanted.old or ""
    if wanted.action != "remove" and not text:
        raise ToolFailure(f"{wanted.action} needs text, the entry")
    if wanted.action != "add" and not old:
        raise ToolFailure(f"{wanted.action} needs old, the entry to change")
    if wanted.action == "add":
        return partial(add_entry, entry=text)
    if wanted.action == "replace":
        return partial(replace_entry, old=old, entry=text)
    return partial(remove_entry, old=old)
