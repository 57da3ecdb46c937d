"""The sessions that Claude Code and Codex have recorded on this machine, imported as they grow.

A file is read when it is new or has changed, the newest first. Which folder a conversation was about is noted beside it.
Importing twice adds nothing, and several servers may do it at the same time.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._log import log
from penstock.conversation.wire import parse_json, read_text
from penstock.errors import InputError
from penstock.sessions.importing import WITHOUT_PARENT, adopt_conversation
from penstock.transfer.reading import read_recorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from penstock.integrations.library import LibraryScope
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.transfer.recorded import RecordedConversation

__all__ = ["CLIENT_NOTE", "FOLDER_NOTE", "ClientHistory"]

FOLDER_NOTE, CLIENT_NOTE = "folder", "client"
"""The names of the notes on a conversation: the folder that it was about, and the program that recorded it."""
_FILE_NOTE = "history file"
_HEAD_BYTES = 262_144  # in which the folder of a session is looked for
_HEAD_LINES = 40


class _File(NamedTuple):
    client: str
    path: Path
    state: str
    """Changes when the file does."""
    changed: float


class ClientHistory:
    """The recorded sessions in these folders, by the name of their program, as far as they are in scope."""

    def __init__(
        self, store: Store, settings: Settings, folders: Mapping[str, Path], scope: LibraryScope
    ) -> None:
        self._store = store
        self._settings = settings
        self._folders = folders
        self._scope = scope
        self._known: dict[Path, str] = {}
        self._lock = Lock()

    def catch_up(self, seconds: float | None = None) -> int:
        """Imports what is new, for a limited time; returns how many files are left.

        If another thread is doing so, waits for it as long.
        """
        end = None if seconds is None else time.monotonic() + seconds
        if not self._lock.acquire(timeout=-1 if seconds is None else seconds):
            return sum(1 for _ in self._list_changed())
        try:
            changed = sorted(self._list_changed(), key=lambda file: file.changed, reverse=True)
            for done, file in enumerate(changed):
                if end is not None and time.monotonic() > end:
                    return len(changed) - done
                self._take(file)
            return 0
        finally:
            self._lock.release()

    def _list_changed(self) -> Iterator[_File]:
        for client, folder in self._folders.items():
            if self._scope.client in ("", client):
                for path in folder.rglob("*.jsonl"):
                    try:
                        info = path.stat()
                    except OSError:  # gone since
                        continue
                    state = f"{info.st_mtime_ns} {info.st_size}"
                    if self._known.get(path) != state:
                        yield _File(client, path, state, info.st_mtime)

    def _take(self, file: _File) -> None:
        """Imports one file, unless an earlier process has, or it is about another folder. Its faults are for the log."""
        self._known[file.path] = file.state
        noted = self._store.note(_FILE_NOTE, str(file.path))
        try:
            folder = _read_folder(file.path)
            if (noted is not None and noted.decode() == file.state) or not self._scope.holds_folder(folder):
                return
            recorded = read_recorded(file.path.read_bytes()).conversations
        except (OSError, InputError) as error:
            log.info("%s is left out: %s", file.path, error)
            return
        whole = True
        for one in recorded:
            whole &= self._adopt(one, folder, file)
        if whole:
            self._store.put_note(_FILE_NOTE, str(file.path), file.state.encode())
        else:  # the rest of its last message is still to come
            del self._known[file.path]

    def _adopt(self, recorded: RecordedConversation, folder: str, file: _File) -> bool:
        try:
            done = adopt_conversation(self._store, recorded, self._settings, time.time(), file.changed)
        except InputError as error:
            log.info("a conversation of %s is left out: %s", file.path, error)
            return True
        if done.outcome == WITHOUT_PARENT:
            return True
        name = done.session
        self._store.put_note(CLIENT_NOTE, name, recorded.format.encode(), session_id=name)
        if folder:
            self._store.put_note(FOLDER_NOTE, name, folder.encode(), session_id=name)
        return not done.more_to_come


def _read_folder(path: Path) -> str:
    """Returns the folder that a session was about, as its first lines tell; empty if they do not."""
    with path.open("rb") as file:
        for raw in file.read(_HEAD_BYTES).split(b"\n")[:_HEAD_LINES]:
            try:
                value: Any = parse_json(raw)
            except ValueError:  # cut off at the end of what was read
                continue
            inside = value.get("payload") if isinstance(value, dict) else None
            for place in (value, inside):
                if isinstance(place, dict) and (folder := read_text(place.get("cwd"))):
                    return folder
    return ""
