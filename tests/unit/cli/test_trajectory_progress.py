"""What is told while a run goes on."""

from __future__ import annotations

import io

from penstock.cli.screen import Screen
from penstock.cli.trajectory_progress import progress_line
from penstock.trajectories.metrics import Totals
from penstock.trajectories.run import Progress

PLAIN = Screen(io.StringIO())
BARS = Screen(io.StringIO(), bars=True, columns=100)


def progress(**changes):
    totals = Totals(rows=600, tokens_before=9_000_000, **changes)
    return Progress(totals=totals, read_bytes=50, total_bytes=200, resumed_bytes=25, resumed_rows=100)


def test_before_anything_is_done_it_says_that_it_starts():
    assert progress_line(None, 3.0, PLAIN) == "penstock: starting, 3 s"


def test_pace_and_time_left_leave_out_what_was_done_before():
    line = progress_line(progress(), 10.0, PLAIN)
    assert line == "penstock: 25% · 600 rows · 50 rows/s · 900.0k tokens/s · 1:00 left"


def test_cost_is_told_where_a_model_is_asked():
    assert progress_line(progress(model_calls=5, cost=1.234), 10.0, PLAIN).endswith("· $1.23")
    unknown = progress(model_calls=5, cost=1.234, cost_unknown_rows=2)
    assert progress_line(unknown, 10.0, PLAIN).endswith("· $1.23 and more")


def test_a_terminal_gets_a_bar():
    line = progress_line(progress(), 10.0, BARS)
    assert line.startswith("██████ ")
    assert "penstock" not in line


def test_a_stream_without_unicode_gets_plain_letters():
    line = progress_line(progress(), 10.0, Screen(io.StringIO(), unicode=False))
    assert line.isascii()
