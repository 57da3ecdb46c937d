"""The agent's loop, against a scripted model that refuses what its API would refuse."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest
from agent_talk import DIALECTS, TALK, agent_of, pause, run

from penstock.agent.assembly import AgentPlace, make_agent
from penstock.engine.contract import CompactionWish
from penstock.errors import ErrorKind, SettingsError
from penstock.loop.approvals import ApprovalReply as Answer
from penstock.loop.events import (
    Compacted,
    Compacting,
    Noticed,
    Recovering,
    Said,
    ToolEnded,
    ToolLine,
    ToolStarted,
    Used,
)
from penstock.sessions.session import Session
from penstock.settings import settings_from
from penstock.testing import PromptCache, Reply, ScriptedModel


async def until(happened):
    for _ in range(2_000):
        if happened():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never happened")


@pytest.mark.outside
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_turn_with_tools_ends_with_the_files_on_disk(store, tmp_path, dialect):
    replies = [
        Reply.calling("write_file", path="notes/a.txt", content="one\ntwo\n"),
        Reply.calling("terminal", command="wc -l < notes/a.txt"),
        Reply(text="The file has two lines."),
    ]
    agent, model, events = agent_of(replies, store, tmp_path, dialect=dialect)
    ended = run(agent, "Write a file and count its lines.")
    assert (ended.reason, ended.steps, ended.what) == ("done", 3, "")
    assert (tmp_path / "notes" / "a.txt").read_text() == "one\ntwo\n"
    assert "".join(event.text for event in events if isinstance(event, Said)) == "The file has two lines."
    assert [event.name for event in events if isinstance(event, ToolEnded)] == ["write_file", "terminal"]
    assert any(event.text.strip() == "2" for event in events if isinstance(event, ToolLine))
    assert len([event for event in events if isinstance(event, Used)]) == 3
    assert not model.violations
    assert agent.session.view() == agent.context.view
    assert len(store.usage(session_id=agent.session.id)) == 3


@pytest.mark.outside
def test_what_a_model_sends_wrongly_is_answered(store, tmp_path):
    replies = [
        Reply.calling("no_such_tool", x=1),
        Reply.calling("read_file", path="../../etc/passwd"),
        Reply.calling("read_file"),
        Reply(text="I give up."),
    ]
    agent, model, events = agent_of(replies, store, tmp_path)
    assert run(agent, "Try.").reason == "done"
    assert [event.is_error for event in events if isinstance(event, ToolEnded)] == [True] * 3
    assert not model.violations


def test_the_steps_of_a_turn_are_bounded(store, tmp_path):
    agent, _, _ = agent_of(lambda request: Reply.calling("list_files"), store, tmp_path)
    agent.limits = type(agent.limits)(steps=5)
    ended = run(agent, "Go on for ever.")
    assert (ended.reason, ended.steps) == ("steps", 5)
    assert "5" in ended.what


def test_a_prompt_that_is_too_long_is_compacted_and_the_window_is_learned(store, tmp_path):
    long = "word " * 6_000
    agent, model, events = agent_of(
        [Reply(text="ok")], store, tmp_path, window_tokens=9_000, repeat_last=True
    )
    run(agent, f"first {long[:20_000]}")
    run(agent, f"second {long[:20_000]}")
    ended = run(agent, "third: carry on")
    assert ended.reason == "done", ended.what
    assert any(isinstance(event, (Compacted, Recovering)) for event in events)
    assert not model.violations


def test_an_answer_cap_that_is_too_large_is_lowered_for_one_call(store, tmp_path):
    body = {
        "error": {
            "message": "max_tokens is too large: 90000. This model supports at most 4096 completion tokens.",
            "type": "invalid_request_error",
            "code": None,
        }
    }
    agent, _, events = agent_of([Reply.failing(400, body), Reply(text="ok")], store, tmp_path)
    agent.limits = type(agent.limits)(max_output_tokens=90_000)
    assert run(agent, "Hello.").reason == "done"
    assert [event.what for event in events if isinstance(event, Recovering)] == [
        str(ErrorKind.OUTPUT_CAP_TOO_LARGE)
    ]
    assert not any(isinstance(event, Compacted) for event in events)
    assert agent.limits.max_output_tokens == 90_000


def test_what_cannot_be_helped_is_told_and_the_session_goes_on(store, tmp_path):
    replies = [
        Reply.failing(401, {"error": {"message": "Incorrect API key provided"}}),
        Reply(text="back again"),
    ]
    agent, _, _ = agent_of(replies, store, tmp_path)
    ended = run(agent, "Hello?")
    assert ended.reason == "failed"
    assert "key" in ended.what.lower()
    assert run(agent, "And now?").reason == "done"


@pytest.mark.outside
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_interrupted_tool_leaves_a_log_that_can_be_sent(store, tmp_path, dialect):
    replies = [Reply.calling("terminal", command="echo half way; sleep 30"), Reply(text="as you wish")]
    agent, model, events = agent_of(replies, store, tmp_path, dialect=dialect)

    async def go():
        turn = asyncio.ensure_future(agent.turn("Wait."))
        await until(lambda: any(isinstance(event, ToolLine) for event in events))
        agent.interrupt()
        return await asyncio.wait_for(turn, 10)

    ended = asyncio.run(go())
    assert ended.reason == "interrupted"
    (told,) = [event for event in events if isinstance(event, ToolEnded)]
    assert told.summary.startswith("interrupted by the user")
    logged = json.dumps(agent.context.view)
    assert "half way\\n[interrupted by the user" in logged  # how far it came is known
    assert run(agent, "Never mind.").reason == "done"
    assert not model.violations


@pytest.mark.outside
def test_a_second_interruption_does_not_wait_for_a_command_to_end(store, tmp_path):
    stubborn = "trap '' TERM; echo ready; sleep 30"
    replies = [Reply.calling("terminal", command=stubborn), Reply(text="as you wish")]
    agent, model, events = agent_of(replies, store, tmp_path)

    async def go():
        turn = asyncio.ensure_future(agent.turn("Wait."))
        await until(lambda: any(isinstance(event, ToolLine) for event in events))
        agent.interrupt()
        agent.interrupt()
        return await asyncio.wait_for(turn, 10)

    assert asyncio.run(go()).reason == "interrupted"
    assert "before this call was made or finished" in json.dumps(agent.context.view)
    assert run(agent, "Never mind.").reason == "done"
    assert not model.violations


def test_the_time_that_a_person_takes_is_not_that_of_the_tool(store, tmp_path):
    events, asked = [], []

    async def ask(_asked):
        began = time.monotonic()
        await asyncio.sleep(0.1)
        asked.append(time.monotonic() - began)
        return Answer.ONCE

    model = ScriptedModel([Reply.calling("write_file", path="a.txt", content="a"), Reply(text="ok")])
    place = AgentPlace(
        folder=tmp_path, store=store, tell=lambda event: events.append((event, time.monotonic())), ask=ask
    )
    assert run(make_agent(place, model, settings_from({})), "Write it.").reason == "done"
    ((_, started),) = [told for told in events if isinstance(told[0], ToolStarted)]
    ((told, ended),) = [told for told in events if isinstance(told[0], ToolEnded)]
    assert 0 <= told.seconds <= ended - started - asked[0]
    assert (tmp_path / "a.txt").read_text() == "a"


def test_an_interrupted_answer_is_kept_as_far_as_it_came(store, tmp_path):
    slow = Reply(text="one two three four five six seven", chunk_chars=4, chunk_delay_seconds=0.2)
    agent, model, events = agent_of([slow, Reply(text="fine")], store, tmp_path)

    async def go():
        turn = asyncio.ensure_future(agent.turn("Count."))
        await until(lambda: any(isinstance(event, Said) for event in events))
        agent.interrupt()
        return await asyncio.wait_for(turn, 10)

    assert asyncio.run(go()).reason == "interrupted"
    assert "[interrupted by the user]" in json.dumps(agent.context.view[-1])
    assert run(agent, "Stop.").reason == "done"
    assert not model.violations


@pytest.mark.outside
def test_a_large_result_is_kept_in_the_store_and_read_by_handle(store, tmp_path):
    (tmp_path / "big.py").write_text("print('x' * 49)\n" * 1)
    replies = [
        Reply.calling("terminal", command="seq 1 40000"),
        Reply(text="seen"),
    ]
    agent, model, _ = agent_of(
        replies, store, tmp_path, window_tokens=32_000, values={"model.context_length": 32_000}
    )
    assert run(agent, "Print much.").reason == "done"
    assert sum(len(json.dumps(wire)) for wire in agent.context.view) < 40_000
    assert not model.violations


def test_a_session_is_resumed_where_it_was(store, tmp_path):
    agent, _, _ = agent_of([Reply(text="noted")], store, tmp_path)
    run(agent, "The word is heron.")
    again, model, _ = agent_of([Reply(text="heron")], store, tmp_path, session_id=agent.session.id)
    assert again.prompt.current == agent.prompt.current
    assert run(again, "Which word?").reason == "done"
    assert "The word is heron." in json.dumps(model.received[-1].body)


def test_a_log_that_is_broken_in_its_middle_is_sent_whole(store, tmp_path):
    """As another agent leaves it that was killed in a call and then went on: its sessions can be imported."""
    call = {"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}
    session = Session.create(store, dialect="chat")
    session.append(
        [
            {"role": "user", "content": "Count the boats."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "user", "content": "Are you still there?"},
            {"role": "assistant", "content": "Yes."},
        ]
    )
    agent, model, _ = agent_of([Reply(text="four")], store, tmp_path, session_id=session.id)
    assert run(agent, "Go on.").reason == "done"
    assert not model.violations
    roles = [wire["role"] for wire in model.received[-1].body["messages"] if wire["role"] != "system"]
    assert roles == ["user", "assistant", "tool", "user", "assistant", "user"]


def test_a_provider_that_cuts_prompts_silently_is_noticed(store, tmp_path):
    from penstock.measure.usage import Usage

    agent, _, events = agent_of(
        [Reply(text="ok", usage=Usage(input_tokens=900, output_tokens=3))], store, tmp_path
    )
    run(agent, "word " * 9_000)
    assert any("without saying so" in event.text for event in events if isinstance(event, Noticed))


def test_status_filling_and_compaction_on_request(store, tmp_path):
    agent, model, events = agent_of([Reply(text="a long answer, " * 400)], store, tmp_path, repeat_last=True)
    for number in range(6):
        run(agent, f"question {number}: " + "please think about it " * 300)
    before = agent.status()
    assert before.requests == 6
    assert before.prompt_tokens > 10_000
    assert agent.fill().kinds["user"] > 3_000
    assert agent.fill().total_tokens == pytest.approx(agent.context.counted, rel=0.02)
    result = asyncio.run(agent.compact(keep_exchanges=1))
    assert result is not None
    assert "question 5" in json.dumps(agent.context.view[-2])
    beside = agent.context.outside_tokens  # the system prompt and the tools, which stay
    assert agent.status().prompt_tokens - beside <= (before.prompt_tokens - beside) / 2
    assert agent.status().compactions == 1
    assert any(isinstance(event, Compacted) for event in events)
    assert run(agent, "and on").reason == "done"
    assert not model.violations


def test_a_smaller_window_has_the_conversation_compacted_first(store, tmp_path):
    agent, _, _ = agent_of(
        [Reply(text="an answer, " * 300)],
        store,
        tmp_path,
        repeat_last=True,
        values={"model.context_length": 64_000},
    )
    for number in range(8):
        run(agent, f"question {number}: " + "please think about it " * 500)
    smaller = ScriptedModel(
        [Reply(text="short")], name="smaller-model", window_tokens=16_000, repeat_last=True
    )
    agent.session.settings = settings_from({"model.context_length": 16_000})
    asyncio.run(agent.switch_model(smaller))
    assert agent.context.tokens() < 16_000
    assert run(agent, "go on").reason == "done"
    assert not smaller.violations
    assert not any(request.prompt_tokens > 16_000 for request in smaller.received)


def test_what_the_provider_reported_decides_whether_a_conversation_is_tidied_first(store, tmp_path):
    """What stands beside the messages, and how the provider counts, is in its report and not in our count."""
    values = {"model.context_length": 24_000, "context.economics": "off"}
    agent, _, _ = agent_of([Reply(text="yes")], store, tmp_path, values=values)
    talk = [{"role": ("user", "assistant")[n % 2], "content": TALK * 60} for n in range(26)]
    agent.context.append(talk)
    assert agent.session.estimate() < 0.8 * 24_000
    quiet, _, _ = agent_of([Reply(text="yes")], store, tmp_path, values=values, session_id=agent.session.id)
    assert not store.compactions(quiet.session.id)
    agent.session.record_usage({"prompt_tokens": 22_000, "completion_tokens": 5})
    tidied, _, _ = agent_of([Reply(text="yes")], store, tmp_path, values=values, session_id=agent.session.id)
    assert len(store.compactions(tidied.session.id)) == 1


def test_the_model_that_one_has_switched_to_writes_the_next_handoff(store, tmp_path):
    agent, first, _ = agent_of(
        [Reply(text="an answer, " * 200)], store, tmp_path, repeat_last=True, name="gpt-4.1"
    )
    second = ScriptedModel([Reply(text="another answer, " * 200)], repeat_last=True, name="gpt-4.1-mini")
    wordy = {"role": "user", "content": TALK * 300}
    agent.context.append([wordy, {"role": "assistant", "content": TALK * 300}] * 12)

    async def go():
        await agent.compact()
        assert len(first.received) >= 1
        before = len(first.received)
        await agent.switch_model(second)
        agent.context.append([wordy, {"role": "assistant", "content": TALK * 300}] * 12)
        await agent.compact()
        assert len(second.received) >= 1
        assert len(first.received) == before

    asyncio.run(go())


def test_a_compaction_that_was_prepared_is_not_waited_for(store, tmp_path):
    agent, model, events = agent_of(
        [Reply(text="an answer, " * 200)],
        store,
        tmp_path,
        repeat_last=True,
        window_tokens=24_000,
        values={"model.context_length": 24_000},
    )

    async def go():
        for number in range(40):
            await agent.turn(f"question {number}: " + "please think about it " * 60)
            await pause(agent)
        await agent.aclose()

    asyncio.run(go())
    told = [event for event in events if isinstance(event, Compacting | Compacted)]
    assert isinstance(told[0], Compacted)  # the turn was not said to wait for it
    assert not model.violations
    assert all(request.prompt_tokens <= 24_000 for request in model.received)


@pytest.mark.parametrize("engine", ["compressor", "lossless"])
def test_what_is_said_while_a_compaction_is_prepared_stands_behind_it(store, tmp_path, engine):
    agent, model, events = agent_of(
        [Reply(text="an answer, " * 200)],
        store,
        tmp_path,
        repeat_last=True,
        values={"model.context_length": 24_000, "context.engine": engine},
    )
    context = agent.context
    context.append([{"role": ("user", "assistant")[n % 2], "content": TALK * 40} for n in range(40)])

    async def go(meanwhile):
        context._prepare()
        await asyncio.sleep(0)
        said = {"role": "user", "content": meanwhile}
        context.append([said])
        await context._prepared
        context.append([{"role": "assistant", "content": "yes"}])
        before = len([one for one in events if isinstance(one, Compacting)])
        assert (await context.compact("it is time", context.tokens())) is not None
        assert len([one for one in events if isinstance(one, Compacting)]) == before  # nobody waited
        assert context.view[-2:] == [said, {"role": "assistant", "content": "yes"}]
        assert agent.session.view() == context.view
        assert context.counted - context.outside_tokens == agent.session.workings.weigh(context.view)
        assert context.prefix_end == agent.session.workings.read_view_base().prefix_end

    asyncio.run(go("first"))
    context.append([{"role": ("user", "assistant")[n % 2], "content": TALK * 40} for n in range(30)])
    asyncio.run(go("second"))
    assert not model.violations


def test_putting_a_prepared_compaction_in_place_reads_no_message_again(store, tmp_path):
    agent, _, _ = agent_of(
        [Reply(text="yes")], store, tmp_path, repeat_last=True, values={"model.context_length": 24_000}
    )
    context, opened = agent.context, []
    context.append([{"role": ("user", "assistant")[n % 2], "content": TALK * 40} for n in range(40)])

    async def go():
        context._prepare()
        await context._prepared
        for book in (context.engine._notebook, agent.session.workings.notebook):
            book.open = lambda *_args, **_kwargs: opened.append(True)
        assert (await context.compact("it is time", context.tokens())) is not None

    asyncio.run(go())
    assert not opened
    assert agent.session.view() == context.view


def test_what_was_pinned_after_a_compaction_was_prepared_stays(store, tmp_path):
    agent, _, events = agent_of(
        [Reply(text="yes")], store, tmp_path, repeat_last=True, values={"model.context_length": 24_000}
    )
    context = agent.context
    context.append(
        [{"role": ("user", "assistant")[n % 2], "content": f"{n}: {TALK * 40}"} for n in range(40)]
    )

    async def go():
        context._prepare()
        await context._prepared
        agent.session.pin("m9")
        assert (await context.compact("it is time", context.tokens())) is not None
        assert {"role": "user", "content": f"8: {TALK * 40}"} in context.view
        assert any(isinstance(event, Compacting) for event in events)  # it had to be made anew

    asyncio.run(go())


def test_a_compaction_that_was_prepared_is_made_anew_where_too_much_came_since(store, tmp_path):
    agent, _, events = agent_of(
        [Reply(text="yes")], store, tmp_path, repeat_last=True, values={"model.context_length": 24_000}
    )
    context = agent.context
    wordy = [{"role": ("user", "assistant")[n % 2], "content": f"{n}: {TALK * 40}"} for n in range(40)]
    context.append(wordy)

    async def go():
        context._prepare()
        await context._prepared
        context.append(wordy)
        assert (await context.compact("it is time", context.tokens())) is not None
        assert context.counted < context.engine.threshold_tokens
        assert any(isinstance(event, Compacting) for event in events)

    asyncio.run(go())


def test_memory_may_take_what_leaves_the_view_and_has_it_in_the_next_prompt(store, tmp_path):
    taken = []
    memory = tmp_path / "data" / "penstock" / "memory" / "MEMORY.md"

    def take(facts):
        taken.extend(facts)
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text("".join(f"- {fact.text}\n" for fact in facts if fact.kind == "constraint"))

    model = ScriptedModel([Reply(text="yes")], repeat_last=True)
    place = AgentPlace(
        folder=tmp_path, store=store, tell=lambda _event: None, yes=True, before_compaction=take
    )
    agent = make_agent(place, model, settings_from({"model.context_length": 24_000}))
    talk = [{"role": ("user", "assistant")[n % 2], "content": f"{n}: {TALK * 40}"} for n in range(40)]
    talk[6] = {"role": "user", "content": f"Never touch the migrations folder. {TALK * 40}"}
    agent.context.append(talk)
    assert "migrations" not in agent.prompt.current.text
    assert asyncio.run(agent.compact()) is not None
    assert any("migrations" in fact.text for fact in taken)
    assert "Never touch the migrations folder" in agent.prompt.current.text


def test_what_another_process_logs_while_a_compaction_is_prepared_is_sent_too(store, tmp_path):
    agent, _, _ = agent_of(
        [Reply(text="yes")], store, tmp_path, repeat_last=True, values={"model.context_length": 24_000}
    )
    context = agent.context
    context.append([{"role": ("user", "assistant")[n % 2], "content": TALK * 40} for n in range(40)])

    async def go():
        context._prepare()
        await context._prepared
        other = Session.resume(store, agent.session.id)
        other.append([{"role": "user", "content": "from elsewhere"}])
        assert (await context.compact("it is time", context.tokens())) is not None
        assert context.view[-1] == {"role": "user", "content": "from elsewhere"}
        assert agent.session.view() == context.view
        context.append([{"role": "assistant", "content": "yes"}])  # and the log goes on

    asyncio.run(go())


def test_a_compaction_that_is_not_wanted_any_more_is_over_before_the_next_begins(store, tmp_path):
    """Both read in one notebook, which two threads must not share."""
    agent, _, _ = agent_of(
        [Reply(text="yes")], store, tmp_path, repeat_last=True, values={"model.context_length": 24_000}
    )
    context, threads = agent.context, []
    context.append([{"role": ("user", "assistant")[n % 2], "content": TALK * 40} for n in range(40)])
    reading = context.engine._notebook.open

    def watched(*args, **kwargs):
        threads.append(+1)
        assert sum(threads) == 1
        try:
            return reading(*args, **kwargs)
        finally:
            threads.append(-1)

    context.engine._notebook.open = watched

    async def go():
        context._prepare()
        await until(lambda: threads)
        wish = CompactionWish(focus="harbour")
        assert (await context.compact("by hand", context.tokens(), wish)) is not None
        await agent.aclose()

    asyncio.run(go())
    assert len(threads) >= 4
    assert agent.session.view() == context.view


def test_the_lossless_engine_in_an_agent_is_opened_by_its_tools(store, tmp_path):
    values = {"model.context_length": 24_000, "context.engine": "lossless"}
    agent, model, events = agent_of(
        [Reply(text="an answer, " * 200)],
        store,
        tmp_path,
        repeat_last=True,
        window_tokens=24_000,
        values=values,
    )
    for number in range(24):
        run(agent, f"question {number}: " + f"please think about item_{number} " * 60)
    assert any(isinstance(event, Compacted) for event in events)
    described = json.loads(agent.calls.recall("history_describe", '{"handle": "n1"}'))
    assert described["kind"] == "segment"
    assert (
        "item_"
        in json.loads(agent.calls.recall("history_search", '{"query": "item_2"}'))["found"][0]["excerpt"]
    )
    assert not model.violations


@pytest.mark.outside
def test_a_compaction_that_pays_comes_before_the_threshold_asks_no_model_and_says_why(store, tmp_path):
    agent, model, events = agent_of(
        [Reply(text="an answer, " * 400)],
        store,
        tmp_path,
        repeat_last=True,
        name="gpt-4.1",
        prompt_cache=PromptCache(),
    )
    for number in range(60):
        run(agent, f"question {number}: " + f"please think about item_{number} " * 150)
    made = [event for event in events if isinstance(event, Compacted)]
    rows = store.compactions(agent.session.id)
    assert made
    assert all(event.receipt.tokens_before < agent.context.engine.threshold_tokens for event in made)
    assert rows[0].receipt["decision"]["why"] in ("pays", "free")
    assert all(request.body.get("tools") for request in model.received)  # none of them asks for a summary
    assert agent.context.bookkeeper.books.compactions == len(made)


def test_a_session_is_not_resumed_in_another_dialect(store, tmp_path):
    agent, _, _ = agent_of([Reply(text="noted")], store, tmp_path)
    run(agent, "The word is heron.")
    with pytest.raises(SettingsError, match="sessions export"):
        agent_of([Reply(text="heron")], store, tmp_path, session_id=agent.session.id, dialect="anthropic")


def test_system_prompt_and_tools_count_from_the_start(store, tmp_path):
    agent, _, _ = agent_of([], store, tmp_path)
    assert agent.status().prompt_tokens > 900


@pytest.mark.outside
def test_tools_of_mcp_servers_in_the_settings_are_offered_run_and_closed(store, tmp_path):
    pytest.importorskip("mcp")
    server = Path(__file__).with_name("mcp_tickets.py")
    servers = {
        "desk": {"command": sys.executable, "args": [str(server)]},
        "gone": {"command": str(tmp_path / "no-such-program")},
    }
    replies = [Reply.calling("desk__find", words="crane", limit=2), Reply(text="thanks")]
    agent, model, events = agent_of(replies, store, tmp_path, values={"agent.mcp_servers": servers})

    async def go():
        ended = await agent.turn("Hello.")
        names = [name for name in agent.calls.toolbox.tools if name.startswith("desk__")]
        await agent.aclose()
        return ended, names

    ended, names = asyncio.run(go())
    assert ended.reason == "done"
    assert names
    offered = [tool["function"]["name"] for tool in model.received[-1].body["tools"]]
    assert set(names) <= set(offered)
    assert "T-2: crane" in json.dumps(agent.context.view)
    assert any("gone" in event.text for event in events if isinstance(event, Noticed))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_bytes_of_logged_messages_are_sent_as_they_came(dialect, store, tmp_path):
    """A message that was logged as bytes goes out with its own spelling of numbers, spaces and unknown fields."""
    session = Session.create(store, dialect=dialect, model="m")
    came = b'{"role": "user",  "content": "what is 1e2?", "x_note": {"n":1e2}}'
    session.append([came])
    agent, model, _ = agent_of([Reply("a hundred")], store, tmp_path, session_id=session.id, dialect=dialect)
    run(agent, "go on")
    assert came in model.received[0].raw
