"""`list_files`: lists a folder as a tree."""

from __future__ import annotations

import asyncio
import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from penstock.agent.tools.walking import FolderEntry, levels_below
from penstock.errors import ToolFailure
from penstock.loop.globs import compile_path_glob
from penstock.loop.tools import OwnTool, ToolContext, ToolOutcome
from penstock.measure.wording import pluralise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["ListFiles"]

_ENTRIES = 400
_DEPTH, _DEEPEST = 3, 50
_MOST_VISITED = 50_000
_SECONDS = 10.0


class ListArguments(msgspec.Struct, frozen=True):
    """Arguments of `list_files`."""

    path: str = "."
    depth: Annotated[int, Meta(ge=1, le=50, description="folders deep: 3, or all with a glob")] | None = None
    glob: Annotated[str | None, Meta(description="only files like this, such as *.py or docs/**")] = None


class ListFiles(OwnTool[ListArguments]):
    """Lists a folder without ignored files; if there are too many entries, the nearest ones."""

    name = "list_files"
    description = "List files and folders as a tree, without what .gitignore leaves out."
    most_chars = 30_000
    arguments = ListArguments

    async def act(self, wanted: ListArguments, context: ToolContext) -> ToolOutcome:
        """Lists the folder."""
        root = context.workspace.root
        start = context.workspace.resolve(wanted.path)
        if not start.is_dir():
            what = "is a file; read_file reads it" if start.exists() else "does not exist"
            raise ToolFailure(f"{wanted.path} {what}")
        folder = "" if start == root else context.workspace.relative_name(start)
        found, complete = await asyncio.to_thread(_find_nearest, root, folder, wanted)
        lines = list(_draw(found, folder))
        if not lines:
            nothing = f"no file like {wanted.glob}" if wanted.glob else "nothing"
            lines = [f"[{nothing} to list in {wanted.path}]"]
        if not complete:
            lines.append(
                f"[more than {len(found):,} entries: these are the nearest; list a folder by itself for more]"
            )
        entries = pluralise(len(found), "entry", "entries")
        return ToolOutcome("\n".join(lines), summary=entries if complete else f"{entries} and more")


def _find_nearest(root: Path, folder: str, wanted: ListArguments) -> tuple[list[FolderEntry], bool]:
    """Returns the nearest entries with their folders, and whether these are all."""
    depth = wanted.depth or (_DEPTH if wanted.glob is None else _DEEPEST)
    until = time.monotonic() + _SECONDS
    visited = islice(levels_below(root, folder, depth, until=until), _MOST_VISITED)
    if wanted.glob is None:
        found = list(islice(visited, _ENTRIES + 1))
        return found[:_ENTRIES], len(found) <= _ENTRIES and time.monotonic() < until
    glob = compile_path_glob(wanted.glob)
    prefix = f"{folder}/" if folder else ""
    files = (
        entry for entry in visited if not entry.is_folder and glob.matches(entry.path.removeprefix(prefix))
    )
    found = list(islice(files, _ENTRIES + 1))
    kept = found[:_ENTRIES]
    return [*_folders_of(kept, prefix), *kept], len(found) <= _ENTRIES and time.monotonic() < until


def _folders_of(files: Iterable[FolderEntry], prefix: str) -> Iterator[FolderEntry]:
    paths = dict.fromkeys(
        prefix + "/".join(parts[:count])
        for entry in files
        for parts in [entry.path.removeprefix(prefix).split("/")]
        for count in range(1, len(parts))
    )
    return (FolderEntry(path, is_folder=True) for path in paths)


def _draw(entries: Iterable[FolderEntry], folder: str) -> Iterator[str]:
    """Yields a line for each, indented below its folder."""
    base = folder.count("/") + 1 if folder else 0
    for entry in sorted(entries, key=lambda entry: entry.path.split("/")):
        end = "/" if entry.is_folder else "@" if entry.is_link else ""
        yield f"{'  ' * (entry.path.count('/') - base)}{entry.name}{end}"
