"""The window of a model, as its provider lists it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from penstock.agent.assembly import AgentPlace, make_agent
from penstock.loop.agent import TurnLimits
from penstock.loop.events import Asked
from penstock.providers.connect import connect
from penstock.settings import settings_from
from penstock.testing import ScriptedModel, ScriptedProvider

pytestmark = pytest.mark.outside


def windows(store, folder, turns, *, name="gpt-4.1", values=None, **options):
    """The windows that requests were made for, after so many turns, and where the last one came from."""
    asked = []

    def tell(event):
        if isinstance(event, Asked):
            asked.append(event.window_tokens)

    async def play():
        async with ScriptedProvider(["Yes."], repeat_last=True, **options) as server:
            model = connect("openai", name, base_url=f"{server.base_url}/v1")
            async with model:
                agent = make_agent(
                    AgentPlace(folder=folder, store=store, tell=tell, yes=True),
                    model,
                    settings_from(values or {}),
                )
                for _ in range(turns):
                    assert (await agent.turn("hello")).reason == "done"
                books = agent.context.bookkeeper.books
                await agent.aclose()
                assert server.violations == ()
                return agent.session.window.source, books

    source, books = asyncio.run(play())
    return asked, source, books


def test_a_server_that_says_how_large_its_window_is_is_believed_before_the_first_request(store, tmp_path):
    listed = {"models": ("gpt-4.1",), "window_tokens": 24_000}
    asked, source, books = windows(store, tmp_path, 2, **listed)
    assert (asked, source) == ([24_000, 24_000], "listing")
    assert books.limit_tokens < 24_000  # the threshold of the window that is known now


def test_a_server_that_does_not_say_leaves_our_table(store, tmp_path):
    asked, source, _ = windows(store, tmp_path, 3, models=("gpt-4.1",))
    assert source == "table"
    assert set(asked) == {1_000_000}


def test_what_was_set_is_not_asked_for(store, tmp_path):
    values = {"model": {"context_length": 50_000}}
    listed = {"models": ("gpt-4.1",), "window_tokens": 24_000}
    asked, source, _ = windows(store, tmp_path, 1, values=values, **listed)
    assert (asked, source) == ([50_000], "config")


def test_the_window_of_one_model_is_not_that_of_another(store, tmp_path):
    values = {"model": {"name": "gpt-4.1-mini", "context_length": 50_000}}
    assert windows(store, tmp_path, 1, values=values)[1] == "table"
    assert windows(store, tmp_path, 1, name="gpt-4.1-mini", values=values)[:2] == ([50_000], "config")


def test_answers_that_the_host_asks_for_come_off_the_window(store, tmp_path):
    place = AgentPlace(folder=tmp_path, store=store, tell=lambda _: None, yes=True)
    settings = settings_from({"model.context_length": 200_000})
    usual = make_agent(place, ScriptedModel(["Yes."]), settings).context
    wide = msgspec.structs.replace(place, limits=TurnLimits(max_output_tokens=60_000))
    reserved = make_agent(wide, ScriptedModel(["Yes."]), settings).context
    assert (usual.engine.threshold_tokens, reserved.engine.threshold_tokens) == (100_000, 70_000)
    assert reserved.engine.context_length == 200_000  # the window that people are told
