"""What the loop does about refusals, and what it keeps of them."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from agent_talk import TALK, agent_of, run

from penstock.agent.assembly import AgentPlace, make_agent
from penstock.context.recovery import GiveUp, LowerCap, Shrink, next_step
from penstock.errors import ErrorClass, ErrorKind
from penstock.loop.agent import TurnLimits
from penstock.loop.events import Compacted, Recovering
from penstock.planning.policy import Policy
from penstock.providers.connect import connect
from penstock.settings import CompressionSettings, settings_from
from penstock.testing import PromptCache, Reply, ScriptedModel, ScriptedProvider

POLICY = Policy.of(CompressionSettings(), 200_000)


def talked(agent, turns=6):
    for number in range(turns):
        assert run(agent, f"question {number}: {TALK * 120}").reason == "done"


class Refusing:
    """Answers, but for what it is told to refuse."""

    def __init__(self):
        self.refusals = []
        self.sizes = []

    def __call__(self, request):
        if not request.body.get("tools"):
            return Reply(text="Nothing to add.")
        self.sizes.append(request.prompt_tokens)
        return self.refusals.pop(0) if self.refusals else Reply(text="an answer, " * 60)


def test_a_prompt_that_stays_too_long_ends_in_one_clear_error_each_try_smaller(store, tmp_path):
    script = Refusing()
    agent, _, events = agent_of(script, store, tmp_path)
    talked(agent)
    script.sizes.clear()
    script.refusals = [Reply.too_long(window=1_100, prompt=90_000)] * 9
    ended = run(agent, "go on")
    assert ended.reason == "failed"
    assert "compression.max_attempts" in ended.what or "tokens" in ended.what
    assert all(way in ended.what for way in ("/compress", "/new", "larger window"))
    assert len(script.sizes) <= 4
    assert script.sizes == sorted(set(script.sizes), reverse=True)
    script.refusals = []
    assert agent.session.view() == agent.context.view
    assert [event.what for event in events if isinstance(event, Recovering)]


class RefusingSteps:
    """Reads a file again and again; each step it is refused once, for the whole turn or until its answer is asked for."""

    def __init__(self, refusals):
        self.left = refusals
        self.calls = 0
        self.refused = False

    def __call__(self, request):
        if not request.body.get("tools"):
            return Reply(text="Nothing to add.")
        self.refused = not self.refused
        if self.refused and self.left:
            self.left -= 1
            return Reply.payload_too_large()
        self.calls += 1
        return (
            Reply.calling("read_file", path="note.txt", line=self.calls) if self.left else Reply(text="Done.")
        )


@pytest.mark.parametrize(("refusals", "reason"), [(3, "done"), (4, "failed")])
def test_the_attempts_of_a_turn_are_those_of_all_its_requests(store, tmp_path, refusals, reason):
    (tmp_path / "note.txt").write_text(f"{TALK}\n" * 400)
    agent, _, events = agent_of(Refusing(), store, tmp_path)
    talked(agent, 24)
    agent.asking.model = ScriptedModel(RefusingSteps(refusals))
    ended = run(agent, "go on")
    assert ended.reason == reason
    assert len([event for event in events if isinstance(event, Compacted)]) == 3
    assert ("3 attempts in this turn (compression.max_attempts)" in ended.what) is (reason == "failed")
    agent.asking.model = ScriptedModel(Refusing())
    talked(agent, 24)  # so that there is something to give way again
    agent.asking.model = ScriptedModel(RefusingSteps(1))
    assert run(agent, "go on").reason == "done"  # a new turn begins to count anew


def test_a_host_that_names_no_turns_has_its_attempts_for_each_request(store, tmp_path):
    script = Refusing()
    agent, _, events = agent_of(script, store, tmp_path)

    async def talk():
        for number in range(5):
            agent.context.append([{"role": "user", "content": f"question {number}: {TALK * 300}"}])
            script.refusals = [Reply.payload_too_large()] if number else []
            answer = await agent.asking.ask(1, None)
            agent.context.append(answer.wires)

    asyncio.run(talk())
    assert len([event for event in events if isinstance(event, Compacted)]) == 4


def test_off_means_off_when_a_provider_refuses_and_the_person_is_told_what_to_do(store, tmp_path):
    script = Refusing()
    agent, _, events = agent_of(script, store, tmp_path, values={"compression.enabled": False})
    talked(agent)
    script.sizes.clear()
    script.refusals = [Reply.too_long(window=9_000, prompt=9_500)]
    ended = run(agent, "go on")
    assert ended.reason == "failed"
    assert len(script.sizes) == 1
    assert "compression.enabled" in ended.what
    assert "/compress" in ended.what
    assert not any(isinstance(event, (Compacted, Recovering)) for event in events)
    assert not store.compactions(agent.session.id)
    assert asyncio.run(agent.compact()) is not None  # by hand it goes
    assert run(agent, "go on").reason == "done"


def test_the_window_that_a_refusal_states_is_kept_for_the_next_session(store, tmp_path):
    script = Refusing()
    agent, model, _ = agent_of(script, store, tmp_path, name="unheard-of")
    talked(agent)
    script.refusals = [Reply.too_long(window=9_000, prompt=9_500)]
    assert run(agent, "go on").reason == "done"
    assert agent.context.engine.context_length == 9_000
    again, _, _ = agent_of(Refusing(), store, tmp_path, name="unheard-of")
    assert again.session.window.tokens == 9_000
    assert not model.violations


class Capped:
    """Answers within a cap that the provider states when it is asked for more."""

    def __init__(self, cap):
        self.cap = cap
        self.asked = []

    def __call__(self, request):
        asked = request.body.get("max_tokens")
        self.asked.append(asked)
        return (
            Reply.output_cap(cap=self.cap, asked=asked) if asked and asked > self.cap else Reply(text="Yes.")
        )


def test_the_longest_answer_that_a_refusal_states_is_kept_for_the_next_call_and_the_next_session(
    store, tmp_path
):
    script = Capped(4_096)
    options = {"dialect": "anthropic", "name": "claude-3-haiku"}
    agent, _, events = agent_of(script, store, tmp_path, **options)
    assert run(agent, "one").reason == "done"
    assert run(agent, "two").reason == "done"
    assert script.asked == [32_000, 4_096, 4_096]
    assert len([event for event in events if isinstance(event, Recovering)]) == 1
    assert not any(isinstance(event, Compacted) for event in events)
    again, _, _ = agent_of(script, store, tmp_path, **options)
    assert run(again, "three").reason == "done"
    assert script.asked[3:] == [4_096]
    other, _, _ = agent_of(script, store, tmp_path, dialect="anthropic", name="claude-sonnet-4-5")
    assert run(other, "four").reason == "done"
    assert script.asked[4] == 32_000  # nothing is known of that one


def test_what_the_prompt_leaves_of_the_window_is_for_one_call_only(store, tmp_path):
    script = Refusing()
    agent, _, _ = agent_of(script, store, tmp_path, name="gpt-4.1")
    agent.limits = TurnLimits(max_output_tokens=8_000)
    script.refusals = [Reply.output_over_window(window=20_000, prompt=15_000, asked=8_000)]
    assert run(agent, "go on").reason == "done"
    assert agent.session.workings.output_cap is None
    assert agent.session.window.tokens != 20_000


def test_what_is_asked_for_fits_beside_the_prompt(store, tmp_path):
    script = Capped(64_000)
    values = {"model.context_length": 40_000}
    agent, _, _ = agent_of(script, store, tmp_path, dialect="anthropic", values=values)
    agent.context.append([{"role": "user", "content": TALK * 2_500}])
    expected = agent.context.tokens()
    assert run(agent, "one").reason == "done"
    assert script.asked[0] < 40_000 - expected
    assert script.asked[0] > 10_000


@pytest.mark.parametrize("refusal", [Reply.payload_too_large(), Reply.too_long(window=1_100, prompt=1_500)])
def test_a_request_that_cannot_be_made_smaller_ends_in_one_error_that_names_its_parts(
    store, tmp_path, refusal
):
    script = Refusing()
    agent, _, _ = agent_of(script, store, tmp_path, name="unheard-of")
    script.refusals = [refusal] * 9
    ended = run(agent, "hello")
    assert ended.reason == "failed"
    assert "nothing more can be dropped from the request: it has system prompt " in ended.what
    assert re.search(
        r"tools [\d,]+, last user message 5 tokens; .*/compress.*/new.*larger window", ended.what
    )
    assert len(script.sizes) <= 4


@pytest.mark.parametrize("factor", [1.0, 1.6])
def test_a_refusal_has_the_conversation_compacted_to_the_target_and_the_next_turns_leave_it(
    store, tmp_path, factor
):
    script = Refusing()
    agent, model, events = agent_of(script, store, tmp_path, name="unheard-of", token_factor=factor)
    talked(agent, 20)
    window = int(agent.context.tokens() * 0.98)
    script.refusals = [Reply.too_long(window=window, prompt=agent.context.tokens())]
    assert run(agent, "go on").reason == "done"
    assert agent.context.engine.context_length == window
    budgets = agent.context.policy.budgets
    outside = agent.context.outside_tokens * factor
    after = model.received[-1].prompt_tokens
    assert after <= budgets.target_tokens(0) + outside < 0.75 * budgets.threshold_tokens
    talked(agent, 3)
    assert len([event for event in events if isinstance(event, Compacted)]) == 1


@pytest.mark.parametrize("told", [True, False])
def test_no_request_for_a_summary_is_as_large_as_what_was_refused(store, tmp_path, told):
    asked = []

    class Writing(Refusing):
        def __call__(self, request):
            if "handoff" in str(request.messages[-1]["content"]):
                asked.append(request.prompt_tokens)
                return Reply(text="## Goal\nTo speak of the harbour.")
            return super().__call__(request)

    script = Writing()
    agent, _, events = agent_of(script, store, tmp_path, name="unheard-of", token_factor=1.3)
    talked(agent, 20)
    sent = agent.context.tokens()
    refusal = (
        Reply.too_long(window=int(sent * 0.9), prompt=sent)
        if told
        else Reply.failing(400, {"error": {"message": "prompt is too long", "type": "invalid_request_error"}})
    )
    script.refusals = [refusal]
    assert run(agent, "go on").reason == "done"
    assert max(asked, default=0) <= 0.9 * sent
    # What is over a window that is known is an emergency: no model is asked.
    assert [bool(event.receipt.model) for event in events if isinstance(event, Compacted)] == [not told]


@pytest.mark.outside
def test_a_wait_for_a_provider_is_told(store, tmp_path):
    told = []

    async def go():
        replies = [Reply.rate_limited(1.4), Reply(text="fine")]
        async with ScriptedProvider(replies) as server:
            model = connect("openai", "gpt-4.1", base_url=f"{server.base_url}/v1")
            place = AgentPlace(folder=tmp_path, store=store, tell=told.append, yes=True)
            agent = make_agent(place, model, settings_from({}))
            assert (await agent.turn("hello")).reason == "done"
            await agent.aclose()
            await model.aclose()

    asyncio.run(go())
    (wait,) = [event for event in told if isinstance(event, Recovering)]
    assert (wait.what, wait.step) == ("rate limit", "asking again in 2 s")


def test_a_body_that_is_too_large_is_made_half_as_large(store, tmp_path):
    script = Refusing()
    agent, _, events = agent_of(script, store, tmp_path)
    talked(agent)
    script.sizes.clear()
    script.refusals = [Reply.payload_too_large()]
    assert run(agent, "go on").reason == "done"
    assert any(isinstance(event, Compacted) for event in events)
    assert script.sizes[1] < 0.7 * script.sizes[0]


@pytest.mark.parametrize("refusal", [Reply.unauthorised(), Reply.quota_exceeded()])
def test_what_compacting_cannot_help_compacts_nothing(store, tmp_path, refusal):
    script = Refusing()
    agent, _, events = agent_of(script, store, tmp_path)
    talked(agent, 2)
    script.refusals = [refusal]
    assert run(agent, "go on").reason == "failed"
    assert not any(isinstance(event, (Compacted, Recovering)) for event in events)
    assert run(agent, "again").reason == "done"


def test_requests_to_claude_are_marked_and_the_cache_is_read(store, tmp_path):
    from pathlib import Path

    from penstock.testing import ScriptedModel

    model = ScriptedModel(
        [Reply(text="an answer, " * 300)],
        name="claude-sonnet-4-5",
        dialect="anthropic",
        repeat_last=True,
        prompt_cache=PromptCache(),
    )
    place = AgentPlace(folder=Path(tmp_path), store=store, tell=lambda event: None, yes=True)
    agent = make_agent(place, model, settings_from({}), provider="anthropic")
    talked(agent, 5)
    body = model.received[-1].body
    assert 1 <= json.dumps(body).count('"cache_control"') <= 4
    reads = [row.usage.cache_read_tokens for row in store.usage(session_id=agent.session.id)]
    assert reads == sorted(reads)
    assert reads[-1] > reads[1] > 0
    assert agent.status().cache_hit > 0.3
    assert "on for claude-sonnet-4-5" in agent.status().caching


@pytest.mark.parametrize("attempt", [1, 2, 3])
@pytest.mark.parametrize("sent", [900, 50_000, 900_000])
@pytest.mark.parametrize("window", [None, 1_100, 8_000, 200_000])
def test_every_step_is_smaller_than_what_was_refused(attempt, sent, window):
    for kind in (ErrorKind.PROMPT_TOO_LONG, ErrorKind.PAYLOAD_TOO_LARGE):
        failure = ErrorClass(kind, window_tokens=window, prompt_tokens=sent)
        step = next_step(failure, POLICY, sent_tokens=sent, max_output_tokens=4_000, attempt=attempt)
        assert isinstance(step, Shrink)
        assert step.sent_tokens == sent
        for target in (0, 500, 40_000, 10**9):
            sizes = step.aim(target)
            assert 0 <= sizes[0] <= sizes[-1] == step.most_tokens < sent
            assert sizes[0] <= min(target, 0.75 * sent)
            assert window is None or kind is ErrorKind.PAYLOAD_TOO_LARGE or sizes[-1] <= 0.95 * window
    failure = ErrorClass(ErrorKind.OUTPUT_CAP_TOO_LARGE, window_tokens=window, prompt_tokens=sent)
    step = next_step(failure, POLICY, sent_tokens=sent, max_output_tokens=4_000, attempt=attempt)
    assert (isinstance(step, LowerCap) and step.max_output_tokens < 4_000) or isinstance(step, Shrink)
    late = next_step(failure, POLICY, sent_tokens=sent, max_output_tokens=4_000, attempt=4)
    assert isinstance(late, GiveUp)
    off = Policy.of(CompressionSettings(enabled=False), 200_000)
    for kind in (ErrorKind.PROMPT_TOO_LONG, ErrorKind.PAYLOAD_TOO_LARGE):
        failure = ErrorClass(kind, window_tokens=window, prompt_tokens=sent)
        step = next_step(failure, off, sent_tokens=sent, max_output_tokens=4_000, attempt=attempt)
        assert isinstance(step, GiveUp)
