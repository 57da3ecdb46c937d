"""The status line of a chat, and what is said when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.accounts.display import format_money, shorten_count
from penstock.cli.layout import plural, printable, width_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.accounts.spending import CompactionTotals, Spending
    from penstock.accounts.status import Status

__all__ = ["StatusFragment", "status_line", "summary_lines"]

_BAR_COLUMNS = 16
_NEAR = 0.85  # of the way to the threshold: from here on the bar warns


class StatusFragment(NamedTuple):
    """A text and how it looks: `dim`, `bar`, `warn`, `plain`."""

    look: str
    text: str


def status_line(status: Status, columns: int, *, unicode: bool = True) -> list[StatusFragment]:
    """Model, how full the window is, cost and cache hits; what does not fit is left out, the least needed first."""
    full = status.prompt_tokens / status.window_tokens if status.window_tokens else 0.0
    share = f"{full:.0%} of {shorten_count(status.window_tokens)}"
    parts = [
        [StatusFragment("plain", printable(status.model))],
        [*_bar(status, unicode=unicode), StatusFragment("plain", f" {share}")],
        [
            StatusFragment(
                "dim",
                "cost unknown"
                if status.cost is None and status.requests
                else format_money(status.cost or 0.0),
            )
        ],
    ]
    if status.cache_hit is not None:
        parts.append([StatusFragment("dim", f"cache {status.cache_hit:.0%}")])
    if status.compactions:
        parts.append([StatusFragment("dim", plural(status.compactions, "compaction"))])
    while len(parts) > 1 and _width(parts) > columns:
        parts.pop()
    if _width(parts) > columns:
        return [StatusFragment("plain", share[: max(0, columns)])]
    gap = StatusFragment("dim", "  ·  " if unicode else "  |  ")
    line = list(parts[0])
    for part in parts[1:]:
        line += [gap, *part]
    return line


def _width(parts: Iterable[Iterable[StatusFragment]]) -> int:
    return sum(sum(width_of(one.text) for one in part) + 5 for part in parts) - 5


def _bar(status: Status, *, unicode: bool) -> Iterator[StatusFragment]:
    """How full the window is, with a mark where it is compacted."""
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
    """What the requests took in all, and how to go on. Nothing where there were none."""
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
    cost = "cost unknown" if spending.cost is None else format_money(spending.cost)
    compactions = plural(made.count, "compaction")
    if made.model_calls:
        compactions += f" ({plural(made.model_calls, 'model call')}, {format_money(made.cost)})"
    return [
        f"{plural(spending.requests, 'request')} · {tokens}{hits} · {cost} · {compactions}",
        *([f"go on with: penstock chat --resume {resume}"] if resume else []),
    ]
