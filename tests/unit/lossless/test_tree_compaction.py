"""An engine with a store and a stored session compact with the same tree to the same list."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.compress import CompressRequest, new_notebook
from penstock.engine.summariser import summariser_of
from penstock.lossless.engine import LosslessEngine, SessionNodes
from penstock.sessions.session import Session
from penstock.settings import Settings
from penstock.stores.store import open_store
from penstock.testing.engine_contract import long_conversation


def notes(prompt):
    return "## Goal\n- Keep the ledger in order (m2).\n## Active State\n- All tests pass.\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", [None, notes], ids=["without a model", "with a model"])
@settings(max_examples=6, deadline=None)
@given(rounds=st.lists(st.integers(8, 30), min_size=1, max_size=3), target=st.integers(1_500, 6_000))
def test_engine_and_session_agree(model, rounds, target):
    store = open_store("memory:")
    session = Session.create(store, dialect="chat")
    nodes, book = SessionNodes(store, session.id), new_notebook(None, Settings())
    engine = LosslessEngine(recall_tools=False, summariser=model)
    ours, theirs = [], []
    for turns in rounds:
        more = long_conversation(turns)[1 if ours else 0 :]
        ours, theirs = ours + more, theirs + more
        request = CompressRequest(target_tokens=target)
        writer = None if model is None else summariser_of(model)
        by_session = asyncio.run(nodes.compact(ours, request, book, writer))
        by_engine = engine._prepare(theirs, target_tokens=target)
        assert by_session.messages == by_engine.messages
        ours, theirs = by_session.messages, by_engine.messages
    store.close()
