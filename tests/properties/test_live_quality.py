"""What the turns after compactions tell of them, on random conversations: counts that add up, kept or counted again."""

from __future__ import annotations

from contextlib import suppress

import pytest
from compaction_claims import NAMES, claim
from hypothesis import event, given
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations
from tests.strategies.long_sessions import long_conversations

from penstock import open_store
from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Role
from penstock.conversation.wire import parse_json
from penstock.errors import TargetTooSmall
from penstock.sessions import quality
from penstock.sessions.quality import find_uses, hear_messages, measure_qualities
from penstock.sessions.session import Session


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
