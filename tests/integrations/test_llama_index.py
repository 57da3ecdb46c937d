"""The memory and the agent of LlamaIndex, with a model that follows a script."""

from __future__ import annotations

import asyncio
import json

import pytest
from examples import llama_index_agent
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ImageBlock,
    LLMMetadata,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.tools import FunctionTool, ToolSelection
from llama_index.core.workflow import Context
from llama_index.llms.openai_like import OpenAILike
from pydantic import PrivateAttr

from penstock import open_store
from penstock.integrations.llama_index import CompactionEvent, PenstockFunctionAgent, PenstockMemory
from penstock.integrations.llama_index_messages import ChatMessageTranslator
from tests.integrations import long_task as task

TRANSLATOR = ChatMessageTranslator()


def write(messages):
    return [TRANSLATOR.to_wire(one) for one in messages]


class ScriptedLLM(FunctionCallingLLM):
    """Answers by the script, and keeps what it was sent."""

    started_at: int = 0
    stop_at: int = 0
    recall: bool = True
    refuse_at: int = 0
    _seen: list = PrivateAttr(default_factory=list)

    @property
    def metadata(self):
        return LLMMetadata(model_name="scripted", is_function_calling_model=True)

    def _prepare_chat_with_tools(self, tools, chat_history=None, **_):
        return {"messages": list(chat_history)}

    def get_tool_calls_from_response(self, response, error_on_no_tool_call=True, **_):
        blocks = [one for one in response.message.blocks if isinstance(one, ToolCallBlock)]
        return [
            ToolSelection(tool_id=one.tool_call_id, tool_name=one.tool_name, tool_kwargs=one.tool_kwargs)
            for one in blocks
        ]

    def chat(self, messages, **_):
        wires = write(messages)
        task.require_legal(wires, "chat")
        number = self.started_at + len(self._seen) + 1
        if number == self.refuse_at:
            self.refuse_at = 0
            raise ValueError("prompt is too long: 40000 tokens > 12000 maximum")
        self._seen.append(list(messages))
        step = task.next_step(number, recall=self.recall)
        if number == self.stop_at:
            step = task.Step("I stop here.")
        blocks = [TextBlock(text=step.text)] if step.text else []
        blocks += [
            ToolCallBlock(tool_call_id=call, tool_name=name, tool_kwargs=args)
            for call, name, args in step.calls
        ]
        message = ChatMessage(role="assistant", blocks=blocks, additional_kwargs={"request": number})
        usage = {"prompt_tokens": task.count_tokens(wires), "completion_tokens": 40}
        return ChatResponse(message=message, raw={"usage": usage})

    async def achat(self, messages, **_):
        return self.chat(messages)

    async def astream_chat(self, messages, **_):
        answer = self.chat(messages)

        async def stream():
            yield answer

        return stream()

    def stream_chat(self, *_, **__):
        raise NotImplementedError

    complete = acomplete = stream_complete = astream_complete = stream_chat


def read_part(number: int, half: str = "a") -> str:
    """Reads a part."""
    return task.read_part(number, half)


def make_agent(llm, memory, **options):
    return PenstockFunctionAgent(
        name="reader",
        llm=llm,
        system_prompt="Be careful.",
        tools=[FunctionTool.from_defaults(read_part), *memory.tools],
        **options,
    )


async def run(agent, said, **options):
    return await agent.run(user_msg=said, max_iterations=100, **options)


def list_answers(messages):
    recalls = {
        block.tool_call_id
        for one in messages
        for block in one.blocks
        if isinstance(block, ToolCallBlock) and block.tool_name.startswith("history_")
    }
    return [one.content for one in messages if one.additional_kwargs.get("tool_call_id") in recalls]


class Collector(BaseEventHandler):
    heard: list = []  # noqa: RUF012  # a field of a pydantic model

    @classmethod
    def class_name(cls):
        return "Collector"

    def handle(self, event, **_):
        if isinstance(event, CompactionEvent):
            self.heard.append(event.receipt)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_long_run_is_compacted_and_recall_is_answered(streaming):
    llm, receipts, collector = ScriptedLLM(), [], Collector()
    memory = PenstockMemory(context_length=task.WINDOW, recall_tools=True, on_receipt=receipts.append)
    get_dispatcher().add_event_handler(collector)
    try:
        asyncio.run(run(make_agent(llm, memory, streaming=streaming), task.ASKED, memory=memory))
    finally:
        get_dispatcher().event_handlers.remove(collector)
    assert len(llm._seen) == task.CALLS
    assert len(receipts) >= 3
    assert [one["tokens_after"] for one in collector.heard] == [one.tokens_after for one in receipts]
    assert max(task.count_tokens(write(sent)) for sent in llm._seen) < task.WINDOW
    task.require_recalled(list_answers(llm._seen[-1]))
    left = memory.get_all()
    assert len(left) < task.CALLS
    assert task.holds_handoff(write(left))
    kept = [one for one in left if one.role == "assistant"]
    assert kept
    assert all("request" in one.additional_kwargs for one in kept)
    assert left[-1].content == "All parts are read. The anchor depot is known."


def test_several_agents_of_one_workflow_share_the_memory():
    llm, receipts = ScriptedLLM(recall=False), []
    memory = PenstockMemory(context_length=task.WINDOW, on_receipt=receipts.append)
    flow = AgentWorkflow(agents=[make_agent(llm, memory)], root_agent="reader")
    asyncio.run(run(flow, task.ASKED, memory=memory))
    assert len(llm._seen) == task.CALLS
    assert len(receipts) >= 3


@pytest.mark.parametrize("stored", [True, False])
def test_another_process_resumes_the_context(tmp_path, stored):
    """With a store recall goes back to the beginning; without one, old numbers name nothing, and never another message."""
    address = f"sqlite:///{tmp_path}/s.db"

    async def go():
        first = ScriptedLLM(stop_at=25)
        memory = PenstockMemory(
            "s1", context_length=task.WINDOW, recall_tools=True, store=address if stored else None
        )
        agent = make_agent(first, memory)
        context = Context(agent)
        await run(agent, task.ASKED, memory=memory, ctx=context)
        left, written = memory.get_all(), json.dumps(context.to_dict())
        second = ScriptedLLM(started_at=25)
        agent = make_agent(second, PenstockMemory(recall_tools=True))  # tools go by the memory of the context
        context = Context.from_dict(agent, json.loads(written))
        assert (await context.store.get("memory")).get_all() == left
        await run(agent, "Go on.", ctx=context)
        assert len(first._seen) + len(second._seen) == task.CALLS
        answers = list_answers(second._seen[-1])
        if stored:
            task.require_recalled(answers)
            assert len(open_store(address).list()) == 1
        else:
            assert "unavailable" in answers[1]

    asyncio.run(go())


def test_the_store_alone_is_enough_to_go_on(tmp_path):
    options = {"store": f"sqlite:///{tmp_path}/s.db", "context_length": task.WINDOW, "recall_tools": True}
    memory, first = PenstockMemory("s1", **options), ScriptedLLM(stop_at=25)
    asyncio.run(run(make_agent(first, memory), task.ASKED, memory=memory))
    left = memory.get()
    memory, second = PenstockMemory("s1", **options), ScriptedLLM(started_at=25)
    task.require_legal(write(memory.get()), "chat")
    assert [one.content for one in memory.get()] == [one.content for one in left]
    asyncio.run(run(make_agent(second, memory), "Go on.", memory=memory))
    task.require_recalled(list_answers(second._seen[-1]))


def test_a_sync_chat_engine():
    llm, receipts = ScriptedLLM(recall=False), []
    memory = PenstockMemory(context_length=4_000, on_receipt=receipts.append)
    engine = SimpleChatEngine.from_defaults(llm=llm, memory=memory, system_prompt="Be careful.")
    for number in range(1, 31):
        said = task.read_part(number)
        llm.stop_at = number
        assert engine.chat(said).response == "I stop here."
    assert len(receipts) >= 3
    assert max(task.count_tokens(write(sent)) for sent in llm._seen) < 4_000
    assert task.holds_handoff(write(engine.chat_history))
    engine.reset()
    assert memory.get_all() == []
    llm.stop_at = 31
    engine.chat("A new beginning.")
    assert [one.content for one in llm._seen[-1]] == ["Be careful.", "A new beginning."]


def test_a_refused_request_is_compacted_and_sent_again():
    llm, receipts = ScriptedLLM(refuse_at=20, recall=False), []
    memory = PenstockMemory(context_length=100_000, on_receipt=receipts.append)
    asyncio.run(run(make_agent(llm, memory), task.ASKED, memory=memory))
    assert len(llm._seen) == task.CALLS
    assert receipts
    assert max(task.count_tokens(write(sent)) for sent in llm._seen[19:]) < task.WINDOW


def test_agents_of_llama_index_take_the_memory_between_runs():
    llm, receipts = ScriptedLLM(recall=False), []
    memory = PenstockMemory(context_length=task.WINDOW, on_receipt=receipts.append)
    agent = FunctionAgent(llm=llm, tools=[FunctionTool.from_defaults(read_part)])
    for number in range(1, 11):
        llm.stop_at = 3 * number
        asyncio.run(run(agent, f"Go on with {number}.", memory=memory))
    assert receipts
    assert len(memory.get()) < 2 * 30


def test_pictures_reasoning_and_older_calls_survive():
    picture = ImageBlock(image=b"\x89PNG" * 40, image_mimetype="image/png")
    thought = ThinkingBlock(content="Hm.", additional_information={"signature": "s"})
    said = ChatMessage(role="user", blocks=[TextBlock(text="Look."), picture], additional_kwargs={"a": 1})
    mused = ChatMessage(
        role="assistant",
        blocks=[thought, ToolCallBlock(tool_call_id="c", tool_name="t", tool_kwargs={"a": 1})],
    )
    older = {"id": "c", "type": "function", "function": {"name": "t", "arguments": '{"a":1}'}}
    called = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [older]})
    assert [block["type"] for block in TRANSLATOR.to_wire(said)["content"]] == ["text", "image_url"]
    assert TRANSLATOR.to_wire(called)["tool_calls"] == TRANSLATOR.to_wire(mused)["tool_calls"] == [older]
    for one in (said, mused):
        wire = TRANSLATOR.to_wire(one)
        handoff = {"type": "text", "text": f"{task.OPENING} …"}
        made = TRANSLATOR.from_wire({**wire, "content": [handoff, *wire["content"]]}, one)
        assert made.blocks == [TextBlock(text=handoff["text"]), *one.blocks]
        assert made.additional_kwargs == one.additional_kwargs


def test_the_example(provider, tmp_path):
    llm = OpenAILike(
        model="gpt-4o",
        api_base=f"{provider.base_url}/v1",
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
    )
    store = f"sqlite:///{tmp_path}/s.db"
    answer = asyncio.run(llama_index_agent.run(llm, task.ASKED, task.read, store, task.WINDOW // 2))
    assert answer == "All files are read."
