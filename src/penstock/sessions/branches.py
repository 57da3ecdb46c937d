"""Branches off a conversation: makes another one with the same beginning, which starts with the view of that point.

A compaction that lies wholly within the shared part is taken over, with its facts; so are pins. Its receipt says so, so
that no report counts it twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.view import Compaction, Handoff
from penstock.sessions.rewinding import rewind_view
from penstock.stores.values import COMPRESSION, NewCompaction, NewFact, NewSession

if TYPE_CHECKING:
    from penstock.stores.store import Store
    from penstock.stores.values import CompactionRow, SessionRow

__all__ = ["TAKEN_OVER", "branch_off"]

TAKEN_OVER = "taken_over_from"  # in a receipt: the session that the compaction was made in


def branch_off(
    store: Store,
    source: SessionRow,
    length: int,
    new: NewSession,
    continuation: str,
    *,
    shortens: bool = False,
) -> SessionRow:
    """Returns the tip of a new conversation that shares the first `length` messages of another one's log.

    `continuation` is the id of the session that a compaction opens, if one is taken over. With `shortens`, this includes a
    compaction that has also seen later messages: they leave its view, as after a rewind. Raises StoreError if the log has
    fewer messages.
    """
    row = store.branch(source.id, length, new)
    for position in sorted(place for place in store.pins(source.id) if place < length):
        store.pin(row.id, position)
    records = store.compactions(source.id)
    within = [one for one in records if one.compaction.length <= length]
    compaction = within[-1].compaction if within else None
    if shortens and len(within) < len(records):
        tip = store.log_tip(row.id)
        total = store.log_tip(source.id).length
        rewound = rewind_view([one.compaction for one in records], total, total - length)
        if any(isinstance(piece, Handoff) for piece in rewound.pieces):
            within, compaction = list(records), Compaction(tip.id, length, rewound.pieces)
    if compaction is None:
        return row
    newest = within[-1]
    kept = NewCompaction(
        compaction=compaction,
        over=0,
        receipt={**newest.receipt, TAKEN_OVER: newest.session},
        session=NewSession(
            id=continuation,
            at=new.at,
            dialect=new.dialect,
            model=new.model,
            title=new.title,
            kind=COMPRESSION,
        ),
        key=continuation,
        facts=[fact for fact in _copy_facts(store, source, within) if fact.position < length],
    )
    return store.session(store.commit(row.id, kept).session)


def _copy_facts(store: Store, source: SessionRow, within: list[CompactionRow]) -> list[NewFact]:
    keys = {one.key for one in within}
    names = NewFact.__struct_fields__
    return [
        NewFact(**{name: getattr(fact, name) for name in names})
        for fact in store.facts(source.id)
        if fact.compaction in keys
    ]
