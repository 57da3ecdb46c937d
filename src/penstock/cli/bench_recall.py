"""`penstock bench recall`: whether a search of your own sessions brings back what a small view leaves out."""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING

from penstock.cli.layout import plural
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import screen_of
from penstock.cli.source import read_bytes
from penstock.cli.stored import conversations, found_session, opened_store
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.wire import parse_json
from penstock.errors import InputError
from penstock.replay.lookups import PLACES, Lookups, look_up
from penstock.transfer.reading import read_recorded

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.conversation.message import Message

__all__ = ["run"]

_NOTHING = (
    "no conversation is long enough, or none uses again what was said before; bring some with penstock sessions import, "
    "or name files"
)


def run(args: argparse.Namespace) -> int:
    """Look up, and show how often it was found. Raises InputError, StoreError."""
    total = Lookups()
    with ProgressLine("looking up") as progress:
        for number, messages in enumerate(_of_files(args.files) if args.files else _of_store(args), start=1):
            total += look_up(messages)
            progress.now(f"looking up, {plural(number, 'conversation')} read")
    if not total.asked:
        raise InputError(_NOTHING)
    screen = screen_of(sys.stdout)
    shares = dict(zip(map(str, PLACES), total.shares(), strict=True))
    if args.json:
        screen.say(json.dumps({"sessions": total.sessions, "asked": total.asked, "found": shares}, indent=2))
        return 0
    screen.say(
        f"{plural(total.asked, 'value')} that a view of 10% lacks, looked up in {plural(total.sessions, 'session')} "
        "by the words that stood before the next use"
    )
    for place, share in shares.items():
        where = "in the first excerpt" if place == "1" else f"in the first {place}"
        screen.say(f"  {where:<22}{share:>6.1%}")
    return 0


def _of_files(files: Sequence[str]) -> Iterator[Sequence[Message]]:
    for file in files:
        for recorded in read_recorded(read_bytes(file), "auto").conversations:
            wires = [parse_json(said.raw) for said in recorded.messages]
            yield decode_all(dialect_named(recorded.dialect), wires)


def _of_store(args: argparse.Namespace) -> Iterator[Sequence[Message]]:
    with opened_store(args) as store:
        if args.session:
            tips = [found_session(store, args.session)]
        else:
            tips = [row.tip for row in islice(conversations(store), args.limit)]
        for tip in tips:
            wires = [parse_json(entry.raw) for entry in store.read_from(tip.id, 0)]
            yield decode_all(dialect_named(tip.dialect), wires)
