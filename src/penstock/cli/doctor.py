"""`penstock doctor`: what is wrong with a store, and mending it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import msgspec

from penstock.cli.layout import plural, printable
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import screen_of
from penstock.cli.stored import opened_store

if TYPE_CHECKING:
    import argparse

    from penstock.stores.values import StoreFault

__all__ = ["FAULTS_REMAIN", "run"]

FAULTS_REMAIN = 1


def run(args: argparse.Namespace) -> int:
    """Check the store, with `--repair` mend it. The exit code is 1 where faults remain."""
    with opened_store(args, as_it_is=True, is_there=True) as store:
        with ProgressLine("mending" if args.repair else "checking"):
            mended = list(store.repair()) if args.repair else []
        with ProgressLine("checking"):
            faults = list(store.faults())
        url = store.url
    screen = screen_of(sys.stdout)
    if args.json:
        report = {"store": url, "mended": mended, "faults": faults}
        screen.say(json.dumps(msgspec.to_builtins(report), indent=2))
        return FAULTS_REMAIN if faults else 0
    for fault in mended:
        screen.say(f"mended  {_told(fault)}")
    for fault in faults:
        screen.say(
            f"{screen.paint('fault', 'yellow')}   {_told(fault)}{' (can be mended)' if fault.mendable else ''}"
        )
    if not faults:
        screen.say(f"{printable(url)} is sound")
        return 0
    mendable = sum(fault.mendable for fault in faults)
    hint = f"; penstock doctor --repair mends {mendable:,} of them" if mendable else ""
    screen.say(f"{plural(len(faults), 'fault')} in {printable(url)}{hint}")
    return FAULTS_REMAIN


def _told(fault: StoreFault) -> str:
    return printable(f"{fault.where}: {fault.what}")
