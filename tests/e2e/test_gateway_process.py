"""`penstock serve` as a process: it says where it is, drains on SIGTERM, and says clearly what it lacks."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from cli_process import COMMAND, environment, listening, penstock

from penstock import open_store
from penstock.testing.provider_server import scripted_provider
from penstock.testing.scripted import Reply

ASKED = json.dumps(
    {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hello?"}]}
).encode()


def connect(port):
    return contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60))


@contextlib.contextmanager
def serving(*args):
    """The process and its port."""
    with listening("serve", "--port", "0", *args) as (child, address):
        yield child, int(address.rpartition(":")[2])


def test_a_stream_that_runs_is_finished_after_sigterm_and_nobody_else_is_let_in(tmp_path):
    reply = Reply("word " * 40, chunk_delay_seconds=0.02, chunk_chars=5)
    with (
        scripted_provider([reply]) as provider,
        serving("--upstream", provider.base_url, "--store", f"sqlite:///{tmp_path}/g.db") as (child, port),
        connect(port) as idle,
        connect(port) as connection,
    ):
        idle.request("GET", "/health")  # and then it is kept alive, with nothing under way
        assert idle.getresponse().read() is not None
        connection.request("POST", "/v1/chat/completions", ASKED, {"content-type": "application/json"})
        answer = connection.getresponse()
        first = answer.read1(10)
        child.send_signal(signal.SIGTERM)
        _wait_until_closed(port)
        text = first + answer.read()
        assert text.count(b"word") == 40
        assert text.endswith(b"data: [DONE]\n\n")
        assert child.wait(20) == 0
        said = child.stderr.read()
        assert f"OPENAI_BASE_URL=http://127.0.0.1:{port}/v1" in said
        assert f"ANTHROPIC_BASE_URL=http://127.0.0.1:{port}\n" in said
        assert "prompt caching: as the cache_control of each request says (5 minutes or 1 hour)" in said
        assert "Traceback" not in said


def _wait_until_closed(port):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            return
        except (TimeoutError, ConnectionResetError):  # still in its queue when it stopped taking any
            continue
        time.sleep(0.01)
    raise AssertionError("it still listens")


@pytest.mark.parametrize(
    ("seconds", "signals", "code"), [("0.2", 1, 0), ("60", 2, 130)], ids=["time", "signal"]
)
def test_what_still_runs_ends_after_its_time_or_with_a_second_signal(tmp_path, seconds, signals, code):
    reply = Reply("word " * 40, chunk_delay_seconds=1)
    with (
        scripted_provider([reply]) as provider,
        serving(
            "--upstream",
            provider.base_url,
            "--store",
            f"sqlite:///{tmp_path}/g.db",
            "--set",
            f"gateway.drain_seconds={seconds}",
        ) as (child, port),
        connect(port) as connection,
    ):
        connection.request("POST", "/v1/chat/completions", ASKED, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read1(10)
        child.send_signal(signal.SIGTERM)
        if signals == 2:
            _wait_until_closed(port)
            child.send_signal(signal.SIGTERM)
        assert child.wait(20) == code
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
        assert "Traceback" not in child.stderr.read()


def test_ctrl_c_while_its_worker_still_starts_is_said_in_no_more_words(tmp_path):
    with subprocess.Popen(
        [
            COMMAND,
            "serve",
            "--port",
            "0",
            "--upstream",
            "http://localhost:1",
            "--store",
            f"sqlite:///{tmp_path}/g.db",
        ],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            assert child.stdout.readline().startswith("http://")
            os.killpg(child.pid, signal.SIGINT)  # as a terminal does
            assert child.wait(30) == 0
            assert "Traceback" not in child.stderr.read()
        finally:
            child.kill()


def test_without_an_upstream_it_says_what_to_give():
    ran = penstock("serve")
    assert ran.code == 2
    assert "--upstream https://" in ran.err
    assert "gateway.upstreams" in ran.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--port", "70000"), "not a port"),
        (("--upstream", "ftp://x", "--port", "0"), "base URL"),
        (("--upstream", "http://u:p@x", "--port", "0"), "user name or password"),
        (("--upstream", "http://localhost:1", "--summarise", "loudly"), "gateway.summarise"),
    ],
)
def test_a_mistake_is_one_line(args, says):
    ran = penstock("serve", *args)
    assert ran.code == 2
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_a_port_that_is_taken_is_one_line(tmp_path):
    store = f"sqlite:///{tmp_path}/g.db"  # one of its own: whoever may write anywhere shares the default one
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = penstock("serve", "--upstream", "http://localhost:1", "--port", port, "--store", store)
        assert ran.code == 2
        assert f"127.0.0.1:{port}" in ran.err
        assert "--port 0" in ran.err


def _began(port):
    """When the process that answers was started: each has its own moment."""
    with connect(port) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    return next(line.split()[1] for line in text.splitlines() if line.startswith("penstock_start_time"))


def _wait_for(found, what, seconds=60):
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until, what
        time.sleep(0.05)


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="the system cannot share a port")
def test_several_processes_share_an_address_and_one_that_ends_is_replaced(tmp_path):
    psutil = pytest.importorskip("psutil")
    with (
        scripted_provider(["Hello."], repeat_last=True) as provider,
        serving(
            "--upstream", provider.base_url, "--processes", "2", "--store", f"sqlite:///{tmp_path}/g.db",
            "--set", "gateway.request_log=false",
        ) as (child, port),
    ):  # fmt: skip
        seen = set()
        _wait_for(lambda: seen.add(_began(port)) or len(seen) == 2, "only one process answers")
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello?"}]})
        for _ in range(6):
            with connect(port) as connection:
                connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
                assert b"Hello." in connection.getresponse().read()
        gateways = [
            one for one in psutil.Process(child.pid).children() if "spawn_main" in " ".join(one.cmdline())
        ]
        assert len(gateways) == 2
        gateways[0].kill()
        later = set()

        def is_replaced():
            with contextlib.suppress(OSError, http.client.HTTPException):
                later.add(_began(port))
            return bool(later - seen)

        _wait_for(is_replaced, "no process took the place of the one that was killed")
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
        assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in gateways)


@pytest.mark.parametrize("command", [("serve", "--upstream", "http://localhost:1"), ("dashboard",)])
def test_a_full_stdout_is_not_taken_for_a_port_in_use(tmp_path, command):
    store = f"sqlite:///{tmp_path}/store.db"
    open_store(store).close()
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [COMMAND, *command, "--port", "0", "--store", store],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=30,
            check=False,
        )
    assert done.returncode == 2
    assert b"the output cannot be written: No space left" in done.stderr
    assert b"port" not in done.stderr.split(b"written")[1]
