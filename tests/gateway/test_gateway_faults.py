"""What goes wrong: refusals for size, upstreams that die, lie, are late or absent, and callers that go away or dawdle."""

import asyncio
import gzip
import json
import os
import re

import aiohttp
import anthropic
import httpx
import openai
import pytest
from gateway_stage import (
    HELLO,
    KEY,
    REFUSAL,
    STREAM_END,
    STREAM_HEAD,
    Halving,
    Player,
    chunk,
    connected,
    gateway_to,
    read_answer,
    scripted,
    whole,
)

from penstock.errors import ErrorKind
from penstock.gateway import recalling as recalling_module
from penstock.gateway import relay as relay_module
from penstock.gateway import server as server_module
from penstock.gateway import upstreams as upstreams_module
from penstock.gateway import usage_tap as usage_tap_module
from penstock.gateway.callers import AnyCaller
from penstock.gateway.exchange import Outgoing
from penstock.testing.scripted import Failure, Reply

SOAK = bool(os.environ.get("PENSTOCK_SOAK"))
ROUTES = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
TOO_LONG = Failure(kind=ErrorKind.PROMPT_TOO_LONG, window_tokens=8_000, prompt_tokens=9_000)
OK = whole(b'{"ok":true}')


def run(work):
    return asyncio.run(work)


class Watch(AnyCaller):
    def __init__(self):
        super().__init__()
        self.served = []
        self.seen = asyncio.Event()

    def observe(self, served):
        self.served.append(served)
        self.seen.set()


def asked_in(dialect, *, stream=False, text="w" * 64):
    messages = [{"role": "user", "content": text}]
    body = {"model": "m", "stream": stream, "input" if dialect == "responses" else "messages": messages}
    return body | ({"max_tokens": 9} if dialect == "anthropic" else {})


async def ask(gateway, dialect, **given):
    """Status, headers and body of one request."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{gateway.address}{ROUTES[dialect]}", json=asked_in(dialect, **given)) as response,
    ):
        return response.status, response.headers, await response.read()


# Refused for its size.


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", ROUTES)
def test_a_refused_request_is_made_smaller_and_sent_again(dialect, stream):
    async def talk():
        fitter, watch = Halving(), Watch()
        replies = [Reply(failure=TOO_LONG), Reply(failure=TOO_LONG), "It fits."]
        async with scripted(replies, fitter=fitter, operations=watch) as (gateway, provider):
            status, headers, body = await ask(gateway, dialect, stream=stream)
            assert status == 200
            assert b"fits" in body
            sizes = [one.raw.count(b"w") for one in provider.received]
            assert sizes == [64, 32, 16]
            assert [one.window_tokens for one in fitter.failures][:1] == [
                None if dialect == "responses" else 8_000
            ]
            assert headers["x-penstock-tokens-after"] == "5"
            assert [(one.status, one.failure) for one in fitter.settled] == [(200, None)]
            if dialect != "chat" or not stream:  # where nobody asked for it
                assert fitter.settled[0].usage.prompt_tokens > 0
            assert watch.served[0].recoveries == 2

    run(talk())


@pytest.mark.parametrize("fails_as", ["response.failed", "error first"])
def test_a_refusal_in_the_stream_of_responses_is_made_smaller_too(fails_as):
    async def talk():
        fitter = Halving()
        cut = 2 if fails_as == "response.failed" else 0
        replies = [Reply("No.", stream_failure=TOO_LONG, cut_after_chunks=cut), "It fits."]
        async with scripted(replies, fitter=fitter) as (gateway, provider):
            status, _, body = await ask(gateway, "responses", stream=True)
            assert status == 200
            assert b"fits" in body
            assert b"response.failed" not in body
            assert body.count(b"response.created") >= 1
            assert len(provider.received) == 2
            assert fitter.failures[0].kind is ErrorKind.PROMPT_TOO_LONG

    run(talk())


def test_a_refusal_in_a_chat_stream_is_made_smaller_too():
    async def talk():
        fitter = Halving()
        said = b'data: {"error":{"message":"This model\'s maximum context length is 8000 tokens","code":400}}\n\n'
        good = b'data: {"choices":[{"delta":{"content":"fits"}}]}\n\ndata: [DONE]\n\n'
        first, second = ([STREAM_HEAD, chunk(text), STREAM_END] for text in (said, good))
        async with Player(first, second) as upstream, gateway_to(upstream.base_url, fitter=fitter) as gateway:
            status, _, body = await ask(gateway, "chat", stream=True)
            assert (status, body) == (200, good)
            assert len(fitter.failures) == 1

    run(talk())


@pytest.mark.parametrize("dialect", ROUTES)
@pytest.mark.parametrize("framed", ["with a length", "in chunks", "behind spaces"])
def test_a_refusal_under_a_status_that_says_all_is_well_is_made_smaller_too(dialect, framed):
    """As relays of others' models answer."""

    async def talk():
        fitter = Halving()
        error = {"message": "maximum context length is 8000 tokens, prompt is too long", "code": 400}
        said = json.dumps(
            {"type": "error", "error": error} if dialect == "anthropic" else {"error": error}
        ).encode()
        played = [whole(said)]
        if framed != "with a length":
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            spaces = [chunk(b" "), 0.02] * 3 if framed == "behind spaces" else []
            played = [head, *spaces, chunk(said[:4]), 0.01, chunk(said[4:]), STREAM_END]
        async with Player(played, [OK]) as upstream, gateway_to(upstream.base_url, fitter=fitter) as gateway:
            status, _, body = await ask(gateway, dialect)
            assert (status, body) == (200, b'{"ok":true}')
            assert [one.window_tokens for one in fitter.failures] == [8_000]
        fitter = Halving(recovers=False)
        async with Player(played, [OK]) as upstream, gateway_to(upstream.base_url, fitter=fitter) as gateway:
            status, _, body = await ask(gateway, dialect)
            assert (status, body.lstrip()) == (200, said)
            assert len(upstream.requests) == 1

    run(talk())


@pytest.mark.parametrize(
    "text", ['{"error": null, "id": "x"}', '{"error":{"message":"no","code":500}}', '{"e', "  ", ""]
)
def test_other_answers_are_relayed_as_they_come(text):
    async def talk():
        fitter = Halving()
        said = text.encode() + b" " * 400_000 * text.startswith('{"error"')
        async with Player([whole(said)]) as upstream, gateway_to(upstream.base_url, fitter=fitter) as gateway:
            assert (await ask(gateway, "chat"))[2] == said
            assert fitter.failures == []

    run(talk())


@pytest.mark.parametrize("dialect", ROUTES)
def test_a_body_that_cannot_be_made_smaller_is_refused_in_the_dialect(dialect):
    """The provider's own words are other ones, which no client of the dialect knows."""

    async def talk():
        said = {
            "error": {"code": 400, "message": "the request exceeds the available context size", "n_ctx": 4096}
        }
        fitter, watch = Halving(recovers=False), Watch()
        async with scripted(lambda _: Reply.failing(400, said), fitter=fitter, operations=watch) as (
            gateway,
            provider,
        ):
            status, _, body = await ask(gateway, dialect)
            assert status == 400
            error = json.loads(body)["error"]
            if dialect == "anthropic":
                assert error["type"] == "invalid_request_error"
                assert "prompt is too long" in error["message"]
            else:
                assert error["code"] == "context_length_exceeded"
            assert len(provider.received) == 1
            assert fitter.settled[0].failure.kind is ErrorKind.PROMPT_TOO_LONG
            assert watch.served[0].failure.kind is ErrorKind.PROMPT_TOO_LONG

    run(talk())


def test_a_streamed_request_of_responses_is_refused_in_the_stream():
    async def talk():
        async with (
            scripted(lambda _: Reply(failure=TOO_LONG), fitter=Halving(recovers=False)) as (gateway, _),
            openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=KEY, max_retries=0) as client,
        ):
            events = [
                event async for event in await client.responses.create(model="m", input="w", stream=True)
            ]
            assert [event.type for event in events] == ["response.failed"]
            assert events[0].response.error.code == "context_length_exceeded"

    run(talk())


def test_clients_understand_the_refusal():
    async def talk():
        async with (
            scripted(lambda _: Reply(failure=TOO_LONG)) as (gateway, _),
            openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=KEY) as client,
            anthropic.AsyncAnthropic(base_url=gateway.address, api_key=KEY) as other,
        ):
            with pytest.raises(openai.BadRequestError) as refused:
                await client.chat.completions.create(model="m", messages=HELLO)
            assert refused.value.code == "context_length_exceeded"
            with pytest.raises(
                anthropic.BadRequestError, match="prompt is too long: 9000 tokens > 8000 maximum"
            ):
                await other.messages.create(model="m", max_tokens=9, messages=HELLO)

    run(talk())


def test_attempts_are_bounded_and_no_refused_body_is_sent_twice():
    class Stubborn(Halving):
        async def recover(self, outgoing, failure):
            self.failures.append(failure)
            return Outgoing(body=outgoing.body + b" " * (len(self.failures) < 9))

    class Same(Halving):
        async def recover(self, outgoing, failure):
            return outgoing

    async def talk():
        async with scripted(lambda _: Reply(failure=TOO_LONG), fitter=Stubborn()) as (gateway, provider):
            assert (await ask(gateway, "chat"))[0] == 400
            assert len(provider.received) == 4  # max_attempts, after the first
        async with scripted(lambda _: Reply(failure=TOO_LONG), fitter=Same()) as (gateway, provider):
            assert (await ask(gateway, "chat"))[0] == 400
            assert len(provider.received) == 1

    run(talk())


def test_a_body_that_is_known_to_be_refused_is_not_sent():
    class Knows(Halving):
        async def fit(self, incoming):
            return Outgoing(body=incoming.body, refusal=REFUSAL)

    async def talk():
        async with scripted([], fitter=Knows()) as (gateway, provider):
            status, _, body = await ask(gateway, "anthropic")
            assert status == 400
            assert b"prompt is too long: 9000 tokens > 8000 maximum" in body
            assert not provider.received

    run(talk())


@pytest.mark.parametrize(
    ("dialect", "given", "headers"),
    [
        ("chat", {}, {"x-penstock-target-tokens": "many"}),
        ("anthropic", {}, {}),
        ("chat", {}, {}),
        ("responses", {"stream": True}, {}),
    ],
    ids=["wish", "refused in Anthropic's words", "refused in OpenAI's", "refused in the stream"],
)
def test_answers_of_our_own_name_the_request_in_the_log(dialect, given, headers):
    class Knows(Halving):
        async def fit(self, incoming):
            return Outgoing(body=incoming.body, refusal=REFUSAL)

    async def talk():
        watch = Watch()
        async with (
            scripted([], fitter=Knows(), operations=watch) as (gateway, _),
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{gateway.address}{ROUTES[dialect]}", json=asked_in(dialect, **given)) as response,
        ):
            assert response.headers["x-penstock-request-id"] == watch.served[0].id

    run(talk())


def test_an_absent_upstream_and_a_route_that_is_passed_on_name_the_request_too():
    async def talk():
        watch = Watch()
        async with gateway_to("http://127.0.0.1:9", operations=watch) as gateway:
            _, headers, _ = await ask(gateway, "chat")
            assert headers["x-penstock-request-id"] == watch.served[0].id
        watch = Watch()
        async with (
            scripted([], operations=watch) as (gateway, _),
            aiohttp.ClientSession() as session,
            session.get(f"{gateway.address}/v1/models") as response,
        ):
            assert response.headers["x-penstock-request-id"] == watch.served[0].id

    run(talk())


def test_an_answer_that_no_log_knows_names_no_request():
    async def talk():
        async with (
            scripted([]) as (gateway, _),
            aiohttp.ClientSession() as session,
            session.get(f"{gateway.address}/api/show") as response,
        ):
            assert response.status == 404
            assert not [name for name in response.headers if "request-id" in name.lower()]

    run(talk())


# Other answers are the provider's.


@pytest.mark.parametrize(
    "raw",
    [
        whole(b"<html>502</html>", b"500 Oh", b"text/html"),
        whole(b'{"truncated": ', b"200 OK"),
        whole(b"", b"200 OK"),
        whole(b'{"error":"slow down"}', b"429 Too Many Requests"),
        whole(b"\xff\xfe\x00rubbish", b"200 OK", b"application/octet-stream"),
    ],
)
def test_rubbish_is_relayed_as_it_is(raw):
    async def talk():
        fitter = Halving()
        async with Player([raw]) as upstream, gateway_to(upstream.base_url, fitter=fitter) as gateway:
            status, _, body = await ask(gateway, "chat")
            head, _, sent = raw.partition(b"\r\n\r\n")
            assert (status, body) == (int(head.split()[1]), sent)
            assert len(upstream.requests) == 1
            assert fitter.settled[0].usage is None

    run(talk())


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nwhatever",
        b"HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX-Odd: a\x01b\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 O\x01K\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=["another protocol", "a switch that nobody asked for", "no status", "odd header", "odd reason"],
)
def test_what_is_no_http_is_a_502_and_is_not_asked_again(said):
    async def talk():
        async with (
            Player([said, None]) as upstream,
            gateway_to(upstream.base_url, retries=3) as gateway,
        ):
            status, _, body = await ask(gateway, "anthropic")
            assert status == 502
            assert json.loads(body)["error"]["type"] == "api_error"
            assert len(upstream.requests) == 1

    run(talk())


# No answer.


def test_an_absent_upstream_is_a_502_in_the_dialect():
    async def talk():
        fitter = Halving()
        async with gateway_to("http://127.0.0.1:9", fitter=fitter, retries=1) as gateway:
            status, _, body = await ask(gateway, "chat")
            assert status == 502
            assert "did not answer" in json.loads(body)["error"]["message"]
            assert fitter.settled[0].status == 502
            assert (await ask(gateway, "anthropic"))[0] == 502
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{gateway.address}/v1/models") as response,
            ):
                assert response.status == 502

    run(talk())


def test_a_request_without_an_answer_is_sent_again_as_often_as_set():
    async def talk():
        watch = Watch()
        async with (
            Player([None], [None], [OK]) as upstream,
            gateway_to(upstream.base_url, retries=2, operations=watch) as gateway,
        ):
            assert (await ask(gateway, "chat"))[0] == 200
            assert len({body for _, body in upstream.requests}) == 1
            assert len(upstream.requests) == 3
            assert watch.served[0].retries == 2
        async with Player([None], [OK]) as upstream, gateway_to(upstream.base_url, retries=0) as gateway:
            assert (await ask(gateway, "chat"))[0] == 502
            assert len(upstream.requests) == 1

    run(talk())


@pytest.mark.parametrize("first", [[None], [whole(b"{}", b"503 Busy")]], ids=["dies", "503"])
def test_fallbacks_are_asked_in_their_order(first):
    async def talk():
        async with Player(first) as one, Player([None]) as two, Player([OK]) as three:
            upstreams = {
                "one": {"base_url": one.base_url, "fallbacks": ("two", "three")},
                "two": {"base_url": two.base_url, "models": ("none",)},
                "three": {"base_url": three.base_url, "models": ("none",), "api_key_env": "UPSTREAM_KEY"},
            }
            async with gateway_to(None, upstreams=upstreams) as gateway:
                status, _, body = await ask(gateway, "chat")
                assert (status, body) == (200, b'{"ok":true}')
                assert [len(one.requests), len(two.requests), len(three.requests)] == [1, 1, 1]
                assert b"Bearer key-of-the-upstream" in three.requests[0][0]

    run(talk())


def test_a_fallback_at_another_host_does_not_get_the_callers_key():
    async def talk():
        async with Player([None]) as one, Player([OK]) as two:
            upstreams = {
                "one": {"base_url": one.base_url, "fallbacks": ("two",)},
                "two": {"base_url": two.base_url.replace("127.0.0.1", "localhost"), "models": ("none",)},
            }
            async with (
                gateway_to(None, upstreams=upstreams) as gateway,
                aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as session,
                session.post(f"{gateway.address}{ROUTES['chat']}", json=asked_in("chat")) as response,
            ):
                assert response.status == 200
                assert KEY.encode() in one.requests[0][0]
                assert KEY.encode() not in two.requests[0][0]

    run(talk())


def test_an_upstream_that_is_too_slow_is_a_504_and_is_not_asked_again():
    async def talk():
        async with (
            Player([30]) as upstream,
            gateway_to(upstream.base_url, idle_seconds=0.2, retries=3) as gateway,
        ):
            status, _, body = await ask(gateway, "anthropic")
            assert status == 504
            assert json.loads(body)["error"]["type"] == "timeout_error"
            assert len(upstream.requests) == 1

    run(talk())


# Streams that break.

PIECES = [f'data: {{"choices":[{{"delta":{{"content":"{word}"}}}}]}}\n\n'.encode() for word in "abcd"]


@pytest.mark.parametrize("after", range(5))
def test_an_upstream_that_dies_in_mid_stream_ends_the_callers_stream_noticeably(after):
    async def talk():
        fitter, watch = Halving(), Watch()
        played = [STREAM_HEAD, *map(chunk, PIECES[:after]), 0.01, None]
        async with (
            Player(played) as upstream,
            gateway_to(upstream.base_url, fitter=fitter, operations=watch) as gateway,
            openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=KEY, max_retries=0) as client,
        ):
            got = []

            async def read():
                stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
                async for piece in stream:
                    got.append(piece.choices[0].delta.content)  # noqa: PERF401 - what came before the end counts

            with pytest.raises((openai.APIError, httpx.HTTPError)):
                await read()
            assert got == list("abcd")[:after]
            await asyncio.wait_for(fitter.done.wait(), 30)
            assert fitter.settled[0].failure.kind is ErrorKind.NETWORK
            await asyncio.wait_for(watch.seen.wait(), 30)
            assert watch.served[0].cut_off == "upstream"

    run(talk())


class Lookup:
    """Answers calls of tools, and fails at the end."""

    async def look_up(self, calls, *, rounds):
        return ["found" for _ in calls]

    async def keep(self, rounds):
        raise LookupError(KEY)


class Forgetful(Halving):
    async def fit(self, incoming):
        return Outgoing(body=incoming.body, recalling=Lookup(), ticket=1)


def test_a_fault_of_ours_in_mid_stream_ends_the_stream_noticeably(caplog):
    async def talk():
        fitter, watch = Forgetful(), Watch()
        said = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"Hi."}}]}\n\n'
        end = (
            b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        )
        async with (
            Player([STREAM_HEAD, chunk(said), chunk(end), STREAM_END]) as upstream,
            gateway_to(upstream.base_url, fitter=fitter, operations=watch) as gateway,
            connected(gateway) as (reader, writer),
        ):
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
            )
            got = await asyncio.wait_for(reader.read(), 30)  # to its end: the connection is closed
            assert got.count(b"HTTP/1.1") == 1
            assert b"Hi." in got
            assert b"[DONE]" not in got
            assert not got.endswith(STREAM_END)
            await asyncio.wait_for(watch.seen.wait(), 30)
            assert watch.served[0].cut_off == "gateway"
            await asyncio.wait_for(fitter.done.wait(), 30)
            assert fitter.settled[0].broken_off

    run(talk())
    assert KEY not in caplog.text
    assert "LookupError in keep" in caplog.text


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_an_answer_without_end_in_which_the_model_may_look_something_up_is_an_error(
    monkeypatch, packed, streamed
):
    monkeypatch.setattr(recalling_module, "_MOST_STREAM_BYTES", 100_000)
    monkeypatch.setattr(recalling_module, "MOST_ANSWER_BYTES", 100_000)
    monkeypatch.setattr(usage_tap_module, "MOST_ANSWER_BYTES", 100_000)
    line = b": nothing\n\n" * 8_000
    kind = b"text/event-stream" if streamed else b"application/json"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n" % kind
    pieces = [head + b"Content-Encoding: gzip\r\n\r\n", chunk(gzip.compress(line * 8))]
    if not packed:
        pieces = [head + b"\r\n", *[chunk(line)] * 8]

    async def talk():
        async with (
            Player([*pieces, STREAM_END]) as upstream,
            gateway_to(upstream.base_url, fitter=Forgetful()) as gateway,
        ):
            if streamed:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await ask(gateway, "chat")
            else:
                status, _, body = await ask(gateway, "chat")
                assert status == 502
                assert "cannot be read" in json.loads(body)["error"]["message"]

    run(talk())


def test_an_answer_that_is_too_large_to_be_read_goes_through_without_an_item_of_ours(monkeypatch):
    monkeypatch.setattr(relay_module, "MOST_ANSWER_BYTES", 100_000)

    class Inserting(Halving):
        async def fit(self, incoming):
            return Outgoing(body=incoming.body, first_item={"type": "compaction"}, ticket=1)

    async def talk():
        for size in (10, 200_000):
            body = json.dumps({"output": ["x" * size], "usage": {"input_tokens": 5}}).encode()
            fitter = Inserting()
            async with (
                Player([whole(body)]) as upstream,
                gateway_to(upstream.base_url, fitter=fitter) as gateway,
            ):
                status, _, got = await ask(gateway, "responses")
                assert status == 200
                assert (got == body) is (size > 100_000)
                assert len(json.loads(got)["output"]) == 1 + (size < 100_000)
                assert fitter.settled[0].usage.prompt_tokens == 5

    run(talk())


@pytest.mark.parametrize("slowly", [True, False])
def test_a_list_of_models_without_end_hides_no_others(monkeypatch, slowly):
    monkeypatch.setattr(upstreams_module, "_LISTING_BYTES", 100_000)
    monkeypatch.setattr(upstreams_module, "_LISTING_SECONDS", 0.2 if slowly else 30.0)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    endless = [head, *([chunk(b" "), 0.05] * 600 if slowly else [chunk(b" " * 90_000)] * 9), asyncio.Event()]

    async def talk():
        async with Player(endless) as one, Player([whole(b'{"data":[{"id":"b"}]}')]) as two:
            upstreams = {"one": {"base_url": one.base_url}, "two": {"base_url": two.base_url}}
            async with (
                gateway_to(None, upstreams=upstreams) as gateway,
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session,
                session.get(f"{gateway.address}/v1/models") as response,
            ):
                assert [entry["id"] for entry in (await response.json())["data"]] == ["b"]

    run(talk())


def test_a_whole_answer_that_breaks_off_is_an_error():
    async def talk():
        async with Player([OK[:-3], None]) as upstream, gateway_to(upstream.base_url) as gateway:
            assert (await ask(gateway, "chat"))[0] == 502

    run(talk())


@pytest.mark.parametrize("after", range(4))
def test_a_caller_that_goes_away_ends_the_request_upstream(after):
    async def talk():
        fitter, watch = Halving(), Watch()
        played = [*([STREAM_HEAD] if after else []), *map(chunk, PIECES[:after]), asyncio.Event()]
        async with (
            Player(played) as upstream,
            gateway_to(upstream.base_url, fitter=fitter, operations=watch) as gateway,
        ):
            async with connected(gateway) as (reader, writer):
                body = json.dumps(asked_in("chat", stream=True)).encode()
                head = f"POST {ROUTES['chat']} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                if after:
                    await asyncio.wait_for(reader.readuntil(b'"%c"' % b"abc"[after - 1]), 30)
                else:
                    await asyncio.wait_for(upstream.asked.wait(), 30)
            # The player waits for its event, so that only a closed connection can have been noticed.
            await asyncio.wait_for(watch.seen.wait(), 30)
            assert watch.served[0].cut_off == "client"
            await asyncio.wait_for(fitter.done.wait(), 30)
            assert fitter.settled[0].usage is None

    run(talk())


def test_a_caller_that_leaves_with_the_last_event_was_served():
    """Clients close the connection when they have read `[DONE]`, and what was used is settled all the same."""

    async def talk():
        class Slow(Halving):
            async def settle(self, outgoing, report):
                await asyncio.sleep(0.02)
                await super().settle(outgoing, report)

        fitter, watch = Slow(), Watch()
        done = b'data: {"choices":[],"usage":{"prompt_tokens":5}}\n\ndata: [DONE]\n\n'
        async with (
            Player([STREAM_HEAD, chunk(PIECES[0]), chunk(done), asyncio.Event()]) as upstream,
            gateway_to(upstream.base_url, fitter=fitter, operations=watch) as gateway,
        ):
            async with connected(gateway) as (reader, writer):
                writer.write(
                    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
                )
                await asyncio.wait_for(reader.readuntil(b"[DONE]\n\n"), 30)
            await asyncio.wait_for(watch.seen.wait(), 30)
            assert watch.served[0].cut_off == ""
            assert [one.usage.prompt_tokens for one in fitter.settled] == [5]

    run(talk())


def test_settling_ends_though_the_caller_has_gone():
    async def talk():
        begun = asyncio.Event()

        class Slow(Halving):
            async def settle(self, outgoing, report):
                begun.set()
                await asyncio.sleep(0.05)
                await super().settle(outgoing, report)

        fitter, watch = Slow(), Watch()
        async with (
            Player([OK]) as upstream,
            gateway_to(upstream.base_url, fitter=fitter, operations=watch) as gateway,
        ):
            async with connected(gateway) as (_, writer):
                writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
                await asyncio.wait_for(begun.wait(), 30)
            await asyncio.wait_for(watch.seen.wait(), 30)
            await asyncio.wait_for(fitter.done.wait(), 30)
            assert len(fitter.settled) == 1

    run(talk())


def test_the_provider_sees_that_the_caller_has_gone():
    async def talk():
        replies = [Reply("word " * 200, chunk_delay_seconds=0.02)]
        async with scripted(replies) as (gateway, provider), aiohttp.ClientSession() as session:
            async with session.post(
                f"{gateway.address}{ROUTES['anthropic']}", json=asked_in("anthropic", stream=True)
            ) as response:
                await response.content.readany()
                response.close()
            assert await provider.wait_for_disconnects()

    run(talk())


# The order of things.


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", ROUTES)
def test_usage_is_settled_before_the_last_byte_goes_out(dialect, stream):
    async def talk():
        may_go = asyncio.Event()

        class Holding(Halving):
            async def settle(self, outgoing, report):
                await super().settle(outgoing, report)
                await may_go.wait()

        fitter = Holding()
        async with (
            scripted(["All of it."], fitter=fitter) as (gateway, _),
            aiohttp.ClientSession() as session,
        ):
            body = asked_in(dialect, stream=stream)
            if dialect == "chat" and stream:
                body["stream_options"] = {"include_usage": True}
            got = b""

            async def read():
                nonlocal got
                async with session.post(f"{gateway.address}{ROUTES[dialect]}", json=body) as response:
                    async for data in response.content.iter_any():
                        got += data

            reading = asyncio.create_task(read())
            await asyncio.wait_for(fitter.done.wait(), 30)
            await asyncio.sleep(0.01)
            ends = {"chat": b"[DONE]", "responses": b"response.completed", "anthropic": b"message_stop"}
            assert not reading.done()
            assert (ends[dialect] if stream else b"All of it") not in got
            may_go.set()
            await reading
            assert (ends[dialect] if stream else b"All of it") in got
            assert fitter.settled[0].usage.output_tokens > 0
            assert len(fitter.settled) == 1

    run(talk())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", ROUTES)
def test_the_last_byte_waits_until_the_messages_are_on_disk_and_is_settled_behind(dialect, stream):
    async def talk():
        waits, durable = asyncio.Event(), asyncio.Event()

        class Logging(Halving):
            async def wait_until_durable(self, outgoing):
                waits.set()
                await durable.wait()
                return True

        fitter, got = Logging(), b""
        async with (
            scripted(["All of it."], fitter=fitter) as (gateway, _),
            aiohttp.ClientSession() as session,
        ):
            body = asked_in(dialect, stream=stream)
            if dialect == "chat" and stream:
                body["stream_options"] = {"include_usage": True}

            async def read():
                nonlocal got
                async with session.post(f"{gateway.address}{ROUTES[dialect]}", json=body) as response:
                    async for data in response.content.iter_any():
                        got += data

            reading = asyncio.create_task(read())
            await asyncio.wait_for(waits.wait(), 30)
            await asyncio.sleep(0.01)
            ends = {"chat": b"[DONE]", "responses": b"response.completed", "anthropic": b"message_stop"}
            end = ends[dialect] if stream else b"All of it"
            assert end not in got
            durable.set()
            await reading
            assert end in got
            await asyncio.wait_for(fitter.done.wait(), 30)
            assert [one.usage.output_tokens > 0 for one in fitter.settled] == [True]

    run(talk())


def test_events_are_relayed_as_they_arrive():
    async def talk():
        gates = [asyncio.Event() for _ in PIECES]
        played = [
            STREAM_HEAD,
            *(part for pair in zip(gates, map(chunk, PIECES), strict=True) for part in pair),
            STREAM_END,
        ]
        async with (
            Player(played) as upstream,
            gateway_to(upstream.base_url) as gateway,
            aiohttp.ClientSession() as session,
        ):
            gates[0].set()
            async with session.post(
                f"{gateway.address}{ROUTES['chat']}", json=asked_in("chat", stream=True)
            ) as response:
                for number, piece in enumerate(PIECES):
                    gates[number].set()
                    assert await asyncio.wait_for(response.content.readany(), 30) == piece
                assert await response.content.read() == b""

    run(talk())


# Callers that dawdle.


def test_a_body_that_does_not_come_is_given_up(monkeypatch):
    monkeypatch.setattr(server_module, "_SEND_SECONDS", 0.05)

    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url) as gateway:
            async with connected(gateway) as (reader, writer):
                writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
                status, fields, body = await read_answer(reader)
                assert status == 408
                assert fields[b"connection"] == b"close"
                assert b"did not arrive" in body
            assert not upstream.requests

    run(talk())


def test_a_streamed_body_is_bounded_in_size_and_time(monkeypatch):
    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url, max_body_mb=1) as gateway:

            async def send():
                for _ in range(40):
                    yield bytes(50_000)

            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{gateway.address}/v1/files", data=send()) as response,
            ):
                assert response.status == 413
            monkeypatch.setattr(server_module, "_SEND_SECONDS", 0.05)
            async with connected(gateway) as (reader, writer):
                writer.write(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
                assert (await read_answer(reader))[0] == 408

    run(talk())


@pytest.mark.parametrize(
    "request_head",
    [
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 40_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-N: 1\r\n" * 300 + b"\r\n",
        b"\x16\x03\x01\x02\x00 this is no HTTP\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: nine\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["long header", "long line", "many headers", "tls", "no length", "two lengths"],
)
def test_huge_or_malformed_heads_are_refused(request_head, caplog):
    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url) as gateway:
            async with connected(gateway) as (reader, writer):
                writer.write(request_head)
                status, *_ = await read_answer(reader)
                assert 400 <= status < 500
            assert not upstream.requests
            assert (await ask(gateway, "chat"))[0] == 200

    run(talk())
    assert not caplog.records


@pytest.mark.parametrize("body", [b"", b"null", b"[1,2", b'{"messages":', b"\xff\xfe", b"[" * 5_000])
def test_malformed_bodies_go_to_the_provider_as_they_are(body):
    async def talk():
        async with (
            Player([whole(b"{}", b"400 Bad Request")]) as upstream,
            gateway_to(upstream.base_url) as gateway,
        ):
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{gateway.address}/v1/responses", data=body) as response,
            ):
                assert response.status == 400
            assert upstream.requests[0][1] == body

    run(talk())


def test_a_fault_of_ours_is_told_without_its_words(caplog):
    class Faulty(AnyCaller):
        async def authorise(self, request, served):
            raise LookupError(f"the key {KEY} is strange")

    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url, operations=Faulty()) as gateway:
            status, _, body = await ask(gateway, "chat")
            assert status == 500
            assert KEY.encode() not in body
            assert b"LookupError" in body

    run(talk())
    assert KEY not in caplog.text
    assert re.search(r"LookupError in authorise:\d+", caplog.text)


# Many at once.


def test_many_streams_are_held_at_once():
    count = 1_000 if SOAK else 100

    async def talk():
        gate = asyncio.Event()
        played = [STREAM_HEAD, chunk(PIECES[0]), gate, chunk(PIECES[1]), STREAM_END]
        async with (
            Player(played) as upstream,
            gateway_to(upstream.base_url) as gateway,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        ):
            begun = 0

            async def hold():
                nonlocal begun
                async with session.post(
                    f"{gateway.address}{ROUTES['chat']}", json=asked_in("chat", stream=True)
                ) as response:
                    first = await response.content.readany()
                    begun += 1
                    if begun == count:
                        gate.set()
                    return first + await response.content.read()

            answers = await asyncio.gather(*(hold() for _ in range(count)))
            assert answers == [PIECES[0] + PIECES[1]] * count

    run(talk())
