"""The page of usage: what requests used and cost, by model and by day, and what compaction cost and saved."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

from penstock.accounts.display import explain_unreported, format_money, format_sum, shorten_count
from penstock.measure.wording import pluralise
from penstock.web.drawings import draw_bars, draw_columns
from penstock.web.markup import Html, element, figure_of, fragment, table
from penstock.web.page import PageSection, render_card, render_cards, render_section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.accounts.spending import CompactionTotals, Spending
    from penstock.accounts.usage import Insights, UsageReport

__all__ = ["PERIODS", "render_usage"]

PERIODS = (1, 7, 30, 90)
_HEADS = ("requests", "prompt", "cached", "output", "cost")


def render_usage(usage: UsageReport, insights: Insights) -> Html:
    """Returns the whole page: the last days, and everything on record."""
    periods = [
        element(
            "li",
            element(
                "a",
                "today" if days == 1 else f"{days} days",
                href=f"/usage?days={days}",
                aria_current="page" if days == insights.days else None,
            ),
        )
        for days in PERIODS
    ]
    days = pluralise(insights.days, "day")
    total, made = insights.total, insights.compactions
    cards = [
        render_card("requests", figure_of(total.requests, id="requests"), f"in {pluralise(insights.conversations, 'conversation')}"),
        render_card(
            "cost",
            element("span", format_sum(total.cost if total.requests else 0.0, total.known_cost), id="cost"),
            f"{shorten_count(total.usage.prompt_tokens)} tokens in, {shorten_count(total.usage.output_tokens)} out",
        ),
        render_card(
            "from the cache",
            element("span", "–" if total.cache_hit_ratio is None else f"{total.cache_hit_ratio:.0%}", id="cache-hit"),
            "of all prompt tokens",
        ),
        render_card(
            "saved by compaction",
            element("span", format_sum(made.saved, made.known_saved), id="saved"),
            f"{shorten_count(made.saved_tokens)} tokens not sent again; it cost {format_sum(made.cost, made.known_cost)}",
        ),
    ]  # fmt: skip
    sections = [
        PageSection("models", f"By model, the last {days}", _render_spending("model", insights.models)),
        PageSection("cache", "Where prompt tokens came from", _render_cache(total)),
    ]
    parts = [
        element("h1", "Usage"),
        element("nav", element("ul", *periods), aria_label="Period", class_="periods"),
        render_cards(cards),
        element("div", *(render_section(one) for one in sections), class_="pair"),
        render_section(PageSection("days", "By day", _render_days(insights))),
        render_section(PageSection("compaction", "Compaction", _render_compactions(insights))),
        render_section(PageSection("all", "Everything on record", _render_all(usage))),
        element(
            "p",
            "The same figures: ",
            element("code", "penstock usage --json"),
            " and ",
            element("code", f"penstock insights --days {insights.days} --json"),
            ".",
            class_="quiet small",
        ),
    ]
    return element("div", *parts, class_="named")


def _render_spending(what: str, groups: Mapping[str, Spending]) -> Html:
    if not groups:
        return element("p", "No requests are on record.", class_="quiet")
    rows = [(name or "unknown", *_show_spending(one)) for name, one in groups.items()]
    return table(f"Requests by {what}", (what, *_HEADS), rows, numbers=1)


def _show_spending(one: Spending) -> tuple[str, ...]:
    ratio = one.cache_hit_ratio
    return (
        figure_of(one.requests),
        figure_of(one.usage.prompt_tokens),
        "–" if ratio is None else f"{ratio:.0%}",
        figure_of(one.usage.output_tokens),
        format_sum(one.cost, one.known_cost),
    )


def _render_cache(total: Spending) -> Html:
    used = total.usage
    if not used.prompt_tokens:
        return element("p", "Nothing was sent.", class_="quiet")
    written = used.cache_write_tokens + used.cache_write_1h_tokens
    rows = {
        "read from the cache": used.cache_read_tokens,
        "written to the cache": written,
        "neither": max(0, used.prompt_tokens - used.cache_read_tokens - written),
    }
    note = (
        element("p", explain_unreported(total.unreported), class_="small quiet more")
        if total.unreported
        else Html()
    )
    return fragment(draw_bars(rows, ""), note)


def _render_days(insights: Insights) -> Html:
    if not insights.per_day:
        return element("p", "No requests are on record.", class_="quiet")
    known = insights.per_day
    costs = {day: known[day].known_cost if day in known else 0.0 for day in _fill_days(known)}
    rows = [(day, *_show_spending(one)) for day, one in reversed(insights.per_day.items())]
    drawn = draw_columns("Cost by day", costs, format_money) if any(costs.values()) else Html()
    return element(
        "div", drawn, table("Requests by day", ("day", *_HEADS), rows, numbers=1), class_="pair within"
    )


def _fill_days(days: Iterable[str]) -> list[str]:
    """Returns all days from the first to the last of these, so that a drawing has gaps where nothing was done."""
    known = sorted(map(date.fromisoformat, days))
    return [str(known[0] + timedelta(past)) for past in range((known[-1] - known[0]).days + 1)]


def _render_compactions(insights: Insights) -> Html:
    made = insights.compactions
    if not made.count and not made.saved_tokens:
        return element("p", "No compactions.", class_="quiet")
    said = (
        f"{pluralise(made.count, 'compaction')}: {made.tokens_before:,} → {made.tokens_after:,} tokens, "
        f"{pluralise(made.model_calls, 'model call')}, {format_sum(made.cost, made.known_cost)}."
    )
    rows = [(day, *_show_totals(one)) for day, one in reversed(insights.compactions_per_day.items())]
    quality = element("p", str(insights.quality)) if insights.quality.answers else Html()
    return fragment(
        element("p", said),
        quality,
        table(
            "Compaction by day",
            ("day", "compactions", "cost", "tokens not sent again", "saved"),
            rows,
            numbers=1,
        ),
    )


def _show_totals(one: CompactionTotals) -> tuple[str, ...]:
    return (
        figure_of(one.count),
        format_sum(one.cost, one.known_cost),
        figure_of(one.saved_tokens),
        format_sum(one.saved, one.known_saved),
    )


def _render_all(usage: UsageReport) -> Html:
    groups = dict(usage.models)
    if len(groups) > 1:
        groups["total"] = usage.total
    shown = _render_spending("model", groups)
    asked = usage.summaries
    if not asked.requests:
        return shown
    said = (
        f"Of these for summaries: {pluralise(asked.requests, 'request')}, {asked.usage.prompt_tokens:,} tokens in, "
        f"{asked.usage.output_tokens:,} out, {format_sum(asked.cost, asked.known_cost)}."
    )
    return fragment(shown, element("p", said, class_="small quiet more"))
