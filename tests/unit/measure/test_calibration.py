import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.measure.calibration import Calibration, looks_truncated

RATIOS = st.floats(0.5, 2.5)
NOISE = st.floats(-0.01, 0.01)
PROMPTS = st.integers(1_000, 200_000)


def reported(counted, ratio, noise=0.0):
    return round(counted * ratio * (1 + noise))


def settled(ratio, start=20_000, responses=4):
    """A calibration after some responses of a provider with this ratio, the prompt growing by 3 % each."""
    calibration, counted = Calibration(), start
    for _ in range(responses):
        calibration = calibration.observe(counted, reported(counted, ratio))
        counted = round(counted * 1.03)
    return calibration


def test_without_evidence_a_count_stands_for_itself():
    assert Calibration().estimate(1_234) == 1_234
    assert Calibration().estimate(-5) == 0


@settings(max_examples=200, deadline=None)
@given(RATIOS, st.lists(st.tuples(PROMPTS, NOISE), min_size=4, max_size=10))
def test_after_three_responses_the_estimate_is_within_three_percent(ratio, responses):
    calibration = Calibration()
    for number, (counted, noise) in enumerate(responses):
        truth = reported(counted, ratio, noise)
        if number >= 3:
            assert abs(calibration.estimate(counted) - truth) <= 0.03 * truth + 1
        calibration = calibration.observe(counted, truth)


@settings(max_examples=100, deadline=None)
@given(st.floats(0.8, 1.6), st.integers(100, 600))
def test_a_small_first_prompt_full_of_overhead_does_not_hold_it_back(ratio, overhead):
    calibration = Calibration()
    for counted in (60, 9_000, 15_000):
        calibration = calibration.observe(
            counted, reported(counted, ratio) + overhead // (1 + (counted == 60))
        )
    truth = reported(22_000, ratio) + overhead
    assert calibration.estimate(22_000) == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize("greetings", [1, 8, 40])
def test_greetings_say_little_about_long_prompts(greetings):
    # "Hi" counts 5 and is reported as 15, most of which is the provider's frame: 10 more tokens, not three times as many.
    calibration = Calibration()
    for _ in range(greetings):
        calibration = calibration.observe(5, 15)
    assert calibration.estimate(20_000) <= 20_000 * (1 + greetings * 10 / 1_000)


def test_greetings_do_not_overturn_what_long_prompts_taught():
    before = calibration = settled(1.2)
    for _ in range(10):
        calibration = calibration.observe(5, 15)
    assert calibration.ratio == before.ratio
    for _ in range(10):
        calibration = calibration.observe(50, 61)
    assert calibration.ratio == pytest.approx(before.ratio, rel=0.001)
    assert calibration.has_basis


@settings(max_examples=50, deadline=None)
@given(RATIOS, st.integers(40, 150))
def test_many_short_prompts_teach_the_ratio_in_the_end(ratio, counted):
    calibration = Calibration()
    for _ in range(25):
        calibration = calibration.observe(counted, reported(counted, ratio))
    assert calibration.estimate(20_000) == pytest.approx(20_000 * ratio, rel=0.02)


@settings(max_examples=100, deadline=None)
@given(RATIOS, st.floats(0.02, 0.65), PROMPTS)
def test_one_silent_truncation_is_seen_and_teaches_nothing(ratio, kept, counted):
    before = settled(ratio)
    cut = max(1, reported(counted, ratio * kept))
    assert looks_truncated(before, counted, cut)
    after = before.observe(counted, cut)
    assert after.ratio == before.ratio
    assert not looks_truncated(after, counted, reported(counted, ratio))


@pytest.mark.parametrize("growth", [1.01, 1.05, 1.3])
def test_a_window_that_cuts_every_prompt_never_poisons(growth):
    # The server keeps its last 8,192 tokens and says nothing; the agent goes on and on.
    before = settled(1.2, start=6_000)
    calibration, counted = before, 12_000
    for _ in range(40):
        calibration = calibration.observe(counted, 8_192)
        counted = round(counted * growth)
    assert calibration.ratio == before.ratio


def test_a_prompt_that_grows_while_the_report_stands_still_looks_truncated():
    calibration = settled(1.0, start=7_000).observe(8_000, 8_000)
    assert looks_truncated(calibration, 8_800, 8_000)
    assert not looks_truncated(calibration, 8_800, 8_800)
    assert not looks_truncated(calibration, 8_000, 8_000)


def test_truncation_is_not_suspected_where_nothing_could_be_cut_or_known():
    assert not looks_truncated(Calibration(), 10_000, 6_000)
    assert looks_truncated(Calibration(), 100_000, 4_096)
    assert not looks_truncated(settled(1.0), 200, 20)
    assert not looks_truncated(settled(1.0), 10_000, 0)


@settings(max_examples=100, deadline=None)
@given(RATIOS, RATIOS, st.integers(5_000, 100_000))
def test_a_real_change_is_followed_within_a_few_responses(old, new, counted):
    calibration = settled(old)
    for _ in range(8):
        calibration = calibration.observe(counted, reported(counted, new))
        counted = round(counted * 1.06)
    assert calibration.estimate(counted) == pytest.approx(reported(counted, new), rel=0.03)


def test_a_change_upwards_is_followed_after_three_responses_of_one_size():
    calibration = settled(1.0)
    for _ in range(3):
        calibration = calibration.observe(30_000, 42_000)
    assert calibration.ratio == pytest.approx(1.4)


def test_single_outliers_of_different_kinds_are_forgotten():
    calibration = settled(1.1)
    for odd in (400_000, 90, 150_000, 3):
        calibration = calibration.observe(25_000, odd)
        calibration = calibration.observe(25_000, 27_500)
    assert calibration.ratio == pytest.approx(1.1, rel=0.001)


@pytest.mark.parametrize("pair", [(0, 100), (100, 0), (-1, 100), (100, -1)])
def test_what_is_no_count_teaches_nothing(pair):
    before = settled(1.3)
    assert before.observe(*pair) is before


def test_it_survives_a_restart():
    calibration = settled(1.7).observe(30_000, 900)
    stored = msgspec.json.encode(calibration)
    assert msgspec.json.decode(stored, type=Calibration) == calibration
