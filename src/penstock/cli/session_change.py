"""`penstock sessions undo`, `pin`, `unpin` and `delete`: what changes a stored conversation."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli.layout import plural
from penstock.cli.screen import screen_of
from penstock.cli.session_list import view_tokens
from penstock.cli.stored import SHORT, found_session, opened_store
from penstock.errors import SettingsError
from penstock.sessions.session import Session

if TYPE_CHECKING:
    import argparse

__all__ = [
    "DECLINED",
    "agreed",
    "pinned_text",
    "run_delete",
    "run_pin",
    "run_undo",
    "undone_text",
    "unpinned_text",
]

DECLINED = 130


def run_undo(args: argparse.Namespace) -> int:
    """Take back the last compaction. Raises UnknownSession."""
    with opened_store(args, is_there=True) as store:
        session = Session.resume(store, found_session(store, args.id).id)
        before = view_tokens(store, session.id)
        undone = session.undo()
        after = view_tokens(store, session.id)
    text = undone_text(session.row.conversation, before, after, undone=undone)
    report = {"undone": undone, "view_tokens_before": before, "view_tokens_after": after}
    return _said(args, text, {"id": session.row.conversation, **report})


def run_pin(args: argparse.Namespace) -> int:
    """Pin a message, or unpin it. Raises UnknownSession, UnknownHandle."""
    pinned, handle = args.action == "pin", args.handle.lower()
    with opened_store(args, is_there=True) as store:
        session = Session.resume(store, found_session(store, args.id).id)
        whole = session.pin(handle) if pinned else True
        if not pinned:
            session.unpin(handle)
        pins = [f"m{place + 1}" for place in sorted(store.pins(session.id))]
    text = pinned_text(handle, whole=whole) if pinned else unpinned_text(handle)
    more = {"whole_in_view": whole} if pinned else {}
    return _said(args, text, {"id": session.row.conversation, "pins": pins, **more})


def undone_text(conversation: str, before: int, after: int, *, undone: bool) -> str:
    """What was taken back."""
    if not undone:
        return f"nothing to undo: {conversation[:SHORT]} has no compaction"
    return f"took back the last compaction of {conversation[:SHORT]}: {before:,} → {after:,} tokens"


def pinned_text(handle: str, *, whole: bool) -> str:
    """What holds for the message from now on; `whole` says whether it stands in the view as it came."""
    if whole:
        return f"{handle} stays whole in later compactions"
    return f"{handle} is not whole in the view: it comes back with the next compaction, and stays"


def unpinned_text(handle: str) -> str:
    """What holds for the message from now on."""
    return f"{handle} is no longer pinned"


def run_delete(args: argparse.Namespace) -> int:
    """Delete a conversation, if the person agrees. Raises UnknownSession."""
    with opened_store(args, is_there=True) as store:
        session = found_session(store, args.id)
        length = store.log_tip(session.id).length
        if not args.yes and not agreed(
            f"delete {session.conversation} with its {plural(length, 'message')}?"
        ):
            print("penstock: nothing was deleted", file=sys.stderr)
            return DECLINED
        gone = store.delete(session.id)
    text = f"deleted {session.conversation}, {plural(gone, 'message')} that no other conversation has"
    return _said(args, text, {"id": session.conversation, "deleted_messages": gone})


def agreed(question: str) -> bool:
    """Whether the person at the terminal says yes. Raises SettingsError where nobody can be asked."""
    if sys.stdin is None or sys.stderr is None or not sys.stdin.isatty():
        raise SettingsError("deleting cannot be taken back, and nobody can be asked here: add --yes")
    print(f"penstock: {question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _said(args: argparse.Namespace, text: str, report: dict[str, Any]) -> int:
    screen_of(sys.stdout).say(json.dumps(report, indent=2) if args.json else text)
    return 0
