"""`penstock compress`: a smaller conversation, and a report of what was done."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from penstock.cli.layout import printable
from penstock.cli.output import write_file, write_stdout
from penstock.cli.progress import ProgressLine
from penstock.cli.report import receipt_json, report_lines
from penstock.cli.screen import screen_of
from penstock.cli.source import read_given

if TYPE_CHECKING:
    import argparse

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Compress the file. Raises what `read_given` and `summarise_given` raise, and OSError."""
    given = read_given(args)
    with ProgressLine("compressing") as progress:
        from penstock.cli.engine import compressed_bytes, summarise_given  # noqa: PLC0415 - see there

        result = summarise_given(given, args, progress.now)
        data = compressed_bytes(given, result)
    to_file = args.output not in (None, "-")
    if to_file:
        write_file(args.output, data)
    else:
        write_stdout(data)
    screen = screen_of(sys.stdout if to_file else sys.stderr)
    if args.json:
        screen.say(json.dumps(receipt_json(given, result), indent=2))
        return 0
    for line in report_lines(given, args, result, screen):
        screen.say(line)
    if to_file:
        screen.say(f"  {screen.paint('written', 'dim')}    {printable(args.output)}, {len(data):,} bytes")
    return 0
