"""`penstock usage` and `penstock insights`: what requests used and cost, and what compaction cost, saved and kept."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from penstock.accounts.conversations import find_conversation
from penstock.accounts.display import explain_unreported, format_sum
from penstock.accounts.usage import report_insights, report_usage
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import Screen, align, clip, drop_columns, printable, screen_of, width_of, wrap
from penstock.cli.stored import open_store_of
from penstock.measure.wording import pluralise

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from penstock.accounts.spending import CompactionTotals, Spending
    from penstock.accounts.usage import Insights

__all__ = ["insight_lines", "run_insights", "run_usage", "savings_lines", "spending_table"]

_HEADINGS = ["requests", "prompt", "cached", "output", "cost"]
_PLAIN_COLUMNS = 80  # where the output is no terminal
_LEAST_NAME_COLUMNS = 12
_DROPPED_FIRST = (3, 4, 1)  # cached, output, requests: columns that go where the screen is too narrow for all


def run_usage(args: argparse.Namespace) -> int:
    """Shows usage by model, and how much of it was for summaries. Raises UnknownSession."""
    with open_store_of(args, must_exist=True) as store, ProgressLine("adding up"):
        found = report_usage(store, find_conversation(store, args.id).id if args.id else None)
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps(found.to_dict(), indent=2))
        return 0
    if not found.total.requests:
        screen.say("no requests are on record")
    else:
        for line in spending_table("model", found.models, screen, found.total):
            screen.say(line)
    asked, count = found.summaries, found.compactions.count
    if asked.requests:
        used = f"{asked.usage.prompt_tokens:,} tokens in, {asked.usage.output_tokens:,} out"
        cost = format_sum(asked.cost, asked.known_cost)
        text = (
            f"of these for summaries: {pluralise(asked.requests, 'request')}, {used}, {cost}, "
            f"with {pluralise(count, 'compaction')}"
        )
        for line in wrap(text, screen.columns or _PLAIN_COLUMNS, indent=2):
            screen.say(line)
    return 0


def run_insights(args: argparse.Namespace) -> int:
    """Shows usage and savings of the last days."""
    with open_store_of(args, must_exist=True) as store, ProgressLine("adding up"):
        found = report_insights(store, args.days, time.time())
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps(found.to_dict(), indent=2))
        return 0
    for line in insight_lines(found, screen):
        screen.say(line)
    return 0


def insight_lines(found: Insights, screen: Screen) -> Iterator[str]:
    """Yields the report on the last days."""
    days = pluralise(found.days, "day")
    yield screen.paint(f"the last {days}: {pluralise(found.conversations, 'conversation')}", "bold")
    if found.total.requests:
        yield ""
        yield from spending_table("model", found.models, screen, found.total)
        yield ""
        yield from spending_table("day", found.per_day, screen)
    else:
        yield "no requests are on record"
    yield ""
    yield from savings_lines(found.compactions, screen)
    if found.quality.answers:
        yield from wrap(f"  since  {found.quality}", screen.columns or _PLAIN_COLUMNS, indent=9)


def spending_table(
    heading: str, groups: Mapping[str, Spending], screen: Screen, total: Spending | None = None
) -> Iterator[str]:
    """Yields a line for each group, and one for all of them.

    It fits the screen: long names are cut, and columns are left out if that is not enough.
    """
    columns = screen.columns or _PLAIN_COLUMNS
    rows = [
        [heading, *_HEADINGS],
        *([printable(name) or "unknown", *_cells(one)] for name, one in groups.items()),
    ]
    if total is not None and len(groups) > 1:
        rows.append(["total", *_cells(total)])
    longest = max(width_of(row[0]) for row in rows)
    shown = drop_columns(
        [["-" * min(longest, _LEAST_NAME_COLUMNS), *row[1:]] for row in rows], columns, _DROPPED_FIRST
    )
    taken = sum(max(map(width_of, column)) + 2 for column in list(zip(*shown, strict=True))[1:])
    shown = [
        [clip(row[0], max(columns - taken, _LEAST_NAME_COLUMNS), screen.unicode), *cells[1:]]
        for row, cells in zip(rows, shown, strict=True)
    ]
    for number, row in enumerate(align(shown, right=set(range(1, len(_HEADINGS) + 1)))):
        line = "  ".join(row)
        yield screen.paint(line, "dim") if number == 0 else line
    if total is not None and total.unreported:
        yield from wrap(explain_unreported(total.unreported), columns, indent=2)


def savings_lines(made: CompactionTotals, screen: Screen) -> Iterator[str]:
    """Yields what compactions did, cost and saved."""
    if not made.count:
        yield "no compactions"
        return
    yield f"{pluralise(made.count, 'compaction')}, {made.tokens_before:,} {screen.arrow} {made.tokens_after:,} tokens"
    calls = (
        f"{pluralise(made.model_calls, 'model call')}, {format_sum(made.cost, made.known_cost)}"
        if made.model_calls
        else "nothing, no model was called"
    )
    yield f"  cost   {calls}"
    saved = f"  saved  {made.saved_tokens:,} tokens not sent again, {_savings(made)}"
    yield from wrap(saved, screen.columns or _PLAIN_COLUMNS, indent=9)


def _savings(made: CompactionTotals) -> str:
    if not made.saved_tokens:
        return "no request since"
    if made.saved is None and not made.known_saved:
        return "of unknown price"
    return f"{format_sum(made.saved, made.known_saved)} at the price of cached tokens"


def _cells(spending: Spending) -> list[str]:
    usage, ratio = spending.usage, spending.cache_hit_ratio
    return [
        f"{spending.requests:,}",
        f"{usage.prompt_tokens:,}",
        "-" if ratio is None else f"{ratio:.0%}",
        f"{usage.output_tokens:,}",
        format_sum(spending.cost, spending.known_cost) if spending.requests else "-",
    ]
