"""Recall through the gateway: the model looks things up, its client sees one answer, and the provider sees all of it again."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import anthropic
import openai
import pytest
from tests.gateway.answer_reading import read_answer, read_anthropic
from tests.gateway.stateless_agent import KEY, LISTS, StatelessAgent, fitted_gateway

from penstock.conversation.slicing import slice_array, slice_object
from penstock.errors import ErrorKind
from penstock.gateway.orders import LookUp
from penstock.gateway.recalling import MOST_ROUNDS
from penstock.measure.usage import Usage
from penstock.providers.exchange import Called, Finish
from penstock.recall.tools import TOOL_NAMES
from penstock.settings import settings_from
from penstock.testing.provider_server import ScriptedProvider
from penstock.testing.scripted import Failure, Reply

WINDOW = 60_000
DIALECTS = ("chat", "responses", "anthropic")
TOOLS = {
    "chat": [{"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}}],
    "responses": [{"type": "function", "name": "terminal", "parameters": {"type": "object"}}],
    "anthropic": [{"name": "terminal", "input_schema": {"type": "object"}}],
}
SEARCH = Called("call_ours", "history_search", '{"query": "port of database alpha-3-17"}')
ENTITY = Called("call_ours_2", "history_entity", '{"name": "file"}')
THEIRS = Called("call_theirs", "terminal", '{"command": "run more"}')
THINKING = {"type": "enabled", "budget_tokens": 1_024}


def settings(tmp_path, **given):
    return settings_from(
        {
            "gateway.port": 0,
            "gateway.drain_seconds": 0.5,
            "gateway.recall": True,
            "model.context_length": WINDOW,
            "store.url": f"sqlite:///{tmp_path}/gateway.db",
            **given,
        }
    )


def with_gateway(tmp_path, test, script, *, window=WINDOW, **given):
    """`script` answers the request of each round; a list is answered in its order."""
    replies = list(script) if isinstance(script, list) else script
    options = {"repeat_last": True} if isinstance(script, list) else {}

    async def go():
        async with ScriptedProvider(replies, window_tokens=window, **options) as provider:
            async with fitted_gateway(provider, settings(tmp_path, **given)) as (gateway, fitter, workers):
                gateway.fitter, gateway.workers = fitter, workers
                await test(gateway, provider)
            assert provider.violations == ()

    asyncio.run(go())


class Script:
    """A model that is quiet until it is `asked`; then it gives these replies in turn."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.asked = False

    def __call__(self, received):
        if not self.asked:
            return Reply(text="Go on.")
        return self.replies.pop(0) if self.replies else Reply(text="Nothing else.")


def port_of(turn, at):
    return 10_007 + (turn * 60 + at) * 101


PORT = str(port_of(3, 17))


def work(agent, turn):
    lines = [f"database alpha-{turn}-{at} listens on port {port_of(turn, at)}" for at in range(60)]
    agent.use_tool("terminal", {"command": f"run {turn}"}, "\n".join(lines))


async def compacted(gateway, dialect, turns=8, **fields):
    """An agent whose conversation was compacted so far that its results have left the view."""
    agent = StatelessAgent(gateway, dialect, tools=TOOLS[dialect], **fields)
    agent.say("Never push to the branch release-7. Find the ports.")
    for turn in range(turns):
        work(agent, turn)
    agent.say("And now?")
    status, headers, body = await agent.ask(headers={"x-penstock-target-tokens": "400"})
    assert (status, headers["x-penstock-compacted"]) == (200, "now"), body
    agent.reply("Go on.")
    agent.say("On which port does alpha-3-17 listen?")
    return agent


def said(messages):
    return json.dumps(messages)


def sent_messages(received):
    """The messages of a request as bytes."""
    fields = slice_object(received.raw)
    return slice_array(fields[LISTS[received.dialect]])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_model_looks_something_up_and_the_client_sees_its_answer_alone(dialect, stream, tmp_path):
    script = Script(
        Reply(text="Let me look.", reasoning="It was said before.", calls=(SEARCH,), usage=Usage(900, 40)),
        Reply(text=f"It is {PORT}.", reasoning="Found it.", usage=Usage(1_000, 20)),
        Reply(text="You are welcome."),
    )

    async def test(gateway, provider):
        agent = await compacted(gateway, dialect, stream=stream)
        assert PORT not in said(provider.received[-1].body)
        script.asked = True
        before = len(provider.received)
        status, _, body = await agent.ask()
        assert status == 200
        first, second = provider.received[before:]
        assert PORT in said(second.body)  # the model was given what it looked for
        added, calls, finish = read_answer(body, agent.dialect, streamed=agent.stream)
        assert calls == []
        assert finish in {"stop", "completed", "end_turn"}
        assert "Let me look." in said(added)
        assert f"It is {PORT}." in said(added)
        assert not any(name in body.decode() for name in TOOL_NAMES)
        assert b"call_ours" not in body

        # The tools stand at the end, in the same bytes each time, and the next round only adds to the last.
        tools = [slice_object(one.raw)["tools"] for one in provider.received]
        if dialect == "responses":
            tools = tools[1:]  # it does not say that it sends all each time, until something was compacted
        assert len(set(tools)) == 1
        names = [tool.get("function", tool)["name"] for tool in json.loads(tools[0])]
        assert names == ["terminal", "history_search", "history_describe", "history_expand", "history_entity"]
        assert sent_messages(second)[: len(sent_messages(first))] == sent_messages(first)

        # What the client sends next has not seen it; the provider gets it again, byte for byte.
        agent.history += added
        agent.say("Thank you.")
        status, _, body = await agent.ask()
        assert status == 200
        third = provider.received[-1]
        known = [strip(raw) for raw in sent_messages(second)]
        assert [strip(raw) for raw in sent_messages(third)][: len(known)] == known
        assert f"It is {PORT}." in said(third.body)
        assert said(third.body).count("Let me look.") == 1

    with_gateway(tmp_path, test, script)


def strip(raw):
    """A message without the client's cache mark, which moves."""
    message = json.loads(raw)
    for block in message["content"] if isinstance(message.get("content"), list) else ():
        block.pop("cache_control", None)
    if isinstance(message.get("content"), str):
        message["content"] = [{"type": "text", "text": message["content"]}]
    return message


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_batch_of_our_calls_and_the_clients(dialect, stream, tmp_path):
    script = Script(
        Reply(reasoning="Both at once.", calls=(SEARCH, THEIRS, ENTITY)),
        Reply(text=f"It is {PORT}, and more was run."),
        Reply(text="You are welcome."),
    )

    async def test(gateway, provider):
        agent = await compacted(gateway, dialect, stream=stream)
        script.asked = True
        before = len(provider.received)
        status, _, body = await agent.ask()
        assert status == 200
        assert len(provider.received) == before + 1
        added, calls, finish = read_answer(body, agent.dialect, streamed=agent.stream)
        assert len(calls) == 1
        assert "call_theirs" in said(calls)
        assert finish in {"tool_calls", "completed", "tool_use"}
        assert b"call_ours" not in body

        agent.history += added
        agent.history.append(result_of(dialect, "call_theirs", "more was run"))
        status, _, body = await agent.ask()
        assert status == 200
        sent = provider.received[-1]
        assert said(sent.body).count('"call_ours"') == 2  # the call and its result
        assert said(sent.body).count('"call_ours_2"') == 2
        assert PORT in said(sent.body)
        added, calls, _ = read_answer(body, agent.dialect, streamed=agent.stream)
        assert calls == []
        agent.history += added
        agent.say("Thank you.")
        assert (await agent.ask())[0] == 200
        known = [strip(raw) for raw in sent_messages(sent)]
        assert [strip(raw) for raw in sent_messages(provider.received[-1])][: len(known)] == known

    with_gateway(tmp_path, test, script)


def result_of(dialect, call, text):
    if dialect == "chat":
        return {"role": "tool", "tool_call_id": call, "content": text}
    if dialect == "responses":
        return {"type": "function_call_output", "call_id": call, "output": text}
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": text}]}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_thinking_goes_back_where_the_provider_wants_it(dialect, tmp_path):
    script = Script(
        Reply(reasoning="Think one.", calls=(SEARCH,)),
        Reply(reasoning="Think two.", calls=(THEIRS,)),
        Reply(text="Done."),
    )

    async def test(gateway, provider):
        fields = {"thinking": THINKING, "max_tokens": 4_096} if dialect == "anthropic" else {}
        agent = await compacted(gateway, dialect, stream=True, **fields)
        script.asked = True
        added, calls, _ = read_answer((await agent.ask())[2], dialect, streamed=agent.stream)
        assert len(calls) == 1
        agent.history += added
        agent.history.append(result_of(dialect, "call_theirs", "ran"))
        assert (await agent.ask())[0] == 200
        order = [
            kind for raw in sent_messages(provider.received[-1])[-6:] for kind in list_kinds(json.loads(raw))
        ]
        if dialect == "anthropic":
            wanted = ["thinking", "tool_use", "tool_result", "thinking", "tool_use", "tool_result"]
        elif dialect == "responses":
            wanted = ["reasoning", "function_call", "function_call_output"] * 2
        else:
            wanted = ["assistant", "tool", "assistant", "tool"]
        assert order[-len(wanted) :] == wanted
        if dialect == "chat":
            reasons = [one.get("reasoning_content") for one in provider.received[-1].body["messages"][-4:]]
            assert reasons == ["Think one.", None, "Think two.", None]

    with_gateway(tmp_path, test, script)


def list_kinds(message):
    if isinstance(message.get("content"), list) and message.get("type") is None:
        return [block["type"] for block in message["content"]]
    return [message.get("type") or message["role"]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_model_that_never_stops_looking_is_stopped(dialect, stream, tmp_path):
    script = Script(*[Reply(calls=(Called("", SEARCH.name, SEARCH.arguments),))] * 50)

    async def test(gateway, provider):
        agent = await compacted(gateway, dialect, stream=stream)
        script.asked = True
        before = len(provider.received)
        status, _, body = await agent.ask()
        assert status == 200
        assert len(provider.received) - before == MOST_ROUNDS + 2
        assert "nothing more can be looked up" in said(provider.received[-1].body)
        added, calls, finish = read_answer(body, agent.dialect, streamed=agent.stream)
        assert calls == []
        assert finish in {"stop", "completed", "end_turn"}
        assert "ended without an answer" in said(added)
        script.asked = False
        agent.history += added
        agent.say("Well.")
        assert (await agent.ask())[0] == 200

    with_gateway(tmp_path, test, script)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_is_found_again_after_a_restart_and_goes_with_its_message(dialect, tmp_path):
    script = Script(
        Reply(text="Let me look.", calls=(SEARCH,)), Reply(text=f"It is {PORT}."), Reply(text="Well.")
    )
    agents = []

    async def first(gateway, provider):
        agent = await compacted(gateway, dialect)
        script.asked = True
        agent.history += read_answer((await agent.ask())[2], dialect, streamed=agent.stream)[0]
        agents.append(agent)

    async def second(gateway, provider):
        agent = StatelessAgent(gateway, dialect, tools=TOOLS[dialect])
        agent.history = [*agents[0].history]
        agent.say("Thank you.")
        assert (await agent.ask())[0] == 200
        assert "call_ours" in said(provider.received[-1].body)
        for turn in range(20, 30):
            work(agent, turn)
        agent.say("And now?")
        status, headers, _ = await agent.ask(headers={"x-penstock-target-tokens": "400"})
        assert (status, headers["x-penstock-compacted"]) == (200, "now")
        assert "call_ours" not in said(provider.received[-1].body)

    with_gateway(tmp_path, first, script)
    with_gateway(tmp_path, second, script)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_client_that_changes_its_history_gets_it_as_it_sends_it(dialect, tmp_path):
    script = Script(
        Reply(text="Let me look.", calls=(SEARCH,)), Reply(text=f"It is {PORT}."), Reply(text="Well.")
    )

    async def test(gateway, provider):
        agent = await compacted(gateway, dialect)
        script.asked = True
        await agent.ask()
        agent.reply("Something that the model has not said.")
        agent.say("Thank you.")
        assert (await agent.ask())[0] == 200
        assert "call_ours" not in said(provider.received[-1].body)

    with_gateway(tmp_path, test, script)


@pytest.mark.parametrize("mode", ["digests", "off"])
def test_where_nothing_is_kept_nothing_is_offered(mode, tmp_path):
    async def test(gateway, provider):
        agent = StatelessAgent(gateway, "chat", tools=TOOLS["chat"])
        agent.say("Hello.")
        assert (await agent.ask())[0] == 200
        assert provider.received[-1].body == agent.body()

    with_gateway(tmp_path, test, ["Hello."], **{"gateway.store": mode})


def test_side_calls_clients_with_such_tools_and_several_answers_are_left_alone(tmp_path):
    async def test(gateway, provider):
        agent = StatelessAgent(gateway, "chat")
        agent.say("Write a title.")
        assert (await agent.ask())[0] == 200
        assert provider.received[-1].body == agent.body()
        own = {"type": "function", "function": {"name": "history_search", "parameters": {"type": "object"}}}
        agent = StatelessAgent(gateway, "chat", tools=[own])
        agent.say("I search myself.")
        assert (await agent.ask())[0] == 200
        assert provider.received[-1].body == agent.body()
        stored = StatelessAgent(gateway, "responses", tools=TOOLS["responses"])  # may go on by an id
        stored.say("Keep it.")
        assert (await stored.ask())[0] == 200
        assert provider.received[-1].body == stored.body()
        agent = StatelessAgent(gateway, "chat", tools=TOOLS["chat"], n=2)
        agent.say("Two, please.")
        assert (await agent.ask())[0] == 200
        assert provider.received[-1].body == agent.body()

    with_gateway(tmp_path, test, ["Hello."])


def test_a_talk_without_tools_gets_them_once_it_was_compacted(tmp_path):
    async def test(gateway, provider):
        agent = StatelessAgent(gateway, "chat")
        for turn in range(6):
            agent.say(f"Question {turn}: " + "why is that so? " * 80)
            agent.reply(f"Answer {turn}: " + "because of this. " * 80)
        agent.say("And now?")
        assert (await agent.ask(headers={"x-penstock-target-tokens": "400"}))[0] == 200
        assert "tools" not in provider.received[-1].body
        agent.reply("Hello.")
        agent.say("More.")
        assert (await agent.ask())[0] == 200
        assert len(provider.received[-1].body["tools"]) == 4

    with_gateway(tmp_path, test, ["Hello."])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_that_was_cut_off_is_dropped(dialect, tmp_path):
    cut = Called("call_ours", "history_search", '{"query": "stag')
    script = Script(Reply(text="Let me look.", calls=(cut,), finish=Finish.LENGTH), Reply(text="Well."))

    async def test(gateway, provider):
        agent = await compacted(gateway, dialect)
        script.asked = True
        before = len(provider.received)
        added, calls, finish = read_answer((await agent.ask())[2], dialect, streamed=agent.stream)
        assert len(provider.received) == before + 1
        assert calls == []
        assert finish in {"length", "incomplete", "max_tokens"}
        agent.history += added
        agent.say("Go on.")
        assert (await agent.ask())[0] == 200
        assert "call_ours" not in said(provider.received[-1].body)

    with_gateway(tmp_path, test, script)


@pytest.mark.parametrize("stream", [False, True])
def test_usage_has_the_last_prompt_and_all_output_and_books_every_round(stream, tmp_path):
    script = Script(
        Reply(text="Let me look.", calls=(SEARCH,), usage=Usage(900, 40)),
        Reply(text=f"It is {PORT}.", usage=Usage(1_000, 20)),
    )

    async def test(gateway, provider):
        agent = await compacted(gateway, "anthropic", stream=stream)
        script.asked = True
        _, headers, body = await agent.ask()
        usage = (read_anthropic(body) if stream else json.loads(body))["usage"]
        assert usage["input_tokens"] == 1_000
        assert usage["output_tokens"] == 60
        await gateway.fitter.finish_beside()
        store = gateway.workers.conversations._store("full")
        booked = store.usage(session_id=store.tip(headers["x-penstock-session"]).id)
        assert [row.usage.input_tokens for row in booked][-2:] == [1_000, 900]

    with_gateway(tmp_path, test, script)


def test_a_worker_that_cannot_answer_is_an_answer(tmp_path):
    script = Script(Reply(calls=(SEARCH,)), Reply(text="I do not know."))

    async def test(gateway, provider):
        agent = await compacted(gateway, "chat")
        script.asked = True
        gateway.workers.lose_all_at_next(LookUp)
        status, _, body = await agent.ask()
        assert status == 200
        assert b"I do not know." in body
        assert "cannot be read now" in said(provider.received[-1].body)

    with_gateway(tmp_path, test, script)


@pytest.mark.parametrize("stream", [False, True])
def test_a_later_round_that_fails_is_told_or_breaks_off(stream, tmp_path):
    script = Script(
        Reply(text="Let me look.", calls=(SEARCH,)), Reply(failure=Failure(kind=ErrorKind.AUTH, status=401))
    )

    async def test(gateway, provider):
        agent = await compacted(gateway, "chat", stream=stream)
        script.asked = True
        if stream:
            with pytest.raises(aiohttp.ClientPayloadError):
                await agent.ask()
            return
        status, _, body = await agent.ask()
        assert status == 502
        assert b"looked something up" in body

    with_gateway(tmp_path, test, script)


def test_results_that_do_not_fit_any_more_are_told_to_the_model(tmp_path):
    script = Script(
        Reply(calls=(SEARCH,)),
        Reply(failure=Failure(kind=ErrorKind.PROMPT_TOO_LONG, prompt_tokens=70_000, window_tokens=WINDOW)),
        Reply(text="Then without it."),
    )

    async def test(gateway, provider):
        agent = await compacted(gateway, "anthropic")
        script.asked = True
        status, _, body = await agent.ask()
        assert status == 200
        assert b"Then without it." in body
        assert "no room left" in said(provider.received[-1].body)

    with_gateway(tmp_path, test, script)


def test_the_official_clients_see_valid_answers(tmp_path):
    script = Script()
    replies = [
        Reply(text="Let me look.", reasoning="Hm.", calls=(SEARCH,)),
        Reply(text=f"It is {PORT}.", reasoning="Yes.", calls=(THEIRS,)),
    ]

    async def test(gateway, provider):
        for dialect in DIALECTS:
            script.asked = False
            agent = await compacted(gateway, dialect, system=f"You are agent {dialect}.")
            script.asked = True
            body = {key: value for key, value in agent.body().items() if key != "stream"}
            script.replies = [*replies, *replies]
            await OFFICIAL[dialect](gateway, body)
            await ask_whole(gateway, dialect, body)

    with_gateway(tmp_path, test, script)


@pytest.mark.parametrize("stream", [False, True])
def test_it_works_beside_a_compaction_in_passing(stream, tmp_path):
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 2_000}}
    script = Script(
        Reply(text="Let me look.", calls=(SEARCH,)), Reply(text="I could not find it."), Reply(text="Well.")
    )
    script.asked = True

    async def test(gateway, provider):
        agent = StatelessAgent(
            gateway,
            "anthropic",
            stream=stream,
            tools=TOOLS["anthropic"],
            context_management={"edits": [edit]},
        )
        agent.say("Find the ports.")
        for turn in range(6):
            work(agent, turn)
        status, _, body = await agent.ask()
        assert status == 200
        if stream:
            events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
            starts = [event for event in events if event["type"] == "content_block_start"]
            assert [event["index"] for event in starts] == [0, 1, 2]
            assert [event["content_block"]["type"] for event in starts] == ["compaction", "text", "text"]
            (sealed,) = [
                event["delta"] for event in events if event.get("delta", {}).get("type") == "compaction_delta"
            ]
            block = {**sealed, "type": "compaction"}
        else:
            block, *texts = json.loads(body)["content"]
            assert [one["text"] for one in texts] == ["Let me look.", "I could not find it."]
        assert b"call_ours" not in body
        agent.history.append(
            {
                "role": "assistant",
                "content": [
                    block,
                    {"type": "text", "text": "Let me look."},
                    {"type": "text", "text": "I could not find it."},
                ],
            }
        )
        agent.say("Thank you.")
        agent.fields.pop("context_management")
        assert (await agent.ask())[0] == 200
        sent = said(provider.received[-1].body)
        assert sent.count("<penstock-handoff") == 1
        assert sent.count('"call_ours"') == 2

    with_gateway(tmp_path, test, script)


def openai_client(gateway):
    return openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=KEY, max_retries=0)


async def stream_chat(gateway, body):
    usage = {"stream_options": {"include_usage": True}}
    async with openai_client(gateway) as client, client.chat.completions.stream(**body, **usage) as stream:
        final = await stream.get_final_completion()
    assert [call.function.name for call in final.choices[0].message.tool_calls] == ["terminal"]
    assert final.choices[0].finish_reason == "tool_calls"


async def stream_responses(gateway, body):
    async with openai_client(gateway) as client, client.responses.stream(**body) as stream:
        final = await stream.get_final_response()
    kinds = [item.type for item in final.output]
    assert kinds == ["reasoning", "message", "reasoning", "message", "function_call"]
    assert f"It is {PORT}." in final.output_text


async def stream_anthropic(gateway, body):
    async with (
        anthropic.AsyncAnthropic(base_url=gateway.address, api_key=KEY, max_retries=0) as client,
        client.messages.stream(**body) as stream,
    ):
        final = await stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text", "thinking", "text", "tool_use"]
    assert final.stop_reason == "tool_use"


async def ask_whole(gateway, dialect, body):
    if dialect == "anthropic":
        async with anthropic.AsyncAnthropic(base_url=gateway.address, api_key=KEY, max_retries=0) as client:
            message = await client.messages.create(**body)
        assert [block.type for block in message.content][-1] == "tool_use"
        return
    async with openai_client(gateway) as client:
        if dialect == "responses":
            response = await client.responses.create(**body)
            assert [item.type for item in response.output][-1] == "function_call"
            return
        whole = await client.chat.completions.create(**body)
        assert [call.function.name for call in whole.choices[0].message.tool_calls] == ["terminal"]


OFFICIAL = {"chat": stream_chat, "responses": stream_responses, "anthropic": stream_anthropic}
