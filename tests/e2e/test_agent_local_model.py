"""The agent with a real model, once through a whole tool turn: it calls, the tool runs, it answers."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import msgspec

from penstock.agent.assembly import AgentPlace, make_agent
from penstock.agent.tools.list_files import ListFiles
from penstock.loop.agent import TurnLimits
from penstock.loop.events import ToolEnded
from penstock.loop.tools import Toolbox
from penstock.providers.connect import connect
from penstock.providers.exchange import Answered, Called, Finish
from penstock.settings import settings_from
from penstock.stores.store import open_store


def _only(key, value):
    """Returns the schema of an object with this one value."""
    return {
        "type": "object",
        "properties": {key: {"enum": [value]}},
        "required": [key],
        "additionalProperties": False,
    }


ARGUMENTS, REPLY = _only("path", "."), _only("files", "harbour.txt")


class Calling:
    """The local model, which is too small to call a tool by itself: the first time it writes the arguments of a call.

    Later it writes an answer of a form, too: left to itself it sometimes ends at once, with nothing said.
    """

    def __init__(self, model):
        self._model = model
        self._asked = 0

    def __getattr__(self, name):
        return getattr(self._model, name)

    async def stream(self, ask):
        self._asked += 1
        schema = ARGUMENTS if self._asked == 1 else REPLY
        form = {"type": "json_schema", "json_schema": {"name": "written", "schema": schema}}
        written = msgspec.structs.replace(ask, extra={"response_format": form})
        async with aclosing(self._model.stream(written)) as events:
            async for event in events:
                if self._asked > 1:
                    yield event
                elif isinstance(event, Answered):
                    yield Answered(as_call(event.answer))


def as_call(answer):
    function = {"name": "list_files", "arguments": answer.text}
    wire = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    calls = (Called("c1", "list_files", answer.text),)
    return msgspec.structs.replace(answer, text="", calls=calls, wires=(wire,), finish=Finish.TOOL_CALLS)


def test_a_real_model_goes_through_a_whole_tool_turn(local_model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    work = tmp_path / "work"
    work.mkdir()
    (work / "harbour.txt").write_text("cranes\n")
    store, events = open_store("memory:"), []

    async def go():
        model = connect(
            "openai",
            local_model.model,
            base_url=local_model.base_url,
            api_key="none",
        )
        settings = settings_from({"model.context_length": local_model.context_tokens})
        place = AgentPlace(folder=work, store=store, tell=events.append, yes=True)
        agent = make_agent(place, Calling(model), settings)
        agent.calls.toolbox = Toolbox.of([ListFiles()])
        agent.limits = TurnLimits(steps=3, max_output_tokens=96)
        ended = await agent.turn("Which files are here? Call list_files.")
        await agent.aclose()
        await model.aclose()
        return ended, agent

    ended, agent = asyncio.run(go())
    assert ended.reason == "done", ended.what
    called = [event for event in events if isinstance(event, ToolEnded)]
    assert [event.is_error for event in called] == [False]
    view = agent.session.view()
    assert [wire["role"] for wire in view] == ["user", "assistant", "tool", "assistant"]
    assert "harbour.txt" in view[-1]["content"]
    assert len(store.usage(session_id=agent.session.id)) == ended.steps
    store.close()
