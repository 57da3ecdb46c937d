"""`penstock sessions export`: a stored conversation as a file."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from penstock.cli.layout import plural, printable
from penstock.cli.output import write_file, write_stdout
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import screen_of
from penstock.cli.stored import found_session, opened_store
from penstock.sessions.exporting import export_conversation, write_document

if TYPE_CHECKING:
    import argparse

__all__ = ["run_export"]


def run_export(args: argparse.Namespace) -> int:
    """Write the conversation. Raises UnknownSession, and OSError where it cannot be written."""
    with ProgressLine("exporting"), opened_store(args, is_there=True) as store:
        session = found_session(store, args.id)
        found = export_conversation(store, session.id, view=args.view, dialect=args.dialect)
    data = write_document(found.messages, args.format)
    to_file = args.output not in (None, "-")
    if to_file:
        write_file(args.output, data)
    else:
        write_stdout(data)
    screen = screen_of(sys.stdout if to_file else sys.stderr)
    if args.json:
        report = {"id": session.conversation, "dialect": found.dialect, "messages": len(found.messages)}
        screen.say(
            json.dumps({**report, "bytes": len(data), "lost": found.lost, "missing": found.missing}, indent=2)
        )
        return 0
    if to_file:
        screen.say(
            f"exported {plural(len(found.messages), 'message')} to {printable(args.output)}, {len(data):,} bytes"
        )
    if found.missing:
        screen.say(f"  {plural(found.missing, 'message')} lacking in the store: penstock doctor says which")
    for what, count in found.lost.items():
        screen.say(f"  not said in {found.dialect}: {printable(what)}, {plural(count, 'time')}")
    return 0
