"""What is told while a run goes on."""

from __future__ import annotations

import io

from penstock.cli.screen import Screen
from penstock.cli.trajectories import progress_line
from penstock.trajectories.journal import SummariesSeen
from penstock.trajectories.metrics import Totals
from penstock.trajectories.run import RunProgress
from penstock.trajectories.shards import KeptSummary, SummariesFile

PLAIN = Screen(io.StringIO())
BARS = Screen(io.StringIO(), bars=True, columns=100)


def progress():
    totals = Totals(rows=600, tokens_before=9_000_000)
    return RunProgress(totals=totals, read_bytes=50, total_bytes=200, resumed_bytes=25, resumed_rows=100)


def test_before_anything_is_done_it_says_that_it_starts():
    assert progress_line(None, 3.0, PLAIN) == "penstock: starting, 3 s"


def test_pace_and_time_left_leave_out_what_was_done_before():
    line = progress_line(progress(), 10.0, PLAIN)
    assert line == "penstock: 25% · 600 rows · 50 rows/s · 900.0k tokens/s · 1:00 left"


def seen(folder, *costs):
    """Summaries of these costs, as workers keep them."""
    for number, cost in enumerate(costs):
        with SummariesFile(str(folder)) as file:
            file.put(0, KeptSummary(number, None, {"cost": cost}))
    return SummariesSeen(folder)


def test_summaries_and_their_cost_are_told_while_their_shards_are_on_their_way(tmp_path):
    known = seen(tmp_path, 1.0, 0.234).look()
    assert progress_line(None, 70.0, PLAIN, known) == "penstock: at work, 70 s, 2 summaries, $1.23"
    assert progress_line(progress(), 10.0, PLAIN, known).endswith(" left · 2 summaries · $1.23")


def test_every_look_reads_what_is_new(tmp_path):
    known = seen(tmp_path, 1.0)
    path = next(tmp_path.iterdir())
    assert (known.look().count, known.look().count) == (1, 1)
    path.write_bytes(path.read_bytes() + b'[0, {"row": 5, "pro')
    assert known.look().count == 1
    path.write_bytes(path.read_bytes() + b'se": null, "figures": {"cost": null}}]\nrubbish\n')
    assert (known.look().count, known.cost_unknown) == (2, 1)
    assert progress_line(progress(), 10.0, PLAIN, known).endswith("· $1.00 and more")
    path.unlink()
    assert known.look().count == 2


def test_a_terminal_gets_a_bar():
    line = progress_line(progress(), 10.0, BARS)
    assert line.startswith("██████ ")
    assert "penstock" not in line


def test_a_stream_without_unicode_gets_plain_letters():
    line = progress_line(progress(), 10.0, Screen(io.StringIO(), unicode=False))
    assert line.isascii()
