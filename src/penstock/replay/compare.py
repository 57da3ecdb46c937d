"""Sessions under every policy: what each would have cost, and whom it would have cost more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import SettingsError
from penstock.replay.bills import Bill, course_of, views_of
from penstock.replay.policies import POLICIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.replay.bills import Case
    from penstock.replay.policies import ReplayPolicy
    from penstock.replay.traces import Trace

__all__ = ["PolicyOutcome", "compare", "has_room"]


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
    """True if the window holds more than the session's static prefix and what a compaction keeps."""
    return trace.static_tokens + case.kept_tokens < case.window_tokens


def compare(
    traces: Sequence[Trace], case: Case, policies: Sequence[ReplayPolicy] = POLICIES
) -> list[PolicyOutcome]:
    """Returns what the sessions cost under each policy; `of_never` is relative to the first policy.

    Only sessions that `has_room` are compared. SettingsError where none is left.
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
