import subprocess
import sys
from decimal import Decimal

import pytest

from penstock.measure.prices import ModelPrice, Money, Rate, Unknown, add_costs, cost_of, price_of
from penstock.measure.usage import Usage

CACHED = ModelPrice(
    model="sample",
    provider="here",
    input=Rate(Decimal(3)),
    output=Rate(Decimal(15)),
    cache_read=Rate(Decimal("0.3")),
    cache_write=Rate(Decimal("3.75")),
    cache_write_1h=Rate(Decimal(6)),
)
MILLION = 1_000_000


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        (Usage(), "0"),
        (Usage(input_tokens=MILLION), "3"),
        (Usage(output_tokens=MILLION), "15"),
        (Usage(cache_read_tokens=MILLION), "0.3"),
        (Usage(cache_write_tokens=MILLION), "3.75"),
        (Usage(cache_write_tokens=MILLION, cache_write_1h_tokens=MILLION), "6"),
        (Usage(cache_write_tokens=MILLION, cache_write_1h_tokens=400_000), "4.65"),
        (Usage(output_tokens=MILLION, reasoning_tokens=900_000), "15"),
    ],
)
def test_each_kind_of_token_has_its_rate(usage, usd):
    assert cost_of(usage, CACHED) == Money(Decimal(usd))


def test_cache_without_a_rate_of_its_own_is_charged_as_input():
    plain = ModelPrice("sample", "here", input=Rate(Decimal(2)), output=Rate(Decimal(8)))
    assert cost_of(Usage(0, 0, MILLION, MILLION, MILLION), plain) == Money(Decimal(4))


def test_an_hour_whose_rate_is_missing_beside_that_of_five_minutes_is_unknown():
    price = ModelPrice("sample", "here", Rate(Decimal(3)), Rate(Decimal(15)), cache_write=Rate(Decimal(4)))
    assert isinstance(cost_of(Usage(0, 0, 0, 10), price), Money)
    cost = cost_of(Usage(0, 0, 0, 10, 10), price)
    assert isinstance(cost, Unknown)
    assert "1-hour cache writes" in cost.reason


def test_a_tier_holds_for_the_whole_request_once_its_prompt_is_over_it():
    rate = Rate(Decimal(1), ((100, Decimal(2)), (1_000, Decimal(4))))
    assert [rate.at(size) for size in (0, 100, 101, 1_000, 1_001)] == [1, 1, 2, 2, 4]
    price = ModelPrice("sample", "here", input=rate, output=rate)
    assert cost_of(Usage(50, 10, 60), price) == Money(Decimal(120 * 2) / MILLION)


@pytest.mark.parametrize("model", ["no-such-model", "", None, "ft:gpt-4o-mini:acme::x1", "x" * 3_000])
def test_an_unknown_price_says_unknown_and_never_nothing(model):
    cost = cost_of(Usage(10, 10), model)
    assert isinstance(cost, Unknown)
    assert str(cost) == "unknown"
    assert cost.reason


def test_an_unknown_rate_matters_only_where_it_is_needed():
    price = ModelPrice("sample", "here", input=Rate(Decimal(3)))
    assert cost_of(Usage(input_tokens=MILLION), price) == Money(Decimal(3))
    assert isinstance(cost_of(Usage(1, 1), price), Unknown)


def test_a_session_with_one_unknown_cost_has_an_unknown_total():
    known = [Money(Decimal("0.5")), Money(Decimal("0.25"))]
    assert add_costs(known) == Money(Decimal("0.75"))
    assert add_costs([]) == Money(Decimal(0))
    assert isinstance(add_costs([*known, Unknown("no price")]), Unknown)


def test_the_table_prices_claude_with_both_caches_apart():
    price = price_of("claude-sonnet-4-5")
    assert price is not None
    base = price.input.usd
    assert price.cache_read.usd == base / 10
    assert price.cache_write.usd == base * Decimal("1.25")
    assert price.cache_write_1h.usd == base * 2


def test_the_table_prices_openai_with_no_charge_for_writes():
    price = price_of("gpt-4o")
    assert price.cache_write is None
    assert price.cache_read.usd < price.input.usd
    assert cost_of(Usage(cache_write_tokens=MILLION), price) == Money(price.input.usd)


def test_a_price_is_that_of_the_day_and_else_the_newest():
    old, new = price_of("claude-opus-4-6", on="2026-03-01"), price_of("claude-opus-4-6")
    assert old.input.tiers
    assert not new.input.tiers
    assert price_of("claude-opus-4-6", on="2026-03-13") == new


def test_where_the_hour_decides_the_dearest_holds():
    assert price_of("deepseek-chat").input.usd == Decimal("0.27")


def test_a_provider_of_the_table_is_binding_and_another_one_is_not():
    assert price_of("gpt-4o", "azure").provider == "azure"
    assert price_of("gpt-4o", "anthropic") is None
    assert price_of("gpt-4o", "my own proxy").provider == "openai"


@pytest.mark.parametrize(("usd", "text"), [("0", "$0.00"), ("0.01234", "$0.0123"), ("12.346", "$12.35")])
def test_money_for_people(usd, text):
    assert str(Money(Decimal(usd))) == text


@pytest.mark.outside
def test_nothing_is_ever_fetched():
    script = (
        "import sys\n"
        "def refuse(event, args):\n"
        "    if event.startswith('socket.'): raise SystemExit(f'network: {event} {args}')\n"
        "sys.addaudithook(refuse)\n"
        "from penstock.measure.prices import Money, cost_of\n"
        "from penstock.measure.usage import Usage\n"
        "from penstock.measure.windows import resolve_window\n"
        "from penstock.measure.tokens import tokenizer_for\n"
        "assert isinstance(cost_of(Usage(10, 10), 'gpt-4o'), Money)\n"
        "assert resolve_window('claude-sonnet-4-5').source == 'table'\n"
        "assert tokenizer_for('gpt-4').count('offline') == 1\n"
        "import threading; assert threading.active_count() == 1, threading.enumerate()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
