"""The conversation manager inside real agents of Strands, with a model that follows a script."""

from __future__ import annotations

import asyncio
import json

import pytest
from examples import strands_agent
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from strands import Agent, tool
from strands.hooks import MessageAddedEvent
from strands.models.model import Model
from strands.models.openai import OpenAIModel
from strands.session.file_session_manager import FileSessionManager
from strands.session.snapshot_session_manager import SnapshotSessionManager
from strands.storage.local_file_storage import LocalFileStorage
from strands.types.exceptions import ContextWindowOverflowException

from penstock import open_store
from penstock.integrations.strands import ConverseTranslator, PenstockConversationManager
from tests.integrations import long_task as task

TRANSLATOR = ConverseTranslator()
SPANS = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def traced():
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(provider)  # once in a process


def write(messages):
    return [TRANSLATOR.to_wire(one) for one in messages]


class ScriptedModel(Model):
    """Answers by the script, and keeps what it was sent."""

    def __init__(self, started_at=0, stop_at=0, recall=True, refuse_at=0):
        self.seen, self.started_at, self.stop_at, self.recall = [], started_at, stop_at, recall
        self.refuse_at = refuse_at

    def update_config(self, **_):
        pass

    def get_config(self):
        return {"model_id": "scripted"}

    def structured_output(self, *_, **__):
        raise NotImplementedError

    async def stream(self, messages, tool_specs=None, system_prompt=None, **_):
        wires = write(messages)
        task.require_legal(wires, "anthropic")
        number = self.started_at + len(self.seen) + 1
        if number == self.refuse_at:
            self.refuse_at = 0
            raise ContextWindowOverflowException("the gateway does not say how much")
        self.seen.append(list(messages))
        step = task.next_step(number, recall=self.recall)
        if number == self.stop_at:
            step = task.Step("I stop here.")
        yield {"messageStart": {"role": "assistant"}}
        if step.text:
            yield {"contentBlockDelta": {"delta": {"text": step.text}}}
            yield {"contentBlockStop": {}}
        for call, name, args in step.calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call, "name": name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(args)}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if step.calls else "end_turn"}}
        used = task.count_tokens(wires)
        usage = {"inputTokens": used, "outputTokens": 40, "totalTokens": used + 40}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": number}}}


@tool
def read_part(number: int, half: str = "a") -> str:
    """Reads a part."""
    return task.read_part(number, half)


def make_agent(model, session=None, window=task.WINDOW, **options):
    return Agent(
        model,
        tools=[read_part],
        system_prompt="Be careful.",
        conversation_manager=PenstockConversationManager(context_length=window, **options),
        session_manager=session,
        callback_handler=None,
    )


def list_answers(messages):
    blocks = [block for one in messages for block in one["content"]]
    recalls = {
        block["toolUse"]["toolUseId"]
        for block in blocks
        if "toolUse" in block and block["toolUse"]["name"].startswith("history_")
    }
    results = [block["toolResult"] for block in blocks if "toolResult" in block]
    return [one["content"][0]["text"] for one in results if one["toolUseId"] in recalls]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_long_task_is_compacted_in_place_and_recall_is_answered(mode):
    SPANS.clear()
    receipts, model = [], ScriptedModel()
    agent = make_agent(model, recall_tools=True, on_receipt=receipts.append)
    if mode == "sync":
        agent(task.ASKED)
    else:
        asyncio.run(agent.invoke_async(task.ASKED))
    assert len(model.seen) == task.CALLS
    assert len(receipts) >= 3
    assert max(task.count_tokens(write(sent)) for sent in model.seen) < task.WINDOW
    task.require_recalled(list_answers(agent.messages))
    assert len(agent.messages) < task.CALLS
    assert task.holds_handoff(write(agent.messages))
    # What was kept is what the agent had, with its metadata; every message can be tracked.
    kept = [one for one in agent.messages if one["role"] == "assistant"]
    assert all(one["metadata"]["metrics"]["latencyMs"] for one in kept)
    assert len({one["tracking_id"] for one in agent.messages}) == len(agent.messages)
    told = [span for span in SPANS.get_finished_spans() if span.name == "penstock.compaction"]
    assert [span.attributes["penstock.tokens_after"] for span in told] == [
        one.tokens_after for one in receipts
    ]


def test_messages_that_stay_are_the_agents_own_objects():
    model = ScriptedModel(recall=False)
    agent = make_agent(model)
    before = []
    agent.hooks.add_callback(MessageAddedEvent, lambda event: before.append(event.message))
    agent(task.ASKED)
    own = {id(one) for one in before}
    assert sum(id(one) in own for one in agent.messages) >= len(agent.messages) - 3


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("kind", ["messages", "snapshots"])
def test_another_process_resumes_the_session(tmp_path, stored, kind):
    """With a store recall goes back to the beginning; without one, old numbers name nothing, and never another message."""

    def open_session():
        if kind == "messages":
            return FileSessionManager("s1", storage_dir=str(tmp_path / "sessions"))
        return SnapshotSessionManager("s1", storage=LocalFileStorage(str(tmp_path / "sessions")))

    address = f"sqlite:///{tmp_path}/s.db" if stored else None
    options = {"recall_tools": True}
    first, store = ScriptedModel(stop_at=25), address and open_store(address)
    agent = make_agent(first, open_session(), store=store, **options)
    agent(task.ASKED)
    left = [(one["role"], one["content"]) for one in agent.messages]
    if stored:
        store.close()
    second, store, receipts = ScriptedModel(started_at=25), address and open_store(address), []
    agent = make_agent(second, open_session(), store=store, on_receipt=receipts.append, **options)
    assert [(one["role"], one["content"]) for one in agent.messages] == left
    agent("Go on.")
    assert len(first.seen) + len(second.seen) == task.CALLS
    assert receipts
    answers = list_answers(second.seen[-1])
    if stored:
        task.require_recalled(answers)
        assert len(store.list()) == 1
    else:
        assert "unavailable" in answers[1]


def test_a_refused_request_is_compacted_and_sent_again():
    model, receipts = ScriptedModel(refuse_at=20, recall=False), []
    agent = make_agent(model, window=100_000, on_receipt=receipts.append)
    agent(task.ASKED)
    assert len(model.seen) == task.CALLS
    assert receipts
    before, after = (task.count_tokens(write(sent)) for sent in model.seen[18:20])
    assert after < before


def test_a_request_that_cannot_be_smaller_fails_as_it_does_without():
    model = ScriptedModel(refuse_at=1)
    with pytest.raises(ContextWindowOverflowException, match="does not say how much"):
        make_agent(model)("Hello.")


def test_pictures_documents_and_reasoning_survive():
    data = b"\x89PNG" * 40
    said = {
        "role": "user",
        "content": [
            {"text": "Look."},
            {"image": {"format": "png", "source": {"bytes": data}}},
            {"document": {"format": "pdf", "name": "d", "source": {"bytes": data}}},
            {"cachePoint": {"type": "default"}},
        ],
    }
    thought = {
        "role": "assistant",
        "content": [{"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}}, {"text": ""}],
    }
    assert [block["type"] for block in TRANSLATOR.to_wire(said)["content"]] == [
        "text",
        "image",
        "document",
        "cachePoint",
    ]
    for one in (said, thought):
        wire = TRANSLATOR.to_wire(one)
        handoff = {"type": "text", "text": f"{task.OPENING} …"}
        made = TRANSLATOR.from_wire({**wire, "content": [handoff, *wire["content"]]}, one)
        assert made["content"] == [{"text": handoff["text"]}, *one["content"]]


def test_the_example(provider, tmp_path):
    arguments = {"base_url": f"{provider.base_url}/v1", "api_key": "none"}
    model = OpenAIModel(client_args=arguments, model_id="gpt-4o")
    session = FileSessionManager("s1", storage_dir=str(tmp_path))
    agent = strands_agent.make_agent(model, task.read, session, task.WINDOW // 2)
    assert str(agent(task.ASKED)).strip() == "All files are read."
