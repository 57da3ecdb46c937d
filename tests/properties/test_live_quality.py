"""What the turns after compactions tell of them, on random conversations: counts that add up, kept or counted again."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from compaction_claims import NAMES, claim, is_quoted, quotable
from hypothesis import event, given
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations
from tests.strategies.long_sessions import long_conversations

from penstock import open_store
from penstock.context.compactions import make_compaction
from penstock.context.engine_adapter import EngineAdapter
from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Role
from penstock.conversation.rules import check
from penstock.conversation.view import Handoff
from penstock.conversation.wire import parse_json
from penstock.engine.contract import CompactionWish
from penstock.engine.registry import engine_named
from penstock.errors import TargetTooSmall
from penstock.sessions import quality
from penstock.sessions.completing import find_lacking
from penstock.sessions.quality import find_uses, hear_messages, measure_qualities
from penstock.sessions.session import Session
from penstock.writing.handoff import join_context, split_context

pytestmark = pytest.mark.sampled(4)  # each of its cases is long


@pytest.mark.parametrize("name", NAMES)
@claim(10)
@given(data=st.data())
def test_counts_add_up_and_never_exceed_what_was_said(name, data):
    store = open_store("memory:")
    session = Session.create(store, dialect=name)
    stretches = st.one_of(long_conversations(name), broken_conversations(name))
    session.append(data.draw(long_conversations(name)))
    for _ in range(data.draw(st.integers(1, 3))):
        with suppress(TargetTooSmall):
            session.compact(target_tokens=data.draw(st.integers(200, 4_000)))
        session.append(data.draw(stretches))
        measure_qualities(store, session.id)  # what is settled is kept
        if data.draw(st.integers(0, 3)) == 0:
            session.undo()
    found = measure_qualities(store, session.id)
    rows = store.compactions(session.id, undone=True)
    messages = decode_all(DIALECTS[name], [parse_json(one.raw) for one in store.read_from(session.id, 0)])
    spoken = list(hear_messages(messages))
    for row, one in zip(rows, found.values(), strict=True):
        later = range(row.compaction.length, len(messages))
        used = {values for place in later for values in find_uses(spoken[place])}
        assert 0 <= one.in_handoff <= one.in_view <= one.used <= len(used)
        assert one.answers <= sum(messages[place].role is Role.ASSISTANT for place in later)
        assert one.answers <= quality._ANSWERS
        assert min(one.to_dict().values()) >= 0
        event(f"used: {one.used > 0}, lost: {one.used > one.in_view}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality, "_read_kept", lambda *_: None)
        assert measure_qualities(store, session.id) == found
    store.close()


@pytest.mark.parametrize("name", NAMES)
@claim(8)
@given(data=st.data())
def test_a_completed_draft_keeps_to_its_target_and_to_the_rules(name, data):
    store = open_store("memory:")
    session = Session.create(store, dialect=name)
    session.append(data.draw(long_conversations(name)))
    adapter = EngineAdapter(engine_named(data.draw(st.sampled_from(["compressor", "lossless"]))), name)
    wish = CompactionWish(target_tokens=data.draw(st.integers(300, 4_000)))
    try:
        made = asyncio.run(make_compaction(session, adapter, wish, session.estimate()))
    except TargetTooSmall:
        return
    if made.draft is None:
        return
    lacking = sorted(find_lacking(made.draft))
    missed = data.draw(st.lists(st.sampled_from(lacking), max_size=12, unique=True)) if lacking else []
    target = made.view_tokens + data.draw(st.integers(0, 300))
    done = session.workings.complete_draft(made.draft, missed, target)
    event(f"put in: {done is not None}")
    texts = [one.summary.text for one in made.draft.compaction.pieces if isinstance(one, Handoff)]
    assert [join_context(*split_context(text)) for text in texts] == texts
    if done is None:
        return
    assert session.workings.weigh(done.draft.wires) == done.view_tokens <= target
    assert 0 < done.facts_added <= len(missed)
    dialect = DIALECTS[name]
    before, after = (decode_all(dialect, draft.wires) for draft in (made.draft, done.draft))
    assert [message.role for message in before] == [message.role for message in after]
    assert {one.rule for one in check(after, dialect.rules)} <= {
        one.rule for one in check(before, dialect.rules)
    }
    session.workings.commit_draft(done.draft)
    assert session.view() == [message.wire for message in session.workings.read_view_base().view.mend()]
    wires = [parse_json(one.raw) for one in store.read_from(session.id, 0)]
    for entry in set(excerpts_in(done.draft)) - set(excerpts_in(made.draft)):
        for line in filter(None, entry.text.split("\n")):  # pieces of a run without a space are lines, too
            assert is_quoted(line, quotable(name, wires[entry.number - 1]))
    store.close()


def excerpts_in(draft):
    handoffs = [piece for piece in draft.compaction.pieces if isinstance(piece, Handoff)]
    return [entry for one in handoffs for entry in split_context(one.summary.text)[1]]
