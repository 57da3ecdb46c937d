import tracemalloc

import pytest
from genai_prices.data_snapshot import get_snapshot

from penstock.errors import SettingsError
from penstock.measure.windows import DEFAULT_WINDOW_TOKENS, resolve_window

EVERYTHING = {"configured": 50_000, "learned": 60_000, "listed": 70_000}


def test_each_source_gives_way_to_the_one_before_it():
    given = dict(EVERYTHING)
    assert (resolve_window("gpt-4o", **given).tokens, resolve_window("gpt-4o", **given).source) == (
        50_000,
        "config",
    )
    del given["configured"]
    assert (resolve_window("gpt-4o", **given).tokens, resolve_window("gpt-4o", **given).source) == (
        60_000,
        "learned",
    )
    del given["learned"]
    assert (resolve_window("gpt-4o", **given).tokens, resolve_window("gpt-4o", **given).source) == (
        70_000,
        "listing",
    )
    assert (resolve_window("gpt-4o").tokens, resolve_window("gpt-4o").source) == (128_000, "table")


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-4", 8_192),
        ("gpt-3.5-turbo", 16_385),
        ("gpt-5", 400_000),
        ("claude-sonnet-4-5-20250929", 200_000),
        ("anthropic/claude-sonnet-4.5", 200_000),
        ("bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0", 200_000),
        ("openrouter/openai/gpt-4", 8_191),  # as that provider lists it
        ("azure/gpt-4o", 128_000),
        ("ft:gpt-4o-mini:acme::x1", 128_000),
        ("gemini-2.5-pro", 1_048_576),
    ],
)
def test_the_bundled_table_knows_models_by_the_names_clients_use(model, tokens):
    window = resolve_window(model)
    assert (window.tokens, window.source) == (tokens, "table")
    assert "bundled table" in window.detail


@pytest.mark.parametrize(
    "model", [None, "", "no-such-model", "a/b/c/d", "///", "x" * 5_000, "\ud800", "ünïcode"]
)
def test_what_nobody_knows_gets_the_default(model):
    window = resolve_window(model)
    assert (window.tokens, window.source) == (DEFAULT_WINDOW_TOKENS, "default") == (128_000, "default")


def test_names_that_callers_make_up_are_not_held_for_ever():
    """Anyone who may send requests to a gateway names a model in each. The package of the table remembers all it is asked."""

    def count_remembered():
        held = vars(get_snapshot()).values()
        return sum(len(one) for one in held if isinstance(one, dict | set))

    before = count_remembered()
    tracemalloc.start()
    try:
        for number in range(50):
            resolve_window(f"made-up-{number}-".ljust(100_000, "x"))
            resolve_window(f"made-up/{number}")
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
    assert count_remembered() == before


def test_a_limit_that_the_provider_stated_lowers_any_source_and_says_so():
    for given in ({}, {"configured": 50_000}, {"learned": 60_000}, {"listed": 70_000}):
        window = resolve_window("gpt-4o", **given, stated_limit=32_768)
        assert window.tokens == 32_768
        assert window.source == resolve_window("gpt-4o", **given).source
        assert "32,768" in window.detail
    assert resolve_window(None, stated_limit=8_000).tokens == 8_000


@pytest.mark.parametrize("limit", [10**7, 128_000, 0, -1, None])
def test_a_limit_never_raises_a_window(limit):
    assert resolve_window("gpt-4o", stated_limit=limit) == resolve_window("gpt-4o")


def test_numbers_that_are_no_window_are_passed_over():
    assert resolve_window("gpt-4o", learned=0, listed=-5).source == "table"


@pytest.mark.parametrize("configured", [0, -1])
def test_a_configured_window_must_hold_something(configured):
    with pytest.raises(SettingsError, match=rf"model\.context_length is {configured}"):
        resolve_window("gpt-4o", configured=configured)
