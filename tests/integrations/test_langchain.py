"""The middleware inside real agents of LangChain, with a model that follows a script."""

from __future__ import annotations

import asyncio
import logging

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field

from penstock import open_store
from penstock.integrations.langchain import MessageTranslator, PenstockMiddleware
from tests.integrations import long_task as task

TRANSLATOR = MessageTranslator()


class ScriptedChat(BaseChatModel):
    """Answers by the script, and keeps what it was sent."""

    seen: list = Field(default_factory=list)
    model_name: str = "scripted"
    started_at: int = 0
    recall: bool = True
    refuse_at: int = 0
    stop_at: int = 0

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        wires = [TRANSLATOR.to_wire(one) for one in messages]
        task.require_legal(wires, "chat")
        number = self.started_at + len(self.seen) + 1
        if number == self.refuse_at:
            self.refuse_at = 0
            raise ValueError(
                f"This model's maximum context length is {task.WINDOW // 2} tokens. However, your messages resulted in "
                f"{task.count_tokens(wires)} tokens. Please reduce the length of the messages."
            )
        self.seen.append(messages)
        step = task.next_step(number, recall=self.recall)
        if number == self.stop_at:
            step = task.Step("I stop here.")
        used = task.count_tokens(wires)
        message = AIMessage(
            step.text,
            tool_calls=[{"id": call, "name": name, "args": args} for call, name, args in step.calls],
            usage_metadata={"input_tokens": used, "output_tokens": 40, "total_tokens": used + 40},
            response_metadata={"request": number},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def read_part(number: int, half: str = "a") -> str:
    """Reads a part."""
    return task.read_part(number, half)


def make_agent(model, middleware, saver=None):
    return create_agent(
        model, [read_part], system_prompt="Be careful.", middleware=[middleware], checkpointer=saver
    )


def list_answers(messages):
    return [
        one.content
        for one in messages
        if isinstance(one, ToolMessage) and one.name and one.name.startswith("history_")
    ]


CONFIG = {"configurable": {"thread_id": "t1"}, "recursion_limit": 400}
START = {"messages": [HumanMessage(task.ASKED)]}


@pytest.mark.parametrize("thread", [True, False])
def test_a_long_task_is_compacted_in_the_state_and_recall_is_answered(thread, caplog):
    receipts = []
    model = ScriptedChat()
    middleware = PenstockMiddleware(context_length=task.WINDOW, recall_tools=True, on_receipt=receipts.append)
    agent = make_agent(model, middleware, InMemorySaver() if thread else None)
    config = CONFIG if thread else {"recursion_limit": 400}
    told = list(agent.stream(START, config, stream_mode="custom"))
    assert len(model.seen) == task.CALLS
    assert len(receipts) >= 3
    assert [one["penstock"]["tokens_after"] for one in told] == [one.tokens_after for one in receipts]
    last = model.seen[-1]
    assert (
        max(task.count_tokens([TRANSLATOR.to_wire(one) for one in sent]) for sent in model.seen) < task.WINDOW
    )
    task.require_recalled(list_answers(last))
    # What was kept is what the model gave, with all that the wire does not say.
    kept = [one for one in last if isinstance(one, AIMessage)]
    assert kept
    assert all("request" in one.response_metadata for one in kept)
    assert not caplog.records  # compactions are routine
    if thread:
        state = agent.get_state(CONFIG).values["messages"]
        assert len(state) < 40
        assert task.holds_handoff([TRANSLATOR.to_wire(one) for one in state])
        assert len({one.id for one in state}) == len(state)


def test_async_agents():
    model = ScriptedChat()
    receipts = []
    middleware = PenstockMiddleware(context_length=task.WINDOW, recall_tools=True, on_receipt=receipts.append)
    agent = make_agent(model, middleware, InMemorySaver())
    result = asyncio.run(agent.ainvoke(START, CONFIG))
    assert len(model.seen) == task.CALLS
    assert len(receipts) >= 3
    task.require_recalled(list_answers(result["messages"]))


@pytest.mark.parametrize("stored", [True, False])
def test_another_process_resumes_the_checkpoint(tmp_path, stored):
    """With a store recall goes back to the beginning; without one, old numbers name nothing, and never another message."""
    store = open_store(f"sqlite:///{tmp_path}/s.db") if stored else None
    saver, options = InMemorySaver(), {"context_length": task.WINDOW, "recall_tools": True}
    first = ScriptedChat(stop_at=25)
    make_agent(first, PenstockMiddleware(store=store, **options), saver).invoke(START, CONFIG)
    if stored:
        store.close()
        store = open_store(f"sqlite:///{tmp_path}/s.db")
    second, receipts = ScriptedChat(started_at=25), []
    agent = make_agent(second, PenstockMiddleware(store=store, on_receipt=receipts.append, **options), saver)
    result = agent.invoke({"messages": [HumanMessage("Go on.")]}, CONFIG)
    assert len(first.seen) + len(second.seen) == task.CALLS
    assert receipts
    answers = list_answers(result["messages"])
    if stored:
        task.require_recalled(answers)
        assert len(store.list()) == 1
    else:
        assert "unavailable" in answers[1]


def test_a_message_that_is_taken_back_leaves_the_conversation(tmp_path):
    """LangGraph may go back to an earlier checkpoint, and on from there."""
    store = open_store(f"sqlite:///{tmp_path}/s.db")
    saver = InMemorySaver()
    model = ScriptedChat(stop_at=30)
    agent = make_agent(model, PenstockMiddleware(store=store, context_length=task.WINDOW), saver)
    agent.invoke(START, CONFIG)
    past = [one for one in agent.get_state_history(CONFIG) if one.next == ("model",)]
    earlier = past[len(past) // 2]
    again = ScriptedChat(started_at=29, recall=False)
    agent = make_agent(again, PenstockMiddleware(store=store, context_length=task.WINDOW), saver)
    agent.invoke(None, {**earlier.config, "recursion_limit": 400})
    assert again.seen[0][1:] == earlier.values["messages"]


def test_a_refused_request_is_compacted_and_sent_again(caplog):
    model, receipts = ScriptedChat(refuse_at=20, recall=False), []
    middleware = PenstockMiddleware(context_length=100_000, on_receipt=receipts.append)
    result = make_agent(model, middleware, InMemorySaver()).invoke(START, CONFIG)
    assert len(model.seen) == task.CALLS
    assert receipts
    assert task.count_tokens([TRANSLATOR.to_wire(one) for one in model.seen[19]]) < task.WINDOW // 2
    assert (
        max(task.count_tokens([TRANSLATOR.to_wire(one) for one in sent]) for sent in model.seen[19:])
        < task.WINDOW // 2
    )
    assert len(result["messages"]) < 60  # the state was made smaller, too
    assert "may cut long prompts" not in caplog.text


def test_other_errors_are_raised_as_they_are():
    class Broken(ScriptedChat):
        def _generate(self, *_, **__):
            raise KeyError("no such deployment")

    with pytest.raises(KeyError, match="no such deployment"):
        make_agent(Broken(), PenstockMiddleware()).invoke(START)


def test_a_store_that_fails_does_not_stop_the_agent(caplog):
    store = open_store("memory:")
    middleware = PenstockMiddleware(store=store, context_length=task.WINDOW)
    store.close()
    model = ScriptedChat(stop_at=3)
    with caplog.at_level(logging.WARNING, "penstock"):
        make_agent(model, middleware).invoke(START)
    assert len(model.seen) == 3
    assert "goes on as it is" in caplog.text
