"""Stored conversations as people handle them: real processes, a real file."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time

import pytest
from tests.e2e.cli_process import COMMAND, encoded, environment, penstock, work
from tests.unit.transfer.recorded_files import SESSION, claude_session, lines

from penstock.sessions.session import Session
from penstock.stores.store import open_store


@pytest.fixture
def store(tmp_path):
    """Runs a command on a store of its own, by the setting that names it."""
    url = f"sqlite:///{tmp_path / 'kept' / 'sessions.db'}"

    def run(*args, **more):
        return penstock(*args, PENSTOCK_STORE_URL=url, TZ="UTC", **more)

    run.url = url
    return run


def test_the_life_of_a_conversation(store, tmp_path):
    """Imported, compacted by an agent, taken back, pinned, exported, imported elsewhere, deleted."""
    file = tmp_path / "work.json"
    file.write_bytes(encoded(work()))
    history = tmp_path / "history.jsonl"
    history.write_bytes(lines(*claude_session()))
    taken = json.loads(store("sessions", "import", file, history, "--json").out)
    conversation = taken[0]["conversations"][0]["session"]
    assert [one["conversations"][0]["added"] for one in taken] == [63, 4]

    opened = open_store(store.url)
    result = Session.resume(opened, conversation).compact(target_tokens=600)
    opened.close()
    view = store("sessions", "export", conversation[:6], "--view")
    assert (json.loads(view.out), view.err) == (result.messages, "")
    assert f"{result.receipt.tokens_after:,}" in store("sessions", "list").text
    assert store("sessions", "undo", conversation).code == 0
    assert store("sessions", "pin", conversation, "m3").code == 0
    shown = store("sessions", "show", conversation).text
    assert "pins         m3" in shown
    assert "undone" in shown

    out = tmp_path / "out.json"
    assert store("sessions", "export", conversation, "-o", out).code == 0
    assert json.loads(out.read_bytes()) == work()
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert "63 messages imported" in penstock("sessions", "import", out, "--store", other).text

    assert "$" in store("usage").text
    assert store("insights", "--days", "9999").text.startswith("the last 9,999 days: 2 conversations")
    assert store("sessions", "delete", conversation, "--yes").code == 0
    assert store("doctor").text == f"{store.url} is sound\n"
    assert len(json.loads(store("sessions", "list", "--json").out)) == 1


def test_an_import_that_is_interrupted_says_what_is_there(store, tmp_path):
    """The second file is a pipe to which nobody writes: the interruption comes while it is read."""
    file, pipe = tmp_path / "history.jsonl", tmp_path / "pipe"
    file.write_bytes(lines(*claude_session()))
    os.mkfifo(pipe)
    opened, held = open_store(store.url), os.open(pipe, os.O_RDWR)
    command = [COMMAND, "sessions", "import", str(file), str(pipe), "--store", store.url]
    with subprocess.Popen(command, stdout=-1, stderr=-1, env=environment()) as process:
        end = time.monotonic() + 30
        while len(opened.usage()) < 2:  # booked last
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    os.close(held)
    opened.close()
    assert (process.returncode, err) == (130, b"")
    assert out.decode().startswith(f"{file}: claude-code, anthropic: 4 messages imported as ")
    assert out.count(b"\n") == 1


def test_several_may_import_the_same_at_once(store, tmp_path):
    folder = tmp_path / "projects"
    folder.mkdir()
    for number in range(12):
        session = (
            json.dumps(claude_session()).replace(SESSION, f"session-{number}").replace("reports", f"{number}")
        )
        (folder / f"{number}.jsonl").write_bytes(lines(*json.loads(session)))
    open_store(store.url).close()
    command = [COMMAND, "sessions", "import", str(folder), "--store", store.url]
    running = [subprocess.Popen(command, stdout=-1, stderr=-1, env=environment()) for _ in range(3)]
    ended = [(*process.communicate(timeout=60), process.returncode) for process in running]
    assert [(err, code) for _, err, code in ended] == [(b"", 0)] * 3
    opened = open_store(store.url)
    assert [row.messages for row in opened.list()] == [4] * 12
    assert len(opened.usage()) == 24
    assert opened.faults() == []
    opened.close()


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("", 1)])
def test_delete_asks_on_a_terminal(store, answer, left):
    opened = open_store(store.url)
    session = Session.create(opened)
    session.append([{"role": "user", "content": "Hello"}])
    ours, theirs = pty.openpty()
    command = [COMMAND, "sessions", "delete", session.id, "--store", store.url]
    with subprocess.Popen(command, stdin=theirs, stdout=-1, stderr=-1, env=environment()) as process:
        os.write(ours, f"{answer}\n".encode())
        _, err = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert b"[y/N]" in err
    assert process.returncode == (130 if left else 0)
    assert len(opened.list()) == left
    opened.close()
