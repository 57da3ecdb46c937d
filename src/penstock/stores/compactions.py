"""Compactions as rows: how they are written and read back, and when one may be committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.handles import name_message
from penstock.conversation.view import Compaction, Handoff, Piece
from penstock.conversation.wire import encode_wire, parse_json
from penstock.errors import StoreConflict, StoreError
from penstock.stores.encoding import clean_label, reading_kept
from penstock.stores.rows import (
    defer_conversation,
    find_conversation_key,
    find_id_at_end,
    find_last_session,
    find_session,
    find_stretches,
    insert_session,
    limit_to_owner,
    read_conversation,
    read_log_tip,
    require_row,
    select_conversation,
)
from penstock.stores.values import COMPRESSION, CompactionRow, FactRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.stores.database import Row, SqlSpelling, Transaction
    from penstock.stores.values import NewCompaction, NewFact

__all__ = [
    "commit_compaction",
    "find_newest",
    "find_newest_of",
    "knows_its_positions",
    "list_compacted",
    "list_compactions",
    "list_facts",
    "pin_message",
    "read_pieces",
    "undo_newest",
    "write_pieces",
]


_COMPACTION = (
    "SELECT c.key, c.base, c.length, c.pieces, c.over, c.receipt, c.created, "
    "coalesce((SELECT s.id FROM sessions s WHERE s.key = c.session), ''), c.undone, c.retry "
    "FROM compactions c WHERE c.conversation = ? "
)
_IN_FORCE = "(SELECT view FROM conversations WHERE key = ?)"
_PIECES = msgspec.json.Decoder(tuple[Piece, ...])


def commit_compaction(
    do: Transaction, session_id: str, new: NewCompaction, words: SqlSpelling
) -> CompactionRow:
    """Commits a compaction, ends its session and opens the continuation."""
    row, _, conversation = find_session(do, session_id, words.hold_session)
    read_log_tip(do, conversation, words.for_update)
    if new.key:
        done = do.one(f"{_COMPACTION} AND c.retry = ?", conversation, clean_label(new.key))
        if done is not None:
            return _build_compaction(done)
    _require_base(do, conversation, new)
    # The tip goes on, whichever session of the conversation was named; and its end is now, even where it was
    # ended before and resumed, since a continuation starts no earlier than what it continues has ended.
    last = find_last_session(do, conversation)[0]
    do.run(
        "UPDATE sessions SET ended = ?, end_reason = ? WHERE key = ?", *(new.session.at, COMPRESSION, last)
    )
    opened = msgspec.structs.replace(new.session, kind=COMPRESSION)
    session = insert_session(do, opened, row.owner, conversation, last)
    return _insert(do, conversation, session, new)


def list_compactions(do: Transaction, session_id: str, *, undone: bool) -> list[CompactionRow]:
    """Returns the compactions in force, oldest first; with `undone`, also those that were undone."""
    conversation, _ = find_conversation_key(do, session_id)
    which = "" if undone else "AND c.undone IS NULL"
    return [_build_compaction(row) for row in do.rows(f"{_COMPACTION} {which} ORDER BY c.key", conversation)]


def list_compacted(do: Transaction) -> set[str]:
    """Returns the ids of all conversations that have compactions, undone ones included."""
    owned, owner = limit_to_owner(do, "c.owner")
    rows = do.rows(
        f"SELECT c.id FROM conversations c WHERE {owned}c.key IN (SELECT conversation FROM compactions)",
        *owner,
    )
    return {row[0] for row in rows}


def undo_newest(
    do: Transaction, session_id: str, at: float, words: SqlSpelling, only: int | None = None
) -> CompactionRow | None:
    """Undoes the newest compaction; with `only`, only if it has that key."""
    conversation, _ = find_conversation_key(do, session_id, words.hold_session)
    read_log_tip(do, conversation, words.for_update)
    newest = find_newest(do, conversation)
    if newest is None or only not in (None, newest.key):
        return None
    do.run("UPDATE compactions SET undone = ? WHERE key = ?", at, newest.key)
    do.run("UPDATE conversations SET view = ?, updated = ? WHERE key = ?", newest.over, at, conversation)
    return msgspec.structs.replace(newest, undone=at)


def pin_message(do: Transaction, session_id: str, position: int, hold: str, *, pinned: bool) -> None:
    """Pins a message of the log, which compactions keep, or unpins it."""
    conversation, _ = find_conversation_key(do, session_id, hold)
    if not 0 <= position < read_log_tip(do, conversation).length:
        raise StoreError(
            f"message {name_message(position + 1)} cannot be pinned: this conversation does not have it"
        )
    do.run(
        "INSERT INTO pins (conversation, position) VALUES (?, ?) ON CONFLICT (conversation, position) DO NOTHING"
        if pinned
        else "DELETE FROM pins WHERE conversation = ? AND position = ?",
        *(conversation, position),
    )


def _insert(do: Transaction, conversation: int, session: int, new: NewCompaction) -> CompactionRow:
    """Writes a compaction and makes its view the present one.

    `session` is the key of the one that it opens.
    """
    compaction, at = new.compaction, new.session.at
    row = do.one(
        "INSERT INTO compactions "
        "(conversation, over, base, length, pieces, receipt, created, undone, session, retry) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?, ?) RETURNING key",
        *(conversation, new.over, bytes.fromhex(compaction.base), compaction.length),
        write_pieces(compaction.pieces),
        encode_wire(dict(new.receipt)),
        at,
        session,
        clean_label(new.key),
    )
    key = require_row(row)[0]
    _insert_facts(do, conversation, key, new.facts)
    do.run("UPDATE conversations SET view = ?, updated = ? WHERE key = ?", key, at, conversation)
    return _build_compaction(require_row(do.one(f"{_COMPACTION} AND c.key = ?", conversation, key)))


def find_newest(do: Transaction, conversation: int) -> CompactionRow | None:
    """Returns the compaction whose view is the present one. Raises StoreError if it is in force, and the store lacks it."""
    return _defer_newest(do, "?", (conversation,))()


def find_newest_of(do: Transaction, session_id: str) -> Callable[[], CompactionRow | None]:
    """Looks up the newest compaction of a session's conversation, in one round trip with the end of the transaction.

    Returns a function that gives it when the transaction has ended, and raises as `find_newest` does.
    """
    known = defer_conversation(do, session_id)
    newest = _defer_newest(do, *select_conversation(do, session_id))

    def read() -> CompactionRow | None:
        read_conversation(do, session_id, known)
        return newest()

    return read


def _defer_newest(do: Transaction, conversation: str, values: Row) -> Callable[[], CompactionRow | None]:
    """Has the newest compaction found of the conversation whose key the expression `conversation` gives."""
    in_force = do.defer(f"SELECT view FROM conversations WHERE key = {conversation}", *values)
    statement = f"{_COMPACTION} AND c.key = {_IN_FORCE}".replace("?", conversation)
    found = do.defer(statement, *values, *values)

    def read() -> CompactionRow | None:
        row = found.one()
        if row is None and not require_row(in_force.one())[0]:
            return None
        return _build_compaction(require_row(row))

    return read


def _require_base(do: Transaction, conversation: int, new: NewCompaction) -> None:
    """Raises StoreConflict if the compaction is not of the present view, or not of this log."""
    row = require_row(do.one("SELECT view FROM conversations WHERE key = ?", conversation))
    if row[0] != new.over:
        raise StoreConflict("another process has compacted this conversation meanwhile; go on with its view")
    compaction = new.compaction
    if compaction.length and find_id_at_end(do, conversation, compaction.length).hex() != compaction.base:
        raise StoreConflict(
            "the log of this conversation does not have the messages that this compaction was made of; compact again"
        )
    if not (
        knows_its_positions(compaction.pieces, compaction.length)
        and all(0 <= fact.position < compaction.length for fact in new.facts)
    ):
        raise StoreError(
            f"this compaction refers to messages beyond the {compaction.length:,} that it was made of; nothing was committed"
        )


def knows_its_positions(pieces: Sequence[Piece], length: int) -> bool:
    """Returns True if all messages that a compaction names are among those that it was made of."""
    for piece in pieces:
        positions = piece.covers if isinstance(piece, Handoff) else (piece.position,)
        if not all(0 <= position < length for position in positions):
            return False
    return True


def _build_compaction(row: Row) -> CompactionRow:
    """Returns the compaction of a row of `_COMPACTION`."""
    with reading_kept(f"compaction {row[0]:,}"):
        compaction = Compaction(bytes(row[1]).hex(), row[2], read_pieces(bytes(row[3])))
        receipt = dict(parse_json(bytes(row[5])))
    return CompactionRow(
        key=row[0],
        compaction=compaction,
        over=row[4],
        receipt=receipt,
        created=row[6],
        session=row[7],
        undone=row[8],
    )


def write_pieces(pieces: Sequence[Piece]) -> bytes:
    """Returns the pieces of a compaction as JSON."""
    return encode_wire(msgspec.to_builtins(pieces, str_keys=True))


def read_pieces(data: bytes) -> tuple[Piece, ...]:
    """Returns the pieces of a compaction. Raises ValueError if they cannot be read."""
    try:
        return _PIECES.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # a lone surrogate, which only the standard library reads
        return msgspec.convert(parse_json(data), tuple[Piece, ...], str_keys=True)


def _insert_facts(do: Transaction, conversation: int, compaction: int, facts: Sequence[NewFact]) -> None:
    """Writes the facts of a compaction, in the order in which they are given. They go with it."""
    do.run_many(
        "INSERT INTO facts (compaction, place, conversation, position, kind, label, text, uses, superseded) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                compaction,
                place,
                conversation,
                fact.position,
                clean_label(fact.kind),
                clean_label(fact.label),
                *(clean_label(fact.text), fact.uses, fact.superseded),
            )
            for place, fact in enumerate(facts)
        ],
    )


def list_facts(do: Transaction, session_id: str) -> list[FactRow]:
    """Returns the facts of the compactions in force, in the order of their messages. One that was written twice counts once."""
    conversation, _ = find_conversation_key(do, session_id)
    newest: dict[tuple[int, str, str, str], FactRow] = {}
    for part, low, high in find_stretches(do, conversation):
        rows = do.rows(
            "SELECT f.position, f.kind, f.text, f.label, f.uses, f.superseded, e.created, f.compaction FROM facts f "
            "JOIN compactions c ON c.key = f.compaction JOIN entries e ON e.conversation = ? AND e.position = f.position "
            "WHERE f.conversation = ? AND f.position >= ? AND f.position < ? AND c.undone IS NULL "
            "ORDER BY f.position, f.compaction, f.place",
            *(part, conversation, low, high),
        )
        for row in rows:
            fact = _build_fact(row)
            newest[fact.position, fact.kind, fact.label, fact.text] = fact
    return list(newest.values())


def _build_fact(row: Row) -> FactRow:
    return FactRow(
        position=row[0],
        kind=row[1],
        text=row[2],
        label=row[3],
        uses=row[4],
        superseded=row[5],
        at=row[6],
        compaction=row[7],
    )
