"""Brings back pinned messages that an earlier compaction took out of the view: they return with the next one.

A message comes with those that it may not be separated from: a call with its results. It is put after the handoff that
stands for it, where the planner finds it as one of the messages that stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Role
from penstock.conversation.rules import legal_cuts
from penstock.conversation.view import Compaction, Handoff, Kept, Rewritten
from penstock.conversation.wire import parse_json
from penstock.writing.transcript import Cuts

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.conversation.view import Piece
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow

__all__ = ["bring_back_pinned", "stands_whole"]

_AROUND = 64  # messages before and after a pinned one among which those that belong to it are looked for


def stands_whole(compaction: Compaction | None, position: int) -> bool:
    """Returns True if the view holds this message of the log unchanged."""
    return compaction is None or position >= compaction.length or Kept(position) in compaction.pieces


def bring_back_pinned(
    compaction: Compaction | None, pins: Collection[int], store: Store, session: SessionRow
) -> Compaction | None:
    """Returns the compaction that the next one is made of: pinned messages that it shortened or summarised are whole in it."""
    missing = [position for position in sorted(pins) if not stands_whole(compaction, position)]
    if compaction is None or not missing:
        return compaction
    pieces = [
        Kept(piece.position) if isinstance(piece, Rewritten) and piece.position in missing else piece
        for piece in compaction.pieces
    ]
    standing = {piece.position for piece in pieces if not isinstance(piece, Handoff)}
    wanted = {
        place for position in missing for place in _find_inseparable(store, session, position)
    } - standing
    if wanted:
        # A handoff that is merged into a message would now be merged into another one: it stands by itself instead.
        pieces = [_set_apart(piece) if isinstance(piece, Handoff) else piece for piece in pieces]
    for position in sorted(wanted):
        pieces.insert(_find_place(position, pieces), Kept(position))
    return Compaction(compaction.base, compaction.length, tuple(pieces))


def _find_inseparable(store: Store, session: SessionRow, position: int) -> range:
    """Returns the messages that may not be separated from one; none if there are too many to list."""
    start = max(0, position - _AROUND)
    entries = store.read_from(session.id, start, 2 * _AROUND + 1)
    dialect = dialect_named(session.dialect)
    messages = decode_all(dialect, [parse_json(entry.raw) for entry in entries])
    cuts = Cuts(tuple(legal_cuts(messages, dialect.rules)), ())
    first, end = cuts.segment(position - start)
    cut_off = (first == 0 and start > 0) or (end == len(messages) and len(messages) > 2 * _AROUND)
    return range(0) if cut_off else range(start + first, start + end)


def _set_apart(handoff: Handoff) -> Handoff:
    return msgspec.structs.replace(handoff, role=handoff.role or Role.USER)


def _find_place(position: int, pieces: Sequence[Piece]) -> int:
    """Returns the place behind the handoff, in the order of the log."""
    behind = max((at + 1 for at, piece in enumerate(pieces) if isinstance(piece, Handoff)), default=0)
    later = (
        at
        for at, piece in enumerate(pieces)
        if at >= behind and not isinstance(piece, Handoff) and piece.position > position
    )
    return next(later, len(pieces))
