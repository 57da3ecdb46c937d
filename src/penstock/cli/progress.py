"""A line on a terminal for work that takes longer than a second."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["ProgressLine"]

_PATIENCE_SECONDS = 1.0
_STEP_SECONDS = 0.2
_CLEAR = "\r\x1b[K"


class ProgressLine:
    """While the block runs, says on standard error what is being done and for how long; then wipes the line.

    Nothing is written in the first second, nor where standard error is no terminal.
    """

    def __init__(self, doing: str, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._doing = doing
        self._patience_seconds = patience_seconds
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def now(self, doing: str) -> None:
        """Say from now on that this is being done."""
        self._doing = doing

    def __enter__(self) -> Self:
        if sys.stderr is not None and sys.stderr.isatty():
            self._thread = threading.Thread(target=self._tell, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _tell(self) -> None:
        started = time.monotonic()
        if self._done.wait(self._patience_seconds):
            return
        while not self._done.is_set():
            self._write(f"{_CLEAR}penstock: {self._doing}, {time.monotonic() - started:.0f} s")
            self._done.wait(_STEP_SECONDS)
        self._write(_CLEAR)

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # the terminal went away: the work goes on
            self._done.set()
