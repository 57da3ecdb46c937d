import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import SettingsError
from penstock.planning.policy import (
    Compact,
    Guard,
    Policy,
    Thrash,
    Trigger,
    Wait,
    budgets,
    is_worth_it,
    share,
    summary_budget,
)
from penstock.settings import CompressionSettings

DEFAULT = CompressionSettings()
OFF = CompressionSettings(enabled=False)

any_settings = st.builds(
    CompressionSettings,
    threshold=st.floats(0.001, 1),
    target_ratio=st.floats(0.10, 0.80),
    hygiene_threshold=st.floats(0.001, 1),
    summary_budget=st.sampled_from(["flat", "scaled"]),
)
windows = st.integers(1, 10_000_000)
few = settings(max_examples=100, deadline=None)


def after(*ineffective_at, threshold=100_000):
    """The guard after passes that saved too little, each with what was compressible then."""
    guard = Thrash(threshold_tokens=threshold)
    for compressible in ineffective_at:
        guard = guard.after_pass(effective=False, compressible_tokens=compressible)
    return guard


class TestBudgets:
    def test_the_example_of_200_000(self):
        found = budgets(DEFAULT, 200_000)
        assert found.window_tokens == 200_000
        assert found.threshold_tokens == 100_000
        assert found.tail_tokens == 20_000
        assert found.tail_ceiling_tokens == 30_000
        assert found.summary_ceiling_tokens == 10_000
        assert found.hygiene_tokens == 170_000
        assert found.emergency_tokens == 190_000

    @pytest.mark.parametrize(
        ("window", "threshold"),
        [
            (8_192, 6_963),
            (32_000, 27_200),
            (75_294, 63_999),
            (75_295, 64_000),
            (128_000, 64_000),
            (1_000_000, 500_000),
        ],
    )
    def test_a_floor_keeps_small_windows_from_firing_all_the_time(self, window, threshold):
        assert budgets(DEFAULT, window).threshold_tokens == threshold

    def test_the_summary_ceiling_is_never_over_12_000(self):
        assert budgets(DEFAULT, 240_000).summary_ceiling_tokens == 12_000
        assert budgets(DEFAULT, 1_000_000).summary_ceiling_tokens == 12_000

    def test_reserved_output_comes_off_the_window_first(self):
        assert budgets(DEFAULT, 200_000, 64_000) == budgets(DEFAULT, 136_000)
        assert budgets(DEFAULT, 200_000, -5) == budgets(DEFAULT, 200_000)

    def test_a_reservation_that_leaves_nothing_counts_as_three_quarters(self):
        assert budgets(DEFAULT, 8_192, 8_192) == budgets(DEFAULT, 2_048)
        assert budgets(DEFAULT, 8_192, 10**9) == budgets(DEFAULT, 2_048)

    def test_the_emergency_level_is_a_setting(self):
        assert budgets(DEFAULT, 200_000, emergency=0.9).emergency_tokens == 180_000

    @pytest.mark.parametrize("window", [0, -1])
    def test_a_window_without_room_is_refused(self, window):
        with pytest.raises(SettingsError, match=f"is {window} tokens"):
            budgets(DEFAULT, window)

    def test_the_target_is_head_summary_and_tail_within_the_window(self):
        found = budgets(DEFAULT, 200_000)
        assert found.target_tokens(5_000) == 45_000
        assert found.target_tokens(500_000) == 200_000

    def test_a_share_is_not_at_the_mercy_of_binary_fractions(self):
        assert share(0.29, 100) == 29
        assert share(0.55, 200_000) == 110_000
        assert share(0.1, 0) == 1

    @few
    @given(any_settings, windows, st.integers(0, 200_000))
    def test_no_budget_is_larger_than_what_holds_it(self, given_settings, window, reserved):
        found = budgets(given_settings, window, reserved)
        assert 1 <= found.tail_tokens <= found.threshold_tokens <= found.window_tokens <= window
        assert found.tail_tokens <= found.tail_ceiling_tokens <= 1.5 * found.tail_tokens
        assert 1 <= found.summary_ceiling_tokens <= min(12_000, found.window_tokens)
        assert 1 <= found.hygiene_tokens <= found.window_tokens
        assert 1 <= found.emergency_tokens <= found.window_tokens

    @few
    @given(any_settings, windows, st.integers(0, 1_000_000), st.integers(0, 200_000))
    def test_a_larger_window_never_gives_less(self, given_settings, window, more, reserved):
        small, large = (budgets(given_settings, size, reserved) for size in (window, window + more))
        assert all(getattr(small, name) <= getattr(large, name) for name in small.__struct_fields__)


class TestSummaryBudget:
    @pytest.mark.parametrize(
        ("compacted", "window", "budget"),
        [
            (1_000, 200_000, 2_000),
            (10_000, 200_000, 2_000),
            (30_000, 200_000, 6_000),
            (49_999, 200_000, 9_999),
            (80_000, 200_000, 10_000),
            (500_000, 1_000_000, 12_000),
            (10_000, 16_000, 800),  # the ceiling wins over the floor
        ],
    )
    def test_flat(self, compacted, window, budget):
        assert summary_budget(DEFAULT, compacted, window) == budget

    @pytest.mark.parametrize(
        ("compacted", "window", "budget"),
        [
            (5_000, 200_000, 1_000),
            (9_999, 200_000, 1_999),
            (10_000, 200_000, 1_500),
            (30_000, 200_000, 4_500),
            (30_001, 200_000, 3_000),
            (100_000, 200_000, 10_000),
            (100_001, 200_000, 5_000),
            (1_000_000, 1_000_000, 12_000),
            (20_000, 16_000, 800),
        ],
    )
    def test_scaled(self, compacted, window, budget):
        assert summary_budget(CompressionSettings(summary_budget="scaled"), compacted, window) == budget

    @few
    @given(any_settings, st.integers(0, 10_000_000), windows)
    def test_the_ceiling_always_holds(self, given_settings, compacted, window):
        ceiling = budgets(given_settings, window).summary_ceiling_tokens
        assert 1 <= summary_budget(given_settings, compacted, window) <= ceiling


class TestWorthIt:
    def test_ten_per_cent_is_enough_and_less_is_not(self):
        assert is_worth_it(1_000, 900, forced=False)
        assert not is_worth_it(1_000, 901, forced=False)

    def test_a_forced_pass_needs_only_to_save_something(self):
        assert is_worth_it(1_000, 999, forced=True)
        assert not is_worth_it(1_000, 1_000, forced=True)
        assert not is_worth_it(1_000, 1_200, forced=True)

    @few
    @given(st.integers(0, 10**7), st.integers(0, 10**7))
    def test_what_is_worth_it_is_also_worth_forcing_and_is_smaller(self, before, after):
        if is_worth_it(before, after, forced=False):
            assert is_worth_it(before, after, forced=True)
            assert after < before


class TestDecisions:
    policy = Policy.of(DEFAULT, 200_000)

    @pytest.mark.parametrize("ask", [policy.preflight, policy.after_response])
    def test_the_threshold_itself_fires(self, ask):
        assert isinstance(ask(99_999), Wait)
        decision = ask(100_000)
        assert isinstance(decision, Compact)
        assert not decision.trigger.forces
        assert decision.may_call_model
        assert "100,000" in decision.reason

    def test_each_entry_point_has_its_trigger(self):
        assert self.policy.preflight(120_000).trigger is Trigger.PREFLIGHT
        assert self.policy.after_response(120_000).trigger is Trigger.RESPONSE
        assert self.policy.hygiene(175_000, 4).trigger is Trigger.HYGIENE
        assert self.policy.manual().trigger is Trigger.MANUAL
        assert self.policy.overflow(1).trigger is Trigger.OVERFLOW

    def test_an_emergency_is_forced_and_calls_no_model(self):
        for decision in (
            self.policy.preflight(190_000),
            self.policy.hygiene(190_000, 9),
            self.policy.due(190_000),
        ):
            assert decision.trigger is Trigger.EMERGENCY
            assert decision.trigger.forces
            assert not decision.may_call_model
            assert "190,000 of the 200,000 tokens" in decision.reason

    def test_a_switch_to_a_smaller_window_is_caught(self):
        assert isinstance(Policy.of(DEFAULT, 200_000).preflight(80_000), Wait)
        assert isinstance(Policy.of(DEFAULT, 100_000).preflight(80_000), Compact)

    def test_hygiene_wants_85_per_cent_and_four_messages(self):
        assert isinstance(self.policy.hygiene(170_000, 4), Compact)
        assert isinstance(self.policy.hygiene(169_999, 4), Wait)
        assert isinstance(self.policy.hygiene(199_000, 3), Wait)

    def test_overflow_is_forced_up_to_the_attempts_allowed(self):
        decisions = [self.policy.overflow(attempt) for attempt in (1, 2, 3)]
        assert all(isinstance(decision, Compact) and decision.trigger.forces for decision in decisions)
        assert "attempt 3 of 3" in decisions[-1].reason
        last = self.policy.overflow(4)
        assert isinstance(last, Wait)
        assert "compression.max_attempts" in last.reason

    def test_off_means_off_everywhere_but_by_hand(self):
        policy = Policy.of(OFF, 200_000)
        closed = (
            policy.preflight(199_000),
            policy.after_response(199_000),
            policy.hygiene(199_000, 9),
            policy.overflow(1),
            policy.due(199_000),
            policy.economy("it pays", pays=True),
            policy.background(199_000),
        )
        assert all(
            isinstance(decision, Wait) and "compression.enabled" in decision.reason for decision in closed
        )
        assert isinstance(policy.manual(), Compact)

    def test_what_pays_asks_no_model_and_what_does_not_waits(self):
        decision = self.policy.economy("it pays", pays=True)
        assert isinstance(decision, Compact)
        assert not decision.may_call_model
        assert isinstance(self.policy.economy("not yet", pays=False), Wait)

    def test_a_compaction_is_prepared_from_85_percent_of_the_threshold_on(self):
        assert isinstance(self.policy.background(84_999), Wait)
        assert isinstance(self.policy.background(85_000), Compact)

    def test_an_engine_that_says_it_is_due_is_heeded_unless_a_guard_objects(self):
        assert isinstance(self.policy.due(50_000), Compact)
        assert isinstance(self.policy.due(50_000, Guard(fires_from_tokens=60_000)), Wait)

    def test_a_closed_guard_stops_automatic_passes_only(self):
        thrash = after(50_000, 50_000)
        guard = Guard(thrash=thrash, compressible_tokens=55_000)
        for decision in (self.policy.preflight(120_000, guard), self.policy.hygiene(180_000, 9, guard)):
            assert isinstance(decision, Wait)
            assert decision.reason == thrash.reason(55_000)
        assert self.policy.preflight(195_000, guard).trigger.forces
        assert isinstance(
            self.policy.preflight(120_000, Guard(thrash=thrash, compressible_tokens=60_000)), Compact
        )

    def test_a_dense_conversation_waits_until_it_has_grown(self):
        guard = Guard(fires_from_tokens=120_000)
        waiting = self.policy.preflight(119_999, guard)
        assert isinstance(waiting, Wait)
        assert "120,000" in waiting.reason
        assert isinstance(self.policy.preflight(120_000, guard), Compact)
        assert self.policy.preflight(190_000, Guard(fires_from_tokens=195_000)).trigger.forces

    @few
    @given(any_settings, windows, st.integers(0, 10_000_000), st.integers(0, 1_000_000))
    def test_more_pressure_never_turns_compact_into_wait(self, given_settings, window, tokens, more):
        policy = Policy.of(given_settings, window)
        if isinstance(policy.preflight(tokens), Compact):
            assert isinstance(policy.preflight(tokens + more), Compact)


class TestThrash:
    def test_one_ineffective_pass_is_forgiven_two_are_not(self):
        once = after(50_000)
        assert not once.holds_back(50_000)
        assert once.reason(50_000) == ""
        assert once.after_pass(effective=False, compressible_tokens=50_000).holds_back(50_000)

    def test_it_says_why_in_words_and_numbers(self):
        closed = after(50_000, 52_000)
        reason = closed.reason(53_000)
        assert "last 2 compactions saved too little" in reason
        assert "62,000" in reason
        assert "53,000" in reason

    def test_it_opens_when_the_compressible_part_has_grown_by_a_tenth_of_the_threshold(self):
        closed = after(50_000, 50_000)
        assert closed.holds_back(59_999)
        assert not closed.holds_back(60_000)

    def test_an_ineffective_pass_after_it_opened_closes_it_again(self):
        closed = after(50_000, 50_000, 60_000)
        assert closed.holds_back(69_999)
        assert not closed.holds_back(70_000)

    def test_an_effective_pass_starts_the_count_anew(self):
        guard = (
            after(50_000)
            .after_pass(effective=True, compressible_tokens=50_000)
            .after_pass(effective=False, compressible_tokens=50_000)
        )
        assert not guard.holds_back(0)

    @few
    @given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**6)), max_size=8), st.integers(0, 10**6))
    def test_it_is_closed_only_after_two_ineffective_passes_in_a_row(self, passes, now):
        guard = after()
        for effective, compressible in passes:
            guard = guard.after_pass(effective=effective, compressible_tokens=compressible)
        in_a_row = len(passes) >= 2 and not passes[-1][0] and not passes[-2][0]
        assert guard.holds_back(now) == (in_a_row and now < passes[-1][1] + 10_000)
