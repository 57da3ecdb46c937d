"""A store with something in it, and a way to damage it."""

from __future__ import annotations

from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import content_digest
from penstock.conversation.message import Summary
from penstock.conversation.view import Compaction, Handoff, Kept
from penstock.conversation.wire import encode_wire, parse_json
from penstock.stores.sqlite import SqliteDatabase
from penstock.stores.store import Store
from penstock.stores.values import NewCompaction, NewMessage, NewSession

__all__ = ["add", "filled", "new_message", "rows", "run"]


def new_message(wire, dialect="chat"):
    raw = wire if isinstance(wire, bytes) else encode_wire(wire)
    decoded = dialect_named(dialect).decode(parse_json(raw))
    return NewMessage(raw, content_digest(decoded), decoded.role.value, 1)


def add(store, session, *texts, at=2.0):
    new = [new_message({"role": "user", "content": text}) for text in texts]
    return store.append(session, new, store.log_tip(session).id, at)


def filled(path=None):
    """Conversation `a` with four messages and two compactions, and its branch `b` with one message of its own."""
    store = Store(SqliteDatabase(path))
    store.create(NewSession(id="a", at=1.0))
    add(store, "a", "one", "two")
    commit(store, "a", "a2", 0)
    add(store, "a2", "three", "four")
    commit(store, "a2", "a3", 1)
    store.branch("a", 3, NewSession(id="b", at=9.0))
    add(store, "b", "five")
    return store


def commit(store, session, new_id, over, facts=()):
    tip = store.log_tip(session)
    pieces = (Handoff(Summary("said", 1), tuple(range(tip.length - 1))), Kept(tip.length - 1))
    return store.commit(
        session,
        NewCompaction(
            compaction=Compaction(tip.id, tip.length, pieces),
            over=over,
            receipt={},
            session=NewSession(id=new_id, at=5.0),
            facts=facts,
        ),
    )


def run(store, statement, *values):
    with store._database.writing() as do:
        do.run(statement, *values)


def rows(store, statement, *values):
    with store._database.reading() as do:
        return do.rows(statement, *values)
