"""Conversations as data: the list and one of them say the same as the rows they are made of."""

from __future__ import annotations

import random

import pytest
from tests.e2e.cli_process import work

from penstock.accounts.conversations import (
    describe_conversation,
    find_conversation,
    iterate_conversations,
    list_conversations,
    read_handle,
    search_conversations,
    title_conversation,
)
from penstock.accounts.spending import sum_requests
from penstock.accounts.usage import report_insights, report_usage
from penstock.errors import UnknownHandle, UnknownSession
from penstock.measure.usage import Usage
from penstock.recall.ranking import Wish
from penstock.sessions.session import Session
from penstock.stores.store import open_store
from penstock.stores.values import NewSession, UsageRow
from penstock.testing import ScriptedModel


@pytest.fixture
def store(tmp_path):
    opened = open_store(f"sqlite:///{tmp_path / 'sessions.db'}")
    yield opened
    opened.close()


@pytest.fixture
def session(store):
    begun = Session.create(store, model="gpt-4.1")
    begun.append(work())
    return begun


def test_the_list_and_the_requests_give_the_same_sums(store):
    """The list adds up in SQL, since it may be long; one conversation adds up its rows."""
    chance = random.Random(7)
    for number in range(40):
        store.create(NewSession(id=f"s{number}", at=float(number)))
        for at in range(chance.randrange(4)):
            usage = Usage(*(chance.randrange(1_000) for _ in range(6)))
            cost = chance.choice([None, 0.0, 0.25, 1.5])
            row = UsageRow(session=f"s{number}", at=float(at), model="m", task="turn", usage=usage, cost=cost)
            store.book(row)
    for row in iterate_conversations(store):
        total = sum_requests(store.usage(session_id=row.tip.id))
        assert (row.usage, row.cost) == (total.usage, total.cost)
        assert describe_conversation(store, row.tip).spending == total
    everything = report_usage(store).total
    assert everything == sum_requests(store.usage())
    assert report_insights(store, 36_500, 1e9).total == everything


def test_a_compaction_carries_its_decision_and_its_price(store, session):
    model = ScriptedModel(lambda received: "## Active State\n- All parts were read.\n", name="gpt-4.1")
    session.compact(target_tokens=1_500, summariser=model)
    session.record_usage(Usage(100, 20, 900))
    found = describe_conversation(store, session.row)
    (made,) = found.compactions
    assert made.headline.startswith("compressed 63 → ")
    assert (made.decision, made.taken_over_from) == (None, "")
    assert made.totals.model_calls == 1
    assert made.totals.cost == made.receipt["cost"] > 0
    assert made.totals.saved_tokens == made.receipt["tokens_before"] - made.receipt["tokens_after"]
    assert report_usage(store, session.id).compactions == made.totals
    assert [row.kind for row in found.lineage] == ["main", "compression"]
    assert found.view_tokens == made.receipt["tokens_after"]


def test_titles(store, session):
    listed = list_conversations(store)
    assert listed[0].title.startswith("Never touch the migrations folder.")
    assert title_conversation(store, session.id) == listed[0].title
    Session.create(store)
    assert [len(list_conversations(store, with_empty=empty)) for empty in (True, False)] == [2, 1]
    assert len(list_conversations(store, 1)) == 1


def test_a_conversation_is_found_by_the_beginning_of_its_id(store, session):
    assert find_conversation(store, session.id[:6]).id == session.id
    for given in ("", "zzz"):
        with pytest.raises(UnknownSession, match="penstock sessions list"):
            find_conversation(store, given)


def test_a_handle_is_read_in_full(store, session):
    place, text = read_handle(store, session.row, "m1")
    assert (place.handle, place.role) == ("m1", "user")
    assert text == work()[0]["content"]
    with pytest.raises(UnknownHandle):
        read_handle(store, session.row, "m64")


def test_a_search_indexes_first_and_says_how_far_it_is(store, session):
    progress: list[tuple[int, int]] = []
    wish = Wish(hits=2, characters=200)
    found = search_conversations(store, "migrations", wish, on_indexed=lambda *one: progress.append(one))
    assert progress[-1] == (len(work()), 0)
    assert found.to_dicts()[0]["title"].startswith("Never touch")
    progress.clear()
    again = search_conversations(store, "migrations", wish, on_indexed=lambda *one: progress.append(one))
    assert (again, progress) == (found, [])
