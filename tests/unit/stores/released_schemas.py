"""Stores as released versions wrote them, row by row, so that every way forward can be tested.

`python tests/unit/stores/released_schemas.py` writes the store of the present version to `released/schema_N.json`. It is
run once for a version of the schema, when that is released; a file that is there is never written again.
"""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import structs
from store_rows import commit, new_message

from penstock.measure.usage import Usage
from penstock.stores import schema
from penstock.stores.store import open_store
from penstock.stores.values import SUBAGENT, NewFact, NewSession, StoredResult, UsageRow

__all__ = ["RELEASED", "restored", "snapshot"]

RELEASED = Path(__file__).parent / "released"
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' AND name NOT LIKE 'sqlite_%'"

_MADE_ANEW = ("penstock_schema", "blocks", "postings", "removed", "indexed", "unindexed", "index_version")


def filled():
    """A bit of everything: continuations, an undone compaction, branches of branches, a sub-agent, what goes with them."""
    store = open_store("memory:")
    store.create(NewSession(id="work", at=1.0, model="gpt-4.1", title="Work"))
    say(
        store,
        "work",
        *(f"message {n}. " + "Long enough to be packed. " * (n % 3 * 20) for n in range(8)),
        at=2.0,
    )
    first = commit(store, "work", "work-2", 0)
    say(store, "work-2", "after the first", at=6.0)
    commit(store, "work-2", "work-3", first.key)
    store.undo("work-3", 11.0)
    commit(store, "work-3", "work-4", first.key, [NewFact(position=1, kind="constraint", text="never")])
    store.pin("work-4", 2)
    store.put_result(
        StoredResult(id="large", session="work-2", tool="read_file", text="line\n" * 500, created=6.0)
    )
    for at, cost in ((3.0, 0.25), (4.0, None)):
        store.book(
            UsageRow(session="work", at=at, model="gpt-4.1", task="turn", usage=Usage(5, 6), cost=cost)
        )
    store.put_note("window", "gpt-4.1", b"1000000")
    store.branch("work", 5, NewSession(id="branch", at=20.0))
    say(store, "branch", "another way", at=20.5)
    store.branch("branch", 3, NewSession(id="twig", at=21.0))
    say(store, "twig", "yet another", "and on", at=21.5)
    store.branch("work", 0, NewSession(id="helper", at=22.0, kind=SUBAGENT))
    say(store, "helper", "look it up", at=22.5)
    store.create(NewSession(id="empty", at=30.0, dialect="anthropic"))
    return store


def say(store, session, *texts, at):
    tip = store.log_tip(session)
    new = [
        structs.replace(
            new_message({"role": "assistant" if n % 2 else "user", "content": text}), tokens=len(text)
        )
        for n, text in enumerate(texts, tip.length)
    ]
    store.append(session, new, tip.id, at)


def snapshot(store):
    """Every table of a SQLite store: its columns, and its rows with bytes as hexadecimal. A search index is made anew."""
    tables = {}
    with store.database.reading() as do:
        for (name,) in do.rows(_TABLES):
            columns = [row[1] for row in do.rows(f"PRAGMA table_info({name})")]
            rows = do.rows(f"SELECT {', '.join(columns)} FROM {name}")
            tables[name] = {"columns": columns, "rows": [[_plain(value) for value in row] for row in rows]}
    return {name: table for name, table in tables.items() if not name.startswith(_MADE_ANEW)}


def restored(url, version, tables, monkeypatch):
    """Make the store of that version at an address."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", schema.STEPS[:version])
        store = open_store(url)
    with store.database.writing() as do:
        for name, table in tables.items():
            columns, marks = ", ".join(table["columns"]), ", ".join("?" * len(table["columns"]))
            with_key = url.startswith("postgresql:") and table["columns"][0] == "key" and table["rows"]
            for row in table["rows"]:
                do.run(
                    f"INSERT INTO {name} ({columns}) {'OVERRIDING SYSTEM VALUE' if with_key else ''} VALUES ({marks})",
                    *map(_value, row),
                )
            if with_key:
                do.one(
                    f"SELECT setval(pg_get_serial_sequence('{name}', 'key'), (SELECT max(key) FROM {name}))"
                )
    store.close()


def _plain(value):
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _value(value):
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


if __name__ == "__main__":
    path = RELEASED / f"schema_{len(schema.STEPS)}.json"
    if path.exists():
        raise SystemExit(f"{path} is there already: what was released does not change")
    path.parent.mkdir(exist_ok=True)
    store = filled()
    text = json.dumps(snapshot(store), ensure_ascii=False).replace("], [", "],\n[").replace("}, ", "},\n")
    path.write_text(text + "\n", encoding="utf-8")
    store.close()
