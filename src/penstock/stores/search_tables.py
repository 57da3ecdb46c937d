"""The tables and triggers of the search index, as the two databases spell them, step by step of the schema.

What is written waits to be indexed, and what is deleted leaves the index: triggers see to both, in the same transaction.
"""

from __future__ import annotations

import msgspec

__all__ = ["MESSAGE", "POSTGRES", "RESULT", "SQLITE", "SUMMARY", "SearchTables"]

MESSAGE, SUMMARY, RESULT = 0, 1, 2
"""What passages come from, as the tables have it."""


class SearchTables(msgspec.Struct, frozen=True):
    """Statements, each ending with `;` and a line break."""

    passages: str
    """Of the third step: an index of the database's own kind, and the triggers."""
    vectors: str
    """Of the fourth: vectors by the number of their first passage; they go with that."""
    blocks: str
    """Of the fifth: blocks in place of that index, and triggers that know them."""


_OF_SESSION = "coalesce((SELECT conversation FROM sessions WHERE key = NEW.session), 0)"
_DELETED_FROM = (("messages", MESSAGE), ("compactions", SUMMARY), ("results", RESULT))
# Between the terms of a passage stood a space, and nothing else parted them.
_IN_TERMS = "".join(mark for mark in map(chr, range(33, 127)) if not mark.isalnum() and mark not in "\"'")


def _queued(trigger: str) -> str:
    """The triggers by which what is written waits."""
    return "".join(
        (
            trigger.format(table="entries", kind=MESSAGE, key="message", conversation="NEW.conversation"),
            trigger.format(table="compactions", kind=SUMMARY, key="key", conversation="NEW.conversation"),
            trigger.format(table="results", kind=RESULT, key="key", conversation=_OF_SESSION),
        )
    )


def _forgotten(trigger: str) -> str:
    """The triggers by which what is deleted leaves."""
    return "".join(trigger.format(table=table, kind=kind) for table, kind in _DELETED_FROM)


_LEAVES = (
    "INSERT INTO removed (first, passages) SELECT first, passages FROM indexed "
    "WHERE kind = {kind} AND source = OLD.key AND passages > 0; "
    "DELETE FROM indexed WHERE kind = {kind} AND source = OLD.key; "
    "DELETE FROM unindexed WHERE kind = {kind} AND source = OLD.key; "
)

SQLITE = SearchTables(
    passages=(
        "CREATE VIRTUAL TABLE passages USING fts5(terms, content='', contentless_delete=1, detail=none, "
        f"tokenize=\"ascii tokenchars '{_IN_TERMS}'\");\n"
    )
    + _queued(
        "CREATE TRIGGER {table}_to_index AFTER INSERT ON {table} BEGIN INSERT INTO unindexed (kind, source, conversation) "
        "VALUES ({kind}, NEW.{key}, {conversation}) ON CONFLICT (kind, source) DO NOTHING; END;\n"
    )
    + _forgotten(
        "CREATE TRIGGER {table}_from_index AFTER DELETE ON {table} BEGIN "
        "DELETE FROM passages WHERE rowid >= (SELECT first FROM indexed WHERE kind = {kind} AND source = OLD.key) "
        "AND rowid < (SELECT first + passages FROM indexed WHERE kind = {kind} AND source = OLD.key); "
        "DELETE FROM indexed WHERE kind = {kind} AND source = OLD.key; "
        "DELETE FROM unindexed WHERE kind = {kind} AND source = OLD.key; END;\n"
    ),
    vectors=(
        "CREATE TABLE vectors (first INTEGER PRIMARY KEY, bits BLOB NOT NULL);\n"
        "CREATE TRIGGER vectors_from_index AFTER DELETE ON indexed WHEN OLD.passages > 0 BEGIN "
        "DELETE FROM vectors WHERE first = OLD.first; END;\n"
    ),
    blocks=_forgotten("DROP TRIGGER {table}_from_index;\n")
    + _forgotten(
        "CREATE TRIGGER {table}_from_index AFTER DELETE ON {table} BEGIN " + _LEAVES + "END;\n",
    ),
)

_POSTGRES_FUNCTION = (
    "CREATE OR REPLACE FUNCTION penstock_{table}_from_index() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
)
POSTGRES = SearchTables(
    passages=(
        "CREATE TABLE passages (number BIGINT PRIMARY KEY, terms INT4[] NOT NULL);\n"
        "CREATE INDEX passages_by_term ON passages USING GIN (terms);\n"
    )
    + _queued(
        "CREATE FUNCTION penstock_{table}_to_index() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO unindexed (kind, source, conversation) VALUES ({kind}, NEW.{key}, {conversation}) "
        "ON CONFLICT (kind, source) DO NOTHING; RETURN NULL; END $$;\n"
        "CREATE TRIGGER {table}_to_index AFTER INSERT ON {table} FOR EACH ROW "
        "EXECUTE FUNCTION penstock_{table}_to_index();\n"
    )
    + _forgotten(
        _POSTGRES_FUNCTION
        + "DELETE FROM passages p USING indexed x WHERE x.kind = {kind} AND x.source = OLD.key "
        "AND p.number >= x.first AND p.number < x.first + x.passages; "
        "DELETE FROM indexed WHERE kind = {kind} AND source = OLD.key; "
        "DELETE FROM unindexed WHERE kind = {kind} AND source = OLD.key; RETURN NULL; END $$;\n"
        "CREATE TRIGGER {table}_from_index AFTER DELETE ON {table} FOR EACH ROW "
        "EXECUTE FUNCTION penstock_{table}_from_index();\n"
    ),
    vectors=(
        "CREATE TABLE vectors (first BIGINT PRIMARY KEY, bits BYTEA NOT NULL);\n"
        "CREATE FUNCTION penstock_vectors_from_index() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "DELETE FROM vectors WHERE first = OLD.first; RETURN NULL; END $$;\n"
        "CREATE TRIGGER vectors_from_index AFTER DELETE ON indexed FOR EACH ROW WHEN (OLD.passages > 0) "
        "EXECUTE FUNCTION penstock_vectors_from_index();\n"
    ),
    # What is packed already is not worth the server's own try at it.
    blocks=_forgotten(_POSTGRES_FUNCTION + _LEAVES + "RETURN NULL; END $$;\n")
    + (
        "ALTER TABLE postings ALTER COLUMN page SET STORAGE EXTERNAL;\n"
        "ALTER TABLE messages ALTER COLUMN raw SET STORAGE EXTERNAL;\n"
        "ALTER TABLE results ALTER COLUMN raw SET STORAGE EXTERNAL;\n"
    ),
)
