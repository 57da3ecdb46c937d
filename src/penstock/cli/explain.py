"""`penstock explain`: what would become of each message, and why; or one original. Nothing is written."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli.labels import Label, labels_of, mending_of
from penstock.cli.layout import aligned, clipped, width_of, wrapped
from penstock.cli.original import find_original, lines
from penstock.cli.output import write_stdout
from penstock.cli.progress import Progress
from penstock.cli.report import receipt_json, report_lines
from penstock.cli.runs import OLDER, REPAIRED, Entry, entries_of, grouped
from penstock.cli.screen import Screen, screen_of
from penstock.cli.source import read_given
from penstock.compaction.plan import Fate
from penstock.measure.tokens import tokenizer_for
from penstock.measure.weigh import weigh

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.cli.source import Given
    from penstock.engine.compress import Compressed

__all__ = ["run", "table"]

_COLOURS = {Fate.KEPT: "green", Fate.ELIDED: "yellow", Fate.SUMMARISED: "magenta", REPAIRED: "cyan"}
_TOOL_COLUMNS = 20
_NARROW_TOOL_COLUMNS = 12
_NARROW_COLUMNS = 80


def run(args: argparse.Namespace) -> int:
    """Explain the file. Raises what `read_given` and `compress_given` raise, and UnknownHandle."""
    given = read_given(args)
    if args.handle is not None:
        return _show_original(given, args)
    with Progress("planning"):
        from penstock.cli.engine import compress_given  # noqa: PLC0415 - see there

        result = compress_given(given, args)
        entries = _entries(given, result)
    screen = screen_of(sys.stdout)
    if args.json:
        messages = [_as_json(entry) for entry in entries if entry.fate != REPAIRED]
        repaired = [_as_json(entry) for entry in entries if entry.fate == REPAIRED]
        told = {"receipt": receipt_json(given, result), "messages": messages, "repaired": repaired}
        screen.say(json.dumps(told, indent=2))
        return 0
    for line in table(entries if args.all else grouped(entries), screen):
        screen.say(line)
    for line in report_lines(given, args, result, screen):
        screen.say(line)
    return 0


def table(entries: Sequence[Entry], screen: Screen) -> Iterator[str]:
    """One line for each entry, under a heading, then notes, and a blank line at the end of each."""
    if not entries:
        return
    fates = aligned([[entry.fate, ""] for entry in entries])
    heading, *rows = aligned(
        [["", "role", "tool", "tokens", "", ""], *(_row(entry, screen) for entry in entries)], right={0, 3, 5}
    )
    used = sum(map(width_of, heading)) + width_of(fates[0][0]) + 2 * 5 + 2
    yield screen.paint("  ".join(heading).rstrip(), "dim")
    for cells, entry, fate in zip(rows, entries, fates, strict=True):
        why = screen.clip(entry.reason.removeprefix(OLDER), used)
        painted = screen.paint(fate[0], _COLOURS[entry.fate])
        yield f"{'  '.join(cells[:4])} {cells[4]} {cells[5]}  {painted}  {why}".rstrip()
    yield ""
    notes = []
    if any(entry.reason.startswith(OLDER) for entry in entries):
        notes.append("summarised messages are older than the tail; their numbers lead back to them")
    if any(entry.count > 1 for entry in entries):
        notes.append("neighbours with the same fate share a line; --all shows each message")
    for note in notes:
        yield from (screen.paint(line, "dim") for line in wrapped(note, screen.columns))
    if notes:
        yield ""


def _show_original(given: Given, args: argparse.Namespace) -> int:
    """Show one message; with `--json` as the bytes that it came as, and a line break."""
    original = find_original(given, args.handle)
    if args.json:
        write_stdout(original.raw + b"\n")
        return 0
    screen = screen_of(sys.stdout)
    for line in lines(original, screen):
        screen.say(line)
    return 0


def _entries(given: Given, result: Compressed) -> list[Entry]:
    """A line for each message of the input. Verdicts are on the mended list, so each is told by its place."""
    messages = given.document.messages
    mending = mending_of(given.document)
    labels = labels_of(messages, mending.numbers)
    out = [place for place, number in enumerate(mending.numbers) if number is None]
    tokens = weigh([messages[place] for place in out], tokenizer_for(given.model))
    return entries_of(labels, result.verdicts, mending, dict(zip(out, tokens, strict=True)))


def _row(entry: Entry, screen: Screen) -> list[str]:
    changed = entry.after != entry.before or entry.fate in {Fate.ELIDED, Fate.SUMMARISED}
    narrow = 0 < screen.columns < _NARROW_COLUMNS
    label = entry.label
    handle, role = label.handle or "-", label.role
    if entry.count > 1:
        handle, role = f"{handle}–{entry.last}", f"{entry.count:,} messages"
        label = Label("", "", entry.tools)
    tools = clipped(label.tools_text, _NARROW_TOOL_COLUMNS if narrow else _TOOL_COLUMNS, screen.unicode)
    return [
        handle,
        role,
        tools,
        f"{entry.before:,}",
        screen.arrow if changed else "",
        f"{entry.after:,}" if changed else "",
    ]


def _as_json(entry: Entry) -> dict[str, Any]:
    return {
        "handle": entry.label.handle,
        "role": entry.label.role,
        "tools": list(entry.label.tools),
        "tokens_before": entry.before,
        "tokens_after": entry.after,
        "fate": entry.fate,
        "reason": entry.reason,
    }
