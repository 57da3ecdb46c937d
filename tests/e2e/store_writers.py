"""Processes that write to a store until they are killed, and say what was acknowledged to them."""

from __future__ import annotations

import os
import random
import time

from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import content_digest
from penstock.conversation.message import Summary
from penstock.conversation.view import Compaction, Handoff, Kept
from penstock.conversation.wire import encode_wire
from penstock.errors import StoreConflict, StoreUnavailable
from penstock.stores.store import open_store
from penstock.stores.values import NewCompaction, NewMessage, NewSession

__all__ = ["commit", "compete", "hold_exclusively", "new_messages", "race", "read_only", "write_until_killed"]


def new_messages(*texts):
    wires = [{"role": "user", "content": text} for text in texts]
    decoded = [dialect_named("chat").decode(wire) for wire in wires]
    return [
        NewMessage(encode_wire(wire), content_digest(message), "user", 1)
        for wire, message in zip(wires, decoded, strict=True)
    ]


def commit(store, session, new_id, over):
    tip = store.log_tip(session)
    pieces = (Handoff(Summary("said", 1), tuple(range(tip.length - 1))), Kept(tip.length - 1))
    new = NewCompaction(
        compaction=Compaction(tip.id, tip.length, pieces if tip.length else ()),
        over=over,
        receipt={"by": new_id},
        session=NewSession(id=new_id, at=time.time()),
        key=new_id,
    )
    return store.commit(session, new)


def write_until_killed(url, name, seed, acknowledged):
    """Append, search, compact, undo and delete, in the conversation that all share and in ones of its own."""
    store = open_store(url, wait_seconds=30)
    report = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    rng = random.Random(seed)
    own = f"own {name}"
    store.create(NewSession(id=own, at=time.time()))
    number = 0
    while True:
        number += 1
        session = rng.choice(("shared", own))
        try:
            line = _one_thing(store, session, f"{name} {number}", rng)
        except StoreConflict:
            continue
        os.write(report, f"{session}\t{line}\n".encode())


def _one_thing(store, session, what, rng):
    choice = rng.random()
    if choice < 0.05:
        return f"delete\t{_come_and_gone(store, f'brief {what}')}"
    if choice < 0.15:
        return f"search\t{len(store.search(what.split()[0], session_id=session))}"
    if choice < 0.7:
        texts = [f"{what} {n} {'long ' * rng.choice((1, 400))}" for n in range(rng.randint(1, 4))]
        ids = store.append(session, new_messages(*texts), store.log_tip(session).id, time.time()).ids
        return "append\t" + " ".join(ids)
    newest = store.newest_compaction(session)
    if choice < 0.9:
        return f"commit\t{commit(store, session, f'by {what}', newest.key if newest else 0).session}"
    undone = store.undo(session, time.time())
    return f"undo\t{undone.session if undone else ''}"


def _come_and_gone(store, name):
    """A branch with a message of its own, indexed and deleted."""
    store.branch("shared", store.log_tip("shared").length, NewSession(id=name, at=time.time()))
    store.append(name, new_messages(f"fleeting {name}"), store.log_tip(name).id, time.time())
    store.search("fleeting", session_id=name)
    store.delete(name)
    return name


def compete(url, name, barrier, rounds):
    """Compact the same view as the other one, at the same moment, again and again; exits with how often it won."""
    store = open_store(url, wait_seconds=30)
    won = 0
    for number in range(rounds):
        barrier.wait(60)
        newest = store.newest_compaction("shared")
        barrier.wait(60)
        try:
            commit(store, "shared", f"{name} {number}", newest.key if newest else 0)
            won += 1
        except StoreConflict:
            pass
    store.close()
    raise SystemExit(won)


def race(url, name, count):
    """Append to the shared log `count` times, whoever else does."""
    store = open_store(url, wait_seconds=30)
    for number in range(count):
        while True:
            try:
                after = store.log_tip("shared").id
                store.append("shared", new_messages(f"{name} {number}"), after, time.time())
            except StoreConflict:
                continue
            break
    store.close()


def hold_exclusively(path, held, release):
    """Hold all of a SQLite file until told to let go."""
    import apsw

    connection = apsw.Connection(str(path))
    connection.execute("BEGIN EXCLUSIVE")
    held.set()
    release.wait(60)
    connection.execute("ROLLBACK")
    connection.close()


def read_only(url, told):
    """Try to write as somebody who may only read; what was said is sent back."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        store = open_store(url, wait_seconds=1)
        try:
            store.append("shared", new_messages("more"), store.log_tip("shared").id, time.time())
        finally:
            store.close()
    except StoreUnavailable as error:
        told.send(str(error))
    else:
        told.send("it was written")
