"""The reports on usage: one conversation or all of them, and the last days."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.accounts.conversations import iterate_conversations
from penstock.accounts.spending import (
    CompactionTotals,
    Spending,
    group_compactions,
    group_requests,
    sum_compactions,
    sum_requests,
)
from penstock.planning.receipt import LiveQuality
from penstock.sessions.metering import SUMMARY_TASK
from penstock.sessions.quality import measure_qualities

if TYPE_CHECKING:
    from penstock.stores.store import Store

__all__ = ["Insights", "UsageReport", "name_day", "report_insights", "report_usage"]

_DAY_SECONDS = 86_400


class UsageReport(msgspec.Struct, frozen=True):
    """Usage and cost of all requests, in total and by model; `summaries` are the requests among them for a summary.

    They include the cost of `compactions`.
    """

    total: Spending
    models: dict[str, Spending]
    summaries: Spending
    compactions: CompactionTotals

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON; of compactions only what they cost."""
        made = self.compactions
        return {
            "total": self.total.to_dict(),
            "summaries": self.summaries.to_dict(),
            "models": {name: spending.to_dict() for name, spending in self.models.items()},
            "compactions": {
                "count": made.count,
                "model_calls": made.model_calls,
                "cost": made.cost,
                "known_cost": made.known_cost,
            },
        }


def report_usage(store: Store, session_id: str | None = None) -> UsageReport:
    """Returns what one conversation, given by any of its sessions, or all of them used."""
    rows = store.usage(session_id=session_id)
    if session_id is not None:
        made = sum_compactions(store.compactions(session_id, undone=True), rows)
    else:
        tips = [conversation.tip.id for conversation in iterate_conversations(store)]
        made = sum(
            (sum_compactions(store.compactions(tip, undone=True), ()) for tip in tips), CompactionTotals()
        )
    summaries = sum_requests(row for row in rows if row.task == SUMMARY_TASK)
    return UsageReport(sum_requests(rows), group_requests(rows, lambda row: row.model), summaries, made)


class Insights(msgspec.Struct, frozen=True):
    """The last days: conversations that were used, requests by model and by day, compactions."""

    days: int
    conversations: int
    total: Spending
    models: dict[str, Spending]
    per_day: dict[str, Spending]
    compactions: CompactionTotals
    compactions_per_day: dict[str, CompactionTotals]
    """Their cost on the day when they were made, and their savings on the days of later requests."""
    quality: LiveQuality
    """The ways in which the agents came by the earlier values that they used after those compactions."""

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON."""
        return {
            "days": self.days,
            "conversations": self.conversations,
            "total": self.total.to_dict(),
            "models": {name: spending.to_dict() for name, spending in self.models.items()},
            "per_day": {day: spending.to_dict() for day, spending in self.per_day.items()},
            "compactions": {
                **msgspec.structs.asdict(self.compactions),
                "per_day": {
                    day: msgspec.structs.asdict(totals) for day, totals in self.compactions_per_day.items()
                },
                "quality": self.quality.to_dict(),
            },
        }


def name_day(at: float) -> str:
    """Returns the day of a moment, in the reader's time zone, such as `2026-11-18`."""
    return time.strftime("%Y-%m-%d", time.localtime(at))


def report_insights(store: Store, days: int, now: float) -> Insights:
    """Returns what happened in the last `days` days before `now`."""
    since = now - days * _DAY_SECONDS
    rows = store.usage(since=since)
    used, quality = 0, LiveQuality(settled=True)
    days_of_compactions: dict[str, CompactionTotals] = {}
    for conversation in iterate_conversations(store):
        if conversation.updated < since:
            break
        used += 1
        made = [row for row in store.compactions(conversation.tip.id, undone=True) if row.created >= since]
        if made:
            requests = store.usage(session_id=conversation.tip.id, since=since)
            for day, totals in group_compactions(made, requests, name_day).items():
                days_of_compactions[day] = days_of_compactions.get(day, CompactionTotals()) + totals
            found = measure_qualities(store, conversation.tip.id)
            quality = sum((found[row.key] for row in made), quality)
    return Insights(
        days=days,
        conversations=used,
        total=sum_requests(rows),
        models=group_requests(rows, lambda row: row.model),
        per_day=group_requests(rows, lambda row: name_day(row.at)),
        compactions=sum(days_of_compactions.values(), CompactionTotals()),
        compactions_per_day={day: days_of_compactions[day] for day in sorted(days_of_compactions)},
        quality=quality,
    )
