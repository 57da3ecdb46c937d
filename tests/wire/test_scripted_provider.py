"""What the scripted provider checks, records and breaks, seen over plain HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import aiohttp
import pytest

from penstock.testing.prompt_cache import PromptCache
from penstock.testing.provider_server import ScriptedProvider, scripted_provider
from penstock.testing.scripted import Breach, RawBody, Received, Reply

ROUTES = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
}
DIALECTS = sorted(ROUTES)


def body_of(dialect, messages, **fields):
    body = {"model": "m", "input" if dialect == "responses" else "messages": messages}
    return body | ({"max_tokens": 50} if dialect == "anthropic" else {}) | fields


def said(role, text):
    return {"role": role, "content": text}


HELLO = [said("user", "Hello")]


@contextlib.asynccontextmanager
async def provider(replies, **options):
    async with ScriptedProvider(replies, **options) as server, aiohttp.ClientSession() as session:
        yield server, session


async def post(server, session, dialect, body, headers=None):
    """Status, body and headers of an answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with session.post(server.base_url + ROUTES[dialect], data=data, headers=headers) as response:
        return response.status, await response.read(), response.headers


def message_in(raw):
    return json.loads(raw)["error"]["message"]


ORPHANS = {
    "chat": [*HELLO, {"role": "tool", "tool_call_id": "call_9", "content": "42"}],
    "responses": [*HELLO, {"type": "function_call_output", "call_id": "call_9", "output": "42"}],
    "anthropic": [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_9", "content": "42"}]}
    ],
}
OPEN = {
    "chat": [
        *HELLO,
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
    ],
    "responses": [*HELLO, {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}],
    "anthropic": [
        *HELLO,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "f", "input": {}}]},
    ],
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("broken", "word"), [(ORPHANS, "no such call"), (OPEN, "no result")])
def test_a_conversation_that_the_api_would_refuse_is_refused_and_on_record(dialect, broken, word):
    async def run():
        async with provider(["Never said."]) as (server, session):
            return *await post(server, session, dialect, body_of(dialect, broken[dialect])), server

    status, raw, _, server = asyncio.run(run())
    assert status == 400
    assert word in message_in(raw)
    assert [(breach.request, breach.rule) for breach in server.violations] == [(1, "pairs")]
    assert len(server.received) == 1


def test_the_rules_of_one_dialect_are_not_those_of_another():
    opens_with_assistant = [said("assistant", "Hi"), said("user", "Hello")]

    async def run():
        async with provider(["Yes."], repeat_last=True) as (server, session):
            statuses = [
                (await post(server, session, dialect, body_of(dialect, opens_with_assistant)))[0]
                for dialect in DIALECTS
            ]
            return dict(zip(DIALECTS, statuses, strict=True)), server.violations

    statuses, violations = asyncio.run(run())
    assert statuses == {"anthropic": 400, "chat": 200, "responses": 200}
    assert [breach.rule for breach in violations] == ["opening"]


def test_with_checks_off_it_answers_and_still_keeps_the_record():
    async def run():
        async with provider(["Yes."], check=False, prompt_cache=PromptCache()) as (server, session):
            status, _, _ = await post(server, session, "chat", body_of("chat", [{"role": "nobody"}]))
            return status, server.violations

    status, violations = asyncio.run(run())
    assert status == 200
    assert [breach.rule for breach in violations] == ["body"]


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("chat", b"{not json"),
        ("chat", b"[]"),
        ("chat", {"model": "m", "messages": []}),
        ("chat", {"messages": HELLO}),
        ("responses", {"model": "m", "messages": HELLO}),
        ("responses", {"model": "m", "input": HELLO, "previous_response_id": "resp_1"}),
        ("anthropic", {"model": "m", "messages": HELLO}),  # no max_tokens
    ],
)
def test_a_body_that_is_no_request(dialect, body):
    async def run():
        async with provider(["Never said."]) as (server, session):
            return *await post(server, session, dialect, body), server.violations

    status, raw, _, violations = asyncio.run(run())
    assert status == 400
    assert message_in(raw)
    assert [breach.rule for breach in violations] == ["body"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_key_is_asked_for_and_never_shown(dialect):
    async def run():
        async with provider(["Yes."], api_key="made-up-key") as (server, session):
            body = body_of(dialect, HELLO)
            bare = await post(server, session, dialect, body)
            wrong = await post(server, session, dialect, body, {"Authorization": "Bearer another"})
            named = "x-api-key" if dialect == "anthropic" else "Authorization"
            value = "made-up-key" if dialect == "anthropic" else "Bearer made-up-key"
            right = await post(server, session, dialect, body, {named: value})
            return [bare[0], wrong[0], right[0]], server.received

    statuses, received = asyncio.run(run())
    assert statuses == [401, 401, 200]
    headers = received[-1].headers
    assert "made-up-key" in (headers.get("x-api-key") or headers["authorization"])
    assert "made-up-key" not in repr(received)
    assert "[REDACTED]" in repr(received)


@pytest.mark.parametrize(
    ("dialect", "field", "too_long", "over_window"),
    [
        ("chat", "max_completion_tokens", "maximum context length is 100 tokens", "in the completion"),
        ("responses", "max_output_tokens", "exceeds the context window", "max_output_tokens"),
        ("anthropic", "max_tokens", "prompt is too long", "exceed context limit"),
    ],
)
def test_a_window_is_kept_to(dialect, field, too_long, over_window):
    async def run():
        async with provider(["Yes."], window_tokens=100) as (server, session):
            long = body_of(dialect, [said("user", "word " * 200)])
            greedy = body_of(dialect, HELLO, **{field: 200})
            fitting = body_of(dialect, HELLO, **{field: 50})
            return [await post(server, session, dialect, body) for body in (long, greedy, fitting)]

    (first, told, _), (second, asked, _), (third, _, _) = asyncio.run(run())
    assert (first, second, third) == (400, 400, 200)
    assert too_long in message_in(told)
    assert over_window in message_in(asked)


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_prefixes_are_cached_unasked(dialect):
    words = "alpha beta gamma " * 500
    first = [said("user", words)]
    second = [*first, said("assistant", "Yes."), said("user", "And?")]
    other = [said("user", "No, " + words)]

    async def run():
        cache = PromptCache()
        async with provider(["Yes."], repeat_last=True, prompt_cache=cache) as (server, session):
            bodies = [body_of(dialect, messages) for messages in (first, second, other)]
            bodies.append(bodies[1] | {"model": "another"})
            return [json.loads((await post(server, session, dialect, body))[1])["usage"] for body in bodies]

    usages = asyncio.run(run())
    prompt, details = (
        ("prompt_tokens", "prompt_tokens_details")
        if dialect == "chat"
        else ("input_tokens", "input_tokens_details")
    )
    cached = [usage[details]["cached_tokens"] for usage in usages]
    assert cached == [0, usages[0][prompt], 0, 0]


def test_a_function_may_be_the_script():
    def answer(received: Received):
        assert received.model == "m", "only m is asked"
        return Reply.overloaded() if "please" not in received.text else "Gladly."

    async def run():
        async with provider(answer) as (server, session):
            polite = body_of("chat", [said("user", "Go on, please.")])
            results = [
                (await post(server, session, "chat", body))[0]
                for body in (body_of("chat", HELLO), polite, polite | {"model": "x"})
            ]
            return results, server.violations

    statuses, violations = asyncio.run(run())
    assert statuses == [503, 200, 400]
    assert [(breach.request, breach.rule) for breach in violations] == [(3, "script")]
    assert violations[0].text.startswith("only m is asked")


def test_a_function_may_look_at_the_server():
    def answer(received):
        return f"Request {len(servers[0].received)} of {received.dialect}."

    async def run():
        async with provider(answer) as (server, session):
            servers.append(server)
            await post(server, session, "chat", body_of("chat", HELLO))
            return json.loads((await post(server, session, "chat", body_of("chat", HELLO)))[1])

    servers = []
    assert asyncio.run(run())["choices"][0]["message"]["content"] == "Request 2 of chat."


def test_the_end_of_a_script_is_an_error_that_says_so():
    async def run():
        async with provider(["One."]) as (server, session):
            first = await post(server, session, "anthropic", body_of("anthropic", HELLO))
            second = await post(server, session, "anthropic", body_of("anthropic", HELLO))
            return first[0], second[0], message_in(second[1]), server.violations

    first, second, message, violations = asyncio.run(run())
    assert (first, second) == (200, 400)
    assert "asked for one more" in message
    assert [(breach.request, breach.rule) for breach in violations] == [(2, "script")]


def test_bodies_that_are_sent_as_they_stand():
    replies = [
        Reply.malformed(),
        Reply.page(),
        Reply(raw=RawBody(b"", "text/event-stream")),
        Reply.failing(418, "short and stout", {"x-kind": "teapot"}),
    ]

    async def run():
        async with provider(replies) as (server, session):
            return [await post(server, session, "chat", body_of("chat", HELLO)) for _ in replies]

    malformed, page, empty, failing = asyncio.run(run())
    assert malformed[0] == 200
    with pytest.raises(ValueError, match="Unterminated"):
        json.loads(malformed[1])
    assert (page[0], page[2]["content-type"]) == (502, "text/html")
    assert (empty[0], empty[1]) == (200, b"")
    assert (failing[0], failing[1], failing[2]["x-kind"]) == (418, b"short and stout", "teapot")


def test_delays_are_kept():
    async def run():
        reply = Reply("four", chunk_chars=1, delay_seconds=0.1, chunk_delay_seconds=0.03)
        async with provider([reply]) as (server, session):
            started = time.monotonic()
            url = server.base_url + ROUTES["chat"]
            async with session.post(url, json=body_of("chat", HELLO, stream=True)) as response:
                headers = time.monotonic() - started
                await response.read()
            return headers, time.monotonic() - started

    headers, whole = asyncio.run(run())
    assert headers >= 0.1
    assert whole - headers >= 6 * 0.03  # opening, four pieces, the reason to stop, the end


def test_a_client_that_leaves_before_the_answer_is_seen():
    async def run():
        async with provider([Reply("late", delay_seconds=30), "soon"]) as (server, session):
            body = body_of("chat", HELLO)
            waiting = asyncio.create_task(post(server, session, "chat", body))
            while not server.received:  # noqa: ASYNC110  # the server has nothing to wait on
                await asyncio.sleep(0.005)
            waiting.cancel()
            seen = await server.wait_for_disconnects()
            status = (await post(server, session, "chat", body))[0]
            return seen, status, server

    seen, status, server = asyncio.run(run())
    assert seen
    assert status == 200
    assert [received.disconnected for received in server.received] == [True, False]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_client_that_leaves_in_the_midst_of_a_stream_is_seen(dialect):
    async def run():
        reply = Reply("a long text", chunk_chars=1, chunk_delay_seconds=0.05)
        async with provider([reply]) as (server, session):
            url = server.base_url + ROUTES[dialect]
            async with session.post(url, json=body_of(dialect, HELLO, stream=True)) as response:
                await response.content.readany()
                response.close()
            return await server.wait_for_disconnects(), server.disconnects

    assert asyncio.run(run()) == (True, 1)


def test_a_client_that_stays_is_no_disconnect():
    async def run():
        replies = ["Yes.", Reply("No.", cut_after_chunks=2)]
        async with provider(replies) as (server, session):
            await post(server, session, "chat", body_of("chat", HELLO, stream=True))
            with pytest.raises(aiohttp.ClientPayloadError):
                await post(server, session, "chat", body_of("chat", HELLO, stream=True))
            return await server.wait_for_disconnects(timeout_seconds=0.1)

    assert asyncio.run(run()) is False


def test_leaving_the_server_ends_what_it_is_waiting_for():
    async def ask(url):
        async with aiohttp.ClientSession() as session, session.post(url, json=body_of("chat", HELLO)):
            pass

    async def run(server):
        task = asyncio.create_task(ask(server.base_url + "/v1/chat/completions"))
        while not server.received:  # noqa: ASYNC110  # the server runs in another thread
            await asyncio.sleep(0.005)
        started = time.monotonic()
        await asyncio.to_thread(server.__exit__, None, None, None)
        with pytest.raises(aiohttp.ClientError):
            await task
        return time.monotonic() - started

    server = ScriptedProvider([Reply("late", delay_seconds=30)]).__enter__()
    assert asyncio.run(run(server)) < 5
    assert server.disconnects == 0


def test_an_unknown_route_is_on_record():
    async def run():
        async with (
            ScriptedProvider([]) as server,
            aiohttp.request("GET", server.base_url + "/v1/files") as response,
        ):
            return response.status, server.violations

    status, violations = asyncio.run(run())
    assert status == 404
    assert violations == (Breach(0, "route", "there is no GET /v1/files here"),)


def test_two_servers_at_once():
    with scripted_provider(["a"]) as one, scripted_provider(["b"]) as two:
        assert one.base_url != two.base_url


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="window"):
        ScriptedProvider([], window=3)


def test_the_same_script_answers_the_same_bytes():
    async def run():
        async with provider(["Yes."]) as (server, session):
            return await post(server, session, "responses", body_of("responses", HELLO, stream=True))

    assert asyncio.run(run())[1] == asyncio.run(run())[1]
