"""What a summariser learned and noted, found again by the next process."""

from __future__ import annotations

import asyncio

import pytest
from client_talk import model_of
from summary_cases import ONCE, is_notes, notes, planted

from penstock.engine.compressor import ContextCompressor
from penstock.engine.summariser import Summariser
from penstock.sessions.session import Session
from penstock.stores.store import open_store
from penstock.stores.values import NewSession
from penstock.testing.provider_server import ScriptedProvider
from penstock.testing.scripted import Reply

UNLISTED = {"models": ("another-model",)}


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/s.db"


def twice(url, script, **served):
    """Two processes, one after the other: each opens the store, compacts its only conversation, and is gone.

    The receipt of each, with the requests that it made.
    """
    store = open_store(url)
    Session.create(store).append(planted("chat").wires)
    store.close()

    async def run():
        runs = []
        async with ScriptedProvider(script, **served) as server:
            for _ in range(2):
                before = len(server.received)
                async with model_of(server, "openai", policy=ONCE) as model:
                    store = open_store(url)
                    session = Session.resume(store, store.list()[0].id)
                    result = await session.acompact(target_tokens=2_000, summariser=Summariser(model))
                    session.undo()
                    store.close()
                runs.append((result.receipt, server.received[before:]))
        return runs

    return asyncio.run(run())


def test_notes_on_parts_are_not_asked_for_twice(url):
    handoffs = []

    def fails_first(received):
        if is_notes(received):
            return notes(received)
        handoffs.append(received)
        return Reply.server_error() if len(handoffs) == 1 else notes(received)

    (first, asked), (second, asked_again) = twice(url, fails_first, window_tokens=8_192)
    assert first.outcome == "degraded"
    assert sum(map(is_notes, asked)) >= 3
    assert second.outcome == "compacted"
    assert [is_notes(one) for one in asked_again] == [False]


def test_a_window_that_an_error_stated_is_known_from_the_start(url):
    (_, asked), (second, asked_again) = twice(url, notes, window_tokens=7_000, **UNLISTED)
    assert [one.prompt_tokens > 7_000 for one in asked].count(True) == 1
    assert second.outcome == "compacted"
    assert not any(one.prompt_tokens > 7_000 for one in asked_again)


def test_an_engine_with_a_store_finds_notes_of_a_session_that_it_knows(url):
    store = open_store(url)
    store.create(NewSession(id="known", at=1.0))
    wires = planted("chat").wires
    for session_id, kept in (("unknown", 0), ("known", 1)):

        async def run(session_id=session_id):
            async with (
                ScriptedProvider(notes, window_tokens=8_192) as server,
                model_of(server, "openai", policy=ONCE) as model,
            ):
                engine = ContextCompressor(summariser=Summariser(model), store=store)
                engine.on_session_start(session_id)
                await asyncio.to_thread(engine.compact, wires, target_tokens=2_000)

        asyncio.run(run())
        assert bool([row for row in _notes(store) if row[0] == "segments"]) == bool(kept)
    store.delete("known")
    assert not [row for row in _notes(store) if row[0] == "segments"]
    store.close()


def _notes(store):
    with store.database.reading() as do:
        return [(row[0], row[1], bytes(row[2])) for row in do.rows("SELECT name, key, value FROM notes")]
