"""The upstream of `benchmarks.gateway`: a process that answers every request at once, with as little work as it can.

Prints its port. A body that begins with `{"stream":true`, and any below `/streamed`, is answered with four events, any other with a small JSON object;
with the header `x-wait-ms`, after so many milliseconds.
"""

import asyncio
import json

__all__ = ["main", "run_fast"]

BYTES_PER_TOKEN = 5  # of the texts that are sent here


def _usage(sent_bytes: int) -> dict[str, int]:
    """What a provider would bill. A constant would teach the gateway that long requests are short."""
    prompt = sent_bytes // BYTES_PER_TOKEN
    return {"prompt_tokens": prompt, "completion_tokens": 12, "total_tokens": prompt + 12}


def _whole(sent_bytes: int) -> bytes:
    answer = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Noted."}}
        ],
        "usage": _usage(sent_bytes),
    }
    body = json.dumps(answer).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(data: dict | str) -> bytes:
    text = b"data: %b\n\n" % (data if isinstance(data, str) else json.dumps(data)).encode()
    return b"%x\r\n%b\r\n" % (len(text), text)


EVENTS = [
    _chunk({"choices": [{"index": 0, "delta": {"content": "Noted."}}]}),
    _chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
]
END = _chunk("[DONE]") + b"0\r\n\r\n"


class Upstream(asyncio.Protocol):
    """One connection: requests with a Content-Length, one after the other."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.missing = -1
        self.length = 0
        self.wait_seconds = 0.0
        self.streams = False
        self.always_streams = False

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.missing < 0:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return
            start = self.head.lower().find(b"content-length:")
            length = int(self.head[start + 15 : self.head.find(b"\r", start)]) if 0 <= start < end else 0
            rest = bytes(self.head[end + 4 :])
            waits = self.head.lower().find(b"x-wait-ms:", 0, end)
            self.wait_seconds = (
                int(self.head[waits + 10 : self.head.find(b"\r", waits)]) / 1_000 if waits > 0 else 0
            )
            self.always_streams = self.head.startswith(b"POST /streamed/")
            self.head.clear()
            self.missing = self.length = length
            self.streams = False
            data = rest
            self.began = False
        if data and not self.began:
            self.began = True
            self.streams = self.always_streams or data.startswith(b'{"stream":true')
        self.missing -= len(data)
        if self.missing <= 0:
            self.missing = -1
            if self.wait_seconds:
                asyncio.get_running_loop().call_later(self.wait_seconds, self.answer)
            else:
                self.answer()

    def answer(self) -> None:
        if not self.streams:
            self.transport.write(_whole(self.length))
            return
        self.transport.write(HEAD + EVENTS[0])
        for event in (*EVENTS[1:], _chunk({"choices": [], "usage": _usage(self.length)}), END):
            self.transport.write(event)


async def main() -> None:
    """Serves for ever."""
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0, backlog=2_048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def run_fast(work) -> object:
    """Runs the coroutine in uvloop where that is installed."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


if __name__ == "__main__":
    run_fast(main())
