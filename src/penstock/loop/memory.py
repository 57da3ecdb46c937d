"""The two memory files: `MEMORY.md`, facts for the agent, and `USER.md`, about the person it works for."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.errors import ToolFailure
from penstock.loop.text_files import lock_folder, replace_file
from penstock.stores.store import Store  # noqa: TC001 - a struct's field types are read at run time
from penstock.writing.constraints import is_lasting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.stores.values import NewFact

__all__ = [
    "Memory",
    "MemoryEntry",
    "MemoryFiles",
    "MemoryName",
    "MemoryTaker",
    "StoredMemory",
    "add_entry",
    "entries_of",
    "remove_entry",
    "replace_entry",
]


_NOTE = "memory"


class MemoryName(StrEnum):
    """Names one of the two memory files."""

    MEMORY = "memory"
    USER = "user"

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{self.value.upper()}.md"


class Memory(Protocol):
    """Two texts that outlive conversations, each with a limit, since they stand in every request."""

    def text(self, name: MemoryName) -> str:
        """Returns one of them; empty if there is none."""

    def limit(self, name: MemoryName) -> int:
        """Returns the most characters that it may have."""

    def place(self, name: MemoryName) -> str:
        """Returns the place where it is kept, for people to read."""

    def change(self, name: MemoryName, how: Callable[[str], str]) -> str:
        """Replaces the text by what `how` makes of it, in one step for all readers; returns the new text.

        Raises what `how` raises, and ToolFailure if it would grow beyond the limit: then nothing has changed.
        """


class StoredMemory(msgspec.Struct, frozen=True):
    """The memory of one owner in a store that several machines share."""

    store: Store
    key: str
    """The owner's name, or that, `/` and the name of one of their users: it goes when the owner's data is deleted."""
    memory_chars: int = 4_000
    user_chars: int = 2_000

    def text(self, name: MemoryName) -> str:
        """Returns the text that the store has."""
        return (self.store.note(_NOTE, self._key(name)) or b"").decode()

    def limit(self, name: MemoryName) -> int:
        """Returns the most characters that it may have."""
        return self.memory_chars if name is MemoryName.MEMORY else self.user_chars

    def place(self, name: MemoryName) -> str:
        """Returns its name in the store."""
        return name.file_name

    def change(self, name: MemoryName, how: Callable[[str], str]) -> str:
        """Changes it in one transaction. Raises as `Memory.change` does."""

        def write(kept: bytes) -> bytes:
            before = kept.decode()
            after = how(before)
            _require_room(name, before, after, self.limit(name))
            return after.encode(errors="replace")

        return self.store.change_note(_NOTE, self._key(name), write).decode()

    def _key(self, name: MemoryName) -> str:
        return f"{self.key}/{name.value}"


class MemoryFiles(msgspec.Struct, frozen=True):
    """The files in a folder, each with a limit, since they stand in every request.

    Several agents may share them: a change reads, checks and replaces under a lock, and readers see it in one step.
    """

    folder: Path
    memory_chars: int = 4_000
    user_chars: int = 2_000

    def path(self, name: MemoryName) -> Path:
        """Returns the path of the file."""
        return self.folder / name.file_name

    def place(self, name: MemoryName) -> str:
        """Returns its path."""
        return str(self.path(name))

    def limit(self, name: MemoryName) -> int:
        """Returns the most characters that it may have."""
        return self.memory_chars if name is MemoryName.MEMORY else self.user_chars

    def text(self, name: MemoryName) -> str:
        """Returns the text of the file; empty if there is none."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def change(self, name: MemoryName, how: Callable[[str], str]) -> str:
        """Replaces the text by what `how` makes of it; returns the new text.

        Raises what `how` raises, and ToolFailure if it would grow beyond the limit: then nothing has changed.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_folder(self.folder):
            before = self.text(name)
            after = how(before)
            _require_room(name, before, after, self.limit(name))
            replace_file(self.path(name), after, mode=0o600)
        return after


def _require_room(name: MemoryName, before: str, after: str, limit: int) -> None:
    if len(after) > max(limit, len(before) - 1):
        raise ToolFailure(
            f"{name.file_name} would have {len(after):,} characters, and {limit:,} are allowed; replace or remove "
            f"some of its {len(entries_of(before))} entries first, or use fewer words"
        )


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
        """A key that is equal for entries that say the same, regardless of case and line breaks."""
        return _key(self.text)


def entries_of(text: str) -> tuple[MemoryEntry, ...]:
    """Returns the entries of a file, in order."""
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
    """Returns the file with one more entry at its end. Raises ToolFailure for one that is there already, or is empty."""
    _refuse_known(entries_of(text), entry)
    before = text.rstrip("\n")
    return f"{before}\n{_write_entry(entry)}\n" if before else f"{_write_entry(entry)}\n"


def replace_entry(text: str, old: str, entry: str) -> str:
    """Returns the file with the entry that `old` names replaced. Raises ToolFailure as `add_entry` does."""
    entries = entries_of(text)
    found = _find_entry(entries, old)
    _refuse_known([one for one in entries if one is not found], entry)
    lines = text.split("\n")
    return "\n".join([*lines[: found.first], *_write_entry(entry).split("\n"), *lines[found.end :]])


def remove_entry(text: str, old: str) -> str:
    """Returns the file without the entry that `old` names."""
    found = _find_entry(entries_of(text), old)
    lines = text.split("\n")
    return "\n".join([*lines[: found.first], *lines[found.end :]])


def _find_entry(entries: tuple[MemoryEntry, ...], old: str) -> MemoryEntry:
    """Returns the one entry that equals `old`, or else contains it. Raises ToolFailure if there is none, or more than one."""
    key = _key(old)
    if not key:
        raise ToolFailure("old is empty; give the entry, or words that only this one has")
    found = [one for one in entries if one.key == key] or [one for one in entries if key in one.key]
    if len(found) == 1:
        return found[0]
    if found:
        raise ToolFailure(
            f"{len(found)} entries contain these words; give more words of the one you mean:\n{_list_entries(found)}"
        )
    raise ToolFailure(
        f"no entry contains these words; the entries are:\n{_list_entries(entries) or '(none)'}"
    )


def _refuse_known(entries: tuple[MemoryEntry, ...] | list[MemoryEntry], entry: str) -> None:
    key = _key(entry)
    if not key:
        raise ToolFailure("text is empty; give the entry")
    if any(one.key == key for one in entries):
        raise ToolFailure("this entry is already there; nothing was changed")


def _write_entry(entry: str) -> str:
    return "- " + "\n  ".join(_words_of(entry))


def _key(text: str) -> str:
    return " ".join(" ".join(_words_of(text)).split()).casefold()


def _words_of(entry: str) -> list[str]:
    """Returns the lines of an entry, without markers and headings in front, which would start entries of their own."""
    lines = (_MARKERS.sub("", line.strip()) for line in entry.splitlines())
    return [line for line in lines if line]


def _list_entries(entries: tuple[MemoryEntry, ...] | list[MemoryEntry]) -> str:
    lines = (" ".join(one.text.split()) for one in entries)
    return "\n".join(
        f"- {line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + '…'}" for line in lines
    )


# Taking into the files what a person said to remember, before the conversation that holds it is left behind. No model is
# asked. A sentence counts where it is an instruction (`writing.constraints`) that says itself that it is meant for later:
# "remember that …", "from now on …", "ab jetzt …", "记住…". An instruction for the task at hand ("don't touch b.py") stays in
# the handoff and is no memory.

_OF_THE_PERSON = re.compile(
    r"\b(?:i|i[’'](?:m|ve|d|ll)|me|my|mine|ich|mich|mir|mein\w*|je|moi|mon|ma)\b", re.IGNORECASE
)
_WORDS = re.compile(r"\w{3,}")
_ALIKE = 0.7  # of the words: the agent has noted it itself, in other words
_LONGEST = 300  # characters of an entry
_CONSTRAINT = "constraint"


class MemoryTaker:
    """Adds lasting instructions to memory, each once. `tell` hears of each entry that was added.

    An instruction that does not fit is refused once, and then skipped.
    """

    def __init__(self, memory: Memory, tell: Callable[[str], None]) -> None:
        self._memory = memory
        self._tell = tell
        self._seen: set[str] = set()

    def __call__(self, facts: Sequence[NewFact]) -> None:
        """Takes what must outlive these facts' messages. Raises ToolFailure if a file has no room for it."""
        lasting = [
            fact.text
            for fact in sorted(facts, key=lambda one: one.position)
            if fact.kind == _CONSTRAINT and fact.superseded is None and len(fact.text) <= _LONGEST
        ]
        refused: ToolFailure | None = None
        for text in filter(is_lasting, lasting):
            if text in self._seen:
                continue
            self._seen.add(text)
            try:
                self._take(text)
            except ToolFailure as error:
                refused = error
        if refused is not None:
            raise refused

    def _take(self, text: str) -> None:
        known = [entry.text for name in MemoryName for entry in entries_of(self._memory.text(name))]
        if any(_says(one, text) for one in known):
            return
        name = MemoryName.USER if _OF_THE_PERSON.search(text) else MemoryName.MEMORY
        self._memory.change(name, lambda before: add_entry(before, text))
        self._tell(f"{name.file_name} now holds: {text}")


def _says(entry: str, text: str) -> bool:
    """Returns True if an entry already says what the text does: it has most of its words."""
    words, held = set(_WORDS.findall(text.lower())), set(_WORDS.findall(entry.lower()))
    if not words:  # a language that is written without spaces, or very few words
        return text.strip() in entry
    return len(words & held) >= _ALIKE * len(words)
