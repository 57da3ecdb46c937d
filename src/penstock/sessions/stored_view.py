"""The view of a stored conversation: the fold of its log and its newest compaction, read from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import dialect_named
from penstock.conversation.handles import name_message
from penstock.conversation.opening import mend_wires
from penstock.conversation.view import ViewMessage, fold, positions_in, write_view
from penstock.conversation.wire import encode_wire
from penstock.errors import StoreError
from penstock.sessions.pins import bring_back_pinned
from penstock.sessions.rewinding import find_standing_pins

if TYPE_CHECKING:
    from penstock.conversation.view import Compaction, Piece
    from penstock.stores.store import Store
    from penstock.stores.values import CompactionRow, LogTip, SessionRow

__all__ = ["StoredView", "ViewBase", "read_standing", "read_view"]


class StoredView(msgspec.Struct, frozen=True, eq=False):
    """The view of a stored conversation, as its log and its newest compaction give it.

    `pieces` say what the messages are made of, by positions of the log; a handoff that is merged into a message has its
    piece in front of that message's, and no message of its own.
    """

    messages: list[ViewMessage]
    pieces: tuple[Piece, ...]
    dialect: str

    @property
    def wires(self) -> list[Any]:
        """The object of each message."""
        return [message.wire for message in self.messages]

    @property
    def positions(self) -> list[int | None]:
        """The position of each message in the log; None for a handoff."""
        return [message.position for message in self.messages]

    @property
    def numbers(self) -> list[int]:
        """The number by which each message is named: that of its place in the log, 0 for a handoff."""
        return [0 if message.position is None else message.position + 1 for message in self.messages]

    def mend(self) -> list[ViewMessage]:
        """Returns the view as a provider takes it.

        A log may be broken, as a killed process leaves it: what is put in or changed to mend it has no position.
        """
        return [
            ViewMessage(sent.wire, encode_wire(sent.wire))
            if sent.place is None
            else self.messages[sent.place]
            for sent in mend_wires(self.wires, dialect_named(self.dialect))
        ]


class ViewBase(msgspec.Struct, frozen=True, eq=False):
    """The base of a compaction: a view, the end of the log that it reaches to, and the compaction that it rests on."""

    view: StoredView
    tip: LogTip
    newest: CompactionRow | None

    @property
    def prefix_end(self) -> int:
        """The number of messages at the beginning of the view that the newest compaction has settled."""
        if self.newest is None:
            return 0
        later = self.tip.length - self.newest.compaction.length
        return max(0, len(self.view.messages) - later)


def read_standing(store: Store, session: SessionRow, *, with_pins: bool = False) -> ViewBase:
    """Returns the view of the session as it is now: its newest compaction, and all that was logged after it.

    `with_pins` brings back, whole, pinned messages that an earlier compaction took out: a compaction is made of that
    view, and it is not sent before. Raises StoreError where the store lacks a message of it.
    """
    newest = store.newest_compaction(session.id)
    tip = store.log_tip(session.id)
    compaction = newest.compaction if newest is not None else None
    if with_pins:
        compaction = bring_back_pinned(compaction, find_standing_pins(store, session.id), store, session)
    return ViewBase(read_view(store, session, compaction, tip.length), tip, newest)


def read_view(store: Store, session: SessionRow, compaction: Compaction | None, length: int) -> StoredView:
    """Returns the view that this compaction gives of the first `length` messages of the session's log.

    Raises StoreError where the store lacks one of them.
    """
    pieces = fold(length, compaction)
    wanted = positions_in(pieces)
    raws = {entry.position: entry.raw for entry in store.read(session.id, wanted)}
    if len(raws) < len(wanted):
        missing = min(set(wanted) - raws.keys())
        raise StoreError(
            f"{name_message(missing + 1)} of conversation {session.conversation} is not in the store: penstock doctor says what is "
            "damaged, penstock sessions export writes what is there"
        )
    return StoredView(write_view(pieces, raws, dialect_named(session.dialect)), pieces, session.dialect)
