"""`penstock tokens`: what fills the window, by kind of content and by message."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.accounts.window import Fill, measure_fill
from penstock.cli.labels import Label, label_messages, number_input
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import Screen, align, clip, printable, screen_of, width_of, wrap
from penstock.cli.source import Given, RequestOverhead, beside_tokens, read_input
from penstock.measure.tokens import Tokenizer, tokenizer_for
from penstock.measure.windows import Window, resolve_window
from penstock.measure.wording import pluralise

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["Measured", "bar_rows", "lines", "percent", "run"]

_LARGEST = 5
_BAR_COLUMNS = 40
_TOOL_COLUMNS = 20


class Measured(msgspec.Struct, frozen=True, eq=False):
    """A conversation and what fills its window."""

    dialect: str
    model: str | None
    tokenizer: Tokenizer
    window: Window
    fill: Fill
    labels: list[Label]
    beside: RequestOverhead

    @property
    def beside_tokens(self) -> int:
        """Returns the tokens outside the list of messages, which `compress` does not count."""
        return sum(self.beside)

    @property
    def largest(self) -> list[int]:
        """Returns the positions of the largest messages, the largest first."""
        sizes = self.fill.messages
        return sorted(range(len(sizes)), key=lambda place: -sizes[place])[:_LARGEST]


def run(args: argparse.Namespace) -> int:
    """Measures the file. Raises what `read_input` raises."""
    given = read_input(args)
    with ProgressLine("counting"):
        measured = _measure(given, args)
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps(_as_json(measured), indent=2))
        return 0
    for line in lines(measured, screen):
        screen.say(line)
    return 0


def lines(measured: Measured, screen: Screen) -> Iterator[str]:
    """Yields the report: how full the window is, with what, and the largest messages."""
    total, window = measured.fill.total_tokens, measured.window
    share = total / window.tokens
    yield screen.paint(f"{total:,} of {window.tokens:,} tokens, {percent(share)} of the window", "bold")
    if screen.bars:
        room = min(_BAR_COLUMNS, screen.columns - 2)
        bar = screen.bar(share, room)
        rest = ("░" if screen.unicode else ".") * (room - len(bar))
        yield screen.paint(bar, "yellow" if share > 1 else "cyan") + screen.paint(rest, "dim")
    if measured.beside_tokens:
        listed = f"{total - measured.beside_tokens:,} in the list of messages, which compress counts"
        yield from wrap(f"{listed}, and {measured.beside_tokens:,} beside it", screen.columns)
    about = [
        pluralise(len(measured.fill.messages), "message"),
        measured.dialect,
        printable(measured.model or "no model named"),
        printable(f"window: {window.detail}"),
        measured.tokenizer.name + ("" if measured.tokenizer.exact else " (nearest)"),
    ]
    yield screen.paint(screen.clip(" · ".join(about), 0), "dim")
    if not measured.fill.messages:
        return
    yield ""
    rows = [[kind, f"{tokens:,}"] for kind, tokens in measured.fill.kinds.items()]
    yield from bar_rows(rows, list(measured.fill.kinds.values()), total, screen)
    if not measured.labels:
        return
    yield ""
    yield screen.paint("largest messages", "bold")
    chosen = measured.largest
    rows = [_message_row(measured, place, screen) for place in chosen]
    yield from bar_rows(rows, [measured.fill.messages[place] for place in chosen], total, screen)


def bar_rows(rows: list[list[str]], sizes: list[int], total: int, screen: Screen) -> Iterator[str]:
    """Yields rows whose last cell is a number of tokens, each with its share and, on a terminal, a bar."""
    cells = [[*row, percent(size / total if total else 0.0)] for row, size in zip(rows, sizes, strict=True)]
    width = len(cells[0]) if cells else 0
    for row, size in zip(align(cells, right={width - 1, width - 2}), sizes, strict=True):
        text = "  " + "  ".join(row)
        if not screen.bars:
            yield text
            continue
        room = min(_BAR_COLUMNS, screen.columns - width_of(text) - 3)
        yield f"{text}  {screen.paint(screen.bar(size / total if total else 0.0, max(room, 4)), 'cyan')}"


def _message_row(measured: Measured, place: int, screen: Screen) -> list[str]:
    label = measured.labels[place]
    tools = clip(label.tools_text, _TOOL_COLUMNS, screen.unicode)
    return [label.handle or "-", label.role, tools, f"{measured.fill.messages[place]:,}"]


def percent(share: float) -> str:
    """Returns a share as people read it."""
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{share:,.0%}" if share >= 0.0995 or share == 0 else f"{share:.1%}"


def _measure(given: Given, args: argparse.Namespace) -> Measured:
    document = given.document
    tokenizer = tokenizer_for(given.model)
    beside = beside_tokens(given, tokenizer)
    fill = measure_fill(document.messages, tokenizer, system_tokens=beside.system, tools_tokens=beside.tools)
    return Measured(
        dialect=document.dialect.name,
        model=given.model,
        tokenizer=tokenizer,
        window=_window(given, args),
        fill=fill,
        labels=label_messages(document.messages, number_input(document).numbers),
        beside=beside,
    )


def _window(given: Given, args: argparse.Namespace) -> Window:
    if args.context_length is not None:
        return Window(args.context_length, "config", "--context-length")
    return resolve_window(given.model, configured=given.settings.model.window_of(given.model or ""))


def _as_json(measured: Measured) -> dict[str, Any]:
    total, window = measured.fill.total_tokens, measured.window
    return {
        "tokens": total,
        "beside_tokens": measured.beside_tokens,
        "window_tokens": window.tokens,
        "window_source": window.source,
        "share_of_window": round(total / window.tokens, 4),
        "model": measured.model,
        "tokenizer": measured.tokenizer.name,
        "exact": measured.tokenizer.exact,
        "dialect": measured.dialect,
        "kinds": measured.fill.kinds,
        "messages": [
            {"handle": label.handle, "role": label.role, "tools": list(label.tools), "tokens": tokens}
            for label, tokens in zip(measured.labels, measured.fill.messages, strict=True)
        ],
        "largest": [measured.labels[place].handle for place in measured.largest],
    }
