"""Clients' own compactions: which calls are known for them, what the client gets, and what goes on from it."""

from __future__ import annotations

import asyncio
import json
import re
from io import StringIO

import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.stateless_agent import KEY, LISTS, StatelessAgent, fitted_gateway

from penstock.accounts.conversations import describe_conversation
from penstock.cli.screen import screen_of
from penstock.cli.sessions import show_lines
from penstock.conversation import mark
from penstock.gateway.client_compactions import ClientCompaction, answer_in_form, recognise
from penstock.gateway.orders import Failed, Write
from penstock.gateway.splicing import RequestBody, read_body
from penstock.settings import settings_from
from penstock.testing.provider_server import ScriptedProvider

WINDOW = 60_000
RULE = "Never push to the branch release-7."
TOOLS = {
    "chat": [{"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}}],
    "responses": [{"type": "function", "name": "terminal", "parameters": {"type": "object"}}],
    "anthropic": [{"name": "terminal", "input_schema": {"type": "object"}}],
}
CLAUDE = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nWrite an <analysis> block, then a <summary> block.\n\n"
    "Additional Instructions:\nthe ports of the databases\n\nREMINDER: no tools."
)
CODEX = "You are performing a CONTEXT CHECKPOINT COMPACTION. Write a handoff for another model."
OPENCODE = "You are a context summarization agent. Follow the structure that the user gives."


def settings(tmp_path, **given):
    return settings_from(
        {
            "gateway.port": 0,
            "gateway.drain_seconds": 0.5,
            "gateway.answer_client_compactions": True,
            "model.context_length": WINDOW,
            "store.url": f"sqlite:///{tmp_path}/gateway.db",
            **given,
        }
    )


def with_gateway(tmp_path, test, *, replies=("Go on.",), window=WINDOW, **given):
    async def go():
        async with ScriptedProvider(list(replies), repeat_last=True, window_tokens=window) as provider:
            async with fitted_gateway(provider, settings(tmp_path, **given)) as (gateway, fitter, workers):
                gateway.fitter, gateway.workers = fitter, workers
                await test(gateway, provider)
            assert provider.violations == ()

    asyncio.run(go())


def print_run(turn):
    lines = [f"line {number} of run {turn} is fine" for number in range(150)]
    lines.insert(97, f"staging database listens on port {54_000 + turn}")
    return "\n".join(lines)


def work(agent, turn):
    agent.use_tool("terminal", {"command": f"run {turn}"}, print_run(turn))


async def worked(gateway, dialect, turns=8, says="", **fields):
    """An agent with a rule and some results behind it, known to the gateway."""
    agent = StatelessAgent(gateway, dialect, tools=TOOLS[dialect], **fields)
    agent.headers["x-session-id"] = "ses_of_the_test"
    agent.say(f"{RULE} Find the port of the staging database.")
    for turn in range(turns):
        if says and turn:
            agent.reply(says)
            agent.say("Go on.")
        work(agent, turn)
        assert (await agent.ask())[0] == 200
    return agent


def asking(agent, client):
    """The call that the client would send; its history stays as it is."""
    call = StatelessAgent.__new__(StatelessAgent)
    call.__dict__ = {**agent.__dict__, "history": list(agent.history), "fields": dict(agent.fields)}
    if client == "claude":
        last = call.history.pop()
        call.history.append({**last, "content": [*last["content"], {"type": "text", "text": CLAUDE}]})
    elif client == "codex":
        call.fields["tools"] = []
        call.history.append(
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": CODEX}]}
        )
    else:
        call.fields.pop("tools")
        told = f"Here is it:\n\n<conversation>\n{transcribe(agent)}\n</conversation>\n\nSummarise."
        call.history = [{"role": "user", "content": told}]
        if agent.dialect == "chat":
            call.history.insert(0, {"role": "system", "content": OPENCODE})
        else:
            call.fields["system" if agent.dialect == "anthropic" else "instructions"] = OPENCODE
    return call


def transcribe(agent):
    """As opencode tells it: with results cut short."""
    lines = ["[User]: a rule and a question"]
    for turn in range(agent._calls):
        lines.append(f'[Assistant tool call]: terminal({{"command":"run {turn}"}})')
        lines.append(f"[Tool result]: {print_run(turn)[:2_000]}")
    return "\n\n".join(lines)


def read_text(agent, body):
    """The text of an answer, as a client of that dialect puts it together."""
    if not agent.stream:
        answer = json.loads(body)
        if agent.dialect == "chat":
            return answer["choices"][0]["message"]["content"]
        if agent.dialect == "anthropic":
            return answer["content"][0]["text"]
        return answer["output"][0]["content"][0]["text"]
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    if agent.dialect == "chat":
        return "".join(
            one["choices"][0]["delta"].get("content") or "" for one in events if one.get("choices")
        )
    return "".join(
        one["delta"]["text"] if agent.dialect == "anthropic" else one["delta"]
        for one in events
        if one["type"] in {"content_block_delta", "response.output_text.delta"}
    )


def read_as_claude(text):
    """What Claude Code makes of an answer: the summary, put in by a replacement of JavaScript, blank lines joined."""
    text = re.sub(r"<analysis>[\s\S]*?</analysis>", "", text, count=1)
    found = re.search(r"<summary>([\s\S]*?)</summary>", text)
    if found:
        written = "Summary:\n" + found[1].strip()
        text = text[: found.start()] + _expand(written, text, found) + text[found.end() :]
    return re.sub(r"\n\n+", "\n\n", text).strip()


def _expand(replacement, text, found):
    meant = {
        "$": "$",
        "&": found[0],
        "`": text[: found.start()],
        "'": text[found.end() :],
        "1": found[1],
    }
    return re.sub(r"\$([$&`'1])", lambda one: meant[one[1]], replacement)


def continued(agent, client, text):
    """The agent's history behind the compaction, as its client keeps it."""
    if client == "claude":
        said = f"This session is being continued.\n\n{read_as_claude(text)}\nContinue."
        agent.history = [{"role": "user", "content": [{"type": "text", "text": said}]}]
    elif client == "codex":
        kept = [one for one in agent.history if one.get("role") == "user"]
        agent.history = [*kept, {"role": "user", "content": f"Another model wrote this summary:\n{text}"}]
    else:
        system = [one for one in agent.history if one.get("role") == "system"]
        agent.history = [
            *system,
            {"role": "user", "content": "What did we do so far?"},
            {"role": "assistant", "content": text},
            {"role": "user", "content": "Continue."},
        ]


CALLS = [
    ("claude", "anthropic"),
    ("codex", "responses"),
    ("opencode", "chat"),
    ("opencode", "responses"),
    ("opencode", "anthropic"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("client", "dialect"), CALLS)
def test_a_call_for_a_summary_is_answered_with_a_handoff_from_originals(client, dialect, stream, tmp_path):
    async def test(gateway, provider):
        agent = await worked(gateway, dialect, stream=stream)
        asked = len(provider.received)
        call = asking(agent, client)
        status, headers, body = await call.ask()
        assert status == 200, body
        assert headers["x-penstock-compacted"] == "now"
        assert len(provider.received) == asked
        text = read_text(call, body)
        assert RULE in text
        assert "54003" in text  # in no transcript of a client, and in no line that stands out

        continued(agent, client, text)
        for turn in range(8, 16):
            work(agent, turn)
        second = (await agent.ask())[1]["x-penstock-session"]
        assert second != headers["x-penstock-session"]
        sent = json.dumps(provider.received[-1].body)
        assert sent.count("<penstock-handoff") == 1
        assert RULE in sent

        # The second one is written from the messages themselves, not from the first handoff.
        call = asking(agent, client)
        text = read_text(call, (await call.ask())[2])
        assert text.count("<penstock-handoff") == 1
        assert "54003" in text
        assert "54012" in text
        await tell_links(gateway, headers["x-penstock-session"], second)

    with_gateway(tmp_path, test)


async def tell_links(gateway, first, second):
    """The old conversation tells what was handed over, the new one where it comes from."""
    store = gateway.workers.conversations._store("full")
    old = describe_conversation(store, store.tip(first))
    assert [one.messages for one in old.handovers] == [old.log_messages]
    assert old.handovers[0].tokens_after < old.handovers[0].tokens_before
    assert old.origin is None
    new = describe_conversation(store, store.tip(second))
    assert (new.origin.conversation, new.origin.length) == (first, old.log_messages)
    assert new.to_dict()["continues"]["conversation"] == first
    shown = "\n".join(show_lines(new, screen_of(StringIO())))
    assert f"continues    {first}, behind m{old.log_messages}" in shown


def test_the_official_clients_read_the_answers(tmp_path):
    async def test(gateway, _provider):
        agent = await worked(gateway, "responses")
        body = asking(agent, "codex").body()
        async with openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=KEY) as client:
            async with client.responses.stream(
                model="scripted-model", input=body["input"], tools=[], instructions=body["instructions"]
            ) as stream:
                final = await stream.get_final_response()
            assert RULE in final.output_text
            whole = await client.responses.create(model="scripted-model", input=body["input"])
            assert RULE in whole.output_text
        agent = await worked(gateway, "anthropic")
        messages = asking(agent, "claude").body()["messages"]
        async with (
            anthropic.AsyncAnthropic(base_url=gateway.address, api_key=KEY) as client,
            client.messages.stream(model="m", max_tokens=4_000, messages=messages) as stream,
        ):
            assert RULE in await stream.get_final_text()
        agent = await worked(gateway, "chat")
        call = asking(agent, "opencode").body()
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.address}/v1", api_key=KEY, default_headers={"x-session-id": "ses_of_the_test"}
        ) as client:
            whole = await client.chat.completions.create(model="m", messages=call["messages"])
            assert RULE in whole.choices[0].message.content
            pieces = await client.chat.completions.create(
                model="m", messages=call["messages"], stream=True, stream_options={"include_usage": True}
            )
            chunks = [piece async for piece in pieces]
            assert RULE in "".join(
                (piece.choices and piece.choices[0].delta.content) or "" for piece in chunks
            )
            assert chunks[-1].usage.completion_tokens > 0

    with_gateway(tmp_path, test)


@pytest.mark.parametrize(("client", "dialect"), CALLS[:3])
def test_without_the_setting_the_provider_summarises_what_was_really_said(client, dialect, tmp_path):
    async def test(gateway, provider):
        agent = await worked(gateway, dialect, turns=8)
        status, headers, _ = await agent.ask(headers={"x-penstock-target-tokens": "2000"})
        assert (status, headers["x-penstock-compacted"]) == (200, "now")
        assert "penstock-handoff" in json.dumps(provider.received[-1].body)
        call = asking(agent, client)
        status, headers, _ = await call.ask()
        assert status == 200
        sent = provider.received[-1].body
        assert sent == call.body()
        assert "penstock-handoff" not in json.dumps(sent)

    with_gateway(tmp_path, test, **{"gateway.answer_client_compactions": False})


def test_what_does_not_fit_is_summarised_from_its_view(tmp_path):
    async def test(gateway, provider):
        said = " ".join(f"Step {number} went well and is noted." for number in range(60))  # not to be elided
        agent = await worked(gateway, "anthropic", turns=14, says=said)
        call = asking(agent, "claude")
        assert (await call.ask())[0] == 200
        assert "penstock-handoff" in json.dumps(provider.received[-1].body)

    with_gateway(
        tmp_path,
        test,
        window=16_000,
        **{"gateway.answer_client_compactions": False, "model.context_length": 16_000},
    )


def test_a_worker_that_fails_leaves_the_summary_to_the_provider(tmp_path):
    async def test(gateway, provider):
        agent = await worked(gateway, "responses", turns=3)
        give = gateway.workers.give

        async def fail(order):
            return Failed("of this test") if isinstance(order, Write) else await give(order)

        gateway.workers.give = fail
        asked = len(provider.received)
        status, _, body = await asking(agent, "codex").ask()
        assert status == 200
        assert len(provider.received) == asked + 1
        assert b"Go on." in body

    with_gateway(tmp_path, test)


def test_an_unknown_transcript_goes_to_the_provider(tmp_path):
    async def test(gateway, provider):
        agent = await worked(gateway, "chat", turns=2)
        call = asking(agent, "opencode")
        call.headers = {**call.headers, "x-session-id": "ses_of_another"}
        assert b"Go on." in (await call.ask())[2]
        assert len(provider.received) == 3

    with_gateway(tmp_path, test)


@pytest.mark.parametrize(
    ("dialect", "messages"),
    [
        ("anthropic", [{"role": "user", "content": f"What does this mean: {CLAUDE}"}]),
        ("anthropic", [{"role": "user", "content": "CRITICAL: Respond with TEXT ONLY"}]),
        (
            "anthropic",
            [{"role": "user", "content": CLAUDE}, {"role": "assistant", "content": "<summary>x</summary>"}],
        ),
        ("responses", [{"role": "user", "content": f"{'x' * 500} {CODEX}"}]),
        ("responses", [{"role": "user", "content": CODEX}, {"type": "reasoning", "summary": []}]),
        ("chat", [{"role": "user", "content": CODEX}]),
        ("chat", [{"role": "system", "content": OPENCODE}, {"role": "user", "content": "no transcript"}]),
    ],
)
def test_other_requests_are_not_taken_for_one(dialect, messages):
    body = read_body(json.dumps({"model": "m", LISTS[dialect]: messages}).encode(), dialect)
    assert recognise(body) is None


def test_codex_is_believed_where_its_headers_say_so():
    messages = [{"role": "user", "content": "Hello."}, {"role": "user", "content": "My own prompt."}]
    body = read_body(json.dumps({"model": "m", "input": messages}).encode(), "responses")
    assert recognise(body) is None
    found = recognise(body, told=True)
    assert found.client == "codex"
    assert [json.loads(raw) for raw in found.messages] == messages[:1]


@given(st.text(alphabet="a $&`'1<>/summarynly\n", max_size=80))
def test_claude_code_reads_back_what_was_written(text):
    text = mark.wrap(text, {})
    body = RequestBody("anthropic", {"model": b'"m"', "messages": b"[]"})
    answer = answer_in_form(text, ClientCompaction(client="claude"), body, "1", 0, 1)
    kept = read_as_claude(json.loads(answer.body)["content"][0]["text"])
    expected = re.sub(r"\n\n+", "\n\n", re.sub(r"<(/?)(analysis|summary)>", r"<\1 \2>", text)).strip()
    assert kept == f"Summary:\n{expected}"
