"""What a compaction may do depends on its occasion: the threshold, an emergency, pins that leave little room."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from agent_talk import TALK, agent_of, run

from penstock.agent.assembly import AgentPlace, make_agent
from penstock.engine.compressor import ContextCompressor
from penstock.engine.summariser import Summariser
from penstock.loop.events import Compacted, Noticed
from penstock.planning.policy import Trigger, refuse_model
from penstock.settings import CompressionSettings, settings_from
from penstock.testing import Reply, ScriptedModel
from penstock.writing.handoff import SYSTEM_NOTE

WINDOW = 16_000
HANDOFF = "## Goal\nTo speak of the harbour and its cranes."


class Talking:
    """Answers people, and writes handoffs where it is asked for one."""

    def __init__(self):
        self.handoffs = 0

    def __call__(self, request):
        if "handoff" in str(request.messages[-1]["content"]):
            self.handoffs += 1
            return Reply(text=HANDOFF)
        return Reply(text="an answer, " * 60)


@pytest.fixture
def script():
    return Talking()


@pytest.fixture
def talk(script, store, tmp_path):
    values = {"model.context_length": WINDOW}
    return agent_of(script, store, tmp_path, values=values, name="unheard-of", window_tokens=WINDOW)


def compacted(events):
    return [event for event in events if isinstance(event, Compacted)]


def test_so_few_messages_at_the_threshold_ask_no_model_and_it_is_said(script, store, tmp_path):
    values = {"model.context_length": WINDOW, "compression.protect_first_n": 2}
    agent, _, events = agent_of(script, store, tmp_path, values=values, name="unheard-of")
    assert run(agent, "hello").reason == "done"
    agent.context.append([{"role": "user", "content": TALK * 1_580}])
    agent.context.append([{"role": "assistant", "content": "I see."}])
    assert agent.context.tokens() < 0.95 * WINDOW
    assert run(agent, "go on").reason == "done"
    (made,) = compacted(events)
    assert script.handoffs == 0
    assert made.receipt.reason == "5 messages are too few to summarise (from 6 on a model is asked)"


def test_enough_messages_at_the_threshold_ask_the_model(script, talk):
    agent, _, events = talk
    while not compacted(events):
        assert run(agent, TALK * 100).reason == "done"
    assert script.handoffs
    assert compacted(events)[0].receipt.model == "unheard-of"


@pytest.mark.parametrize("messages", range(10))
@pytest.mark.parametrize("head", [0, 3, 5])
def test_only_at_the_threshold_does_the_number_of_messages_count(messages, head):
    settings = CompressionSettings(protect_first_n=head)
    silent = {trigger for trigger in Trigger if refuse_model(trigger, settings, messages)}
    few = messages < head + 3 + 1
    assert silent == ({Trigger.PREFLIGHT, Trigger.RESPONSE, Trigger.BACKGROUND} if few else set())


def test_a_library_host_gets_the_same():
    model = ScriptedModel([HANDOFF], repeat_last=True)
    engine = ContextCompressor(8_000, summariser=model, protect_first_n=1)
    cranes = " ".join(f"Crane {number} lifts {37 * number} containers a day." for number in range(1_500))
    messages = [
        {"role": "user", "content": f"Look at the harbour. {cranes}"},
        {"role": "assistant", "content": "I have looked at it."},
        {"role": "user", "content": "And at the cranes."},
        {"role": "assistant", "content": f"{TALK * 50}."},
    ]
    few = engine.compact(messages)
    assert few.receipt.outcome == "compacted"
    assert "too few to summarise" in few.receipt.reason
    assert not model.received


def test_what_fills_the_window_at_once_is_compacted_without_a_model(script, talk):
    agent, _, events = talk
    for _ in range(8):
        assert run(agent, TALK * 60).reason == "done"
    calls = script.handoffs
    agent.context.append([{"role": "user", "content": TALK * 1_200}])
    agent.context.append([{"role": "assistant", "content": "I see."}])
    assert agent.context.tokens() >= 0.95 * WINDOW
    assert run(agent, "go on").reason == "done"
    made = compacted(events)[-1]
    assert script.handoffs == calls
    assert "tokens of the window are used" in made.reason
    assert agent.context.tokens() < 0.6 * WINDOW


def test_in_an_emergency_a_small_saving_is_worth_it():
    messages = [
        {"role": role, "content": f"{number}: {TALK * 6}"}
        for number in range(30)
        for role in ("user", "assistant")
    ]
    tokens = ContextCompressor().estimate(messages)
    window = int(tokens * 0.94 / 0.305)  # whose target is a little less than the conversation
    calm, pressed = ContextCompressor(window), ContextCompressor(window)
    pressed.update_from_response({"prompt_tokens": window})
    refused = calm.compact(messages).receipt
    assert (refused.outcome, "less than a tenth saved" in refused.reason) == ("nothing_to_do", True)
    made = pressed.compact(messages).receipt
    assert made.outcome == "compacted"
    assert 0.9 * tokens < made.tokens_after < tokens


@pytest.mark.sampled(2)
@pytest.mark.parametrize("pinned", [0.45, 0.7])
def test_pins_that_are_larger_than_the_target_do_not_end_the_conversation(script, talk, pinned):
    agent, _, events = talk
    for _ in range(3):
        assert run(agent, "hello").reason == "done"
    assert run(agent, TALK * int(pinned * WINDOW / 8)).reason == "done"
    agent.session.pin("m7")
    for number in range(16):
        assert run(agent, f"question {number}: {TALK * 30}").reason == "done"
    made = compacted(events)
    assert 1 <= len(made) <= 5
    assert any(message["content"].startswith(TALK) for message in agent.context.view)


def test_what_no_compaction_can_relieve_is_said_and_the_conversation_goes_on(script, talk):
    agent, _, events = talk
    for _ in range(3):
        assert run(agent, "hello").reason == "done"
    agent.context.append([{"role": "user", "content": TALK * 1_540}])
    agent.context.append([{"role": "assistant", "content": "I see."}])
    agent.session.pin("m7")
    assert run(agent, "go on").reason == "done"
    (said,) = [
        event.text for event in events if isinstance(event, Noticed) and "continues unchanged" in event.text
    ]
    assert "pinned messages" in said


@pytest.mark.sampled(2)
@pytest.mark.parametrize("noted", [True, False])
def test_the_agents_prompt_gets_its_note_with_the_first_compaction(script, store, tmp_path, noted):
    values = {"model.context_length": WINDOW, "compression.system_note": noted}
    agent, model, events = agent_of(script, store, tmp_path, values=values, name="unheard-of")
    assert run(agent, "hello").reason == "done"
    assert SYSTEM_NOTE not in str(model.received[-1].body)
    while not compacted(events):
        assert run(agent, TALK * 100).reason == "done"
    assert run(agent, "go on").reason == "done"
    (system,) = [one["content"] for one in model.received[-1].messages if one["role"] == "system"]
    assert system.endswith(SYSTEM_NOTE) is noted
    assert agent.context.undo()
    assert run(agent, "hello").reason == "done"


def test_a_person_is_told_once_that_the_model_for_summaries_fails(script, store, tmp_path):
    events = []
    values = {"model.context_length": WINDOW, "context.economics": "off"}
    main = ScriptedModel(script, name="unheard-of")
    place = AgentPlace(folder=tmp_path, store=store, tell=events.append, yes=True)
    agent = make_agent(place, main, settings_from(values))
    broken = ScriptedModel([Reply.unauthorised()], name="cheap", repeat_last=True)
    agent.context.engine.hosting.use_summariser(Summariser(broken, main=main))
    assert agent.context.engine.last_summary_call.outcome == "not asked"
    while len(compacted(events)) < 3:
        assert run(agent, TALK * 100).reason == "done"
    (said,) = [event.text for event in events if isinstance(event, Noticed) and "cheap" in event.text]
    assert "cheap, the model for summaries, failed: auth (401); unheard-of writes them for now" in said
    call = agent.context.engine.last_summary_call
    assert (call.outcome, call.chosen, call.model) == ("fallback", "cheap", "unheard-of")
    assert call.error.startswith(("auth (401)", "rests for"))


class Finishing(Talking):
    """Asks for a compaction in the middle of a turn, when it is told that something is done."""

    def __call__(self, request):
        asked = [str(one["content"]) for one in request.messages if one["role"] == "user"]
        called = any(one.get("tool_calls") for one in request.messages[-2:])
        if "is done" in asked[-1] and "handoff" not in asked[-1] and not called:
            return Reply.calling("compact_context", focus="the harbour master")
        return super().__call__(request)


def test_the_model_may_ask_for_a_compaction_where_it_is_offered(store, tmp_path):
    script, values = Finishing(), {"model.context_length": WINDOW, "agent.compact_tool": True}
    values["context.economics"] = "off"
    agent, model, events = agent_of(script, store, tmp_path, values=values, name="unheard-of")
    for number in range(9):
        assert run(agent, f"{number}: {TALK * 80}").reason == "done"
    assert not compacted(events)
    assert run(agent, "The harbour is done.").reason == "done"
    (made,) = compacted(events)
    assert made.reason == "asked for by the model"
    assert script.handoffs == 1
    assert any(
        "the harbour master" in request.text for request in model.received if "handoff" in request.text
    )
    assert not model.violations


class Insisting(Talking):
    """Asks for a compaction twice at once, and twice more in the same turn, when it is told that something is done."""

    def __init__(self):
        super().__init__()
        self.answers = []

    def __call__(self, request):
        last = request.messages[-1]
        if last["role"] == "tool":
            self.answers.append(last["content"])
        if last["role"] == "tool" and len(self.answers) < 3:
            return Reply.calling("compact_context")
        if last["role"] == "user" and "is done" in last["content"] and "handoff" not in last["content"]:
            call = Reply.calling("compact_context").calls[0]
            again = msgspec.structs.replace(call, id="call_again")
            return Reply(text="", calls=(call, again))
        return super().__call__(request)


@pytest.mark.parametrize("dense", [False, True])
def test_a_second_wish_in_one_turn_finds_nothing_new_to_compact(store, tmp_path, dense):
    """Also where the first one found nothing to gain."""
    script, values = Insisting(), {"model.context_length": WINDOW, "agent.compact_tool": True}
    values["context.economics"] = "off"
    agent, _, events = agent_of(script, store, tmp_path, values=values, name="unheard-of")
    for number in range(2 if dense else 9):
        assert run(agent, f"{number}: {TALK * 80}").reason == "done"
    assert run(agent, "The harbour is done.").reason == "done"
    assert len(compacted(events)) == script.handoffs == (0 if dense else 1)
    assert "Already asked for" in script.answers[0]
    assert [answer.partition(":")[0] for answer in script.answers[1:]] == ["Nothing new to compact"] * 2
    for number in range(8 if dense else 6):
        assert run(agent, f"{number}: {TALK * 80}").reason == "done"
    script.answers.clear()
    before = len(compacted(events))
    assert run(agent, "The pier is done.").reason == "done"
    assert len(compacted(events)) == before + 1  # there is enough that is new


@pytest.mark.parametrize("values", [{}, {"agent.compact_tool": True, "compression.enabled": False}])
def test_it_is_not_offered_unless_the_host_does_nor_where_compaction_is_off(store, tmp_path, values):
    agent, model, events = agent_of(Finishing(), store, tmp_path, values=values)
    assert run(agent, "The harbour is done.").reason == "done"
    assert "compact_context" not in str(model.received[0].tools)
    assert not compacted(events)
    (result,) = [one["content"] for one in model.received[-1].messages if one["role"] == "tool"]
    assert "compact_context" in result
    assert "no tool" in result


def test_a_person_who_finds_nothing_to_compress_does_not_make_automatic_compaction_rest(store, tmp_path):
    agent, _, events = agent_of([Reply(text="yes")], store, tmp_path, window_tokens=24_000)
    agent.context.append([{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}] * 3)
    for _ in range(4):
        assert asyncio.run(agent.compact("anything")) is None
    assert not [event for event in events if isinstance(event, Noticed)]
