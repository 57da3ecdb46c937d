"""The texts of a chat: its status line, its summary at the end, and what compactions, tools and turns did."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.accounts.display import explain_unreported, format_money, format_sum, shorten_count
from penstock.cli.screen import clip, printable, width_of
from penstock.measure.wording import format_share, pluralise
from penstock.planning.policy import BY_HAND
from penstock.planning.receipt import DEGRADED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.accounts.spending import CompactionTotals, Spending
    from penstock.accounts.status import Status
    from penstock.loop.events import Compacted, ToolEnded, TurnEnded

__all__ = [
    "SECOND_COMPACTION",
    "StatusFragment",
    "compacted_first_line",
    "compaction_lines",
    "status_line",
    "strip_controls",
    "summary_lines",
    "tool_line",
    "turn_end_line",
]


SECOND_COMPACTION = (
    "this conversation has been compacted more than once, so answers may become less precise; /new starts a fresh one "
    "and keeps this one: /search finds what was said, /resume returns to it"
)
_NOTICEABLE_SECONDS = 0.05
_TIMED = re.compile(r"\d s$")  # a result that already says how long it took
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BAR_COLUMNS = 16
_NEAR = 0.85  # of the threshold: from here on the bar warns


class StatusFragment(NamedTuple):
    """A text and how it looks: `plain`, `strong`, `dim`, `bar`, `warn`, `good`, `bad`."""

    look: str
    text: str


def status_line(status: Status, columns: int, *, unicode: bool = True) -> list[StatusFragment]:
    """Returns the model, how full the window is, the cost and cache hits; drops what does not fit, the gauge last."""
    full = status.prompt_tokens / status.window_tokens if status.window_tokens else 0.0
    share = f"{full:.0%} of {shorten_count(status.window_tokens)}"
    parts = [
        [StatusFragment("plain", printable(status.model))],
        [*_bar(status, unicode=unicode), StatusFragment("plain", f" {share}")],
        [
            StatusFragment(
                "dim",
                _format_cost(status.spending) if status.requests else format_money(0.0),
            )
        ],
    ]
    if status.cache_hit is not None:
        parts.append([StatusFragment("dim", f"cache {status.cache_hit:.0%}")])
    if status.compactions:
        parts.append([StatusFragment("dim", pluralise(status.compactions, "compaction"))])
    while len(parts) > 1 and _measure_width(parts) > columns:
        parts.pop(-1 if len(parts) > 2 else 0)
    if _measure_width(parts) > columns:
        return [StatusFragment("plain", share[: max(0, columns)])]
    gap = StatusFragment("dim", "  ·  " if unicode else "  |  ")
    line = list(parts[0])
    for part in parts[1:]:
        line += [gap, *part]
    return line


def _measure_width(parts: Iterable[Iterable[StatusFragment]]) -> int:
    return sum(sum(width_of(one.text) for one in part) + 5 for part in parts) - 5


def _bar(status: Status, *, unicode: bool) -> Iterator[StatusFragment]:
    """Yields a bar of how full the window is, with a mark where compaction starts."""
    window = max(1, status.window_tokens)
    filled = min(_BAR_COLUMNS, round(status.prompt_tokens / window * _BAR_COLUMNS))
    if status.prompt_tokens and not filled:
        filled = 1
    mark = min(_BAR_COLUMNS - 1, round(status.threshold_tokens / window * _BAR_COLUMNS))
    on, off, cross = ("━", "─", "┼") if unicode else ("#", "-", "|")
    look = "warn" if status.prompt_tokens >= _NEAR * status.threshold_tokens else "bar"
    yield StatusFragment(look, on * filled)
    rest = "".join(cross if place == mark else off for place in range(filled, _BAR_COLUMNS))
    yield StatusFragment("dim", rest)


def summary_lines(spending: Spending, made: CompactionTotals, resume: str) -> list[str]:
    """Returns the usage and cost of the requests, and the command to resume; nothing if there were none."""
    if not spending.requests:
        return []
    usage, ratio = spending.usage, spending.cache_hit_ratio
    cached = [f"{usage.cache_read_tokens:,} read from the cache"]
    if usage.cache_write_tokens:
        cached.append(f"{usage.cache_write_tokens:,} written to it")
    output = f"{usage.output_tokens:,} out"
    if usage.reasoning_tokens:
        output += f" ({usage.reasoning_tokens:,} of them reasoning)"
    tokens = f"{usage.prompt_tokens:,} tokens in ({', '.join(cached)}), {output}"
    hits = "" if ratio is None else f" · cache hits {ratio:.0%}"
    compactions = pluralise(made.count, "compaction")
    if made.model_calls:
        compactions += (
            f" ({pluralise(made.model_calls, 'model call')}, {format_sum(made.cost, made.known_cost)})"
        )
    return [
        f"{pluralise(spending.requests, 'request')} · {tokens}{hits} · {_format_cost(spending)} · {compactions}",
        *([explain_unreported(spending.unreported)] if spending.unreported else []),
        *([f"to continue: {resume}"] if resume else []),
    ]


def _format_cost(spending: Spending) -> str:
    cost = format_sum(spending.cost, spending.known_cost)
    return "cost unknown" if cost == "unknown" else cost


def strip_controls(text: str) -> str:
    """Returns the text without control characters: a model, a file or a page may contain escape sequences."""
    return _CONTROLS.sub("", text)


def compaction_lines(made: Compacted, *, waited: bool) -> list[str]:
    """Returns the report on a compaction: what happened to how many messages, why now, what went wrong, and why the view may have grown."""
    receipt = made.receipt
    fates = ((receipt.summarised, "summarised"), (receipt.elided, "shortened"), (receipt.kept, "kept"))
    first = (
        f"compressed {pluralise(receipt.messages_before, 'message')}: "
        f"{', '.join(f'{count:,} {fate}' for count, fate in fates if count)}; "
        f"{receipt.tokens_before:,} → {receipt.tokens_after:,} tokens ({format_share(receipt.ratio)} of before)"
    )
    lines = [f"{first}{_format_wait(made.waited_seconds) if waited else ', prepared in the background'}"]
    if made.reason != BY_HAND:
        lines.append(f"  why now: {made.reason}")
    if receipt.outcome == DEGRADED:
        lines.append(f"  degraded: {receipt.reason}")
    elif receipt.reason:
        lines.append(f"  {receipt.reason}")
    if receipt.tokens_after > receipt.tokens_before:
        lines.append(f"  {str(receipt).splitlines()[-1].split(maxsplit=1)[1]}")
    return lines


def compacted_first_line(receipt: Mapping[str, Any]) -> str:
    """Returns the note on a conversation that was compacted when it was resumed; `receipt` comes from the store."""
    before, after = receipt["tokens_before"], receipt["tokens_after"]
    return (
        f"the window was nearly full, so the conversation was compacted first: {before:,} → {after:,} tokens"
    )


def turn_end_line(event: TurnEnded, resume: str = "") -> str:
    """Returns why a turn ended and how to continue; an empty text if it simply finished.

    `resume` is the command to do so from a script, where nothing can be typed.
    """
    match event.reason:
        case "done":
            return ""
        case "interrupted":
            return "stopped; the conversation is kept"
        case "steps":
            return f"{event.what or 'the step limit was reached'}; {_tell_next('to go on', resume)}"
        case _:
            failed = printable(event.what) or "the turn failed"
            return f"{failed}; {_tell_next('to try again', resume)}" if event.may_pass else failed


def _tell_next(purpose: str, resume: str) -> str:
    return f"{purpose}: {resume} -p continue" if resume else f"type 'continue' {purpose}"


def tool_line(event: ToolEnded, about: str, columns: int, *, unicode: bool = True) -> list[StatusFragment]:
    """Returns a call in one line: name, main argument, result, seconds."""
    mark = ("✗" if event.is_error else "✓") if unicode else ("x" if event.is_error else "+")
    arrow = " → " if unicode else " -> "
    is_quiet = event.seconds < _NOTICEABLE_SECONDS or _TIMED.search(event.summary)
    seconds = "" if is_quiet else f"  {event.seconds:.1f} s"
    shown = printable(about.strip())
    taken = 2 + width_of(event.name) + len(arrow) + len(seconds)
    # Each of the two may take half of the line, and what the other one leaves.
    most = max(12, columns // 2, columns - taken - width_of(shown) - 3)
    summary = clip(printable(event.summary.strip()) or "done", most, unicode)
    room = columns - taken - width_of(summary) - 2
    shown = f" {clip(shown, room, unicode)}" if shown and room >= 8 else ""
    look = "bad" if event.is_error else "good"
    return [
        StatusFragment(look, f"{mark} "),
        StatusFragment("strong", printable(event.name)),
        StatusFragment("plain", shown),
        StatusFragment("dim", arrow),
        StatusFragment("bad" if event.is_error else "plain", summary),
        StatusFragment("dim", seconds),
    ]


def _format_wait(seconds: float) -> str:
    return f", waited {seconds:.1f} s" if seconds >= _NOTICEABLE_SECONDS else ""
