"""What a call costs follows from its own conversation, not from how many others there are."""

from __future__ import annotations

import pytest
from store_rows import add, commit, filled, new_message

from penstock.stores.sqlite import SqliteTransaction
from penstock.stores.values import NewSession, StoredResult

FEW = {
    "penstock_schema",
    "index_version",
    "vectors_made",
    "removed",
    "blocks",
    "unindexed",
    "waiting",
    "wanted",
    "ranged",
}
"""Tables with few rows, and lists that a statement brings along."""
ONCE = {"SELECT key, fork_length FROM conversations WHERE forked_from = ?", "SELECT name, key FROM notes"}
"""What deleting looks through, once."""


def use_everything(store):
    """What an agent does in every turn, and deleting."""
    store.branch("a3", 4, NewSession(id="c", at=10.0))
    add(store, "c", "six", "seven")
    function = {"name": "history_search", "arguments": "{}"}
    calls = [{"id": "c1", "type": "function", "function": function}]
    for wire in (
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "m1: one"},
    ):
        store.append("c", [new_message(wire)], store.log_tip("c").id, 10.5)
        store.index()
    store.put_result(StoredResult(id="r", session="c", tool="t", text="eight", created=11.0))
    commit(store, "c", "c2", 0)
    for look in (
        store.tip,
        store.log_tip,
        store.ids,
        store.compactions,
        store.newest_compaction,
        store.facts,
        store.pins,
    ):
        look("c2")
    store.compactions("c", undone=True)
    store.find_known_prefix(store.ids("c"))
    store.search("seven", session_id="c2")
    store.search("one six")
    store.usage(session_id="c")
    store.pin("c2", 1)
    store.undo("c2", 12.0)
    store.delete("c")


@pytest.fixture
def plans(monkeypatch):
    """For each statement that is carried out from now on, what SQLite says that it does for it."""
    found = {}

    def watched(kind):
        own = getattr(SqliteTransaction, kind)

        def watch(self, statement, *values):
            given = (values[0] or [None])[0] if kind == "run_many" else values
            if (
                given is not None
                and statement not in found
                and not statement.startswith(("PRAGMA", "CREATE"))
            ):
                rows = self._connection.execute(f"EXPLAIN QUERY PLAN {statement}", tuple(given)).fetchall()
                found[statement] = [row[3] for row in rows]
            return own(self, statement, *values)

        return watch

    for kind in ("rows", "one", "run", "run_many"):
        monkeypatch.setattr(SqliteTransaction, kind, watched(kind))
    return found


def test_no_table_is_read_from_end_to_end(tmp_path, plans):
    store = filled(tmp_path / "s.db")
    store.index()  # all of it, the first time
    plans.clear()
    use_everything(store)
    store.close()
    scanned = {
        (step, statement)
        for statement, steps in plans.items()
        for step in steps
        if step.startswith("SCAN ") and step.split()[1] not in FEW
        if "CONSTANT ROW" not in step and "VALUES CLAUSE" not in step  # what the statement itself brings
        if statement not in ONCE and not statement.endswith(("LIMIT 1", "LIMIT ?"))
    }
    sorted_first = [
        statement
        for statement, steps in plans.items()
        if statement.endswith("LIMIT 1")
        and any(step.startswith("USE TEMP B-TREE FOR ORDER") for step in steps)
    ]
    assert len(plans) > 60
    assert not sorted_first
    assert not scanned, "\n".join(map(str, sorted(scanned)))
