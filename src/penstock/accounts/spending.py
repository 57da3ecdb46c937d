"""Adds up what requests used and cost, and what compactions cost and saved.

Requests for summaries are requests like others, also those whose summary was never put in place. What the receipt of a
compaction says of its cost is in them already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.measure.prices import Money, cost_of
from penstock.measure.usage import Usage
from penstock.sessions.branches import TAKEN_OVER
from penstock.sessions.metering import TURN_TASK
from penstock.sessions.rewinding import REWOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.stores.values import CompactionRow, UsageRow

__all__ = [
    "CompactionTotals",
    "Spending",
    "group_requests",
    "sum_compactions",
    "sum_requests",
]


class Spending(msgspec.Struct, frozen=True):
    """Requests and what they used. `cost` is None where one of them has no known cost, or there were none."""

    requests: int
    usage: Usage
    cost: float | None
    known_cost: float = 0.0
    """The cost of those whose price is known: the least that all of them cost."""

    @property
    def cache_hit_ratio(self) -> float | None:
        """Returns the share of prompt tokens that came from the provider's cache; None where nothing was sent."""
        prompt = self.usage.prompt_tokens
        return self.usage.cache_read_tokens / prompt if prompt else None

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON."""
        ratio = self.cache_hit_ratio
        return {
            "requests": self.requests,
            **msgspec.structs.asdict(self.usage),
            "prompt_tokens": self.usage.prompt_tokens,
            "cache_hit_ratio": None if ratio is None else round(ratio, 4),
            "cost": self.cost,
            "known_cost": self.known_cost,
        }


class CompactionTotals(msgspec.Struct, frozen=True):
    """Sizes, cost and savings of compactions; an undone one counts for as long as it held.

    One that a branch took over is not counted and not paid for again; what it saves in the branch is. `cost` and
    `saved` are None where one of them is unknown; `known_cost` and `known_saved` are the sums of the others.
    """

    count: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    model_calls: int = 0
    cost: float | None = 0.0
    saved_tokens: int = 0
    """Tokens that later requests of turns did not have to send."""
    saved: float | None = 0.0
    """The price of those tokens as cached ones, the lowest there is."""
    known_cost: float = 0.0
    known_saved: float = 0.0

    def __add__(self, other: CompactionTotals) -> CompactionTotals:
        return CompactionTotals(
            *(_add(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__)
        )


def sum_requests(rows: Iterable[UsageRow]) -> Spending:
    """Returns what all rows used and cost together."""
    listed = list(rows)
    costs = [row.cost for row in listed if row.cost is not None]
    known = bool(costs) and len(costs) == len(listed)
    usage = sum((row.usage for row in listed), Usage())
    return Spending(len(listed), usage, sum(costs) if known else None, sum(costs))


def group_requests(rows: Iterable[UsageRow], key: Callable[[UsageRow], str]) -> dict[str, Spending]:
    """Returns what the rows of each `key` used and cost, in the order of the keys."""
    groups: dict[str, list[UsageRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: sum_requests(groups[name]) for name in sorted(groups)}


def sum_compactions(rows: Iterable[CompactionRow], requests: Sequence[UsageRow]) -> CompactionTotals:
    """Returns what these compactions of one conversation cost, and what they saved in its requests."""
    made = (row for row in rows if REWOUND not in row.receipt)
    return sum((_price_compaction(row, requests) for row in made), CompactionTotals())


def _price_compaction(row: CompactionRow, requests: Sequence[UsageRow]) -> CompactionTotals:
    before, after = _read_count(row, "tokens_before"), _read_count(row, "tokens_after")
    calls = _read_count(row, "model_calls")
    cost = row.receipt.get("cost")
    fewer = max(0, before - after)
    until = float("inf") if row.undone is None else row.undone
    later = [
        request for request in requests if request.task == TURN_TASK and row.created < request.at < until
    ]
    prices = [cost_of(Usage(cache_read_tokens=fewer), request.model or None) for request in later]
    known = [float(price.usd) for price in prices if isinstance(price, Money)]
    savings = CompactionTotals(
        saved_tokens=fewer * len(later),
        saved=sum(known) if len(known) == len(prices) else None,
        known_saved=sum(known),
    )
    if TAKEN_OVER in row.receipt:
        return savings
    paid = float(cost) if isinstance(cost, (int, float)) else (None if calls else 0.0)
    return msgspec.structs.replace(
        savings,
        count=1,
        tokens_before=before,
        tokens_after=after,
        model_calls=calls,
        cost=paid,
        known_cost=paid or 0.0,
    )


def _read_count(row: CompactionRow, field: str) -> int:
    """Returns a count of a receipt; 0 where another version wrote something else."""
    value = row.receipt.get(field)
    return value if isinstance(value, int) and value > 0 else 0


def _add(one: Any, other: Any) -> Any:
    """Adds two amounts; an unknown one makes the sum unknown."""
    return None if one is None or other is None else one + other
