"""Limits: whatever comes in whichever order, nobody gets more than is allowed, and everybody gets that much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorKind
from penstock.gateway.keys import KeyRules
from penstock.gateway.limits import Limits
from penstock.settings import GatewaySettings

NONE = KeyRules()


class Counted:
    """What was spent, without a store."""

    def __init__(self):
        self.spent = {}

    def spent_today(self, owner, now):
        return self.spent.get((owner, now // 86_400), 0)

    def spend(self, owner, tokens, now):
        day = now // 86_400
        self.spent[owner, day] = self.spent.get((owner, day), 0) + tokens


class Clock:
    def __init__(self, at=1_000.0):
        self.at = at

    def __call__(self):
        return self.at


def limits(clock=None, wall=None, **settings):
    return Limits(
        GatewaySettings(**settings), Counted(), clock=clock or Clock(), wall_clock=wall or Clock(86_400 * 9.0)
    )


@given(
    per_minute=st.integers(1, 90),
    pauses=st.lists(st.floats(0, 20, allow_nan=False), min_size=1, max_size=120),
)
def test_in_no_stretch_of_time_come_more_than_the_bucket_and_what_it_filled_up_by(per_minute, pauses):
    clock = Clock()
    bucket = limits(clock)
    rules = KeyRules(requests_per_minute=per_minute)
    came = []
    for pause in pauses:
        clock.at += pause
        refusal = bucket.admit("a", rules)
        if refusal is None:
            came.append(clock.at)
        else:
            assert (refusal.status, refusal.reason) == (429, "rate")
            later = clock.at + refusal.retry_after_seconds
            clock.at, now = later, clock.at
            assert bucket.admit("a", rules) is None  # what was said is kept
            came.append(later)
            clock.at = max(now, later)
    for first in range(len(came)):
        for last in range(first, len(came)):
            assert last - first + 1 <= per_minute * (1 + (came[last] - came[first]) / 60) + 1e-6


def test_all_requests_of_a_minute_may_come_at_once_and_each_caller_has_its_own():
    bucket = limits(requests_per_minute=5)
    assert [bucket.admit("a", NONE) for _ in range(5)] == [None] * 5
    assert bucket.admit("a", NONE).retry_after_seconds == 13
    assert bucket.admit("b", NONE) is None
    assert bucket.admit("a", KeyRules(requests_per_minute=6)) is not None
    assert bucket.open_total == 6


@given(st.lists(st.sampled_from(["in a", "in b", "out a", "out b"]), max_size=60))
def test_as_many_are_under_way_as_came_in_and_did_not_end(steps):
    bounds = limits(requests_at_once=3, max_requests=5)
    under_way = {"a": 0, "b": 0}
    for step in steps:
        act, owner = step.split()
        if act == "in":
            refused = bounds.admit(owner, NONE)
            assert (refused is not None) == (under_way[owner] == 3 or sum(under_way.values()) == 5)
            assert refused is None or refused.reason == "busy"
            under_way[owner] += refused is None
        elif under_way[owner]:
            bounds.release(owner)
            under_way[owner] -= 1
        assert bounds.open_total == sum(under_way.values())


def test_a_budget_ends_with_the_tokens_and_begins_again_at_midnight():
    wall = Clock(86_400 * 9 + 86_000.0)
    budget = limits(wall=wall, tokens_per_day=1_000)
    budget.spend("a", NONE, 999)
    assert budget.admit("a", NONE) is None
    budget.spend("a", NONE, 500)
    refusal = budget.admit("a", NONE)
    assert (refusal.kind, refusal.retry_after_seconds) == (ErrorKind.QUOTA, 401)
    assert budget.admit("b", NONE) is None
    assert budget.admit("a", KeyRules(tokens_per_day=2_000)) is None
    wall.at += refusal.retry_after_seconds
    assert budget.admit("a", NONE) is None


def test_a_caller_without_a_budget_is_not_counted():
    spending = Counted()
    Limits(GatewaySettings(), spending).spend("a", NONE, 5)
    assert spending.spent == {}


def test_strangers_without_number_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr("penstock.gateway.limits._MOST_BUCKETS", 100)
    clock = Clock()
    bucket = limits(clock, requests_per_minute=1, max_requests=100_000)
    for number in range(5_000):
        clock.at += 0.001
        assert bucket.admit(f"stranger {number}", NONE) is None
        assert len(bucket._buckets) <= 100
    assert bucket.admit("stranger 4999", NONE) is not None
