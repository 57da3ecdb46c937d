"""The session inside real runs of the Agents SDK, with a model that follows a script."""

from __future__ import annotations

import asyncio
import json

import agents
from agents import Agent, ModelResponse, Runner, Usage, function_tool
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from penstock import open_store
from penstock.integrations.openai_agents import PenstockSession
from tests.integrations import long_task as task


class ScriptedResponses(Model):
    def __init__(self, started_at=0, stops_at=(), recall=True):
        self.seen, self.started_at, self.stops_at, self.recall = [], started_at, stops_at, recall

    async def get_response(self, system_instructions, input, *_, **__):  # noqa: A002
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        task.require_legal(items, "responses")
        self.seen.append(items)
        number = self.started_at + len(self.seen)
        step = task.Step("Pause.") if number in self.stops_at else task.next_step(number, recall=self.recall)
        text = ResponseOutputText(text=step.text, type="output_text", annotations=[])
        said = ResponseOutputMessage(
            id=f"msg_{number}", content=[text], role="assistant", status="completed", type="message"
        )
        calls = [
            ResponseFunctionToolCall(
                call_id=call, name=name, arguments=json.dumps(args), type="function_call", id=f"fc_{call}"
            )
            for call, name, args in step.calls
        ]
        used = task.count_tokens(items)
        return ModelResponse(
            output=[*([said] if step.text else []), *calls],
            usage=Usage(requests=1, input_tokens=used, output_tokens=40, total_tokens=used + 40),
            response_id=f"resp_{number}",
        )

    async def stream_response(self, *args, **kwargs):
        raise NotImplementedError
        yield


@function_tool
def read_part(number: int, half: str = "a") -> str:
    """Reads a part."""
    return task.read_part(number, half)


def make_agent(model, session):
    return Agent(name="reader", instructions="Be careful.", model=model, tools=[read_part, *session.tools])


def list_answers(items):
    names = {one["call_id"]: one["name"] for one in items if one.get("type") == "function_call"}
    outputs = [one for one in items if one.get("type") == "function_call_output"]
    return [one["output"] for one in outputs if names[one["call_id"]].startswith("history_")]


async def run(agent, session, said, **settings):
    config = session.run_config(tracing_disabled=True, **settings)
    return await Runner.run(agent, said, session=session, run_config=config, max_turns=100)


def test_one_run_of_forty_calls_is_kept_inside_the_window():
    async def go():
        receipts = []
        session = PenstockSession(
            "s", context_length=task.WINDOW, recall_tools=True, on_receipt=receipts.append
        )
        model = ScriptedResponses()
        await run(make_agent(model, session), session, task.ASKED)
        assert len(model.seen) == task.CALLS
        assert len(receipts) >= 3
        assert max(map(task.count_tokens, model.seen)) < task.WINDOW
        task.require_recalled(list_answers(model.seen[-1]))
        logged = len(session._conversation.session)
        stored = await session.get_items()
        task.require_legal(stored, "responses")
        assert task.holds_handoff(stored)
        assert len(stored) < logged
        # All that was said was logged once: the request, and each call and its result.
        assert logged == 1 + sum(
            bool(step.text) + 2 * len(step.calls) for step in map(task.next_step, range(1, task.CALLS + 1))
        )

    asyncio.run(go())


def test_another_process_goes_on_with_the_session(tmp_path):
    url = f"sqlite:///{tmp_path}/s.db"

    async def go(store, model, said):
        options = {"context_length": task.WINDOW, "recall_tools": True, "store": store}
        session, said_to = PenstockSession("s", **options), said
        for text in said_to:
            await run(make_agent(model, session), session, text)
        return session

    first = ScriptedResponses(stops_at=(10, 25))
    store = open_store(url)
    asyncio.run(go(store, first, [task.ASKED, "Go on."]))
    store.close()
    second = ScriptedResponses(started_at=25)
    store = open_store(url)
    session = asyncio.run(go(store, second, ["And to the end."]))
    assert len(first.seen) + len(second.seen) == task.CALLS
    task.require_recalled(list_answers(second.seen[-1]))
    assert len(store.list()) == 1
    assert len(session._conversation.session.receipts()) >= 3


def test_the_session_alone_is_compacted_after_a_run():
    async def go():
        receipts = []
        session = PenstockSession("s", context_length=task.WINDOW, on_receipt=receipts.append)
        model = ScriptedResponses(recall=False, stops_at=range(3, 60, 3))
        for number in range(13):
            agent = Agent(name="reader", model=model, tools=[read_part])
            await Runner.run(
                agent,
                f"Go on with {number}.",
                session=session,
                run_config=agents.RunConfig(tracing_disabled=True),
            )
        assert receipts
        assert len(await session.get_items()) < len(session._conversation.session)

    asyncio.run(go())


def test_items_are_taken_back_and_cleared():
    async def go():
        session = PenstockSession("s")
        items = [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}]
        await session.add_items(items)
        assert await session.get_items() == items
        assert await session.get_items(limit=1) == items[1:]
        assert await session.pop_item() == items[1]
        assert await session.get_items() == items[:1]
        await session.add_items([{"role": "user", "content": "Three"}])
        assert [one["content"] for one in await session.get_items()] == ["One", "Three"]
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        assert len(session._conversation.session) == 3

    asyncio.run(go())


def test_receipts_are_spans():
    spans = []

    class Collector(agents.tracing.TracingProcessor):
        def on_span_end(self, span):
            spans.append(span)

        on_trace_start = on_trace_end = on_span_start = lambda self, _: None

        def shutdown(self):
            pass

        force_flush = shutdown

    async def go():
        session = PenstockSession("s", context_length=task.WINDOW)
        model = ScriptedResponses(recall=False)
        config = session.run_config()
        await Runner.run(
            make_agent(model, session), task.ASKED, session=session, run_config=config, max_turns=100
        )

    agents.set_trace_processors([Collector()])
    try:
        asyncio.run(go())
    finally:
        agents.set_trace_processors([])
    told = [one.span_data for one in spans if getattr(one.span_data, "name", "") == "penstock.compaction"]
    assert len(told) >= 3
    assert told[0].data["outcome"] == "compacted"


def test_sync_runs():
    session = PenstockSession("s", context_length=task.WINDOW, recall_tools=True)
    model = ScriptedResponses()
    config = session.run_config(tracing_disabled=True)
    agent = make_agent(model, session)
    Runner.run_sync(agent, task.ASKED, session=session, run_config=config, max_turns=100)
    task.require_recalled(list_answers(model.seen[-1]))
