"""Damage is found, named and, where nothing has to be made up for it, mended."""

from __future__ import annotations

from functools import partial

import pytest
from store_rows import add, filled, new_message, rows, run

from penstock.accounts.talk import read_talk
from penstock.errors import PenstockError
from penstock.sessions.exporting import export_conversation
from penstock.sessions.session import Session
from penstock.stores.values import NewSession, StoredResult

MENDABLE = {
    "the tip of a log": ("UPDATE conversations SET tip = x'00' WHERE id = 'a'", "end or the length"),
    "a length that is too small": ("UPDATE conversations SET length = 1 WHERE id = 'a'", "end or the length"),
    "a length that is too large": ("UPDATE conversations SET length = 9 WHERE id = 'b'", "end or the length"),
    "a view that was taken back": ("UPDATE compactions SET undone = 1.0 WHERE key = 2", "view on record"),
    "a view that is not there": ("UPDATE conversations SET view = 77 WHERE id = 'a'", "view on record"),
    "a view that lags behind": ("UPDATE conversations SET view = 1 WHERE id = 'a'", "view on record"),
    "a parent that is not there": ("UPDATE sessions SET parent = 77 WHERE id = 'b'", "parent is not there"),
    "a message without a log": (
        "INSERT INTO messages (id, owner, fingerprint, digest, role, raw, packed) VALUES (x'01', '', x'02', x'03', 'user', x'7B7D', 0)",
        "are in no log: 1",
    ),
    "entries without a conversation": (
        "INSERT INTO entries (conversation, position, message, tokens, created) VALUES (77, 0, 1, 1, 1.0)",
        "rows without their conversation: 1",
    ),
    "a pin on nothing": ("INSERT INTO pins (conversation, position) VALUES (1, 50)", "pins on messages"),
    "a pin without a conversation": (
        "INSERT INTO pins (conversation, position) VALUES (77, 0)",
        "rows without their conversation",
    ),
    "a fact without a compaction": (
        (
            "INSERT INTO facts (compaction, place, conversation, position, kind, label, text, uses) "
            "VALUES (77, 0, 1, 0, 'constraint', '', 'never', 1)"
        ),
        "rows without their compaction: 1",
    ),
    "a fact on nothing": (
        (
            "INSERT INTO facts (compaction, place, conversation, position, kind, label, text, uses) "
            "VALUES (1, 0, 1, 50, 'constraint', '', 'never', 1)"
        ),
        "facts on messages",
    ),
    "tokens that are not those of the log": (
        "UPDATE conversations SET tokens = 99 WHERE id = 'b'",
        "99 tokens are on record, and its messages have 4",
    ),
    "a result whose message is gone": (
        "INSERT INTO results (id, session, tool, raw, packed, created, message) VALUES ('r', 1, '', x'00', 0, 1.0, 77)",
        "results whose message is not there: 1",
    ),
    "a result without a session": (
        "INSERT INTO results (id, session, tool, raw, packed, created) VALUES ('r', 77, '', x'00', 0, 1.0)",
        "rows without their session",
    ),
    "usage without a session": (
        (
            "INSERT INTO usage (session, owner, at, model, task, input, output, cache_read, cache_write, cache_write_1h, reasoning) "
            "VALUES (77, '', 1.0, '', '', 1, 1, 1, 1, 1, 1)"
        ),
        "rows without their session",
    ),
}
BEYOND_MENDING = {
    "a message of another owner": (
        "UPDATE messages SET owner = 'ann' WHERE key = 1",
        "messages of another owner: 1",
    ),
    "other bytes": (
        """UPDATE messages SET raw = CAST('{"role":"user","content":"forged"}' AS BLOB) WHERE key = 1""",
        "bytes of m1 are damaged",
    ),
    "another digest": ("UPDATE messages SET digest = x'00' WHERE key = 2", "m2 does not belong after"),
    "another id": ("UPDATE messages SET id = x'AB' WHERE key = 3", "m3 does not belong after"),
    "messages that changed places": (
        "UPDATE entries SET message = 3 - message WHERE message < 3",
        "m1 does not belong after",
    ),
    "a gap": ("DELETE FROM entries WHERE conversation = 1 AND position = 1", "missing before m3"),
    "content that is gone": ("DELETE FROM messages WHERE key = 4", "content of m4 is not there"),
    "a dialect that nobody knows": (
        "UPDATE conversations SET dialect = 'x' WHERE id = 'a'",
        "no dialect 'x'",
    ),
    "a source that is gone": (
        "UPDATE conversations SET forked_from = 77 WHERE id = 'b'",
        "branched off from",
    ),
    "a base of another log": ("UPDATE compactions SET base = x'00' WHERE key = 1", "base is not in the log"),
    "positions of the future": (
        """UPDATE compactions SET pieces = CAST('[{"type":"Kept","position":7}]' AS BLOB) WHERE key = 1""",
        "cannot have known",
    ),
    "pieces that are no JSON": (
        "UPDATE compactions SET pieces = x'00' WHERE key = 1",
        "pieces cannot be read",
    ),
    "a receipt that is no JSON": (
        "UPDATE compactions SET receipt = x'00' WHERE key = 1",
        "receipt cannot be read",
    ),
    "a fork of the lineage": (
        (
            "INSERT INTO sessions (id, owner, conversation, parent, kind, started, end_reason, model, title) "
            "VALUES ('z', '', 1, 1, 'compression', 9.0, '', '', '')"
        ),
        "another continuation",
    ),
    "a result whose bytes are damaged": (
        "INSERT INTO results (id, session, tool, raw, packed, created) VALUES ('r', 1, '', x'789C00FF', 1, 1.0)",
        "its bytes are damaged",
    ),
    "a conversation without sessions": ("DELETE FROM sessions WHERE id = 'b'", "it has no session"),
}


@pytest.fixture
def store():
    opened = filled()
    assert not opened.faults()
    assert not opened.repair()
    yield opened
    opened.close()


@pytest.mark.parametrize("damage", MENDABLE.values(), ids=MENDABLE)
def test_what_can_be_worked_out_is_mended(store, damage):
    statement, what = damage
    state = observable(store)
    run(store, statement)
    found = store.faults()
    assert any(what in fault.what for fault in found)
    assert all(fault.mendable for fault in found)
    assert {(fault.where, fault.what) for fault in store.repair()} >= {
        (fault.where, fault.what) for fault in found
    }
    assert not store.faults()
    if "compactions" not in statement and "parent" not in statement:
        assert observable(store) == state


@pytest.mark.parametrize("damage", BEYOND_MENDING.values(), ids=BEYOND_MENDING)
def test_what_would_have_to_be_made_up_is_only_told(store, damage):
    statement, what = damage
    run(store, statement)
    found = [fault for fault in store.faults() if what in fault.what]
    assert found
    assert not any(fault.mendable for fault in found)
    kept = rows(store, "SELECT key, raw FROM messages ORDER BY key")
    store.repair()
    assert [fault for fault in store.faults() if what in fault.what]
    reachable = [row[0] for row in rows(store, "SELECT message FROM entries")]
    assert rows(store, "SELECT key, raw FROM messages ORDER BY key") == [
        row for row in kept if row[0] in reachable
    ]


def observable(store):
    return [
        (
            name,
            list(store.read_from(name, 0)),
            store.log_tip(name),
            store.newest_compaction(name),
            store.pins(name),
        )
        for name in ("a", "b")
    ]


def test_faults_say_where_they_are(store):
    run(store, "UPDATE conversations SET tip = x'00' WHERE id = 'b'")
    assert [fault.where for fault in store.faults()] == ["conversation b"]


def test_calls_without_ids_are_read_by_their_place_in_the_log():
    from penstock.conversation.dialects import decode_all, dialect_named
    from penstock.conversation.identity import content_digest

    store = filled()
    store.create(NewSession(id="g", at=1.0, dialect="sharegpt"))
    wires = [
        {"from": "human", "value": "weather?"},
        {"from": "gpt", "value": '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'},
        {"from": "tool", "value": "<tool_response>\nrain\n</tool_response>"},
    ]
    linked = decode_all(dialect_named("sharegpt"), wires)
    plain = [new_message(wire, "sharegpt") for wire in wires]
    assert plain[1].digest != content_digest(linked[1])
    new = [
        type(one)(one.raw, content_digest(message), one.role, 1)
        for one, message in zip(plain, linked, strict=True)
    ]
    store.append("g", new, "", 2.0)
    assert not store.faults()
    store.close()


def test_many_messages_are_checked_in_parts():
    store = filled()
    add(store, "b", *(f"text {n}" for n in range(1_100)))
    assert not store.faults()
    run(store, "UPDATE entries SET tokens = tokens WHERE position = 900")
    run(store, "DELETE FROM entries WHERE position = 900")
    assert [fault.what for fault in store.faults() if "missing" in fault.what] == [
        "messages are missing before m902"
    ]
    store.close()


DAMAGED = [
    "UPDATE messages SET raw = x'7B'",
    "UPDATE messages SET raw = x'FF00', packed = 1",
    "UPDATE messages SET packed = 1",
    "UPDATE messages SET raw = ''",
    "UPDATE compactions SET pieces = x'5B31'",
    "UPDATE compactions SET pieces = x'7B7D'",
    "UPDATE compactions SET pieces = x'FF'",
    "UPDATE compactions SET receipt = x'7B'",
    "UPDATE compactions SET receipt = x'31'",
    "UPDATE compactions SET receipt = x'FF'",
    "UPDATE results SET raw = x'FF'",
    "UPDATE results SET raw = x'FF', packed = 1",
    "UPDATE conversations SET forked_from = 77",
    "UPDATE conversations SET dialect = 'x'",
    "UPDATE conversations SET view = 77",
    "DELETE FROM conversations",
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_record_is_told_with_the_next_step_wherever_it_is_read(damage):
    store = filled()
    store.put_result(StoredResult(id="r", session="a", tool="t", text="kept", created=1.0))
    run(store, damage)
    calls = [
        *(partial(look, name) for name in ("a3", "b") for look in (
            store.session, store.tip, store.list_children, store.log_tip, store.ids, store.compactions,
            store.newest_compaction, store.facts, store.pins, partial(store.read_from, start=0),
            partial(store.read, positions=[0, 1]), partial(store.entities, redact=str),
            lambda name: store.search("one", session_id=name), partial(Session.resume, store), partial(export_conversation, store),
            partial(read_talk, store), lambda name: Session.resume(store, name).view(),
        )),
        store.list, store.usage, store.index, store.faults, partial(store.result, "r"), partial(store.search, "one"),
        partial(store.find_known_prefix, [bytes(row[0]).hex() for row in rows(store, "SELECT id FROM messages")]),
    ]  # fmt: skip
    told = []
    for call in calls:
        try:
            call()
        except PenstockError as error:
            told.append(str(error))
    assert all(
        "doctor" in said or "list the sessions" in said or "use one of chat" in said for said in told
    ), told
    assert store.faults()
    store.close()
