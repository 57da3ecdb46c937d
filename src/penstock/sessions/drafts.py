"""A compaction before it is committed: the view it is made of, and all that is to be recorded of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.view import Compaction
from penstock.sessions.stored_view import read_view, record_facts, record_pieces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.conversation.view import ViewMessage
    from penstock.engine.compressed import Compressed
    from penstock.redaction import Redactor
    from penstock.sessions.stored_view import StoredView
    from penstock.stores.values import CompactionRow, LogTip, NewFact, SessionRow, Store

__all__ = ["CompactionDraft", "ViewBase", "draft_compaction"]


class ViewBase(msgspec.Struct, frozen=True, eq=False):
    """A view, the end of the log that it reaches to, and the compaction that it rests on."""

    view: StoredView
    tip: LogTip
    newest: CompactionRow | None

    @property
    def prefix_end(self) -> int:
        """How many messages of the view the compaction has settled."""
        later = 0 if self.newest is None else self.tip.length - self.newest.compaction.length
        return 0 if self.newest is None else max(0, len(self.view.messages) - later)


class CompactionDraft(msgspec.Struct, frozen=True, eq=False):
    """A compaction that only has to be committed. `messages` is the view it gives, up to the end of the log it was made of."""

    base: ViewBase
    compaction: Compaction
    receipt: Mapping[str, Any]
    facts: Sequence[NewFact]
    messages: list[ViewMessage]

    @property
    def wires(self) -> list[Any]:
        """The object of each message of that view."""
        return [message.wire for message in self.messages]


def draft_compaction(
    standing: ViewBase, result: Compressed, store: Store, row: SessionRow, redactor: Redactor
) -> CompactionDraft:
    """All that is to be recorded of a compaction of this view. Nothing is written."""
    tip = standing.tip
    compaction = Compaction(tip.id, tip.length, record_pieces(standing.view, result))
    return CompactionDraft(
        base=standing,
        compaction=compaction,
        receipt=result.receipt.to_dict(),
        facts=record_facts(standing.view, result, redactor, store.facts(row.id)),
        messages=read_view(store, row, compaction, tip.length).messages,
    )
