"""Where the nodes of outlines are kept, so that none is made twice: in memory, or beside a conversation in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.stores.store import Store

__all__ = ["LazyShelf", "MemoryShelf", "NodeShelf", "SteadyShelf", "StoreShelf"]

_NAME = "segments"


class NodeShelf(Protocol):
    """Bytes by key, for one conversation."""

    def get(self, key: str) -> bytes | None:
        """What was put there, or None."""

    def put(self, key: str, value: bytes) -> None:
        """Keep the value, in place of what was there."""


class MemoryShelf:
    """A shelf that goes with the process."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        """What was put there, or None."""
        return self._kept.get(key)

    def put(self, key: str, value: bytes) -> None:
        """Keep the value."""
        self._kept[key] = value


class StoreShelf:
    """The shelf of a stored conversation: all its sessions share it, it goes when the conversation is deleted.

    A branch also finds what was put there before it branched off, and puts nothing there itself. Raises StoreError.
    """

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._conversations = _lineage(store, session_id)

    def get(self, key: str) -> bytes | None:
        """What was put there, in this conversation or in the nearest one that it branched off from."""
        for conversation in self._conversations:
            found = self._store.note(_NAME, f"{conversation}/{key}")
            if found is not None:
                return found
        return None

    def put(self, key: str, value: bytes) -> None:
        """Keep the value; durable when it returns."""
        self._store.put_note(_NAME, f"{self._conversations[0]}/{key}", value)


class LazyShelf:
    """A shelf that is made when it is first needed: mostly nobody asks for a node."""

    def __init__(self, make: Callable[[], NodeShelf]) -> None:
        self._make = make
        self._shelf: NodeShelf | None = None

    def get(self, key: str) -> bytes | None:
        """What was put there, or None."""
        return self._made().get(key)

    def put(self, key: str, value: bytes) -> None:
        """Keep the value."""
        self._made().put(key, value)

    def _made(self) -> NodeShelf:
        if self._shelf is None:
            self._shelf = self._make()
        return self._shelf


class SteadyShelf:
    """A shelf that goes on in memory where another one fails: no compaction waits for a disk.

    `on_failure` is told of each failure. What could not be kept is made again by the next process.
    """

    def __init__(self, shelf: NodeShelf, on_failure: Callable[[StoreError], None]) -> None:
        self._shelf = shelf
        self._on_failure = on_failure
        self._memory = MemoryShelf()

    def get(self, key: str) -> bytes | None:
        """What was put there, or None."""
        held = self._memory.get(key)
        if held is not None:
            return held
        try:
            return self._shelf.get(key)
        except StoreError as error:
            self._on_failure(error)
            return None

    def put(self, key: str, value: bytes) -> None:
        """Keep the value, in memory where it cannot be kept otherwise."""
        try:
            self._shelf.put(key, value)
        except StoreError as error:
            self._on_failure(error)
            self._memory.put(key, value)


def _lineage(store: Store, session_id: str) -> list[str]:
    """The conversation of the session, and those that it branched off from.

    A conversation has the id of its first session, so that what is kept under it goes with it.
    """
    found: list[str] = []
    while session_id:
        row = store.session(session_id)
        if row.conversation not in found:
            found.append(row.conversation)
        session_id = row.parent
    return found
