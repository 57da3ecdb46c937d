"""Compares policies: each chooses the requests before which a session is compacted, and sessions are billed under each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import numpy as np

from penstock.errors import SettingsError
from penstock.planning.economics import Books, PricedRequest, Why, step
from penstock.planning.policy import budgets
from penstock.replay.bills import Bill, bill_of, course_of, views_of
from penstock.settings import CompressionSettings
from penstock.writing.writer import PROSE_SHARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.replay.bills import Case, Course
    from penstock.replay.traces import Trace

    Amounts = NDArray[np.float64]

__all__ = [
    "BEST",
    "GATED",
    "LATE",
    "NEVER",
    "POLICIES",
    "RULE",
    "PolicyOutcome",
    "ReplayPolicy",
    "at_size",
    "by_rule",
    "choose_in_hindsight",
    "compare",
    "has_room",
]


class ReplayPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy by its name: at a share of the window, at a flat size, by the rule, or the best in hindsight.

    `default` overrules the rule at the threshold of the default settings, not only at the window, and pays for the summary
    that the session's own model writes there.
    """

    name: str
    share: float = 1.0
    flat_tokens: int = 0
    rule: Literal["", "on", "gated"] = ""
    best: bool = False
    default: bool = False

    def limit_tokens(self, case: Case) -> int:
        """From this size on a session is compacted, whatever else is decided."""
        if self.default:
            return budgets(CompressionSettings(), case.window_tokens).threshold_tokens
        return min(self.flat_tokens or round(self.share * case.window_tokens), case.window_tokens)

    def schedule(self, course: Course, case: Case) -> list[int]:
        """Returns the requests of a session before which it is compacted."""
        if self.best:
            return choose_in_hindsight(course, case)
        if self.rule:
            return by_rule(course, case, self.rule, self.limit_tokens(case))
        return at_size(course, case, self.limit_tokens(case))

    def bill(self, course: Course, case: Case) -> Bill:
        """Returns the bill of a session under this policy. A case whose summaries are all by a model stays as it is."""
        if not self.default or self.rule != "gated" or case.summary_tokens:
            return bill_of(course, case, self.schedule(course, case))
        case = msgspec.structs.replace(case, summary_tokens=_default_summary_tokens(case))
        moves = _follow_rule(course, case, self.rule, self.limit_tokens(case))
        return bill_of(course, case, [*moves], [at for at, why in moves.items() if why is Why.LIMIT])


def _default_summary_tokens(case: Case) -> int:
    """Returns what a model writes at the threshold by the default settings."""
    return int(budgets(CompressionSettings(), case.window_tokens).summary_ceiling_tokens * PROSE_SHARE)


NEVER, LATE, RULE, GATED, BEST = (
    "never, until forced",
    "at 83 %",
    "the rule",
    "the rule, gated",
    "best in hindsight",
)
POLICIES = (
    ReplayPolicy(name=NEVER),
    ReplayPolicy(name="at 50 %", share=0.50),
    ReplayPolicy(name="at 75 %", share=0.75),
    ReplayPolicy(name=LATE, share=0.83),
    ReplayPolicy(name="at 90 %", share=0.90),
    ReplayPolicy(name="at 80,000 tokens", flat_tokens=80_000),
    ReplayPolicy(name=RULE, rule="on"),
    ReplayPolicy(name=GATED, rule="gated"),
    ReplayPolicy(name="gated, and threshold", rule="gated", default=True),
    ReplayPolicy(name=BEST, best=True),
)
"""What is compared, in the order of the table. The first is what the others are measured by.

All but the last but one are overruled by the window alone; that one also compacts at the threshold of the default
settings, with a summary by a model, as the engine does with `context.economics: gated`.
"""


def at_size(course: Course, case: Case, limit_tokens: int) -> list[int]:
    """Compacts whenever the view has reached a size, and something can be dropped."""
    compacted: list[int] = []
    sums, base = course.sums, float(course.static_tokens)
    least = course.static_tokens + case.kept_tokens
    at = -1
    while True:
        wanted = max(limit_tokens - base, np.nextafter(least - base, np.inf))
        at = max(at + 1, int(np.searchsorted(sums, wanted, side="left")))
        if at >= len(sums):
            return compacted
        compacted.append(at)
        base = least - float(sums[at])


def by_rule(course: Course, case: Case, mode: Literal["on", "gated"], limit_tokens: int) -> list[int]:
    """Compacts as `penstock.planning.economics` decides, request by request."""
    return [*_follow_rule(course, case, mode, limit_tokens)]


def _follow_rule(
    course: Course, case: Case, mode: Literal["on", "gated"], limit_tokens: int
) -> dict[int, Why]:
    """Returns the requests before which the rule compacts, each with its reason."""
    compacted: dict[int, Why] = {}
    static, kept, summary = course.static_tokens, case.kept_tokens, case.summary_tokens
    books = Books(case.terms, limit_tokens, mode)
    view = static
    for at, (appended, warm) in enumerate(zip(course.appended.tolist(), course.warm.tolist(), strict=True)):
        view += int(appended)
        books, weighed = step(books, PricedRequest(view, int(appended), static, kept, warm, summary))
        if weighed.compact:
            compacted[at] = weighed.why
            view = static + kept
    return compacted


class PolicyOutcome(msgspec.Struct, frozen=True):
    """All sessions under one policy.

    `of_never` is the bill against that of the first policy. `below` counts the sessions that never reach the size at
    which the policy compacts in any case, `dearer` those of them that cost more than without a compaction.
    """

    policy: str
    bill: Bill
    of_never: float
    below: int
    dearer: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "policy": self.policy,
            **msgspec.structs.asdict(self.bill),
            "sent_tokens": self.bill.sent_tokens,
            "of_never": self.of_never,
            "sessions_below_limit": self.below,
            "sessions_dearer": self.dearer,
        }


def has_room(trace: Trace, case: Case) -> bool:
    """Returns True if the window holds more than the session's static prefix and what a compaction keeps."""
    return trace.static_tokens + case.kept_tokens < case.window_tokens


def compare(
    traces: Sequence[Trace], case: Case, policies: Sequence[ReplayPolicy] = POLICIES
) -> list[PolicyOutcome]:
    """Returns what the sessions cost under each policy; `of_never` is relative to the first policy.

    Only sessions that `has_room` are compared. SettingsError if none is left.
    """
    roomy = [trace for trace in traces if has_room(trace, case)]
    if not roomy:
        least = min(trace.static_tokens for trace in traces) + case.kept_tokens
        raise SettingsError(
            f"a window of {case.window_tokens:,} tokens has no room: the static prefix and what a compaction keeps "
            f"take {least:,}; give a larger window or keep less"
        )
    courses = [course_of(trace, case.terms) for trace in roomy]
    bills = [[policy.bill(course, case) for course in courses] for policy in policies]
    largest = [float(views_of(course, case, ()).max()) for course in courses]
    never = sum(bill.units for bill in bills[0])
    found = []
    for policy, own in zip(policies, bills, strict=True):
        limit = policy.limit_tokens(case)
        below = [at for at, size in enumerate(largest) if size < limit]
        dearer = sum(own[at].units > bills[0][at].units * (1 + 1e-12) for at in below)
        total = sum(own, Bill())
        found.append(
            PolicyOutcome(policy.name, total, total.units / never if never else 1.0, len(below), dearer)
        )
    return found


# The cheapest choice of compactions for a session whose end is known, which no policy can beat: an exact dynamic programme
# over the last compaction. After one at request i the view is the same whatever came before it, and the cost of a request
# is linear in its view; so going on from i until the next compaction j costs what a line says in the tokens that i starts
# with, and the best j is the least of those lines at one point.


class _Lines(NamedTuple):
    """For every request j, all that a session costs from its start until the compaction at j: `slope`·x + `fixed`.

    x is what the view has beside the sums of appended tokens. The last line is that of the end of the session. `paid` are
    slope and constant of the requests before each one, `opening` what the request of a compaction itself costs.
    """

    slope: Amounts
    fixed: Amounts
    paid: tuple[Amounts, Amounts]
    opening: Amounts


def choose_in_hindsight(course: Course, case: Case) -> list[int]:
    """Returns the requests before which to compact, so that the bill is the least that is possible."""
    sums, count = course.sums, len(course.sums)
    if sums[-1] <= case.kept_tokens:
        return []  # there is never anything to drop
    lines = _lines(course, case)
    starts = course.static_tokens + case.kept_tokens - sums
    forced = np.searchsorted(sums, case.window_tokens - starts, side="left")
    following = np.zeros(count, dtype=np.intp)
    for at in range(count - 1, -1, -1):
        least, following[at] = _find_least(lines, starts[at], at + 1, int(forced[at]))
        # What comes after `at` is known by now, and its own line takes it in.
        paid = lines.paid[0][at + 1] * starts[at] + lines.paid[1][at + 1]
        lines.fixed[at] += lines.opening[at] + least - paid
    # Before the first compaction the view is the static prefix and the sums; from `first` on something can go.
    first = int(np.searchsorted(sums, case.kept_tokens, side="right"))
    full = int(np.searchsorted(sums, case.window_tokens - course.static_tokens, side="left"))
    _, at = _find_least(lines, course.static_tokens, first, full)
    compacted = []
    while at < count:
        compacted.append(at)
        at = int(following[at])
    return compacted


def _find_least(lines: _Lines, start: float, first: int, forced: int) -> tuple[float, int]:
    """Returns the least of the lines at `start`, and which it is: from `first` on, and up to where the window forces one."""
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
