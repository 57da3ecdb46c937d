from penstock.measure.calibration import Calibration, RunningEstimate

DOUBLE = Calibration(ratio=2.0, samples=3)


def test_before_any_report_the_calibrated_count_stands():
    estimate = RunningEstimate(150).recount(160)
    assert estimate.tokens(Calibration()) == 160
    assert estimate.tokens(DOUBLE) == 320


def test_a_report_wins_and_only_what_came_after_it_is_estimated():
    estimate = RunningEstimate(1_000).report(1_234)
    assert estimate.tokens(DOUBLE) == 1_234
    assert estimate.recount(1_030).tokens(DOUBLE) == 1_234 + 60


def test_an_empty_report_says_nothing():
    estimate = RunningEstimate(10).report(40).recount(15)
    assert estimate.report(0) == estimate
    assert estimate.report(-3) == estimate


def test_a_prompt_that_shrank_is_estimated_smaller_and_never_below_nothing():
    estimate = RunningEstimate(1_000).report(1_200)
    assert estimate.recount(900).tokens(DOUBLE) == 1_000
    assert estimate.recount(0).tokens(DOUBLE) == 0


def test_a_report_of_a_prompt_that_was_not_counted_says_nothing():
    assert RunningEstimate().report(500) == RunningEstimate()
    assert RunningEstimate().report(500).recount(300).tokens(Calibration()) == 300
