"""The view of a stored conversation: which messages of the log it is made of, and how a compaction of it is recorded.

A compaction is made of the view, a list of wire objects. It is recorded by positions of the log, so that it can be
folded, undone and explained without the view it was made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import ToolCall, ToolResult
from penstock.conversation.view import Handoff, Kept, Rewritten, ViewMessage, fold, positions_in, write_view
from penstock.conversation.wire import encode_wire
from penstock.errors import StoreError
from penstock.sessions.facts import KeptFact, KeptKind, collect_leaving_facts
from penstock.sessions.sendable import sendable
from penstock.stores.values import NewFact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.conversation.message import Message, Part
    from penstock.conversation.view import Compaction, Piece
    from penstock.engine.compressed import Compressed
    from penstock.redaction import Redactor
    from penstock.stores.values import FactRow, SessionRow, Store

__all__ = ["StoredView", "read_view", "record_facts", "record_pieces"]


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
        """Where each message stands in the log; None for a handoff."""
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
            for sent in sendable(self.wires, dialect_named(self.dialect))
        ]


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
            f"m{missing + 1} of conversation {session.conversation} is not in the store: penstock doctor says what is "
            "damaged, penstock sessions export writes what is there"
        )
    return StoredView(write_view(pieces, raws, dialect_named(session.dialect)), pieces, session.dialect)


def record_pieces(view: StoredView, result: Compressed) -> tuple[Piece, ...]:
    """The pieces of a compaction of this view, by positions of the log.

    What the view had rewritten already stays rewritten. A handoff stands for all that the one before it stood for.
    What was mended in a broken list is not recorded: the log keeps its faults, and every compaction mends them anew.
    """
    plan = result.plan
    if plan is None:
        return view.pieces
    before = {piece.position: piece for piece in view.pieces if isinstance(piece, Rewritten)}
    covered = {place for piece in view.pieces if isinstance(piece, Handoff) for place in piece.covers}
    read = result.read
    recorded: list[Piece] = []
    for piece in plan.pieces:
        match piece:
            case Handoff(summary=summary, covers=covers, role=role):
                gone = _log_positions(covers, result.places, view)
                recorded.append(Handoff(summary, tuple(covered | gone), role))
            case Kept(position=place):
                recorded += _again(place, {}, result.places, view, before)
            case Rewritten(position=place, parts=parts):
                own = _as_logged(parts, read[place][1], result.places[place], view)
                recorded += _again(place, own, result.places, view, before)
    return _without_what_stands(recorded)


def record_facts(
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
        for fact in collect_leaving_facts(
            result.transcript, result.plan, redactor, shortened=shortened, earlier=before
        )
    ]


def _as_logged(parts: Mapping[int, Part], read: Message, given: int, view: StoredView) -> Mapping[int, Part]:
    """The parts by their place in the logged message.

    They are numbered as they were read: where the message had to be mended first, some of its parts were gone or moved.
    """
    if given < 0:
        return parts
    logged = dialect_named(view.dialect).decode(view.messages[given].wire).parts
    if len(logged) == len(read.parts) and all(map(_same, logged, read.parts)):
        return parts
    places: dict[int, int] = {}
    for at, part in enumerate(read.parts):
        left = (
            place for place, own in enumerate(logged) if place not in places.values() and _same(own, part)
        )
        if (found := next(left, None)) is not None:
            places[at] = found
    return {places[at]: part for at, part in parts.items() if at in places}


def _same(one: Part, other: Part) -> bool:
    """Whether both are the same part, but for the id of a call, which a list may have made up."""
    if isinstance(one, (ToolCall, ToolResult)) and isinstance(other, (ToolCall, ToolResult)):
        return msgspec.structs.replace(one, call_id="") == msgspec.structs.replace(other, call_id="")
    return one == other


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
        Handoff(piece.summary, tuple(sorted(set(piece.covers) - standing)), piece.role)
        if isinstance(piece, Handoff)
        else piece
        for piece in pieces
    )


def _is_merged(piece: Piece) -> bool:
    return isinstance(piece, Handoff) and piece.role is None


def _log_positions(covers: Iterable[int], places: Sequence[int], view: StoredView) -> set[int]:
    given = (places[place] for place in covers)
    return {position for at in given if at >= 0 and (position := view.positions[at]) is not None}
