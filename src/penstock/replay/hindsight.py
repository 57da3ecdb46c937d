"""The cheapest choice of compactions for a session whose end is known: what no policy can beat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from penstock.replay.bills import Case, Course

__all__ = ["in_hindsight"]


def in_hindsight(course: Course, case: Case) -> list[int]:
    """The requests before which to compact, so that the bill is the least that is possible.

    An exact dynamic programme over the last compaction. After one at request i the view is the same whatever came
    before it, and the cost of a request is linear in its view; so the cost of going on from i until the next
    compaction j is a line in what i starts with, and the best j is the least of those lines at one point.
    """
    terms, sums = case.terms, course.sums
    count = len(sums)
    if sums[-1] <= case.kept_tokens:
        return []  # there is never anything to drop
    rate = np.where(course.warm, terms.read, terms.write)
    extra = np.where(course.warm, (terms.write - terms.read) * course.appended, 0.0)
    # A stretch that starts with x tokens below its sums: request k costs rate·(x + sums) + extra.
    slope = np.concatenate(([0.0], np.cumsum(rate)))
    fixed = np.concatenate(([0.0], np.cumsum(rate * sums + extra)))
    asked = np.where(course.warm, terms.read, 1.0) if case.summary_tokens else np.zeros(count)
    line_slope = slope.copy()
    line_slope[:count] += asked  # a summary reads the view that has grown until then
    line_fixed = fixed.copy()
    line_fixed[:count] += asked * sums + terms.output * case.summary_tokens
    opening = (
        np.where(course.warm, terms.read, terms.write) * course.static_tokens + terms.write * case.kept_tokens
    )
    starts = course.static_tokens + case.kept_tokens - sums
    forced = np.searchsorted(sums, case.window_tokens - starts, side="left")
    following = np.zeros(count, dtype=np.intp)
    for at in range(count - 1, -1, -1):
        last = min(count, max(int(forced[at]), at + 1))
        ways = line_slope[at + 1 : last + 1] * starts[at] + line_fixed[at + 1 : last + 1]
        best = int(np.argmin(ways))
        following[at] = at + 1 + best
        # What is behind `at` is known by now: its own line takes it in.
        line_fixed[at] += opening[at] + ways[best] - slope[at + 1] * starts[at] - fixed[at + 1]
    # Before the first compaction the view is the static prefix and the sums; from `first` on something can go.
    first = int(np.searchsorted(sums, case.kept_tokens, side="right"))
    last = min(
        count, max(first, int(np.searchsorted(sums, case.window_tokens - course.static_tokens, side="left")))
    )
    ways = line_slope[first : last + 1] * course.static_tokens + line_fixed[first : last + 1]
    at = first + int(np.argmin(ways))
    compacted = []
    while at < count:
        compacted.append(at)
        at = int(following[at])
    return compacted
