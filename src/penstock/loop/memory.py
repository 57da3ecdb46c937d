"""The two memory files: `MEMORY.md`, what the agent is to know, and `USER.md`, whom it works for."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ToolFailure
from penstock.loop.text_files import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = [
    "MemoryEntry",
    "MemoryFiles",
    "MemoryName",
    "add_entry",
    "entries_of",
    "remove_entry",
    "replace_entry",
]


class MemoryName(StrEnum):
    """Names one of the two memory files."""

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
        """The path of the file."""
        return self.folder / name.file_name

    def limit(self, name: MemoryName) -> int:
        """The most characters that it may have."""
        return self.memory_chars if name is MemoryName.MEMORY else self.user_chars

    def text(self, name: MemoryName) -> str:
        """The text of the file; empty where there is none."""
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


# A memory file as entries, and what changes it. Pure.
#
# An entry is a list item (`- …`, with the lines that go on below it) or else a paragraph. Headings are no entries. A file
# may be edited by hand: what a change does not name stays as it is, character by character.

_ITEM = re.compile(r"[-*+] +")
_MARKERS = re.compile(r"\A(?:[-*+](?:\s+|\Z)|#+\s*)+")
_SHOWN_CHARS = 80


class MemoryEntry(msgspec.Struct, frozen=True):
    """An entry: its words, and the lines it takes, the last one left out."""

    text: str
    first: int
    end: int

    @property
    def key(self) -> str:
        """Equal for entries that say the same, whatever their case and line breaks."""
        return _key(self.text)


def entries_of(text: str) -> tuple[MemoryEntry, ...]:
    """The entries of a file, in order."""
    entries: list[MemoryEntry] = []
    words: list[str] = []
    first = 0

    def close(end: int) -> None:
        if words:
            entries.append(MemoryEntry("\n".join(words), first, end))
            words.clear()

    for number, line in enumerate(lines := text.split("\n")):
        bare = line.strip()
        item = _ITEM.match(line)
        if not bare or line.startswith("#") or item is not None:
            close(number)
        if bare and not line.startswith("#"):
            if not words:
                first = number
            words.append(line[item.end() :].strip() if item is not None else bare)
    close(len(lines))
    return tuple(entries)


def add_entry(text: str, entry: str) -> str:
    """The file with one more entry at its end. Raises ToolFailure for one that is there already, or is empty."""
    _refuse_known(entries_of(text), entry)
    before = text.rstrip("\n")
    return f"{before}\n{_write_entry(entry)}\n" if before else f"{_write_entry(entry)}\n"


def replace_entry(text: str, old: str, entry: str) -> str:
    """The file with another entry in the place of the one that `old` names. Raises ToolFailure as `add_entry` does."""
    entries = entries_of(text)
    found = _find_entry(entries, old)
    _refuse_known([one for one in entries if one is not found], entry)
    lines = text.split("\n")
    return "\n".join([*lines[: found.first], *_write_entry(entry).split("\n"), *lines[found.end :]])


def remove_entry(text: str, old: str) -> str:
    """The file without the entry that `old` names."""
    found = _find_entry(entries_of(text), old)
    lines = text.split("\n")
    return "\n".join([*lines[: found.first], *lines[found.end :]])


def _find_entry(entries: tuple[MemoryEntry, ...], old: str) -> MemoryEntry:
    """The one entry that is `old`, or else holds it. Raises ToolFailure where there is none, or more than one."""
    key = _key(old)
    if not key:
        raise ToolFailure("old is empty; give the entry, or words that only this one has")
    found = [one for one in entries if one.key == key] or [one for one in entries if key in one.key]
    if len(found) == 1:
        return found[0]
    if found:
        raise ToolFailure(
            f"{len(found)} entries have these words; give more of the one that is meant:\n{_list_entries(found)}"
        )
    raise ToolFailure(f"no entry has these words; there are:\n{_list_entries(entries) or '(none)'}")


def _refuse_known(entries: tuple[MemoryEntry, ...] | list[MemoryEntry], entry: str) -> None:
    key = _key(entry)
    if not key:
        raise ToolFailure("text is empty; give the entry")
    if any(one.key == key for one in entries):
        raise ToolFailure("this very entry is there already; nothing was changed")


def _write_entry(entry: str) -> str:
    return "- " + "\n  ".join(_words_of(entry))


def _key(text: str) -> str:
    return " ".join(" ".join(_words_of(text)).split()).casefold()


def _words_of(entry: str) -> list[str]:
    """The lines of an entry; a marker or heading in front of one would make an entry of its own, and is dropped."""
    lines = (_MARKERS.sub("", line.strip()) for line in entry.splitlines())
    return [line for line in lines if line]


def _list_entries(entries: tuple[MemoryEntry, ...] | list[MemoryEntry]) -> str:
    lines = (" ".join(one.text.split()) for one in entries)
    return "\n".join(
        f"- {line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + '…'}" for line in lines
    )
