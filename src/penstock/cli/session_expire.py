"""`penstock sessions expire`: delete what nobody has used for long."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from penstock.cli.layout import aligned, plural
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import screen_of
from penstock.cli.session_change import DECLINED, agreed
from penstock.cli.source import settings_of
from penstock.cli.stored import moment, opened_store
from penstock.errors import SettingsError
from penstock.sessions.retention import DAY_SECONDS, expire

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.stores.values import ExpiredConversation

__all__ = ["run_expire"]


def run_expire(args: argparse.Namespace) -> int:
    """Delete what is due, if the person agrees; with `--dry-run` only show it. Raises SettingsError."""
    days = args.days or settings_of(args).store.retention_days
    if days is None:
        raise SettingsError("for how many days unused? give --days N, or set store.retention_days")
    now = time.time()
    with opened_store(args, as_it_is=True, is_there=True) as store:
        gone = store.due(now - days * DAY_SECONDS)
        if gone and not args.dry_run:
            if not args.yes and not agreed(f"delete {_counted(gone)} not used for {plural(days, 'day')}?"):
                print("penstock: nothing was deleted", file=sys.stderr)
                return DECLINED
            with ProgressLine("deleting"):
                gone = expire(store, now, days)
    screen = screen_of(sys.stdout)
    if args.json:
        report = {"days": days, "dry_run": args.dry_run, "conversations": [_as_json(one) for one in gone]}
        screen.say(json.dumps(report, indent=2))
        return 0
    for line in _lines(gone, days, dry_run=args.dry_run):
        screen.say(line)
    return 0


def _lines(gone: Sequence[ExpiredConversation], days: int, *, dry_run: bool) -> Iterator[str]:
    if not gone:
        yield f"no conversation has been unused for {plural(days, 'day')}"
        return
    yield f"{'would delete' if dry_run else 'deleted'} {_counted(gone)} not used for {plural(days, 'day')}"
    rows = [[one.id, moment(one.updated), plural(one.messages, "message")] for one in gone]
    yield from ("  " + "  ".join(cells) for cells in aligned(rows))


def _counted(gone: Sequence[ExpiredConversation]) -> str:
    return plural(len(gone), "conversation")


def _as_json(one: ExpiredConversation) -> dict[str, Any]:
    return {"id": one.id, "last_used": one.updated, "messages": one.messages}
