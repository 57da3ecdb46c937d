"""Turns of conversations that several processes serve: their holder, the messages that wait for them, and deliveries.

A turn is claimed for a few seconds at a time and renewed while it lasts, so that one whose process was killed ends by
itself. It only keeps order: that nothing is written twice, or to the wrong place, is what `append` and `commit` see to.
All that writes here holds the session, so that nothing is left behind of a conversation that is deleted meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.stores.conversations import follow_continuations
from penstock.stores.encoding import require_identifier, require_moment
from penstock.stores.rows import find_conversation, find_session, read_standing_keys
from penstock.stores.values import Delivery, OpenedTurn, QueuedMessage

if TYPE_CHECKING:
    from penstock.stores.database import SqlSpelling, Transaction
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
    "release_turn",
    "settle_delivery",
    "take_queued",
]

_KEPT_SECONDS = 86_400.0  # a client that asks again a day later means something new


class TurnClaim(NamedTuple):
    """A claim of a turn: by whom, from when on, and until when."""

    holder: str
    now: float
    until: float


def claim_turn(do: Transaction, session_id: str, claim: TurnClaim, words: SqlSpelling) -> bool:
    """Claims the turn of a conversation until a moment, or renews it; returns False where another has it."""
    conversation, _ = find_conversation(do, session_id, words.hold_session)
    return _claim(do, conversation, claim)


def _claim(do: Transaction, conversation: int, claim: TurnClaim) -> bool:
    claimed = do.one(
        "INSERT INTO turns (conversation, holder, until) VALUES (?, ?, ?) ON CONFLICT (conversation) DO UPDATE "
        "SET holder = excluded.holder, until = excluded.until WHERE turns.until < ? OR turns.holder = excluded.holder "
        "RETURNING holder",
        *(conversation, require_identifier(claim.holder), require_moment(claim.until)),
        require_moment(claim.now),
    )
    return claimed is not None


def open_turn(
    do: Transaction, session_id: str, claim: TurnClaim, words: SqlSpelling, delivery: str = ""
) -> OpenedTurn | None:
    """Claims the turn of a conversation and reads what a host has to know; None where another has it."""
    row, _, conversation = find_session(do, session_id, words.hold_session)
    if not _claim(do, conversation, claim):
        return None
    return OpenedTurn(
        follow_continuations(do, row, conversation),
        read_standing_keys(do, conversation),
        _find_delivery(do, conversation, delivery) if delivery else None,
        _has_queued(do, conversation),
    )


def close_turn(
    do: Transaction, session_id: str, holder: str, now: float, delivery: Delivery | None, words: SqlSpelling
) -> Standing | None:
    """Ends a turn and settles its delivery; returns where the conversation stands, None where messages wait for the turn."""
    conversation, _ = find_conversation(do, session_id, words.hold_session)
    if not _release(do, conversation, holder, words.for_update):
        return None
    if delivery is not None:
        _settle(do, conversation, delivery, now)
    return read_standing_keys(do, conversation)


def find_turn(do: Transaction, session_id: str, now: float) -> str:
    """Returns the holder of a conversation's turn at a moment; empty where there is none."""
    conversation, _ = find_conversation(do, session_id)
    return _find_holder(do, conversation, now)


def _find_holder(do: Transaction, conversation: int, now: float, hold: str = "") -> str:
    row = do.one(f"SELECT holder, until FROM turns WHERE conversation = ? {hold}", conversation)
    return str(row[0]) if row is not None and row[1] >= now else ""


def release_turn(do: Transaction, session_id: str, holder: str, words: SqlSpelling) -> bool:
    """Ends a turn; returns False, with the turn kept, where messages wait that came while it lasted."""
    conversation, _ = find_conversation(do, session_id, words.hold_session)
    return _release(do, conversation, holder, words.for_update)


def _release(do: Transaction, conversation: int, holder: str, hold: str) -> bool:
    held = do.one(f"SELECT 1 FROM turns WHERE conversation = ? AND holder = ? {hold}", conversation, holder)
    if held is None:  # it ran out, and another may have it: that one takes what waits
        return True
    if _has_queued(do, conversation):
        return False
    do.run("DELETE FROM turns WHERE conversation = ? AND holder = ?", conversation, holder)
    return True


def _has_queued(do: Transaction, conversation: int) -> bool:
    return do.one("SELECT 1 FROM queued WHERE conversation = ? LIMIT 1", conversation) is not None


def queue_message(
    do: Transaction,
    session_id: str,
    raw: bytes,
    now: float,
    words: SqlSpelling,
    delivery: Delivery | None = None,
) -> bool:
    """Has a message wait for the turn that is under way to take it; returns False where there is no such turn."""
    conversation, _ = find_conversation(do, session_id, words.hold_session)
    if not _find_holder(do, conversation, now, words.for_update):
        return False
    do.run("INSERT INTO queued (conversation, message) VALUES (?, ?)", conversation, raw)
    if delivery is not None:
        keep_delivery(do, conversation, delivery, now)
    return True


def list_queued(do: Transaction, session_id: str) -> list[QueuedMessage]:
    """Returns the messages that wait for a turn to take them, in their order."""
    conversation, _ = find_conversation(do, session_id)
    rows = do.rows("SELECT key, message FROM queued WHERE conversation = ? ORDER BY key", conversation)
    return [QueuedMessage(row[0], bytes(row[1])) for row in rows]


def take_queued(do: Transaction, conversation: int, upto: int) -> None:
    """Removes those that were taken: all up to the one with this key."""
    do.run("DELETE FROM queued WHERE conversation = ? AND key <= ?", conversation, upto)


def keep_delivery(do: Transaction, conversation: int, delivery: Delivery, now: float) -> None:
    """Notes that a message was delivered, so that the same delivery again is known. Raises StoreConflict where it was."""
    do.run("DELETE FROM deliveries WHERE conversation = ? AND at < ?", conversation, now - _KEPT_SECONDS)
    do.run(
        "INSERT INTO deliveries (conversation, name, digest, position, answer, at) VALUES (?, ?, ?, ?, ?, ?)",
        *(
            conversation,
            require_identifier(delivery.name),
            delivery.digest,
            delivery.position,
            delivery.answer,
            now,
        ),
    )


def find_delivery(do: Transaction, session_id: str, name: str) -> Delivery | None:
    """Returns what is known of a delivery; None where there was none of that name."""
    conversation, _ = find_conversation(do, session_id)
    return _find_delivery(do, conversation, name)


def _find_delivery(do: Transaction, conversation: int, name: str) -> Delivery | None:
    row = do.one(
        "SELECT name, digest, position, answer FROM deliveries WHERE conversation = ? AND name = ?",
        *(conversation, require_identifier(name)),
    )
    if row is None:
        return None
    return Delivery(row[0], bytes(row[1]), row[2], None if row[3] is None else bytes(row[3]))


def settle_delivery(
    do: Transaction, session_id: str, delivery: Delivery, now: float, words: SqlSpelling
) -> None:
    """Keeps the answer that a delivery was given; one that logged nothing is noted with it."""
    conversation, _ = find_conversation(do, session_id, words.hold_session)
    _settle(do, conversation, delivery, now)


def _settle(do: Transaction, conversation: int, delivery: Delivery, now: float) -> None:
    changed = do.run(
        "UPDATE deliveries SET answer = ? WHERE conversation = ? AND name = ?",
        *(delivery.answer, conversation, require_identifier(delivery.name)),
    )
    if not changed:
        keep_delivery(do, conversation, delivery, now)
