"""How far a run over a data set is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Self

from penstock.cli.screen import screen_of

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.cli.screen import Screen
    from penstock.trajectories.journal import SummariesSeen
    from penstock.trajectories.run import ShardProgress

__all__ = ["RunProgress", "progress_line"]

_STEP_SECONDS = 0.2
_PATIENCE_SECONDS = 1.0
_PLAIN_SECONDS = 10.0
_BAR_COLUMNS = 24
_CLEAR = "\r\x1b[K"


class RunProgress:
    """While the block runs, tells how far it is: on standard error, and only where it takes longer than a second."""

    def __init__(self, summaries: SummariesSeen | None = None, plain_seconds: float = _PLAIN_SECONDS) -> None:
        self._screen = screen_of(sys.stderr)
        self._summaries = summaries
        self._plain_seconds = plain_seconds
        self._latest: ShardProgress | None = None
        self._started = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True, name="penstock-progress")

    def update(self, progress: ShardProgress) -> None:
        """Note how far it is."""
        self._latest = progress

    def __enter__(self) -> Self:
        if sys.stderr is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _tell(self) -> None:
        bars = self._screen.bars
        if self._done.wait(_PATIENCE_SECONDS if bars else self._plain_seconds):
            return
        while not self._done.is_set():
            seen = self._summaries.look() if self._summaries is not None else None
            line = progress_line(self._latest, time.monotonic() - self._started, self._screen, seen)
            self._write(f"{_CLEAR}{self._screen.clip(line, 0)}" if bars else f"{line}\n")
            self._done.wait(_STEP_SECONDS if bars else self._plain_seconds)
        if bars:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # the terminal went away: the work goes on
            self._done.set()


def progress_line(
    progress: ShardProgress | None, seconds: float, screen: Screen, summaries: SummariesSeen | None = None
) -> str:
    """The line: a bar where there can be one, rows, rows and tokens in a second, time left, summaries, cost so far.

    Rows are told a shard at a time. A model may take minutes for one, so its summaries are told one by one.
    """
    words: list[str] = []
    if summaries is not None:
        unknown = " and more" if summaries.cost_unknown else ""
        words = [f"{summaries.count:,} summaries", f"${summaries.cost:,.2f}{unknown}"]
    if progress is None:
        stage = "at work" if summaries is not None and summaries.count else "starting"
        return ", ".join([f"penstock: {stage}, {seconds:.0f} s", *words])
    share = min(1.0, progress.read_bytes / progress.total_bytes) if progress.total_bytes else 1.0
    totals = progress.totals
    fresh = max(0, totals.rows - progress.resumed_rows)
    words = [
        f"{share:4.0%}",
        f"{totals.rows:,} rows",
        f"{_short(fresh / seconds)} rows/s",
        f"{_short((totals.tokens_before - progress.resumed_tokens) / seconds)} tokens/s",
        f"{_clock(progress.seconds_left(seconds))} left",
        *words,
    ]
    if not screen.bars:
        return f"penstock: {' · '.join(words).strip()}" if screen.unicode else f"penstock: {', '.join(words)}"
    full = screen.bar(share, _BAR_COLUMNS)
    return f"{screen.paint(full, 'cyan')}{' ' * (_BAR_COLUMNS - len(full))} {' · '.join(words)}"


def _short(number: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.1f}{unit}"
    return f"{number:.1f}" if number < 10 else f"{number:.0f}"


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
