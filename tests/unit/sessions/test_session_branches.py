"""A branch begins with the view that its conversation has there, and goes its own way."""

from __future__ import annotations

import json
import re

import pytest
from tests.unit.sessions.test_session import talk

from penstock.errors import StoreError, UnknownDialect, UnknownSession
from penstock.sessions.branches import TAKEN_OVER
from penstock.sessions.session import Session
from penstock.settings import settings_from
from penstock.stores.store import open_store


@pytest.fixture(params=["memory:", "postgresql"])
def store(request):
    opened = open_store(
        request.getfixturevalue("postgres_url") if request.param == "postgresql" else request.param
    )
    yield opened
    opened.close()


@pytest.fixture
def session(store):
    made = Session.create(store, model="gpt-4.1", title="parts")
    made.append(talk(12))
    made.pin("m7")
    made.compact(target_tokens=2_000)
    made.append(talk(3, first=12))
    return made


def test_it_has_the_view_that_was_there(session, store):
    branch = session.branch(title="another way")
    assert branch.view() == session.view()
    assert store.facts(branch.id)
    assert [fact.text for fact in store.facts(branch.id)] == [fact.text for fact in store.facts(session.id)]
    assert store.pins(branch.id) == store.pins(session.id) == {6}
    assert branch.row.title == "another way"
    assert Session.resume(store, branch.row.conversation).id == branch.id
    assert store.faults() == []


def test_each_goes_its_own_way(session):
    before = session.view()
    branch = session.branch()
    branch.append([{"role": "user", "content": "Elsewhere."}])
    branch.compact(target_tokens=1_500)
    assert session.view() == before
    assert branch.undo()
    assert branch.view() == [*before, {"role": "user", "content": "Elsewhere."}]
    assert branch.undo()
    assert len(branch.view()) == 61
    assert not branch.undo()
    assert session.view() == before


def test_before_the_compaction_it_has_the_messages(session, store):
    branch = session.branch("m20")
    assert branch.view() == talk(5)
    assert (store.compactions(branch.id), store.pins(branch.id)) == ([], {6})
    assert session.branch("m6").view() == talk(2)[:6]
    assert store.pins(session.branch("m6").id) == frozenset()


def test_of_two_compactions_the_last_that_lies_within_is_taken_over(session, store):
    first = session.view()
    session.compact(target_tokens=1_600)
    branch = session.branch("m60")
    assert branch.view() == session.view()
    session.append(talk(1, first=15))
    assert session.branch("m59").view() == first[:-1]


def test_it_is_told_that_nothing_was_paid_for_twice(session, store):
    branch = session.branch()
    (taken,) = store.compactions(branch.id)
    assert taken.receipt[TAKEN_OVER] == session.id
    assert taken.receipt["tokens_after"] == store.compactions(session.id)[0].receipt["tokens_after"]


def test_one_that_was_taken_back_is_not_taken_over(session):
    session.undo()
    assert len(session.branch().view()) == 60


def test_a_branch_of_a_branch(session, store):
    branch = session.branch()
    branch.append([{"role": "user", "content": "Elsewhere."}])
    again = branch.branch()
    assert again.view() == branch.view()
    store.delete(session.id)
    assert again.view() == branch.view()
    assert store.faults() == []


def test_its_nodes_can_be_opened(store):
    outlines = settings_from({"context.engine": "lossless"})
    session = Session.create(store, settings=outlines)
    session.append(talk(40))
    session.compact(target_tokens=3_000)
    branch = session.branch()
    assert branch.original("n1") == session.original("n1")
    assert "[m3 tool]\ndef handle_0_0(event)" in branch.original("n1")


@pytest.mark.outside  # takes long
def test_its_nodes_lead_to_its_messages_where_the_other_one_is_deleted(store):
    session = Session.create(store, settings=settings_from({"context.engine": "lossless"}))
    session.append(talk(40))
    session.compact(target_tokens=3_000)
    branch = session.branch()
    store.delete(session.id)
    shown = {int(name[1:]) for name in re.findall(r"\bn\d+", json.dumps(branch.view()))}
    reached = {handle for node in shown for handle in branch.history.describe(f"n{node}").inside}
    standing = {
        f"m{place + 1}" for place in branch.workings.read_view_base().view.positions if place is not None
    }
    assert reached | standing >= {f"m{number}" for number in range(1, 161)}
    assert "def handle_0_0(event)" in branch.original(f"n{min(shown)}")


def test_a_sub_agent_works_for_a_conversation_and_goes_with_it(session, store):
    worker = session.sub_agent(title="look it up", dialect="anthropic", model="claude-haiku-4-5")
    worker.append([{"role": "user", "content": "Look it up."}])
    assert (worker.row.kind, worker.row.parent, worker.row.dialect) == ("subagent", session.id, "anthropic")
    assert worker.view() == [{"role": "user", "content": "Look it up."}]
    assert [row.id for row in store.list()] == [session.row.conversation]
    assert store.tip(session.id).id == session.id
    assert Session.resume(store, worker.id).view() == worker.view()
    assert session.sub_agent().row.model == "gpt-4.1"
    store.delete(session.id)
    with pytest.raises(UnknownSession):
        store.session(worker.id)
    with pytest.raises(UnknownDialect):
        Session.create(store).sub_agent(dialect="none")


def test_no_branch_beyond_the_log(session):
    with pytest.raises(StoreError, match="999"):
        session.branch("m999")
