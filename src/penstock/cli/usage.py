"""`penstock usage`: what the requests of a conversation, or of all, used and cost.

Requests for summaries are not among them: what they cost stands in the receipts of the compactions they were for.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from penstock.accounts.spending import HEADINGS, Compactions, Spending, by, cells, compactions_of, spent
from penstock.cli.layout import aligned, fitting, plural, printable
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import Screen, screen_of
from penstock.cli.stored import conversations, found_session, money, opened_store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

__all__ = ["run", "table"]

_GIVE_WAY = (3, 4, 1)  # cached, output, requests: what goes where the screen is too narrow for all


def run(args: argparse.Namespace) -> int:
    """Show it by model, and what compactions cost beside it. Raises UnknownSession."""
    with opened_store(args, is_there=True) as store, ProgressLine("adding up"):
        session_id = found_session(store, args.id).id if args.id else None
        rows = store.usage(session_id=session_id)
        tips = [session_id] if session_id else [one.tip.id for one in conversations(store)]
        made = sum((compactions_of(store.compactions(tip, undone=True), ()) for tip in tips), Compactions())
    models, total = by(rows, lambda row: row.model), spent(rows)
    screen = screen_of(sys.stdout)
    if args.json:
        beside = {"count": made.count, "model_calls": made.model_calls, "cost": made.cost}
        report = {"total": total.to_dict(), "models": {name: one.to_dict() for name, one in models.items()}}
        screen.say(json.dumps({**report, "compactions": beside}, indent=2))
        return 0
    for line in table("model", models, screen, total) if rows else ["no requests are on record"]:
        screen.say(line)
    if made.model_calls:
        calls = plural(made.model_calls, "model call")
        screen.say(f"beside these: {plural(made.count, 'compaction')} with {calls}, {money(made.cost)}")
    return 0


def table(
    heading: str, groups: Mapping[str, Spending], screen: Screen, total: Spending | None = None
) -> Iterator[str]:
    """A line for each group, and one for all of them; columns that do not fit the screen are left out."""
    rows = [
        [heading, *HEADINGS],
        *([printable(name) or "unknown", *cells(one)] for name, one in groups.items()),
    ]
    if total is not None and len(groups) > 1:
        rows.append(["together", *cells(total)])
    shown = fitting(rows, screen.columns, _GIVE_WAY)
    for number, row in enumerate(aligned(shown, right=set(range(1, len(HEADINGS) + 1)))):
        line = "  ".join(row)
        yield screen.paint(line, "dim") if number == 0 else line
