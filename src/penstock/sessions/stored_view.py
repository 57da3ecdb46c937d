"""The view of a stored conversation: the fold of its log and its newest compaction, read from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import dialect_named
from penstock.conversation.handles import name_message
from penstock.conversation.opening import mend_wires
from penstock.conversation.view import (
    Piece,
    ViewMessage,
    fold,
    positions_in,
    write_view,
)
from penstock.conversation.wire import encode_wire
from penstock.errors import StoreError
from penstock.sessions.pins import bring_back_pinned
from penstock.sessions.rewinding import find_standing_pins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.view import Compaction
    from penstock.stores.store import Store
    from penstock.stores.values import CompactionRow, LogTip, SessionRow

__all__ = ["StoredView", "ViewBase", "read_view", "read_view_base"]


class StoredView(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The view of a stored conversation, as its log and its newest compaction give it.

    `pieces` say what the messages are made of, by positions of the log; a handoff that is merged into a message has its
    piece in front of that message's, and no message of its own. `raws` are the messages of the log that they name. The view
    is these bytes until its messages are first asked for: that takes long for a long conversation.
    """

    pieces: tuple[Piece, ...]
    raws: dict[int, bytes]
    dialect: str

    @property
    def messages(self) -> list[ViewMessage]:
        """The messages, written once."""
        written: list[ViewMessage] | None = vars(self).get("written")
        if written is None:
            written = write_view(self.pieces, self.raws, dialect_named(self.dialect))
            vars(self)["written"] = written
        return written

    def replace(self, pieces: Sequence[Piece]) -> StoredView:
        """Returns a view of other pieces, of the same messages of the log."""
        return StoredView(tuple(pieces), self.raws, self.dialect)

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
        """Returns the view as a provider accepts it.

        A killed process may leave a broken log. Messages that are added or changed to mend it have no position.
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


def read_view_base(store: Store, session: SessionRow, *, with_pins: bool = False) -> ViewBase:
    """Returns the present view of the session: its newest compaction, and everything that was logged after it.

    `with_pins` brings back, whole, pinned messages that an earlier compaction took out: a compaction is made of that
    view, and it is not sent before. Raises StoreError if the store lacks a message of it.
    """
    newest = store.newest_compaction(session.id)
    tip = store.log_tip(session.id)
    compaction = newest.compaction if newest is not None else None
    if with_pins:
        compaction = bring_back_pinned(compaction, find_standing_pins(store, session.id), store, session)
    return ViewBase(read_view(store, session, compaction, tip.length), tip, newest)


def read_view(store: Store, session: SessionRow, compaction: Compaction | None, length: int) -> StoredView:
    """Returns the view that this compaction gives of the first `length` messages of the session's log.

    Raises StoreError if the store lacks one of them.
    """
    pieces = fold(length, compaction)
    wanted = positions_in(pieces)
    raws = {entry.position: entry.raw for entry in store.read(session.id, wanted)}
    if len(raws) < len(wanted):
        missing = min(set(wanted) - raws.keys())
        raise StoreError(
            f"{name_message(missing + 1)} of conversation {session.conversation} is not in the store: penstock doctor says what is "
            "damaged, penstock sessions export writes what is left"
        )
    return StoredView(pieces, raws, session.dialect)
