"""The rule, its gate, and where prices come from."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec.structs import replace

from penstock.measure.prices import ModelPrice, Rate, Unknown
from penstock.measure.usage import Usage
from penstock.planning.economics import (
    Books,
    PricedRequest,
    PriceTerms,
    Why,
    book,
    settle,
    step,
    terms_of,
    weigh_costs,
)

FIVE = PriceTerms(read=0.1, write=1.25, output=5.0, ttl_seconds=300.0, unit_usd=5e-6)
STATIC, KEPT = 18_000, 30_000
PRICE = ModelPrice(
    model="claude-x",
    provider="anthropic",
    input=Rate(Decimal(4), ((200_000, Decimal(8)),)),
    output=Rate(Decimal(20)),
    cache_read=Rate(Decimal("0.4")),
    cache_write=Rate(Decimal(5)),
    cache_write_1h=Rate(Decimal(8)),
)


def request(droppable, appended=1_000, *, warm=True, summary=0):
    return PricedRequest(STATIC + KEPT + droppable, appended, STATIC, KEPT, warm, summary)


def opened(mode="on", limit=200_000, **more):
    return Books(FIVE, limit, mode, **more)


def test_what_compacting_adds_to_a_request_with_a_warm_cache():
    weighed = weigh_costs(opened(), request(50_000, 1_000))
    assert weighed.cost == pytest.approx((1.25 - 0.1) * (KEPT - 1_000) - 0.1 * 50_000)
    assert weighed.why is Why.EARLY
    assert not weighed.compact


def test_what_it_takes_off_one_with_an_expired_cache():
    weighed = weigh_costs(opened(), request(50_000, warm=False))
    assert weighed.cost == pytest.approx(-1.25 * 50_000)
    assert (weighed.why, weighed.compact) == (Why.FREE, True)


@pytest.mark.parametrize(("warm", "read"), [(True, 0.1), (False, 1.0)])
def test_a_summary_by_a_model_is_paid_too(warm, read):
    plain, asked = request(50_000, warm=warm), request(50_000, warm=warm, summary=5_000)
    more = weigh_costs(opened(), asked).cost - weigh_costs(opened(), plain).cost
    assert more == pytest.approx(read * plain.view_tokens + 5 * 5_000)
    assert weigh_costs(opened(), asked).summary_tokens == 5_000


def test_it_compacts_once_carrying_has_cost_as_much():
    books, moves = opened(), []
    view = STATIC + KEPT
    for _ in range(60):
        view += 2_000
        books, weighed = step(books, PricedRequest(view, 2_000, STATIC, KEPT, warm=True))
        moves.append(weighed)
        if weighed.compact:
            break
    assert moves[-1].why is Why.PAYS
    assert moves[-1].carried >= moves[-1].cost > moves[-2].carried
    assert books.carried == 0
    assert books.compactions == 1


@pytest.mark.parametrize(("droppable", "why"), [(4_999, Why.LITTLE), (5_000, Why.FREE), (-9, Why.LITTLE)])
def test_little_is_not_worth_it(droppable, why):
    assert weigh_costs(opened(), request(droppable, warm=False)).why is why


def test_off_means_that_prices_do_not_decide():
    assert weigh_costs(opened("off"), request(50_000, warm=False)).why is Why.OFF
    assert weigh_costs(opened("off"), request(152_000)).why is Why.LIMIT


def test_at_the_limit_a_compaction_always_runs():
    for mode in ("off", "gated", "on"):
        weighed = weigh_costs(opened(mode, limit=100_000), request(52_000, summary=5_000))
        assert (weighed.why, weighed.summary_tokens) == (Why.LIMIT, 5_000)


def test_below_the_limit_the_gate_asks_no_model():
    assert weigh_costs(opened("gated"), request(50_000, warm=False, summary=5_000)).summary_tokens == 0


def test_the_gate_lets_through_what_is_paid_for():
    owed = opened("gated", carried=1e6, bill=1e6, twin_bill=1e6, twin_tokens=97_000)
    assert weigh_costs(owed, request(50_000)).why is Why.GATE
    assert weigh_costs(replace(owed, mode="on"), request(50_000)).why is Why.PAYS
    ahead = replace(owed, twin_bill=1e6 + 60_000)
    weighed = weigh_costs(ahead, request(50_000))
    assert (weighed.why, weighed.compact) == (Why.PAYS, True)
    assert weighed.room >= weighed.cost


def test_what_was_saved_is_the_twins_bill_less_ours():
    books, _ = step(opened(), request(50_000, warm=False))
    assert books.saved == pytest.approx(1.25 * 50_000)
    assert books.saved_usd == pytest.approx(books.saved * 5e-6)
    assert replace(books, terms=replace(FIVE, unit_usd=None)).saved_usd is None


@pytest.mark.parametrize("compacted", [None, STATIC + KEPT])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("really", [True, False])
def test_the_provider_has_the_last_word_on_whether_it_was_warm(really, first, compacted):
    start = opened() if first else book(opened(), request(40_000))
    sent = request(41_000, summary=3_000)
    assumed = book(start, replace(sent, warm=not really), compacted, summary_tokens=3_000)
    read = 60_000 if really else 0
    settled = settle(assumed, Usage(cache_read_tokens=read, input_tokens=20_000))
    right = book(start, replace(sent, warm=really), compacted, summary_tokens=3_000)
    for name in ("carried", "bill", "twin_bill", "twin_tokens", "compactions"):
        assert getattr(settled, name) == pytest.approx(getattr(right, name))
    assert settle(right, Usage(cache_read_tokens=read, input_tokens=20_000)) is right


def test_there_is_nothing_to_settle_before_the_first_request():
    assert settle(opened(), Usage()) == opened()


def test_prices_become_units():
    assert terms_of(PRICE, "5m") == PriceTerms(0.1, 1.25, 5.0, 300.0, 4e-6)
    assert terms_of(PRICE, "1h") == PriceTerms(0.1, 2.0, 5.0, 3_600.0, 4e-6)
    assert terms_of(PRICE, "automatic") == PriceTerms(0.1, 1.0, 5.0, 300.0, 4e-6)
    assert terms_of(PRICE, "none") == PriceTerms(1.0, 1.0, 5.0, 0.0, 4e-6)
    assert terms_of(PRICE, "none", prompt_tokens=300_000) == PriceTerms(1.0, 1.0, 2.5, 0.0, 8e-6)


def test_a_price_without_a_rate_for_the_cache_charges_input():
    plain = replace(PRICE, cache_read=None, cache_write=None, cache_write_1h=None)
    assert terms_of(plain, "5m") == PriceTerms(1.0, 1.0, 5.0, 300.0, 4e-6)


@pytest.mark.parametrize(
    ("change", "caching", "words"),
    [
        ({"input": None}, "5m", "no price"),
        ({"output": None}, "none", "no price"),
        ({"input": Rate(Decimal(0))}, "5m", "costs nothing"),
        ({"cache_write_1h": None}, "1h", "1-hour cache writes"),
    ],
)
def test_a_missing_price_is_unknown(change, caching, words):
    terms = terms_of(replace(PRICE, **change), caching)
    assert isinstance(terms, Unknown)
    assert words in terms.reason


def test_every_reason_is_a_sentence_with_its_numbers():
    cases = {
        Why.LIMIT: weigh_costs(opened(limit=90_000), request(50_000)),
        Why.PAYS: weigh_costs(opened(carried=1e6), request(50_000)),
        Why.FREE: weigh_costs(opened(), request(50_000, warm=False)),
        Why.OFF: weigh_costs(opened("off"), request(50_000)),
        Why.LITTLE: weigh_costs(opened(), request(100)),
        Why.EARLY: weigh_costs(opened(), request(50_000)),
        Why.GATE: weigh_costs(opened("gated", carried=1e6, bill=1.0, twin_tokens=97_000), request(50_000)),
    }
    for why, weighed in cases.items():
        assert weighed.why is why
        assert weighed.reason == weighed.to_dict()["reason"]
        assert len(weighed.reason) > 20
    assert "the provider's cache has expired" in cases[Why.FREE].reason
    assert cases[Why.EARLY].reason == (
        "carrying 50,000 tokens that could go has cost 0 units so far, compacting would cost 28,350 units"
    )
    assert cases[Why.PAYS].to_dict() | {"reason": ""} == {
        "why": "pays",
        "reason": "",
        "droppable_tokens": 50_000,
        "cost_units": 28_350.0,
        "carried_units": 1e6,
        "room_units": 0.0,
        "warm": True,
    }
