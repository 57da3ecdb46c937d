"""What a call reads follows from what it returns, not from how much else is in the store.

PostgreSQL is asked before it has ever counted the rows of its tables: then it guesses, and a guess must not make it walk
through everything that is newer.
"""

from __future__ import annotations

import pytest
from store_talk import compact, messages

from penstock.measure.usage import Usage
from penstock.stores.store import open_store
from penstock.stores.values import NewSession, StoredResult, UsageRow

FEW, MANY = 300, 3_000
CALLS = {
    "list": lambda store: store.list(limit=3),
    "usage of a conversation": lambda store: store.usage(session_id="old"),
    "usage of late": lambda store: store.usage(since=1e9),
    "prefix of one log": lambda store: store.find_known_prefix(store.ids("old")),
    "prefix of all logs": lambda store: store.find_known_prefix([*store.ids("old")[:1], "ab" * 16]),
    "one of the list": lambda store: store.show(["old"]),
    "tokens and times": lambda store: store.shape("old"),
    "last request": lambda store: store.last_request("old", "turn"),
    "late moments": lambda store: store.moments(1e9),
    "session": lambda store: store.session("old"),
    "tip": lambda store: store.tip("old"),
    "children": lambda store: store.list_children("old"),
    "log": lambda store: store.read_from("old", 1),
    "compactions": lambda store: store.compactions("old", undone=True),
    "facts": lambda store: store.facts("old"),
    "result": lambda store: store.result("result of old", session_id="old"),
    "beginning of an id": lambda store: store.find("ol"),
    "list of an owner": lambda store: store.for_owner("ann").list(limit=3),
    "usage of an owner": lambda store: store.for_owner("ann").usage(),
    "late usage of an owner": lambda store: store.for_owner("ann").usage(since=1e9),
    "prefix of an owner's log": lambda store: store.for_owner("ann").find_known_prefix(store.ids("anns")),
    "beginning of an owner's id": lambda store: store.for_owner("ann").find("an"),
    "an owner's conversations that are due": lambda store: store.for_owner("ann").due(9.0),
}


@pytest.fixture(params=["sqlite", "postgresql"])
def counted(request, tmp_path, monkeypatch):
    """A store, and a function that tells how much a call made the database read."""
    if request.param == "sqlite":
        store = open_store(f"sqlite:///{tmp_path}/s.db")
        read = _count_sqlite_steps
    else:
        store = open_store(request.getfixturevalue("postgres_url"))
        read = _count_postgres_rows(monkeypatch)
        with store.database.writing() as do:  # nor does it count them in the middle of this test
            for (table,) in do.rows("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"):
                do.run(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    yield store, read
    store.close()


def _count_sqlite_steps(store, call):
    steps = 0

    def step():
        nonlocal steps
        steps += 1
        return False

    with store.database._hold() as connection:
        connection.set_progress_handler(step, 1)
    try:
        call(store)
    finally:
        with store.database._hold() as connection:
            connection.set_progress_handler(None)
    return steps


_FETCHED = (
    "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0) FROM pg_stat_xact_user_tables "
    "WHERE schemaname = current_schema()"
)


def _count_postgres_rows(monkeypatch):
    from penstock.stores.postgres import PostgresTransaction

    read = 0

    def watched(own):
        def watch(self, statement, *values):
            nonlocal read
            self.run("SELECT 1")  # a transaction begins with its first statement
            before = self.connection.execute(_FETCHED).fetchone()[0]
            found = own(self, statement, *values)
            read += int(self.connection.execute(_FETCHED).fetchone()[0] - before)
            return found

        return watch

    for kind in ("rows", "one"):
        monkeypatch.setattr(PostgresTransaction, kind, watched(getattr(PostgresTransaction, kind)))

    def count(store, call):
        nonlocal read
        read = 0
        call(store)
        return read

    return count


def add_conversation(store, name, at):
    store.create(NewSession(id=name, at=at))
    store.append(name, messages("the same for all", f"only in {name}", f"more of {name}"), "", at)
    store.book(UsageRow(session=name, at=at, model="m", task="turn", usage=Usage(5, 5), cost=0.1))
    store.put_result(StoredResult(id=f"result of {name}", session=name, tool="t", text="r", created=at))
    compact(store, name, f"{name} continued")


def add_many(store, count, at):
    """Adds conversations as the one above, all of them at once, which is much quicker."""
    with store.database.writing() as do:
        first = do.one("SELECT min(message) FROM entries")[0]
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        do.run(
            f"{numbers} INSERT INTO conversations (id, owner, dialect, created, updated, tip, length, tokens, view, "
            f"forked_from, fork_length) SELECT 'many {at} ' || i, '', 'chat', {at}, {at}, o.tip, 2, 2, 0, NULL, 0 FROM n, "
            "conversations o WHERE o.id = 'old' ORDER BY i"
        )
        new = f"FROM conversations c WHERE c.created = {at} ORDER BY c.key"
        for kind in ("root", "compression"):
            do.run(
                "INSERT INTO sessions (id, owner, conversation, parent, kind, started, ended, end_reason, model, title) "
                f"SELECT c.id || '{kind}', '', c.key, NULL, '{kind}', {at}, NULL, '', 'm', '' {new}"
            )
        do.run(
            "INSERT INTO messages (id, fingerprint, digest, owner, role, raw, packed) SELECT "
            f"{'c.id::bytea, c.id::bytea, c.id::bytea' if _is_postgres(store) else 'c.id, c.id, c.id'}, "
            f"'', 'user', o.raw, o.packed FROM conversations c, messages o WHERE o.key = {first} AND c.created = {at}"
        )
        own = "m.id = c.id::bytea" if _is_postgres(store) else "m.id = c.id"
        do.run(
            "INSERT INTO entries (conversation, position, message, tokens, created) "
            f"SELECT c.key, 0, {first}, 1, {at} {new}"
        )
        do.run(
            "INSERT INTO entries (conversation, position, message, tokens, created) "
            f"SELECT c.key, 1, m.key, 1, {at} FROM conversations c JOIN messages m ON {own} WHERE c.created = {at}"
        )
        do.run(
            "INSERT INTO usage (session, owner, at, model, task, input, output, cache_read, cache_write, cache_write_1h, "
            f"reasoning, cost) SELECT s.key, '', {at}, 'm', 'turn', 1, 1, 0, 0, 0, 0, 0.1 FROM sessions s WHERE s.started = {at}"
        )
        do.run(
            "INSERT INTO results (id, session, tool, raw, packed, created) "
            f"SELECT 'result of ' || s.id, s.key, 't', o.raw, 0, {at} FROM sessions s, messages o "
            f"WHERE s.started = {at} AND o.key = {first}"
        )
        do.run(
            "INSERT INTO compactions (conversation, over, base, length, pieces, receipt, created, session, retry) "
            f"SELECT c.key, 0, c.tip, 2, o.pieces, o.receipt, {at}, s.key, '' FROM conversations c "
            "JOIN sessions s ON s.conversation = c.key AND s.kind = 'compression', compactions o "
            f"WHERE c.created = {at} AND o.key = (SELECT min(key) FROM compactions)"
        )


def _is_postgres(store):
    return store.url.startswith("postgresql:")


def test_what_is_read_does_not_grow_with_the_store(counted):
    store, count = counted
    add_conversation(store, "old", 1.0)
    add_conversation(store.for_owner("ann"), "anns", 1.0)
    add_many(store, FEW, 2.0)
    few = {name: count(store, call) for name, call in CALLS.items()}
    add_many(store, MANY, 3.0)
    many = {name: count(store, call) for name, call in CALLS.items()}
    grown = {name: (few[name], many[name]) for name in CALLS if many[name] > 1.2 * few[name] + 4}
    assert not grown
