"""Requests that are broken off: the provider may have billed them, so that every sum they are in says "at least"."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from penstock.accounts.display import format_sum
from penstock.accounts.usage import report_usage
from penstock.agent.assembly import AgentPlace, make_agent
from penstock.settings import settings_from
from penstock.stores.store import open_store
from penstock.testing import Reply, ScriptedModel

TALK = "please think about the harbour and its cranes "
LONG = 60.0  # seconds: longer than any of these tests


class Script:
    """Answers at once, but for what it is told to do with the next request for an answer or for a summary."""

    def __init__(self):
        self.summary = Reply(text="## Goal\nTo think about the harbour.")
        self.answer = Reply(text="an answer")
        self.arrived = asyncio.Event()

    def __call__(self, received):
        asks = "Write the handoff now." in json.dumps(received.messages[-1])
        reply = self.summary if asks else self.answer
        if reply.delay_seconds or reply.chunk_delay_seconds:
            self.arrived.set()
        return reply


@pytest.fixture
def script():
    return Script()


@pytest.fixture
def agent(script, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with contextlib.closing(open_store("memory:")) as store:
        place = AgentPlace(folder=tmp_path, store=store, tell=lambda _: None, yes=True)
        model = ScriptedModel(script, name="claude-sonnet-4-5", dialect="anthropic")
        settings = settings_from({"model.context_length": 64_000, "context.economics": "on"})
        made = make_agent(place, model, settings, provider="anthropic")
        made.context.append(
            [{"role": ("user", "assistant")[n % 2], "content": f"{n}: {TALK * 60}"} for n in range(60)]
        )
        yield made


def unreported(agent):
    """Returns how many requests for answers and for summaries reported nothing; sums must say so."""
    found = report_usage(agent.session.store)
    assert (found.total.cost is None) is (found.total.unreported > 0)
    if found.total.unreported:
        assert format_sum(found.total.cost, found.total.known_cost).startswith("at least $")
        assert found.to_dict()["total"]["unreported_requests"] == found.total.unreported
    return found.total.unreported - found.summaries.unreported, found.summaries.unreported


def test_a_summary_that_is_interrupted(agent, script):
    async def talk():
        await agent.turn("hello")
        before = agent.context.bookkeeper.books.bill
        script.summary = Reply(text="too late", delay_seconds=LONG)
        compacting = asyncio.ensure_future(agent.compact())
        await script.arrived.wait()
        compacting.cancel()
        await asyncio.wait([compacting])
        assert agent.context.bookkeeper.books.bill > before  # the rule reckons with it, too

    asyncio.run(talk())
    assert unreported(agent) == (0, 1)


@pytest.mark.parametrize("way", ["the end", "undo"])
def test_a_preparation_that_is_not_wanted_any_more(agent, script, way):
    async def talk():
        await agent.turn("hello")
        script.summary = Reply(text="too late", delay_seconds=LONG)
        agent.context._prepare()
        await script.arrived.wait()
        if way == "undo":
            agent.context.undo()
        await agent.aclose()

    asyncio.run(talk())
    assert unreported(agent) == (0, 1)


def test_an_answer_that_is_interrupted(agent, script):
    async def talk():
        await agent.turn("hello")
        script.answer = Reply(text="an answer that takes long", chunk_delay_seconds=LONG)
        turn = asyncio.ensure_future(agent.turn("and now?"))
        await script.arrived.wait()
        agent.interrupt()
        assert (await turn).reason == "interrupted"

    asyncio.run(talk())
    assert unreported(agent) == (1, 0)


def test_a_connection_that_breaks(agent, script):
    asyncio.run(agent.turn("hello"))
    script.answer = Reply(text="an answer that takes long", cut_after_chunks=1)
    assert asyncio.run(agent.turn("and now?")).reason == "failed"
    assert unreported(agent) == (1, 0)
    script.summary = Reply(text="## Goal", cut_after_chunks=0)
    made = asyncio.run(agent.compact())
    assert made.receipt.outcome == "degraded"
    assert unreported(agent)[1] == 1
    assert made.receipt.cost is None


@pytest.mark.parametrize("refusal", [Reply.rate_limited(), Reply.unauthorised(), Reply.server_error()])
def test_what_a_provider_refuses_it_does_not_bill(agent, script, refusal):
    asyncio.run(agent.turn("hello"))
    script.answer = script.summary = refusal
    assert asyncio.run(agent.turn("and now?")).reason == "failed"
    assert asyncio.run(agent.compact()).receipt.outcome == "degraded"
    assert unreported(agent) == (0, 0)
