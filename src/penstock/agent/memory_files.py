"""The two memory files: `MEMORY.md`, what the agent is to know, and `USER.md`, whom it works for."""

from __future__ import annotations

import contextlib
import fcntl
import os
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from penstock.agent.memory_entries import entries_of
from penstock.agent.tools.text_files import replace_file
from penstock.errors import ToolFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["MemoryFiles", "MemoryName"]


class MemoryName(StrEnum):
    """Which of the two."""

    MEMORY = "memory"
    USER = "user"

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{self.value.upper()}.md"


class MemoryFiles(msgspec.Struct, frozen=True):
    """The files in a folder, each with a limit, since they stand in every request.

    Several agents may share them: a change reads, checks and replaces under a lock, in one step for who reads.
    """

    folder: Path
    memory_chars: int = 4_000
    user_chars: int = 2_000

    def path(self, name: MemoryName) -> Path:
        """Where the file is."""
        return self.folder / name.file_name

    def limit(self, name: MemoryName) -> int:
        """How many characters it may have."""
        return self.memory_chars if name is MemoryName.MEMORY else self.user_chars

    def text(self, name: MemoryName) -> str:
        """What stands in it; nothing where there is no file."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def change(self, name: MemoryName, how: Callable[[str], str]) -> str:
        """Put what `how` makes of the text in its place; the new text.

        Raises what `how` raises, and ToolFailure where it would grow beyond the limit: nothing was changed then.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock():
            before = self.text(name)
            after = how(before)
            limit = self.limit(name)
            if len(after) > max(limit, len(before) - 1):
                raise ToolFailure(
                    f"{name.file_name} would have {len(after):,} characters, and {limit:,} are allowed; replace or remove "
                    f"some of its {len(entries_of(before))} entries first, or say it in fewer words"
                )
            replace_file(self.path(name), after, mode=0o600)
        return after

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)  # which lets go of the lock
