"""What every store keeps beside messages: results that stand outside of them, times, tokens, what requests used."""

from __future__ import annotations

import math

import pytest
from msgspec import structs
from store_talk import append, compact, message, messages, started

from penstock.errors import StoreError, UnknownSession
from penstock.measure.usage import Usage
from penstock.stores.values import SUBAGENT, NewSession, StoredResult, UsageRow


def result(result_id, session="a", text="all of it"):
    return StoredResult(id=result_id, session=session, tool="terminal", text=text, created=1.0)


def say(store, session, *new, at=2.0):
    return store.append(session, new, store.log_tip(session).id, at)


def previewed(text, *results):
    return structs.replace(message(text), results=results)


class TestTimes:
    def test_a_message_keeps_its_own_time(self, store):
        started(store, "a")
        one, two, three = messages("one", "two", "three")
        say(store, "a", structs.replace(one, at=-5.25), two, structs.replace(three, at=77.5), at=9.0)
        assert [entry.created for entry in store.read_from("a", 0)] == [-5.25, 9.0, 77.5]
        assert store.list()[0].updated == 9.0

    @pytest.mark.parametrize("at", [math.nan, math.inf])
    def test_what_is_no_time_is_refused(self, store, at):
        started(store, "a")
        with pytest.raises(StoreError, match="not a point in time"):
            say(store, "a", message("one"), structs.replace(message("two"), at=at))
        assert store.log_tip("a").length == 0


class TestTokens:
    def test_a_log_and_its_view_have_tokens(self, store):
        started(store, "a")
        append(store, "a", "one" * 40, "two" * 80)
        whole = sum(entry.tokens for entry in store.read_from("a", 0))
        (row,) = store.list()
        assert (row.tokens, row.view_tokens) == (whole, whole)
        compact(store, "a", "a2", receipt={"tokens_after": 10})
        append(store, "a2", "three" * 20)
        last = store.read_from("a", 2)[0].tokens
        (row,) = store.list()
        assert (row.tokens, row.view_tokens) == (whole + last, 10 + last)
        store.undo("a", 20.0)
        assert store.list()[0].view_tokens == whole + last

    def test_a_branch_counts_what_it_shares_also_when_its_source_is_gone(self, store):
        started(store, "a", at=1.0)
        append(store, "a", *(f"{'word ' * 10 * n}" for n in range(1, 6)))
        store.branch("a", 3, NewSession(id="b", at=2.0))
        append(store, "b", "own " * 30, at=3.0)
        store.branch("b", 2, NewSession(id="c", at=4.0))
        for name in ("b", "c"):
            (row,) = [row for row in store.list() if row.id == name]
            assert row.tokens == sum(entry.tokens for entry in store.read_from(name, 0)) > 0
        store.delete("a")
        store.delete("b")
        (row,) = store.list()
        assert row.tokens == sum(entry.tokens for entry in store.read_from("c", 0)) > 0
        assert not store.faults()


class TestResults:
    def test_a_result_goes_with_its_conversation(self, store):
        started(store, "a")
        store.put_result(result("r1"))
        store.put_result(result("r2"))
        say(store, "a", previewed("beginning of r1", "r1"))
        store.delete("a")
        assert store.result("r1") is None
        assert store.result("r2") is None

    def test_a_branch_keeps_the_results_of_the_messages_that_it_shares(self, store):
        started(store, "a")
        for name in ("r1", "r2", "r3"):
            store.put_result(result(name, text=name * 500))
        say(store, "a", previewed("one", "r1"), previewed("two", "r2"))
        store.branch("a", 1, NewSession(id="b", at=3.0))
        store.branch("a", 1, NewSession(id="c", at=4.0))
        store.delete("a")
        assert store.result("r1").text == "r1" * 500
        assert (store.result("r2"), store.result("r3")) == (None, None)
        assert not store.faults()
        store.delete("b")
        assert store.result("r1").session == "c"
        assert not store.faults()
        store.delete("c")
        assert store.result("r1") is None
        assert not store.faults()

    def test_a_result_of_another_conversation_is_not_taken_over(self, store):
        started(store, "a")
        started(store, "b")
        store.put_result(result("r1", "a"))
        say(store, "b", previewed("not mine", "r1", "no such", "a\0b"))
        store.delete("b")
        assert store.result("r1") is not None
        store.delete("a")
        assert store.result("r1") is None

    def test_results_of_sub_agents_go_with_them(self, store):
        started(store, "a")
        say(store, "a", message("one"))
        store.branch("a", 0, NewSession(id="helper", at=2.0, kind=SUBAGENT))
        store.put_result(result("r1", "helper"))
        say(store, "helper", previewed("two", "r1"))
        store.delete("a")
        assert store.result("r1") is None
        assert not store.faults()


class TestUsage:
    def rows(self, session, count=3):
        return [
            UsageRow(session=session, at=float(n), model=f"m{n}", task="turn", usage=Usage(n, 1), cost=n / 4)
            for n in range(count)
        ]

    def test_many_are_booked_together(self, store):
        started(store, "a")
        started(store, "b")
        rows = [*self.rows("a"), *self.rows("b")]
        store.book_all(rows)
        assert sorted(store.usage(), key=lambda row: (row.session, row.at)) == rows
        store.book_all([])
        assert store.usage(session_id="b") == self.rows("b")

    def test_all_or_none(self, store):
        started(store, "a")
        with pytest.raises(UnknownSession):
            store.book_all([*self.rows("a"), *self.rows("nobody")])
        with pytest.raises(StoreError):
            store.book_all([*self.rows("a"), structs.replace(self.rows("a")[0], at=math.nan)])
        for cost in (math.nan, math.inf):  # SQLite would make the one NULL, PostgreSQL keep both
            with pytest.raises(StoreError, match="is not a cost"):
                store.book_all([*self.rows("a"), structs.replace(self.rows("a")[0], cost=cost)])
        assert list(store.usage()) == []
