"""The policies that are compared: each chooses the requests before which a session is compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from penstock.planning.economics import Books, PricedRequest, step
from penstock.planning.policy import budgets
from penstock.replay.hindsight import in_hindsight
from penstock.settings import CompressionSettings

if TYPE_CHECKING:
    from penstock.replay.bills import Case, Course

__all__ = ["BEST", "GATED", "LATE", "NEVER", "POLICIES", "RULE", "ReplayPolicy", "at_size", "by_rule"]


class ReplayPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy by its name: at a share of the window, at a flat size, by the rule, or the best in hindsight.

    `default` overrules the rule at the threshold of the default settings, not only at the window.
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
        """The requests of a session before which it is compacted."""
        if self.best:
            return in_hindsight(course, case)
        if self.rule:
            return by_rule(course, case, self.rule, self.limit_tokens(case))
        return at_size(course, case, self.limit_tokens(case))


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
settings, as the engine does with `context.economics: gated`.
"""


def at_size(course: Course, case: Case, limit_tokens: int) -> list[int]:
    """Compact whenever the view has reached a size, and something can be dropped."""
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
    """Compact as `penstock.planning.economics` decides, request by request."""
    compacted: list[int] = []
    static, kept, summary = course.static_tokens, case.kept_tokens, case.summary_tokens
    books = Books(case.terms, limit_tokens, mode)
    view = static
    for at, (appended, warm) in enumerate(zip(course.appended.tolist(), course.warm.tolist(), strict=True)):
        view += int(appended)
        books, weighed = step(books, PricedRequest(view, int(appended), static, kept, warm, summary))
        if weighed.compact:
            compacted.append(at)
            view = static + kept
    return compacted
