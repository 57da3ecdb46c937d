"""`penstock serve` while its compactor works: it is stopped in order, killed, or has a compactor that never lives."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cli_process import COMMAND, environment
from tests.processes import is_alive, list_children

from penstock.testing.provider_server import scripted_provider

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and kills by signal")

TARGET = {"x-penstock-target-tokens": "4000", "content-type": "application/json"}


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


def talk(name, turns=600):
    said = "The harbour crane moves the ledger of tariffs past the beacon at noon. " * 12
    messages = [
        {"role": ("user", "assistant")[turn % 2], "content": f"{name} {turn}: berth_{turn * 7919} {said}"}
        for turn in range(turns + 1)
    ]
    return json.dumps({"model": "m", "messages": messages})


class Served:
    """The process, and those below it."""

    def __init__(self, folder, upstream):
        store = f"sqlite:///{folder}/g.db"
        self.process = subprocess.Popen(
            [COMMAND, "serve", "--port", "0", "--upstream", upstream, "--store", store],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.port = int(self.process.stdout.readline().strip().rpartition(":")[2])

    def ask(self, body, headers=TARGET):
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        ) as connection:
            connection.request("POST", "/v1/chat/completions", body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def compactors(self):
        return [one for worker in list_children(self.process.pid) for one in list_children(worker)]


@contextlib.contextmanager
def serving(folder):
    with scripted_provider(["Hello."], repeat_last=True) as provider:
        served = Served(folder, provider.base_url)
        try:
            yield served, provider
        finally:
            served.process.kill()
            served.process.communicate()


def ask_beside(served, body):
    """Asks in a thread; returns it, and where its answer will be."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(served.ask(body)))
    thread.start()
    return thread, answers


def test_sigterm_while_it_compacts_lets_the_request_be_answered_compacted_and_leaves_no_process(tmp_path):
    with serving(tmp_path) as (served, _):
        assert served.ask(talk("first", 40))[1]["x-penstock-compacted"] == "now"
        (compactor,) = served.compactors()
        processes = [*list_children(served.process.pid), compactor]
        thread, answers = ask_beside(served, talk("second", 3_000))
        busy = cpu(compactor)
        until(lambda: cpu(compactor) > busy + 0.05)
        served.process.send_signal(signal.SIGTERM)
        thread.join(120)
        ((status, headers, body),) = answers
        assert (status, headers["x-penstock-compacted"]) == (200, "now")
        assert b"Hello." in body
        assert served.process.wait(60) == 0
        until(lambda: not any(map(is_alive, processes)), 20)
        assert "Traceback" not in served.process.stderr.read()


def test_ctrl_c_while_a_compactor_still_starts_lets_the_request_be_answered_compacted(tmp_path):
    with serving(tmp_path) as (served, _):
        thread, answers = ask_beside(served, talk("first", 60))
        until(served.compactors)
        os.killpg(served.process.pid, signal.SIGINT)  # as a terminal does
        thread.join(120)
        ((status, headers, _),) = answers
        assert (status, headers["x-penstock-compacted"]) == (200, "now")
        assert served.process.wait(60) == 0
        said = served.process.stderr.read()
        assert "Traceback" not in said
        assert "the process that compacts ended" not in said


def cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_gateway_that_is_killed_while_it_compacts_leaves_no_process(tmp_path):
    with serving(tmp_path) as (served, _):
        assert served.ask(talk("first", 40))[0] == 200
        (compactor,) = served.compactors()
        processes = [*list_children(served.process.pid), compactor]
        busy = cpu(compactor)
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
        connection.request("POST", "/v1/chat/completions", talk("second", 3_000), TARGET)
        until(lambda: cpu(compactor) > busy + 0.05)
        served.process.kill()
        until(lambda: not any(map(is_alive, processes)), 20)
        connection.close()


def test_with_a_compactor_that_never_lives_requests_go_on_as_they_came_and_say_so(tmp_path):
    with serving(tmp_path) as (served, provider):
        ended = threading.Event()

        def kill():
            while not ended.is_set():
                for pid in served.compactors():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)

        killing = threading.Thread(target=kill)
        killing.start()
        try:
            sent = talk("a", 60)
            status, headers, body = served.ask(sent)
        finally:
            ended.set()
            killing.join()
        assert (status, headers["x-penstock-compacted"]) == (200, "no")
        assert "the process that compacts ended" in headers["x-penstock-notice"]
        assert b"Hello." in body
        assert provider.received[-1].body["messages"] == json.loads(sent)["messages"]
        # And as soon as one lives, it is compacted.
        until(lambda: served.ask(talk("b", 60))[1]["x-penstock-compacted"] == "now", 30)


def test_requests_of_others_and_streams_go_on_while_a_compactor_hangs(tmp_path):
    with serving(tmp_path) as (served, _):
        assert served.ask(talk("first", 40))[0] == 200
        (compactor,) = served.compactors()
        os.kill(compactor, signal.SIGSTOP)
        thread, answers = ask_beside(served, talk("second", 60))
        plain = {"content-type": "application/json"}
        taken = []
        for turn in range(20):
            start = time.monotonic()
            assert served.ask(talk(f"other {turn}", 4), plain)[0] == 200
            taken.append(time.monotonic() - start)
        assert max(taken) < 5
        thread.join(120)
        ((status, headers, _),) = answers
        assert (status, headers["x-penstock-compacted"]) == (200, "no")
        assert "did not answer in time" in headers["x-penstock-notice"]
        until(lambda: not is_alive(compactor))
        assert served.ask(talk("third", 60))[1]["x-penstock-compacted"] == "now"
