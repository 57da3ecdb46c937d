"""A long coding task in a small window: floods, refusals, a model switch and a kill, and nothing is lost.

PENSTOCK_TURNS=600 runs it in full.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agent_driver import CONSTRAINTS, WINDOW

from penstock.stores.store import open_store
from penstock.testing import Reply, scripted_provider

TURNS = int(os.environ.get("PENSTOCK_TURNS", "60"))
DRIVER = Path(__file__).with_name("agent_driver.py")
FLOOD = f"{sys.executable} -c \"print('x' * 79 + chr(10), end='', flush=True); print(('y' * 79 + chr(10)) * 2559, end='')\""


class Script:
    """Plays the model: for each request of the user a file, now and then a flood first, then a word."""

    def __init__(self, turns):
        self.floods = {int(n * turns / 40) for n in range(40)} if turns >= 40 else set(range(turns))
        self.refusals = {
            int(turns * share): what
            for share, what in ((0.2, "long"), (0.45, "long"), (0.8, "long"), (0.3, "rate"), (0.6, "rate"))
        }
        self.over = []

    def __call__(self, request):
        if not request.body.get("tools"):
            return Reply(text="Nothing to add.")
        if request.prompt_tokens > WINDOW:
            self.over.append(request.prompt_tokens)
        messages = request.body["messages"]
        asked = max(
            at
            for at, message in enumerate(messages)
            if message["role"] == "user" and "part" in str(message["content"])
        )
        part = int(re.findall(r"part (\d+)", messages[asked]["content"])[-1])
        refusal = self.refusals.pop(part, None)
        if refusal == "long":
            return Reply.too_long(window=WINDOW, prompt=WINDOW + 900)
        if refusal == "rate":
            return Reply.rate_limited(retry_after=0.01)
        called = [
            call["function"]["name"]
            for message in messages[asked:]
            for call in message.get("tool_calls") or ()
        ]
        if part in self.floods and "terminal" not in called:
            return Reply.calling("terminal", command=FLOOD)
        if "write_file" not in called:
            body = f"licence: none\npart {part}\n" + "".join(
                f"hole {n} at {n * part % 97} mm\n" for n in range(40)
            )
            return Reply.calling("write_file", path=f"out/part_{part}.txt", content=body)
        return Reply(text=f"Part {part} is written. " + "It has forty holes, as the drawing says. " * 8)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "work"
    made.mkdir()
    return made


def started(server, tmp_path, folder, report):
    return subprocess.Popen(
        [
            sys.executable,
            str(DRIVER),
            server.base_url,
            f"sqlite:///{tmp_path}/s.db",
            str(folder),
            str(TURNS),
            str(TURNS * 2 // 3),
            str(report),
        ],
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")},
        stderr=subprocess.PIPE,
    )


def turns_done(report):
    return report.read_text().count('"turn"') if report.exists() else 0


def test_a_long_task_in_a_small_window_survives_floods_refusals_a_switch_and_a_kill(tmp_path, folder):
    script, report = Script(TURNS), tmp_path / "report.jsonl"
    with scripted_provider(script, window_tokens=WINDOW) as server:
        first = started(server, tmp_path, folder, report)
        until = time.monotonic() + 30 + TURNS
        while turns_done(report) < TURNS // 2 and first.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        assert first.poll() is None, first.stderr.read().decode()
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        second = started(server, tmp_path, folder, report)
        _, err = second.communicate(timeout=60 + 2 * TURNS)
        assert second.returncode == 0, err.decode()
        requests, violations = server.received, server.violations
    events = [json.loads(line) for line in report.read_text().splitlines()]
    assert [event for event in events if event.get("reason", "done") != "done"] == []
    assert not violations
    assert script.over == []
    check_files(folder)
    check_last_request(requests)
    check_compactions(tmp_path, events)


def check_files(folder):
    names = {path.name for path in (folder / "out").iterdir()}
    assert names >= {f"part_{n}.txt" for n in range(TURNS)} - {
        f"part_{TURNS // 2}.txt",
        f"part_{TURNS // 2 - 1}.txt",
        f"part_{TURNS // 2 + 1}.txt",
    }
    assert len(names) >= TURNS - 1
    assert all((folder / "out" / name).read_text().startswith("licence: none\n") for name in names)


def check_last_request(requests):
    last = json.dumps(
        [request for request in requests if request.body.get("tools")][-1].body, ensure_ascii=False
    )
    for constraint in CONSTRAINTS:
        assert constraint in last, constraint


def check_compactions(tmp_path, events):
    """At most one for 5,000 new tokens; the refusals are dealt with by the others."""
    store = open_store(f"sqlite:///{tmp_path}/s.db")
    conversation = store.list(limit=1)[0]
    tokens = sum(entry.tokens for entry in store.read_from(conversation.tip.id, 0))
    made = len(store.compactions(conversation.tip.id))
    assert not store.faults()
    store.close()
    assert made >= 1
    assert made <= tokens / 5_000, (made, tokens)
