from __future__ import annotations

import os
import pty
import select
import sys
import threading

import pytest

from penstock.cli.progress import ProgressLine


class Terminal:
    """A pseudo-terminal; `shown` ends it and gives what was written to it."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w")

    def shown(self) -> str:
        self.stream.write("END")
        self.stream.flush()
        text = b""
        while not text.endswith(b"END"):
            text += os.read(self.master, 4_096)
        return text.decode().removesuffix("END")


@pytest.fixture
def terminal():
    opened = Terminal()
    yield opened
    opened.stream.close()
    os.close(opened.master)


def work(terminal: Terminal, *, failure: BaseException | None = None) -> None:
    with ProgressLine("counting", patience_seconds=0):
        select.select([terminal.master], [], [], 10)  # until the line is there
        if failure is not None:
            raise failure


def test_quick_work_says_nothing(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    with ProgressLine("counting", patience_seconds=60):
        pass
    assert terminal.shown() == ""


def test_long_work_says_what_it_does_and_wipes_the_line(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    work(terminal)
    shown = terminal.shown()
    assert shown.startswith("\r\x1b[Kpenstock: counting, 0 s")
    assert shown.endswith("\r\x1b[K")


def test_the_line_is_wiped_before_a_failure_is_told(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    with pytest.raises(ValueError, match="bad"):
        work(terminal, failure=ValueError("bad"))
    assert terminal.shown().endswith("\r\x1b[K")


def test_a_file_gets_no_progress(monkeypatch, tmp_path):
    with (tmp_path / "err").open("w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with ProgressLine("counting", patience_seconds=0):
            threading.Event().wait(0.05)
    assert (tmp_path / "err").read_text() == ""


def test_a_file_gets_lines_now_and_then_where_they_were_asked_for(monkeypatch, tmp_path):
    with (tmp_path / "err").open("w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with ProgressLine("counting", plain_seconds=0.05):
            threading.Event().wait(0.3)
        with ProgressLine("starting", plain_seconds=60):
            pass
    lines = (tmp_path / "err").read_text().splitlines()
    assert len(lines) > 1
    assert set(lines) == {"penstock: counting, 0 s"}


def test_a_process_without_standard_error_goes_on(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with ProgressLine("counting", patience_seconds=0, plain_seconds=0.01):
        threading.Event().wait(0.03)


def test_an_interruption_leaves_a_clean_line(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    with pytest.raises(KeyboardInterrupt):
        work(terminal, failure=KeyboardInterrupt())
    assert terminal.shown().endswith("\r\x1b[K")
