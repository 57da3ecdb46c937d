"""The condenser inside a real conversation of the OpenHands SDK, with its own test model. Needs Python 3.12."""

from __future__ import annotations

import json
import uuid

from openhands.sdk import Action, Agent, Conversation, Observation, TextContent, Tool
from openhands.sdk.event.condenser import Condensation
from openhands.sdk.llm import Message, MessageToolCall
from openhands.sdk.testing import TestLLM
from openhands.sdk.tool import ToolDefinition, ToolExecutor, register_tool
from pydantic import PrivateAttr

from penstock.integrations.openhands import PenstockCondenser, _write
from tests.integrations import long_task as task

SEEN: list = []


class ReadPartAction(Action):
    number: int
    half: str = "a"


class ReadPartObservation(Observation):
    pass


class ReadPartExecutor(ToolExecutor):
    def __call__(self, action, conversation=None):
        return ReadPartObservation.from_text(task.read_part(action.number, action.half))


class ReadPartTool(ToolDefinition[ReadPartAction, ReadPartObservation]):
    name = "read_part"

    @classmethod
    def create(cls, conv_state=None, **_):
        return [
            cls(
                description="Reads a part.",
                action_type=ReadPartAction,
                observation_type=ReadPartObservation,
                executor=ReadPartExecutor(),
            )
        ]


register_tool("read_part", ReadPartTool)


class WatchedLLM(TestLLM):
    """Keeps what it was sent."""

    _sent: list = PrivateAttr(default_factory=list)

    def completion(self, messages, *args, **kwargs):
        SEEN.append(messages)
        return super().completion(messages, *args, **kwargs)


def make_llm(first, last):
    replies = []
    for number in range(first, last + 1):
        step = (
            task.next_step((number - 1) % 39 + 1, recall=False)
            if number < last
            else task.Step("All parts are read.")
        )
        calls = [
            MessageToolCall(id=f"{number}-{call}", name=name, arguments=json.dumps(args), origin="completion")
            for call, name, args in step.calls
        ]
        replies.append(
            Message(role="assistant", content=[TextContent(text=step.text)], tool_calls=calls or None)
        )
    return WatchedLLM.from_messages(replies)


def write(messages):
    wires = []
    for message in messages:
        wire = {"role": message.role, "content": "".join(getattr(one, "text", "") for one in message.content)}
        if message.tool_call_id:
            wire["tool_call_id"] = message.tool_call_id
        if message.tool_calls:
            wire["tool_calls"] = [
                {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
                for one in message.tool_calls
            ]
        wires.append(wire)
    return wires


def make_conversation(llm, place, condenser, identity):
    agent = Agent(llm=llm, tools=[Tool(name="read_part")], condenser=condenser)
    return Conversation(
        agent=agent,
        workspace=str(place),
        persistence_dir=str(place / "state"),
        conversation_id=identity,
        visualizer=None,
        max_iteration_per_run=300,
    )


def test_a_long_task_that_another_process_resumes(tmp_path):
    SEEN.clear()
    window = task.WINDOW * 2  # the system prompt of OpenHands takes some thousand tokens
    identity = uuid.uuid4()
    for first, last in ((1, 60), (61, 120)):
        condenser = PenstockCondenser(context_length=window)
        conversation = make_conversation(make_llm(first, last), tmp_path, condenser, identity)
        conversation.send_message(task.ASKED if first == 1 else "Go on.")
        conversation.run()
        events = list(conversation.state.events)
        conversation.close()
    assert len(SEEN) == 120
    wires = [write(sent) for sent in SEEN]
    for sent in wires:
        task.require_legal(sent, "chat")
    assert max(map(task.count_tokens, wires)) < window
    condensations = [one for one in events if isinstance(one, Condensation)]
    assert len(condensations) >= 3
    assert all(task.holds_handoff([one.summary]) for one in condensations)
    assert task.holds_handoff(wires[-1])
    assert "Never touch part 9" in json.dumps(wires[-1])


def test_somebody_asks_for_it(tmp_path):
    conversation = make_conversation(
        make_llm(1, 9), tmp_path, PenstockCondenser(context_length=500_000), uuid.uuid4()
    )
    conversation.send_message(task.ASKED)
    conversation.run()
    before = conversation.state.view
    view = before.model_copy(update={"unhandled_condensation_request": True})
    made = PenstockCondenser(context_length=500_000).condense(view)
    conversation.close()
    assert isinstance(made, Condensation)
    after = made.apply(list(view.events))
    task.require_legal(_write(after), "chat")
    assert len(after) < len(view.events)
