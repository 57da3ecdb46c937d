"""Turns of conversations that several processes serve: their holder, the messages that wait for them, and deliveries.

A turn is claimed for a few seconds at a time and renewed while it lasts, so that one whose process was killed ends by
itself. It only keeps order: that nothing is written twice, or to the wrong place, is what `append` and `commit` see to.
All that writes here holds the session, so that nothing is left behind of a conversation that is deleted meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.stores.conversations import defer_continuations, follow_continuations
from penstock.stores.encoding import require_identifier, require_moment
from penstock.stores.rows import (
    build_standing,
    defer_conversation,
    defer_session,
    find_conversation_key,
    read_conversation,
    read_session,
    select_conversation,
)
from penstock.stores.values import Delivery, OpenedTurn, QueuedMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.stores.database import PendingRows, Row, SqlSpelling, Transaction
    from penstock.stores.values import Standing

__all__ = [
    "TurnClaim",
    "claim_turn",
    "close_turn",
    "find_delivery",
    "find_turn",
    "keep_delivery",
    "list_queued",
    "open_turn",
    "queue_message",
    "settle_delivery",
    "take_queued",
]

_DELIVERY = "SELECT name, digest, position, answer FROM deliveries"
_KEPT_SECONDS = 86_400.0  # a client that asks again a day later means something new


class TurnClaim(NamedTuple):
    """A claim of a turn: by whom, from when on, and until when."""

    holder: str
    now: float
    until: float


def claim_turn(do: Transaction, session_id: str, claim: TurnClaim, words: SqlSpelling) -> Callable[[], bool]:
    """Claims the turn of a conversation until a moment, or renews it.

    Returns a function that gives False if another holder has it. Call it after the transaction has ended: then all of it
    is one round trip, and every turn of a hosted conversation waits for it. The same goes for the other functions here
    that return one.
    """
    known = defer_conversation(do, session_id, words.hold_session)
    claimed = _defer_claim(do, session_id, claim)

    def read() -> bool:
        read_conversation(do, session_id, known)
        return claimed.one() is not None

    return read


def _defer_claim(do: Transaction, session_id: str, claim: TurnClaim) -> PendingRows:
    """Defers the claim of a turn; it has a row if it succeeded."""
    conversation, named = select_conversation(do, session_id)
    return do.defer(
        "INSERT INTO turns (conversation, holder, until) SELECT c.key, ?, ? FROM conversations c "
        f"WHERE c.key = {conversation} ON CONFLICT (conversation) DO UPDATE "
        "SET holder = excluded.holder, until = excluded.until WHERE turns.until < ? OR turns.holder = excluded.holder "
        "RETURNING holder",
        *(require_identifier(claim.holder), require_moment(claim.until), *named),
        require_moment(claim.now),
    )


def open_turn(
    do: Transaction, session_id: str, claim: TurnClaim, words: SqlSpelling, delivery: str = ""
) -> Callable[[], OpenedTurn | None]:
    """Claims the turn of a conversation; returns a function that tells what a host has to know, None if another has it."""
    conversation, named = select_conversation(do, session_id)
    session = defer_session(do, session_id, words.hold_session)
    claimed = _defer_claim(do, session_id, claim)
    later = defer_continuations(do, conversation, named)
    standing = do.defer(
        "SELECT tip, length, view, EXISTS (SELECT 1 FROM queued WHERE queued.conversation = conversations.key) "
        f"FROM conversations WHERE key = {conversation}",
        *named,
    )
    name = require_identifier(delivery) if delivery else ""
    known = do.defer(f"{_DELIVERY} WHERE conversation = {conversation} AND name = ?", *named, name)

    def read() -> OpenedTurn | None:
        row, _, _ = read_session(do, session_id, session)
        stands = standing.one()
        if claimed.one() is None or stands is None:
            return None
        tip = follow_continuations(row, later.rows())
        return OpenedTurn(tip, build_standing(stands), _build_delivery(known.one()), bool(stands[3]))

    return read


def close_turn(
    do: Transaction, session_id: str, holder: str, now: float, delivery: Delivery | None, words: SqlSpelling
) -> Callable[[], Standing | None]:
    """Ends a turn and settles its delivery, unless messages wait for the turn.

    Returns a function that gives the state of the conversation; None if messages wait, and the turn is kept. A turn
    that ran out ends, too: its next holder takes the messages.
    """
    conversation, named = select_conversation(do, session_id)
    own = (*named, require_identifier(holder))
    known = defer_conversation(do, session_id, words.hold_session)
    # A statement of its own: what has come to wait is looked for when nobody can add to it any more.
    do.defer(
        f"SELECT 1 FROM turns WHERE conversation = {conversation} AND holder = ? {words.for_update}", *own
    )
    do.defer(
        f"DELETE FROM turns WHERE conversation = {conversation} AND holder = ? "
        "AND NOT EXISTS (SELECT 1 FROM queued WHERE queued.conversation = turns.conversation)",
        *own,
    )
    held = f"EXISTS (SELECT 1 FROM turns WHERE conversation = {conversation} AND holder = ?)"
    if delivery is not None:
        _defer_settling(do, session_id, delivery, now, f"AND NOT {held}", own)
    standing = do.defer(
        f"SELECT tip, length, view, {held} FROM conversations WHERE key = {conversation}", *own, *named
    )

    def read() -> Standing | None:
        read_conversation(do, session_id, known)
        stands = standing.one()
        return None if stands is not None and stands[3] else build_standing(stands)

    return read


def find_turn(do: Transaction, session_id: str, now: float) -> str:
    """Returns the holder of a conversation's turn at a moment; empty if there is none."""
    conversation, _ = find_conversation_key(do, session_id)
    return _find_holder(do, conversation, now)


def _find_holder(do: Transaction, conversation: int, now: float, hold: str = "") -> str:
    row = do.one(f"SELECT holder, until FROM turns WHERE conversation = ? {hold}", conversation)
    return str(row[0]) if row is not None and row[1] >= now else ""


def queue_message(
    do: Transaction,
    session_id: str,
    raw: bytes,
    now: float,
    words: SqlSpelling,
    delivery: Delivery | None = None,
) -> bool:
    """Queues a message for the turn that is under way; returns False if there is no such turn."""
    conversation, _ = find_conversation_key(do, session_id, words.hold_session)
    if not _find_holder(do, conversation, now, words.for_update):
        return False
    do.run("INSERT INTO queued (conversation, message) VALUES (?, ?)", conversation, raw)
    if delivery is not None:
        keep_delivery(do, conversation, delivery, now)
    return True


def list_queued(do: Transaction, session_id: str) -> list[QueuedMessage]:
    """Returns the messages that wait for a turn to take them, in their order."""
    conversation, _ = find_conversation_key(do, session_id)
    rows = do.rows("SELECT key, message FROM queued WHERE conversation = ? ORDER BY key", conversation)
    return [QueuedMessage(row[0], bytes(row[1])) for row in rows]


def take_queued(do: Transaction, conversation: int, upto: int) -> None:
    """Removes those that were taken: all up to the one with this key."""
    do.defer("DELETE FROM queued WHERE conversation = ? AND key <= ?", conversation, upto)


def keep_delivery(do: Transaction, conversation: int, delivery: Delivery, now: float) -> None:
    """Records that a message was delivered, so that a second delivery is recognised. Raises StoreConflict if it was already."""
    do.defer("DELETE FROM deliveries WHERE conversation = ? AND at < ?", conversation, now - _KEPT_SECONDS)
    do.defer(
        "INSERT INTO deliveries (conversation, name, digest, position, answer, at) VALUES (?, ?, ?, ?, ?, ?)",
        *(conversation, *_list_values(delivery, now)),
    )


def _list_values(delivery: Delivery, now: float) -> Row:
    return (require_identifier(delivery.name), delivery.digest, delivery.position, delivery.answer, now)


def find_delivery(do: Transaction, session_id: str, name: str) -> Callable[[], Delivery | None]:
    """Looks up a delivery; returns a function that gives its record, None if there is none of that name."""
    conversation, named = select_conversation(do, session_id)
    known = defer_conversation(do, session_id)
    found = do.defer(
        f"{_DELIVERY} WHERE conversation = {conversation} AND name = ?", *named, require_identifier(name)
    )

    def read() -> Delivery | None:
        read_conversation(do, session_id, known)
        return _build_delivery(found.one())

    return read


def _build_delivery(row: Row | None) -> Delivery | None:
    if row is None:
        return None
    return Delivery(row[0], bytes(row[1]), row[2], None if row[3] is None else bytes(row[3]))


def settle_delivery(
    do: Transaction, session_id: str, delivery: Delivery, now: float, words: SqlSpelling
) -> None:
    """Keeps the answer that a delivery was given; one that logged nothing is noted with it."""
    known = defer_conversation(do, session_id, words.hold_session)
    _defer_settling(do, session_id, delivery, now)
    read_conversation(do, session_id, known)


def _defer_settling(
    do: Transaction, session_id: str, delivery: Delivery, now: float, only: str = "", given: Row = ()
) -> None:
    """Defers the settling of a delivery; `only` is a further condition of it."""
    conversation, named = select_conversation(do, session_id)
    do.defer(
        "INSERT INTO deliveries (conversation, name, digest, position, answer, at) SELECT c.key, ?, ?, ?, ?, ? "
        f"FROM conversations c WHERE c.key = {conversation} {only} "
        "ON CONFLICT (conversation, name) DO UPDATE SET answer = excluded.answer",
        *(*_list_values(delivery, now), *named, *given),
    )
