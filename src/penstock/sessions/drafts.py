"""A compaction before it is committed: the view it is made of, and everything that a commit records.

A compaction is made of the view, a list of wire objects. It is recorded by positions of the log, so that it can be
folded, undone and explained without the view it was made of.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import ToolCall, ToolResult
from penstock.conversation.opening import without_handoff
from penstock.conversation.view import Compaction, Handoff, Kept, Rewritten, is_merged
from penstock.sessions.facts import record_facts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from penstock.conversation.message import Message, Part
    from penstock.conversation.view import Piece, ViewMessage
    from penstock.engine.compress import Compressed
    from penstock.redaction import Redactor
    from penstock.sessions.stored_view import StoredView, ViewBase
    from penstock.stores.values import NewFact

__all__ = ["CompactionDraft", "draft_compaction"]


class CompactionDraft(msgspec.Struct, frozen=True, eq=False):
    """A compaction that only has to be committed."""

    base: ViewBase
    compaction: Compaction
    receipt: Mapping[str, Any]
    facts: Sequence[NewFact]
    """The facts that the ledger holds of messages that leave the view."""
    messages: list[ViewMessage]
    """The view that it gives, up to the end of the log that it was made of."""

    @property
    def wires(self) -> list[Any]:
        """The object of each message of that view."""
        return [message.wire for message in self.messages]


def draft_compaction(
    base: ViewBase, result: Compressed, redactor: Redactor, earlier: Sequence[NewFact]
) -> CompactionDraft:
    """Returns everything that a commit records of a compaction of this view. `earlier` are the facts that were kept before."""
    tip = base.tip
    compaction = Compaction(tip.id, tip.length, _record_pieces(base.view, result))
    return CompactionDraft(
        base=base,
        compaction=compaction,
        receipt=result.receipt.to_dict(),
        facts=record_facts(base.view.pieces, result, redactor, earlier),
        messages=base.view.replace(compaction.pieces).messages,
    )


def _record_pieces(view: StoredView, result: Compressed) -> tuple[Piece, ...]:
    """Returns the pieces of a compaction of this view, by positions of the log.

    Parts that the view had rewritten already stay rewritten. A handoff stands for everything that the one before it stood
    for. Repairs of a broken list are not recorded: the log keeps its faults, and every compaction mends them anew.
    """
    plan = result.plan
    if plan is None:
        return view.pieces
    before = {piece.position: piece for piece in view.pieces if isinstance(piece, Rewritten)}
    covered = {place for piece in view.pieces if isinstance(piece, Handoff) for place in piece.covers}
    merged = _find_merged(view.pieces)
    read = result.read
    recorded: list[Piece] = []
    for piece in plan.pieces:
        match piece:
            case Handoff(summary=summary, covers=covers, role=role):
                gone = _find_positions(covers, result.read_sources, view)
                recorded.append(Handoff(summary, tuple(covered | gone), role))
            case Kept(position=place):
                recorded += _record_message(place, {}, result.read_sources, view, before)
            case Rewritten(position=place, parts=parts):
                own = _as_logged(parts, read[place][1], result.read_sources[place], view, merged)
                recorded += _record_message(place, own, result.read_sources, view, before)
    return _uncover_what_stands(recorded)


def _as_logged(
    parts: Mapping[int, Part],
    read: Message,
    given: int | None,
    view: StoredView,
    merged: Collection[int | None],
) -> Mapping[int, Part]:
    """Returns the parts by their place in the logged message.

    They are numbered as they were read: if the message had to be mended first, some of its parts were removed or moved.
    `merged` are the positions of messages that a handoff stands inside of.
    """
    if given is None:
        return parts
    shown = view.messages[given]
    # The log has the message without the handoff.
    wire = without_handoff(shown.wire) if shown.position in merged else shown.wire
    logged = dialect_named(view.dialect).decode(wire).parts
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


def _find_merged(pieces: Sequence[Piece]) -> set[int]:
    """Returns the positions of the messages that a handoff stands inside of."""
    return {
        piece.position
        for before, piece in pairwise(pieces)
        if is_merged(before) and not isinstance(piece, Handoff)
    }


def _same(one: Part, other: Part) -> bool:
    """Returns True if both are the same part, except for the id of a call, which a list may have made up."""
    if isinstance(one, (ToolCall, ToolResult)) and isinstance(other, (ToolCall, ToolResult)):
        return msgspec.structs.replace(one, call_id="") == msgspec.structs.replace(other, call_id="")
    return one == other


def _record_message(
    place: int,
    parts: Mapping[int, Any],
    sources: Sequence[int | None],
    view: StoredView,
    before: Mapping[int, Rewritten],
) -> list[Piece]:
    """Returns the piece of one message, including earlier rewrites of its parts."""
    given = sources[place]
    if given is None:
        return []
    position = view.messages[given].position
    if position is None:  # a handoff that stays
        return [[piece for piece in view.pieces if not is_merged(piece)][given]]
    earlier = before.get(position)
    changed = {**(earlier.parts if earlier is not None else {}), **parts}
    return [Rewritten(position, changed) if changed else Kept(position)]


def _uncover_what_stands(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Returns the pieces, with no handoff standing for a message that stands beside it: one that was pinned and came back."""
    standing = {piece.position for piece in pieces if not isinstance(piece, Handoff)}
    return tuple(
        msgspec.structs.replace(piece, covers=tuple(sorted(set(piece.covers) - standing)))
        if isinstance(piece, Handoff)
        else piece
        for piece in pieces
    )


def _find_positions(covers: Iterable[int], sources: Sequence[int | None], view: StoredView) -> set[int]:
    given, positions = (sources[place] for place in covers), view.positions
    return {position for at in given if at is not None and (position := positions[at]) is not None}
