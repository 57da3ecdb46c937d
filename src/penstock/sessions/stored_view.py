"""The view of a stored conversation: which messages of the log it is made of, and how a compaction of it is recorded.

A compaction is made of the view, a list of wire objects. It is recorded by positions of the log, so that it can be
folded, undone and explained without the view it was made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import ToolCall, ToolResult
from penstock.conversation.view import Handoff, Kept, Rewritten, encode
from penstock.conversation.wire import parse_json
from penstock.errors import StoreError
from penstock.sessions.facts import KeptFact, KeptKind, leaving_facts
from penstock.stores.values import NewFact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.conversation.message import Message
    from penstock.conversation.view import Compaction, Piece
    from penstock.engine.compressed import Compressed
    from penstock.redaction import Redactor
    from penstock.stores.values import FactRow, LogEntry, SessionRow, Store

__all__ = ["StoredView", "read_view", "recorded_facts", "recorded_pieces"]


class StoredView(msgspec.Struct, frozen=True, eq=False):
    """A view on the wire: `wires` are plain objects, `positions` where each stands in the log, None for a handoff.

    `pieces` say what each of them is made of, by positions of the log; a handoff that is merged into a message has
    its piece in front of that message's, and no wire of its own. `tokens` are those of the messages as they came.
    """

    wires: list[Any]
    pieces: tuple[Piece, ...]
    positions: list[int | None]
    tokens: int

    @property
    def numbers(self) -> list[int]:
        """The number by which each wire is named: that of its message in the log, 0 for a handoff."""
        return [0 if position is None else position + 1 for position in self.positions]


def read_view(store: Store, session: SessionRow, compaction: Compaction | None, length: int) -> StoredView:
    """The view that this compaction gives of the first `length` messages of the session's log.

    Raises StoreError where the store lacks one of them.
    """
    wanted = _wanted_positions(compaction, length)
    entries = store.read(session.id, wanted)
    if len(entries) < len(wanted):
        missing = min(set(wanted) - {entry.position for entry in entries})
        raise StoreError(
            f"m{missing + 1} of conversation {session.conversation} is not in the store: penstock doctor says what is "
            "damaged, penstock sessions export writes what is there"
        )
    return _view_of(compaction, entries, session.dialect)


def _wanted_positions(compaction: Compaction | None, length: int) -> list[int]:
    """The positions of the log that the view needs."""
    if compaction is None:
        return list(range(length))
    standing = [piece.position for piece in compaction.pieces if not isinstance(piece, Handoff)]
    return [*standing, *range(compaction.length, length)]


def _view_of(compaction: Compaction | None, entries: Sequence[LogEntry], dialect_name: str) -> StoredView:
    """The view that is made of these messages of the log."""
    dialect = dialect_named(dialect_name)
    by_position = {entry.position: entry for entry in entries}
    messages: dict[int, Message] = {}
    for entry in entries:
        wire = parse_json(entry.raw)
        messages[entry.position] = dialect.decode(wire, wire)
    pieces: tuple[Piece, ...] = tuple(Kept(entry.position) for entry in entries)
    if compaction is not None:
        later = (entry.position for entry in entries if entry.position >= compaction.length)
        pieces = (*compaction.pieces, *map(Kept, later))
    positions: list[int | None] = []
    merged = False
    for piece in pieces:
        if isinstance(piece, Handoff) and piece.role is None:
            merged = True
            continue
        positions.append(None if isinstance(piece, Handoff) else piece.position)
    tokens = sum(by_position[place].tokens for place in positions if place is not None)
    assert merged or len(positions) == len(pieces)  # noqa: S101 - one wire for each piece, but for a merged handoff
    wires = encode([_with_own_ids(piece, messages) for piece in pieces], messages, dialect)
    return StoredView(wires, pieces, positions, tokens)


def _with_own_ids(piece: Piece, messages: Mapping[int, Message]) -> Piece:
    """The piece with the ids that the message itself gives its calls and results.

    Where a dialect gives none, they were made up for the list that was compacted; another list would get others.
    """
    if not isinstance(piece, Rewritten):
        return piece
    own = messages[piece.position].parts
    parts = {
        at: msgspec.structs.replace(part, call_id=mine.call_id)
        if isinstance(part, (ToolCall, ToolResult)) and isinstance(mine := own[at], (ToolCall, ToolResult))
        else part
        for at, part in piece.parts.items()
    }
    return Rewritten(piece.position, parts)


def recorded_pieces(view: StoredView, result: Compressed) -> tuple[Piece, ...]:
    """The pieces of a compaction of this view, by positions of the log.

    What the view had rewritten already stays rewritten. A handoff stands for all that the one before it stood for.
    What was mended in a broken list is not recorded: the log keeps its faults, and every compaction mends them anew.
    """
    plan = result.plan
    if plan is None:
        return view.pieces
    before = {piece.position: piece for piece in view.pieces if isinstance(piece, Rewritten)}
    covered = {place for piece in view.pieces if isinstance(piece, Handoff) for place in piece.covers}
    recorded: list[Piece] = []
    for piece in plan.pieces:
        match piece:
            case Handoff(summary=summary, covers=covers, role=role):
                gone = _log_positions(covers, result.places, view)
                recorded.append(Handoff(summary, tuple(covered | gone), role))
            case Kept(position=place):
                recorded += _again(place, {}, result.places, view, before)
            case Rewritten(position=place, parts=parts):
                recorded += _again(place, parts, result.places, view, before)
    return _without_what_stands(recorded)


def recorded_facts(
    view: StoredView,
    result: Compressed,
    redactor: Redactor,
    earlier: Sequence[FactRow],
) -> list[NewFact]:
    """The facts of the messages that a compaction takes out of this view. `earlier` are those that were kept before."""
    if result.plan is None or result.transcript is None:
        return []
    before = [
        KeptFact(KeptKind(fact.kind), fact.text, fact.position + 1)
        for fact in earlier
        if fact.kind == KeptKind.CONSTRAINT and fact.superseded is None
    ]
    shortened = {piece.position + 1 for piece in view.pieces if isinstance(piece, Rewritten)}
    return [
        NewFact(
            position=fact.number - 1,
            kind=fact.kind.value,
            text=fact.text,
            label=fact.label,
            uses=fact.uses,
            superseded=fact.superseded_by - 1 if fact.superseded_by else None,
        )
        for fact in leaving_facts(
            result.transcript, result.plan, redactor, shortened=shortened, earlier=before
        )
    ]


def _again(
    place: int,
    parts: Mapping[int, Any],
    places: Sequence[int],
    view: StoredView,
    before: Mapping[int, Rewritten],
) -> list[Piece]:
    """The piece of one message, with what was rewritten in it before."""
    given = places[place]
    if given < 0:
        return []
    position = view.positions[given]
    if position is None:  # a handoff that stays
        return [[piece for piece in view.pieces if not _is_merged(piece)][given]]
    earlier = before.get(position)
    changed = {**(earlier.parts if earlier is not None else {}), **parts}
    return [Rewritten(position, changed) if changed else Kept(position)]


def _without_what_stands(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces, with no handoff standing for a message that stands beside it: one that was pinned and came back."""
    standing = {piece.position for piece in pieces if not isinstance(piece, Handoff)}
    return tuple(
        msgspec.structs.replace(piece, covers=tuple(sorted(set(piece.covers) - standing)))
        if isinstance(piece, Handoff)
        else piece
        for piece in pieces
    )


def _is_merged(piece: Piece) -> bool:
    return isinstance(piece, Handoff) and piece.role is None


def _log_positions(covers: Iterable[int], places: Sequence[int], view: StoredView) -> set[int]:
    given = (places[place] for place in covers)
    return {position for at in given if at >= 0 and (position := view.positions[at]) is not None}
