"""The tables, their indexes and triggers, in steps that only ever lead forward.

A step that was released is never changed. `{key}`, `{number}`, `{blob}`, `{real}` and `{name}` are types
as the database spells them (`SqlSpelling`), `{triggers}` those of the search index, `{storage}` what one database
wants to know about columns, `{entity_triggers}` those of the state by entity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import SchemaTooNew, SchemaTooOld, StoreError

if TYPE_CHECKING:
    from penstock.stores.database import Database, SqlSpelling, Transaction

__all__ = ["FIRST_VERSION", "MESSAGE", "RESULT", "STEPS", "SUMMARY", "migrate", "version_of"]

MESSAGE, SUMMARY, RESULT = 0, 1, 2
"""What passages of the search index come from, as `indexed` and `unindexed` have it."""

FIRST_VERSION = 9
"""The version that the first step leads to. Versions 1 to 8 were never released, and are refused."""

_TABLES = """
-- `owner` is the person or key that a conversation belongs to in a store of many, and empty in a local one.
CREATE TABLE conversations (
  key {key}, id {name} NOT NULL UNIQUE, owner TEXT NOT NULL, dialect TEXT NOT NULL, created {real} NOT NULL, updated {real} NOT NULL,
  tip {blob} NOT NULL, length BIGINT NOT NULL, tokens BIGINT NOT NULL, view BIGINT NOT NULL, forked_from BIGINT,
  fork_length BIGINT NOT NULL);

CREATE TABLE sessions (
  key {key}, id {name} NOT NULL UNIQUE, owner TEXT NOT NULL, conversation BIGINT NOT NULL, parent BIGINT, kind TEXT NOT NULL,
  started {real} NOT NULL, ended {real}, end_reason TEXT NOT NULL, model TEXT NOT NULL, title TEXT NOT NULL);
CREATE INDEX sessions_of_conversation ON sessions (conversation);
CREATE INDEX sessions_of_parent ON sessions (parent);

-- A message by its chained id and its exact bytes, whichever logs it stands in. Clients write the same content in
-- other bytes; each log keeps its own. `packed` says that raw is compressed. Two owners with the same message have it twice:
-- nothing that one does tells of the other.
CREATE TABLE messages (
  key {key}, id {blob} NOT NULL, owner TEXT NOT NULL, fingerprint {blob} NOT NULL, digest {blob} NOT NULL, role TEXT NOT NULL,
  raw {blob} NOT NULL, packed BIGINT NOT NULL, UNIQUE (id, owner, fingerprint));

CREATE TABLE entries (
  conversation BIGINT NOT NULL, position BIGINT NOT NULL, message BIGINT NOT NULL, tokens BIGINT NOT NULL,
  created {real} NOT NULL, PRIMARY KEY (conversation, position)){clustered};
CREATE INDEX entries_of_message ON entries (message);

-- One compaction over each view: the second of two that were made of the same one is refused.
CREATE TABLE compactions (
  key {key}, conversation BIGINT NOT NULL, over BIGINT NOT NULL, base {blob} NOT NULL, length BIGINT NOT NULL,
  pieces {blob} NOT NULL, receipt {blob} NOT NULL, created {real} NOT NULL, undone {real},
  session BIGINT NOT NULL, retry TEXT NOT NULL);
CREATE UNIQUE INDEX one_compaction_over_a_view ON compactions (conversation, over) WHERE undone IS NULL;
CREATE INDEX compactions_of_conversation ON compactions (conversation);

-- What the ledger held of the messages that a compaction took out of the view, best first. `superseded` is the position
-- of the message that changed it.
CREATE TABLE facts (
  compaction BIGINT NOT NULL, place BIGINT NOT NULL, conversation BIGINT NOT NULL, position BIGINT NOT NULL,
  kind TEXT NOT NULL, label TEXT NOT NULL, text TEXT NOT NULL, uses BIGINT NOT NULL, superseded BIGINT,
  PRIMARY KEY (compaction, place));
CREATE INDEX facts_of_conversation ON facts (conversation, position);

CREATE TABLE pins (
  conversation BIGINT NOT NULL, position BIGINT NOT NULL, PRIMARY KEY (conversation, position));

-- `message` stands in a log in place of the result, which is kept as long as that one is.
CREATE TABLE results (
  key {key}, id TEXT NOT NULL UNIQUE, session BIGINT NOT NULL, tool TEXT NOT NULL, raw {blob} NOT NULL,
  packed BIGINT NOT NULL, created {real} NOT NULL, message BIGINT);
CREATE INDEX results_of_session ON results (session);
CREATE INDEX results_of_message ON results (message);

CREATE TABLE usage (
  key {key}, session BIGINT NOT NULL, owner TEXT NOT NULL, at {real} NOT NULL, model TEXT NOT NULL, task TEXT NOT NULL,
  input BIGINT NOT NULL, output BIGINT NOT NULL, cache_read BIGINT NOT NULL, cache_write BIGINT NOT NULL,
  cache_write_1h BIGINT NOT NULL, reasoning BIGINT NOT NULL, cost {real});
CREATE INDEX usage_of_session ON usage (session);
CREATE INDEX usage_by_time ON usage (at);

CREATE TABLE notes (name TEXT NOT NULL, key TEXT NOT NULL, value {blob} NOT NULL, PRIMARY KEY (name, key));

-- Keys of the gateway: a digest of each, never the key; `rules` are its limits, as JSON. What each used on a day (UTC) is
-- added up beside it, by all gateways of the store.
CREATE TABLE gateway_keys (
  key {key}, id TEXT NOT NULL UNIQUE, digest {blob} NOT NULL, name TEXT NOT NULL, created {real} NOT NULL,
  last_used {real}, expires {real}, revoked {real}, rules {blob} NOT NULL);
CREATE TABLE gateway_spending (owner TEXT NOT NULL, day BIGINT NOT NULL, tokens BIGINT NOT NULL, PRIMARY KEY (owner, day));

-- The search index. Which passages come from what: a message (0), the summary of a compaction (1) or a stored result (2),
-- by its key, and which conversation brought it. Passages are numbered through, those of one source from `first` on.
CREATE TABLE indexed (
  kind BIGINT NOT NULL, source BIGINT NOT NULL, conversation BIGINT NOT NULL, first BIGINT NOT NULL,
  passages BIGINT NOT NULL, PRIMARY KEY (kind, source));
CREATE UNIQUE INDEX indexed_by_passage ON indexed (first) WHERE passages > 0;
CREATE INDEX indexed_of_conversation ON indexed (conversation);

-- Sources that are still to be indexed. Triggers write to it, and remove deleted sources from the index.
CREATE TABLE unindexed (
  kind BIGINT NOT NULL, source BIGINT NOT NULL, conversation BIGINT NOT NULL, PRIMARY KEY (kind, source)){clustered};
CREATE TABLE index_version (version BIGINT NOT NULL);

-- Which passages hold which terms: blocks of passages with neighbouring numbers, from `first` on, and their pages, each at
-- 65,536 times that number and the place of the page.
CREATE TABLE blocks (
  first {number}, span BIGINT NOT NULL, passages BIGINT NOT NULL, pages BIGINT NOT NULL);
CREATE TABLE postings (place {number}, page {blob} NOT NULL);

-- Passages that were deleted and still stand in their block.
CREATE TABLE removed (first {number}, passages BIGINT NOT NULL);

-- What passages mean, for searches that ask for it: all of one source together, by the number of the first. They are made
-- in order, by which model and up to which number is on record.
CREATE TABLE vectors (first {number}, bits {blob} NOT NULL);
CREATE TABLE vectors_made (model TEXT NOT NULL, upto BIGINT NOT NULL);
{triggers}{storage}"""

# What a message says of entities, redacted (`writing.sightings`), and which messages have been looked at, in which way. A
# message keeps it as long as it is there itself.
_ENTITIES = """
CREATE TABLE sightings (
  message BIGINT NOT NULL, place BIGINT NOT NULL, role BIGINT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
  says TEXT NOT NULL, call TEXT NOT NULL, failed BIGINT NOT NULL, status BIGINT, PRIMARY KEY (message, place));
CREATE TABLE sighted (message {number}, version BIGINT NOT NULL);
{entity_triggers}"""

# Indexes in the order in which rows are asked for, so that the first is found without a look at the others.
_ORDERS = """
CREATE INDEX conversations_by_use ON conversations (updated, key);
CREATE INDEX conversations_of_owner ON conversations (owner, updated, key);
DROP INDEX sessions_of_conversation;
CREATE INDEX sessions_of_conversation ON sessions (conversation, key);
CREATE INDEX sessions_of_owner ON sessions (owner, id);
DROP INDEX entries_of_message;
CREATE INDEX entries_of_message ON entries (message, conversation);
DROP INDEX usage_by_time;
CREATE INDEX usage_by_time ON usage (at, key);
CREATE INDEX usage_of_owner ON usage (owner, at, key);
"""

# Turns of conversations that several processes serve: who has one and until when, messages that came meanwhile and wait for
# it to take them, and deliveries by the name that a client gave them.
_TURNS = """
CREATE TABLE turns (conversation {number}, holder TEXT NOT NULL, until {real} NOT NULL);
CREATE TABLE queued (key {key}, conversation BIGINT NOT NULL, message {blob} NOT NULL);
CREATE INDEX queued_of_conversation ON queued (conversation, key);
CREATE TABLE deliveries (
  conversation BIGINT NOT NULL, name TEXT NOT NULL, digest {blob} NOT NULL, position BIGINT NOT NULL, answer {blob},
  at {real} NOT NULL, PRIMARY KEY (conversation, name));
"""

STEPS = (_TABLES, _ENTITIES, _ORDERS, _TURNS)

_CONVERSATION_OF_SESSION = "coalesce((SELECT conversation FROM sessions WHERE key = NEW.session), 0)"
_WRITTEN = (
    ("entries", MESSAGE, "NEW.message", "NEW.conversation"),
    ("compactions", SUMMARY, "NEW.key", "NEW.conversation"),
    ("results", RESULT, "NEW.key", _CONVERSATION_OF_SESSION),
)
_DELETED = (("messages", MESSAGE), ("compactions", SUMMARY), ("results", RESULT))


def _triggers(words: SqlSpelling) -> str:
    """Returns the triggers of the search index.

    In the transaction that writes or deletes something, they have what was written wait to be indexed, and
    what was deleted leave the index.
    """
    made = [
        words.trigger.format(
            name=f"{table}_to_index",
            event="INSERT",
            table=table,
            body=f"INSERT INTO unindexed (kind, source, conversation) VALUES ({kind}, {key}, {conversation}) "
            "ON CONFLICT (kind, source) DO NOTHING;",
        )
        for table, kind, key, conversation in _WRITTEN
    ]
    made += [
        words.trigger.format(
            name=f"{table}_from_index",
            event="DELETE",
            table=table,
            body="INSERT INTO removed (first, passages) SELECT first, passages FROM indexed "
            f"WHERE kind = {kind} AND source = OLD.key AND passages > 0; "
            f"DELETE FROM indexed WHERE kind = {kind} AND source = OLD.key; "
            f"DELETE FROM unindexed WHERE kind = {kind} AND source = OLD.key;",
        )
        for table, kind in _DELETED
    ]
    made.append(
        words.trigger.format(
            name="vectors_from_index",
            event="DELETE",
            table="indexed",
            body="DELETE FROM vectors WHERE OLD.passages > 0 AND first = OLD.first;",
        )
    )
    return "".join(made)


def migrate(database: Database) -> None:
    """Makes the tables, or brings them up to date, each step in one transaction.

    Raises SchemaTooOld and SchemaTooNew, StoreError for the file of another program. A schema that is up to date is only read, so that a store can be
    opened while another process writes to it.
    """
    words = database.words
    with database.reading() as do:
        found = version_of(do, words)
        stranger = do.one(words.find_stranger) if words.find_stranger and not found else None
    if stranger is not None and stranger[0] != "penstock_schema":
        raise StoreError(
            f"{database.url} is the database of another program (it has a table {stranger[0]!r}), not a Penstock store; "
            "name another file"
        )
    _require_known(found, database.url)
    for place, step in enumerate(STEPS):
        if found < FIRST_VERSION + place:
            with database.writing() as do:
                _take_step(do, FIRST_VERSION + place, step, database)


def version_of(do: Transaction, words: SqlSpelling) -> int:
    """Returns the version of the schema, 0 if there is none yet."""
    if do.one(words.find_table, "penstock_schema") is None:
        return 0
    row = do.one("SELECT max(version) FROM penstock_schema")
    return int(row[0]) if row and row[0] is not None else 0


def _take_step(do: Transaction, version: int, step: str, database: Database) -> None:
    words = database.words
    if words.hold_schema:
        do.one(words.hold_schema)
    found = version_of(do, words)
    _require_known(found, database.url)
    if found >= version:  # another process was quicker
        return
    do.run("CREATE TABLE IF NOT EXISTS penstock_schema (version BIGINT NOT NULL)")
    statements = step.format(
        key=words.key,
        number=words.number,
        blob=words.blob,
        real=words.real,
        name=words.name,
        clustered=words.clustered,
        triggers=_triggers(words),
        entity_triggers=words.trigger.format(
            name="messages_from_sightings",
            event="DELETE",
            table="messages",
            body="DELETE FROM sightings WHERE message = OLD.key; DELETE FROM sighted WHERE message = OLD.key;",
        ),
        storage=words.storage,
    )
    for statement in statements.split(";\n"):
        if statement.strip():
            do.run(statement)
    do.run("DELETE FROM penstock_schema")
    do.run("INSERT INTO penstock_schema (version) VALUES (?)", version)


def _require_known(found: int, url: str) -> None:
    newest = FIRST_VERSION + len(STEPS) - 1
    if found > newest:
        raise SchemaTooNew(
            f"{url} has schema version {found}, and this version of Penstock knows versions up to {newest}: "
            "use the newer version of Penstock that wrote it, or another store"
        )
    if 0 < found < FIRST_VERSION:
        raise SchemaTooOld(
            f"{url} has schema version {found}, and this version of Penstock reads {FIRST_VERSION} and later: "
            "export its sessions with the version of Penstock that wrote it and import them into a new store, or delete it"
        )
