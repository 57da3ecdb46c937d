"""`penstock explain`: what would become of each message, and why. Nothing is written."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli.labels import Label, labels_of
from penstock.cli.layout import aligned, clipped, width_of
from penstock.cli.progress import Progress
from penstock.cli.report import receipt_lines
from penstock.cli.screen import Screen, screen_of
from penstock.cli.source import read_given
from penstock.compaction.plan import Fate, Verdict
from penstock.conversation.rules import repair

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

__all__ = ["run", "table"]

_COLOURS = {Fate.KEPT: "green", Fate.ELIDED: "yellow", Fate.SUMMARISED: "magenta"}
_TOOL_COLUMNS = 20
_OLDER = "older than the tail: "  # said once under the table, not on every line of it


def run(args: argparse.Namespace) -> int:
    """Explain the file. Raises what `read_given` and `compress_given` raise."""
    given = read_given(args)
    with Progress("planning"):
        from penstock.cli.engine import compress_given  # noqa: PLC0415 - see there

        result = compress_given(given, args)
        # Verdicts are on the mended list, so the labels are taken from the same.
        mended = repair(given.document.messages, given.document.dialect).messages
        labels = labels_of(mended, [verdict.number for verdict in result.verdicts])
    screen = screen_of(sys.stdout)
    if args.json:
        messages = [_as_json(label, v) for label, v in zip(labels, result.verdicts, strict=True)]
        screen.say(json.dumps({"receipt": result.receipt.to_dict(), "messages": messages}, indent=2))
        return 0
    for line in table(labels, result.verdicts, screen):
        screen.say(line)
    aimed = args.target_tokens is not None or args.context_length is not None
    for line in receipt_lines(result.receipt, screen, aimed=aimed):
        screen.say(line)
    return 0


def table(labels: Sequence[Label], verdicts: Sequence[Verdict], screen: Screen) -> Iterator[str]:
    """One line for each message, under a heading, and a blank line at the end."""
    if not verdicts:
        return
    rows = [_row(label, verdict, screen) for label, verdict in zip(labels, verdicts, strict=True)]
    fates = aligned([[verdict.fate.value, ""] for verdict in verdicts])
    heading, *lines = aligned([["", "role", "tool", "tokens", "", ""], *rows], right={0, 3, 5})
    used = sum(map(width_of, heading)) + width_of(fates[0][0]) + 2 * 5 + 2
    yield screen.paint("  ".join(heading).rstrip(), "dim")
    for cells, verdict, fate in zip(lines, verdicts, fates, strict=True):
        why = screen.clip(verdict.reason.removeprefix(_OLDER), used)
        painted = screen.paint(fate[0], _COLOURS[verdict.fate])
        yield f"{'  '.join(cells[:4])} {cells[4]} {cells[5]}  {painted}  {why}".rstrip()
    yield ""
    if any(verdict.reason.startswith(_OLDER) for verdict in verdicts):
        yield screen.paint(
            "summarised messages are older than the tail; their numbers lead back to them", "dim"
        )
        yield ""


def _row(label: Label, verdict: Verdict, screen: Screen) -> list[str]:
    changed = verdict.fate is not Fate.KEPT
    return [
        label.handle or "-",
        label.role,
        clipped(label.tools_text, _TOOL_COLUMNS, screen.unicode),
        f"{verdict.tokens_before:,}",
        screen.arrow if changed else "",
        f"{verdict.tokens_after:,}" if changed else "",
    ]


def _as_json(label: Label, verdict: Verdict) -> dict[str, Any]:
    return {
        "handle": label.handle,
        "role": label.role,
        "tools": list(label.tools),
        "tokens_before": verdict.tokens_before,
        "tokens_after": verdict.tokens_after,
        "fate": verdict.fate.value,
        "reason": verdict.reason,
    }
