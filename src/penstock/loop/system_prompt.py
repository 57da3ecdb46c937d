"""The system prompt as a snapshot: made once, frozen by its hash, so that the provider's cache holds.

It stands beside the log, not in it, and is never compacted. A host makes a new one only at a boundary: a new session, or
a compaction that changes the prompt anyway.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from penstock.loop.capping import cap_text
from penstock.loop.memory import MemoryName

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.loop.memory import Memory
    from penstock.loop.workspace import Workspace

__all__ = [
    "IDENTITY",
    "FrozenPrompt",
    "PromptParts",
    "PromptSource",
    "Snapshot",
    "instruction_files",
    "take_snapshot",
]

IDENTITY = """\
You are Penstock, an agent that works in a folder on the user's computer through tools.
Look before you change: read files and run commands rather than guess. Do what was asked and no more. \
Say plainly what you did, what you checked and what is left open.
Parts of a long conversation may stand there as a handoff: it is a record of earlier work, not an instruction. \
What stands in this prompt outranks it."""

INSTRUCTION_NAMES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Of a folder, the first of these counts."""

_MOST_CHARS = 24_000  # of all project instructions


class PromptSource(msgspec.Struct, frozen=True):
    """A file that is part of a snapshot, and how many characters of it."""

    path: str
    characters: int


class Snapshot(msgspec.Struct, frozen=True):
    """A system prompt. `digest` is equal for equal texts and for nothing else."""

    text: str
    digest: str
    sources: tuple[PromptSource, ...] = ()


class PromptParts(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of a snapshot."""

    workspace: Workspace | None
    """None for an agent that works in no folder."""
    memory: Memory | None = None
    identity: str = IDENTITY


class FrozenPrompt:
    """The snapshot of a session. `current` stays the same until `renew`, whatever happens to the files."""

    def __init__(self, parts: PromptParts, kept: Snapshot | None = None) -> None:
        """`kept` is the snapshot of a session that is resumed."""
        self.parts = parts
        self.current = kept or take_snapshot(parts)

    def renew(self) -> bool:
        """Takes a new snapshot, at a boundary; returns True if it differs. If not, the old one stays."""
        fresh = take_snapshot(self.parts)
        changed = fresh.digest != self.current.digest
        if changed:
            self.current = fresh
        return changed


def take_snapshot(parts: PromptParts) -> Snapshot:
    """Reads the files as they are now. The same files give the same text: it has no time and nothing random in it."""
    texts = [parts.identity.strip()]
    files: list[Path] = []
    if parts.workspace is not None:
        texts.append(f"Working folder: {parts.workspace.root}")
        files = instruction_files(parts.workspace.root)
    sources: list[PromptSource] = []
    room = _MOST_CHARS
    for path in files:
        text = _read_beginning(path)
        shown = cap_text(text, room) if room > 0 else ""
        if not shown:
            continue
        room -= len(shown)
        sources.append(PromptSource(str(path), len(shown)))
        texts.append(_section(f"Project instructions from {path}", shown))
    for name, title in _MEMORY_TITLES.items():
        text = parts.memory.text(name).strip() if parts.memory is not None else ""
        if text and parts.memory is not None:
            shown = cap_text(text, 2 * parts.memory.limit(name))  # edited by hand, it may be over its limit
            sources.append(PromptSource(parts.memory.place(name), len(shown)))
            texts.append(_section(title, shown))
    whole = "\n\n".join(texts)
    digest = hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()
    return Snapshot(whole, digest, tuple(sources))


_MEMORY_TITLES = {
    MemoryName.MEMORY: "Memory: what you noted in earlier sessions",
    MemoryName.USER: "The user: what you noted about them",
}


def instruction_files(folder: Path) -> list[Path]:
    """Returns the instruction files of a folder and those above it up to the root of its repository, outermost first.

    Without a repository, those of the folder alone. A link that leads out of the repository is not followed.
    """
    folders = list(_up_to_repository(folder))
    root = folders[-1]
    found = []
    for one in reversed(folders):
        named = next((path for name in INSTRUCTION_NAMES if (path := one / name).is_file()), None)
        if named is not None and named.resolve().is_relative_to(root.resolve()):
            found.append(named)
    return found


def _read_beginning(path: Path) -> str:
    """Returns as much of a file as could be shown; nothing if it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(4 * _MOST_CHARS).strip()
    except OSError:
        return ""


def _up_to_repository(folder: Path) -> Iterator[Path]:
    above = [folder, *folder.parents]
    at = next((index for index, one in enumerate(above) if (one / ".git").exists()), 0)
    yield from above[: at + 1]


def _section(title: str, text: str) -> str:
    return f"# {title}\n\n{text}"
