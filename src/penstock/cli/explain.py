"""`penstock explain`: the fate of each message and the reason for it, or one original. Nothing is written."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli.compress import receipt_json, report_lines
from penstock.cli.labels import Label, label_messages
from penstock.cli.original import find_original, lines
from penstock.cli.output import write_stdout
from penstock.cli.progress import ProgressLine
from penstock.cli.runs import OLDER, VerdictEntry, group_entries, list_entries
from penstock.cli.screen import Screen, align, clip, drop_columns, screen_of, width_of, wrap
from penstock.cli.source import read_input
from penstock.planning.plan import Fate

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.cli.source import Given
    from penstock.engine.compress import Compressed

__all__ = ["run", "table"]

_COLOURS: dict[str, str] = {
    Fate.KEPT: "green",
    Fate.ELIDED: "yellow",
    Fate.SUMMARISED: "magenta",
    Fate.REPAIRED: "cyan",
}
_TOOL_COLUMNS = 20
_LEAST_TOOL_COLUMNS = 8
_REASON_COLUMNS = 24  # the tools give way to that much of the reasons
_LEAST_REASON_COLUMNS = 8


def run(args: argparse.Namespace) -> int:
    """Explains the file. Raises what `read_input` and `compress_given` raise, and UnknownHandle."""
    given = read_input(args)
    if args.handle is not None:
        return _show_original(given, args)
    with ProgressLine("planning"):
        from penstock.cli.compress import compress_given  # noqa: PLC0415 - see there

        result = compress_given(given, args)
        entries = _entries(given, result)
    screen = screen_of(sys.stdout)
    if args.json:
        messages = [_as_json(entry) for entry in entries if entry.fate != Fate.REPAIRED]
        repaired = [_as_json(entry) for entry in entries if entry.fate == Fate.REPAIRED]
        told = {"receipt": receipt_json(given, result), "messages": messages, "repaired": repaired}
        screen.say(json.dumps(told, indent=2))
        return 0
    for line in table(entries if args.all else group_entries(entries), screen):
        screen.say(line)
    for line in report_lines(given, args, result, screen):
        screen.say(line)
    return 0


def table(entries: Sequence[VerdictEntry], screen: Screen) -> Iterator[str]:
    """Yields the table: a heading, a line for each entry, then notes; a blank line ends the table and the notes."""
    if not entries:
        return
    for cells, entry in zip(_cells(entries, screen), (None, *entries), strict=True):
        line = "  ".join(cells)
        if entry is None:
            yield screen.paint(line.rstrip(), "dim")
            continue
        used = width_of(line) + 2
        fits = not screen.columns or screen.columns - used >= _LEAST_REASON_COLUMNS
        why = screen.clip(entry.reason.removeprefix(OLDER), used) if fits else ""
        *before, fate = cells
        yield f"{'  '.join(before)}  {screen.paint(fate, _COLOURS[entry.fate])}  {why}".rstrip()
    yield ""
    notes = []
    if any(entry.reason.startswith(OLDER) for entry in entries):
        notes.append("summarised messages are older than the tail; each can be read by its handle")
    if any(entry.count > 1 for entry in entries):
        notes.append("neighbours share a line; --all shows each message")
    for note in notes:
        yield from (screen.paint(line, "dim") for line in wrap(note, screen.columns))
    if notes:
        yield ""


def _show_original(given: Given, args: argparse.Namespace) -> int:
    """Shows one message; with `--json` its exact bytes and a line break."""
    original = find_original(given, args.handle)
    if args.json:
        write_stdout(original.raw + b"\n")
        return 0
    screen = screen_of(sys.stdout)
    for line in lines(original, screen):
        screen.say(line)
    return 0


def _entries(given: Given, result: Compressed) -> list[VerdictEntry]:
    verdicts = result.verdicts
    numbers = [verdict.number or None for verdict in verdicts]
    return list_entries(label_messages(given.document.messages, numbers), verdicts, result.added)


def _cells(entries: Sequence[VerdictEntry], screen: Screen) -> list[list[str]]:
    """Returns the columns of the heading and of each line, without the reason; the tools only if there is room."""
    sizes = _sizes(entries, screen.arrow)
    names = [_names(entry) for entry in entries]
    fixed = align(
        [["", "role", sizes[0], ""]]
        + [
            [*name[:2], size, entry.fate] for name, size, entry in zip(names, sizes[1:], entries, strict=True)
        ],
        right={0},
    )
    width = max(map(width_of, (entry.fate for entry in entries)))
    room = _TOOL_COLUMNS
    if screen.columns:
        used = sum(map(width_of, fixed[0][:3])) + width + 2 * 5
        room = min(room, screen.columns - used - _REASON_COLUMNS)
    tools = ["tool", *(clip(name[2], room, screen.unicode) for name in names)]
    if room < _LEAST_TOOL_COLUMNS or not any(tools[1:]):
        rows = [[*cells[:3], cells[3].ljust(width)] for cells in fixed]
        return drop_columns(rows, screen.columns, (1,))  # the role, since the handle names the message
    shown = align([[tool, ""] for tool in tools])
    return [
        [*cells[:2], tool[0], cells[2], cells[3].ljust(width)]
        for cells, tool in zip(fixed, shown, strict=True)
    ]


def _names(entry: VerdictEntry) -> tuple[str, str, str]:
    """Returns handle, role and tools; for a run, its first and last handle, its length and all its tools."""
    label = entry.label
    if entry.count == 1:
        return label.handle or "-", label.role, label.tools_text
    many = Label("", "", entry.tools).tools_text
    return f"{label.handle}–{entry.last}", f"{entry.count:,} messages", many


def _sizes(entries: Sequence[VerdictEntry], arrow: str) -> list[str]:
    """Returns the token columns of the heading and of each line: before, and after if that differs."""
    before = ["tokens", *(f"{entry.before:,}" for entry in entries)]
    after = ["", *(f"{entry.after:,}" if _is_changed(entry) else "" for entry in entries)]
    left, right = max(map(len, before)), max(map(len, after))
    return [
        f"{one:>{left}} {arrow if two else ' ' * len(arrow)} {two:>{right}}" if right else f"{one:>{left}}"
        for one, two in zip(before, after, strict=True)
    ]


def _is_changed(entry: VerdictEntry) -> bool:
    return entry.after != entry.before or entry.fate in {Fate.ELIDED, Fate.SUMMARISED}


def _as_json(entry: VerdictEntry) -> dict[str, Any]:
    return {
        "handle": entry.label.handle,
        "role": entry.label.role,
        "tools": list(entry.label.tools),
        "tokens_before": entry.before,
        "tokens_after": entry.after,
        "fate": entry.fate,
        "reason": entry.reason,
    }
