"""`penstock wrap` as a process: the client has the signals, and where it stops, the whole job stops."""

import contextlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request

import pytest
from cli_process import COMMAND, environment, listening, penstock

from penstock.testing.provider_server import scripted_provider

CLIENT = f"""#!{sys.executable}
import os, signal, sys, urllib.request
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])  # they wait until they are waited for
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
try:
    urllib.request.urlopen(url, b'{{"model": "m", "messages": []}}')
except OSError as error:
    print("asked", error.code, flush=True)
signal.sigwait([signal.SIGINT])
print("interrupted", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
print("continued", flush=True)
signal.sigwait([signal.SIGTERM])
print("terminated", flush=True)
sys.exit(5)
"""


def test_signals_are_the_clients_and_its_stop_is_ours(tmp_path):
    program = tmp_path / "claude"
    program.write_text(CLIENT)
    program.chmod(0o755)
    options = ("--upstream", "http://127.0.0.1:9", "--store", f"sqlite:///{tmp_path}/w.db", "--json")
    wrap = [COMMAND, "wrap", "claude", "--program", program, "--set", "gateway.retries=0", *options]
    with subprocess.Popen(
        wrap,
        env=environment(XDG_DATA_HOME=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group, as a shell makes one for a job
    ) as child:
        try:
            assert child.stdout.readline() == "asked 502\n", child.stderr.read()
            os.killpg(child.pid, signal.SIGINT)  # as Ctrl-C
            assert child.stdout.readline() == "interrupted\n"
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            os.killpg(child.pid, signal.SIGCONT)  # as fg
            assert child.stdout.readline() == "continued\n"
            child.send_signal(signal.SIGTERM)
            assert child.stdout.read() == "terminated\n"
            assert child.wait(20) == 5
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        told = json.loads(child.stderr.read())
    assert (told["requests"], told["problems"]) == (1, 1)
    assert told["log"] == str(tmp_path / "penstock" / "wrap.log")


# A gateway that runs already.

KEY = "made-up-key-of-the-client"
ASKING = f"""#!{sys.executable}
import json, os, urllib.request
address = os.environ["ANTHROPIC_BASE_URL"]
said = [{{"role": ("user", "assistant")[at % 2], "content": f"{{at}}: " + "words of work. " * 60}} for at in range(31)]
body = {{"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": said}}
headers = {{"content-type": "application/json", "x-api-key": "{KEY}", "x-penstock-target-tokens": "2000"}}
asked = urllib.request.Request(address + "/v1/messages", json.dumps(body).encode(), headers)
with urllib.request.urlopen(asked) as answer:
    print(address, json.load(answer)["content"][0]["text"], flush=True)
"""


@pytest.fixture
def wrapping(tmp_path):
    """Runs `penstock wrap` with a client that asks once and prints its address; returns the address, and what was told."""
    program = tmp_path / "claude"
    program.write_text(ASKING)
    program.chmod(0o755)

    def run(upstream, port, *options):
        store = f"sqlite:///{tmp_path}/w.db"
        ran = penstock(
            "wrap", "claude", "--program", program, "--json", "--store", store, "--set", f"gateway.port={port}",
            *options, XDG_DATA_HOME=str(tmp_path), ANTHROPIC_BASE_URL=upstream,
        )  # fmt: skip
        assert ran.code == 0, ran.err
        address, _, answer = ran.text.partition(" ")
        assert answer == "Done.\n"
        return address, json.loads(ran.err)

    return run


@contextlib.contextmanager
def serving(upstream, tmp_path, *options):
    """A gateway on the store of the clients, and its port."""
    store = f"sqlite:///{tmp_path}/w.db"
    with listening("serve", "--port", "0", "--upstream", upstream, "--store", store, *options) as (
        child,
        address,
    ):
        yield child, int(address.rpartition(":")[2])


@contextlib.contextmanager
def stranger(answer):
    """A server of somebody else; `answer` gives the body for a path. Yields its port and the requests that it got."""
    received = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            received.append((self.path, dict(self.headers)))
            body = answer(self.path)
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, received
        server.shutdown()
        thread.join()


def test_a_gateway_that_runs_already_is_joined_and_tells_what_this_client_saved(wrapping, tmp_path):
    with scripted_provider(["Done."] * 3) as provider, serving(provider.base_url, tmp_path) as (_, port):
        first, told = wrapping(provider.base_url, port)
        again, told_again = wrapping(provider.base_url, port)
        own, told_own = wrapping(provider.base_url, port, "--own")
        keys = [one.headers["x-api-key"] for one in provider.received]
    assert first.startswith(f"http://127.0.0.1:{port}/runs/")
    assert again.startswith(f"http://127.0.0.1:{port}/runs/")
    assert first != again
    assert told["requests"] == told_again["requests"] == 1  # each counts its own
    assert told["saved_tokens"] > 0
    assert f":{port}" not in own
    assert told_own["requests"] == 1
    assert keys == [KEY] * 3


@pytest.mark.parametrize(
    "options", [("--set", "gateway.recall=true"), ("--set", "gateway.require_keys=true"), ("--upstream",)]
)
def test_a_gateway_with_other_terms_is_left_alone(wrapping, tmp_path, options):
    with scripted_provider(["Done."]) as provider, scripted_provider(["No."]) as other:
        if options == ("--upstream",):  # the same settings, and another provider behind them
            served, options = other.base_url, ()
        else:
            served = provider.base_url
        with serving(served, tmp_path, *options) as (_, port):
            address, told = wrapping(provider.base_url, port)
        assert f":{port}" not in address
        assert told["requests"] == 1
        assert len(provider.received) == 1
        assert not other.received


def test_a_strangers_server_at_the_port_gets_nothing(wrapping, tmp_path):
    """One that answers anything, and one that passes the question on to the true gateway at another port."""
    with scripted_provider(["Done."] * 2) as provider, serving(provider.base_url, tmp_path) as (_, true_port):

        def pass_on(path):
            with urllib.request.urlopen(f"http://127.0.0.1:{true_port}{path}") as answer:
                return answer.read()

        for answer in (lambda _: b'{"proof": "' + b"0" * 64 + b'"}', pass_on):
            with stranger(answer) as (port, received):
                address, told = wrapping(provider.base_url, port)
            assert f":{port}" not in address
            assert f":{true_port}" not in address
            assert told["requests"] == 1
            assert [path.partition("?")[0] for path, _ in received] == ["/join"]
            assert KEY not in str(received)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a second address of this machine")
def test_a_stranger_cannot_use_a_gateway_at_another_address_of_the_machine(wrapping, tmp_path):
    def pass_on(path):
        with urllib.request.urlopen(f"http://127.0.0.2:{port}{path}") as answer:
            return answer.read()

    with scripted_provider(["Done."] * 2) as provider, stranger(pass_on) as (port, received):
        options = ("--host", "127.0.0.2", "--port", str(port))
        with serving(provider.base_url, tmp_path, *options):
            address, _ = wrapping(provider.base_url, port)
            joined, _ = wrapping(provider.base_url, port, "--set", "gateway.host=127.0.0.2")
    assert f":{port}" not in address
    assert joined.startswith(f"http://127.0.0.2:{port}/runs/")  # asked there, it is the true one
    assert [path.partition("?")[0] for path, _ in received] == ["/join"]


def test_a_gateway_that_ends_before_its_client_is_told_and_the_exit_code_stays(tmp_path):
    program = tmp_path / "claude"
    program.write_text(
        f"#!{sys.executable}\nimport os, signal, time\n"
        f"os.kill(int(open({str(tmp_path / 'pid')!r}).read()), signal.SIGKILL)\ntime.sleep(0.2)\nraise SystemExit(3)\n"
    )
    program.chmod(0o755)
    store = f"sqlite:///{tmp_path}/w.db"
    with serving("http://127.0.0.1:9", tmp_path) as (child, port):
        (tmp_path / "pid").write_text(str(child.pid))
        ran = penstock(
            "wrap", "claude", "--program", program, "--store", store, "--set", f"gateway.port={port}",
            XDG_DATA_HOME=str(tmp_path), ANTHROPIC_BASE_URL="http://127.0.0.1:9",
        )  # fmt: skip
    assert ran.code == 3
    assert ran.err == "penstock: the gateway has ended before the client\n"
