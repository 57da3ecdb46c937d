"""Compacting beside an event loop: a session is as it was where the work was not wanted any more."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.sessions.test_session import talk

from penstock.errors import TargetTooSmall
from penstock.sessions.session import Session
from penstock.settings import settings_from
from penstock.testing import ScriptedModel
from penstock.testing.scripted import Reply

PROSE = "## Active State\n- All parts were looked at.\n"


@pytest.fixture(params=["compressor", "lossless"])
def session(store, request):
    made = Session.create(store, settings=settings_from({"context.engine": request.param}))
    made.append(talk(30))
    return made


def test_what_is_cancelled_commits_nothing_later_either(session, store):
    before = session.view()

    async def cancelled():
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def reply(received):
            loop.call_soon_threadsafe(asked.set)
            return Reply(PROSE, delay_seconds=0.1)

        slow = ScriptedModel(reply)
        work = asyncio.ensure_future(session.acompact(target_tokens=4_000, summariser=slow))
        await asyncio.wait_for(asked.wait(), 10)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await asyncio.sleep(0.2)

    asyncio.run(cancelled())
    assert store.compactions(session.id) == []
    assert session.view() == before
    assert session.compact(target_tokens=4_000).receipt.outcome == "compacted"


def test_the_loop_goes_on_meanwhile(session):
    async def both():
        work = asyncio.ensure_future(session.acompact(target_tokens=4_000))
        steps = 0
        while not work.done():
            steps += 1
            await asyncio.sleep(0)
        return steps, await work

    steps, result = asyncio.run(both())
    assert steps > 1
    assert session.view() == result.messages


def test_from_sync_code_inside_a_loop(session):
    async def host():
        return session.compact(target_tokens=4_000, summariser=ScriptedModel(lambda received: PROSE))

    assert asyncio.run(host()).receipt.model_calls > 0


def test_what_fails_changes_nothing(session, store):
    with pytest.raises(TargetTooSmall):
        asyncio.run(session.acompact(target_tokens=1))
    assert store.compactions(session.id) == []
