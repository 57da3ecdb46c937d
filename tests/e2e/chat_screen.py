"""A person at a real pseudo-terminal: types, reads the screen as an emulator shows it, and resizes it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pyte
from tests.e2e.cli_process import COMMAND, environment

_BRACKETED_PASTE = 2004 << 5  # as the emulator numbers private modes
ENTER, ALT_ENTER, CTRL_C, CTRL_D, TAB, ESCAPE = "\r", "\x1b\r", "\x03", "\x04", "\t", "\x1b"


class _Emulator(pyte.HistoryScreen):
    """Answers what programs ask a terminal, as real ones do."""

    answers = b""

    def write_process_input(self, data):
        self.answers += data.encode()


class ChatScreen:
    """The chat in a process of its own, with this terminal as its own. Use it in a `with` block."""

    def __init__(self, *args, columns=80, rows=24, command=(COMMAND, "chat"), cwd=None, **env):
        self.master, slave = pty.openpty()
        self.screen = _Emulator(columns, rows, history=2_000, ratio=0.5)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._size(slave, columns, rows)
        self.process = subprocess.Popen(
            [*command, *map(str, args)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=environment(**{"TERM": "xterm-256color", **env}),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one system call, no locks
        )
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    @property
    def lines(self):
        """The screen, without what is blank at the end."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self):
        return "\n".join(self.lines).rstrip()

    @property
    def everything(self):
        """With what has scrolled away."""
        above = ["".join(row[x].data for x in range(self.screen.columns)) for row in self.screen.history.top]
        return "\n".join(line.rstrip() for line in [*above, *self.lines]).rstrip()

    def type(self, *keys):
        for key in keys:
            os.write(self.master, key.encode())

    def say(self, line):
        self.type(line, ENTER)

    def paste(self, text):
        """As terminals hand over what was pasted: between marks if the program has asked for them, else as if typed."""
        marked = self.takes_pastes
        self.type((f"\x1b[200~{text}\x1b[201~" if marked else text).replace("\n", "\r"))

    @property
    def takes_pastes(self):
        return _BRACKETED_PASTE in self.screen.mode

    def resize(self, columns, rows=24):
        y, removed = self.screen.cursor.y, max(0, self.screen.lines - rows)
        self.screen.resize(rows, columns)
        self.screen.cursor.y = max(
            0, y - removed
        )  # the emulator takes rows off the top and leaves the cursor behind
        self._size(self.master, columns, rows)

    @staticmethod
    def _size(descriptor, columns, rows):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait(self, pattern, seconds=60):
        """Read until the screen, or what scrolled away above it, matches."""
        self.wait_for(lambda: re.search(pattern, self.everything), f"{pattern!r} to be shown", seconds)

    def wait_idle(self, seconds=60):
        """Read until the prompt is there and empty, with the status line below it."""
        self.wait_for(
            lambda: re.search(r"^› *\n+[^\n]* of [^\n]*\Z", self.text, re.MULTILINE), "the prompt", seconds
        )

    def wait_quiet(self, seconds=0.3):
        """Read until nothing has come for so long: what was typed has been taken."""
        read = -1
        while read < len(self.raw):
            read = len(self.raw)
            self._read(seconds)

    def wait_end(self, seconds=60):
        """Read until the process has ended; its exit code."""
        self.wait_for(lambda: self.process.poll() is not None, "the end", seconds)
        self._read(0.1)
        return self.process.returncode

    def wait_for(self, reached, what, seconds=60):
        """Read until `reached` says so."""
        limit = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > limit:
                raise AssertionError(f"waited {seconds} s for {what}; the screen:\n{self.everything}")
            self._read(0.05)

    def _read(self, seconds):
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return
        try:
            data = os.read(self.master, 65_536)
        except OSError:  # the other side is closed
            time.sleep(0.01)
            return
        self.raw += data
        self.stream.feed(data)
        if self.screen.answers:
            os.write(self.master, self.screen.answers)
            self.screen.answers = b""
