"""The bill of a session, for any choice of the requests before which it was compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.planning.economics import PriceTerms  # noqa: TC001 - a struct's field types are read at run time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.replay.traces import Trace

__all__ = ["Bill", "Case", "Course", "bill_of", "course_of", "views_of"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a replay.

    A compaction leaves the static prefix and `kept_tokens`, of which a model writes `summary_tokens` (0: none is
    asked). No view reaches `window_tokens`: there the session is compacted in any case.
    """

    terms: PriceTerms
    window_tokens: int
    kept_tokens: int
    summary_tokens: int = 0


class Course(msgspec.Struct, frozen=True, eq=False):
    """A trace as arrays: tokens appended, their sums, output, and whether the cache was warm."""

    static_tokens: int
    appended: NDArray[np.float64]
    sums: NDArray[np.float64]
    output_tokens: int
    warm: NDArray[np.bool_]


class Bill(msgspec.Struct, frozen=True):
    """Tokens, and what they cost in units. `read_tokens` came out of the cache, `fresh_tokens` did not."""

    compactions: int = 0
    read_tokens: int = 0
    fresh_tokens: int = 0
    output_tokens: int = 0
    units: float = 0.0

    @property
    def sent_tokens(self) -> int:
        """All prompts together, those of summaries included."""
        return self.read_tokens + self.fresh_tokens

    def __add__(self, other: Bill) -> Bill:
        return Bill(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


def course_of(trace: Trace, terms: PriceTerms) -> Course:
    """Returns the trace under these terms. The first request finds no cache."""
    appended = np.array(trace.appended, dtype=np.float64)
    warm = np.array(trace.gaps) <= terms.ttl_seconds
    warm[0] = False
    return Course(trace.static_tokens, appended, np.cumsum(appended), sum(trace.output), warm)


def views_of(course: Course, case: Case, compacted: Sequence[int]) -> NDArray[np.float64]:
    """Returns the tokens of every request, if the session is compacted before the requests `compacted`, which ascend."""
    at = np.asarray(compacted, dtype=np.intp)
    starts = np.concatenate(([0.0], case.kept_tokens - course.sums[at])) + course.static_tokens
    lives = np.diff(np.concatenate(([0], at, [len(course.sums)])))
    views: NDArray[np.float64] = np.repeat(starts, lives) + course.sums
    return views


def bill_of(
    course: Course, case: Case, compacted: Sequence[int], summarised: Sequence[int] | None = None
) -> Bill:
    """Returns the bill of the session if it is compacted before the requests `compacted`, in ascending order.

    `summarised` are those of them for which a model is asked, if that is not all of them.
    """
    terms = case.terms
    at = np.asarray(compacted, dtype=np.intp)
    views = views_of(course, case, compacted)
    fresh = course.appended.copy()
    fresh[at] = case.kept_tokens
    fresh = np.where(course.warm, fresh, views)
    read_tokens, fresh_tokens = float((views - fresh).sum()), float(fresh.sum())
    units = terms.read * read_tokens + terms.write * fresh_tokens + terms.output * course.output_tokens
    output_tokens = course.output_tokens
    if case.summary_tokens and len(at):
        asked = np.ones(len(at), dtype=np.bool_) if summarised is None else np.isin(at, summarised)
        before = _views_before(course, case, at)[asked]
        written = case.summary_tokens * int(asked.sum())
        cached = float(before[course.warm[at][asked]].sum())
        units += terms.read * cached + (before.sum() - cached) + terms.output * written
        read_tokens, fresh_tokens = read_tokens + cached, fresh_tokens + float(before.sum()) - cached
        output_tokens += written
    return Bill(len(at), round(read_tokens), round(fresh_tokens), output_tokens, float(units))


def _views_before(course: Course, case: Case, at: NDArray[np.intp]) -> NDArray[np.float64]:
    """Returns the views that the compactions were made of: each has grown since the one before it."""
    earlier = np.concatenate(([0.0], case.kept_tokens - course.sums[at[:-1]]))
    views: NDArray[np.float64] = course.static_tokens + earlier + course.sums[at]
    return views
