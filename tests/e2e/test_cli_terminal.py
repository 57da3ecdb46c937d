"""The command at a terminal: a real pseudo-terminal stands where the person would sit."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from tests.e2e.cli_process import COMMAND, encoded, environment, penstock, penstock_to, result, user, work

EXAMPLE = Path(__file__).parents[2] / "examples" / "long_session.json"


class Terminal:
    """A pseudo-terminal, of 64 columns at first; `slave` is what a process is given, `read` what it showed there."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.shown = b""
        self.resize(64)

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self, until: bytes | None = None, seconds: float = 30) -> str:
        """What was shown, up to these bytes, or until nothing more is there."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit and (until is None or until not in self.shown):
            ready, _, _ = select.select([self.master], [], [], 0.2 if until is None else 1)
            if ready:
                self.shown += os.read(self.master, 65_536)
            elif until is None:
                break
        return self.shown.decode()

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal():
    opened = Terminal()
    yield opened
    opened.close()


def shown_on(terminal: Terminal, *args: str | Path, **env: str) -> str:
    ran = penstock_to(terminal.slave, *args, **env)
    assert ran.code == 0, ran.err
    os.write(terminal.slave, b"\0")  # behind all that it wrote
    return terminal.read(until=b"\0").removesuffix("\0")


def without_colour(shown: str) -> str:
    plain = re.sub(r"\x1b\[\d+m", "", shown)
    assert "\x1b" not in plain
    return plain


def test_colour_and_bars_on_a_terminal_within_its_columns(terminal):
    command = [COMMAND, "tokens", EXAMPLE, "--context-length", "40k"]
    subprocess.run(
        command, stdout=terminal.slave, env=environment(TERM="xterm-256color"), timeout=60, check=True
    )
    shown = terminal.read()
    assert "\x1b[1m" in shown
    assert "████" in shown
    assert max(map(len, without_colour(shown).splitlines())) <= 64


def test_long_reasons_are_cut_at_the_edge_of_the_terminal(terminal, tmp_path):
    file = tmp_path / "session.json"
    file.write_bytes(encoded(work()))
    args = ("explain", file, "--target-tokens", "800", "--all")
    plain = without_colour(shown_on(terminal, *args, TERM="xterm"))
    table = [line for line in plain.splitlines() if re.match(r" *m\d+ ", line)]
    assert len(table) == 63
    assert max(map(len, table)) == 64
    assert any(line.endswith("…") for line in table)


@pytest.mark.parametrize("colour", [{}, {"NO_COLOR": "1"}], ids=["colour", "plain"])
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_reports_keep_within_the_terminal(terminal, tmp_path, columns, colour):
    """Only a command to copy is never broken. What matters of a reason is there from 80 columns on."""
    terminal.resize(columns)
    file = tmp_path / "s.json"
    file.write_bytes(
        encoded({"system": "Be brief.", "messages": [*work(), result("nobody", "x"), user("?")]})
    )
    for args in (("explain", file, "--target-tokens", "40%"), ("explain", file), ("tokens", file)):
        terminal.shown = b""
        shown = without_colour(shown_on(terminal, *args, TERM="xterm", **colour))
        lines = [line for line in shown.splitlines() if "penstock explain " not in line]
        assert max(map(len, lines)) <= columns
        if columns >= 80 and "40%" in args:
            assert "  the user's last request" in shown
            assert re.search(r"summarised  (excerpts in the handoff|\d+ quoted, \d+ by handle)\r?\n", shown)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}])
def test_bars_without_colour(terminal, env):
    shown = shown_on(terminal, "tokens", EXAMPLE, "--context-length", "40k", **env)
    assert "\x1b" not in shown
    assert "████" in shown


def test_ascii_where_nothing_else_can_be_shown(terminal):
    command = [COMMAND, "tokens", EXAMPLE, "--context-length", "40k"]
    env = environment(PYTHONIOENCODING="ascii", TERM="dumb")
    subprocess.run(command, stdout=terminal.slave, env=env, timeout=60, check=True)
    shown = terminal.read()
    assert shown.isascii()
    assert "#####" in shown


def test_a_pipe_gets_neither(terminal):
    shown = penstock("tokens", EXAMPLE, "--context-length", "40k", TERM="xterm").text
    assert "\x1b" not in shown
    assert "█" not in shown


def test_ascii_reports_in_a_pipe(tmp_path):
    file = tmp_path / "session.json"
    file.write_bytes(encoded(work()))
    ran = penstock("explain", file, "--target-tokens", "600", PYTHONIOENCODING="ascii")
    assert ran.code == 0
    assert ran.text.isascii()
    assert "compressed 63 -> " in ran.text


def test_a_document_on_a_terminal_ends_its_line_before_the_report(terminal, tmp_path):
    file = tmp_path / "session.json"
    file.write_bytes(encoded([user("hi")]))
    subprocess.run(
        [COMMAND, "compress", file],
        stdout=terminal.slave,
        stderr=terminal.slave,
        env=environment(),
        check=True,
    )
    assert '"hi"}]\r\n' in terminal.read()


def test_a_progress_line_for_what_takes_long_and_none_is_left(terminal, tmp_path):
    """A pipe that nobody writes to keeps the command reading for as long as the test needs."""
    slow = tmp_path / "slow.json"
    os.mkfifo(slow)
    process = subprocess.Popen(
        [COMMAND, "tokens", slow],
        stdout=subprocess.DEVNULL,
        stderr=terminal.slave,
        env=environment(TERM="xterm"),
    )
    terminal.read(until=b"penstock: reading, 1 s")
    slow.write_bytes(encoded([user("hi")]))
    assert process.wait(timeout=20) == 0
    shown = terminal.read()
    assert "penstock: reading, 1 s" in shown
    assert shown.endswith("\r\x1b[K")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_an_interruption_is_quiet_and_leaves_nothing(terminal, tmp_path, number, code):
    """The command says that it waits for the terminal, so the signal surely meets it at work."""
    out = tmp_path / "out.json"
    process = subprocess.Popen(
        [COMMAND, "compress", "-", "-o", out],
        stdin=terminal.slave,
        stderr=terminal.slave,
        stdout=subprocess.DEVNULL,
        env=environment(),
    )
    terminal.read(until=b"Ctrl-C\r\n")
    process.send_signal(number)
    assert process.wait(timeout=20) == code
    assert terminal.read().count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", [("chat", "hello"), ("sessions", "show", "no-such-id")])
def test_an_error_on_a_terminal_is_broken_between_words(terminal, tmp_path, args):
    terminal.resize(40)
    done = subprocess.run(
        [COMMAND, *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=terminal.slave,
        env=environment(HOME=str(tmp_path)),
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    lines = terminal.read().splitlines()
    assert len(lines) > 1
    whole = subprocess.run(
        [COMMAND, *args], capture_output=True, env=environment(HOME=str(tmp_path)), timeout=60, check=False
    ).stderr.decode()
    assert " ".join(lines).split() == whole.split()  # no word was broken
    assert whole.count("\n") == 1
