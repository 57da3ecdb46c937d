"""The context provider inside real agents of Microsoft Agent Framework, with a client that follows a script."""

from __future__ import annotations

import asyncio
import json

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FileHistoryProvider,
    FunctionInvocationLayer,
    Message,
    tool,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock import open_store
from penstock.integrations import agent_framework as adapter
from penstock.integrations.agent_framework import ContentsTranslator, PenstockContextProvider
from tests.integrations import long_task as task

TRANSLATOR = ContentsTranslator()


def write(messages):
    return [TRANSLATOR.to_wire(one) for one in messages if one.role != "system"]


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Answers by the script, and keeps what it was sent."""

    def __init__(self, started_at=0, stop_at=0, recall=True, refuse_at=0):
        super().__init__()
        self.model = "scripted"
        self.seen, self.started_at, self.stop_at, self.recall = [], started_at, stop_at, recall
        self.refuse_at = refuse_at

    def _inner_get_response(self, *, messages, stream, options, **_):
        if not stream:
            return self._answer(messages)

        async def updates():
            answer = await self._answer(messages)
            (message,) = answer.messages
            yield ChatResponseUpdate(role="assistant", contents=message.contents)
            yield ChatResponseUpdate(contents=[Content.from_usage(answer.usage_details)])

        return self._build_response_stream(updates())

    async def _answer(self, messages):
        wires = write(messages)
        task.require_legal(wires, "anthropic")
        number = self.started_at + len(self.seen) + 1
        if number == self.refuse_at:
            self.refuse_at = 0
            raise ValueError("prompt is too long: 40000 tokens > 12000 maximum")
        self.seen.append(list(messages))
        step = task.next_step(number, recall=self.recall)
        if number == self.stop_at:
            step = task.Step("I stop here.")
        contents = [Content.from_text(step.text)] if step.text else []
        contents += [Content.from_function_call(c, n, arguments=json.dumps(a)) for c, n, a in step.calls]
        used = task.count_tokens(wires)
        return ChatResponse(
            messages=[Message("assistant", contents, additional_properties={"request": number})],
            usage_details={"input_token_count": used, "output_token_count": 40},
        )


@tool(approval_mode="never_require")
def read_part(number: int, half: str = "a") -> str:
    """Reads a part."""
    return task.read_part(number, half)


def make_agent(client, *providers, **options):
    penstock = PenstockContextProvider(**{"context_length": task.WINDOW, **options})
    return Agent(client, "Be careful.", tools=[read_part], context_providers=[*providers, penstock])


def list_answers(messages):
    contents = [one for message in messages for one in message.contents]
    recalls = {
        one.call_id for one in contents if one.type == "function_call" and one.name.startswith("history_")
    }
    return [one.result for one in contents if one.type == "function_result" and one.call_id in recalls]


async def run(agent, said, session, *, stream=False):
    answer = agent.run(said, session=session, stream=stream)
    return await (answer.get_final_response() if stream else answer)


@pytest.mark.parametrize("stream", [True, False])
def test_a_long_run_is_fitted_and_recall_is_answered(stream):
    client, receipts = ScriptedClient(), []
    agent = make_agent(client, recall_tools=True, on_receipt=receipts.append)
    session = AgentSession()
    asyncio.run(run(agent, task.ASKED, session, stream=stream))
    assert len(client.seen) == task.CALLS
    assert len(receipts) >= 3
    assert max(task.count_tokens(write(sent)) for sent in client.seen) < task.WINDOW
    last = client.seen[-1]
    assert task.holds_handoff(write(last))
    task.require_recalled(list_answers(last))
    # The framework's own history is whole: all that was said, and no handoff.
    history = session.state["in_memory"]["messages"]
    assert len(history) == 2 * task.CALLS
    assert not task.holds_handoff(write(history))
    if not stream:  # updates of a stream become new messages
        kept = [one for one in last if one.role == "assistant"]
        assert kept
        assert all("request" in one.additional_properties for one in kept)


@pytest.mark.filterwarnings("ignore:.FILE_HISTORY")  # the framework warns that its class is experimental
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("kind", ["session", "file"])
def test_another_process_resumes_the_session(tmp_path, stored, kind):
    """The framework keeps the whole history, so recall goes back to the beginning with a store and without one."""

    def make(client, store, **options):
        history = [FileHistoryProvider(tmp_path / "history")] if kind == "file" else []
        return make_agent(client, *history, store=store, recall_tools=True, **options)

    async def go():
        address = f"sqlite:///{tmp_path}/s.db" if stored else None
        first, store = ScriptedClient(stop_at=25), address and open_store(address)
        session = AgentSession(session_id="s1")
        await run(make(first, store), task.ASKED, session)
        if stored:
            store.close()
        session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
        second, store, receipts = ScriptedClient(started_at=25), address and open_store(address), []
        await run(make(second, store, on_receipt=receipts.append), "Go on.", session)
        assert len(first.seen) + len(second.seen) == task.CALLS
        assert receipts
        task.require_recalled(list_answers(second.seen[-1]))
        assert max(task.count_tokens(write(sent)) for sent in second.seen) < task.WINDOW
        if stored:
            assert len(store.list()) == 1

    asyncio.run(go())


def test_many_runs_of_one_session():
    async def go():
        client, receipts = ScriptedClient(recall=False), []
        client.function_invocation_configuration["max_iterations"] = 3
        agent = make_agent(client, on_receipt=receipts.append)
        session = AgentSession()
        for number in range(10):
            await run(agent, f"Go on with {number}.", session)
        assert len(client.seen) == 40
        assert len(receipts) >= 3
        assert max(task.count_tokens(write(sent)) for sent in client.seen) < task.WINDOW

    asyncio.run(go())


def test_a_refused_request_is_compacted_and_sent_again():
    client, receipts = ScriptedClient(refuse_at=20, recall=False), []
    agent = make_agent(client, context_length=100_000, on_receipt=receipts.append)
    asyncio.run(run(agent, task.ASKED, AgentSession()))
    assert len(client.seen) == task.CALLS
    assert receipts
    assert max(task.count_tokens(write(sent)) for sent in client.seen[19:]) < task.WINDOW


def test_messages_that_the_service_keeps_pass_as_they_are():
    client = ScriptedClient(recall=False)
    agent = make_agent(client, context_length=2_000)
    history = [Message("user", [task.read_part(n)]) for n in range(12)]
    asyncio.run(agent.run(history, options={"conversation_id": "c7", "store": True, "tool_choice": "none"}))
    assert [one.text for one in client.seen[0] if one.role == "user"] == [one.text for one in history]


def test_receipts_are_spans(monkeypatch):
    spans, provider, receipts = InMemorySpanExporter(), TracerProvider(), []
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(adapter, "get_tracer", lambda: provider.get_tracer("agent_framework"))
    agent = make_agent(ScriptedClient(recall=False), on_receipt=receipts.append)
    asyncio.run(run(agent, task.ASKED, AgentSession()))
    told = [span for span in spans.get_finished_spans() if span.name == "penstock.compaction"]
    assert [span.attributes["penstock.tokens_after"] for span in told] == [
        one.tokens_after for one in receipts
    ]


def test_pictures_and_reasoning_survive():
    picture = Content.from_data(b"\x89PNG" * 40, "image/png")
    said = Message("user", ["Look.", picture], message_id="m7", author_name="Ada")
    thought = Message("assistant", [Content.from_text_reasoning(text="Hm.", protected_data="s")])
    assert [block["type"] for block in TRANSLATOR.to_wire(said)["content"]] == ["text", "image"]
    for one in (said, thought):
        wire = TRANSLATOR.to_wire(one)
        handoff = {"type": "text", "text": f"{task.OPENING} …"}
        made = TRANSLATOR.from_wire({**wire, "content": [handoff, *wire["content"]]}, one)
        assert made.contents[1:] == one.contents
        assert (made.contents[0].text, made.message_id, made.author_name) == (
            handoff["text"],
            one.message_id,
            one.author_name,
        )
