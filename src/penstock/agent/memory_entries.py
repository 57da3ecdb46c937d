"""A memory file as entries, and what changes it. Pure.

An entry is a list item (`- …`, with the lines that go on below it) or else a paragraph. Headings are no entries. A file
may be edited by hand: what a change does not name stays as it is, character by character.
"""

from __future__ import annotations

import re

import msgspec

from penstock.errors import ToolFailure

__all__ = ["MemoryEntry", "added", "entries_of", "removed", "replaced"]

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


def added(text: str, entry: str) -> str:
    """The file with one more entry at its end. Raises ToolFailure for one that is there already, or is empty."""
    _refuse_known(entries_of(text), entry)
    before = text.rstrip("\n")
    return f"{before}\n{_written(entry)}\n" if before else f"{_written(entry)}\n"


def replaced(text: str, old: str, entry: str) -> str:
    """The file with another entry in the place of the one that `old` names. Raises ToolFailure as `added` does."""
    entries = entries_of(text)
    found = _named(entries, old)
    _refuse_known([one for one in entries if one is not found], entry)
    lines = text.split("\n")
    return "\n".join([*lines[: found.first], *_written(entry).split("\n"), *lines[found.end :]])


def removed(text: str, old: str) -> str:
    """The file without the entry that `old` names."""
    found = _named(entries_of(text), old)
    lines = text.split("\n")
    return "\n".join([*lines[: found.first], *lines[found.end :]])


def _named(entries: tuple[MemoryEntry, ...], old: str) -> MemoryEntry:
    """The one entry that is `old`, or else holds it. Raises ToolFailure where there is none, or more than one."""
    key = _key(old)
    if not key:
        raise ToolFailure("old is empty; give the entry, or words that only this one has")
    found = [one for one in entries if one.key == key] or [one for one in entries if key in one.key]
    if len(found) == 1:
        return found[0]
    if found:
        raise ToolFailure(
            f"{len(found)} entries have these words; give more of the one that is meant:\n{_listed(found)}"
        )
    raise ToolFailure(f"no entry has these words; there are:\n{_listed(entries) or '(none)'}")


def _refuse_known(entries: tuple[MemoryEntry, ...] | list[MemoryEntry], entry: str) -> None:
    key = _key(entry)
    if not key:
        raise ToolFailure("text is empty; give the entry")
    if any(one.key == key for one in entries):
        raise ToolFailure("this very entry is there already; nothing was changed")


def _written(entry: str) -> str:
    return "- " + "\n  ".join(_words_of(entry))


def _key(text: str) -> str:
    return " ".join(" ".join(_words_of(text)).split()).casefold()


def _words_of(entry: str) -> list[str]:
    """The lines of an entry; a marker or heading in front of one would make an entry of its own, and is dropped."""
    lines = (_MARKERS.sub("", line.strip()) for line in entry.splitlines())
    return [line for line in lines if line]


def _listed(entries: tuple[MemoryEntry, ...] | list[MemoryEntry]) -> str:
    lines = (" ".join(one.text.split()) for one in entries)
    return "\n".join(
        f"- {line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + '…'}" for line in lines
    )
