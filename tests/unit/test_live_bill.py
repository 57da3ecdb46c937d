"""The live bill of the benchmarks, scaled down: what a session costs by the server's own books, in both ways to run it."""

from __future__ import annotations

import pytest
from benchmarks.live_bill import WAYS, LiveSession, run_session

pytestmark = pytest.mark.outside

BELOW = LiveSession(
    "pauses, 32K", 32_000, lambda _: 560, 80, lambda turn: 720.0 if turn == 10 else 20.0, below=True, turns=13
)
BEYOND = LiveSession("steady, 32K", 32_000, lambda _: 500, 80, lambda _: 20.0, below=False, turns=22)


@pytest.mark.parametrize("way", WAYS)
def test_below_the_threshold_no_turn_makes_a_session_dearer(way):
    never, gated = (run_session(BELOW, way, compacts=compacts) for compacts in (False, True))
    assert gated.compactions == 1  # the pause was long enough for the cache to expire
    assert gated.worst_of(never) <= 1.01
    assert gated.units[-1] < never.units[-1]
    assert not gated.summaries.total_tokens
    assert gated.unbooked_tokens == never.unbooked_tokens == 0


def test_a_script_that_is_resumed_at_once_compacts_nothing_with_an_automatic_cache_either():
    """It is as long as one that is compacted after a pause."""
    session = BELOW._replace(provider="openai", model="gpt-5-mini", turns=12, pause_seconds=lambda _: 20.0)
    bill = run_session(session, "-p --resume", compacts=True)
    assert bill.compactions == 0
    assert bill.unbooked_tokens == 0


def test_beyond_it_summaries_read_the_cache_and_all_of_it_is_booked():
    bill = run_session(BEYOND, "one process", compacts=True)
    assert bill.compactions
    assert bill.summaries.cache_read_tokens >= 0.95 * bill.summaries.prompt_tokens > 0
    assert bill.unbooked_tokens == 0
