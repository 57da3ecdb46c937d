from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.planning.policy import Compact, Guard, Policy, Wait, budgets
from penstock.planning.pressure import Level, Pressure
from penstock.settings import CompressionSettings, PressureSettings


def calm(window=200_000, **given_settings):
    return Pressure.of(budgets(CompressionSettings(), window), PressureSettings(**given_settings))


def levels(notices):
    return [notice.level for notice in notices]


def said_over(pressure, observed):
    """The levels said at each observation, in turn."""
    said = []
    for prompt_tokens in observed:
        pressure, notices = pressure.observe(prompt_tokens)
        said.append(levels(notices))
    return said


class TestLevels:
    def test_each_level_has_its_limit(self):
        pressure = calm()
        assert {level: pressure.limit_tokens(level) for level in Level} == {
            Level.LOG: 65_000,
            Level.WARN: 85_000,
            Level.AUTOMATIC: 100_000,
            Level.EMERGENCY: 190_000,
        }

    def test_a_rising_prompt_says_each_level_once(self):
        observed = [10_000, 64_999, 65_000, 70_000, 85_000, 99_999, 100_000, 150_000, 190_000, 199_000]
        said = said_over(calm(), observed)
        assert said == [
            [],
            [],
            [Level.LOG],
            [],
            [Level.WARN],
            [],
            [Level.AUTOMATIC],
            [],
            [Level.EMERGENCY],
            [],
        ]

    def test_a_jump_says_all_levels_it_crossed_the_mildest_first(self):
        assert said_over(calm(), [191_000]) == [list(Level)]

    def test_a_level_is_cleared_by_a_fall_and_said_anew(self):
        said = said_over(calm(), [86_000, 84_000, 86_000, 10_000, 86_000])
        assert said == [[Level.LOG, Level.WARN], [], [Level.WARN], [], [Level.LOG, Level.WARN]]

    def test_the_level_that_stands(self):
        pressure = calm()
        assert pressure.level is None
        for prompt_tokens, level in [
            (90_000, Level.WARN),
            (195_000, Level.EMERGENCY),
            (70_000, Level.LOG),
            (0, None),
        ]:
            pressure, _ = pressure.observe(prompt_tokens)
            assert pressure.level is level

    def test_limits_are_settings(self):
        assert said_over(calm(log=0.5, warn=0.9), [50_000, 85_000, 90_000]) == [[Level.LOG], [], [Level.WARN]]


class TestNotices:
    def test_the_warning_has_both_numbers(self):
        small = budgets(CompressionSettings(), 58_824)  # a threshold of 50,000: 85 % of a small window
        assert small.threshold_tokens == 50_000
        _, notices = Pressure.of(small, PressureSettings()).observe(42_500)
        warning = notices[-1]
        assert warning.level is Level.WARN
        assert "42,500 of 50,000 tokens" in warning.text
        assert (warning.prompt_tokens, warning.limit_tokens) == (42_500, 50_000)

    def test_an_emergency_is_set_against_the_window(self):
        _, notices = calm().observe(191_000)
        assert "191,000 of 200,000 tokens" in notices[-1].text
        assert notices[-1].limit_tokens == 200_000

    def test_nothing_is_promised_while_compaction_is_off(self):
        off = Pressure.of(budgets(CompressionSettings(), 100_000), PressureSettings(), automatic=False)
        _, notices = off.observe(99_000)
        assert len(notices) == 4
        assert all("automatic compaction is off" in notice.text for notice in notices)


class TestDense:
    def test_a_pass_that_gets_below_the_threshold_may_fire_there_again(self):
        pressure, _ = calm().observe(120_000)
        pressure, notices = pressure.observe_compaction(45_000)
        assert (pressure.level, pressure.fires_from_tokens, notices) == (None, 100_000, ())

    def test_a_dense_conversation_below_the_threshold_keeps_its_warning(self):
        pressure, _ = calm().observe(120_000)
        pressure, notices = pressure.observe_compaction(90_000)
        assert (pressure.level, notices) == (Level.WARN, ())
        assert said_over(pressure, [95_000, 100_000]) == [[], [Level.AUTOMATIC]]

    def test_a_dense_conversation_over_the_threshold_does_not_fire_again_until_it_has_grown(self):
        policy = Policy.of(CompressionSettings(), 200_000)
        pressure, _ = calm().observe(120_000)
        pressure, notices = pressure.observe_compaction(105_000)
        assert (pressure.level, notices) == (Level.AUTOMATIC, ())
        for prompt_tokens, outcome in [(106_000, Wait), (114_999, Wait), (115_000, Compact)]:
            pressure, notices = pressure.observe(prompt_tokens)
            assert notices == ()
            decision = policy.preflight(prompt_tokens, Guard(fires_from_tokens=pressure.fires_from_tokens))
            assert isinstance(decision, outcome)

    def test_a_fall_below_the_threshold_lets_it_fire_there_again(self):
        pressure, _ = calm().observe_compaction(105_000)
        pressure, _ = pressure.observe(99_999)
        assert pressure.fires_from_tokens == 100_000
        assert said_over(pressure, [100_000]) == [[Level.AUTOMATIC]]


windows = st.integers(1, 2_000_000)
shares = st.floats(0.001, 1)
observations = st.lists(st.tuples(st.booleans(), st.floats(0, 1.2)), max_size=30)


@settings(max_examples=100, deadline=None)
@given(windows, shares, shares, shares, observations)
def test_a_notice_is_never_repeated_without_a_fall_and_never_missed(window, log, warn, emergency, observed):
    found = budgets(CompressionSettings(), window, emergency=emergency)
    pressure = Pressure.of(found, PressureSettings(log=log, warn=warn, emergency=emergency))
    standing = set()
    for after_compaction, part in observed:
        prompt_tokens = int(part * window)
        pressure, notices = (pressure.observe_compaction if after_compaction else pressure.observe)(
            prompt_tokens
        )
        reached = {level for level in Level if prompt_tokens >= pressure.limit_tokens(level)}
        assert set(levels(notices)) == reached - standing
        assert len(notices) == len(set(levels(notices)))
        assert all(
            f"{prompt_tokens:,} of {notice.limit_tokens:,} tokens" in notice.text for notice in notices
        )
        assert pressure.fires_from_tokens >= found.threshold_tokens
        standing = reached
