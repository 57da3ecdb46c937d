"""Bytes by key, for one conversation or for all: in memory, or in a store.

Results that are expensive to make are put on a shelf, so that they are never made twice: nodes of outlines, a model's
notes on parts of a conversation, what was learned about a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.stores.store import Store

__all__ = ["MemoryShelf", "Shelf", "StoreShelf", "open_shelf"]

_OF_CONVERSATIONS = "segments"


class Shelf(Protocol):
    """Bytes by key."""

    def get(self, key: str) -> bytes | None:
        """Returns what was put under the key, or None."""

    def put(self, key: str, value: bytes) -> None:
        """Keeps the value, replacing an earlier one."""


class MemoryShelf:
    """A shelf that lives as long as the process. With `most`, it keeps only the newest ones."""

    def __init__(self, most: int | None = None) -> None:
        self._kept: dict[str, bytes] = {}
        self._most = most

    def get(self, key: str) -> bytes | None:
        """Returns what was put under the key, or None."""
        return self._kept.get(key)

    def put(self, key: str, value: bytes) -> None:
        """Keeps the value; drops the oldest if there are too many."""
        self._kept[key] = value
        if self._most is not None and len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]

    def drop(self, key: str) -> None:
        """Forgets what is under the key, if anything is."""
        self._kept.pop(key, None)


class StoreShelf:
    """A shelf in a store, made of its notes of one name. Nothing is read before something is asked for.

    With a session, it is the shelf of its conversation: all its sessions share it, and it goes when the
    conversation is deleted. A branch also finds what was put there before it branched off, and puts nothing
    there itself.

    Without `on_failure` it raises StoreError. With it, no caller waits for a disk: it is told of each failure,
    and what could not be written is kept in memory, so that only another process has to make it again.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        session_id: str = "",
        on_failure: Callable[[StoreError], None] | None = None,
    ) -> None:
        self._store = store
        self._name = name
        self._session_id = session_id
        self._on_failure = on_failure
        self._prefixes: list[str] = [] if session_id else [""]
        self._unwritten = MemoryShelf()

    def get(self, key: str) -> bytes | None:
        """Returns what was put under the key, in this conversation or in the nearest one that it branched off from."""
        held = self._unwritten.get(key)
        if held is not None:
            return held
        try:
            for prefix in self._conversations():
                found = self._store.note(self._name, prefix + key)
                if found is not None:
                    return found
        except StoreError as error:
            self._report(error)
        return None

    def put(self, key: str, value: bytes) -> None:
        """Keeps the value; durable when it returns."""
        try:
            conversation = self._conversations()[0]
            session_id = conversation.removesuffix("/") or None
            self._store.put_note(self._name, conversation + key, value, session_id=session_id)
            self._unwritten.drop(key)
        except StoreError as error:
            self._report(error)
            self._unwritten.put(key, value)

    def _conversations(self) -> list[str]:
        """Returns the prefixes of the conversation's keys and of those that it branched off from, nearest first.

        A conversation has the id of its first session, so that the store deletes what is kept under it with it.
        """
        if not self._prefixes:
            found: list[str] = []
            session_id = self._session_id
            while session_id:
                row = self._store.session(session_id)
                if f"{row.conversation}/" not in found:
                    found.append(f"{row.conversation}/")
                session_id = row.parent
            self._prefixes = found
        return self._prefixes

    def _report(self, error: StoreError) -> None:
        if self._on_failure is None:
            raise error
        self._on_failure(error)


def open_shelf(
    store: Store, session_id: str, on_failure: Callable[[StoreError], None] | None = None
) -> StoreShelf:
    """Returns the shelf of the session's conversation."""
    return StoreShelf(store, _OF_CONVERSATIONS, session_id=session_id, on_failure=on_failure)
