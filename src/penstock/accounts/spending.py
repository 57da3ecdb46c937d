"""Adds up what requests used and cost, and what compactions cost and saved.

Requests for summaries are requests like others, even if the summary was never put in place. They include the cost
that the receipt of a compaction states.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.measure.prices import Money, cost_of
from penstock.measure.usage import Usage
from penstock.sessions.branches import TAKEN_OVER
from penstock.sessions.metering import TURN_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.stores.values import CompactionRow, UsageRow

__all__ = [
    "CompactionTotals",
    "Spending",
    "group_compactions",
    "group_requests",
    "sum_compactions",
    "sum_requests",
]


class Spending(msgspec.Struct, frozen=True):
    """Requests and what they used. `cost` is None if one of them has no known cost, or there were none."""

    requests: int
    usage: Usage
    cost: float | None
    known_cost: float = 0.0
    """The cost of those whose price is known: the least that all of them cost."""
    unreported: int = 0
    """Requests of which no usage was reported: they were broken off, or their provider does not say. All sums lack them."""

    @property
    def cache_hit_ratio(self) -> float | None:
        """Returns the share of prompt tokens that came from the provider's cache; None if nothing was sent."""
        prompt = self.usage.prompt_tokens
        return self.usage.cache_read_tokens / prompt if prompt else None

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON."""
        ratio = self.cache_hit_ratio
        return {
            "requests": self.requests,
            "unreported_requests": self.unreported,
            **msgspec.structs.asdict(self.usage),
            "prompt_tokens": self.usage.prompt_tokens,
            "cache_hit_ratio": None if ratio is None else round(ratio, 4),
            "cost": self.cost,
            "known_cost": self.known_cost,
        }


class CompactionTotals(msgspec.Struct, frozen=True):
    """Sizes, cost and savings of compactions; an undone one counts for as long as it held.

    One that a branch took over is not counted and not paid for again; what it saves in the branch is. `cost` and
    `saved` are None if one of them is unknown; `known_cost` and `known_saved` are the sums of the others.
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
    # Column by column: thousands of requests are added up while a person waits for a page.
    usage = Usage(*(sum(getattr(row.usage, name) for row in listed) for name in Usage.__struct_fields__))
    unreported = sum(not row.usage.total_tokens for row in listed)
    return Spending(len(listed), usage, sum(costs) if known else None, sum(costs), unreported)


def group_requests(rows: Iterable[UsageRow], key: Callable[[UsageRow], str]) -> dict[str, Spending]:
    """Returns what the rows of each `key` used and cost, in the order of the keys."""
    groups: dict[str, list[UsageRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: sum_requests(groups[name]) for name in sorted(groups)}


def sum_compactions(rows: Iterable[CompactionRow], requests: Sequence[UsageRow]) -> CompactionTotals:
    """Returns what these compactions of one conversation cost, and what they saved in its requests."""
    return sum(group_compactions(rows, requests, lambda _at: "").values(), CompactionTotals())


def group_compactions(
    rows: Iterable[CompactionRow], requests: Sequence[UsageRow], key: Callable[[float], str]
) -> dict[str, CompactionTotals]:
    """Returns what these compactions of one conversation cost and saved, by the `key` of the moment: a day, for example.

    The cost of one belongs to the moment when it was made, its savings to each request that it made shorter.
    """
    groups: dict[str, CompactionTotals] = {}

    def add(name: str, totals: CompactionTotals) -> None:
        groups[name] = groups.get(name, CompactionTotals()) + totals

    turns = [(key(row.at), row) for row in requests if row.task == TURN_TASK]
    for row in rows:
        if row.is_rewind:
            continue
        if TAKEN_OVER not in row.receipt:
            add(key(row.created), _price_compaction(row))
        fewer = _count_fewer(row)
        until = float("inf") if row.undone is None else row.undone
        # A price depends on the model alone: thousands of requests have few of them.
        later = Counter((name, turn.model) for name, turn in turns if row.created < turn.at < until)
        for (name, model), count in sorted(later.items()):
            add(name, _price_savings(fewer, model, count))
    return groups


def _price_compaction(row: CompactionRow) -> CompactionTotals:
    calls = _read_count(row, "model_calls")
    cost = row.receipt.get("cost")
    paid = float(cost) if isinstance(cost, (int, float)) else (None if calls else 0.0)
    return CompactionTotals(
        count=1,
        tokens_before=_read_count(row, "tokens_before"),
        tokens_after=_read_count(row, "tokens_after"),
        model_calls=calls,
        cost=paid,
        known_cost=paid or 0.0,
    )


def _price_savings(tokens: int, model: str, requests: int) -> CompactionTotals:
    """Returns the savings of this many requests that were each shorter by that many tokens."""
    price = cost_of(Usage(cache_read_tokens=tokens), model or None)
    usd = float(price.usd) * requests if isinstance(price, Money) else None
    return CompactionTotals(saved_tokens=tokens * requests, saved=usd, known_saved=usd or 0.0)


def _count_fewer(row: CompactionRow) -> int:
    return max(0, _read_count(row, "tokens_before") - _read_count(row, "tokens_after"))


def _read_count(row: CompactionRow, field: str) -> int:
    """Returns a count of a receipt; 0 if another version wrote something else."""
    value = row.receipt.get(field)
    return value if isinstance(value, int) and value > 0 else 0


def _add(one: Any, other: Any) -> Any:
    """Adds two amounts; an unknown one makes the sum unknown."""
    return None if one is None or other is None else one + other
