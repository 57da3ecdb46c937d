"""Rows side by side in a report: on the left as they were, on the right as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.trajectories.report_markup import Html, element, fragment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.trajectories.report_figures import ShownSample
    from penstock.trajectories.samples import SampleTurn, Stretch

__all__ = ["sample_html"]


def sample_html(shown: ShownSample, *, first: bool) -> Html:
    """One row, folded but for the first."""
    sample, metrics = shown.sample, shown.sample.metrics
    label = (
        f"{shown.file}, row {sample.row:,}: {metrics.turns_before:,} → {metrics.turns_after:,} turns, "
        f"{metrics.tokens_before:,} → {metrics.tokens_after:,} tokens"
    )
    body = fragment(
        *_kept(sample.head),
        element(
            "tr",
            element("td", *_gone(sample.gone)),
            element("td", _turn(sample.summary, "turn summary", numbered=False)),
        ),
        *_kept(sample.tail),
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


def _kept(stretch: Stretch) -> Iterator[Html]:
    """Turns that stay: the same on both sides, but for a note in one of them."""

    def line(turn: SampleTurn) -> Html:
        return element(
            "tr", element("td", _turn(turn, "turn")), element("td", _turn(turn, "turn", text=turn.after))
        )

    yield from map(line, stretch.first)
    if stretch.hidden:
        yield element("tr", element("td", _more(stretch.hidden, "stay"), colspan="2"))
    yield from map(line, stretch.last)


def _gone(stretch: Stretch) -> Iterator[Html]:
    yield from (_turn(turn, "turn gone") for turn in stretch.first)
    if stretch.hidden:
        yield _more(stretch.hidden, "gave way")
    yield from (_turn(turn, "turn gone") for turn in stretch.last)


def _more(hidden: int, what: str) -> Html:
    return element("p", f"… {hidden:,} more that {what}", class_="more")


def _turn(turn: SampleTurn, kind: str, *, text: str | None = None, numbered: bool = True) -> Html:
    place = f"{turn.number:,} · " if numbered else "summary · "
    return element(
        "div",
        element("p", f"{place}{turn.role} · {turn.characters:,} characters", class_="who"),
        element("p", text if text is not None else turn.text, class_="said", dir="auto"),
        class_=kind,
    )
