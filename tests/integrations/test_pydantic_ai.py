"""The capability inside real agents of pydantic-ai, with a model that follows a script."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from penstock import open_store
from penstock.integrations.pydantic_ai import HistoryTranslator, PenstockCapability
from tests.integrations import long_task as task

TRANSLATOR = HistoryTranslator()
LIMITS = UsageLimits(request_limit=None)


def write(messages):
    return [TRANSLATOR.to_wire(one) for one in messages]


class Script:
    def __init__(self, started_at=0, stop_at=0, recall=True, refuse_at=0):
        self.seen, self.started_at, self.stop_at, self.recall = [], started_at, stop_at, recall
        self.refuse_at = refuse_at

    def __call__(self, messages, _info):
        wires = write(messages)
        task.require_legal(_join(wires), "anthropic")
        if self.started_at + len(self.seen) + 1 == self.refuse_at:
            self.refuse_at = 0
            body = {
                "error": {
                    "type": "invalid_request_error",
                    "message": "prompt is too long: 40000 tokens > 12000 maximum",
                }
            }
            raise ModelHTTPError(400, "scripted", body)
        self.seen.append(list(messages))
        number = self.started_at + len(self.seen)
        step = (
            task.Step("I stop here.")
            if number == self.stop_at
            else task.next_step(number, recall=self.recall)
        )
        parts = [
            *([TextPart(step.text)] if step.text else []),
            *(ToolCallPart(n, a, c) for c, n, a in step.calls),
        ]
        usage = RequestUsage(input_tokens=task.count_tokens(wires), output_tokens=40)
        return ModelResponse(parts=parts, usage=usage, provider_details={"request": number})


def _join(wires):
    """Requests in a row are sent as one message, by pydantic-ai as well."""
    joined = []
    for wire in wires:
        if joined and joined[-1]["role"] == wire["role"]:
            joined[-1] = {**wire, "content": [*joined[-1]["content"], *wire["content"]]}
        else:
            joined.append(wire)
    return joined


def make_agent(script, **options):
    capability = PenstockCapability(**{"context_length": task.WINDOW, **options})
    agent = Agent(FunctionModel(script), system_prompt="Be careful.", capabilities=[capability])
    agent.tool_plain(task.read_part)
    return agent


def list_answers(messages):
    parts = [part for one in messages for part in one.parts]
    return [
        one.content
        for one in parts
        if isinstance(one, ToolReturnPart) and one.tool_name.startswith("history_")
    ]


def test_a_long_run_is_compacted_and_recall_is_answered():
    receipts, script = [], Script()
    agent = make_agent(script, recall_tools=True, on_receipt=receipts.append)
    result = agent.run_sync(task.ASKED, usage_limits=LIMITS)
    assert len(script.seen) == task.CALLS
    assert len(receipts) >= 3
    assert max(task.count_tokens(write(sent)) for sent in script.seen) < task.WINDOW
    task.require_recalled(list_answers(script.seen[-1]))
    history = result.all_messages()
    assert len(history) < task.CALLS
    assert task.holds_handoff(write(history))
    kept = [one for one in history if isinstance(one, ModelResponse)]
    assert all(one.provider_details for one in kept)
    for sent in script.seen:
        assert [part.content for part in sent[0].parts if isinstance(part, SystemPromptPart)] == [
            "Be careful."
        ]


@pytest.mark.parametrize("stored", [True, False])
def test_another_process_goes_on_with_the_history(tmp_path, stored):
    """The history is written to JSON and read again, as durable execution does."""
    store = open_store(f"sqlite:///{tmp_path}/s.db") if stored else None
    first = Script(stop_at=25)
    result = asyncio.run(
        make_agent(first, recall_tools=True, store=store).run(
            task.ASKED, usage_limits=LIMITS, conversation_id="c7"
        )
    )
    saved = ModelMessagesTypeAdapter.dump_json(result.all_messages())
    if stored:
        store.close()
        store = open_store(f"sqlite:///{tmp_path}/s.db")
    second, receipts = Script(started_at=25), []
    agent = make_agent(second, recall_tools=True, store=store, on_receipt=receipts.append)
    history = ModelMessagesTypeAdapter.validate_json(saved)
    again = asyncio.run(
        agent.run("Go on.", message_history=history, usage_limits=LIMITS, conversation_id="c7")
    )
    assert len(first.seen) + len(second.seen) == task.CALLS
    assert receipts
    answers = list_answers(again.all_messages())
    if stored:
        task.require_recalled(answers)
        assert len(store.list()) == 1
    else:
        assert "unavailable" in answers[1]


def test_it_is_a_strategy_of_the_harness():
    from pydantic_ai_harness.compaction import TieredCompaction

    capability = PenstockCapability(context_length=task.WINDOW * 10)
    script = Script(recall=False)
    tiered = TieredCompaction(tiers=[capability], target_tokens=task.WINDOW // 3)
    agent = Agent(FunctionModel(script), capabilities=[tiered])
    agent.tool_plain(task.read_part)
    result = agent.run_sync(task.ASKED, usage_limits=LIMITS)
    assert len(script.seen) == task.CALLS
    assert task.holds_handoff(write(result.all_messages()))


@pytest.mark.parametrize(
    "message",
    [
        ModelRequest(parts=[UserPromptPart("Look."), ToolReturnPart("read", {"a": 1}, "c1")]),
        ModelRequest(parts=[UserPromptPart(["See", BinaryContent(b"abc", media_type="image/png"), "this"])]),
        ModelRequest(parts=[ToolReturnPart("read", "Wrong.", "c1", outcome="failed")]),
        ModelResponse(parts=[TextPart("Yes."), ToolCallPart("read", '{"a": 1}', "c1")]),
    ],
)
def test_a_message_that_says_the_same_is_the_same(message):
    assert TRANSLATOR.from_wire(TRANSLATOR.to_wire(message), message) == message


def test_changed_parts_are_made_anew_and_others_stay():
    call, kept = ToolCallPart("read", {"path": "x" * 400}, "c1"), TextPart("I read it.", id="t1")
    message = ModelResponse(parts=[kept, call], model_name="m")
    wire = TRANSLATOR.to_wire(message)
    wire["content"][1] = {**wire["content"][1], "input": {"path": "x…"}}
    changed = TRANSLATOR.from_wire(wire, message)
    assert changed.parts[0] is kept
    assert changed.parts[1].args == {"path": "x…"}
    assert (changed.parts[1].tool_call_id, changed.model_name) == ("c1", "m")


@pytest.mark.parametrize(
    "message", [ModelRequest(parts=[UserPromptPart("Go.")]), ModelResponse(parts=[TextPart("Yes.")])]
)
def test_a_handoff_in_front_is_a_part_of_the_same_side(message):
    handoff = {"type": "text", "text": '<penstock-handoff v="1">\nBefore.\n</penstock-handoff>'}
    wire = TRANSLATOR.to_wire(message)
    made = TRANSLATOR.from_wire({**wire, "content": [handoff, *wire["content"]]}, message)
    assert [type(part) for part in made.parts] == [type(message.parts[0])] * 2
    assert made.parts[1] is message.parts[0]


def test_a_refused_request_is_compacted_and_sent_again():
    script, receipts = Script(refuse_at=20, recall=False), []
    agent = make_agent(script, context_length=100_000, on_receipt=receipts.append)
    result = agent.run_sync(task.ASKED, usage_limits=LIMITS)
    assert len(script.seen) == task.CALLS
    assert receipts
    assert max(task.count_tokens(write(sent)) for sent in script.seen[19:]) < task.WINDOW
    assert task.count_tokens(write(result.all_messages())) < task.WINDOW


def test_other_errors_are_raised_as_they_are():
    def broken(_messages, _info):
        raise ModelHTTPError(401, "scripted", {"error": {"message": "no such key"}})

    agent = Agent(FunctionModel(broken), capabilities=[PenstockCapability()])
    with pytest.raises(ModelHTTPError, match="no such key"):
        agent.run_sync("Hello.")
