"""How far a run over a data set is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.progress import ProgressLine

if TYPE_CHECKING:
    from penstock.cli.screen import Screen
    from penstock.trajectories.journal import SummariesSeen
    from penstock.trajectories.run import ShardProgress

__all__ = ["RunLine", "progress_line"]

_PLAIN_SECONDS = 10.0
_BAR_COLUMNS = 24


class RunLine(ProgressLine):
    """While the block runs, tells how far the run is. `summaries` are those that models have written so far."""

    def __init__(self, summaries: SummariesSeen | None = None) -> None:
        super().__init__("starting", plain_seconds=_PLAIN_SECONDS)
        self._summaries = summaries
        self._latest: ShardProgress | None = None

    def update(self, progress: ShardProgress) -> None:
        """Take note of how far the run is."""
        self._latest = progress

    def describe(self, seconds: float, screen: Screen) -> str:
        """Returns the line after that many seconds."""
        seen = self._summaries.look() if self._summaries is not None else None
        return progress_line(self._latest, seconds, screen, seen)


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
