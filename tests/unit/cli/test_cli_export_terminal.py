"""An export to a terminal shows what a message holds and obeys none of it; a file or a pipe gets the exact bytes."""

from __future__ import annotations

import io
import sys

import pytest

from penstock.cli.main import main
from penstock.sessions.session import Session
from penstock.stores.store import open_store

HOSTILE = "a title \x1b]0;owned\x07 and \x9b31mred\x9b0m, \x08\x08\x7f, \u202eback\u202c, a\ttab"


class Output(io.TextIOWrapper):
    """Standard output of which the test says whether it is a terminal."""

    def __init__(self, terminal):
        super().__init__(io.BytesIO(), encoding="utf-8")
        self.terminal = terminal

    def isatty(self):
        return self.terminal

    def shown(self):
        self.flush()
        return self.buffer.getvalue().decode()


@pytest.fixture
def export(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/s.db"
    store = open_store(url)
    session = Session.create(store)
    raw = '{"role":"user","content":"' + HOSTILE.replace("\x1b", "\\u001b").replace("\x07", "\\u0007")
    raw = raw.replace("\x08", "\\b").replace("\t", "\\t") + '"}'
    session.append([raw.encode(), {"role": "assistant", "content": HOSTILE}])
    store.close()

    def run(format_name, terminal):
        output = Output(terminal)
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["sessions", "export", session.id, "--store", url, "--format", format_name]) == 0
        return output.shown(), raw

    return run


@pytest.mark.parametrize("format_name", ["json", "jsonl", "md"])
def test_no_control_character_reaches_the_terminal(export, format_name):
    shown, _ = export(format_name, terminal=True)
    assert "owned" in shown
    assert not [char for char in shown if not char.isprintable() and char not in "\n\t"]


def test_what_is_no_terminal_gets_the_bytes(export):
    shown, raw = export("jsonl", terminal=False)
    assert shown.split("\n")[0] == raw
