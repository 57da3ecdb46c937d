"""Bills are exact, nobody beats hindsight, and the gate keeps its promise, for sessions of any kind."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.planning.economics import Books, PricedRequest, PriceTerms, Why, book, step
from penstock.replay.bills import Case, bill_of, course_of, views_of
from penstock.replay.policies import (
    BEST,
    GATED,
    NEVER,
    POLICIES,
    ReplayPolicy,
    _default_summary_tokens,
    at_size,
    by_rule,
    choose_in_hindsight,
    compare,
)
from penstock.replay.traces import Trace

SOME = settings(max_examples=60, deadline=None)
TERMS = (
    PriceTerms(0.1, 1.25, 5.0, 300.0),
    PriceTerms(0.1, 2.0, 5.0, 3_600.0),
    PriceTerms(0.25, 1.0, 4.0, 300.0),
    PriceTerms(1.0, 1.0, 5.0, 0.0),
)
KEPT = 8_000


def traces(most=40):
    row = st.tuples(
        st.one_of(st.integers(0, 3_000), st.integers(0, 40_000)),
        st.integers(0, 2_000),
        st.one_of(st.integers(1, 60), st.integers(200, 8_000)),
    )
    return st.lists(row, min_size=1, max_size=most).map(
        lambda rows: Trace("t", 4_000, *(tuple(column) for column in zip(*rows, strict=True)))
    )


def cases(**more):
    return st.builds(
        Case,
        terms=st.sampled_from(TERMS),
        window_tokens=st.sampled_from([20_000, 60_000, 10**9]),
        kept_tokens=st.just(KEPT),
        summary_tokens=more.get("summary", st.sampled_from([0, 1_500])),
    )


def prompts(bill, course, case):
    """The bill without what comes out in any case."""
    return bill.units - case.terms.output * course.output_tokens


@SOME
@given(trace=traces(), case=cases(), data=st.data())
def test_the_twins_bill_and_ours_are_exact_whatever_is_decided(trace, case, data):
    course = course_of(trace, case.terms)
    books, view, compacted = Books(case.terms, case.window_tokens, "on"), trace.static_tokens, []
    for at, (appended, warm) in enumerate(zip(trace.appended, course.warm.tolist(), strict=True)):
        view += appended
        request = PricedRequest(view, appended, trace.static_tokens, KEPT, warm, case.summary_tokens)
        compacts = request.droppable_tokens > 0 and data.draw(st.booleans())
        after = trace.static_tokens + KEPT if compacts else None
        books = book(books, request, after, summary_tokens=case.summary_tokens if compacts else 0)
        if compacts:
            compacted.append(at)
            view = after
    never = bill_of(course, case, at_size(course, case, case.window_tokens))
    assert books.twin_bill == pytest.approx(prompts(never, course, case))
    assert books.bill == pytest.approx(prompts(bill_of(course, case, compacted), course, case))
    assert books.compactions == len(compacted)


@SOME
@given(trace=traces(), case=cases(summary=st.just(0)))
def test_gated_is_never_dearer_below_the_threshold(trace, case):
    course = course_of(trace, case.terms)
    never = bill_of(course, case, ())
    if views_of(course, case, ()).max() < case.window_tokens:
        gated = bill_of(course, case, by_rule(course, case, "gated", case.window_tokens))
        assert gated.units <= never.units * (1 + 1e-12)


@SOME
@given(trace=traces(), case=cases(summary=st.just(0)))
def test_our_bill_is_at_most_the_twins_after_every_request(trace, case):
    if case.window_tokens < 10**9:
        case = Case(terms=case.terms, window_tokens=10**9, kept_tokens=KEPT)
    course = course_of(trace, case.terms)
    books, view = Books(case.terms, case.window_tokens, "gated"), trace.static_tokens
    for appended, warm in zip(trace.appended, course.warm.tolist(), strict=True):
        view += appended
        books, weighed = step(books, PricedRequest(view, appended, trace.static_tokens, KEPT, warm))
        view = trace.static_tokens + KEPT if weighed.compact else view
        assert books.bill <= books.twin_bill * (1 + 1e-12)


@SOME
@given(trace=traces(), case=cases(summary=st.just(0)))
def test_the_default_row_pays_for_a_model_at_the_threshold_and_for_none_below(trace, case):
    course, default = course_of(trace, case.terms), next(one for one in POLICIES if one.default)
    limit, asked = default.limit_tokens(case), 0
    books, view, compacted = Books(case.terms, limit, "gated"), trace.static_tokens, []
    summary = _default_summary_tokens(case)
    for at, (appended, warm) in enumerate(zip(trace.appended, course.warm.tolist(), strict=True)):
        view += appended
        books, weighed = step(books, PricedRequest(view, appended, trace.static_tokens, KEPT, warm, summary))
        if weighed.compact:
            compacted.append(at)
            asked += weighed.why is Why.LIMIT
            view = trace.static_tokens + KEPT
    bill = default.bill(course, case)
    assert bill.compactions == len(compacted)
    assert bill.output_tokens == course.output_tokens + asked * summary
    assert prompts(bill, course, case) == pytest.approx(books.bill)


def legal(course, case, compacted):
    """Whether every compaction drops something and no other view reaches the window."""
    views = views_of(course, case, compacted)
    for at in compacted:
        before = views_of(course, case, [one for one in compacted if one < at])[at]
        if before <= course.static_tokens + case.kept_tokens:
            return False
    return all(view < case.window_tokens for at, view in enumerate(views) if at not in compacted)


@settings(max_examples=60, deadline=None)
@given(trace=traces(most=8), case=cases())
def test_hindsight_is_the_best_of_all_choices(trace, case):
    course = course_of(trace, case.terms)
    choices = [c for k in range(9) for c in combinations(range(trace.requests), k) if legal(course, case, c)]
    least = min(bill_of(course, case, choice).units for choice in choices)
    assert bill_of(course, case, choose_in_hindsight(course, case)).units == pytest.approx(least)


@SOME
@given(some=st.lists(traces(), min_size=1, max_size=3), case=cases())
def test_no_policy_beats_hindsight(some, case):
    found = {outcome.policy: outcome for outcome in compare(some, case)}
    best = found[BEST].bill.units
    for outcome in found.values():
        assert outcome.bill.units >= best * (1 - 1e-9)
    assert found[NEVER].of_never == 1
    if not case.summary_tokens:
        assert found[GATED].dearer == found["gated, and threshold"].dearer == 0


@SOME
@given(trace=traces(), case=cases(), policy=st.sampled_from(POLICIES))
def test_no_view_reaches_the_limit_of_its_policy(trace, case, policy):
    course = course_of(trace, case.terms)
    compacted = policy.schedule(course, case)
    assert compacted == sorted(set(compacted))
    views = views_of(course, case, compacted)
    limit = case.window_tokens if policy.best else policy.limit_tokens(case)
    least = trace.static_tokens + case.kept_tokens
    assert views.max() <= max(limit, least)


def test_a_policy_that_compacts_at_a_size_does_so_at_once():
    trace = Trace("t", 4_000, (5_000,) * 6, (1,) * 6, (1.0,) * 6)
    case = Case(terms=TERMS[0], window_tokens=10**6, kept_tokens=KEPT)
    course = course_of(trace, case.terms)
    assert at_size(course, case, 19_000) == [2, 4]
    assert views_of(course, case, [2, 4]).tolist() == [9_000, 14_000, 12_000, 17_000, 12_000, 17_000]
    assert ReplayPolicy(name="x", flat_tokens=19_000).schedule(course, case) == [2, 4]
