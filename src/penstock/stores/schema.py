"""The tables, as steps that only ever lead forward. A step that was released is never changed.

`{key}`, `{number}`, `{blob}` and `{real}` are spelled by the database (`SqlSpelling`), the tables of the search index that have no
common spelling in `search_tables.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import SchemaTooNew

if TYPE_CHECKING:
    from penstock.stores.database import Database, SqlSpelling, Transaction

__all__ = ["STEPS", "migrate", "version_of"]

_FIRST = """
CREATE TABLE conversations (
  key {key}, id TEXT NOT NULL UNIQUE, dialect TEXT NOT NULL, created {real} NOT NULL, updated {real} NOT NULL,
  tip {blob} NOT NULL, length BIGINT NOT NULL, view BIGINT NOT NULL, forked_from BIGINT, fork_length BIGINT NOT NULL);

CREATE TABLE sessions (
  key {key}, id TEXT NOT NULL UNIQUE, conversation BIGINT NOT NULL, parent BIGINT, kind TEXT NOT NULL,
  started {real} NOT NULL, ended {real}, end_reason TEXT NOT NULL, model TEXT NOT NULL, title TEXT NOT NULL);
CREATE INDEX sessions_of_conversation ON sessions (conversation);
CREATE INDEX sessions_of_parent ON sessions (parent);

-- A message by its chained id and its exact bytes, whichever logs it stands in. Clients write the same content in
-- other bytes; each log keeps its own. `packed` says that raw is compressed.
CREATE TABLE messages (
  key {key}, id {blob} NOT NULL, fingerprint {blob} NOT NULL, digest {blob} NOT NULL, role TEXT NOT NULL,
  raw {blob} NOT NULL, packed BIGINT NOT NULL, UNIQUE (id, fingerprint));

CREATE TABLE entries (
  conversation BIGINT NOT NULL, position BIGINT NOT NULL, message BIGINT NOT NULL, tokens BIGINT NOT NULL,
  created {real} NOT NULL, PRIMARY KEY (conversation, position));
CREATE INDEX entries_of_message ON entries (message);

-- One compaction over each view: the second of two that were made of the same one is refused.
CREATE TABLE compactions (
  key {key}, conversation BIGINT NOT NULL, over BIGINT NOT NULL, base {blob} NOT NULL, length BIGINT NOT NULL,
  pieces {blob} NOT NULL, receipt {blob} NOT NULL, created {real} NOT NULL, undone {real},
  session BIGINT NOT NULL, retry TEXT NOT NULL);
CREATE UNIQUE INDEX one_compaction_over_a_view ON compactions (conversation, over) WHERE undone IS NULL;

CREATE TABLE pins (
  conversation BIGINT NOT NULL, position BIGINT NOT NULL, PRIMARY KEY (conversation, position));

CREATE TABLE results (
  id TEXT PRIMARY KEY, session BIGINT NOT NULL, tool TEXT NOT NULL, raw {blob} NOT NULL, packed BIGINT NOT NULL,
  created {real} NOT NULL);
CREATE INDEX results_of_session ON results (session);

CREATE TABLE usage (
  key {key}, session BIGINT NOT NULL, at {real} NOT NULL, model TEXT NOT NULL, task TEXT NOT NULL,
  input BIGINT NOT NULL, output BIGINT NOT NULL, cache_read BIGINT NOT NULL, cache_write BIGINT NOT NULL,
  cache_write_1h BIGINT NOT NULL, reasoning BIGINT NOT NULL, cost {real});
CREATE INDEX usage_of_session ON usage (session);
CREATE INDEX usage_by_time ON usage (at);

CREATE TABLE notes (name TEXT NOT NULL, key TEXT NOT NULL, value {blob} NOT NULL, PRIMARY KEY (name, key));
"""

_SECOND = """
-- How many tokens a whole log has, what it shares with others included.
ALTER TABLE conversations ADD COLUMN tokens BIGINT NOT NULL DEFAULT 0;

UPDATE conversations SET tokens = coalesce((
  WITH RECURSIVE part (conversation, source, low, high) AS (
    SELECT key, forked_from, fork_length, length FROM conversations own WHERE own.key = conversations.key
    UNION ALL
    SELECT c.key, c.forked_from, CASE WHEN c.fork_length < p.low THEN c.fork_length ELSE p.low END, p.low
    FROM part p JOIN conversations c ON c.key = p.source)
  SELECT sum(e.tokens) FROM part p JOIN entries e
  ON e.conversation = p.conversation AND e.position >= p.low AND e.position < p.high), 0);

-- The message that stands in a log in place of the result; it is kept as long as that one is.
ALTER TABLE results ADD COLUMN message BIGINT;
CREATE INDEX results_of_message ON results (message);

-- What the ledger held of the messages that a compaction took out of the view, best first. `superseded` is the position
-- of the message that changed it.
CREATE TABLE facts (
  compaction BIGINT NOT NULL, place BIGINT NOT NULL, conversation BIGINT NOT NULL, position BIGINT NOT NULL,
  kind TEXT NOT NULL, label TEXT NOT NULL, text TEXT NOT NULL, uses BIGINT NOT NULL, superseded BIGINT,
  PRIMARY KEY (compaction, place));
CREATE INDEX facts_of_conversation ON facts (conversation, position);
"""

_THIRD = """
-- A stored result gets a number, as everything that is searched has one.
CREATE TABLE numbered_results (
  key {key}, id TEXT NOT NULL UNIQUE, session BIGINT NOT NULL, tool TEXT NOT NULL, raw {blob} NOT NULL,
  packed BIGINT NOT NULL, created {real} NOT NULL, message BIGINT);
INSERT INTO numbered_results (id, session, tool, raw, packed, created, message)
  SELECT id, session, tool, raw, packed, created, message FROM results;
DROP TABLE results;
ALTER TABLE numbered_results RENAME TO results;
CREATE INDEX results_of_session ON results (session);
CREATE INDEX results_of_message ON results (message);

-- Which passages come from what: a message (0), the summary of a compaction (1) or a stored result (2), by its key, and
-- which conversation brought it. They are numbered through, from `first` on.
CREATE TABLE indexed (
  kind BIGINT NOT NULL, source BIGINT NOT NULL, conversation BIGINT NOT NULL, first BIGINT NOT NULL,
  passages BIGINT NOT NULL, PRIMARY KEY (kind, source));
CREATE UNIQUE INDEX indexed_by_passage ON indexed (first) WHERE passages > 0;
CREATE INDEX indexed_of_conversation ON indexed (conversation);

-- What is still to be indexed. Triggers write to it, and remove from the index what is deleted.
CREATE TABLE unindexed (
  kind BIGINT NOT NULL, source BIGINT NOT NULL, conversation BIGINT NOT NULL, PRIMARY KEY (kind, source));
CREATE TABLE index_version (version BIGINT NOT NULL);
{passages}
"""

_FOURTH = """
-- What passages mean, for searches that ask for it: all of one source together, by the number of the first. They are made
-- in order, by which model and up to which number is on record.
{vectors}
CREATE TABLE vectors_made (model TEXT NOT NULL, upto BIGINT NOT NULL);
"""

_FIFTH = """
-- Which passages hold which terms: blocks of passages with neighbouring numbers, from `first` on, and their pages, each at
-- 65,536 times that number and the place of the page.
CREATE TABLE blocks (
  first {number}, span BIGINT NOT NULL, passages BIGINT NOT NULL, pages BIGINT NOT NULL);
CREATE TABLE postings (place {number}, page {blob} NOT NULL);

-- Passages that were deleted and still stand in their block.
CREATE TABLE removed (first {number}, passages BIGINT NOT NULL);

CREATE INDEX compactions_of_conversation ON compactions (conversation);
{blocks}
DROP TABLE passages;
UPDATE index_version SET version = 0;
"""

STEPS = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH)


def migrate(database: Database) -> None:
    """Bring the schema up to date, each step in one transaction. Raises SchemaTooNew.

    A schema that is up to date is only read, so that a store can be opened while somebody else writes to it.
    """
    with database.reading() as do:
        found = version_of(do, database.words)
    _require_known(found, database.url)
    for number in range(found + 1, len(STEPS) + 1):
        with database.writing() as do:
            _take_step(do, number, database)


def version_of(do: Transaction, words: SqlSpelling) -> int:
    """The version that the schema has, 0 for none."""
    if do.one(words.find_table, "penstock_schema") is None:
        return 0
    row = do.one("SELECT max(version) FROM penstock_schema")
    return int(row[0]) if row and row[0] is not None else 0


def _take_step(do: Transaction, number: int, database: Database) -> None:
    words = database.words
    if words.hold_schema:
        do.one(words.hold_schema)
    found = version_of(do, words)
    _require_known(found, database.url)
    if found >= number:  # somebody else was quicker
        return
    do.run("CREATE TABLE IF NOT EXISTS penstock_schema (version BIGINT NOT NULL)")
    step = STEPS[number - 1].format(
        key=words.key,
        number=words.number,
        blob=words.blob,
        real=words.real,
        **msgspec.structs.asdict(database.search_tables),
    )
    for statement in step.split(";\n"):
        if statement.strip():
            do.run(statement)
    do.run("DELETE FROM penstock_schema")
    do.run("INSERT INTO penstock_schema (version) VALUES (?)", number)


def _require_known(found: int, url: str) -> None:
    if found > len(STEPS):
        raise SchemaTooNew(
            f"{url} has schema {found}, and this version of Penstock knows {len(STEPS)}: "
            "use the newer version that wrote it, or another store"
        )
