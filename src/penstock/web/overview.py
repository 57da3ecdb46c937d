"""The first page: conversations with their pressure, and what compaction has saved."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock.accounts.catalogue import ORDERS
from penstock.accounts.display import SHORT_ID_CHARS, format_money, format_sum, shorten_count
from penstock.accounts.overview import MINUTES
from penstock.accounts.usage import name_day
from penstock.measure.wording import pluralise
from penstock.web.drawings import draw_columns, draw_pressure
from penstock.web.markup import Html, element, figure_of, fragment
from penstock.web.page import LivePart, PageSection, render_card, render_cards, render_section

if TYPE_CHECKING:
    from penstock.accounts.overview import Overview, OverviewRow

__all__ = ["describe_age", "describe_savings", "make_live_figures", "make_live_rows", "render_overview"]

_DAYS = 30
_COLUMNS = (
    ("title", "conversation", ""),
    ("pressure", "window", ""),
    ("model", "model", ""),
    ("tokens", "tokens", "number"),
    ("cost", "cost", "number"),
    ("cache", "cached", "number"),
    ("activity", "last activity", "number"),
)


def render_overview(overview: Overview, typed: str, page_rows: int, now: float) -> Html:
    """Returns the whole page. `typed` is what stands in the filter."""
    return fragment(
        element("h1", "Conversations", class_="hidden"),
        make_live_figures(overview, now).render(),
        element(
            "section",
            element("h2", "Conversations", id="list-title"),
            _render_filter(typed),
            make_live_rows(overview, typed, page_rows, now).render(),
            aria_labelledby="list-title",
        ),
    )


def make_live_figures(overview: Overview, now: float) -> LivePart:
    """Returns the figures above the list, and the two charts."""
    return LivePart("figures", "/?part=figures", _render_figures(overview, now))


def make_live_rows(overview: Overview, typed: str, page_rows: int, now: float) -> LivePart:
    """Returns the rows of the list."""
    address = _address("/", part="rows", q=typed, start=overview.offset or None)
    # What is typed in the filter goes before: it drops what the rows are asking for.
    return LivePart("rows", address, _render_rows(overview, typed, page_rows, now), sync="#filter:drop")


def _render_figures(overview: Overview, now: float) -> Html:
    made, requests = overview.savings.total, sum(overview.per_minute)
    still = "" if overview.savings.complete else "still adding up"
    cards = [
        render_card("conversations", figure_of(overview.total), "in this store"),
        render_card(
            "tokens not sent again",
            figure_of(made.saved_tokens, shorten_count(made.saved_tokens), id="saved-tokens"),
            still or f"by {pluralise(made.count, 'compaction')}",
        ),
        render_card(
            "saved",
            element("span", format_sum(made.saved, made.known_saved), id="saved"),
            f"at the price of cached tokens; compaction cost {format_sum(made.cost, made.known_cost)}",
        ),
        render_card(
            "requests per minute",
            figure_of(overview.per_minute[-1] if overview.per_minute else 0, id="per-minute"),
            f"{requests:,} in the last hour",
        ),
    ]
    days = list_days(now)
    saved = overview.savings.per_day
    by_day = render_section(
        PageSection(
            "by-day",
            "Saved by day",
            draw_columns(
                "Tokens not sent again, by day",
                {day: saved[day].saved_tokens if day in saved else 0 for day in days},
                lambda value: shorten_count(round(value)),
            ),
        )
    )
    by_minute = render_section(
        PageSection(
            "by-minute",
            "Requests per minute",
            draw_columns(
                "Requests in each minute of the last hour",
                {
                    f"{MINUTES - 1 - at} min ago" if at < MINUTES - 1 else "now": count
                    for at, count in enumerate(overview.per_minute)
                },
                lambda value: f"{value:,.0f}",
            ),
        )
    )
    return fragment(render_cards(cards), element("div", by_day, by_minute, class_="pair"))


def list_days(now: float) -> list[str]:
    """Returns the names of the last days, today's last."""
    return [name_day(now - 86_400 * back) for back in range(_DAYS - 1, -1, -1)]


def _render_filter(typed: str) -> Html:
    return element(
        "form",
        element(
            "label",
            element("span", "Filter conversations", class_="hidden"),
            element(
                "input",
                type="search",
                name="q",
                id="filter",
                value=typed,
                placeholder="Filter by title, model, id or day; sort:cost sorts",
                autocomplete="off",
                spellcheck="false",
                hx_get="/?part=rows",
                hx_trigger="input changed delay:150ms, search",
                hx_target="#rows",
                hx_swap="outerHTML",
                hx_sync="this:replace",
            ),
            class_="grow",
        ),
        element("button", "Filter"),
        action="/",
        method="get",
        class_="line",
        role="search",
    )


def _render_rows(overview: Overview, typed: str, page_rows: int, now: float) -> Html:
    content = [_render_table(overview, typed, now)] if overview.rows else [_say_nothing(overview, typed)]
    if overview.waiting:
        content.insert(
            0,
            element(
                "p", f"Still reading {overview.waiting:,} conversations: more may match.", class_="notice"
            ),
        )
    if overview.found > page_rows:
        content.append(_render_paging(overview, typed, page_rows))
    return fragment(*content)


def _render_table(overview: Overview, typed: str, now: float) -> Html:
    heads = [_render_head(name, title, kind, overview, typed) for name, title, kind in _COLUMNS]
    caption = pluralise(overview.found, "conversation")
    if overview.found > len(overview.rows):
        caption = f"{overview.offset + 1:,}–{overview.offset + len(overview.rows):,} of {caption}"
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", *heads)),
            element("tbody", *(_render_row(row, now) for row in overview.rows)),
            class_="rows",
        ),
        class_="wide",
    )


def _render_head(name: str, title: str, kind: str, overview: Overview, typed: str) -> Html:
    if name not in ORDERS:
        return element("th", title, scope="col", class_=kind or None)
    sorted_by = overview.query.order == name
    wanted = f"sort:-{name}" if sorted_by and not overview.query.reverse else f"sort:{name}"
    words = " ".join(word for word in typed.split() if not word.startswith("sort:"))
    falling = (name in {"title", "model"}) == overview.query.reverse
    return element(
        "th",
        element("a", title, href=_address("/", q=f"{words} {wanted}".strip())),
        scope="col",
        class_=kind or None,
        aria_sort=("descending" if falling else "ascending") if sorted_by else None,
    )


def _render_row(one: OverviewRow, now: float) -> Html:
    listed, row = one.listed, one.listed.row
    about = [row.id[:SHORT_ID_CHARS], pluralise(row.messages, "message")]
    if row.compactions:
        about.append(pluralise(row.compactions, "compaction"))
    hit = listed.cache_hit
    return element(
        "tr",
        element(
            "th",
            element(
                "a",
                listed.title or "untitled",
                href=f"/c/{row.id}",
                class_="name",
                dir="auto",
                data_stop=True,
                id=f"c-{row.id}",
            ),
            element("span", " · ".join(about), class_="quiet small"),
            scope="row",
            class_="what",
        ),
        element("td", draw_pressure(one.pressure), class_="full"),
        element("td", row.tip.model or element("span", "no model named", class_="quiet")),
        element(
            "td",
            figure_of(row.view_tokens, shorten_count(row.view_tokens)),
            class_="number",
            data_name="tokens",
        ),
        element("td", _show_cost(row.cost, row.known_cost), class_="number", data_name="cost"),
        element("td", "–" if hit is None else f"{hit:.0%}", class_="number", data_name="cached"),
        element("td", element("time", describe_age(now - row.updated)), class_="number"),
    )


def _show_cost(cost: float | None, known: float) -> str:
    if cost is None and not known:
        return "–"
    return format_money(cost) if cost is not None else f"≥ {format_money(known)}"


def _render_paging(overview: Overview, typed: str, page_rows: int) -> Html:
    before, after = overview.offset - page_rows, overview.offset + page_rows
    links = [
        element("a", "← Newer" if overview.query.is_plain else "← Before", href=_address("/", q=typed, start=max(0, before) or None))
        if overview.offset
        else element("span"),
        element("a", "Older →" if overview.query.is_plain else "More →", href=_address("/", q=typed, start=after))
        if after < overview.found
        else element("span"),
    ]  # fmt: skip
    return element("nav", *links, class_="pages", aria_label="Pages of the list")


def _say_nothing(overview: Overview, typed: str) -> Html:
    if typed:
        return element("p", "No conversation matches.", class_="quiet")
    if overview.total:
        return element("p", "There are no more conversations.", class_="quiet")
    return element(
        "p",
        "There are no conversations yet. They appear here when a client talks through ",
        element("code", "penstock serve"),
        ", or with ",
        element("code", "penstock sessions import"),
        ".",
        class_="quiet",
    )


def describe_savings(paid: float | None, known_paid: float, saved: float | None, known_saved: float) -> str:
    """Returns what was paid and saved, in a few words."""
    return f"paid {format_sum(paid, known_paid)}, saved {format_sum(saved, known_saved)} since"


def describe_age(seconds: float) -> str:
    """Returns how long ago something was, in few characters."""
    if seconds < 60:
        return "just now"
    for size, unit in ((60, "min"), (3_600, "h"), (86_400, "d")):
        if seconds < {60: 3_600, 3_600: 86_400, 86_400: 86_400 * 60}[size]:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds / (86_400 * 30.44):.0f} months ago"


def _address(path: str, **query: str | int | None) -> str:
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path
