"""Bodies as large as the gateway takes, through `penstock serve`: served, compacted, and no harm to others.

With PENSTOCK_SOAK they have the 64 MB that it takes unless told otherwise, else a small share of that.
"""

import base64
import contextlib
import http.client
import json
import os
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cli_process import listening

MOST_MB = 64 if os.environ.get("PENSTOCK_SOAK") else 2
MOST = MOST_MB << 20
EVENTS = b'data: {"choices":[{"delta":{"content":"Noted."}}]}\n\ndata: [DONE]\n\n'
MORE = ['{"role":"assistant","content":"Noted."}', '{"role":"user","content":"And now?"}']


def answer(size):
    """An answer to a body of so many bytes, billed as a provider would."""
    said = {"role": "assistant", "content": "Noted."}
    used = {"prompt_tokens": size // 5, "completion_tokens": 2, "total_tokens": size // 5 + 2}
    return json.dumps(
        {"id": "x", "choices": [{"message": said, "finish_reason": "stop"}], "usage": used}
    ).encode()


class Upstream(ThreadingHTTPServer):
    """Answers at once; `sizes` are those of the bodies that came."""

    daemon_threads = True

    def __init__(self):
        self.sizes = []
        super().__init__(("127.0.0.1", 0), _Answers)


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.sizes.append(len(body))
        streams = body.startswith(b'{"stream":true')
        said = EVENTS if streams else answer(len(body))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streams else "application/json")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def stage(tmp_path):
    """An upstream, and the process and the port of a gateway in front of it."""
    with Upstream() as upstream:
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{upstream.server_address[1]}/v1"
        limits = [f"gateway.max_body_mb={MOST_MB}", f"gateway.memory_mb={max(16, 4 * MOST_MB)}"]
        options = [option for limit in limits for option in ("--set", limit)]
        serve = ("serve", "--port", "0", "--upstream", address, "--store", f"sqlite:///{tmp_path}/g.db")
        with listening(*serve, *options) as (child, said):
            yield upstream, child, int(said.rpartition(":")[2])
        upstream.shutdown()


def giant(size):
    """One message, and nearly nothing beside it."""
    text = " ".join(f"{number}: the crane moves the ledger of tariffs" for number in range(size // 40))
    return [json.dumps({"role": "user", "content": text[: size - 1_000]})]


def medium(size):
    """Messages of a kilobyte."""
    text = "the crane moves the ledger of tariffs past the beacon at noon. " * 15
    return [
        json.dumps({"role": ("user", "assistant")[number % 2], "content": f"{number} {text}"})
        for number in range(size // 1_040)
    ]


def pictures(size):
    """Pictures of a third of a megabyte, with a word on each."""
    data = base64.b64encode(random.Random(1).randbytes(250_000)).decode()
    said = []
    for number in range(size // 340_000):
        url = f"data:image/png;base64,{number:08}{data}"
        parts = [
            {"type": "text", "text": f"picture {number}"},
            {"type": "image_url", "image_url": {"url": url}},
        ]
        said.append(json.dumps({"role": "user", "content": parts}))
        said.append(json.dumps({"role": "assistant", "content": f"I see picture {number}."}))
    return said


def ask(port, messages, *, stream=False, path="/v1/chat/completions"):
    """Status, headers and body of the answer."""
    start = b'{"stream":true,' if stream else b"{"
    return post(port, path, start + b'"model":"m","messages":[' + ",".join(messages).encode() + b"]}")


def post(port, path, body):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=240)) as connection:
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


@contextlib.contextmanager
def neighbours(port):
    """Short requests meanwhile, one after the other; gives their statuses."""
    ended, statuses = threading.Event(), []

    def go_on():
        talk = ['{"role":"user","content":"A short question."}']
        while not ended.is_set():
            statuses.append(ask(port, talk)[0])
            talk += MORE
            time.sleep(0.02)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield statuses
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("write", [giant, medium, pictures])
def test_a_body_of_the_largest_size_is_served_and_compacted_and_others_go_on(write, tmp_path):
    messages = write(MOST - (MOST >> 5))
    spelled = [
        messages[0].replace('{"role":', '{ "role":', 1),
        *messages[1:],
    ]  # no byte prefix of the last one
    with stage(tmp_path) as (upstream, child, port), neighbours(port) as statuses:
        for turn, sent in enumerate((messages, messages + MORE, spelled + 2 * MORE)):
            status, headers, body = ask(port, sent, stream=turn == 1)
            assert status == 200
            assert body == EVENTS if turn == 1 else b"Noted." in body
            assert headers["x-penstock-passed-through"] is None
            if write is not pictures:  # which weigh little as the model counts them
                assert headers["x-penstock-compacted"] == ("before" if turn else "now")
                assert int(headers["x-penstock-tokens-after"]) < 150_000
        resident = Path(f"/proc/{child.pid}/status")
        if resident.exists():
            (line,) = (one for one in resident.read_text().splitlines() if one.startswith("VmRSS"))
            assert int(line.split()[1]) >> 10 < 150 + 8 * MOST_MB
    assert statuses
    assert set(statuses) == {200}
    if write is not pictures:
        assert sum(size > MOST // 2 for size in upstream.sizes) == 0


def test_a_body_of_one_byte_more_is_refused_in_the_dialect_of_its_caller(tmp_path):
    errors = {"/v1/chat/completions": "", "/v1/responses": "", "/v1/messages": "error"}
    with stage(tmp_path) as (upstream, _, port):
        for path, kind in errors.items():
            body = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * MOST
            body = body[: MOST - 3] + b'"}]}'
            assert len(body) == MOST + 1
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                connection.putrequest("POST", path)
                connection.putheader("content-length", str(len(body)))
                connection.endheaders()
                answer = connection.getresponse()  # it says so before the body is sent
                told = json.loads(answer.read())
            assert answer.status == 413
            assert told.get("type", "") == kind
            assert f"larger than {MOST_MB} MB" in told["error"]["message"]
            with contextlib.suppress(ConnectionError, BrokenPipeError):  # to those who send before they read
                assert post(port, path, body)[0] == 413
        assert ask(port, ['{"role":"user","content":"Hello?"}'])[0] == 200
    assert len(upstream.sizes) == 1
