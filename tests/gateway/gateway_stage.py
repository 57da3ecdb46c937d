"""A gateway between a test and an upstream: the scripted provider, or one that plays bytes."""

import asyncio
import contextlib

from penstock.errors import ErrorClass, ErrorKind
from penstock.gateway.exchange import Outgoing, PassThrough
from penstock.gateway.server import Gateway
from penstock.gateway.upstreams import read_upstreams
from penstock.settings import GatewaySettings, GatewayUpstream, Settings
from penstock.testing.provider_server import ScriptedProvider

KEY = "made-up-key-of-a-test-0123456789"
HELLO = [{"role": "user", "content": "Hello?"}]


def settings_of(**given):
    if "upstreams" in given:
        given["upstreams"] = {name: GatewayUpstream(**one) for name, one in given["upstreams"].items()}
    return Settings(gateway=GatewaySettings(**{"port": 0, "drain_seconds": 0.5, "retries": 0, **given}))


@contextlib.asynccontextmanager
async def gateway_to(url, *, fitter=None, operations=None, settings=None, **given):
    """A gateway in front of one upstream, or of those in the settings where `url` is None."""
    settings = settings or settings_of(**given)
    async with Gateway(
        read_upstreams(settings.gateway, url, environ={"UPSTREAM_KEY": "key-of-the-upstream"}),
        settings,
        fitter=fitter,
        operations=operations,
    ) as gateway:
        yield gateway


@contextlib.asynccontextmanager
async def scripted(replies, *, fitter=None, operations=None, served=None, **given):
    """A scripted provider and a gateway in front of it."""
    async with (
        ScriptedProvider(replies, **(served or {})) as provider,
        gateway_to(provider.base_url, fitter=fitter, operations=operations, **given) as gateway,
    ):
        yield gateway, provider


@contextlib.asynccontextmanager
async def connected(gateway):
    """A raw connection to the gateway."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.address.rpartition(":")[2]))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def read_answer(reader, *, has_body=True):
    """Status, headers by their names in small letters, and the body of an answer with a length."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    lines = (line.partition(b": ") for line in head.split(b"\r\n")[1:] if line)
    fields = {name.lower(): value for name, _, value in lines}
    size = int(fields.get(b"content-length", b"0")) if has_body else 0
    return int(head.split()[1]), fields, await reader.readexactly(size)


class Player:
    """An upstream that reads requests and plays bytes: answers that no proper server would give.

    `answers` are played in turn, the last one for ever: each a list of pieces. A number waits for so many seconds, `None`
    closes the connection, an event is waited for.
    """

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.asked = asyncio.Event()
        self._writers = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        self.port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader, writer):
        self._writers.append(writer)
        try:
            while await self._read(reader):
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                await self._play(answer, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _read(self, reader):
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        fields = {name.lower(): value for name, value in fields.items()}
        body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
        self.requests.append((head, body))
        self.asked.set()
        return True

    async def _play(self, answer, writer):
        for piece in answer:
            if piece is None:
                raise ConnectionError
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            elif isinstance(piece, bytes):
                writer.write(piece)
                await writer.drain()
            else:
                await asyncio.sleep(piece)


def whole(body, status=b"200 OK", kind=b"application/json"):
    """The bytes of an answer with a length."""
    return b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        status,
        kind,
        len(body),
        body,
    )


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Theirs: 1\r\n\r\n"
)
STREAM_END = b"0\r\n\r\n"


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


class Halving(PassThrough):
    """A fitter that writes down what it is told, and halves the text of a body that was refused."""

    def __init__(self, *, recovers=True):
        self.recovers = recovers
        self.fitted = []
        self.failures = []
        self.settled = []
        self.done = asyncio.Event()

    async def fit(self, incoming):
        self.fitted.append(incoming)
        return Outgoing(
            body=incoming.body, headers={"x-penstock-tokens-before": "10"}, ticket=len(self.fitted)
        )

    async def recover(self, outgoing, failure):
        self.failures.append(failure)
        if not self.recovers:
            return None
        text = b"w" * (outgoing.body.count(b"w") // 2)
        start, end = outgoing.body.find(b"w"), outgoing.body.rfind(b"w") + 1
        return Outgoing(
            body=outgoing.body[:start] + text + outgoing.body[end:],
            headers={"x-penstock-tokens-after": "5"},
            attempt=outgoing.attempt + 1,
            ticket=outgoing.ticket,
        )

    async def wait_until_durable(self, outgoing):
        return False  # so that every answer waits until it is settled

    async def settle(self, outgoing, report):
        self.settled.append(report)
        self.done.set()


REFUSAL = ErrorClass(kind=ErrorKind.PROMPT_TOO_LONG, status=400, window_tokens=8_000, prompt_tokens=9_000)
