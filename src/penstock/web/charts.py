"""Charts as SVG inside the page: drawn once, in the colours of the page, each with its numbers as a table beside it."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec

from penstock.web.markup import Html, element, figure_of, fragment, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    _Place: TypeAlias = (
        "tuple[tuple[float, float], float, int, int]"  # the arguments of a bar and of its number
    )

__all__ = ["Classes", "distribution", "shares", "shorten_number"]

_WIDTH, _PANEL, _GAP, _LEFT, _BOTTOM = 720, 120, 16, 8, 34
_HEAD = 36  # pixels above the highest bar: the name of the panel, and the number on the bar
_LEAST_BAR = 1.5  # pixels: what is there can be seen
_NUMBERED_BAR = 20


class Classes(msgspec.Struct, frozen=True):
    """Things counted by size, before and after. Class `at` goes from `edges[at - 1]` to below `edges[at]`.

    `title` says what is counted by which size, `things` is the plural of what is counted, and `if_none` is said where
    there is nothing. `limit` is a size that is drawn as a line.
    """

    title: str
    things: str
    unit: str
    edges: Sequence[int]
    before: Sequence[int]
    after: Sequence[int]
    limit: int | None = None
    if_none: str = "Nothing to count."


def distribution(classes: Classes) -> Html:
    """Draws two panels over the same classes, before above after, and the limit as a line through both."""
    used = [at for at, pair in enumerate(zip(classes.before, classes.after, strict=True)) if any(pair)]
    if not used:
        return element("p", classes.if_none, class_="quiet")
    if classes.limit is not None:
        used.append(bisect_right(classes.edges, classes.limit))
    shown = range(min(used), max(used) + 1)
    height = 2 * _PANEL + _GAP + _BOTTOM
    drawing = element(
        "svg",
        element("title", classes.title),
        _panel(classes.before, shown, 0, "before"),
        _panel(classes.after, shown, _PANEL + _GAP, "after"),
        _limit(classes, shown),
        _counts(classes.before, shown, 0, "before"),
        _counts(classes.after, shown, _PANEL + _GAP, "after"),
        _axis(classes, shown, height - _BOTTOM),
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_label=f"{classes.title}; the numbers are in the table below",
        class_="chart",
    )
    return fragment(element("div", drawing, class_="plot"), _numbers(classes, shown))


def shares(title: str, things: str, classes: Sequence[int], if_none: str = "Nothing to count.") -> Html:
    """Things counted by a share from 0 to 100 %, in classes of the same width."""
    tallest = max(classes, default=0)
    if not tallest:
        return element("p", if_none, class_="quiet")
    step = (_WIDTH - 2 * _LEFT) / len(classes)
    places = [
        ((_LEFT + at * step, step), _PANEL, number, tallest) for at, number in enumerate(classes) if number
    ]
    ticks = [
        element(
            "text",
            f"{at * 25} %",
            x=_round(_LEFT + at * (_WIDTH - 2 * _LEFT) / 4),
            y=_PANEL + 18,
            text_anchor=("start", "middle", "middle", "middle", "end")[at],
        )
        for at in range(5)
    ]
    drawing = element(
        "svg",
        element("title", title),
        element("g", *(_bar(*place) for place in places), class_="after"),
        *(_count(*place) for place in places),
        element("line", x1=_LEFT, x2=_WIDTH - _LEFT, y1=_PANEL, y2=_PANEL, class_="axis"),
        *ticks,
        viewBox=f"0 0 {_WIDTH} {_PANEL + 26}",
        role="img",
        aria_label=f"{title}; the numbers are in the table below",
        class_="chart",
    )
    width = 100 // len(classes)
    numbers = table(
        title,
        ("share", things),
        [(f"{at * width}–{(at + 1) * width} %", figure_of(n)) for at, n in enumerate(classes) if n],
        numbers=1,
    )
    return fragment(element("div", drawing, class_="plot"), _fold(numbers))


def shorten_number(number: float) -> str:
    """Returns a number in few characters: 950, 7.5k, 15.3k, 133k, 10.3M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit * 0.9995:
            value = number / limit
            return (f"{value:.1f}".removesuffix(".0") if value < 99.95 else f"{value:.0f}") + unit
    return f"{number:.0f}"


def _panel(counts: Sequence[int], shown: range, top: float, kind: str) -> Html:
    return element(
        "g",
        *(_bar(*place) for place in _places(counts, shown, top)),
        element("line", x1=_LEFT, x2=_WIDTH - _LEFT, y1=top + _PANEL, y2=top + _PANEL, class_="axis"),
        element("text", kind, x=_LEFT, y=top + 12, class_="name"),
        class_=kind,
    )


def _counts(counts: Sequence[int], shown: range, top: float, kind: str) -> Html:
    """Returns the numbers on the bars of a panel, above whatever is drawn."""
    numbers = (_count(*place) for place in _places(counts, shown, top))
    return element("g", *numbers, class_=f"counts-{kind}")


def _places(counts: Sequence[int], shown: range, top: float) -> list[_Place]:
    tallest = max(1, *counts)
    step = (_WIDTH - 2 * _LEFT) / len(shown)
    return [
        ((_LEFT + at * step, step), top + _PANEL, counts[place], tallest)
        for at, place in enumerate(shown)
        if counts[place]
    ]


def _bar(across: tuple[float, float], bottom: float, number: int, tallest: int) -> Html:
    """Returns a bar. `across` is where it begins and how wide its class is."""
    left, width = across
    height = _height(number, tallest)
    return element(
        "rect",
        x=_round(left + width * 0.06),
        width=_round(width * 0.88),
        y=_round(bottom - height),
        height=_round(height),
        rx="1.5",
    )


def _count(across: tuple[float, float], bottom: float, number: int, tallest: int) -> Html:
    """Returns the number on a bar, if there is room for one."""
    left, width = across
    if width < _NUMBERED_BAR:
        return Html()
    middle, above = _round(left + width / 2), _round(bottom - _height(number, tallest) - 4)
    return element("text", shorten_number(number), x=middle, y=above, text_anchor="middle", class_="count")


def _height(number: int, tallest: int) -> float:
    return max(_LEAST_BAR, (_PANEL - _HEAD) * number / tallest)


def _limit(classes: Classes, shown: range) -> Html:
    """Returns the limit, at its place inside its class."""
    if classes.limit is None:
        return Html()
    place = bisect_right(classes.edges, classes.limit)
    low = classes.edges[place - 1] if place else 1
    high = classes.edges[place] if place < len(classes.edges) else classes.limit + 1
    inside = math.log(classes.limit / low) / math.log(high / low) if high > low else 0.0
    step = (_WIDTH - 2 * _LEFT) / len(shown)
    x = _LEFT + (place - shown.start + inside) * step
    on_the_right = x > _WIDTH * 0.75
    return element(
        "g",
        element("line", x1=_round(x), x2=_round(x), y1="0", y2=2 * _PANEL + _GAP),
        element(
            "text",
            f"target {classes.limit:,}",
            x=_round(x + (-6 if on_the_right else 6)),
            y="12",
            text_anchor="end" if on_the_right else "start",
        ),
        class_="limit",
    )


def _axis(classes: Classes, shown: range, top: float) -> Html:
    step = (_WIDTH - 2 * _LEFT) / len(shown)
    each = max(1, math.ceil(len(shown) / 12))
    ticks = [
        element(
            "text", shorten_number(classes.edges[place - 1]), x=_round(_LEFT + at * step), y=_round(top + 16)
        )
        for at, place in enumerate(shown)
        if place and at % each == 0
    ]
    unit = element("text", classes.unit, x=_WIDTH - _LEFT, y=_round(top + 30), text_anchor="end")
    return element("g", *ticks, unit, class_="ticks")


def _numbers(classes: Classes, shown: range) -> Html:
    def name(place: int) -> str:
        low = f"{classes.edges[place - 1]:,}" if place else "0"
        if place == len(classes.edges):
            return f"{low} and more"
        high = classes.edges[place] - 1
        return low if place and high == classes.edges[place - 1] else f"{low}–{high:,}"

    rows = [(name(at), figure_of(classes.before[at]), figure_of(classes.after[at])) for at in shown]
    return _fold(
        table(
            f"{classes.things.capitalize()} by {classes.unit}",
            (classes.unit, f"{classes.things} before", f"{classes.things} after"),
            rows,
            numbers=1,
        )
    )


def _fold(numbers: Html) -> Html:
    return element("details", element("summary", "The numbers"), numbers)


def _round(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
