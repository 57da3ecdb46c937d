"""What a chat says of the things that happened, in lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.cli.chat.status import StatusFragment
from penstock.cli.layout import clipped, printable, width_of
from penstock.planning.policy import BY_HAND
from penstock.planning.receipt import DEGRADED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.loop.events import Compacted, ToolEnded, TurnEnded

__all__ = [
    "SECOND_COMPACTION",
    "compaction_lines",
    "ending_line",
    "nothing_line",
    "tame",
    "tidied_line",
    "tool_line",
]

SECOND_COMPACTION = (
    "this conversation has been compacted more than once, so answers may get less exact; /new begins a fresh one, and "
    "this one stays: /search finds what was said, /resume goes back to it"
)
_WORTH_TELLING_SECONDS = 0.05
_TIMED = re.compile(r"\d s$")  # a result that says itself how long it took
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def tame(text: str) -> str:
    """The text without what would drive the terminal: a model, a file or a page may hold escape sequences."""
    return _CONTROLS.sub("", text)


def compaction_lines(made: Compacted, *, waited: bool) -> list[str]:
    """What a compaction did: counts before and after, why now, what went wrong, and the odd case."""
    receipt = made.receipt
    first, *rest = str(receipt).splitlines()
    lines = [f"{first}{_waited(made.waited_seconds) if waited else ', prepared beside the work'}"]
    if made.reason != BY_HAND:
        lines.append(f"  why now: {made.reason}")
    if receipt.outcome == DEGRADED:
        lines.append(f"  degraded: {receipt.reason}")
    elif receipt.reason:
        lines.append(f"  {receipt.reason}")
    if receipt.tokens_after > receipt.tokens_before:
        lines.append(f"  {rest[-1].split(maxsplit=1)[1]}")
    return lines


def nothing_line() -> str:
    """What is said where there was nothing to do."""
    return "nothing to compress: what could give way is too little to be worth it"


def tidied_line(receipt: Mapping[str, Any]) -> str:
    """What is said where a conversation was compacted before it goes on. `receipt` is as the store keeps it."""
    before, after = receipt["tokens_before"], receipt["tokens_after"]
    return f"it nearly filled the window and was compacted first: {before:,} → {after:,} tokens"


def ending_line(event: TurnEnded) -> str:
    """Why a turn ended, where it is not simply done."""
    match event.reason:
        case "done":
            return ""
        case "interrupted":
            return "stopped; the conversation is kept, go on whenever you like"
        case "steps":
            return f"{event.what or 'the limit of steps was reached'}; say 'continue' to go on"
        case _:
            return printable(event.what) or "the turn failed"


def tool_line(event: ToolEnded, about: str, columns: int, *, unicode: bool = True) -> list[StatusFragment]:
    """A call in one line: name, main argument, result, seconds."""
    mark = ("✗" if event.is_error else "✓") if unicode else ("x" if event.is_error else "+")
    arrow = " → " if unicode else " -> "
    told = event.seconds < _WORTH_TELLING_SECONDS or _TIMED.search(event.summary)
    seconds = "" if told else f"  {event.seconds:.1f} s"
    shown = printable(about.strip())
    taken = 2 + width_of(event.name) + len(arrow) + len(seconds)
    # Each of the two may have half the line, and what the other one leaves of it.
    most = max(12, columns // 2, columns - taken - width_of(shown) - 3)
    summary = clipped(printable(event.summary.strip()) or "done", most, unicode)
    room = columns - taken - width_of(summary) - 2
    shown = f" {clipped(shown, room, unicode)}" if shown and room >= 8 else ""
    look = "bad" if event.is_error else "good"
    return [
        StatusFragment(look, f"{mark} "),
        StatusFragment("strong", printable(event.name)),
        StatusFragment("plain", shown),
        StatusFragment("dim", arrow),
        StatusFragment("bad" if event.is_error else "plain", summary),
        StatusFragment("dim", seconds),
    ]


def _waited(seconds: float) -> str:
    return f", waited {seconds:.1f} s" if seconds >= _WORTH_TELLING_SECONDS else ""
