"""The client of upstreams: which connections are used again, and when an answer is late."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest
from multidict import CIMultiDict
from yarl import URL

from penstock.gateway.upstream_client import BodyStream, UpstreamClient

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@contextlib.asynccontextmanager
async def asked(answer, *, idle_seconds=5.0, reads=None):
    """A client, the address of a server, and the heads that came, by connection.

    The server reads a body by its length, or `reads` bytes of it, and calls `answer` with its writer.
    """
    connections, serving = [], []

    async def serve(reader, writer):
        heads = []
        connections.append(heads)
        serving.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                heads.append(head)
                size = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
                length = int(size[0][16:]) if size else 0
                await reader.readexactly(length if reads is None else reads)
                await answer(writer)
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 16)
    port = server.sockets[0].getsockname()[1]
    async with UpstreamClient(connect_seconds=5, idle_seconds=idle_seconds) as client:
        yield client, URL(f"http://127.0.0.1:{port}/v1/x?a=b", encoded=True), connections
    await asyncio.wait(serving, timeout=1)
    server.close()


async def say_ok(writer):
    writer.write(OK)


def run(work):
    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_connection_serves_one_request_after_the_other():
    async def work():
        async with asked(say_ok) as (client, url, connections):
            for body in (b"one", None, b""):
                answer = await client.ask("POST", url, CIMultiDict(X_Odd="caf\udce9"), body)
                assert (answer.status, answer.content_length) == (200, 2)
                assert await answer.content.read() == b"{}"
        (heads,) = connections
        assert len(heads) == 3
        host = f"Host: 127.0.0.1:{url.port}".encode()
        assert heads[0].split(b"\r\n")[:4] == [
            b"POST /v1/x?a=b HTTP/1.1",
            host,
            b"Content-Length: 3",
            b"X_Odd: caf\xe9",
        ]
        assert all(b"Content-Length: 0" in head for head in heads[1:])

    run(work)


def test_a_connection_with_an_answer_that_was_not_read_is_not_used_again():
    async def work():
        async with asked(say_ok, reads=0) as (client, url, connections):

            async def endless():
                while True:
                    yield b"x" * 1_000
                    await asyncio.sleep(0.01)

            for body in (BodyStream(endless(), None), None):  # the first is answered before it has ended
                answer = await client.ask("POST", url, CIMultiDict(), body)
                assert await answer.content.read() == b"{}"
                answer.close()

            async def say_half(writer):
                writer.write(OK[:-1])

        assert [len(heads) for heads in connections] == [1, 1]
        async with asked(say_half) as (client, url, connections):
            for _ in range(2):
                answer = await client.ask("GET", url, CIMultiDict(), None)
                answer.close()
        assert [len(heads) for heads in connections] == [1, 1]

    run(work)


def test_time_counts_from_when_the_whole_request_is_out():
    """A large body over a slow line takes longer than an upstream may be silent."""

    async def work():
        taken = asyncio.Event()

        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.6)
            await reader.readexactly(40_000_000)
            writer.write(OK)
            taken.set()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 16)
        url = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", encoded=True)
        async with UpstreamClient(connect_seconds=5, idle_seconds=0.3) as client:
            answer = await client.ask("POST", url, CIMultiDict(), bytes(40_000_000))
            assert await answer.content.read() == b"{}"
        server.close()
        assert taken.is_set()

        async def say_nothing(_writer):
            await asyncio.sleep(0.5)

        async with asked(say_nothing, idle_seconds=0.1) as (client, url, _):
            with pytest.raises(aiohttp.ServerTimeoutError):
                await client.ask("POST", url, CIMultiDict(), b"x")

    run(work)


def test_a_body_that_breaks_off_ends_the_request():
    async def work():
        async def broken():
            yield b"x"
            raise ValueError

        async with asked(say_ok, reads=100) as (client, url, _):
            with pytest.raises(aiohttp.ClientConnectionError):
                await client.ask("POST", url, CIMultiDict(), BodyStream(broken(), 100))

    run(work)


def test_no_header_becomes_two():
    async def work():
        async with asked(say_ok) as (client, url, connections):
            for value in ("a\r\nX-Own: b", "a\nb", "a\rb", "a\0b"):
                with pytest.raises(ValueError, match="control character"):
                    await client.ask("GET", url, CIMultiDict({"X-Odd": value}), None)
            assert not any(connections)

    run(work)
