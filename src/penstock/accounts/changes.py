"""Changes that people make to stored conversations, and what each means in words: undo, pin and unpin."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from penstock.accounts.conversations import count_view_tokens
from penstock.accounts.display import SHORT_ID_CHARS
from penstock.conversation.handles import name_message
from penstock.sessions.session import Session

if TYPE_CHECKING:
    from penstock.stores.store import Store

__all__ = ["PinChange", "UndoneCompaction", "change_pin", "undo_compaction"]


class UndoneCompaction(msgspec.Struct, frozen=True):
    """The outcome of an undo: the tokens of the view before and after it."""

    conversation: str
    undone: bool
    tokens_before: int
    tokens_after: int

    def __str__(self) -> str:
        name = self.conversation[:SHORT_ID_CHARS]
        if not self.undone:
            return f"nothing to undo: {name} has no compaction"
        return f"undid the last compaction of {name}: {self.tokens_before:,} → {self.tokens_after:,} tokens"


class PinChange(msgspec.Struct, frozen=True):
    """The outcome of a pin or an unpin. `whole_in_view` tells that the view has the message in full."""

    conversation: str
    handle: str
    pinned: bool
    changed: bool
    whole_in_view: bool
    pins: tuple[str, ...]

    def __str__(self) -> str:
        if not self.pinned:
            return f"{self.handle} {'is no longer' if self.changed else 'was not'} pinned"
        if self.whole_in_view:
            return f"{self.handle} will be kept in full by later compactions"
        return f"{self.handle} is not in the view in full: the next compaction restores it, and later ones keep it"


def undo_compaction(store: Store, session_id: str, only: int | None = None) -> UndoneCompaction:
    """Takes the newest compaction of a conversation back; with `only`, no other one than that with this key.

    Raises UnknownSession.
    """
    session = Session.resume(store, session_id)
    before = count_view_tokens(store, session.id)
    undone = store.undo(session.id, time.time(), only=only) is not None
    return UndoneCompaction(
        session.row.conversation, undone, before, count_view_tokens(store, session.id) if undone else before
    )


def change_pin(store: Store, session_id: str, handle: str, *, pinned: bool) -> PinChange:
    """Pins a message, or unpins it. Raises UnknownSession, UnknownHandle."""
    session = Session.resume(store, session_id)
    handle = handle.lower()
    before = store.pins(session.id)
    whole = True
    if pinned:
        whole = session.pin(handle)
    else:
        session.unpin(handle)
    after = store.pins(session.id)
    names = tuple(name_message(place + 1) for place in sorted(after))
    return PinChange(session.row.conversation, handle, pinned, before != after, whole, names)
