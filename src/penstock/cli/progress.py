"""A line on standard error about work that takes longer than a second: it ticks, and is wiped when the work ends."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Self

from penstock.cli.screen import Screen, screen_of

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["ProgressLine"]

_PATIENCE_SECONDS = 1.0
_STEP_SECONDS = 0.2
_CLEAR = "\r\x1b[K"


class ProgressLine:
    """While the block runs, shows on standard error what is being done and for how long; then wipes the line.

    Nothing is written in the first second. If standard error is not a terminal, nothing is written at all; with
    `plain_seconds`, a line of its own at that interval. A subclass that knows more says it with `describe`.
    """

    def __init__(
        self, doing: str, patience_seconds: float = _PATIENCE_SECONDS, plain_seconds: float | None = None
    ) -> None:
        self._doing = doing
        self._patience_seconds = patience_seconds
        self._plain_seconds = plain_seconds
        self._started = time.monotonic()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def now(self, doing: str) -> None:
        """Shows this text from now on."""
        self._doing = doing

    def describe(self, seconds: float, screen: Screen) -> str:  # noqa: ARG002 - for subclasses that draw
        """Returns the line after that many seconds."""
        return f"penstock: {self._doing}, {seconds:.0f} s"

    def __enter__(self) -> Self:
        screen = screen_of(sys.stderr)
        self._started = time.monotonic()
        if screen.bars:
            rhythm = self._patience_seconds, _STEP_SECONDS
        elif self._plain_seconds is not None and sys.stderr is not None:
            rhythm = self._plain_seconds, self._plain_seconds
        else:
            return self
        self._thread = threading.Thread(
            target=self._tick, args=(screen, *rhythm), daemon=True, name="penstock-progress"
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _tick(self, screen: Screen, first_seconds: float, step_seconds: float) -> None:
        if self._done.wait(first_seconds):
            return
        while not self._done.is_set():
            line = self.describe(time.monotonic() - self._started, screen)
            self._write(f"{_CLEAR}{screen.clip(line, 0)}" if screen.bars else f"{line}\n")
            self._done.wait(step_seconds)
        if screen.bars:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # the terminal went away: the work goes on
            self._done.set()
