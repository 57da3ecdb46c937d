"""The transport against servers that do what they like, byte for byte."""

import asyncio
import contextlib
import gzip
import socket
import ssl
import traceback
from types import SimpleNamespace

import aiohttp
import pytest

from penstock.config import SecretText
from penstock.errors import ErrorKind, ProviderError
from penstock.providers.connect import ConnectOptions, connect
from penstock.providers.exchange import Ask
from penstock.providers.failures import network_failure
from penstock.providers.http import HttpRequest, TimeLimits, Transport, host_of
from penstock.providers.retries import RetryPolicy

SECRET = "made-up-key-of-a-test-0123456789"
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
PLACE = SimpleNamespace(host="h", port=1, ssl=True)  # where aiohttp says it could not connect to


class Raw:
    """A server that answers every request with these bytes and then, if told so, closes the connection."""

    def __init__(self, answer, *, close=False, hang=False):
        self.answer, self.close, self.hang = answer, close, hang
        self.requests = []
        self.writers = []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for writer in self.writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await self.server.wait_closed()

    async def serve(self, reader, writer):
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                writer.write(self.answer)
                await writer.drain()
                if self.hang:
                    await reader.read()
                if self.close:
                    break
        writer.close()


def fetch(server, limits=None, url="{url}/v1/models", headers=None, **options):
    """What the transport makes of the server's answer, and the server."""

    async def run():
        async with server, Transport(**options) as transport:
            request = HttpRequest(url=url.format(url=server.url), headers=headers or {})
            return await transport.send(request, limits)

    return asyncio.run(run())


def failure(server, *args, **options):
    with pytest.raises(ProviderError) as caught:
        fetch(server, *args, **options)
    return caught.value


def test_status_headers_and_body_come_back_whatever_the_status():
    answer = b"HTTP/1.1 418 No\r\nX-Thing: a\r\ncontent-length: 3\r\n\r\nabc"
    reply = fetch(Raw(answer))
    assert (reply.status, reply.headers["x-thing"], reply.body) == (418, "a", b"abc")


def test_connections_are_kept_and_used_again():
    server = Raw(OK)

    async def run():
        async with server, Transport() as transport:
            for _ in range(5):
                await transport.send(HttpRequest(url=server.url, headers={}))

    asyncio.run(run())
    assert (len(server.requests), len(server.writers)) == (5, 1)


def test_a_body_over_the_limit_is_not_read_on():
    body = b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n" + b"x" * 200_000
    error = failure(Raw(body, hang=True), most_bytes=100_000)
    assert error.failure.code == "answer_too_large"
    assert "100,000 bytes" in str(error)


def test_a_small_body_that_unpacks_to_a_large_one_is_refused_too():
    packed = gzip.compress(b"0" * 3_000_000)
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(packed)}\r\n\r\n".encode()
    assert failure(Raw(head + packed), most_bytes=1_000_000).failure.code == "answer_too_large"
    assert len(fetch(Raw(head + packed)).body) == 3_000_000


def test_of_an_error_only_the_start_is_read():
    answer = b"HTTP/1.1 500 No\r\ncontent-length: 9000000\r\n\r\n" + b"x" * 9_000_000
    assert 1 << 20 < len(fetch(Raw(answer)).body) < 4 << 20


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", "cut_off"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", "cut_off"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab", "cut_off"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nnope", "cut_off"),
    ],
    ids=["nothing", "short body", "short chunk", "another protocol", "not packed"],
)
def test_broken_connections_and_answers_are_network_failures(answer, code):
    error = failure(Raw(answer, close=True))
    assert (error.failure.kind, error.failure.code) == (ErrorKind.NETWORK, code)
    assert "127.0.0.1" in str(error)


def test_a_port_where_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"

    async def run():
        async with Transport() as transport:
            await transport.send(HttpRequest(url=url, headers={}))

    with pytest.raises(ProviderError, match="could not connect") as caught:
        asyncio.run(run())
    assert caught.value.failure.kind is ErrorKind.NETWORK
    assert "Connection refused" in str(caught.value)


def test_tls_to_a_server_without_it():
    class Plain(Raw):
        async def serve(self, reader, writer):
            self.writers.append(writer)
            await reader.read(5)
            writer.write(OK)

    async def run():
        async with Plain(OK) as server, Transport() as transport:
            await transport.send(HttpRequest(url=server.url.replace("http:", "https:"), headers={}))

    with pytest.raises(ProviderError, match="no secure connection") as caught:
        asyncio.run(run())
    assert (caught.value.failure.kind, caught.value.failure.code) == (ErrorKind.NETWORK, "tls")


def test_a_connection_that_is_never_taken_up_times_out():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(3)]  # fill the queue, so that the next one is not answered
        for sock in waiting:
            sock.setblocking(False)  # noqa: FBT003 - that is its signature
            with contextlib.suppress(BlockingIOError):
                sock.connect(address)

        async def run():
            async with Transport() as transport:
                limits = TimeLimits(connect_seconds=0.2)
                url = f"http://127.0.0.1:{address[1]}"
                await transport.send(HttpRequest(url=url, headers={}), limits)

        with pytest.raises(ProviderError) as caught:
            asyncio.run(run())
        for sock in waiting:
            sock.close()
    assert (caught.value.failure.kind, caught.value.failure.code) == (ErrorKind.TIMEOUT, "connect_timeout")


@pytest.mark.parametrize("limits", [TimeLimits(total_seconds=0.2), TimeLimits(read_seconds=0.2)])
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"])
def test_silence_times_out(limits, answer):
    assert failure(Raw(answer, hang=True), limits).failure.kind is ErrorKind.TIMEOUT


def test_redirects_are_not_followed_and_the_key_stays_here():
    other = Raw(OK)
    moved = Raw(b"")

    async def run():
        async with other, moved:
            location = f"{other.url}/v1/chat/completions?token={SECRET}"
            moved.answer = f"HTTP/1.1 307 T\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n".encode()
            options = ConnectOptions(environ={"TEST_KEY": SECRET})
            async with connect(
                "openai", "m", base_url=moved.url, api_key_env="TEST_KEY", options=options
            ) as model:
                await model.answer(Ask(messages=[{"role": "user", "content": "Hi"}]))

    with pytest.raises(ProviderError, match=r"sends us to 127\.0\.0\.1; use that as base URL") as caught:
        asyncio.run(run())
    assert SECRET not in str(caught.value)
    assert (len(moved.requests), len(other.requests)) == (1, 0)


def test_cookies_are_not_kept():
    server = Raw(OK.replace(b"\r\n\r\n", b"\r\nset-cookie: session=abc; Path=/\r\n\r\n"))

    async def run():
        async with server, Transport() as transport:
            for _ in range(2):
                await transport.send(
                    HttpRequest(url=server.url.replace("127.0.0.1", "localhost"), headers={})
                )

    asyncio.run(run())
    assert b"cookie" not in server.requests[1].lower()


@pytest.mark.parametrize(("trusting", "through"), [(False, 0), (True, 1)])
def test_a_proxy_of_the_environment_is_used_only_on_request(monkeypatch, trusting, through):
    proxy, server = Raw(OK), Raw(OK)

    async def run():
        async with proxy, server:
            for name in ("no_proxy", "NO_PROXY"):
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("http_proxy", proxy.url)
            async with Transport(trust_environment=trusting) as transport:
                await transport.send(HttpRequest(url=server.url, headers={}))

    asyncio.run(run())
    assert (len(proxy.requests), len(server.requests)) == (through, 1 - through)


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"]
)
def test_neither_the_key_nor_the_query_is_in_an_error(answer):
    headers = {"authorization": SecretText(f"Bearer {SECRET}")}
    error = failure(Raw(answer, close=True), url="{url}/v1?api-version=hidden-query", headers=headers)
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(error.failure)
    assert SECRET not in shown
    assert "hidden-query" not in shown
    request = HttpRequest(url="http://h:1/v1?hidden-query", headers=headers)
    assert SECRET not in repr(request)
    assert "hidden-query" not in repr(request)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (TimeoutError(), ErrorKind.TIMEOUT, "timeout"),
        (aiohttp.ConnectionTimeoutError(), ErrorKind.TIMEOUT, "connect_timeout"),
        (aiohttp.SocketTimeoutError(), ErrorKind.TIMEOUT, "timeout"),
        (ssl.SSLCertVerificationError(1, "self signed"), ErrorKind.NETWORK, "certificate"),
        (ssl.SSLError(1, "wrong version"), ErrorKind.NETWORK, "tls"),
        (aiohttp.InvalidURL("http://user:secret@/"), ErrorKind.BAD_REQUEST, "invalid_address"),
        (aiohttp.ClientConnectorDNSError(PLACE, OSError(-2, "secret")), ErrorKind.NETWORK, "dns"),
        (aiohttp.ClientConnectorError(PLACE, OSError(111, "secret")), ErrorKind.NETWORK, "connect"),
        (aiohttp.ServerDisconnectedError(), ErrorKind.NETWORK, "cut_off"),
        (aiohttp.ClientPayloadError("secret"), ErrorKind.NETWORK, "cut_off"),
        (ConnectionResetError(104, "secret"), ErrorKind.NETWORK, "connection"),
        (aiohttp.ClientError("secret"), ErrorKind.NETWORK, "connection"),
    ],
)
def test_the_table_of_foreign_exceptions(error, kind, code):
    mapped = network_failure(error, "host:1")
    assert (mapped.failure.kind, mapped.failure.code) == (kind, code)
    assert "secret" not in str(mapped)


@pytest.mark.parametrize("error", [KeyError("ours"), ValueError("ours"), asyncio.CancelledError()])
def test_what_is_not_of_the_network_is_not_mapped(error):
    assert network_failure(error, "host") is None


def test_an_untrusted_certificate_is_said_and_not_tried_again(tmp_path):
    import subprocess

    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    try:
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def run():
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        options = ConnectOptions(policy=RetryPolicy(tries=5))
        async with (
            server,
            connect("openai", "m", base_url=f"https://localhost:{port}", options=options) as model,
        ):
            await model.answer(Ask(messages=[{"role": "user", "content": "Hi"}]))

    with pytest.raises(ProviderError, match="certificate cannot be trusted") as caught:
        asyncio.run(run())
    assert caught.value.failure.code == "certificate"


@pytest.mark.parametrize(
    ("url", "host"),
    [("https://user:pw@h.example/v1?x=1", "h.example"), ("http://[::1]:8/v1", "::1:8"), ("", "the provider")],
)
def test_of_an_address_only_host_and_port_are_shown(url, host):
    assert host_of(url) == host
