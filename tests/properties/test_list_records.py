"""A list that an engine made, recorded as a compaction: the stored view is that list, and undoing it gives the log back."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import conversations

from penstock import open_store
from penstock.context.live import Context
from penstock.conversation.view import Handoff
from penstock.engine.contract import ContextEngine
from penstock.errors import EngineFailure
from penstock.sessions.session import Session

NOTE = {"role": "user", "content": "Some messages were left out."}


class Cuts(ContextEngine):
    """Leaves out the messages before a place, and says so."""

    name = "cuts"
    context_length = 100_000
    threshold_tokens = 50_000

    def __init__(self, at):
        self.at = at

    def update_from_response(self, usage):
        """Nothing."""

    def should_compress(self, prompt_tokens=None):
        return True

    def compress(self, messages, current_tokens=None, focus_topic=None):
        self.made = [NOTE, *messages[self.at % len(messages) :]]
        return self.made


@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_stored_view_is_what_the_engine_made_and_can_be_undone(name, data):
    store = open_store("memory:")
    session = Session.create(store, dialect=name)
    session.append(data.draw(conversations(name)))
    context = Context(session, Cuts(data.draw(st.integers(1, 30))), lambda event: None)
    views = [list(context.view)]
    for _ in range(data.draw(st.integers(1, 3))):
        try:
            done = asyncio.run(context.compact("now", context.tokens()))
        except EngineFailure:
            continue
        if done is None:
            assert context.view == views[-1]
            continue
        assert context.view == session.view() == Context(session, context.engine, lambda event: None).view
        assert len(context.view) <= len(views[-1]) + 1
        if name == "chat":
            assert context.view == context.engine.made
        assert context.counted == session.workings.weigh(context.view)
        newest = store.newest_compaction(session.id).compaction
        standing = {piece.position for piece in newest.pieces if not isinstance(piece, Handoff)}
        covered = [place for piece in newest.pieces if isinstance(piece, Handoff) for place in piece.covers]
        assert sorted([*standing, *covered]) == list(
            range(len(session))
        )  # each message stands, or is stood for, once
        views.append(list(context.view))
    for view in reversed(views[:-1]):
        assert context.undo()
        assert context.view == view
    assert not context.undo()
