"""Whatever is done to them, and in whatever order: the three stores look the same, and nothing is wrong with them."""

from __future__ import annotations

import itertools
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_talk import compact, message, started

from penstock.errors import StoreError
from penstock.measure.usage import Usage
from penstock.stores.store import open_store
from penstock.stores.values import SUBAGENT, NewSession, StoredResult, UsageRow

MORE = float(os.environ.get("PENSTOCK_EXAMPLES", "1")) > 1  # tests/conftest.py
SMALL = st.integers(0, 5)
TEXTS = st.sampled_from(["one", "two", "zwei", "三", "nul \0", "lone \udc00", "x" * 2_000])
STEPS = st.one_of(
    st.tuples(st.just("start"), SMALL),
    st.tuples(st.just("append"), SMALL, st.lists(TEXTS, max_size=3)),
    st.tuples(st.just("append again"), SMALL, st.lists(TEXTS, min_size=1, max_size=2)),
    st.tuples(st.just("branch"), SMALL, SMALL, st.sampled_from(["branch", SUBAGENT])),
    st.tuples(st.just("compact"), SMALL, st.sampled_from(["newest", "bare", "first"])),
    st.tuples(st.just("undo"), SMALL),
    st.tuples(st.just("pin"), SMALL, SMALL, st.booleans()),
    st.tuples(st.just("end"), SMALL, TEXTS),
    st.tuples(st.just("update"), SMALL, TEXTS),
    st.tuples(st.just("result"), SMALL, SMALL, TEXTS),
    st.tuples(st.just("book"), SMALL, SMALL),
    st.tuples(st.just("delete"), SMALL),
)


class Player:
    """Does the same steps to a store as others do to theirs; sessions are named by when they were opened."""

    def __init__(self, store):
        self.store = store
        self.sessions = []
        self.clock = 0.0

    def play(self, step):
        """What came of it, in words that do not depend on the store."""
        self.clock += 1.0
        if not self.sessions and step[0] != "start":
            return None
        name = self.sessions[step[1] % len(self.sessions)] if self.sessions else ""
        try:
            return getattr(self, step[0].replace(" ", "_"))(name, *step[2:])
        except StoreError as error:
            return type(error).__name__

    def opened(self):
        self.sessions.append(f"s{int(self.clock)}")
        return self.sessions[-1]

    def start(self, _name):
        return started(self.store, self.opened(), self.clock)

    def append(self, name, texts):
        new = [message(text) for text in texts]
        return self.store.append(name, new, self.store.log_tip(name).id, self.clock)

    def append_again(self, name, texts):
        return self.store.append(name, [message(text) for text in texts], "", self.clock)

    def branch(self, name, length, kind):
        return self.store.branch(name, length, NewSession(id=self.opened(), at=self.clock, kind=kind))

    def compact(self, name, over):
        rows = self.store.compactions(name)
        keys = {"bare": 0, "newest": rows[-1].key if rows else 0, "first": rows[0].key if rows else 0}
        row = compact(
            self.store, name, self.opened(), over=keys[over], at=self.clock, kept=(0,) if rows else ()
        )
        return row.session

    def undo(self, name):
        taken = self.store.undo(name, self.clock)
        return taken and taken.session

    def pin(self, name, position, pinned):
        self.store.pin(name, position, pinned=pinned)

    def end(self, name, reason):
        self.store.end(name, reason, self.clock)

    def update(self, name, title):
        self.store.update(name, title=title, model=title[:3])

    def result(self, name, number, text):
        self.store.put_result(
            StoredResult(id=f"r{number}", session=name, tool="t", text=text, created=self.clock)
        )

    def book(self, name, tokens):
        cost = tokens / 4 if tokens else None
        row = UsageRow(session=name, at=self.clock, model="m", task="t", usage=Usage(tokens), cost=cost)
        self.store.book(row)

    def delete(self, name):
        return self.store.delete(name)

    def seen(self):
        """All that can be seen of the store, without its own keys."""
        known = []
        for name in self.sessions:
            try:
                known.append(self.seen_of(name))
            except StoreError as error:
                known.append((name, type(error).__name__))
        results = [self.store.result(f"r{number}") for number in range(6)]
        return known, list(self.store.list()), results, list(self.store.usage())

    def seen_of(self, name):
        store = self.store
        rows = store.compactions(name, undone=True)
        sessions = {row.key: row.session for row in rows} | {0: ""}
        newest = store.newest_compaction(name)
        return (
            store.session(name),
            store.tip(name),
            list(store.list_children(name)),
            list(store.read_from(name, 0)),
            list(store.ids(name)) == [entry.id for entry in store.read_from(name, 0)],
            store.log_tip(name),
            [(sessions[row.over], row.session, row.compaction, row.undone, row.created) for row in rows],
            newest and newest.session,
            store.pins(name),
        )

    def clear(self):
        for row in itertools.chain.from_iterable(iter(self.store.list, [])):
            self.store.delete(row.id)


@pytest.fixture(scope="module")
def stores(tmp_path_factory, postgres_server):
    import psycopg

    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS sequences")
    opened = [
        open_store("memory:"),
        open_store(f"sqlite:///{tmp_path_factory.mktemp('stores')}/sessions.db"),
        open_store(f"{postgres_server.get_uri()}&options=-csearch_path%3Dsequences"),
    ]
    yield opened
    for store in opened:
        store.close()


@settings(
    max_examples=30,
    deadline=None,
    derandomize=not MORE,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=4, max_size=20))
def test_the_same_steps_lead_to_the_same_state(stores, steps):
    players = [Player(store) for store in stores]
    try:
        for step in steps:
            first, *others = [player.play(step) for player in players]
            assert all(other == first for other in others), step
        first, *others = [player.seen() for player in players]
        assert all(other == first for other in others)
        assert not any(store.faults() for store in stores)
    finally:
        for player in players:
            player.clear()
    assert not any(store.faults() for store in stores)
