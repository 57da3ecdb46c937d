"""State by entity, the same on every store: of the log that is asked, as it is now, whoever wrote it and how."""

from __future__ import annotations

import json
import threading

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from store_talk import SHARED, compact, raw_message, started

from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Summary
from penstock.conversation.view import Compaction, Handoff, Kept
from penstock.conversation.wire import encode_wire, parse_json
from penstock.redaction import Redactor
from penstock.sessions.session import Session
from penstock.stores import entities
from penstock.stores.store import open_store
from penstock.stores.values import NewCompaction, NewSession
from penstock.writing.entities import fold_entities
from penstock.writing.sightings import sightings_in

REDACT = Redactor().redact
CHAT = dialect_named("chat")


def call(number, name, **arguments):
    made = {"name": name, "arguments": encode_wire(arguments).decode()}
    wire = {"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": made}]}
    return raw_message(encode_wire(wire))


def result(number, text):
    return raw_message(encode_wire({"role": "tool", "tool_call_id": f"c{number}", "content": text}))


def log(store, session, *new, at=2.0):
    store.append(session, new, store.log_tip(session).id, at)


def states(store, session):
    return {one.name: (one.state, one.handle) for one in store.entities(session, redact=REDACT)}


def test_what_is_appended_is_known_at_the_next_question(store):
    started(store, "a")
    assert states(store, "a") == {}
    log(store, "a", call(1, "read_file", path="app.py"), at=5.0)
    (found,) = store.entities("a", redact=REDACT)
    assert (found.state, found.tried.what) == ("named", "read, no outcome yet")
    log(store, "a", result(1, "x = 1"), call(2, "patch", path="app.py"), result(2, "done"), at=6.0)
    (found,) = store.entities("a", redact=REDACT)
    assert (found.state, found.handle, found.at, found.times) == ("edited m3, read m2", "m3", 6.0, 2)
    assert not store.faults()


def test_a_call_and_its_outcome_may_come_at_different_times_and_from_different_processes(store, store_url):
    started(store, "a")
    log(store, "a", call(1, "terminal", command="make test"))
    store.entities("a", redact=REDACT)
    if store_url != "memory:":
        other = open_store(store_url)
        log(other, "a", result(1, "exit 1\nerror: no rule"))
        other.close()
    else:
        log(store, "a", result(1, "exit 1\nerror: no rule"))
    assert states(store, "a") == {"make test": ("exit 1: error: no rule", "m2")}


def test_a_branch_knows_what_it_shares_and_what_it_did_itself(store):
    started(store, "a")
    log(store, "a", call(1, "patch", path="app.py"), result(1, "done"))
    store.branch("a", 2, NewSession(id="b", at=3.0))
    log(store, "a", call(2, "terminal", command="rm app.py"), result(2, "done"))
    log(store, "b", call(3, "read_file", path="app.py"), result(3, "x"))
    assert states(store, "a")["app.py"] == ("deleted m3", "m3")
    assert states(store, "b")["app.py"] == ("read m4, edited m1", "m4")
    store.branch("a", 1, NewSession(id="c", at=4.0))
    assert states(store, "c")["app.py"] == ("named", "m1")
    store.delete("a")
    assert states(store, "b")["app.py"] == ("read m4, edited m1", "m4")
    assert not store.faults()


def test_compactions_and_undoing_them_change_nothing(store):
    started(store, "a")
    log(store, "a", call(1, "patch", path="app.py"), result(1, "done"))
    before = states(store, "a")
    compact(store, "a", "a2")
    assert states(store, "a2") == states(store, "a") == before
    log(store, "a2", call(2, "read_file", path="app.py"), result(2, "x"))
    store.undo("a2", 20.0)
    assert states(store, "a")["app.py"] == ("read m4, edited m1", "m4")


def test_messages_that_a_record_takes_out_say_nothing_until_it_is_undone(store):
    """As a rewind does: the log has them, the view neither holds nor summarises them."""
    started(store, "a")
    log(store, "a", call(1, "patch", path="app.py"), result(1, "done"))
    log(store, "a", call(2, "terminal", command="rm app.py"), result(2, "done"))
    tip = store.log_tip("a")
    record = Compaction(tip.id, tip.length, (Handoff(Summary("edited", 1), (0,)), Kept(1)))
    new = NewSession(id="a2", at=10.0)
    store.commit("a", NewCompaction(compaction=record, over=0, receipt={"rewound": 2}, session=new))
    assert states(store, "a2") == {"app.py": ("edited m1", "m1")}
    log(store, "a2", call(3, "read_file", path="app.py"), result(3, "x"))
    assert states(store, "a2") == {"app.py": ("read m6, edited m1", "m6")}
    store.undo("a2", 20.0)
    assert states(store, "a2")["app.py"] == ("read m6, deleted m3", "m6")


def test_it_is_the_same_in_however_many_steps_it_was_found(store, monkeypatch):
    messages = []
    for number in range(40):
        messages += [call(number, "patch", path=f"src/f{number % 7}.py"), result(number, "done")]
    started(store, "whole")
    log(store, "whole", *messages)
    monkeypatch.setattr(entities, "_AT_ONCE", 3)
    at_once = states(store, "whole")
    assert len(at_once) == 7
    started(store, "steps")
    for message in messages:  # the same messages: they are stored once, and looked at once
        log(store, "steps", message)
    assert states(store, "steps") == at_once


def test_messages_of_an_older_version_are_looked_at_anew(store, monkeypatch):
    started(store, "a")
    log(store, "a", call(1, "patch", path="app.py"), result(1, "done"))
    before = states(store, "a")
    with store.database.writing() as do:
        do.run("UPDATE sightings SET name = 'stale'")
    assert set(states(store, "a")) == {"stale"}
    monkeypatch.setattr(entities, "SIGHTINGS_VERSION", 99)
    assert states(store, "a") == before


def test_nothing_stays_behind_when_a_conversation_is_deleted(store):
    started(store, "a")
    log(store, "a", call(1, "patch", path="app.py"), result(1, "done"))
    store.entities("a", redact=REDACT)
    store.delete("a")
    with store.database.reading() as do:
        assert do.rows("SELECT message FROM sightings") == []
        assert do.rows("SELECT message FROM sighted") == []


def test_secrets_are_not_kept(store):
    started(store, "a")
    token = "ghp_x7Kq2LmP9vRt4ZsW8yBn3CdF6gHj1QaE5uTi"
    log(
        store,
        "a",
        call(1, "terminal", command=f"curl -H 'Authorization: token {token}' x.io"),
        result(1, f"token {token}"),
    )
    store.entities("a", redact=REDACT)
    with store.database.reading() as do:
        kept = repr(do.rows("SELECT name, says FROM sightings"))
    assert token not in kept
    assert "[REDACTED]" in kept


def test_the_agent_is_told_by_its_tool(store):
    started(store, "a")
    log(store, "a", call(1, "patch", path="src/app.py"), result(1, "done"), at=5.0)
    told = json.loads(Session.resume(store, "a").handle_tool_call("history_entity", {"name": "app.py"}))
    assert told["found"] == [
        {
            "kind": "file",
            "name": "src/app.py",
            "state": "edited m1",
            "handle": "m1",
            "time": "1970-01-01T00:00:05Z",
            "times": 1,
        }
    ]


FILES = ("a.py", "src/b.py", "c.md")
STEPS = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(FILES), st.sampled_from(["patch", "read_file", "write_file"])),
    st.tuples(st.just("run"), st.sampled_from(FILES), st.sampled_from(["exit 0", "exit 1\nerror: x", None])),
    st.tuples(st.just("branch"), st.integers(0, 30), st.none()),
    st.tuples(st.sampled_from(["compact", "undo", "ask"]), st.none(), st.none()),
)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, min_size=3, max_size=25))
def test_whatever_happens_it_is_the_fold_of_the_log_that_is_asked(steps):
    """In memory: what differs between databases is below, and tested above."""
    held = open_store("memory:")
    started(held, "s0")
    logs, here = {"s0": []}, "s0"
    for number, (what, about, more) in enumerate(steps):
        new = []
        if what == "call":
            new = [call(number, more, path=about), result(number, "done")]
        elif what == "run":
            new = [call(number, "terminal", command=f"rm {about} && make")]
            new += [] if more is None else [result(number, more)]
        elif what == "branch":
            length, name = min(about, len(logs[here])), f"s{number + 1}"
            held.branch(here, length, NewSession(id=name, at=3.0))
            logs[name], here = logs[here][:length], name
        elif what == "compact" and logs[here]:
            name = f"s{number + 1}"
            compact(held, held.tip(here).id, name)
            logs[name], here = logs[here], name
        elif what == "undo":
            held.undo(here, 20.0)
        elif what == "ask":
            held.entities(here, redact=REDACT)
        if new:
            log(held, held.tip(here).id, *new)
            logs[here].extend(new)  # of a compaction, its sessions share the list
    for name, messages in logs.items():
        decoded = [CHAT.decode(parse_json(one.raw)) for one in messages]
        sightings = [
            msgspec.structs.replace(one, number=number, at=2.0)
            for number, message in enumerate(decoded, 1)
            for one in sightings_in(message, REDACT)
        ]
        assert held.entities(name, redact=REDACT) == fold_entities(sightings)
    held.close()


@SHARED
def test_several_may_ask_at_once(store, store_url):
    started(store, "a")
    log(
        store,
        "a",
        *(one for n in range(60) for one in (call(n, "patch", path=f"f{n}.py"), result(n, "done"))),
    )
    found, failed = [], []

    def ask():
        other = open_store(store_url)
        try:
            found.append(states(other, "a"))
        except Exception as error:  # noqa: BLE001 - told by the test
            failed.append(error)
        finally:
            other.close()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(found) == 4
    assert all(one == found[0] and len(one) == 60 for one in found)
