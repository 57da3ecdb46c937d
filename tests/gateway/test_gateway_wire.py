"""Bytes through the gateway: what is sent arrives, what is answered comes back, and everything else stays here."""

import asyncio
import gzip
import json
import socket
import zlib

import aiohttp
import pytest
from gateway_stage import (
    KEY,
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
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import SettingsError
from penstock.gateway.callers import AnyCaller, Caller, Refused

ROUTES = ["/v1/chat/completions", "/v1/responses", "/v1/messages"]
OK = whole(b'{"ok":true}')


def run(work):
    return asyncio.run(work)


async def exchange(gateway, request):
    """What a raw connection gets for these bytes, until it is closed or the answer is complete."""
    async with connected(gateway) as (reader, writer):
        writer.write(request)
        return await read_answer(reader, has_body=not request.startswith(b"HEAD"))


def post(path, body, *lines, host=b"127.0.0.1"):
    headers = b"".join(b"%b\r\n" % line for line in lines)
    return b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Length: %d\r\n%b\r\n%b" % (
        path.encode(), host, len(body), headers, body,
    )  # fmt: skip


# Byte for byte.


@settings(max_examples=40)
@given(
    body=st.binary(max_size=3_000),
    answer=st.lists(st.binary(min_size=1, max_size=600), max_size=6),
    route=st.sampled_from([*ROUTES, "/v1/embeddings", "/v1/messages/count_tokens"]),
    streamed=st.booleans(),
)
def test_bytes_arrive_as_they_were_sent_in_both_directions(body, answer, route, streamed):
    async def talk():
        if streamed:
            played = [STREAM_HEAD, *(part for piece in answer for part in (chunk(piece), 0)), STREAM_END]
        else:
            played = [whole(b"".join(answer))]
        async with Player(played) as upstream, gateway_to(upstream.base_url) as gateway:
            async with (
                aiohttp.ClientSession(auto_decompress=False) as session,
                session.post(f"{gateway.address}{route}", data=body) as response,
            ):
                assert await response.read() == b"".join(answer)
                assert response.status == 200
            assert upstream.requests[0][1] == body

    run(talk())


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(1, 70_000), max_size=8))
def test_a_body_arrives_whole_however_it_was_cut(sizes):
    async def talk():
        pieces = [bytes([65 + n % 26]) * size for n, size in enumerate(sizes)]

        async def send():
            for piece in pieces:
                yield piece

        async with Player([OK]) as upstream, gateway_to(upstream.base_url) as gateway:
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{gateway.address}/v1/messages", data=send()) as response,
            ):
                assert response.status == 200
            assert upstream.requests[0][1] == b"".join(pieces)

    run(talk())


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/whatever"])
@pytest.mark.parametrize("length", [True, False], ids=["whole", "streamed"])
def test_the_bytes_of_a_header_pass_though_they_are_no_utf_8(path, length):
    """Latin-1 is what HTTP once allowed, and old programs send."""

    async def talk():
        ends = (
            b"Content-Length: 2\r\n\r\n{}"
            if length
            else b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        )
        answer = b"HTTP/1.1 200 Tr\xe8s bien\r\nX-Latin: caf\xe9\r\nX-Utf: caf\xc3\xa9\r\n" + ends
        async with Player([answer]) as upstream, gateway_to(upstream.base_url) as gateway:
            async with connected(gateway) as (reader, writer):
                writer.write(
                    post(path, b"{}", b"X-Latin: na\xefve", b"X-Utf: na\xc3\xafve", b"Connection: close")
                )
                got = await asyncio.wait_for(reader.read(), 30)
            head, _, body = got.partition(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            assert lines[0] == b"HTTP/1.1 200 Tr\xe8s bien"
            assert b"X-Latin: caf\xe9" in lines
            assert b"X-Utf: caf\xc3\xa9" in lines
            assert body == (b"{}" if length else b"2\r\n{}\r\n0\r\n\r\n")
            sent = upstream.requests[0][0].split(b"\r\n")
            assert b"X-Latin: na\xefve" in sent
            assert b"X-Utf: na\xc3\xafve" in sent

    run(talk())


@pytest.mark.parametrize(
    ("version", "asks", "says", "stays"),
    [
        (b"1.1", b"", None, True),
        (b"1.1", b"Connection: close\r\n", b"close", False),
        (b"1.0", b"", None, False),
        (b"1.0", b"Connection: keep-alive\r\n", b"keep-alive", True),
    ],
)
def test_a_connection_stays_as_long_as_its_caller_wants(version, asks, says, stays):
    async def talk():
        async with (
            Player([OK]) as upstream,
            gateway_to(upstream.base_url) as gateway,
            connected(gateway) as (reader, writer),
        ):
            request = b"POST /v1/messages HTTP/%b\r\nHost: localhost\r\n%bContent-Length: 2\r\n\r\n{}"
            for _ in range(2 if stays else 1):
                writer.write(request % (version, asks))
                status, fields, body = await read_answer(reader)
                assert (status, body) == (200, b'{"ok":true}')
                assert fields.get(b"connection") == says
                assert b"date" in fields
            if not stays:
                assert await asyncio.wait_for(reader.read(), 30) == b""

    run(talk())


def test_query_headers_and_method_pass_and_our_own_stay_here():
    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url) as gateway:
            lines = (
                b"X-Api-Key: %b" % KEY.encode(),
                b"anthropic-beta: one,two",
                b"x-penstock-session: mine",
                b"X-Unknown: yes",
                b"Connection: keep-alive, X-Hop",
                b"X-Hop: gone",
                b"Accept-Encoding: gzip, br",
            )
            status, _, body = await exchange(
                gateway, post("/deep/v1/messages?beta=true&x=%20", b"{}", *lines)
            )
            assert (status, body) == (200, b'{"ok":true}')
            head = upstream.requests[0][0].lower()
            assert head.startswith(b"post /v1/messages?beta=true&x=%20 http/1.1")
            assert b"x-api-key: %b" % KEY.encode() in head
            assert b"anthropic-beta: one,two" in head
            assert b"x-unknown: yes" in head
            assert b"accept-encoding: identity" in head
            assert b"penstock" not in head
            assert b"x-hop" not in head
            assert b"user-agent" not in head
            assert b"host: 127.0.0.1:%d" % upstream.port in head

    run(talk())


@pytest.mark.parametrize(
    ("method", "path", "arrives"),
    [
        ("GET", "/v1/files/abc/content?x=1", b"GET /v1/files/abc/content?x=1 "),
        ("DELETE", "/some/v1/responses/resp_1", b"DELETE /v1/responses/resp_1 "),
        ("PATCH", "/v1/new/thing%2Fwith/it", b"PATCH /v1/new/thing%2Fwith/it "),
        ("GET", "/v1/responses/resp_1/input_items", b"GET /v1/responses/resp_1/input_items "),
        ("POST", "/v1/threads/t/messages", b"POST /v1/threads/t/messages "),
        ("GET", "/models", b"GET /v1/models "),
    ],
)
def test_what_we_do_not_know_passes_unchanged(method, path, arrives):
    async def talk():
        fitter = Halving()
        async with Player([OK]) as upstream, gateway_to(upstream.base_url, fitter=fitter) as gateway:
            request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n".encode()
            status, _, body = await exchange(gateway, request)
            assert (status, body) == (200, b'{"ok":true}')
            assert upstream.requests[0][0].startswith(arrives)
            assert b"Accept-Encoding: gzip" in upstream.requests[0][0]
            assert fitter.fitted == []

    run(talk())


@pytest.mark.parametrize(
    ("method", "answer", "status", "length"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 123\r\n\r\n", 200, b"123"),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n", 204, None),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", 304, None),
        (
            "GET",
            b"HTTP/1.1 302 Found\r\nLocation: http://other.example/\r\nContent-Length: 0\r\n\r\n",
            302,
            b"0",
        ),
    ],
)
def test_answers_without_a_body_and_connections_are_kept(method, answer, status, length):
    async def talk():
        async with (
            Player([answer]) as upstream,
            gateway_to(upstream.base_url) as gateway,
            connected(gateway) as (reader, writer),
        ):
            for _ in range(2):
                writer.write(f"{method} /v1/things HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                found, fields, _ = await read_answer(reader, has_body=False)
                assert (found, fields.get(b"content-length")) == (status, length)
            assert len(upstream.requests) == 2

    run(talk())


def test_no_header_that_a_connection_header_names_goes_on():
    async def talk():
        said = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Stays: 1\r\n"
        async with (
            Player([said + b"Content-Length: 0\r\n\r\n"]) as upstream,
            gateway_to(upstream.base_url) as gateway,
        ):
            lines = b"Connection: keep-alive", b"Connection: X-Hop", b"X-Hop: 1", b"X-Stays: 1"
            _, fields, _ = await exchange(gateway, post("/v1/messages", b"{}", *lines))
            assert b"x-stays" in fields
            assert b"x-hop" not in fields
            assert b"X-Stays" in upstream.requests[0][0]
            assert b"X-Hop" not in upstream.requests[0][0]

    run(talk())


def test_headers_of_an_upstream_may_be_as_long_as_those_of_a_caller():
    async def talk():
        long = b"x" * 30_000
        said = b"HTTP/1.1 200 OK\r\nContent-Security-Policy: %b\r\nContent-Length: 2\r\n\r\n{}" % long
        async with Player([said]) as upstream, gateway_to(upstream.base_url) as gateway:
            status, fields, _ = await exchange(gateway, post("/v1/messages", b"{}", b"X-Long: " + long))
            assert (status, fields[b"content-security-policy"]) == (200, long)
            assert b"X-Long: " + long in upstream.requests[0][0]

    run(talk())


def test_a_body_is_asked_for_where_the_client_waits_for_that():
    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url) as gateway:
            for route in ("messages", "files"):
                async with connected(gateway) as (reader, writer):
                    writer.write(
                        f"POST /v1/{route} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                        "Content-Length: 5\r\n\r\n".encode()
                    )
                    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                    writer.write(b"hello")
                    status, _, body = await read_answer(reader)
                    assert (status, body) == (200, b'{"ok":true}')
                assert upstream.requests[-1][1] == b"hello"

    run(talk())


def test_an_answer_that_was_packed_unasked_comes_back_packed_and_its_usage_is_read():
    async def talk():
        said = json.dumps({"usage": {"prompt_tokens": 7, "completion_tokens": 3}}).encode()
        packed = gzip.compress(said)
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
        fitter = Halving()
        async with (
            Player([head + packed]) as upstream,
            gateway_to(upstream.base_url, fitter=fitter) as gateway,
        ):
            status, fields, body = await exchange(gateway, post("/v1/chat/completions", b"{}"))
            assert (status, body) == (200, packed)
            assert fields[b"content-encoding"] == b"gzip"
            assert fitter.settled[0].usage.prompt_tokens == 7

    run(talk())


def test_a_packed_request_is_unpacked_for_the_fitter_and_bombs_are_not():
    async def talk():
        fitter = Halving()
        async with (
            Player([OK]) as upstream,
            gateway_to(upstream.base_url, fitter=fitter, max_body_mb=1) as gateway,
        ):
            gz = (b"Content-Encoding: gzip",)
            assert (await exchange(gateway, post("/v1/messages", gzip.compress(b'{"a":1}'), *gz)))[0] == 200
            assert fitter.fitted[0].body == b'{"a":1}' == upstream.requests[0][1]
            assert b"content-encoding" not in upstream.requests[0][0].lower()
            assert (await exchange(gateway, post("/v1/messages", gzip.compress(bytes(3 << 20)), *gz)))[
                0
            ] == 413
            assert (await exchange(gateway, post("/v1/messages", b"no gzip", *gz)))[0] == 400
            other = (b"Content-Encoding: br",)
            assert (await exchange(gateway, post("/v1/messages", b"x", *other)))[0] == 415
            assert len(upstream.requests) == 1

    run(talk())


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
@pytest.mark.parametrize(
    "change", [lambda data: data[:-3], lambda data: data[:15], lambda data: b"", lambda data: data + data]
)
def test_a_packed_request_that_breaks_off_or_goes_on_behind_its_end_goes_nowhere(packing, change):
    pack = {"gzip": gzip.compress, "deflate": zlib.compress}[packing]

    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url) as gateway:
            sent = change(pack(b'{"model":"m","messages":[]}'))
            head = f"Content-Encoding: {packing}".encode()
            status, _, body = await exchange(gateway, post("/v1/messages", sent, head))
            assert status == 400
            assert packing in json.loads(body)["error"]["message"]
            assert not upstream.requests

    run(talk())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_gateway_that_is_its_own_upstream_does_not_start(host):
    """Each request would be sent in a circle until all places are taken."""

    async def talk():
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with pytest.raises(SettingsError, match="its own upstream"):
            async with gateway_to(f"http://{host}:{port}/v1", port=port):
                pass
        async with gateway_to(
            f"http://127.0.0.7:{port}", port=port
        ) as gateway:  # another address of this machine
            assert (await exchange(gateway, post("/v1/messages", b"{}")))[0] == 502

    run(talk())


# What the gateway answers itself.


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /", 200),
        ("HEAD /", 200),
        ("GET /health", 200),
        ("GET /api/v1/models", 404),
        ("POST /api/show", 404),
        ("GET /favicon.ico", 404),
        ("GET /v1/../secret", 404),
        ("GET /v1/%2e%2e/secret", 404),
    ],
)
def test_outside_of_the_api_it_answers_at_once(request_line, status):
    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url) as gateway:
            found = await exchange(gateway, f"{request_line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert found[0] == status
            assert not upstream.requests

    run(talk())


def test_a_websocket_is_refused_at_once():
    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url) as gateway:
            request = (
                b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            status, _, body = await exchange(gateway, request)
            assert status == 426
            assert b"POST" in body
            assert not upstream.requests

    run(talk())


@pytest.mark.parametrize("route", ["/v1/messages", "/v1/files"])
def test_a_client_that_would_rather_speak_http_2_is_served_as_it_came(route):
    """Java's client asks so on every plain connection."""

    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url) as gateway:
            lines = (
                b"Connection: Upgrade, HTTP2-Settings",
                b"Upgrade: h2c",
                b"HTTP2-Settings: AAEAAEAAAAIAAAAB",
            )
            async with connected(gateway) as (reader, writer):
                for _ in range(2):
                    writer.write(post(route, b'{"model":"m"}', *lines))
                    status, _, body = await read_answer(reader)
                    assert (status, body) == (200, b'{"ok":true}')
            assert [body for _, body in upstream.requests] == [b'{"model":"m"}'] * 2
            assert not any(b"h2c" in head or b"HTTP2" in head for head, _ in upstream.requests)

    run(talk())


@pytest.mark.parametrize(
    ("route", "reads"),
    [
        ("/v1/messages", lambda body: body["error"]["type"] == "request_too_large"),
        ("/v1/chat/completions", lambda body: "max_body_mb" in body["error"]["message"]),
    ],
)
def test_a_body_that_is_too_large_is_refused_in_the_dialect_before_it_is_read(route, reads):
    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url, max_body_mb=1) as gateway:
            head = f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n".encode()
            status, _, body = await exchange(gateway, head)
            assert status == 413
            assert reads(json.loads(body))

            async def send():
                for _ in range(40):
                    yield bytes(50_000)

            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{gateway.address}{route}", data=send()) as response,
            ):
                assert response.status == 413
            assert not upstream.requests

    run(talk())


@pytest.mark.parametrize(
    "header",
    ["target-tokens: many", "target-tokens: -5", "bypass: perhaps", "store: some", "session:  ", "focus: "],
)
def test_a_wish_that_cannot_be_meant_is_a_clear_error(header):
    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url) as gateway:
            line = f"x-penstock-{header}".encode()
            status, _, body = await exchange(gateway, post("/v1/messages", b"{}", line))
            assert status == 400
            said = json.loads(body)
            assert said["type"] == "error"
            assert f"x-penstock-{header.partition(':')[0]}" in said["error"]["message"]
            assert not upstream.requests

    run(talk())


def test_wishes_and_hints_reach_the_fitter_and_its_headers_the_caller():
    async def talk():
        fitter = Halving()
        async with (
            Player([OK]) as upstream,
            gateway_to(upstream.base_url, fitter=fitter, store="digests") as gateway,
        ):
            lines = (
                b"x-penstock-target-tokens: 20_000",
                b"x-penstock-focus: the parser",
                b"x-penstock-store: full",
                b"x-claude-code-session-id: ses",
                b"x-claude-code-agent-id: sub",
                b"authorization: Bearer %b" % KEY.encode(),
            )
            _, fields, _ = await exchange(gateway, post("/v1/messages", b"{}", *lines))
            one = fitter.fitted[0]
            assert (one.target_tokens, one.focus, one.store) == (20_000, "the parser", "digests")
            assert (one.session_hint, one.agent_hint, one.credential) == ("ses", "sub", "")
            assert one.endpoint == f"{upstream.base_url}/v1"
            assert KEY not in one.owner
            assert fields[b"x-penstock-tokens-before"] == b"10"
            await exchange(gateway, post("/v1/messages", b"{}", b"x-api-key: %b" % KEY.encode()))
            await exchange(gateway, post("/v1/messages", b"{}", b"x-api-key: another"))
            assert fitter.fitted[1].owner == one.owner != fitter.fitted[2].owner
            _, fields, _ = await exchange(gateway, post("/v1/messages", b"{}", b"x-penstock-bypass: 1"))
            assert fields[b"x-penstock-passed-through"] == b"bypass"
            assert len(fitter.fitted) == 3

    run(talk())


# Who may ask.


@pytest.mark.parametrize(
    ("lines", "host", "status"),
    [
        ((), b"evil.example", 403),
        ((), b"evil.example:8787", 403),
        ((), b"127.0.0.1.evil.example", 403),
        ((), b"", 403),
        ((b"Origin: https://evil.example",), b"localhost", 403),
        ((b"Origin: null",), b"localhost", 403),
        ((b"Origin: http://localhost:3000",), b"localhost:8787", 403),
        ((b"Origin: http://localhost:8787",), b"localhost:8787", 200),
        ((), b"LOCALHOST:1", 200),
        ((), b"127.0.0.1", 200),
        ((), b"[::1]:99", 200),
        ((), b"gateway.internal", 200),
    ],
)
def test_foreign_names_and_pages_are_refused(lines, host, status):
    async def talk():
        async with (
            Player([OK]) as upstream,
            gateway_to(upstream.base_url, allowed_hosts=("gateway.internal",)) as gateway,
        ):
            found, fields, _ = await exchange(gateway, post("/v1/messages", b"{}", *lines, host=host))
            assert found == status
            assert not any(name.startswith(b"access-control") for name in fields)
            assert len(upstream.requests) == (status == 200)

    run(talk())


class Doorkeeper(AnyCaller):
    """Lets one key in, for one model."""

    def __init__(self):
        super().__init__()
        self.served = []

    async def authorise(self, request, served):
        if request.headers.get("x-api-key") != "sk-ours":
            raise Refused("no such key", status=401, headers={"retry-after": "1"})
        return Caller(owner="me", key_id="k1", models=(("gpt-*",),), store="off", brings_credential=False)

    def observe(self, served):
        self.served.append(served)


def test_a_caller_with_our_key_gets_the_upstreams_and_only_its_models():
    async def talk():
        door, fitter = Doorkeeper(), Halving()
        async with Player([OK]) as upstream:
            upstreams = {
                "one": {"base_url": upstream.base_url, "api_key_env": "UPSTREAM_KEY", "models": ("gpt-*",)}
            }
            async with gateway_to(None, fitter=fitter, operations=door, upstreams=upstreams) as gateway:
                ours = b"x-api-key: sk-ours"
                body = b'{"model":"gpt-x"}'
                status, fields, _ = await exchange(gateway, post("/v1/chat/completions", body))
                assert (status, fields[b"retry-after"]) == (401, b"1")
                assert (await exchange(gateway, post("/v1/chat/completions", body, ours)))[0] == 200
                head = upstream.requests[0][0].lower()
                assert b"sk-ours" not in head
                assert b"authorization: bearer key-of-the-upstream" in head
                assert (fitter.fitted[0].owner, fitter.fitted[0].store) == ("me", "off")
                assert (await exchange(gateway, post("/v1/messages", body, ours)))[0] == 200
                assert b"x-api-key: key-of-the-upstream" in upstream.requests[1][0].lower()
                assert (await exchange(gateway, post("/v1/messages", b'{"model":"claude"}', ours)))[0] == 403
                assert (await exchange(gateway, post("/v1/embeddings", b"{}", ours)))[0] == 200
                assert b"sk-ours" not in upstream.requests[2][0]
                assert [one.status for one in door.served] == [401, 200, 200, 403, 200]

    run(talk())


# A fitter that fails.


class Broken(Halving):
    async def fit(self, incoming):
        raise KeyError("secret words of a person")

    async def settle(self, outgoing, report):
        raise ValueError


def test_where_the_fitter_fails_the_request_goes_through_as_it_came():
    async def talk():
        async with Player([OK]) as upstream, gateway_to(upstream.base_url, fitter=Broken()) as gateway:
            status, fields, body = await exchange(gateway, post("/v1/messages", b'{"whatever": 1}'))
            assert (status, body) == (200, b'{"ok":true}')
            assert fields[b"x-penstock-passed-through"] == b"KeyError"
            assert upstream.requests[0][1] == b'{"whatever": 1}'

    run(talk())


# Several upstreams.


def test_a_callers_key_goes_to_its_own_kind_of_api_alone():
    async def talk():
        listing = whole(b'{"data":[{"id":"gpt-a"},{"id":"claude-b"}]}')
        async with Player([listing]) as one, Player([listing]) as two:
            upstreams = {
                "claude": {"base_url": one.base_url, "models": ("claude-*",), "dialects": ("anthropic",)},
                "gpt": {
                    "base_url": two.base_url.replace("127.0.0.1", "localhost"),
                    "models": ("gpt-*",),
                    "dialects": ("chat", "responses"),
                },
            }
            async with gateway_to(None, upstreams=upstreams) as gateway:
                key = b"authorization: Bearer %b" % KEY.encode()
                line = b"%b HTTP/1.1\r\nHost: localhost\r\n%b\r\nAccept-Encoding: gzip\r\n\r\n"
                _, _, body = await exchange(gateway, line % (b"GET /v1/models", key))
                assert [entry["id"] for entry in json.loads(body)["data"]] == ["claude-b", "gpt-a"]
                await exchange(gateway, line % (b"GET /v1/files", key))
                await exchange(gateway, line % (b"GET /v1/responses/r", key))
                assert [KEY.encode() in head for head, _ in one.requests] == [False]
                assert [KEY.encode() in head for head, _ in two.requests] == [True] * 3
                assert all(b"gzip" not in head for head, _ in (one.requests[0], two.requests[0]))
                await exchange(gateway, line % (b"GET /v1/files", key + b"\r\nanthropic-version: 2023-06-01"))
                assert KEY.encode() in one.requests[1][0]

    run(talk())


def test_models_decide_where_a_request_goes_and_lists_are_joined():
    async def talk():
        async with (
            scripted(lambda _: "", served={"models": ("gpt-a", "odd")}) as (_, first),
            scripted(lambda _: "", served={"models": ("claude-b", "odd")}) as (_, second),
        ):
            upstreams = {
                "one": {"base_url": first.base_url, "models": ("gpt-*",)},
                "two": {"base_url": second.base_url, "models": ("claude-*", "odd")},
            }
            async with gateway_to(None, upstreams=upstreams) as gateway, aiohttp.ClientSession() as session:
                for model in ("gpt-a", "claude-b", "claude-c"):
                    asked = {"model": model, "messages": [{"role": "user", "content": "Hello?"}]}
                    async with session.post(f"{gateway.address}/v1/chat/completions", json=asked) as response:
                        assert response.status == 200
                assert [one.model for one in first.received] == ["gpt-a"]
                assert [one.model for one in second.received] == ["claude-b", "claude-c"]
                async with session.post(f"{gateway.address}/v1/messages", json={"model": "no"}) as response:
                    assert response.status == 404
                    assert "gateway.upstreams" in (await response.json())["error"]["message"]
                async with session.get(f"{gateway.address}/v1/models") as response:
                    assert [one["id"] for one in (await response.json())["data"]] == [
                        "gpt-a",
                        "claude-b",
                        "odd",
                    ]

    run(talk())
