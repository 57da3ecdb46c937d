"""Rows side by side in a report: on the left as they were, on the right as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.trajectories.report_markup import Html, element, fragment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.trajectories.report_figures import ShownSample
    from penstock.trajectories.samples import SampleTurn

__all__ = ["sample_html"]


def sample_html(shown: ShownSample, *, first: bool) -> Html:
    """One row, folded but for the first."""
    sample, metrics = shown.sample, shown.sample.metrics
    label = (
        f"{shown.file}, row {sample.row:,}: {metrics.turns_before:,} → {metrics.turns_after:,} turns, "
        f"{metrics.tokens_before:,} → {metrics.tokens_after:,} tokens"
    )
    gone = fragment(*_gone(sample.gone, metrics.turns_summarised))
    replaced = element(
        "tr", element("td", gone), element("td", _turn(sample.summary, "turn summary", numbered=False))
    )
    body = fragment(
        *_kept(sample.head, sample.gone[0].number if sample.gone else 1),
        replaced,
        *_kept(sample.tail, metrics.turns_before + 1),
    )
    sides = element(
        "table",
        element("caption", label),
        element("thead", element("tr", *(element("th", one, scope="col") for one in ("Before", "After")))),
        element("tbody", body),
        class_="sides",
    )
    summary = element("summary", element("span", sample.kind, class_="badge"), " ", label)
    reason = (element("p", f"Reason: {metrics.reason}"),) if metrics.reason else ()
    wide = element("div", sides, class_="wide", role="region", aria_label=label, tabindex="0")
    return element("details", summary, *reason, wide, class_="sample", **({"open": ""} if first else {}))


def _kept(turns: Sequence[SampleTurn], end: int) -> Iterator[Html]:
    """Turns that stay, the same on both sides. What lies between two that are shown is told."""
    for turn, following in zip(turns, [*(one.number for one in turns[1:]), end], strict=False):
        after = _turn(turn, "turn", text=turn.after) if turn.after is not None else _turn(turn, "turn")
        yield element("tr", element("td", _turn(turn, "turn")), element("td", after))
        if turn is not turns[-1] and (more := following - turn.number - 1):
            said = element("p", f"… {more:,} more that stay or are shown above", class_="more")
            yield element("tr", element("td", said, colspan="2"))


def _gone(turns: Sequence[SampleTurn], count: int) -> Iterator[Html]:
    hidden = count - len(turns)
    for at, turn in enumerate(turns):
        yield _turn(turn, "turn gone")
        if hidden and at == 2:
            yield element("p", f"… {hidden:,} more that gave way", class_="more")


def _turn(turn: SampleTurn, kind: str, *, text: str | None = None, numbered: bool = True) -> Html:
    place = f"{turn.number:,} · " if numbered else "summary · "
    return element(
        "div",
        element("p", f"{place}{turn.role} · {turn.characters:,} characters", class_="who"),
        element("p", text if text is not None else turn.text, class_="said", dir="auto"),
        class_=kind,
    )
