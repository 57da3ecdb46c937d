"""`penstock trajectories`: a data set within a token budget, and a report of what became of its rows."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.screen import plural, printable, screen_of
from penstock.cli.trajectory_options import run_of
from penstock.cli.trajectory_progress import RunProgress
from penstock.trajectories.journal import SummariesSeen, parts_folder
from penstock.trajectories.metrics import TrajectoryOutcome
from penstock.trajectories.run import run as run_all

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from penstock.cli.screen import Screen
    from penstock.trajectories.run import Finished, Run

__all__ = ["run"]

_LABEL = 16
_SHOWN_BAD = 20
_SHOWN_REASONS = 5


def run(args: argparse.Namespace) -> int:
    """Compress the data set. Raises what `run_of` and `penstock.trajectories.run.run` raise."""
    wanted = run_of(args).placed()
    args.file = None  # what fails is told with the name of the file at fault, which is not the whole input
    try:
        with _silent_output(), RunProgress(_summaries_of(wanted)) as progress:
            finished = run_all(wanted, on_progress=progress.update)
    except KeyboardInterrupt:
        if wanted.target is not None and sys.stderr is not None:
            print("penstock: stopped; the same command with --resume goes on", file=sys.stderr)
        raise
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps(_as_json(wanted, finished), indent=2))
        return 0
    for line in _lines(wanted, finished, screen):
        screen.say(line)
    return 0


def _summaries_of(wanted: Run) -> SummariesSeen | None:
    if wanted.job.model is None or wanted.target is None:
        return None
    return SummariesSeen(parts_folder(wanted.target))


@contextmanager
def _silent_output() -> Iterator[None]:
    """Standard output is for what we report. Ray tells there of every process that dies, whatever it is asked."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


def _as_json(wanted: Run, finished: Finished) -> dict[str, Any]:
    return {
        "dry_run": wanted.target is None,
        "sample_percent": wanted.job.sample_percent,
        "output": None if wanted.target is None else str(wanted.target),
        **msgspec.to_builtins(finished),
        "totals": finished.totals.to_dict(),
    }


def _lines(wanted: Run, finished: Finished, screen: Screen) -> Iterator[str]:
    totals = finished.totals
    files = f" in {plural(len(finished.files), 'file')}" if len(finished.files) > 1 else ""
    yield screen.paint(f"{plural(totals.rows, 'row')}{files}, {finished.seconds:.1f} s", "bold")
    for label, text in _figures(wanted, finished, screen):
        yield f"  {screen.paint(label, 'dim')}{' ' * (_LABEL - len(label))}{text}"
    for bad in finished.bad[:_SHOWN_BAD]:
        where = f"{bad.file}, row {bad.row:,}" if len(finished.files) > 1 else f"row {bad.row:,}"
        yield f"    {printable(where)}: {screen.clip(printable(bad.reason), len(where) + 6)}"
    if (more := totals.count(TrajectoryOutcome.BAD, TrajectoryOutcome.FAILED) - _SHOWN_BAD) > 0:
        yield f"    and {more:,} more: --metrics FILE has them all"


def _figures(wanted: Run, finished: Finished, screen: Screen) -> Iterator[tuple[str, str]]:
    """What became of the rows, in labelled lines."""
    totals = finished.totals
    if wanted.job.sample_percent < 100:
        share = f"about {wanted.job.sample_percent:g} % of the rows, seed {wanted.job.seed}"
        yield "sample", f"{share}; {plural(totals.left_out, 'row')} left out"
    if finished.resumed_rows:
        yield "resumed", f"{plural(finished.resumed_rows, 'row')} had been done before"
    yield from _outcomes(finished, screen)
    yield "tokens", f"{totals.tokens_before:,} {screen.arrow} {totals.tokens_after:,} ({totals.ratio:.0%})"
    yield "turns", f"{totals.turns_before:,} {screen.arrow} {totals.turns_after:,}"
    if totals.model_calls:
        rows = plural(totals.cost_unknown_rows, "row")
        unknown = f", and {rows} of unknown price" if totals.cost_unknown_rows else ""
        yield "model", f"{plural(totals.model_calls, 'request')}, ${totals.cost:,.4f}{unknown}"
    if wanted.target is None:
        yield "written", "nothing: this was a dry run"
    else:
        yield "written", f"{printable(str(wanted.target))}, {finished.written_bytes:,} bytes"
    if wanted.metrics is not None:
        yield "metrics", printable(str(wanted.metrics))
    if wanted.report is not None:
        yield "report", printable(str(wanted.report))


def _outcomes(finished: Finished, screen: Screen) -> Iterator[tuple[str, str]]:
    totals = finished.totals
    yield "compressed", f"{totals.count(TrajectoryOutcome.COMPRESSED, TrajectoryOutcome.DEGRADED):,}"
    if degraded := totals.count(TrajectoryOutcome.DEGRADED):
        yield "degraded", f"{degraded:,} of them without the model's words"
        elsewhere = {bad.reason for bad in finished.bad}  # told with the number of the row
        reasons = [one for one in totals.reasons.items() if one[0] not in elsewhere]
        for reason, number in sorted(reasons, key=lambda one: -one[1])[:_SHOWN_REASONS]:
            yield "", f"{number:,}: {screen.clip(printable(reason), _LABEL + 10)}"
    yield "under target", f"{totals.count(TrajectoryOutcome.UNDER_TARGET):,}, as they came"
    if totals.still_over_limit:
        kept = totals.count(TrajectoryOutcome.NOT_COMPRESSIBLE)
        yield "still over", f"{totals.still_over_limit:,}: what must stay is too much ({kept:,} as they came)"
    if bad := totals.count(TrajectoryOutcome.BAD):
        yield "bad rows", f"{bad:,}, copied as they are"
    if failed := totals.count(TrajectoryOutcome.FAILED):
        yield "failed", f"{failed:,}, copied as they are: faults in Penstock, please report them"
