"""A terminal that gets narrower wraps what stands on it; of what the chat redraws, nothing stays behind.

tmux is such a terminal. `test_chat_terminal` has one that cuts lines off instead.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest
from tests.e2e.chat_stage import stage
from tests.e2e.cli_process import COMMAND, environment

from penstock.testing import Reply

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

TYPED = (
    "a long line of input that is wrapped where the window is narrow, and wrapped again where it is narrower"
)


class Tmux:
    def __init__(self, socket):
        self._socket = str(socket)

    def do(self, *args):
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *args]
        return subprocess.run(command, check=True, capture_output=True, env=environment(), timeout=20).stdout

    @property
    def text(self):
        """The screen and what has scrolled away."""
        return self.do("capture-pane", "-p", "-S", "-", "-t", "chat").decode().rstrip()

    def type(self, text):
        self.do("send-keys", "-t", "chat", "-l", text)

    def enter(self):
        self.do("send-keys", "-t", "chat", "Enter")

    def resize(self, columns, rows=24):
        self.do("resize-window", "-t", "chat", "-x", str(columns), "-y", str(rows))

    def wait(self, pattern, seconds=20):
        limit = time.monotonic() + seconds
        while not re.search(pattern, text := self.text):
            assert time.monotonic() < limit, f"waited for {pattern!r}; the screen:\n{text}"
            time.sleep(0.05)


@contextmanager
def tmux_of(at, columns=100, rows=24):
    variables = environment(HOME=str(at.home), LANG="C.UTF-8")
    given = [f"{name}={value}" for name, value in variables.items()]
    command = shlex.join(["env", *given, COMMAND, "chat", *at.args()])
    tmux = Tmux(at.home / "tmux")
    size = ("-x", str(columns), "-y", str(rows))
    tmux.do("new-session", "-d", "-s", "chat", "-c", str(at.work), *size, command)
    try:
        yield tmux
    finally:
        tmux.do("kill-server")


def test_no_ghost_of_the_prompt_or_of_a_turn_is_left_by_a_narrower_window(tmp_path):
    words = " ".join(f"word{number}" for number in range(50))
    with stage(tmp_path, [Reply(words, chunk_delay_seconds=0.1), "Done."]) as at, tmux_of(at) as tmux:
        tmux.wait("› *\n")
        tmux.type(TYPED)
        tmux.wait("rower")
        for columns in (70, 44, 90, 30):
            tmux.resize(columns)
            tmux.wait(f"› {re.escape(TYPED[: columns - 3])}")
            tmux.wait(r"of 1M( +· +\$0.00)?\Z")
            shown = tmux.text
            assert shown.count("a long line") == 1, shown
            assert len(re.findall(r"of\s1M", shown)) == 1, shown
        tmux.resize(100)
        tmux.enter()
        tmux.wait("word12")
        for columns, seen in ((60, 20), (40, 30)):
            tmux.resize(columns)
            tmux.wait(f"word{seen}")
            shown = tmux.text
            assert shown.count("word0 ") == 1, shown
            assert len(re.findall(r"of\s1M", shown)) == 1, shown
        tmux.wait("word49[^⠋]*\n›")
        shown = tmux.text
        assert [shown.split().count(word) for word in words.split()] == [1] * 50, shown
        assert "writing" not in shown
