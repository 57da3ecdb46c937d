"""One compaction as people judge it: before and after side by side, and the handoff with the message of each line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.accounts.display import redact
from penstock.accounts.spending import CompactionTotals, sum_compactions
from penstock.accounts.talk import line_up
from penstock.accounts.timeline import ViewFate
from penstock.conversation.dialects import dialect_named
from penstock.conversation.handles import name_message
from penstock.conversation.view import Handoff, Kept, Rewritten, as_message, fold
from penstock.conversation.wire import parse_json
from penstock.errors import UnknownHandle
from penstock.sessions.quality import read_receipt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.conversation.dialects import Dialect
    from penstock.conversation.message import Message
    from penstock.conversation.view import Compaction, Piece
    from penstock.planning.receipt import Receipt
    from penstock.stores.store import Store
    from penstock.stores.values import CompactionRow, LogEntry, SessionRow

__all__ = [
    "CompactionComparison",
    "ComparedMessage",
    "ComparedStretch",
    "compare_compaction",
    "find_compaction",
]

_SHOWN = 4  # messages at each end of a stretch that are shown


class ComparedMessage(msgspec.Struct, frozen=True):
    """A message of the view before, in one line, and what stands there afterwards, if that is something else.

    `handle` is empty for the handoff of an earlier compaction.
    """

    handle: str
    role: str
    tokens: int
    before: str
    after: str = ""


class ComparedStretch(msgspec.Struct, frozen=True):
    """Neighbours of the view before that have the same fate: the first, how many are not shown, and the last."""

    fate: ViewFate
    first: tuple[ComparedMessage, ...]
    hidden: int
    last: tuple[ComparedMessage, ...]
    tokens: int

    @property
    def count(self) -> int:
        """Returns the number of messages in it."""
        return len(self.first) + self.hidden + len(self.last)


class CompactionComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction: its input, its result, its reason, and what it has cost and saved since."""

    number: int
    """Its number among those of the conversation, from 1 on, undone ones included."""
    row: CompactionRow
    receipt: Receipt | None
    """None if another version of Penstock wrote it in another form."""
    stretches: tuple[ComparedStretch, ...]
    handoff: str
    """The text of its handoffs, without secrets; empty if it only elided."""
    by_model: bool
    """True if a model wrote sections of the handoff."""
    totals: CompactionTotals
    is_newest: bool
    """True if the view rests on it, so that it can be undone."""
    log_length: int

    @property
    def decision(self) -> Mapping[str, Any] | None:
        """Returns why it was made at that moment; None if that was not recorded."""
        found = self.row.receipt.get("decision")
        return found if isinstance(found, dict) else None


def find_compaction(store: Store, session_id: str, number: int) -> CompactionRow:
    """Returns the compaction with this number, counted from 1 on. Raises UnknownHandle."""
    rows = store.compactions(session_id, undone=True)
    if not 1 <= number <= len(rows):
        raise UnknownHandle(f"there is no compaction s{number} in this conversation")
    return rows[number - 1]


def compare_compaction(store: Store, tip: SessionRow, number: int) -> CompactionComparison:
    """Returns all there is to show of a compaction. Raises UnknownHandle."""
    row = find_compaction(store, tip.id, number)
    rows = store.compactions(tip.id, undone=True)
    base = next((one.compaction for one in rows if one.key == row.over), None)
    newest = store.newest_compaction(tip.id)
    handoffs = [piece for piece in row.compaction.pieces if isinstance(piece, Handoff)]
    return CompactionComparison(
        number=number,
        row=row,
        receipt=None if row.is_rewind else read_receipt(row.receipt),
        stretches=_Comparer(store, tip, base, row.compaction).compare(),
        handoff=redact("\n".join(piece.summary.text for piece in handoffs)),
        by_model=any("by" in piece.summary.attributes for piece in handoffs),
        totals=sum_compactions([row], store.usage(session_id=tip.id)),
        is_newest=newest is not None and newest.key == row.key,
        log_length=store.log_tip(tip.id).length,
    )


class _Comparer:
    """Puts the view before a compaction beside the one after it, reading only the messages that are shown."""

    def __init__(self, store: Store, tip: SessionRow, base: Compaction | None, made: Compaction) -> None:
        self._before = fold(made.length, base)
        self._after = made.pieces
        self._kept = {piece.position: piece for piece in made.pieces if not isinstance(piece, Handoff)}
        self._handed = {
            position for piece in made.pieces if isinstance(piece, Handoff) for position in piece.covers
        }
        self._dialect: Dialect = dialect_named(tip.dialect)
        self._tokens = store.shape(tip.id).tokens
        self._store, self._tip = store, tip
        self._entries: dict[int, LogEntry] = {}

    def compare(self) -> tuple[ComparedStretch, ...]:
        runs: list[tuple[ViewFate, list[Piece]]] = []
        for piece in self._before:
            fate = self._find_fate(piece)
            if runs and runs[-1][0] is fate:
                runs[-1][1].append(piece)
            else:
                runs.append((fate, [piece]))
        shown = [_cut(pieces) for _, pieces in runs]
        wanted = [
            piece.position
            for first, _, last in shown
            for piece in (*first, *last)
            if not isinstance(piece, Handoff)
        ]
        self._entries = {entry.position: entry for entry in self._store.read(self._tip.id, wanted)}
        return tuple(
            ComparedStretch(
                fate,
                tuple(map(self._show, first)),
                hidden,
                tuple(map(self._show, last)),
                sum(self._weigh(piece) for piece in pieces),
            )
            for (fate, pieces), (first, hidden, last) in zip(runs, shown, strict=True)
        )

    def _find_fate(self, piece: Piece) -> ViewFate:
        if isinstance(piece, Handoff):
            return ViewFate.VERBATIM if piece in self._after else ViewFate.HANDED_ON
        kept = self._kept.get(piece.position)
        if kept is None:
            return ViewFate.HANDED_ON if piece.position in self._handed else ViewFate.GONE
        return ViewFate.ELIDED if isinstance(kept, Rewritten) and kept != piece else ViewFate.VERBATIM

    def _weigh(self, piece: Piece) -> int:
        return 0 if isinstance(piece, Handoff) else self._tokens[piece.position]

    def _show(self, piece: Piece) -> ComparedMessage:
        if isinstance(piece, Handoff):
            return ComparedMessage("", "handoff", 0, "the handoff of the compaction before")
        message = self._read(piece.position)
        handle = name_message(piece.position + 1)
        if message is None:
            return ComparedMessage(handle, "", 0, "not in the store any more")
        before = message if isinstance(piece, Kept) else as_message(piece, {piece.position: message})
        kept = self._kept.get(piece.position)
        changed = isinstance(kept, Rewritten) and kept != piece
        return ComparedMessage(
            handle,
            message.role.value,
            self._weigh(piece),
            line_up(before),
            line_up(as_message(kept, {piece.position: message})) if changed and kept is not None else "",
        )

    def _read(self, position: int) -> Message | None:
        entry = self._entries.get(position)
        return None if entry is None else self._dialect.decode(parse_json(entry.raw))


def _cut(pieces: Sequence[Piece]) -> tuple[Sequence[Piece], int, Sequence[Piece]]:
    if len(pieces) <= 2 * _SHOWN + 1:
        return pieces, 0, ()
    return pieces[:_SHOWN], len(pieces) - 2 * _SHOWN, pieces[-_SHOWN:]
