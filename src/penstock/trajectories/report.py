"""The report of a run: figures gathered row by row, and a page of HTML that needs no other file, no script, no network.

What is held does not grow with the number of rows. `render` is a function of its arguments alone. Every text of the data
set is escaped, and a policy inside the page forbids a browser to load or run anything.
"""

from __future__ import annotations

import heapq
import math
import os
from bisect import bisect_right
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.measure.wording import format_share
from penstock.trajectories.metrics import (
    EDGES,
    BadRow,
    RowMetrics,
    Totals,
    TrajectoryMetrics,
    TrajectoryOutcome,
)
from penstock.trajectories.samples import RowSample, rank_of
from penstock.web.charts import Classes, distribution, shares, shorten_number
from penstock.web.markup import Html, element, figure_of, fragment, table
from penstock.web.page import PageSection, render_card, render_cards, render_single_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.trajectories.samples import SampleTurn, Stretch
    from penstock.trajectories.shards import ShardResult

__all__ = [
    "RATIO_CLASSES",
    "TURN_EDGES",
    "FigureSpread",
    "ReportFacts",
    "ReportFigures",
    "ShownRow",
    "ShownSample",
    "render",
    "sample_html",
]


RATIO_CLASSES = 20
TURN_EDGES = (1, 2, 3, 4, 6, 8, *(round(10 ** (power / 8)) for power in range(8, 41)))
"""The borders of the classes in which turns are counted, up to a hundred thousand."""

_ROW = msgspec.json.Decoder(RowMetrics)
_QUANTILES = ((0.05, "5 %"), (0.25, "25 %"), (0.5, "median"), (0.75, "75 %"), (0.95, "95 %"))
_MOST_BAD = 200
_NONE_READ = "No row could be read."
_MEANING = {
    TrajectoryOutcome.COMPRESSED: "turns replaced by a summary",
    TrajectoryOutcome.DEGRADED: "replaced by excerpts: the model wrote nothing that could be used",
    TrajectoryOutcome.UNDER_TARGET: "small enough: as they came",
    TrajectoryOutcome.NOT_COMPRESSIBLE: "too large, and nothing may give way: as they came",
    TrajectoryOutcome.BAD: "could not be read: as they came",
    TrajectoryOutcome.FAILED: "a fault in Penstock: as they came",
    TrajectoryOutcome.BLANK: "empty lines: as they came",
}
_BASE = math.log(1.02)
_LISTED = 15
_ROWS = 500
_SAMPLES = {"compressed": 3, "degraded": 2, "still over the limit": 2}


class ShownRow(msgspec.Struct, frozen=True):
    """A row in a list of the report."""

    file: str
    row: int
    metrics: TrajectoryMetrics


class ShownSample(msgspec.Struct, frozen=True):
    """A sample and the file that its row is in."""

    file: str
    sample: RowSample


class FigureSpread:
    """A spread of numbers: quantiles to within one percent, in room that does not grow with their number."""

    def __init__(self) -> None:
        self._classes: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.least = math.inf
        self.most = 0.0

    def add(self, value: float) -> None:
        """Counts a number of 0 or more."""
        place = math.ceil(math.log(value) / _BASE) if value > 0 else -(1 << 30)
        self._classes[place] = self._classes.get(place, 0) + 1
        self.count += 1
        self.total += value
        self.least, self.most = min(self.least, value), max(self.most, value)

    def quantile(self, share: float) -> float:
        """Returns the number that this share of all is not above; 0 if there are none."""
        left = share * self.count
        for place in sorted(self._classes):
            left -= self._classes[place]
            if left <= 0:
                middle = math.exp((place - 0.5) * _BASE) if place > -(1 << 30) else 0.0
                return min(max(middle, self.least), self.most)
        return self.most if self.count else 0.0

    @property
    def mean(self) -> float:
        """The mean; 0 if there are none."""
        return self.total / self.count if self.count else 0.0


class _Top:
    """The rows with the highest marks. Of equal ones, the first in the data set. Without marks, rows drawn by chance."""

    def __init__(self, size: int, mark: Callable[[TrajectoryMetrics], float | None] | None) -> None:
        self._size = size
        self._mark = mark
        self._heap: list[tuple[float, int, int, ShownRow]] = []

    def add(self, file: str, number: int, one: RowMetrics) -> None:
        mark = self._mark(one.metrics) if self._mark is not None else rank_of(number, one.row)
        if mark is None:
            return
        key = (mark, -number, -one.row)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, (*key, ShownRow(file, one.row, one.metrics)))
        elif key > self._heap[0][:3]:
            heapq.heapreplace(self._heap, (*key, ShownRow(file, one.row, one.metrics)))

    def rows(self) -> list[ShownRow]:
        return [entry[3] for entry in sorted(self._heap, key=lambda entry: entry[:3], reverse=True)]


class ReportFigures:
    """Takes the rows of shards in any order. What it says does not depend on that order."""

    def __init__(self) -> None:
        self.tokens_before, self.tokens_after = FigureSpread(), FigureSpread()
        self.turns_before, self.turns_after = FigureSpread(), FigureSpread()
        self.seconds = FigureSpread()
        self.turn_classes_before = [0] * (len(TURN_EDGES) + 1)
        self.turn_classes_after = [0] * (len(TURN_EDGES) + 1)
        self.ratio_classes = [0] * RATIO_CLASSES
        self._slowest = _Top(_LISTED, lambda one: one.seconds or None)
        self._shrunk = _Top(_LISTED, lambda one: -one.ratio if one.turns_summarised else None)
        self._over = _Top(_LISTED, lambda one: one.tokens_after if one.still_over_limit else None)
        self._degraded = _Top(
            _LISTED, lambda one: one.tokens_before if one.outcome is TrajectoryOutcome.DEGRADED else None
        )
        self._chosen = _Top(_ROWS, None)
        self._samples: dict[str, list[tuple[int, int, ShownSample]]] = {}
        self.rows = 0

    def add(self, file: str, done: ShardResult, rows: bytes) -> None:
        """Adds the rows of a shard, as lines of JSON."""
        for line in rows.splitlines():
            self._add(file, done.file, _ROW.decode(line))
        for sample in done.samples:
            best = self._samples.setdefault(sample.kind, [])
            best.append((sample.rank, done.file, ShownSample(file, sample)))
            best.sort(key=lambda entry: (*entry[:2], entry[2].sample.row))
            del best[_SAMPLES.get(sample.kind, 1) :]

    @property
    def slowest(self) -> list[ShownRow]:
        """The rows that took longest."""
        return self._slowest.rows()

    @property
    def shrunk(self) -> list[ShownRow]:
        """The rows that lost the largest share of their tokens."""
        return self._shrunk.rows()

    @property
    def over(self) -> list[ShownRow]:
        """The largest of the rows that are still too large."""
        return self._over.rows()

    @property
    def degraded(self) -> list[ShownRow]:
        """The largest of the rows that were to be written by a model, and were not."""
        return self._degraded.rows()

    @property
    def chosen(self) -> list[ShownRow]:
        """All rows if there are few, some drawn by chance if there are many; in order."""
        return sorted(self._chosen.rows(), key=lambda row: (row.file, row.row))

    @property
    def samples(self) -> list[ShownSample]:
        """Rows to look at, of every kind."""
        return [entry[2] for kind in _SAMPLES for entry in self._samples.get(kind, [])]

    def _add(self, file: str, number: int, one: RowMetrics) -> None:
        metrics = one.metrics
        if metrics.outcome is TrajectoryOutcome.BLANK:
            return
        self.rows += 1
        for top in (self._slowest, self._shrunk, self._over, self._degraded):
            top.add(file, number, one)
        self._chosen.add(file, number, one)
        if not metrics.tokens_before:
            return
        self.tokens_before.add(metrics.tokens_before)
        self.tokens_after.add(metrics.tokens_after)
        self.turns_before.add(metrics.turns_before)
        self.turns_after.add(metrics.turns_after)
        self.seconds.add(metrics.seconds)
        self.turn_classes_before[bisect_right(TURN_EDGES, metrics.turns_before)] += 1
        self.turn_classes_after[bisect_right(TURN_EDGES, metrics.turns_after)] += 1
        if metrics.turns_summarised:
            place = min(RATIO_CLASSES - 1, int(metrics.ratio * RATIO_CLASSES))
            self.ratio_classes[place] += 1


class ReportFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a run beside its rows. `settings` are those that a reader would need to repeat it."""

    source: str
    output: str | None
    totals: Totals
    bad: Sequence[BadRow]
    files: Sequence[str]
    seconds: float
    read_bytes: int
    written_bytes: int
    resumed_rows: int
    target_tokens: int
    settings: Mapping[str, Any]


def render(facts: ReportFacts, figures: ReportFigures) -> str:
    """Returns the page."""
    return render_single_page(
        f"Trajectories: {facts.source}",
        fragment(element("h1", "Trajectories within a budget"), _headline(facts)),
        [PageSection(*one) for one in _sections(facts, figures)],
        element("p", "Written by penstock trajectories. This page loads nothing."),
        files("penstock.trajectories").joinpath("report.css").read_text(encoding="utf-8"),
    )


def _sections(facts: ReportFacts, figures: ReportFigures) -> Iterator[tuple[str, str, Html]]:
    totals = facts.totals
    yield "total", "In total", _total(facts)
    yield "outcomes", "What became of the rows", _outcomes(totals)
    yield "tokens", "Tokens", _tokens(facts, figures)
    yield "turns", "Turns", _turns(figures)
    yield (
        "ratio",
        "What is left of a row",
        shares(
            "Share of its tokens that a row kept", "rows", figures.ratio_classes, "No row was compressed."
        ),
    )
    if totals.still_over_limit:
        yield "over", "Still over the limit", _over(facts, figures)
    if totals.count(TrajectoryOutcome.BAD, TrajectoryOutcome.FAILED):
        yield "bad", "Lines that could not be read", _bad(facts)
    if figures.degraded:
        yield "degraded", "Without the model’s words", _rows("The largest of them", figures.degraded)
    if figures.shrunk:
        yield "shrunk", "Shrunk most", _rows("Rows that lost the largest share", figures.shrunk)
    if figures.slowest:
        yield "slowest", "Slowest", _rows("Rows that took longest", figures.slowest)
    if figures.samples:
        yield (
            "samples",
            "Before and after",
            fragment(
                element(
                    "p",
                    "Rows drawn by chance. Long turns are cut short, secrets are blanked. Turns with a bar on the left "
                    "gave way to the summary on the right.",
                ),
                *(sample_html(one, first=at == 0) for at, one in enumerate(figures.samples)),
            ),
        )
    if figures.chosen:
        yield "rows", "Row by row", _write_samples(figures)
    yield "settings", "Settings of the run", _settings(facts)


def _headline(facts: ReportFacts) -> Html:
    totals = facts.totals
    written = [" (a dry run: nothing was written)"]
    if facts.output is not None:
        written = [" → ", element("code", facts.output)]
    over = f", {totals.still_over_limit:,} are still over it" if totals.still_over_limit else ""
    said = (
        f"{totals.rows:,} rows, none lost. {totals.compressed:,} were compressed to the target{over}. "
        f"{format_share(totals.ratio)} of all tokens are left."
    )
    if totals.left_out:
        said += f" This is a sample: {totals.left_out:,} rows were left out."
    return fragment(
        element("p", element("code", facts.source), *written, class_="files"),
        element("p", said, class_="lead"),
    )


def _total(facts: ReportFacts) -> Html:
    totals = facts.totals
    unread = totals.count(TrajectoryOutcome.BAD, TrajectoryOutcome.FAILED)
    cards = [
        render_card(
            "rows",
            figure_of(totals.rows, id="total-rows"),
            "in one file" if len(facts.files) == 1 else f"in {len(facts.files):,} files",
        ),
        render_card(
            "tokens before",
            figure_of(totals.tokens_before, shorten_number(totals.tokens_before), id="tokens-before"),
            f"{totals.tokens_before:,}",
        ),
        render_card(
            "tokens after",
            figure_of(totals.tokens_after, shorten_number(totals.tokens_after), id="tokens-after"),
            f"{totals.tokens_after:,}",
        ),
        render_card(
            "kept of all tokens",
            figure_of(round(totals.ratio, 4), f"{totals.ratio:.1%}", id="total-ratio"),
            f"{totals.turns_before:,} → {totals.turns_after:,} turns",
        ),
        render_card(
            "still over the limit",
            figure_of(totals.still_over_limit, id="still-over"),
            f"limit {facts.target_tokens:,} tokens",
            warns=bool(totals.still_over_limit),
        ),
        render_card(
            "could not be read",
            figure_of(unread, id="unread"),
            "copied as they are" if unread else "all rows were read",
            warns=bool(unread),
        ),
        render_card("time", figure_of(facts.seconds, _clock(facts.seconds), id="seconds"), _pace(facts)),
        render_card(
            "cost", figure_of(round(totals.cost, 6), f"${totals.cost:,.2f}", id="cost"), _calls(totals)
        ),
    ]
    return render_cards(cards)


def _explain_outcome(outcome: TrajectoryOutcome, totals: Totals) -> str:
    """Returns what an outcome means; of compressed rows, also how many are still over the target."""
    over = totals.still_over_limit - totals.count(TrajectoryOutcome.NOT_COMPRESSIBLE)
    if outcome is not TrajectoryOutcome.COMPRESSED or not over or totals.count(TrajectoryOutcome.DEGRADED):
        return _MEANING[outcome]
    return f"{_MEANING[outcome]}; {over:,} of them are still over the target"


def _outcomes(totals: Totals) -> Html:
    counted = [(outcome, totals.count(outcome)) for outcome in TrajectoryOutcome if totals.count(outcome)]
    whole = max(1, sum(rows for _, rows in counted))
    bar = _stack(counted, whole)
    rows = [
        (
            fragment(
                element("span", class_=f"key {outcome.value}", aria_hidden="true"),
                outcome.value.replace("_", " "),
            ),
            _explain_outcome(outcome, totals),
            figure_of(number, data_outcome=outcome.value),
            f"{number / whole:.1%}",
        )
        for outcome, number in counted
    ]
    shown = [bar, table("Rows by outcome", ("outcome", "meaning", "rows", "share"), rows, numbers=2)]
    if totals.reasons:
        reasons = sorted(totals.reasons.items(), key=lambda one: (-one[1], one[0]))
        shown.append(
            table("Reasons", ("reason", "rows"), [(why, figure_of(rows)) for why, rows in reasons], numbers=1)
        )
    return fragment(*shown)


def _stack(counted: Sequence[tuple[TrajectoryOutcome, int]], whole: int) -> Html:
    """Returns all outcomes beside each other in one bar; each can be seen, however rare it is."""
    parts: list[Html] = []
    place = 0.0
    for outcome, rows in counted:
        width = max(4.0, (1_000 - 6 * len(counted)) * rows / whole)
        title = element("title", f"{outcome.value}: {rows:,}")
        parts.append(
            element(
                "rect",
                title,
                x=f"{place:.1f}",
                width=f"{width:.1f}",
                height="18",
                class_=f"part {outcome.value}",
            )
        )
        place += width + 2
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {max(place - 2, 1):.1f} 18",
        preserveAspectRatio="none",
        aria_hidden="true",
        class_="stack",
    )


def _tokens(facts: ReportFacts, figures: ReportFigures) -> Html:
    totals = facts.totals
    classes = Classes(
        "Tokens of a row, before and after",
        "rows",
        "tokens",
        EDGES,
        totals.distribution_before,
        totals.distribution_after,
        facts.target_tokens,
        if_none=_NONE_READ,
    )
    return fragment(
        distribution(classes), _spreads("Tokens of a row", figures.tokens_before, figures.tokens_after)
    )


def _turns(figures: ReportFigures) -> Html:
    classes = Classes(
        "Turns of a row, before and after",
        "rows",
        "turns",
        TURN_EDGES,
        figures.turn_classes_before,
        figures.turn_classes_after,
        if_none=_NONE_READ,
    )
    return fragment(
        distribution(classes), _spreads("Turns of a row", figures.turns_before, figures.turns_after)
    )


def _spreads(caption: str, before: FigureSpread, after: FigureSpread) -> Html:
    if not before.count:
        return Html()
    heads = ("", "least", *(name for _, name in _QUANTILES), "most", "mean")
    rows = [
        (
            name,
            figure_of(int(spread.least)),
            *(figure_of(round(spread.quantile(share))) for share, _ in _QUANTILES),
            figure_of(int(spread.most)),
            figure_of(round(spread.mean)),
        )
        for name, spread in (("before", before), ("after", after))
    ]
    return table(f"{caption} (quantiles to within 1 %)", heads, rows, numbers=1)


def _over(facts: ReportFacts, figures: ReportFigures) -> Html:
    totals = facts.totals
    why = element(
        "p",
        f"In {totals.still_over_limit:,} rows the turns that must stay are too much by themselves. More ",
        element("code", "--passes"),
        ", a smaller ",
        element("code", "--keep-last"),
        " or a larger ",
        element("code", "--target-tokens"),
        " brings more of them under it.",
    )
    return fragment(why, _rows("The largest of them", figures.over))


def _bad(facts: ReportFacts) -> Html:
    unread = facts.totals.count(TrajectoryOutcome.BAD, TrajectoryOutcome.FAILED)
    shown = facts.bad[:_MOST_BAD]
    rows = [(one.file, figure_of(one.row), one.reason) for one in shown]
    said = f"{unread:,} rows were copied as they are."
    if unread > len(shown):
        said += f" These are {len(shown):,} of them; --metrics FILE.json has all."
    return fragment(element("p", said), table("Bad lines", ("file", "line or row", "reason"), rows))


def _rows(caption: str, rows: Sequence[ShownRow]) -> Html:
    heads = (
        *("file", "row", "outcome", "tokens before", "tokens after", "kept"),
        *("turns before", "turns after", "seconds"),
    )
    return table(caption, heads, [_row(one) for one in rows], numbers=3)


def _row(one: ShownRow) -> tuple[str, ...]:
    metrics = one.metrics
    outcome = metrics.outcome.value.replace("_", " ")
    marked = f"{outcome}, over" if metrics.still_over_limit else outcome
    return (
        one.file,
        figure_of(one.row),
        f"{marked}: {metrics.reason}" if metrics.reason else marked,
        figure_of(metrics.tokens_before),
        figure_of(metrics.tokens_after),
        figure_of(round(metrics.ratio, 4), f"{metrics.ratio:.0%}"),
        figure_of(metrics.turns_before),
        figure_of(metrics.turns_after),
        figure_of(metrics.seconds, f"{metrics.seconds:.3f}"),
    )


def _write_samples(figures: ReportFigures) -> Html:
    rows = figures.chosen
    whole = len(rows) == figures.rows
    said = (
        f"All {len(rows):,} rows."
        if whole
        else f"{len(rows):,} of {figures.rows:,} rows, drawn by chance; --metrics FILE.json has all."
    )
    return fragment(
        element("p", said),
        element(
            "details", element("summary", "Show the rows"), _rows("All rows" if whole else "Some rows", rows)
        ),
    )


def _settings(facts: ReportFacts) -> Html:
    rows = [(name.replace("_", " "), _plain(value)) for name, value in facts.settings.items()]
    if facts.resumed_rows:
        rows.append(("resumed", f"{facts.resumed_rows:,} rows had been done by an earlier run"))
    return table("Settings", ("setting", "value"), rows)


def _plain(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,}"
        case list() | tuple():
            return ", ".join(map(str, value)) or "none"
        case _:
            return str(value)


def _pace(facts: ReportFacts) -> str:
    if facts.seconds <= 0:
        return ""
    return f"{facts.read_bytes / facts.seconds / 1e6:,.1f} MB of input a second"


def _calls(totals: Totals) -> str:
    if not totals.model_calls:
        return "no model was asked"
    unknown = f", {totals.cost_unknown_rows:,} rows of unknown price" if totals.cost_unknown_rows else ""
    return f"{totals.model_calls:,} requests{unknown}"


def _clock(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def sample_html(shown: ShownSample, *, first: bool) -> Html:
    """Returns one row side by side: on the left as it was, on the right as it is. Folded but for the first."""
    sample, metrics = shown.sample, shown.sample.metrics
    label = (
        f"{shown.file}, row {sample.row:,}: {metrics.turns_before:,} → {metrics.turns_after:,} turns, "
        f"{metrics.tokens_before:,} → {metrics.tokens_after:,} tokens"
    )
    body = fragment(
        *_render_kept(sample.head),
        element(
            "tr",
            element("td", *_render_gone(sample.gone)),
            element("td", _turn(sample.summary, "turn summary", numbered=False)),
        ),
        *_render_kept(sample.tail),
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


def _render_kept(stretch: Stretch) -> Iterator[Html]:
    """Turns that stay: the same on both sides, but for a note in one of them."""

    def line(turn: SampleTurn) -> Html:
        return element(
            "tr", element("td", _turn(turn, "turn")), element("td", _turn(turn, "turn", text=turn.after))
        )

    yield from map(line, stretch.first)
    if stretch.hidden:
        yield element("tr", element("td", _more(stretch.hidden, "stay"), colspan="2"))
    yield from map(line, stretch.last)


def _render_gone(stretch: Stretch) -> Iterator[Html]:
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


class Report(ReportFigures):
    """The figures of a report, and where its page goes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def write(self, facts: ReportFacts) -> None:
        """Writes the page, whole or not at all. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.new")
        try:
            temporary.write_text(render(facts, self), encoding="utf-8")
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)
