"""Shows a stored conversation for reading: long results are folded, and a terminal gets a pager."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.accounts.display import format_time
from penstock.cli.screen import printable, wrap
from penstock.measure.wording import pluralise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.accounts.talk import TalkCall, TalkEntry, TalkText
    from penstock.cli.screen import Screen

__all__ = ["page", "talk_lines"]

_RESULT_LINES = 4
_HARNESS_LINES = 1
_SYSTEM_LINES = 3
_ARGUMENT_CHARS = 60
_COLOURS = {"user": "green", "assistant": "cyan"}


def talk_lines(entries: Iterable[TalkEntry], screen: Screen, read_by: str = "--handle") -> Iterator[str]:
    """Yields the conversation: a line with speaker and handle, then what was said, then calls with their outcome.

    `read_by` is what shows all of a message, before its handle.
    """
    for entry in entries:
        yield ""
        about = [entry.handle, format_time(entry.at)]
        speaker = screen.paint(entry.speaker, _COLOURS.get(entry.speaker, "magenta"))
        yield f"{speaker} {screen.paint(' · '.join(about), 'dim')}"
        for text in entry.texts:
            yield from _text_lines(text, entry, screen, read_by)
        for call in entry.calls:
            yield from _call_lines(call, screen, read_by)


def _text_lines(text: TalkText, entry: TalkEntry, screen: Screen, read_by: str) -> Iterator[str]:
    lines = text.text.splitlines()
    if text.kind and text.kind != entry.speaker:
        yield f"  {screen.paint(f'[{printable(text.kind)}]', 'dim')}"
    if text.kind:
        yield from _fold(lines, _HARNESS_LINES, f"{read_by} {entry.handle}", screen)
    elif entry.speaker == "system":
        yield from _fold(lines, _SYSTEM_LINES, f"{read_by} {entry.handle}", screen)
    else:
        for line in lines:
            yield from wrap(f"  {printable(line)}", screen.columns, 2)


def _call_lines(call: TalkCall, screen: Screen, read_by: str) -> Iterator[str]:
    mark = "▸" if screen.unicode else ">"
    given = "  ".join(
        f"{name}: {_shorten(value)}" if name else _shorten(value) for name, value in call.arguments.items()
    )
    outcome = "" if call.answer else " (no result)"
    failed = f" {screen.paint('failed', 'yellow')}" if call.failed else ""
    line = screen.clip(printable(f"{call.name}  {given}".rstrip()) + outcome, 4)
    yield f"  {mark} {line}{failed}"
    lines = call.outcome.strip("\n").splitlines()
    if call.failed and len(lines) > _RESULT_LINES:  # an error says at its end what went wrong
        yield f"      {screen.paint(_say_more(len(lines) - _RESULT_LINES, f'{read_by} {call.answer}', 'earlier'), 'dim')}"
        lines = lines[-_RESULT_LINES:]
    yield from _fold(lines, _RESULT_LINES, f"{read_by} {call.answer}", screen, indent=6)


def _fold(lines: Sequence[str], most: int, command: str, screen: Screen, indent: int = 2) -> Iterator[str]:
    """Yields the first lines, and how to read the rest. A single further line is shown instead of the hint."""
    shown = lines if len(lines) <= most + 1 else lines[:most]
    for line in shown:
        yield " " * indent + screen.clip("    ".join(map(printable, line.split("\t"))), indent)
    if len(shown) < len(lines):
        yield " " * indent + screen.paint(_say_more(len(lines) - len(shown), command, "more"), "dim")


def _say_more(number: int, command: str, which: str) -> str:
    return f"… {pluralise(number, f'{which} line')}: {command}"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _ARGUMENT_CHARS else f"{line[:_ARGUMENT_CHARS]}…"


def page(lines: Iterable[str], screen: Screen) -> None:
    """Shows the lines through `$PAGER`, else `less`, if output is a terminal; otherwise writes them as they come."""
    command = shlex.split(os.environ.get("PAGER", "less"))
    if not screen.bars or not sys.stdin.isatty() or not command or shutil.which(command[0]) is None:
        for line in lines:
            screen.say(line)
        return
    text = "".join(f"{line}\n" for line in lines)
    # -F: no pager for what fits the screen, -R: colours, -X: it stays on the screen afterwards.
    with _ignore_interrupts():
        subprocess.run(  # noqa: S603 - the pager that the user chose
            command, input=text.encode("utf-8", "replace"), env={"LESS": "FRX", **os.environ}, check=False
        )


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Leaves Ctrl-C to the pager."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
