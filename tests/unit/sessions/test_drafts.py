"""What is recorded of a compaction, worked out before it is committed."""

from __future__ import annotations

import pytest

import penstock
from penstock.conversation import mark
from penstock.conversation.message import Summary
from penstock.conversation.view import Compaction, Handoff, Kept
from penstock.errors import StoreConflict
from penstock.settings import settings_from

TALK = "please think about the harbour and its cranes, berth 7 and pier 12 "


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
    standing = session.workings.read_view_base(with_pins=True)
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
    standing = session.workings.read_view_base()
    assert session.workings.draft(standing, session.compact(target_tokens=2_000)) is None


def test_only_a_log_has_its_result_hold_what_was_read(store):
    messages = [{"role": ("user", "assistant")[n % 2], "content": TALK * 20} for n in range(30)]
    assert penstock.compress(messages, target_tokens=2_000).transcript is None
    assert talked(store).compact(target_tokens=2_000).transcript is not None


def test_a_message_that_a_handoff_was_merged_into_is_shortened_at_its_own_parts(store):
    """The view shows the handoff as a part of the message; the log, by which parts are numbered, does not have it."""
    session = penstock.Session.create(store, dialect="anthropic", model="claude-sonnet-4-5")
    listing = "\n".join(f"line {n} of the log says value_{n} = {n * 37}" for n in range(400))
    asked = [{"type": "text", "text": "Look at this."}, {"type": "text", "text": listing}]
    call = {"type": "tool_use", "id": "a", "name": "read_file", "input": {"path": "x.py"}}
    session.append(
        [
            {"role": "user", "content": "Begin."},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": asked},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": listing}]},
        ]
    )
    base = session.workings.read_view_base()
    handoff = Handoff(Summary("## Goal\nGo on.", mark.VERSION), (0, 1), None)
    kept = tuple(Kept(position) for position in range(2, 5))
    session.workings.record(base, Compaction(base.tip.id, base.tip.length, (handoff, *kept)), {})
    session.compact(target_tokens=4_000)
    session.compact(target_tokens=3_000)
    texts = [part["text"] for part in session.view()[0]["content"]]
    assert texts[1] == "Look at this."
    assert len(texts) == 3
    assert len(texts[2]) < len(listing) / 2


def test_the_messages_of_a_view_are_gone_through_a_few_times_however_many_they_are(store):
    class Counted(list):
        passes = 0

        def __iter__(self):
            Counted.passes += 1
            return super().__iter__()

    session = penstock.Session.create(store)
    session.append([{"role": ("user", "assistant")[n % 2], "content": f"number {n}"} for n in range(600)])
    standing = session.workings.read_view_base(with_pins=True)
    result = penstock.Session.resume(store, session.id).compact(target_tokens=1_000)
    vars(standing.view)["written"] = Counted(standing.view.messages)
    assert len(session.workings.draft(standing, result).wires) < 300
    assert 0 < Counted.passes < 20
