"""Makes a compaction of a session's view with any engine, ready to be committed.

Two kinds of engines, one record: an engine with a plan says what happens to each message; for an engine that only returns
a list, the messages that it kept are recorded by their positions in the log, and its own messages as they are.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.context.drafting import (
    BaseBytes,
    CompletionOrder,
    DraftOrder,
    restore_draft,
    restore_messages,
)
from penstock.conversation import mark
from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Summary
from penstock.conversation.opening import mend_wires
from penstock.conversation.view import Compaction, Handoff, is_merged
from penstock.conversation.wire import encode_wire
from penstock.engine.threads import in_thread
from penstock.planning.receipt import COMPACTED, NOTHING_TO_DO, Receipt
from penstock.recall.originals import write_original
from penstock.sessions.completing import CompletedDraft, find_lacking, find_missed
from penstock.sessions.drafts import CompactionDraft
from penstock.sessions.pins import bring_back_pinned
from penstock.sessions.rewinding import find_standing_pins
from penstock.sessions.stored_view import read_view
from penstock.stores.compactions import read_pieces, write_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.context.drafting import Drafter
    from penstock.context.engine_adapter import EngineAdapter
    from penstock.conversation.dialects import Dialect
    from penstock.conversation.opening import SentMessage
    from penstock.conversation.view import Piece, ViewMessage
    from penstock.engine.compress import CompressRequest
    from penstock.engine.contract import CompactionWish
    from penstock.sessions.session import Session
    from penstock.sessions.stored_view import StoredView, ViewBase

__all__ = ["PreparedCompaction", "complete_compaction", "make_compaction"]


class PreparedCompaction(msgspec.Struct, frozen=True, eq=False):
    """A compaction that was made and not yet put in place."""

    receipt: Receipt
    draft: CompactionDraft | None
    """All that is to be committed; None if there was nothing to do."""
    view_tokens: int
    """Tokens of the view that it gives, as we count them."""
    log_length: int
    """Length of the log when it was made."""
    pins: frozenset[int]
    """Positions of the messages that were pinned then."""
    lacking: frozenset[str] = frozenset()
    """Values of the view it was made of that its own view lacks; only noted of one that is put in place later."""


async def make_compaction(  # noqa: PLR0913  # the last ones by name
    session: Session,
    adapter: EngineAdapter,
    wish: CompactionWish,
    request_tokens: int,
    base: ViewBase | None = None,
    *,
    drafter: Drafter | None = None,
    waits: bool = False,
) -> PreparedCompaction:
    """Compacts the view as it is now, in a thread, or wherever `drafter` works it out. Reads the store, and writes nothing.

    `base` is the view to compact, with its pins; without it, the view is read now. With `waits`, records what the compaction
    lacks, so that `complete_compaction` can add it later. Raises what the engine raises: TargetTooSmall for a
    target that cannot be met, EngineFailure if it fails.
    """
    pins = frozenset(session.store.pins(session.id))
    stays = find_standing_pins(session.store, session.id)
    wish = msgspec.structs.replace(
        wish, pins=wish.pins.union(position + 1 for position in stays), dialect=session.row.dialect
    )
    if base is None:
        base = await in_thread(session.workings.read_view_base, with_pins=True)
    if drafter is not None and (request := adapter.describe(wish)) is not None:
        return await _draft_elsewhere(session, base, request, pins, drafter, waits=waits)
    wires = await in_thread(lambda: base.view.wires)  # written there: a long view takes a while
    result = await adapter.compact_view(wires, base.view.numbers, wish)
    if result is not None:

        def draft() -> PreparedCompaction:
            made = session.workings.draft(base, result)
            tokens = 0 if made is None else session.workings.weigh(made.wires)
            return PreparedCompaction(result.receipt, made, tokens, base.tip.length, pins)

        drafted = await in_thread(draft)
        return await _note_lacking(drafted) if waits else drafted
    started = time.monotonic()
    given = mend_wires(base.view.wires, dialect_named(session.row.dialect))
    # A thread that cannot be ended: an engine of a third party may take as long as it likes, and a person may not wait.
    made = await asyncio.to_thread(adapter.compress, [one.wire for one in given], request_tokens, wish.focus)
    seconds = time.monotonic() - started
    drafted = await in_thread(_draft_list, session, adapter, base, given, made, wish, pins, seconds)
    return await _note_lacking(drafted) if waits else drafted


async def _draft_elsewhere(  # one caller, beside it
    session: Session,
    base: ViewBase,
    request: CompressRequest,
    pins: frozenset[int],
    drafter: Drafter,
    *,
    waits: bool,
) -> PreparedCompaction:
    """Returns a compaction that is worked out elsewhere."""
    order = await in_thread(
        lambda: DraftOrder.of(
            session.row.conversation, base, request, session.store.facts(session.id), waits=waits
        )
    )
    drafted = await drafter.draft(order)
    draft = await in_thread(restore_draft, base, drafted)
    return PreparedCompaction(
        drafted.receipt, draft, drafted.view_tokens, base.tip.length, pins, drafted.lacking
    )


async def _note_lacking(made: PreparedCompaction) -> PreparedCompaction:
    """Returns the compaction with a list of the values that it lacks, for one that is committed later."""
    if made.draft is None:
        return made
    return msgspec.structs.replace(made, lacking=await in_thread(find_lacking, made.draft))


async def complete_compaction(
    session: Session,
    made: PreparedCompaction,
    later: Sequence[ViewMessage],
    drafter: Drafter | None = None,
) -> PreparedCompaction:
    """Adds what the agent has used since the compaction was prepared and the compaction lacks. `later` was logged since.

    It is worked out in a thread, or by `drafter`.
    """
    if made.draft is None or not made.lacking:
        return made
    draft, target = made.draft, made.receipt.target_tokens
    if drafter is not None:
        done = await _complete_elsewhere(session, draft, made.lacking, later, target, drafter)
    else:

        def complete() -> CompletedDraft | None:
            missed = find_missed(later, made.lacking, session.row.dialect)
            return session.workings.complete_draft(draft, missed, target) if missed else None

        done = await in_thread(complete)
    if done is None:
        return made
    old, grown = made.receipt, done.view_tokens - made.view_tokens
    receipt = msgspec.structs.replace(
        old.grow_handoff(grown),
        facts_kept=max(0, old.facts_kept + done.facts_gained),
        facts_reachable=max(0, old.facts_reachable - done.facts_gained),
        facts_added=done.facts_added,
    )
    draft = msgspec.structs.replace(done.draft, receipt=receipt.to_dict())
    return msgspec.structs.replace(made, receipt=receipt, draft=draft, view_tokens=done.view_tokens)


async def _complete_elsewhere(  # one caller, above it
    session: Session,
    draft: CompactionDraft,
    lacking: frozenset[str],
    later: Sequence[ViewMessage],
    target_tokens: int,
    drafter: Drafter,
) -> CompletedDraft | None:
    base = draft.base
    order = await in_thread(
        lambda: CompletionOrder(
            conversation=session.row.conversation,
            base=BaseBytes.of(base),
            settings=session.settings,
            model=session.row.model or None,
            pieces=write_pieces(draft.compaction.pieces),
            later=tuple(message.raw for message in later),
            lacking=lacking,
            target_tokens=target_tokens,
        )
    )
    told = await drafter.complete(order)
    if not told.pieces:
        return None

    def restore() -> CompactionDraft:
        compaction = Compaction(base.tip.id, base.tip.length, read_pieces(told.pieces))
        messages = restore_messages(told.messages)
        return msgspec.structs.replace(draft, compaction=compaction, messages=messages)

    return CompletedDraft(await in_thread(restore), told.view_tokens, told.facts_added, told.facts_gained)


def _draft_list(  # noqa: PLR0913, PLR0917  # one caller, beside it
    session: Session,
    adapter: EngineAdapter,
    base: ViewBase,
    given: Sequence[SentMessage],
    made: Sequence[Any],
    wish: CompactionWish,
    pins: frozenset[int],
    seconds: float,
) -> PreparedCompaction:
    """Returns the draft of a list that an engine has made of the view."""
    dialect, tip = dialect_named(session.row.dialect), base.tip
    pieces = _record_list(base.view, given, made, dialect)
    recorded = Compaction(tip.id, tip.length, pieces)
    # A list engine cannot be told what to keep: what is pinned comes back behind what it wrote.
    kept = {number - 1 for number in wish.pins}
    recorded = bring_back_pinned(recorded, kept, session.store, session.row) or recorded
    compaction = Compaction(tip.id, tip.length, _cover(base.view, recorded.pieces))
    view = read_view(session.store, session.row, compaction, tip.length)
    sent = view.mend()
    before, after = [one.wire for one in given], [one.wire for one in sent]
    tokens_before, tokens_after = session.workings.weigh(before), session.workings.weigh(after)
    smaller = after != before and tokens_after < tokens_before
    kept_verbatim = sum(not isinstance(piece, Handoff) for piece in compaction.pieces)
    receipt = Receipt(
        outcome=COMPACTED if smaller else NOTHING_TO_DO,
        reason=f"by the engine {adapter.engine.name}",
        tokens_before=tokens_before,
        tokens_after=tokens_after,
        messages_before=len(before),
        messages_after=len(after),
        target_tokens=adapter.engine.threshold_tokens,
        kept=kept_verbatim,
        summarised=len(before) - kept_verbatim,
        seconds=seconds,
        dialect=session.row.dialect,
    )
    draft = CompactionDraft(base, compaction, receipt.to_dict(), [], sent) if smaller else None
    return PreparedCompaction(receipt, draft, tokens_after if smaller else 0, tip.length, pins)


def _record_list(
    view: StoredView, given: Sequence[SentMessage], made: Sequence[Any], dialect: Dialect
) -> tuple[Piece, ...]:
    """Returns the pieces of a list that an engine made of a view: the messages that it kept, in order, and its own.

    `given` is the view as the engine saw it. Messages that mended it have no place in the view, and are recorded as written.
    """
    groups = list(_pieces_of_wires(view))
    pieces: list[Piece] = []
    for wire, place in zip(made, _places_of(made, given), strict=True):
        if place is not None:
            pieces += groups[place]
            continue
        message = dialect.decode(wire)
        summary = Summary(write_original(message), mark.VERSION)
        pieces.append(Handoff(summary, (), message.role, encode_wire(wire).decode()))
    return tuple(pieces)


def _places_of(made: Sequence[Any], given: Sequence[SentMessage]) -> list[int | None]:
    """Returns the place in the view of each message of the list; None for one that is not in the view.

    Of equal messages, the last ones are meant if the lists end alike, else the first ones.
    """
    raws, known = [encode_wire(wire) for wire in made], [encode_wire(one.wire) for one in given]
    same = 0
    while same < min(len(raws), len(known)) and raws[-1 - same] == known[-1 - same]:
        same += 1
    earlier: dict[bytes, list[int]] = {}
    for at, raw in enumerate(known[: len(known) - same]):
        earlier.setdefault(raw, []).append(at)
    found: list[int | None] = []
    least = -1
    for raw in raws[: len(raws) - same]:
        at = next((at for at in earlier.get(raw, ()) if at > least), -1)
        least = max(least, at)
        found.append(given[at].place if at >= 0 else None)
    return [*found, *(one.place for one in given[len(given) - same :])]


def _pieces_of_wires(view: StoredView) -> Iterator[tuple[Piece, ...]]:
    """Yields the pieces that each wire of a view is made of: a handoff that is merged into a message is one with it."""
    merged: tuple[Piece, ...] = ()
    for piece in view.pieces:
        if is_merged(piece):
            merged = (*merged, piece)
            continue
        yield (*merged, piece)
        merged = ()


def _cover(view: StoredView, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Returns the pieces, with the first that the engine wrote standing for all that the view no longer has."""
    standing, covered = _positions(pieces)
    before, covered_before = _positions(view.pieces)
    gone = tuple(sorted((before | covered_before) - standing - covered))
    first = next(
        (at for at, piece in enumerate(pieces) if isinstance(piece, Handoff) and piece.written), None
    )
    return tuple(
        msgspec.structs.replace(piece, covers=(*piece.covers, *gone))
        if at == first and isinstance(piece, Handoff)
        else piece
        for at, piece in enumerate(pieces)
    )


def _positions(pieces: Sequence[Piece]) -> tuple[set[int], set[int]]:
    """Returns the positions of the messages in a view, and of those that its handoffs stand for."""
    standing = {piece.position for piece in pieces if not isinstance(piece, Handoff)}
    return standing, {place for piece in pieces if isinstance(piece, Handoff) for place in piece.covers}
