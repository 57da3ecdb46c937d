"""Passages in SQLite's FTS5: an index without the texts, since the messages are there already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.stores.index import Spread, triggers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.stores.database import Transaction
    from penstock.stores.index import Terms

__all__ = ["PURGE", "SqliteIndex"]

# Between the terms of a passage stands a space, and nothing else parts them.
_IN_TERMS = "".join(mark for mark in map(chr, range(33, 127)) if not mark.isalnum() and mark not in "\"'")
_QUEUED = (
    "CREATE TRIGGER {table}_to_index AFTER INSERT ON {table} BEGIN INSERT INTO unindexed (kind, source, conversation) "
    "VALUES ({kind}, NEW.{key}, {conversation}) ON CONFLICT (kind, source) DO NOTHING; END;\n"
)
_FORGOTTEN = (
    "CREATE TRIGGER {table}_from_index AFTER DELETE ON {table} BEGIN "
    "DELETE FROM passages WHERE rowid >= (SELECT first FROM indexed WHERE kind = {kind} AND source = OLD.key) "
    "AND rowid < (SELECT first + passages FROM indexed WHERE kind = {kind} AND source = OLD.key); "
    "DELETE FROM indexed WHERE kind = {kind} AND source = OLD.key; "
    "DELETE FROM unindexed WHERE kind = {kind} AND source = OLD.key; END;\n"
)
_TABLES = (
    "CREATE VIRTUAL TABLE passages USING fts5(terms, content='', contentless_delete=1, detail=none, "
    f"tokenize=\"ascii tokenchars '{_IN_TERMS}'\");\n"
) + triggers(_QUEUED, _FORGOTTEN)
_VECTORS = (
    "CREATE TABLE vectors (first INTEGER PRIMARY KEY, bits BLOB NOT NULL);\n"
    "CREATE TRIGGER vectors_from_index AFTER DELETE ON indexed WHEN OLD.passages > 0 BEGIN "
    "DELETE FROM vectors WHERE first = OLD.first; END;\n"
)
PURGE = "INSERT INTO passages (passages) VALUES ('optimize')"
"""Removed passages leave their terms in the file until the index is written anew, which this does."""


class SqliteIndex:
    """A virtual table `passages`. It keeps which passages hold a term, not where in them it stands."""

    tables = _TABLES
    vectors = _VECTORS

    def hold(self, do: Transaction) -> None:
        """Nothing to do: a transaction that writes keeps all others away."""

    def add(self, do: Transaction, passages: Iterable[tuple[int, Sequence[str]]]) -> None:
        """Add passages by number, with their terms."""
        do.run_many(
            "INSERT INTO passages (rowid, terms) VALUES (?, ?)",
            [(number, " ".join(terms)) for number, terms in passages],
        )

    def settle(self, do: Transaction) -> None:
        """Nothing to do: FTS5 merges what is new by itself."""

    def empty(self, do: Transaction) -> None:
        """Remove all passages."""
        do.run("INSERT INTO passages (passages) VALUES ('delete-all')")

    def ready(self, do: Transaction) -> None:
        """Nothing to do."""

    def newest(self, do: Transaction, terms: Terms, limit: int) -> list[int]:
        """The highest numbers among the passages that are meant, highest first."""
        rows = do.rows(
            "SELECT rowid FROM passages WHERE passages MATCH ? ORDER BY rowid DESC LIMIT ?",
            *(_asked(terms), limit),
        )
        return [row[0] for row in rows]

    def spread(self, do: Transaction, terms: Terms, limit: int) -> Spread:
        """Of so many passages with the highest numbers: how many there are, and where they begin."""
        row = do.one(
            "SELECT count(*), min(number) FROM (SELECT rowid AS number FROM passages WHERE passages MATCH ? "
            "ORDER BY rowid DESC LIMIT ?)",
            *(_asked(terms), limit),
        )
        return Spread(row[0], row[1] or 0) if row else Spread(0, 0)


def _asked(terms: Terms) -> str:
    """The terms as FTS5 is asked for them."""
    asked = " AND ".join(map(_quoted, terms.all_of))
    if terms.one_of:
        asked += f"{' AND ' if asked else ''}({' OR '.join(map(_quoted, terms.one_of))})"
    return asked


def _quoted(term: str) -> str:
    doubled = term.replace('"', '""')
    return f'"{doubled}"'
