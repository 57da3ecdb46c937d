"""Conversations through the whole gateway: what the provider is sent while a client sends everything each time."""

from __future__ import annotations

import asyncio
import io
import json
from itertools import pairwise

import aiohttp
import pytest
from tests.gateway.stateless_agent import KEY, LISTS, StatelessAgent, fitted_gateway

from penstock.accounts.display import format_sum
from penstock.accounts.usage import report_usage
from penstock.gateway.orders import Fit
from penstock.providers.cache_marks import strip_marks
from penstock.sessions.session import Session
from penstock.settings import settings_from
from penstock.stores.store import open_store
from penstock.testing import PromptCache
from penstock.testing.provider_server import ScriptedProvider
from penstock.testing.scripted import Reply

WINDOW = 16_000
RULE = "Never push to the branch release-7."
each_dialect = pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])


def settings(tmp_path, **given):
    return settings_from(
        {
            "gateway.port": 0,
            "gateway.drain_seconds": 0.5,
            "model.context_length": WINDOW,
            "store.url": f"sqlite:///{tmp_path}/gateway.db",
            **given,
        }
    )


def run(work):
    asyncio.run(work)


def result(turn, lines=40):
    return "\n".join(f"line {number} of run {turn}: value-{turn}-{number} ok" for number in range(lines))


def sent(provider):
    """The messages of each request that the provider got, as bytes without cache marks."""
    return [
        [strip_marks(json.dumps(message).encode(), one.dialect) for message in one.body[LISTS[one.dialect]]]
        for one in provider.received
    ]


async def work_on(agent, turns, *, lines=40, says=""):
    for turn in range(turns):
        if says and turn:
            agent.reply(says)
            agent.say(f"Run {turn} next.")
        agent.use_tool("terminal", {"command": f"run {turn}"}, result(turn, lines))
        status, _, body = await agent.ask()
        assert status == 200, body


@each_dialect
@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_outgrows_its_window_and_the_client_never_notices(dialect, stream, tmp_path):
    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True, window_tokens=WINDOW) as provider:
            async with fitted_gateway(provider, settings(tmp_path)) as (gateway, _, _):
                agent = StatelessAgent(gateway, dialect, stream=stream)
                agent.say(f"{RULE} Run everything.")
                await work_on(agent, 40)
            assert provider.violations == ()
            assert all(one.prompt_tokens <= WINDOW for one in provider.received)
            lists = sent(provider)
            assert len(lists) == 40  # nothing was refused and asked again
            compacted = {headers["x-penstock-compacted"] for _, headers, _ in agent.answers}
            assert compacted == {"no", "now", "before"}
            now = [
                n
                for n, (_, headers, _) in enumerate(agent.answers)
                if headers["x-penstock-compacted"] == "now"
            ]
            assert len(now) >= 2
            for number in range(1, 40):
                if number not in now:  # between compactions what was sent is the beginning of what is sent
                    before = lists[number - 1]
                    assert lists[number][: len(before)] == before
            assert RULE in json.dumps(provider.received[-1].body)
            assert "value-39-0" in json.dumps(provider.received[-1].body)
        (session,) = sessions_in(tmp_path)
        assert log_of(session) == [_bare(wire) for wire in agent.history]

    run(go())


def sessions_in(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/gateway.db")
    return [Session.resume(store, row.id) for row in store.list()]


def log_of(session):
    return [_bare(json.loads(entry.raw)) for entry in session.store.read_from(session.id, 0)]


def _bare(wire):
    """The message without its mark, and with its text as a list, whichever way it was sent."""
    wire = json.loads(strip_marks(json.dumps(wire).encode(), "anthropic"))
    if isinstance(wire.get("content"), str):
        wire["content"] = [{"type": "text", "text": wire["content"]}]
    return wire


@each_dialect
def test_a_worker_that_was_killed_goes_on_with_the_same_bytes(dialect, tmp_path):
    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True, window_tokens=WINDOW) as provider:
            async with fitted_gateway(provider, settings(tmp_path)) as (gateway, _, workers):
                agent = StatelessAgent(gateway, dialect)
                agent.say(f"{RULE} Run everything.")
                for turn in range(30):
                    agent.use_tool("terminal", {"command": f"run {turn}"}, result(turn))
                    if turn % 3 == 2:
                        workers.lose_all()
                    assert (await agent.ask())[0] == 200
            lists = sent(provider)
            assert provider.violations == ()
            assert len(lists) == 30
            now = {n for n, answer in enumerate(agent.answers) if answer[1]["x-penstock-compacted"] == "now"}
            assert now
            for number in range(1, 30):
                if number not in now:
                    assert lists[number][: len(lists[number - 1])] == lists[number - 1]
        (session,) = sessions_in(tmp_path)
        assert log_of(session) == [_bare(wire) for wire in agent.history]

    run(go())


@each_dialect
@pytest.mark.parametrize("stream", [False, True])
def test_a_window_that_nobody_knew_is_learned_from_its_refusal(dialect, stream, tmp_path):
    async def go():
        known = settings(tmp_path, **{"model.context_length": 200_000})
        async with ScriptedProvider(["Go on."], repeat_last=True, window_tokens=WINDOW) as provider:
            async with fitted_gateway(provider, known) as (gateway, _, _):
                few = {"max_tokens": 100} if dialect == "anthropic" else {}
                agent = StatelessAgent(gateway, dialect, stream=stream, **few)
                agent.say(f"{RULE} Run everything.")
                await work_on(agent, 40)
            refused = [
                one for one in provider.received if one.prompt_tokens + (one.max_output_tokens or 0) > WINDOW
            ]
            if (
                dialect == "responses"
            ):  # its refusal does not say how large the window is, and none is guessed
                assert 1 <= len(refused) <= 4
            else:
                assert len(refused) == 1
            raws = [one.raw for one in provider.received]
            assert len(set(raws)) == len(raws)  # no body was sent twice

    run(go())


@each_dialect
def test_what_cannot_be_made_smaller_is_refused_in_the_caller_s_words_and_not_sent_again(dialect, tmp_path):
    async def go():
        async with (
            ScriptedProvider(["Go on."], repeat_last=True, window_tokens=2_000) as provider,
            fitted_gateway(provider, settings(tmp_path)) as (gateway, _, _),
        ):
            agent = StatelessAgent(gateway, dialect, system="rule " * 3_000)
            agent.say("Hello?")
            first, asked = await agent.ask(), len(provider.received)
            again = await agent.ask()
            assert first[0] == again[0] == 400
            assert b"context_length_exceeded" in first[2] or b"prompt is too long" in first[2]
            assert len({one.raw for one in provider.received}) == len(provider.received) == asked

    run(go())


def test_a_request_with_messages_without_number_goes_through_as_it_came_and_says_so(tmp_path):
    messages = [{"role": "user", "content": "a"}] * 100_001

    async def talk():
        async with (
            ScriptedProvider(["Well."], window_tokens=10_000_000) as provider,
            fitted_gateway(provider, settings(tmp_path)) as (gateway, _, _),
            aiohttp.ClientSession() as session,
            session.post(
                f"{gateway.address}/v1/chat/completions",
                data=io.BytesIO(json.dumps({"model": "m", "messages": messages}).encode()),
                headers={"content-type": "application/json"},
            ) as answer,
        ):
            assert answer.status == 200, await answer.read()
            assert answer.headers["x-penstock-passed-through"] == "TooManyMessages"
            assert provider.received[0].body["messages"] == messages

    run(talk())
    # Nothing of it is kept.
    assert sessions_in(tmp_path) == []


def test_two_callers_never_share_a_conversation(tmp_path):
    async def go():
        async with (
            ScriptedProvider(["Go on."], repeat_last=True) as provider,
            fitted_gateway(provider, settings(tmp_path)) as (gateway, _, _),
        ):
            one, other = StatelessAgent(gateway, "chat"), StatelessAgent(gateway, "chat")
            other.headers["authorization"] = "Bearer made-up-key-of-somebody-else"
            for agent in (one, other):
                agent.say("The same words.")
                await work_on(agent, 3)
            ids = [{answer[1]["x-penstock-session"] for answer in agent.answers} for agent in (one, other)]
            assert len(ids[0]) == len(ids[1]) == 1
            assert ids[0] != ids[1]
        assert len(sessions_in(tmp_path)) == 2

    run(go())


@each_dialect
def test_a_target_and_a_count_of_the_compacted_view(dialect, tmp_path):
    async def go():
        large = settings(tmp_path, **{"model.context_length": 200_000})
        async with (
            ScriptedProvider(["Go on."], repeat_last=True) as provider,
            fitted_gateway(provider, large) as (gateway, _, _),
        ):
            agent = StatelessAgent(gateway, dialect)
            agent.say(f"{RULE} Run everything.")
            await work_on(agent, 10)
            _, headers, _ = await agent.ask(headers={"x-penstock-target-tokens": "3000"})
            assert headers["x-penstock-compacted"] == "now"
            last = provider.received[-1]
            assert last.prompt_tokens < 3_500 < int(headers["x-penstock-tokens-before"])
            agent.reply("Done so far.")
            agent.say("And now?")
            _, headers, _ = await agent.ask()
            assert headers["x-penstock-compacted"] == "before"
            whole = json.dumps(agent.body()).encode()
            await agent.ask(headers={"x-penstock-bypass": "1"}, data=whole)
            assert provider.received[-1].raw == whole
            if dialect == "anthropic":
                agent.url = f"{agent.url}/count_tokens"
                _, _, counted = await agent.ask()
                assert json.loads(counted)["input_tokens"] < 5_000

    run(go())


def test_after_a_restart_a_count_is_still_of_the_compacted_view(tmp_path):
    async def go():
        large = settings(tmp_path, **{"model.context_length": 200_000})
        async with ScriptedProvider(["Go on."], repeat_last=True) as provider:
            async with fitted_gateway(provider, large) as (gateway, _, _):
                agent = StatelessAgent(gateway, "anthropic")
                agent.say(f"{RULE} Run everything.")
                await work_on(agent, 10)
                _, headers, _ = await agent.ask(headers={"x-penstock-target-tokens": "3000"})
            rows = len(sessions_in(tmp_path))
            async with fitted_gateway(provider, large) as (gateway, _, _):
                agent.url = f"{gateway.address}/v1/messages/count_tokens"
                _, _, counted = await agent.ask()
                assert json.loads(counted)["input_tokens"] < 3_500 < int(headers["x-penstock-tokens-before"])
                agent.history = agent.history[:1]
                status, _, _ = await agent.ask()  # never seen: counted as it is, and not kept
                assert status == 200
        assert len(sessions_in(tmp_path)) == rows

    run(go())


@each_dialect
def test_a_request_that_is_repeated_shortened_or_edited(dialect, tmp_path):
    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True, window_tokens=WINDOW) as provider:
            async with fitted_gateway(provider, settings(tmp_path)) as (gateway, _, _):
                agent = StatelessAgent(gateway, dialect)
                agent.say(f"{RULE} Run everything.")
                await work_on(agent, 25)
                sessions = {answer[1]["x-penstock-session"] for answer in agent.answers}
                assert len(sessions) == 1
                both = await asyncio.gather(agent.ask(), agent.ask())  # a retry, while the first still runs
                assert {answer[1]["x-penstock-session"] for answer in both} == sessions
                assert provider.received[-1].raw == provider.received[-2].raw
                whole = list(agent.history)
                agent.history = [*whole[:-4]]
                agent.say("No: do something else.")
                await work_on(agent, 2)
                assert {answer[1]["x-penstock-session"] for answer in agent.answers[-2:]} - sessions
                assert all("do something else" in json.dumps(one.body) for one in provider.received[-2:])
                agent.history = whole
                await work_on(agent, 2)
                assert agent.answers[-1][1]["x-penstock-session"] in sessions
            assert provider.violations == ()
        logs = [log_of(session) for session in sessions_in(tmp_path)]
        assert [_bare(wire) for wire in agent.history] in logs

    run(go())


@each_dialect
@pytest.mark.parametrize("named", [True, False])
def test_an_earlier_request_that_comes_again_does_not_draw_the_conversation_away(dialect, named, tmp_path):
    """It becomes a branch that is shorter than the conversation, and begins as it does, byte for byte."""

    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True, window_tokens=WINDOW) as provider:
            async with fitted_gateway(provider, settings(tmp_path)) as (gateway, _, _):
                agent = StatelessAgent(gateway, dialect)
                if dialect != "anthropic":  # its mark moves: no beginning is the same
                    agent.fields["tools"] = [
                        {"type": "function", "name": "terminal", "function": {"name": "x"}}
                    ]
                if named:
                    agent.headers["x-session-id"] = "one of this client's"
                agent.say(f"{RULE} Run everything.")
                await work_on(agent, 24)
                before = sent(provider)[-1]
                assert agent.answers[-1][1]["x-penstock-compacted"] == "before"
                whole, agent.history = agent.history, agent.history[: 8 if dialect == "chat" else 7]
                status, headers, _ = await agent.ask()
                assert status == 200
                assert headers["x-penstock-session"] != agent.answers[0][1]["x-penstock-session"]
                agent.history = whole
                await work_on(agent, 1, lines=5)
                assert agent.answers[-1][1]["x-penstock-session"] == agent.answers[0][1]["x-penstock-session"]
                assert sent(provider)[-1][: len(before)] == before
            assert provider.violations == ()
        logs = [log_of(session) for session in sessions_in(tmp_path)]
        assert sorted(map(len, logs))[1:] == [len(agent.history)]

    run(go())


@each_dialect
@pytest.mark.parametrize("knows_window", [True, False])
def test_two_requests_at_once_that_are_too_large_and_of_which_one_is_the_beginning_of_the_other(
    dialect, knows_window, tmp_path
):
    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True, window_tokens=WINDOW) as provider:
            given = {} if knows_window else {"model.context_length": None}
            async with fitted_gateway(provider, settings(tmp_path, **given)) as (gateway, _, _):
                agents = [StatelessAgent(gateway, dialect) for _ in range(2)]
                for agent in agents:
                    agent.say(f"{RULE} Run everything.")
                await work_on(agents[0], 2)
                for agent, turns in zip(agents, ((2, 30), (0, 29)), strict=True):
                    for turn in range(*turns):
                        agent.use_tool("terminal", {"command": f"run {turn}"}, result(turn))
                for status, headers, body in await asyncio.gather(*(agent.ask() for agent in agents)):
                    assert status == 200, body
                    assert headers["x-penstock-compacted"] != "no"
            if knows_window:
                assert all(one.prompt_tokens <= WINDOW for one in provider.received)
        logs = [log_of(session) for session in sessions_in(tmp_path)]
        assert [_bare(wire) for wire in agents[0].history] in logs

    run(go())


def test_a_conversation_that_comes_under_many_names_is_held_under_one(tmp_path):
    async def go():
        async with (
            ScriptedProvider(["Go on."], repeat_last=True) as provider,
            fitted_gateway(provider, settings(tmp_path)) as (gateway, fitter, _),
        ):
            agent = StatelessAgent(gateway, "chat", tools=[{"type": "function", "function": {"name": "x"}}])
            for turn in range(8):
                agent.say(f"Question {turn}.")
                agent.reply(f"Answer {turn}.")
            agent.say("And now?")
            for name in range(5):  # spelled otherwise each time, so far back that only its log knows it
                agent.headers["x-session-id"] = f"name {name}"
                agent.history[1] = {
                    "role": "user",
                    "content": [{"type": "text", "text": "Question 0."}],
                    "name": None,
                }
                agent.history[1]["x" * name] = None
                assert (await agent.ask())[0] == 200
            (conversation,) = {answer[1]["x-penstock-session"] for answer in agent.answers}
            held = fitter._tracker._by_hint
            assert [(name, found) for (_, name, _), found in held.items()] == [("name 4", conversation)]

    run(go())


def test_what_the_client_spells_otherwise_the_next_time_is_sent_as_the_first_time(tmp_path):
    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True) as provider:
            async with fitted_gateway(provider, settings(tmp_path)) as (gateway, _, _):
                agent = StatelessAgent(gateway, "anthropic")
                for turn in range(8):
                    agent.say(f"Question {turn}: {result(turn, 5)}")
                    assert (await agent.ask())[0] == 200
                    agent.reply(f"Answer {turn}.")
            lists = sent(provider)
            for before, after in pairwise(lists):
                assert after[: len(before)] == before
            for one in provider.received:  # one mark each, at the newest message
                assert json.dumps(one.body["messages"]).count("cache_control") == 1
                assert "cache_control" in json.dumps(one.body["messages"][-1])

    run(go())


@each_dialect
def test_a_worker_that_ends_while_it_compacts_does_not_let_the_request_out_too_large(dialect, tmp_path):
    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True, window_tokens=WINDOW) as provider:
            async with fitted_gateway(provider, settings(tmp_path)) as (gateway, _, workers):
                agent = StatelessAgent(gateway, dialect)
                agent.say(f"{RULE} Run everything.")
                await work_on(agent, 3)
                workers.lose_all_at_next(Fit)
                for turn in range(3, 24):
                    agent.use_tool("terminal", {"command": f"run {turn}"}, result(turn))
                status, headers, body = await agent.ask()
                assert status == 200, body
                assert headers["x-penstock-compacted"] == "now"
            assert len(provider.received) == 4
            assert all(one.prompt_tokens <= WINDOW for one in provider.received)
        (session,) = sessions_in(tmp_path)
        assert log_of(session) == [_bare(wire) for wire in agent.history]

    run(go())


@each_dialect
@pytest.mark.parametrize("leaves", ["the client", "the upstream"])
def test_of_a_request_that_is_broken_off_the_books_say_at_least(dialect, leaves, tmp_path):
    slow = (
        Reply("word " * 30, chunk_delay_seconds=60)
        if leaves == "the client"
        else Reply("a", cut_after_chunks=1)
    )

    fields = {"stream_options": {"include_usage": True}} if dialect == "chat" else {}

    async def go():
        async with (
            ScriptedProvider(["Go on.", slow]) as provider,
            fitted_gateway(provider, settings(tmp_path)) as (gateway, fitter, _),
        ):
            agent = StatelessAgent(gateway, dialect, stream=True, model="gpt-5-mini", **fields)
            agent.say("Run everything.")
            assert (await agent.ask())[0] == 200
            agent.reply("Go on.")
            agent.say("And now?")
            asking = asyncio.create_task(agent.ask())
            if leaves == "the client":
                async with asyncio.timeout(30):
                    while len(provider.received) < 2:  # noqa: ASYNC110 - the provider has no event for it
                        await asyncio.sleep(0.01)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                assert await provider.wait_for_disconnects()
            else:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await asyncio.wait_for(asking, 30)
            await fitter.finish_beside()

    run(go())
    found = report_usage(open_store(f"sqlite:///{tmp_path}/gateway.db")).total
    assert found.unreported == 1
    assert format_sum(found.cost, found.known_cost).startswith("at least $")


def test_an_answer_without_a_report_is_booked_as_such(tmp_path):
    async def go():
        async with (
            ScriptedProvider(["Go on."]) as provider,
            fitted_gateway(provider, settings(tmp_path)) as (gateway, fitter, _),
        ):
            agent = StatelessAgent(gateway, "chat", stream=True)  # which does not ask for a usage
            agent.say("Run everything.")
            assert (await agent.ask())[0] == 200
            await fitter.finish_beside()

    run(go())
    assert report_usage(open_store(f"sqlite:///{tmp_path}/gateway.db")).total.unreported == 1


def test_at_the_threshold_no_more_is_kept_than_where_a_compaction_pays(tmp_path):
    """What is kept is paid for with each request: with an hour's cache, too much of it is dearer than a late compaction."""

    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True, prompt_cache=PromptCache()) as provider:
            wide = settings(tmp_path, **{"model.context_length": 200_000})
            async with fitted_gateway(provider, wide) as (gateway, _, _):
                agent = StatelessAgent(gateway, "anthropic", model="claude-opus-4-8")
                agent.say(f"{RULE} Run everything.")
                await work_on(agent, 2)
                for turn in range(2, 28):
                    agent.use_tool("terminal", {"command": f"run {turn}"}, result(turn, 300))
                _, headers, _ = await agent.ask()
                assert headers["x-penstock-compacted"] == "now"
                assert int(headers["x-penstock-tokens-before"]) > 100_000
                assert int(headers["x-penstock-tokens-after"]) < 33_000

    run(go())


REMINDER = "\n\nAnswer with edit blocks only."


def prefix_lengths(provider):
    """Of each request but the first: how many messages it begins with as the one before it did, and how many that had."""
    lists = sent(provider)
    for before, after in pairwise(lists):
        same = 0
        while same < min(len(before), len(after)) and before[same] == after[same]:
            same += 1
        yield same, len(before)


@pytest.mark.parametrize("dialect", ["chat", "anthropic"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_client_that_shortens_its_newest_message_once_it_is_answered(dialect, restarts, tmp_path):
    """As aider does, whose reminder of the format stands behind the newest message alone."""

    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True, window_tokens=WINDOW) as provider:
            async with fitted_gateway(provider, settings(tmp_path)) as (gateway, _, workers):
                agent = StatelessAgent(gateway, dialect)
                agent.say("Look at these.")
                agent.reply("I will.")
                for turn in range(35):
                    said = f"Question {turn}: {result(turn)}"
                    agent.say(said + REMINDER)
                    if restarts and turn % 5 == 4:
                        workers.lose_all()
                    assert (await agent.ask())[0] == 200
                    agent.history[-1] = {"role": "user", "content": said}
                    agent.reply(f"Answer {turn}.")
            now = [n for n, answer in enumerate(agent.answers) if answer[1]["x-penstock-compacted"] == "now"]
            assert 1 <= len(now) <= 4
            for number, (same, before) in enumerate(prefix_lengths(provider), 1):
                if number not in now:
                    assert same == before
            assert all(one.prompt_tokens <= WINDOW for one in provider.received)
            assert provider.violations == ()
        (session,) = sessions_in(tmp_path)
        assert len(log_of(session)) == len(agent.history) - 1

    run(go())


@pytest.mark.parametrize("dialect", ["chat", "anthropic"])
def test_words_that_a_person_takes_back_are_not_sent_again(dialect, tmp_path):
    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True) as provider:
            async with fitted_gateway(provider, settings(tmp_path)) as (gateway, _, _):
                agent = StatelessAgent(gateway, dialect)
                agent.say("Hello?")
                assert (await agent.ask())[0] == 200
                agent.reply("Yes?")
                agent.say("Show the branches. Then delete them all.")
                assert (await agent.ask())[0] == 200
                agent.history[-1] = {"role": "user", "content": "Show the branches."}
                assert (await agent.ask())[0] == 200
                agent.reply("Here they are.")
                agent.say("Thanks.")
                assert (await agent.ask())[0] == 200
            for one in provider.received[-2:]:
                assert "delete them" not in json.dumps(one.body)

    run(go())


@pytest.mark.parametrize("dialect", ["chat", "anthropic"])
def test_a_newest_message_with_more_behind_it_goes_on_from_the_compacted_view(dialect, tmp_path):
    """As Claude Code's own compaction does: its prompt stands behind what was there."""

    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True, window_tokens=WINDOW) as provider:
            async with fitted_gateway(provider, settings(tmp_path)) as (gateway, _, _):
                agent = StatelessAgent(gateway, dialect)
                agent.say(f"{RULE} Run everything.")
                for turn in range(60):
                    agent.use_tool("terminal", {"command": f"run {turn}"}, result(turn))
                    agent.reply("And?")
                    agent.say(f"Go on with {turn}.")
                    assert (await agent.ask())[0] == 200
                    if agent.answers[-1][1]["x-penstock-compacted"] == "now":
                        break
                last = agent.history[-1]
                agent.history[-1] = {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": last["content"] + "\n"},
                        {"type": "text", "text": "Summarise all of it."},
                    ],
                }
                _, headers, _ = await agent.ask()
                assert headers["x-penstock-compacted"] == "before"
            *_, (same, before) = prefix_lengths(provider)
            assert same == before - 1
            assert "Summarise all of it." in json.dumps(provider.received[-1].body)
            assert provider.violations == ()

    run(go())


def test_system_messages_inside_anthropics_list_pass_and_survive_compactions(tmp_path):
    """As Claude Code sends them: as the second message, and later between turns."""

    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True, window_tokens=WINDOW) as provider:
            async with fitted_gateway(provider, settings(tmp_path)) as (gateway, _, _):
                agent = StatelessAgent(gateway, "anthropic")
                agent.headers["anthropic-beta"] = (
                    "mid-conversation-system-2026-04-07,something-new-2027-01-01"
                )
                agent.url += "?beta=true"
                agent.say(f"{RULE} Run everything.")
                agent.history.append({"role": "system", "content": "The date is 2026-11-18."})
                for turn in range(45):
                    agent.use_tool("terminal", {"command": f"run {turn}"}, result(turn))
                    if turn % 10 == 9:
                        agent.history.append({"role": "system", "content": f"Reminder {turn}: tidy up."})
                    status, _, body = await agent.ask()
                    assert status == 200, body
            now = [answer for answer in agent.answers if answer[1]["x-penstock-compacted"] == "now"]
            assert len(now) >= 2
            assert all(one.prompt_tokens <= WINDOW for one in provider.received)
            last = provider.received[-1]
            assert last.headers["anthropic-beta"] == agent.headers["anthropic-beta"]
            assert RULE in json.dumps(last.body)
            assert provider.violations == ()
        (session,) = sessions_in(tmp_path)
        assert len(log_of(session)) == len(agent.history)

    run(go())


REMINDER = """<system-reminder>
As you answer, you can use the following context:
# claudeMd
Contents of /work/shop/CLAUDE.md (project instructions, checked into the codebase):

- Run `make check-prices` before each commit.
- The column `amount_cents` is never a float.
</system-reminder>
"""
SKILL = """Base directory for this skill: /work/.skills/release

# Release
1. Tag with `git tag -s shop-<version>`.
2. Publish only through `tools/publish --staging`.
"""
FILE = "\n".join(
    [
        "     1\tMAX_BASKET_ROWS = 417",
        "     2\tPRICES_URL = 'https://prices.shop.test/v3'",
        *(f"{n:>6}\t    rows.append(parse_row(line_{n}, strict=True))" for n in range(3, 160)),
    ]
)
UNCHANGED = "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead."


def test_rules_skills_and_a_file_that_is_not_shown_again_are_found_behind_two_compactions(tmp_path):
    """Claude Code sends them once: what a compaction took away would never come back."""

    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True, window_tokens=WINDOW) as provider:
            async with fitted_gateway(provider, settings(tmp_path)) as (gateway, _, _):
                agent = StatelessAgent(gateway, "anthropic")
                parts = [REMINDER, "Put the prices of the shop right."]
                agent.history.append(
                    {"role": "user", "content": [{"type": "text", "text": text} for text in parts]}
                )
                agent.use_tool("Skill", {"skill": "release"}, SKILL)
                agent.use_tool("Read", {"file_path": "/work/shop/basket.py"}, FILE)
                await work_on(agent, 40)
                agent.use_tool("Read", {"file_path": "/work/shop/basket.py"}, UNCHANGED)
                await work_on(agent, 2)
            now = [answer for answer in agent.answers if answer[1]["x-penstock-compacted"] == "now"]
            assert len(now) >= 2
            last = json.dumps(provider.received[-1].body)
            rules = ("make check-prices", "amount_cents", "git tag -s shop-", "tools/publish --staging")
            assert [rule for rule in rules if rule not in last] == []
            assert "MAX_BASKET_ROWS = 417" in last
            assert "prices.shop.test/v3" in last
            assert provider.violations == ()

    run(go())


SUMMARY = "## Goal\nRun everything, and note value-3-3.\n"
SAID = " ".join(
    f"Step {number} went well and is noted." for number in range(60)
)  # eliding leaves it as it is


@each_dialect
@pytest.mark.parametrize("way", ["extractive", "same", "elsewhere"])
def test_who_writes_a_handoff_and_with_whose_key(dialect, way, tmp_path):
    """Nobody but Penstock unless the settings say so; another model never gets the caller's key."""

    async def go():
        async with (
            ScriptedProvider(["Go on."], repeat_last=True, window_tokens=48_000) as provider,
            ScriptedProvider([SUMMARY], repeat_last=True) as writer,
        ):
            summarise = writer.base_url if way == "elsewhere" else way
            # Where a compaction pays before the threshold, no model is asked: here it is due at the threshold alone.
            chosen = settings(
                tmp_path,
                **{
                    "gateway.summarise": summarise,
                    "context.economics": "off",
                    "model.context_length": 48_000,  # with room for a model's words
                },
            )
            async with fitted_gateway(provider, chosen) as (gateway, _, _):
                agent = StatelessAgent(gateway, dialect)
                agent.say(f"{RULE} Run everything.")
                await work_on(agent, 40, lines=100, says=SAID)
            own = len(provider.received) - 40  # beside the agent's own requests
            if way == "extractive":
                assert (own, len(writer.received)) == (0, 0)
            elif way == "same":
                assert own >= 2
                assert not writer.received
            else:
                assert own == 0
                assert len(writer.received) >= 2
                assert all(KEY not in json.dumps(dict(one.headers)) for one in writer.received)
                assert "note value-3-3" in json.dumps(provider.received[-1].body)
            assert all(KEY in json.dumps(dict(one.headers)) for one in provider.received)

    run(go())


@pytest.mark.parametrize("mode", ["digests", "off"])
def test_what_a_request_may_not_have_kept_is_nowhere_on_disk(mode, tmp_path):
    async def go():
        async with ScriptedProvider(["Go on."], repeat_last=True, window_tokens=WINDOW) as provider:
            async with fitted_gateway(provider, settings(tmp_path)) as (gateway, _, workers):
                agent = StatelessAgent(gateway, "chat")
                agent.headers["x-penstock-store"] = mode
                agent.say(f"{RULE} Run everything.")
                await work_on(agent, 30)
                await workers.conversations.flush()
            assert any(answer[1]["x-penstock-compacted"] == "now" for answer in agent.answers)
            assert all(one.prompt_tokens <= WINDOW for one in provider.received)
        assert sessions_in(tmp_path) == []
        written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert b"release-7" not in written
        assert b"value-3-3" not in written

    run(go())
