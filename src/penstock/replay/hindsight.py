"""The cheapest choice of compactions for a session whose end is known: what no policy can beat.

An exact dynamic programme over the last compaction. After one at request i the view is the same whatever came before it,
and the cost of a request is linear in its view; so going on from i until the next compaction j costs what a line says
in the tokens that i starts with, and the best j is the least of those lines at one point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.replay.bills import Case, Course

    Amounts = NDArray[np.float64]

__all__ = ["in_hindsight"]


class _Lines(NamedTuple):
    """For every request j, all that a session costs from its start until the compaction at j: `slope`·x + `fixed`.

    x is what the view has beside the sums of appended tokens. The last line is that of the end of the session. `paid` are
    slope and constant of the requests before each one, `opening` what the request of a compaction itself costs.
    """

    slope: Amounts
    fixed: Amounts
    paid: tuple[Amounts, Amounts]
    opening: Amounts


def in_hindsight(course: Course, case: Case) -> list[int]:
    """The requests before which to compact, so that the bill is the least that is possible."""
    sums, count = course.sums, len(course.sums)
    if sums[-1] <= case.kept_tokens:
        return []  # there is never anything to drop
    lines = _lines(course, case)
    starts = course.static_tokens + case.kept_tokens - sums
    forced = np.searchsorted(sums, case.window_tokens - starts, side="left")
    following = np.zeros(count, dtype=np.intp)
    for at in range(count - 1, -1, -1):
        least, following[at] = _least(lines, starts[at], at + 1, int(forced[at]))
        # What comes after `at` is known by now, and its own line takes it in.
        paid = lines.paid[0][at + 1] * starts[at] + lines.paid[1][at + 1]
        lines.fixed[at] += lines.opening[at] + least - paid
    # Before the first compaction the view is the static prefix and the sums; from `first` on something can go.
    first = int(np.searchsorted(sums, case.kept_tokens, side="right"))
    full = int(np.searchsorted(sums, case.window_tokens - course.static_tokens, side="left"))
    _, at = _least(lines, course.static_tokens, first, full)
    compacted = []
    while at < count:
        compacted.append(at)
        at = int(following[at])
    return compacted


def _least(lines: _Lines, start: float, first: int, forced: int) -> tuple[float, int]:
    """The least of the lines at `start`, and which it is: from `first` on, and up to where the window forces one."""
    reach = slice(first, max(first, forced) + 1)
    ways = lines.slope[reach] * start + lines.fixed[reach]
    best = int(np.argmin(ways))
    return float(ways[best]), first + best


def _lines(course: Course, case: Case) -> _Lines:
    terms, warm, sums = case.terms, course.warm, course.sums
    rate = np.where(warm, terms.read, terms.write)
    extra = np.where(warm, (terms.write - terms.read) * course.appended, 0.0)
    slope = np.concatenate(([0.0], np.cumsum(rate)))
    fixed = np.concatenate(([0.0], np.cumsum(rate * sums + extra)))
    paid = (slope.copy(), fixed.copy())
    if case.summary_tokens:  # a summary reads the view that has grown until then
        asked = np.where(warm, terms.read, 1.0)
        slope[:-1] += asked
        fixed[:-1] += asked * sums + terms.output * case.summary_tokens
    return _Lines(slope, fixed, paid, rate * course.static_tokens + terms.write * case.kept_tokens)
