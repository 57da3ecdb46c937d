"""What may be wrong with the search index. It is made of what the store holds, so making it anew mends all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.recall.passages import INDEX_VERSION
from penstock.stores.index import damaged_blocks, held_passages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stores.database import Transaction

__all__ = ["MAKE_ANEW", "search_faults"]

MAKE_ANEW = "UPDATE index_version SET version = 0"
_SOURCES = ((0, "messages", "messages"), (1, "compactions", "summaries"), (2, "results", "stored results"))


def search_faults(do: Transaction) -> Iterator[str]:
    """What is not as it should be. Nothing in an index that the next search makes anew anyway."""
    row = do.one("SELECT version FROM index_version")
    if row is None or row[0] != INDEX_VERSION:
        return
    for kind, table, name in _SOURCES:
        gone = f"kind = {kind} AND NOT EXISTS (SELECT 1 FROM {table} s WHERE s.key = source)"
        if count := _count(do, f"FROM indexed WHERE {gone}"):
            yield f"it holds {count:,} {name} that are not there"
        lacking = " AND ".join(
            f"NOT EXISTS (SELECT 1 FROM {one} x WHERE x.kind = {kind} AND x.source = s.key)"
            for one in ("indexed", "unindexed")
        )
        if count := _count(do, f"FROM {table} s WHERE {lacking}"):
            yield f"it lacks {count:,} {name}"
    if count := _count(
        do,
        "FROM vectors v WHERE NOT EXISTS (SELECT 1 FROM indexed x WHERE x.first = v.first AND x.passages > 0)",
    ):
        yield f"it holds {count:,} vectors of passages that are not there"
    if count := damaged_blocks(do):
        yield f"{count:,} of its blocks are damaged"
    on_record = do.one("SELECT coalesce(sum(passages), 0) FROM indexed")
    held = held_passages(do)
    if on_record is not None and int(on_record[0]) != held:
        yield f"it holds {held:,} passages, and {int(on_record[0]):,} are on record"


def _count(do: Transaction, rows: str) -> int:
    row = do.one(f"SELECT count(*) {rows}")
    return int(row[0]) if row is not None else 0
