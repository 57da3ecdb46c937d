"""Passages in PostgreSQL: their terms as a `tsvector`, under a GIN index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.stores.index import MESSAGE, RESULT, SUMMARY, Spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.stores.database import Transaction
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
_OF_SESSION = "coalesce((SELECT conversation FROM sessions WHERE key = NEW.session), 0)"
# Passages come in batches, so each is put in its place at once: nothing waits in a list that searches must read.
_TABLES = "".join(
    (
        "CREATE TABLE passages (number BIGINT PRIMARY KEY, terms TSVECTOR NOT NULL);\n",
        "CREATE INDEX passages_by_term ON passages USING GIN (terms) WITH (fastupdate = off);\n",
        _QUEUED.format(table="entries", kind=MESSAGE, key="message", conversation="NEW.conversation"),
        _QUEUED.format(table="compactions", kind=SUMMARY, key="key", conversation="NEW.conversation"),
        _QUEUED.format(table="results", kind=RESULT, key="key", conversation=_OF_SESSION),
        *(
            _FORGOTTEN.format(table=table, kind=kind)
            for table, kind in (("messages", MESSAGE), ("compactions", SUMMARY), ("results", RESULT))
        ),
    )
)
_INDEX_LOCK = 5_067_011_735  # any number: one that other programs on the server are unlikely to use


class PostgresIndex:
    """A table `passages`. Terms come ready made, so no configuration for a language is asked."""

    tables = _TABLES

    def hold(self, do: Transaction) -> None:
        """Keep others from adding passages, and from deleting what they come from, until the transaction ends."""
        do.run("LOCK TABLE sessions IN ROW SHARE MODE")
        do.one(f"SELECT pg_advisory_xact_lock({_INDEX_LOCK})")

    def add(self, do: Transaction, passages: Iterable[tuple[int, Sequence[str]]]) -> None:
        """Add passages by number, with their terms."""
        do.run_many(
            "INSERT INTO passages (number, terms) VALUES (?, array_to_tsvector(?::text[]))",
            [(number, list(terms)) for number, terms in passages],
        )

    def empty(self, do: Transaction) -> None:
        """Remove all passages."""
        do.run("DELETE FROM passages")

    def newest(self, do: Transaction, terms: Terms, limit: int) -> list[int]:
        """The highest numbers among the passages that are meant, highest first."""
        rows = do.rows(
            "SELECT number FROM passages WHERE terms @@ ?::tsquery ORDER BY number DESC LIMIT ?",
            *(_asked(terms), limit),
        )
        return [row[0] for row in rows]

    def spread(self, do: Transaction, terms: Terms, limit: int) -> Spread:
        """Of so many passages with the highest numbers: how many there are, and where they begin."""
        row = do.one(
            "SELECT count(*), min(number) FROM (SELECT number FROM passages WHERE terms @@ ?::tsquery "
            "ORDER BY number DESC LIMIT ?) AS found",
            *(_asked(terms), limit),
        )
        return Spread(row[0], row[1] or 0) if row else Spread(0, 0)


def _asked(terms: Terms) -> str:
    """The terms as a `tsquery`."""
    asked = " & ".join(map(_quoted, terms.all_of))
    if terms.one_of:
        asked += f"{' & ' if asked else ''}({' | '.join(map(_quoted, terms.one_of))})"
    return asked


def _quoted(term: str) -> str:
    escaped = term.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
