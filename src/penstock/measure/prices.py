"""The cost of requests. A price that is not known is `Unknown`, never 0."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from penstock.measure import model_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from genai_prices.types import ModelInfo, TieredPrices
    from genai_prices.types import ModelPrice as TablePrice

    from penstock.measure.usage import Usage

__all__ = ["Cost", "ModelPrice", "Money", "Rate", "Unknown", "add_costs", "cost_of", "price_of"]

_MILLION = 1_000_000


class Money(msgspec.Struct, frozen=True):
    """An amount in US dollars."""

    usd: Decimal

    def __str__(self) -> str:
        return f"${self.usd:.2f}" if self.usd >= 1 or not self.usd else f"${self.usd:.4f}"


class Unknown(msgspec.Struct, frozen=True):
    """An amount that cannot be given; `reason` says what is missing."""

    reason: str

    def __str__(self) -> str:
        return "unknown"


Cost: TypeAlias = Money | Unknown


class Rate(msgspec.Struct, frozen=True):
    """Dollars for a million tokens.

    `tiers` are (prompt tokens, rate): over that size the rate holds for all.
    """

    usd: Decimal
    tiers: tuple[tuple[int, Decimal], ...] = ()

    def at(self, prompt_tokens: int) -> Decimal:
        """Returns the rate for a request with a prompt of this size."""
        return next((rate for start, rate in reversed(self.tiers) if prompt_tokens > start), self.usd)


class ModelPrice(msgspec.Struct, frozen=True):
    """The rates of a model at a provider; None for a rate that the table lacks.

    A cache read or write without a rate of its own is charged as input: that is how providers without a
    discount or a surcharge bill it. `cache_write` is the rate of the 5-minute cache.
    """

    model: str
    provider: str
    input: Rate | None = None
    output: Rate | None = None
    cache_read: Rate | None = None
    cache_write: Rate | None = None
    cache_write_1h: Rate | None = None


def price_of(model: str, provider: str | None = None, *, on: str | None = None) -> ModelPrice | None:
    """Returns the price of `model`, at `provider` if the table knows it there, or None.

    Prices change: `on` is the day as "2026-03-14"; without it the newest price in the table holds. If the
    price depends on the hour, the dearest holds, so that no cost is understated.
    """
    for where, entry in model_table.find_entries(model, provider):
        table = _find_price(entry, on)
        if table.input_mtok is None and table.output_mtok is None:
            return None
        return ModelPrice(
            model=entry.id,
            provider=where,
            input=_read_rate(table.input_mtok),
            output=_read_rate(table.output_mtok),
            cache_read=_read_rate(table.cache_read_mtok),
            cache_write=_read_rate(table.cache_write_5m_mtok) or _read_rate(table.cache_write_mtok),
            cache_write_1h=_read_rate(table.cache_write_1h_mtok),
        )
    return None


def cost_of(usage: Usage, price: ModelPrice | str | None, provider: str | None = None) -> Cost:
    """Returns what one request cost. `price` is a price or the name of a model (at `provider`).

    Rates may depend on the size of the prompt, so add up costs (`add_costs`), not usages.
    """
    known = price_of(price, provider) if isinstance(price, str) else price
    if known is None:
        return Unknown(f"no price for {price!r}" if price else "no model was named")
    total = Decimal(0)
    for tokens, rate, what in _split_bill(usage, known):
        if not tokens:
            continue
        if rate is None:
            return Unknown(f"no price for {what} of {known.model!r}")
        total += tokens * rate.at(usage.prompt_tokens) / _MILLION
    return Money(total)


def add_costs(costs: Iterable[Cost]) -> Cost:
    """Returns the sum of `costs`; unknown if one of them is."""
    total = Decimal(0)
    for cost in costs:
        if isinstance(cost, Unknown):
            return cost
        total += cost.usd
    return Money(total)


def _split_bill(usage: Usage, price: ModelPrice) -> tuple[tuple[int, Rate | None, str], ...]:
    """Returns (tokens, rate, kind) for each kind of token that is billed apart."""
    hour = min(usage.cache_write_1h_tokens, usage.cache_write_tokens)
    # Where 5-minute writes have a rate of their own, an hour costs more: input would be too low a guess.
    hour_rate = price.cache_write_1h or (None if price.cache_write else price.input)
    return (
        (usage.input_tokens, price.input, "input"),
        (usage.output_tokens, price.output, "output"),
        (usage.cache_read_tokens, price.cache_read or price.input, "cache reads"),
        (usage.cache_write_tokens - hour, price.cache_write or price.input, "cache writes"),
        (hour, hour_rate, "1-hour cache writes"),
    )


def _find_price(entry: ModelInfo, on: str | None) -> TablePrice:
    """Returns the price in force on the day `on`, or the newest; of prices by the hour the dearest."""
    if not isinstance(entry.prices, list):
        return entry.prices
    standing = entry.prices[0].prices
    for conditional in entry.prices:
        if conditional.constraint is None:
            standing = conditional.prices
            continue
        start = getattr(conditional.constraint, "start_date", None)
        if start is None:
            standing = max(standing, conditional.prices, key=_read_input_usd)
        elif on is None or str(start) <= on:  # days in ISO form sort as text
            standing = conditional.prices
    return standing


def _read_input_usd(price: TablePrice) -> Decimal:
    rate = _read_rate(price.input_mtok)
    return rate.usd if rate else Decimal(0)


def _read_rate(price: Decimal | TieredPrices | None) -> Rate | None:
    if price is None:
        return None
    if isinstance(price, Decimal):
        return Rate(price)
    return Rate(price.base, tuple((tier.start, tier.price) for tier in price.tiers))
