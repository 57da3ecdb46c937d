"""Compactions as rows: what is written, what is read back, and when one may be committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.view import Compaction, Handoff, Piece
from penstock.conversation.wire import encode_wire, parse_json
from penstock.errors import StoreConflict, StoreError
from penstock.stores.base import CompactionRow
from penstock.stores.rows import there, tip_of
from penstock.stores.texts import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.stores.base import NewCompaction
    from penstock.stores.database import Row, Transaction

__all__ = [
    "COMPACTION",
    "as_compaction",
    "insert_compaction",
    "knows_its_positions",
    "newest_of",
    "read_pieces",
    "require_base",
]

COMPACTION = (
    "SELECT c.key, c.base, c.length, c.pieces, c.over, c.receipt, c.created, s.id, c.undone, c.retry "
    "FROM compactions c JOIN sessions s ON s.key = c.session WHERE c.conversation = ? "
)
_PIECES = msgspec.json.Decoder(tuple[Piece, ...])


def insert_compaction(do: Transaction, conversation: int, session: int, new: NewCompaction) -> CompactionRow:
    """Write a compaction and make its view the present one; `session` is the key of the one that it opens."""
    compaction, at = new.compaction, new.session.at
    row = do.one(
        "INSERT INTO compactions "
        "(conversation, over, base, length, pieces, receipt, created, undone, session, retry) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?, ?) RETURNING key",
        *(conversation, new.over, bytes.fromhex(compaction.base), compaction.length),
        *(_write_pieces(compaction.pieces), encode_wire(dict(new.receipt)), at, session, label(new.key)),
    )
    key = there(row)[0]
    do.run("UPDATE conversations SET view = ?, updated = ? WHERE key = ?", key, at, conversation)
    return as_compaction(there(do.one(f"{COMPACTION} AND c.key = ?", conversation, key)))


def newest_of(do: Transaction, conversation: int) -> CompactionRow | None:
    """The compaction whose view is the present one."""
    row = there(do.one("SELECT view FROM conversations WHERE key = ?", conversation))
    if not row[0]:
        return None
    found = do.one(f"{COMPACTION} AND c.key = ?", conversation, row[0])
    return as_compaction(there(found))


def require_base(do: Transaction, conversation: int, new: NewCompaction) -> None:
    """Raises StoreConflict where the compaction is not of the present view, or not of this log."""
    row = there(do.one("SELECT view FROM conversations WHERE key = ?", conversation))
    if row[0] != new.over:
        raise StoreConflict(
            "this conversation was compacted by somebody else meanwhile: take that view and go on"
        )
    compaction = new.compaction
    if compaction.length and tip_of(do, conversation, compaction.length).hex() != compaction.base:
        raise StoreConflict("the base of this compaction is not in the log of this conversation")
    if not knows_its_positions(compaction.pieces, compaction.length):
        raise StoreError(
            f"this compaction names messages beyond the {compaction.length:,} that it was made of; nothing was committed"
        )


def knows_its_positions(pieces: Sequence[Piece], length: int) -> bool:
    """Whether all messages that a compaction names are among those that it was made of."""
    for piece in pieces:
        positions = piece.covers if isinstance(piece, Handoff) else (piece.position,)
        if not all(0 <= position < length for position in positions):
            return False
    return True


def as_compaction(row: Row) -> CompactionRow:
    """The compaction of a row of `COMPACTION`."""
    compaction = Compaction(bytes(row[1]).hex(), row[2], read_pieces(bytes(row[3])))
    return CompactionRow(
        key=row[0],
        compaction=compaction,
        over=row[4],
        receipt=parse_json(bytes(row[5])),
        created=row[6],
        session=row[7],
        undone=row[8],
    )


def _write_pieces(pieces: Sequence[Piece]) -> bytes:
    """The pieces of a compaction as JSON."""
    return encode_wire(msgspec.to_builtins(pieces, str_keys=True))


def read_pieces(data: bytes) -> tuple[Piece, ...]:
    """The pieces of a compaction. Raises ValueError where they are none."""
    try:
        return _PIECES.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # a lone surrogate, which only the standard library reads
        return msgspec.convert(parse_json(data), tuple[Piece, ...], str_keys=True)
