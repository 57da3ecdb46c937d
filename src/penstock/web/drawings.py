"""Small drawings as SVG: how full a window is, columns by day, a line over time, what became of each message.

Sizes are attributes, so that no drawing needs a style of its own. Each says in words what it shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.accounts.timeline import ViewFate
from penstock.measure.wording import format_share
from penstock.web.charts import shorten_number
from penstock.web.markup import Html, element, fragment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.accounts.pressure import WindowPressure
    from penstock.accounts.timeline import FateRun

__all__ = ["draw_bars", "draw_columns", "draw_line", "draw_pressure", "draw_strip"]

_WIDTH, _HEIGHT = 600, 150
_BOTTOM, _TOP = 22, 24  # room for the names below, and for the largest value above
_MOST_RUNS = 500  # a strip is not drawn finer than a screen shows
_FATES = {
    ViewFate.VERBATIM: ("verbatim", 4, 28),
    ViewFate.ELIDED: ("elided", 14, 18),
    ViewFate.HANDED_ON: ("handed", 22, 10),
    ViewFate.GONE: ("gone", 28, 4),
}
"""The class of each fate, and the top and the height of its runs: they differ without colours, too."""


def draw_pressure(pressure: WindowPressure) -> Html:
    """Returns a bar that is as full as the window, with a mark at the threshold."""
    filled = min(100.0, 100 * pressure.share)
    mark = min(99.0, 100 * pressure.threshold_tokens / pressure.window_tokens)
    said = (
        f"{pressure.share:.0%} of the window, {pressure.tokens:,} of {pressure.window_tokens:,} tokens; "
        f"compacts from {pressure.threshold_tokens:,} on"
    )
    bar = element(
        "svg",
        element("title", said),
        element("rect", width="100", height="8", class_="track"),
        element("rect", width=_round(filled), height="8", class_="filled"),
        element("rect", x=_round(mark), width="1.2", height="8", class_="mark"),
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        role="img",
        aria_label=said,
        class_=f"bar {pressure.level}",
    )
    return fragment(bar, element("span", f"{pressure.share:.0%}", class_="figures", aria_hidden="true"))


def draw_bars(rows: Mapping[str, int], unit: str) -> Html:
    """Returns a list of bars, one for each name, as long as its share of the whole, with its number behind it."""
    whole = max(1, sum(rows.values()))
    lines = [
        element(
            "div",
            element("dt", name),
            element(
                "dd",
                element(
                    "svg",
                    element("rect", width="100", height="8", class_="track"),
                    element("rect", width=_round(100 * number / whole), height="8", class_="filled"),
                    viewBox="0 0 100 8",
                    preserveAspectRatio="none",
                    aria_hidden="true",
                    class_="bar",
                ),
            ),
            element("dd", f"{number:,} {unit} · {format_share(number / whole)}"),
        )
        for name, number in rows.items()
    ]
    return element("dl", *lines, class_="bars")


def draw_columns(title: str, values: Mapping[str, float], show: Callable[[float], str]) -> Html:
    """Returns a column for each name, such as a day, below a line at the largest value."""
    most = max(values.values(), default=0)
    if not most:
        return element("p", "Nothing yet.", class_="quiet")
    step = _WIDTH / max(len(values), 14)
    ground = _HEIGHT - _BOTTOM
    columns = [
        element(
            "rect",
            element("title", f"{name}: {show(value)}"),
            x=_round(at * step + step * 0.14),
            width=_round(step * 0.72),
            y=_round(ground - (ground - _TOP) * value / most),
            height=_round((ground - _TOP) * value / most),
            rx="1.5",
            class_="column",
        )
        for at, (name, value) in enumerate(values.items())
        if value
    ]
    names = list(values)
    labels = [
        element("text", names[0], y=_HEIGHT - 4),
        *(
            [
                element(
                    "text",
                    names[-1],
                    x=_round(len(names) * step),
                    y=_HEIGHT - 4,
                    text_anchor="end",
                )
            ]
            if len(names) > 4
            else []
        ),
    ]
    return _frame(title, most, show, [*columns, *labels])


def draw_line(
    title: str,
    points: Sequence[tuple[float, float]],
    marks: Sequence[float],
    show: Callable[[float], str],
    name: Callable[[float], str],
) -> Html:
    """Returns a line in steps: each value holds until the next one. There is a mark at each of these moments."""
    first, last = points[0][0], points[-1][0]
    most = max(1e-9, *(value for _, value in points))
    ground, span = _HEIGHT - _BOTTOM, max(last - first, 1e-9)

    def place(at: float) -> float:
        return _WIDTH * min(max((at - first) / span, 0.0), 1.0)

    heights = [_round(ground - (ground - _TOP) * value / most) for _, value in points]
    steps = (f"H{_round(place(at))} V{height}" for (at, _), height in zip(points, heights, strict=True))
    path = f"M0 {heights[0]} {' '.join(steps)}"
    drawn = [
        element("path", d=f"{path} V{ground} H0 Z", class_="area"),
        element("path", d=path, class_="value"),
        *(
            element("line", x1=_round(place(at)), x2=_round(place(at)), y1=_TOP, y2=ground, class_="cut")
            for at in marks
        ),
        element("text", name(first), y=_HEIGHT - 4),
        element("text", name(last), x=_WIDTH, y=_HEIGHT - 4, text_anchor="end"),
    ]
    return _frame(title, most, show, drawn)


def _frame(title: str, most: float, show: Callable[[float], str], drawn: Sequence[Html]) -> Html:
    ground = _HEIGHT - _BOTTOM
    lines = [
        element("line", x2=_WIDTH, y1=_round(y), y2=_round(y), class_="grid")
        for y in (_TOP, (_TOP + ground) / 2)
    ]
    return element(
        "svg",
        element("title", title),
        *lines,
        element("text", show(most), y=_TOP - 6),
        *drawn,
        element("line", x2=_WIDTH, y1=ground, y2=ground, class_="axis"),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=title,
        class_="spark",
    )


def draw_strip(runs: Sequence[FateRun], cuts: Sequence[tuple[int, int]], link: Callable[[int], str]) -> Html:
    """Returns a strip over all messages: what the view has of each, and where each compaction cut.

    `link` gives the address of a message by its position; every run leads to its first message.
    """
    length = runs[-1].end if runs else 0
    if not length:
        return element("p", "Nothing was said yet.", class_="quiet")

    def place(messages: int, least: float = 0.0) -> str:
        return f"{_round(max(least, 100 * messages / length))}%"

    drawn = [
        element(
            "a",
            element(
                "rect",
                element("title", _say_run(run)),
                x=place(run.start),
                y=_FATES[run.fate][1],
                width=place(run.end - run.start, least=0.06),  # one of thousands can be seen, too
                height=_FATES[run.fate][2],
                class_=_FATES[run.fate][0],
            ),
            href=link(run.start),
            aria_label=_say_run(run),
            tabindex="-1",
        )
        for run in _join_short(runs)
    ]
    marks = [
        element(  # a drawing of its own keeps its form, however wide the strip is
            "svg",
            element(
                "path",
                element("title", f"compaction s{number} cut here, behind m{at}"),
                d="M-5 44 l5 -9 l5 9 z",
                class_="cut",
            ),
            x=place(at),
            overflow="visible",
        )
        for number, at in cuts
    ]
    counted = {fate: sum(run.end - run.start for run in runs if run.fate is fate) for fate in ViewFate}
    said = ", ".join(f"{count:,} {fate.value}" for fate, count in counted.items() if count)
    strip = element(
        "svg",
        element("rect", y="32", width="100%", height="1", class_="base"),
        *drawn,
        *marks,
        role="group",
        aria_label=f"All {length:,} messages: {said}; {len(cuts)} cuts",
        class_="strip",
    )
    legend = [
        element(
            "li",
            element(
                "svg",
                element(
                    "rect", y=_FATES[fate][1] - 2, width="30", height=_FATES[fate][2], class_=_FATES[fate][0]
                ),
                viewBox="0 0 30 30",
                aria_hidden="true",
                class_="strip",
            ),
            f"{count:,} {fate.value}",
        )
        for fate, count in counted.items()
        if count
    ]
    if cuts:
        legend.append(element("li", "▲ where a compaction cut"))
    return fragment(strip, element("ul", *legend, class_="legend"))


def _say_run(run: FateRun) -> str:
    where = f"m{run.start + 1}" if run.end == run.start + 1 else f"m{run.start + 1}–m{run.end}"
    return f"{where}: {run.fate.value}, {shorten_number(run.tokens)} tokens"


def _join_short(runs: Sequence[FateRun]) -> list[FateRun]:
    """Returns runs that are wide enough to be seen: of many short neighbours, one with the fate that most have."""
    if len(runs) <= _MOST_RUNS:
        return list(runs)
    least = (runs[-1].end - runs[0].start) / _MOST_RUNS
    joined: list[FateRun] = []
    waiting: list[FateRun] = []
    for run in runs:
        waiting.append(run)
        if run.end - waiting[0].start >= least:
            joined.append(_join(waiting))
            waiting = []
    if waiting:
        joined.append(_join(waiting))
    return joined


def _join(runs: Sequence[FateRun]) -> FateRun:
    counted = {fate: sum(run.end - run.start for run in runs if run.fate is fate) for fate in ViewFate}
    fate = max(counted, key=counted.__getitem__)
    return type(runs[0])(fate, runs[0].start, runs[-1].end, sum(run.tokens for run in runs))


def _round(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
