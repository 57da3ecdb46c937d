"""The first look at a store: conversations with their pressure, and what compaction has saved."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from penstock.accounts.conversations import ListedConversation, make_title, show_remaining
from penstock.accounts.pressure import PressureGauge, WindowPressure

if TYPE_CHECKING:
    from penstock.accounts.catalogue import Catalogue, CatalogueQuery, Savings
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import ConversationRow

__all__ = ["MINUTES", "Overview", "OverviewRow", "read_overview"]

MINUTES = 60
"""How far back requests are counted by the minute."""


class OverviewRow(msgspec.Struct, frozen=True):
    """A conversation and how full its window is."""

    listed: ListedConversation
    pressure: WindowPressure


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list, and the figures above it."""

    query: CatalogueQuery
    rows: list[OverviewRow]
    offset: int
    found: int
    """Conversations that match the query."""
    total: int
    """Conversations in the store."""
    waiting: int
    """Those that are still to be read before the query is answered in full."""
    savings: Savings
    per_minute: list[int]
    """Requests in each of the last minutes, the oldest first."""


def read_overview(
    store: Store,
    catalogue: Catalogue,
    settings: Settings,
    query: CatalogueQuery,
    place: tuple[int, int],
    now: float,
) -> Overview:
    """Returns a page of the list. `place` is how many rows are before it, and how many it has at most.

    The plain list comes from the store alone, so that it is there at once; filters and other orders come from the
    catalogue, as far as that has been read.
    """
    offset, limit = place
    if query.is_plain:
        rows = store.list(limit=limit, offset=offset)
        found, waiting = catalogue.total, 0
    else:
        matches = catalogue.find(query)
        rows = store.show([one.row.id for one in islice(matches, offset, offset + limit)])
        found, waiting = len(matches), catalogue.waiting
    gauge = PressureGauge(store, settings)

    def show(row: ConversationRow) -> OverviewRow:
        title = catalogue.title(row) or make_title(store, row.tip, row.title)
        return OverviewRow(ListedConversation(row, title), gauge.measure(row.tip, row.view_tokens))

    return Overview(
        query=query,
        rows=list(show_remaining(rows, show)),
        offset=offset,
        found=found,
        total=catalogue.total,
        waiting=waiting,
        savings=catalogue.savings,
        per_minute=_count_by_minute(store, now),
    )


def _count_by_minute(store: Store, now: float) -> list[int]:
    counts = [0] * MINUTES
    for at in store.moments(now - 60 * MINUTES):
        back = int((now - at) // 60)
        if 0 <= back < MINUTES:
            counts[MINUTES - 1 - back] += 1
    return counts
