"""What is recorded of a compaction, worked out before it is committed."""

from __future__ import annotations

import pytest

import penstock
from penstock.errors import StoreConflict
from penstock.settings import settings_from

TALK = "please think about the harbour and its cranes, berth 7 and pier 12 "


@pytest.fixture
def store():
    opened = penstock.open_store("memory:")
    yield opened
    opened.close()


def talked(store, engine="compressor"):
    session = penstock.Session.create(store, settings=settings_from({"context.engine": engine}))
    talk = [{"role": ("user", "assistant")[n % 2], "content": f"{n}: {TALK * 20}"} for n in range(30)]
    talk[4] = {"role": "user", "content": f"Never touch the migrations folder. {TALK * 20}"}
    session.append(talk)
    return session


@pytest.mark.parametrize("engine", ["compressor", "lossless"])
@pytest.mark.parametrize("summariser", [None, lambda _prompt: "## Goal\nKnow the harbour.\n"])
def test_the_facts_that_leave_are_kept_whoever_writes_the_handoff(store, engine, summariser):
    session = talked(store, engine)
    session.compact(target_tokens=2_000, summariser=summariser)
    assert any("migrations" in fact.text for fact in store.facts(session.id))


def test_a_draft_is_what_would_be_committed(store):
    session = talked(store)
    standing = session.workings.standing(with_pins=True)
    made = penstock.Session.resume(store, session.id)
    result = made.compact(target_tokens=2_000)
    assert made.undo()
    draft = session.workings.draft(standing, result)
    assert draft.wires == result.messages
    assert not store.compactions(session.id)
    made.compact(target_tokens=1_800)  # somebody else was quicker
    with pytest.raises(StoreConflict):
        session.workings.commit_draft(draft)


def test_nothing_to_do_gives_no_draft(store):
    session = penstock.Session.create(store)
    session.append([{"role": "user", "content": "hello"}])
    standing = session.workings.standing()
    assert session.workings.draft(standing, session.compact(target_tokens=2_000)) is None


def test_only_a_log_has_its_result_hold_what_was_read(store):
    messages = [{"role": ("user", "assistant")[n % 2], "content": TALK * 20} for n in range(30)]
    assert penstock.compress(messages, target_tokens=2_000).transcript is None
    assert talked(store).compact(target_tokens=2_000).transcript is not None
