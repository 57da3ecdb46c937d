"""`penstock insights`: the last days, by model and by day, and what compaction cost and saved."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from penstock.accounts.spending import Compactions, Spending, by, compactions_of, spent
from penstock.cli.layout import plural
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import Screen, screen_of
from penstock.cli.stored import conversations, money, opened_store
from penstock.cli.usage import table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from penstock.stores.store import Store

__all__ = ["Insights", "compaction_lines", "insights", "lines", "run"]

_DAY_SECONDS = 86_400


class Insights(msgspec.Struct, frozen=True):
    """What happened since a point in time."""

    days: int
    conversations: int
    total: Spending
    models: dict[str, Spending]
    per_day: dict[str, Spending]
    compactions: Compactions


def run(args: argparse.Namespace) -> int:
    """Show the last days."""
    with opened_store(args, is_there=True) as store, ProgressLine("adding up"):
        found = insights(store, args.days, time.time())
    screen = screen_of(sys.stdout)
    if args.json:
        report = {
            "days": found.days,
            "conversations": found.conversations,
            "total": found.total.to_dict(),
            "models": {name: one.to_dict() for name, one in found.models.items()},
            "per_day": {day: one.to_dict() for day, one in found.per_day.items()},
            "compactions": msgspec.structs.asdict(found.compactions),
        }
        screen.say(json.dumps(report, indent=2))
        return 0
    for line in lines(found, screen):
        screen.say(line)
    return 0


def insights(store: Store, days: int, now: float) -> Insights:
    """Add up the last `days` days before `now`."""
    since = now - days * _DAY_SECONDS
    rows = store.usage(since=since)
    active, compactions = 0, Compactions()
    for conversation in conversations(store):
        if conversation.updated < since:
            break
        active += 1
        made = [row for row in store.compactions(conversation.tip.id, undone=True) if row.created >= since]
        if made:
            requests = store.usage(session_id=conversation.tip.id, since=since)
            compactions += compactions_of(made, requests)
    return Insights(
        days=days,
        conversations=active,
        total=spent(rows),
        models=by(rows, lambda row: row.model),
        per_day=by(rows, lambda row: time.strftime("%Y-%m-%d", time.localtime(row.at))),
        compactions=compactions,
    )


def lines(found: Insights, screen: Screen) -> Iterator[str]:
    """The report."""
    days = plural(found.days, "day")
    yield screen.paint(f"the last {days}: {plural(found.conversations, 'conversation')}", "bold")
    if found.total.requests:
        yield ""
        yield from table("model", found.models, screen, found.total)
        yield ""
        yield from table("day", found.per_day, screen)
    else:
        yield "no requests are on record"
    yield ""
    yield from compaction_lines(found.compactions, screen)


def compaction_lines(made: Compactions, screen: Screen) -> Iterator[str]:
    """What compactions did, cost and saved."""
    if not made.count:
        yield "no compactions"
        return
    yield f"{plural(made.count, 'compaction')}, {made.tokens_before:,} {screen.arrow} {made.tokens_after:,} tokens"
    calls = f"{plural(made.model_calls, 'model call')}, " if made.model_calls else "no model call, "
    yield f"  cost   {calls}{money(made.cost) if made.model_calls else 'no cost'}"
    yield f"  saved  {made.saved_tokens:,} tokens not sent again, {_worth(made)}"


def _worth(made: Compactions) -> str:
    if not made.saved_tokens:
        return "no request since"
    return f"{money(made.saved)} at the price of cached tokens" if made.saved is not None else "worth unknown"
