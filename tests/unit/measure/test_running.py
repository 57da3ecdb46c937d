from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.measure.calibration import Calibration
from penstock.measure.running import RunningEstimate

DOUBLE = Calibration(ratio=2.0, samples=3)


def test_before_any_report_the_calibrated_count_stands():
    estimate = RunningEstimate().append([100, 50]).append([10])
    assert estimate.tokens(Calibration()) == 160
    assert estimate.tokens(DOUBLE) == 320


def test_a_report_wins_and_only_what_came_after_it_is_estimated():
    estimate = RunningEstimate().append([1_000]).report(1_234)
    assert estimate.tokens(DOUBLE) == 1_234
    assert estimate.append([10, 20]).tokens(DOUBLE) == 1_234 + 60


def test_messages_added_while_the_request_was_under_way_are_not_covered():
    sent = RunningEstimate().append([1_000])
    estimate = sent.append([70]).report(1_500, covered_tokens=sent.counted_tokens)
    assert estimate.tokens(DOUBLE) == 1_500 + 140


def test_an_empty_report_says_nothing():
    estimate = RunningEstimate().append([10]).report(40).append([5])
    assert estimate.report(0) == estimate
    assert estimate.report(-3) == estimate


def test_a_prompt_that_shrank_is_estimated_smaller_and_never_below_nothing():
    estimate = RunningEstimate(1_000).report(1_200)
    assert estimate.recount(900).tokens(DOUBLE) == 1_000
    assert estimate.recount(0).tokens(DOUBLE) == 0


def test_a_report_of_a_prompt_that_was_not_counted_says_nothing():
    assert RunningEstimate().report(500) == RunningEstimate()
    assert RunningEstimate().report(500).recount(300).tokens(Calibration()) == 300


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 10_000), max_size=5), max_size=20))
def test_appending_step_by_step_or_at_once_is_the_same(steps):
    one_by_one = RunningEstimate()
    for weights in steps:
        one_by_one = one_by_one.append(weights)
    assert one_by_one == RunningEstimate().append(weight for weights in steps for weight in weights)
