"""Facts of the ledger: written with the compaction that takes their messages out of the view, and gone with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.stores.base import FactRow
from penstock.stores.rows import session_of, stretches
from penstock.stores.texts import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.stores.base import NewFact
    from penstock.stores.database import Row, Transaction

__all__ = ["facts_of", "insert_facts"]


def insert_facts(do: Transaction, conversation: int, compaction: int, facts: Sequence[NewFact]) -> None:
    """Write the facts of a compaction, in the order in which they are given."""
    do.run_many(
        "INSERT INTO facts (compaction, place, conversation, position, kind, label, text, uses, superseded) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                *(compaction, place, conversation, fact.position, label(fact.kind), label(fact.label)),
                *(label(fact.text), fact.uses, fact.superseded),
            )
            for place, fact in enumerate(facts)
        ],
    )


def facts_of(do: Transaction, session_id: str) -> list[FactRow]:
    """The facts of the compactions that hold, in the order of their messages; one that was written again counts once."""
    _, _, conversation = session_of(do, session_id)
    newest: dict[tuple[int, str, str, str], FactRow] = {}
    for part, low, high in stretches(do, conversation):
        rows = do.rows(
            "SELECT f.position, f.kind, f.text, f.label, f.uses, f.superseded, e.created, f.compaction FROM facts f "
            "JOIN compactions c ON c.key = f.compaction JOIN entries e ON e.conversation = ? AND e.position = f.position "
            "WHERE f.conversation = ? AND f.position >= ? AND f.position < ? AND c.undone IS NULL "
            "ORDER BY f.position, f.compaction, f.place",
            *(part, conversation, low, high),
        )
        for row in rows:
            fact = _as_fact(row)
            newest[fact.position, fact.kind, fact.label, fact.text] = fact
    return list(newest.values())


def _as_fact(row: Row) -> FactRow:
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
