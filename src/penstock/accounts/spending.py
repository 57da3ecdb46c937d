"""What requests used and cost, added up; what compactions cost and saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.stored import money
from penstock.measure.prices import Money, cost_of
from penstock.measure.usage import Usage
from penstock.sessions.branches import TAKEN_OVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.stores.values import CompactionRow, UsageRow

__all__ = ["HEADINGS", "Compactions", "Spending", "by", "cells", "compactions_of", "spent"]

TURN = "turn"  # a request that sends the view, as those for summaries and titles do not
HEADINGS = ["requests", "prompt", "cached", "output", "cost"]


class Spending(msgspec.Struct, frozen=True):
    """Requests and what they used. `cost` is None where that of one of them is not known, or there were none."""

    requests: int
    usage: Usage
    cost: float | None

    @property
    def cache_hit_ratio(self) -> float | None:
        """The share of prompt tokens that came from the provider's cache; None where nothing was sent."""
        prompt = self.usage.prompt_tokens
        return self.usage.cache_read_tokens / prompt if prompt else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        ratio = self.cache_hit_ratio
        return {
            "requests": self.requests,
            **msgspec.structs.asdict(self.usage),
            "prompt_tokens": self.usage.prompt_tokens,
            "cache_hit_ratio": None if ratio is None else round(ratio, 4),
            "cost": self.cost,
        }


class Compactions(msgspec.Struct, frozen=True):
    """Compactions of some time, those that were taken back included for as long as they held.

    One that a branch took over is not counted and not paid for again; what it saves in the branch is. `saved_tokens` is
    what later requests of turns did not have to send; `saved` what it would have cost at the price of cached tokens, the
    lowest there is. `cost` and `saved` are None where they are not known.
    """

    count: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    model_calls: int = 0
    cost: float | None = 0.0
    saved_tokens: int = 0
    saved: float | None = 0.0

    def __add__(self, other: Compactions) -> Compactions:
        return Compactions(
            *(_sum(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__)
        )


def spent(rows: Iterable[UsageRow]) -> Spending:
    """All rows together."""
    listed = list(rows)
    costs = [row.cost for row in listed if row.cost is not None]
    known = bool(costs) and len(costs) == len(listed)
    return Spending(len(listed), sum((row.usage for row in listed), Usage()), sum(costs) if known else None)


def by(rows: Iterable[UsageRow], key: Callable[[UsageRow], str]) -> dict[str, Spending]:
    """The rows by what `key` says of them, in its order."""
    groups: dict[str, list[UsageRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: spent(groups[name]) for name in sorted(groups)}


def cells(spending: Spending) -> list[str]:
    """A row of the table whose columns are `HEADINGS`."""
    usage, ratio = spending.usage, spending.cache_hit_ratio
    return [
        f"{spending.requests:,}",
        f"{usage.prompt_tokens:,}",
        "-" if ratio is None else f"{ratio:.0%}",
        f"{usage.output_tokens:,}",
        money(spending.cost) if spending.requests else "-",
    ]


def compactions_of(rows: Iterable[CompactionRow], requests: Sequence[UsageRow]) -> Compactions:
    """What these compactions of one conversation cost, and what they saved in its requests."""
    return sum((_compaction(row, requests) for row in rows), Compactions())


def _compaction(row: CompactionRow, requests: Sequence[UsageRow]) -> Compactions:
    before, after = _count(row, "tokens_before"), _count(row, "tokens_after")
    calls = _count(row, "model_calls")
    cost = row.receipt.get("cost")
    fewer = max(0, before - after)
    until = float("inf") if row.undone is None else row.undone
    later = [request for request in requests if request.task == TURN and row.created < request.at < until]
    saved: float | None = 0.0
    for request in later:
        price = cost_of(Usage(cache_read_tokens=fewer), request.model or None)
        saved = _sum(saved, float(price.usd) if isinstance(price, Money) else None)
    worth = Compactions(saved_tokens=fewer * len(later), saved=saved)
    if TAKEN_OVER in row.receipt:
        return worth
    return msgspec.structs.replace(
        worth,
        count=1,
        tokens_before=before,
        tokens_after=after,
        model_calls=calls,
        cost=float(cost) if isinstance(cost, (int, float)) else (None if calls else 0.0),
    )


def _count(row: CompactionRow, field: str) -> int:
    value = row.receipt.get(field)
    return value if isinstance(value, int) and value > 0 else 0


def _sum(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other
