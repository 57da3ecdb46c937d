"""An agent with a scripted model, and a way to talk to it."""

from __future__ import annotations

import asyncio

from penstock.agent.assembly import AgentPlace, make_agent
from penstock.settings import settings_from
from penstock.testing import ScriptedModel

__all__ = ["DIALECTS", "TALK", "agent_of", "pause", "run"]

DIALECTS = ("chat", "responses", "anthropic")
TALK = "please think about the harbour and its cranes "


def agent_of(replies, store, folder, *, session_id=None, dialect="chat", values=None, **options):
    events = []
    model = ScriptedModel(replies, dialect=dialect, **options)
    settings = settings_from(values or {})
    place = AgentPlace(folder=folder, store=store, tell=events.append, yes=True)
    return make_agent(place, model, settings, session_id=session_id), model, events


def run(agent, text):
    return asyncio.run(agent.turn(text))


async def pause(agent):
    """The user reads: what is prepared beside the turns is ready afterwards."""
    await agent.context.wait_prepared()
