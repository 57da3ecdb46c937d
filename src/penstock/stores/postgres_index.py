"""Passages in PostgreSQL: the hashes of their terms as an array, under a GIN index.

Four bytes for a term take a third of the room of a `tsvector`, and terms come ready made, so nothing of what that type
does for text is needed. Two terms with one hash cost a candidate that the ranking, which reads the text, puts aside.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from penstock.stores.index import Spread, triggers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.stores.database import Row, Transaction
    from penstock.stores.index import Terms

__all__ = ["PostgresIndex"]

_QUEUED = (
    "CREATE FUNCTION penstock_{table}_to_index() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO unindexed (kind, source, conversation) VALUES ({kind}, NEW.{key}, {conversation}) "
    "ON CONFLICT (kind, source) DO NOTHING; RETURN NULL; END $$;\n"
    "CREATE TRIGGER {table}_to_index AFTER INSERT ON {table} FOR EACH ROW "
    "EXECUTE FUNCTION penstock_{table}_to_index();\n"
)
_FORGOTTEN = (
    "CREATE FUNCTION penstock_{table}_from_index() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "DELETE FROM passages p USING indexed x WHERE x.kind = {kind} AND x.source = OLD.key "
    "AND p.number >= x.first AND p.number < x.first + x.passages; "
    "DELETE FROM indexed WHERE kind = {kind} AND source = OLD.key; "
    "DELETE FROM unindexed WHERE kind = {kind} AND source = OLD.key; RETURN NULL; END $$;\n"
    "CREATE TRIGGER {table}_from_index AFTER DELETE ON {table} FOR EACH ROW "
    "EXECUTE FUNCTION penstock_{table}_from_index();\n"
)
# New passages wait in a list until `settle` puts them in their places, many at a time.
_TABLES = (
    "CREATE TABLE passages (number BIGINT PRIMARY KEY, terms INT4[] NOT NULL);\n"
    "CREATE INDEX passages_by_term ON passages USING GIN (terms);\n"
) + triggers(_QUEUED, _FORGOTTEN)
_VECTORS = (
    "CREATE TABLE vectors (first BIGINT PRIMARY KEY, bits BYTEA NOT NULL);\n"
    "CREATE FUNCTION penstock_vectors_from_index() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "DELETE FROM vectors WHERE first = OLD.first; RETURN NULL; END $$;\n"
    "CREATE TRIGGER vectors_from_index AFTER DELETE ON indexed FOR EACH ROW WHEN (OLD.passages > 0) "
    "EXECUTE FUNCTION penstock_vectors_from_index();\n"
)
_HALF = 1 << 31
_SAMPLE = 2_000  # passages by which it is estimated how many there are
_FARTHER = 1.5  # passages stand less densely in some places than in others
_INDEX_LOCK = 5_067_011_735  # any number: one that other programs on the server are unlikely to use


class PostgresIndex:
    """A table `passages`."""

    tables = _TABLES
    vectors = _VECTORS

    def hold(self, do: Transaction) -> None:
        """Keep others from adding passages, and from deleting what they come from, until the transaction ends."""
        do.run("LOCK TABLE sessions IN ROW SHARE MODE")
        do.one(f"SELECT pg_advisory_xact_lock({_INDEX_LOCK})")

    def add(self, do: Transaction, passages: Iterable[tuple[int, Sequence[str]]]) -> None:
        """Add passages by number, with their terms."""
        do.run_many(
            "INSERT INTO passages (number, terms) VALUES (?, ?::int4[])",
            [(number, sorted(set(map(_hash, terms)))) for number, terms in passages],
        )

    def settle(self, do: Transaction) -> None:
        """Put new passages in their places, so that searches need not read through all of them."""
        do.one("SELECT gin_clean_pending_list('passages_by_term')")

    def empty(self, do: Transaction) -> None:
        """Remove all passages."""
        do.run("DELETE FROM passages")

    def ready(self, do: Transaction) -> None:
        """Have the server use the index: what it expects of terms that it has no statistics for is far off."""
        do.run("SET LOCAL enable_seqscan = off")

    def newest(self, do: Transaction, terms: Terms, limit: int) -> list[int]:
        """The highest numbers among the passages that are meant, highest first.

        To sort all of very many would take long: where there are more than a few thousand, how far back to look is
        told by how densely they stand.
        """
        where, values = _asked(terms)
        statement = f"SELECT number FROM passages WHERE {where}"
        sample = self.spread(do, terms, _SAMPLE)
        rows: list[Row] = []
        if sample.passages == _SAMPLE:
            row = do.one("SELECT max(number) FROM passages")
            top = row[0] if row is not None else 0
            first = top - int(_FARTHER * limit * (top - sample.lowest + 1) / _SAMPLE)
            rows = do.rows(f"{statement} AND number >= ?", *values, first)
        if len(rows) < min(limit, sample.passages):  # there are few, or they stand farther back
            rows = do.rows(statement, *values)
        return sorted((row[0] for row in rows), reverse=True)[:limit]

    def spread(self, do: Transaction, terms: Terms, limit: int) -> Spread:
        """Of so many passages: how many there are, and from which number on these stand, counted back from the end.

        They are counted from the beginning, which is where the table is read from; their density is what matters.
        """
        where, values = _asked(terms)
        row = do.one(
            "SELECT count(*), max(number), (SELECT max(number) FROM passages) FROM "
            f"(SELECT number FROM passages WHERE {where} LIMIT ?) AS found",
            *(*values, min(limit, _SAMPLE)),
        )
        if row is None or not row[0]:
            return Spread(0, 0)
        if row[0] < _SAMPLE:
            return Spread(row[0], 1)
        top = row[2]
        found = min(limit, int(row[0] * top / max(1, row[1])))
        return Spread(found, max(1, top - int(row[1] * found / row[0])))


def _asked(terms: Terms) -> tuple[str, list[list[int]]]:
    """The terms as a condition, and its values."""
    conditions, values = [], []
    for operator, some in (("@>", terms.all_of), ("&&", terms.one_of)):
        if some:
            conditions.append(f"terms {operator} ?::int4[]")
            values.append(list(map(_hash, some)))
    return " AND ".join(conditions), values


def _hash(term: str) -> int:
    """Four bytes, with a sign."""
    return zlib.crc32(term.encode()) - _HALF
