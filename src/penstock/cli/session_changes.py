"""`penstock sessions undo`, `pin`, `unpin`, `delete` and `expire`: changes to stored conversations."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from penstock.accounts.changes import change_pin, undo_compaction
from penstock.accounts.conversations import find_conversation
from penstock.accounts.display import format_time
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import DECLINED, align, confirm, screen_of
from penstock.cli.source import settings_of
from penstock.cli.stored import open_store_of
from penstock.errors import SettingsError
from penstock.measure.wording import pluralise
from penstock.sessions.retention import DAY_SECONDS, expire

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.stores.values import ExpiredConversation

__all__ = [
    "run_delete",
    "run_expire",
    "run_pin",
    "run_undo",
]


def run_undo(args: argparse.Namespace) -> int:
    """Undoes the last compaction. Raises UnknownSession."""
    with open_store_of(args, must_exist=True) as store:
        done = undo_compaction(store, find_conversation(store, args.id).id)
    report = {
        "id": done.conversation,
        "undone": done.undone,
        "view_tokens_before": done.tokens_before,
        "view_tokens_after": done.tokens_after,
    }
    return _report(args, str(done), report)


def run_pin(args: argparse.Namespace) -> int:
    """Pins or unpins a message. Raises UnknownSession, UnknownHandle."""
    with open_store_of(args, must_exist=True) as store:
        session_id = find_conversation(store, args.id).id
        done = change_pin(store, session_id, args.handle, pinned=args.action == "pin")
    more = {"whole_in_view": done.whole_in_view} if done.pinned else {}
    return _report(args, str(done), {"id": done.conversation, "pins": list(done.pins), **more})


def run_delete(args: argparse.Namespace) -> int:
    """Deletes a conversation, after asking. Raises UnknownSession."""
    with open_store_of(args, must_exist=True) as store:
        session = find_conversation(store, args.id)
        length = store.log_tip(session.id).length
        if not args.yes and not confirm(
            f"delete {session.conversation} with its {pluralise(length, 'message')}?"
        ):
            print("penstock: nothing was deleted", file=sys.stderr)
            return DECLINED
        gone = store.delete(session.id)
    text = f"deleted {session.conversation} and {pluralise(gone, 'message')} that no other conversation has"
    return _report(args, text, {"id": session.conversation, "deleted_messages": gone})


def run_expire(args: argparse.Namespace) -> int:
    """Deletes expired conversations, after asking; with `--dry-run` only shows it. Raises SettingsError."""
    days = args.days or settings_of(args).store.retention_days
    if days is None:
        raise SettingsError("after how many days? give --days N, or set store.retention_days")
    now = time.time()
    with open_store_of(args, keep_expired=True, must_exist=True) as store:
        gone = store.due(now - days * DAY_SECONDS)
        if gone and not args.dry_run:
            if not args.yes and not confirm(f"delete {_count(gone)} not used for {pluralise(days, 'day')}?"):
                print("penstock: nothing was deleted", file=sys.stderr)
                return DECLINED
            with ProgressLine("deleting"):
                gone = expire(store, now, days)
    report = {
        "days": days,
        "dry_run": args.dry_run,
        "conversations": [{"id": one.id, "last_used": one.updated, "messages": one.messages} for one in gone],
    }
    return _report(args, "\n".join(_expire_lines(gone, days, dry_run=args.dry_run)), report)


def _expire_lines(gone: Sequence[ExpiredConversation], days: int, *, dry_run: bool) -> Iterator[str]:
    if not gone:
        yield f"every conversation has been used in the last {pluralise(days, 'day')}"
        return
    yield f"{'would delete' if dry_run else 'deleted'} {_count(gone)} not used for {pluralise(days, 'day')}"
    rows = [[one.id, format_time(one.updated), pluralise(one.messages, "message")] for one in gone]
    yield from ("  " + "  ".join(cells) for cells in align(rows))


def _count(gone: Sequence[ExpiredConversation]) -> str:
    return pluralise(len(gone), "conversation")


def _report(args: argparse.Namespace, text: str, report: dict[str, Any]) -> int:
    screen_of(sys.stdout).say(json.dumps(report, indent=2) if args.json else text)
    return 0
