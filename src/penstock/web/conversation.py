"""The pages of one conversation: its whole length at a glance, its transcript, one message in full."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from penstock.accounts.display import SHORT_ID_CHARS, format_money, format_sum, format_time, shorten_count
from penstock.measure.wording import pluralise
from penstock.web.drawings import draw_bars, draw_line, draw_pressure, draw_strip
from penstock.web.markup import Html, element, figure_of, fragment
from penstock.web.overview import describe_age, describe_savings
from penstock.web.page import LIVE_SECONDS, LivePart, PageSection, render_section
from penstock.web.transcript import MessageMarks, TranscriptLinks, render_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.accounts.conversations import CompactionAccount, ConversationOverview
    from penstock.accounts.talk import TalkEntry, TalkPicture
    from penstock.accounts.timeline import ViewFate
    from penstock.accounts.window import Fill

__all__ = [
    "PAGE_MESSAGES",
    "TranscriptPart",
    "link_message",
    "make_live_state",
    "render_conversation",
    "render_fill",
    "render_message",
    "render_stretch",
    "render_tail",
]

PAGE_MESSAGES = 100
_MOST_CHARS = 200_000  # of a message on a page of its own; the rest is in a file of plain text


class TranscriptPart(NamedTuple):
    """A part of a transcript: its messages, from position `start` to before `end`, of a log of that length."""

    entries: Sequence[TalkEntry]
    start: int
    end: int
    length: int

    @property
    def open_from(self) -> int:
        """Returns the position from which on messages may still change: that of the first call without a result."""
        waiting = (entry for entry in self.entries if any(not call.answer for call in entry.calls))
        first = next(waiting, None)
        return self.end if first is None else int(first.handle[1:]) - 1


def link_message(conversation: str, handle: str) -> str:
    """Returns the address of a message in its transcript."""
    return f"/c/{conversation}?at={handle}#{handle}"


def make_links(conversation: str) -> TranscriptLinks:
    """Returns the addresses that a transcript on the dashboard leads to."""

    def picture(one: TalkPicture) -> str:
        return f"/c/{conversation}/{one.handle}/picture/{one.digest}"

    return TranscriptLinks(
        message=lambda handle: f"/c/{conversation}/{handle}",
        picture=picture,
        pin=lambda handle: f"/c/{conversation}/{handle}/pin",
    )


def render_conversation(
    opened: ConversationOverview, stretch: TranscriptPart, marks: MessageMarks, fill: Fill | None, now: float
) -> Html:
    """Returns the whole page. Without `fill`, the page asks for what fills the window once it is loaded."""
    name = opened.tip.conversation
    head = fragment(
        element("h1", opened.title or "Untitled conversation", dir="auto"),
        make_live_state(opened, now).render(),
    )
    strip = render_section(
        PageSection(
            "strip",
            f"All {pluralise(len(opened.shape.tokens), 'message')}",
            draw_strip(opened.runs, opened.cuts, lambda position: link_message(name, f"m{position + 1}")),
        )
    )
    aside = element(
        "aside",
        render_section(PageSection("window", "What fills the window", _place_fill(name, fill))),
        render_section(PageSection("compactions", "Compactions", _render_compactions(opened))),
        _render_relatives(opened),
        aria_label="About this conversation",
    )
    talk = element(
        "section",
        element("div", _render_jump(name, stretch.length), class_="message"),
        render_stretch(name, stretch, marks),
        class_="talk",
        aria_label="Transcript",
    )
    return fragment(head, strip, _render_series(opened), element("div", talk, aside, class_="reading"))


def make_live_state(opened: ConversationOverview, now: float) -> LivePart:
    """Returns the line below the title."""
    tip, spending, created = opened.tip, opened.spending, opened.shape.created
    hit = spending.cache_hit_ratio
    parts: list[Html] = [
        element("span", draw_pressure(opened.pressure)),
        element("span", tip.model or "no model named"),
        element("span", figure_of(opened.view_tokens), " tokens in the view"),
        element("span", figure_of(sum(opened.shape.tokens)), " in the log"),
    ]
    if spending.requests:
        parts.append(
            element(
                "span",
                f"{pluralise(spending.requests, 'request')}, {format_sum(spending.cost, spending.known_cost)}",
            )
        )
    if hit is not None:
        parts.append(element("span", f"{hit:.0%} cached"))
    if created:
        parts.append(element("span", f"last message {describe_age(now - created[-1])}"))
    parts.append(element("span", tip.conversation[:SHORT_ID_CHARS], class_="mono"))
    line = element("p", *parts, class_="about figures")
    return LivePart("state", f"/c/{tip.conversation}?part=state", line)


def _render_series(opened: ConversationOverview) -> Html:
    if not opened.points or opened.points[-1].at <= opened.points[0].at:
        return Html()
    cuts = [one.created for one in opened.compactions if one.undone is None]
    what = "Tokens of each request" if opened.spending.requests else "Tokens in the log"
    drawn = [
        _render_one_series(
            "tokens-over-time", what, [(point.at, float(point.tokens)) for point in opened.points], cuts
        )
    ]
    if opened.spending.known_cost:
        drawn.append(
            _render_one_series(
                "cost-over-time",
                "Cost so far",
                [(point.at, point.cost) for point in opened.points],
                cuts,
                money=True,
            )
        )
    return element("div", *drawn, class_="pair")


def _render_one_series(
    key: str, title: str, points: Sequence[tuple[float, float]], cuts: Sequence[float], *, money: bool = False
) -> Html:
    marked = [at for at in cuts if points[0][0] <= at <= points[-1][0]]
    said = f"{title} over time; {pluralise(len(marked), 'compaction')} marked"

    def show(value: float) -> str:
        return format_money(value) if money else shorten_count(round(value))

    drawing = draw_line(said, points, marked, show, format_time)
    series = {
        "name": title,
        "at": [round(at, 3) for at, _ in points],
        "values": [round(value, 6) if money else int(value) for _, value in points],
        "cuts": [round(at, 3) for at in marked],
        "money": money,
    }
    note = element("p", "Dashed: a compaction", class_="small quiet") if marked else Html()
    content = element(
        "figure",
        element("div", drawing, class_="live-chart", data_series=json.dumps(series, separators=(",", ":"))),
        note,
        role="group",
        aria_label=said,
    )
    return render_section(PageSection(key, title, content))


def _place_fill(name: str, fill: Fill | None) -> Html:
    if fill is not None:
        return render_fill(fill)
    return element(
        "div",
        element("p", element("a", "Count it", href=f"/c/{name}/window"), class_="quiet"),
        hx_get=f"/c/{name}/window?part=fill",
        hx_trigger="load",
        hx_swap="innerHTML",
    )


def render_fill(fill: Fill) -> Html:
    """Returns what fills the window, by kind of content."""
    if not fill.total_tokens:
        return element("p", "Nothing yet.", class_="quiet")
    rows = dict(sorted(fill.kinds.items(), key=lambda one: -one[1]))
    return fragment(
        draw_bars(rows, ""),
        element(
            "p", f"{fill.total_tokens:,} tokens in {pluralise(len(fill.messages), 'message')}, as we count them",
            class_="small quiet more",
        ),
    )  # fmt: skip


def _render_compactions(opened: ConversationOverview) -> Html:
    if not opened.compactions:
        return element("p", "None yet: all messages are sent as they came.", class_="quiet")
    name = opened.tip.conversation
    lines = [
        _render_compaction(name, number, one, newest=number == opened.newest)
        for number, one in enumerate(opened.compactions, start=1)
    ]
    return element("ul", *reversed(lines), class_="list")


def _render_compaction(name: str, number: int, one: CompactionAccount, *, newest: bool) -> Html:
    made = one.totals
    before, after = one.receipt.get("tokens_before"), one.receipt.get("tokens_after")
    sizes = (
        f"{shorten_count(before)} → {shorten_count(after)} tokens"
        if isinstance(before, int) and isinstance(after, int)
        else one.headline
    )
    what = one.headline if "rewound" in one.receipt else sizes
    said: list[Html] = [
        element(
            "a", f"s{number}", href=f"/c/{name}/s{number}", aria_label=f"Compaction s{number}", data_stop=True
        ),
        Html(" "),
        element("span", what, class_="undone" if one.undone is not None else None),
        Html(" "),
    ]
    if newest:
        said.append(element("span", "in force", class_="badge on"))
    elif one.undone is not None:
        said.append(element("span", "undone", class_="badge"))
    note = format_time(one.created)
    if made.saved_tokens:
        note += f" · {describe_savings(made.cost, made.known_cost, made.saved, made.known_saved)}"
    return element("li", *said, element("div", note, class_="small quiet figures"))


def _render_relatives(opened: ConversationOverview) -> Html:
    if not opened.relatives:
        return Html()
    lines = [
        element(
            "li",
            element("a", row.id[:SHORT_ID_CHARS], href=f"/c/{row.id}"),
            f" {row.kind}, {format_time(row.started)}",
        )
        for row in opened.relatives
    ]
    return render_section(
        PageSection("relatives", "Branches and sub-agents", element("ul", *lines, class_="list"))
    )


# The transcript.


def _render_jump(name: str, length: int) -> Html:
    return element(
        "form",
        element(
            "label",
            element("span", "Jump to a message, or search in this conversation", class_="hidden"),
            element(
                "input",
                type="search",
                name="at",
                placeholder=f"Jump to m1 … m{length}, or search here",
                autocomplete="off",
            ),
            class_="grow",
        ),
        element("button", "Go"),
        element("a", "Beginning", href=f"/c/{name}?at=m1", class_="small"),
        element("a", "End", href=f"/c/{name}", class_="small"),
        action=f"/c/{name}",
        method="get",
        class_="line jump",
        role="search",
    )


def render_stretch(name: str, stretch: TranscriptPart, marks: MessageMarks, way: str = "") -> Html:
    """Returns messages with links to those before and after them.

    `way` is `earlier` or `later` where these are asked for by a page that has the messages on the other side.
    """
    if not stretch.length:
        return element("p", "Nothing was said yet.", class_="message quiet")
    parts: list[Html] = []
    if stretch.start > 0 and way != "later":
        parts.append(_render_way(name, "earlier", stretch))
    if stretch.end >= stretch.length:
        parts.append(render_tail(name, stretch, marks))
    else:
        parts.append(render_entries(stretch.entries, make_links(name), marks))
        if way != "earlier":
            parts.append(_render_way(name, "later", stretch))
    return fragment(*parts)


def render_tail(name: str, stretch: TranscriptPart, marks: MessageMarks) -> Html:
    """Returns the end of a transcript: what is settled, and a part that asks for itself again until it has changed."""
    links, border = make_links(name), stretch.open_from
    settled = [entry for entry in stretch.entries if int(entry.handle[1:]) - 1 < border]
    open_ = [entry for entry in stretch.entries if int(entry.handle[1:]) - 1 >= border]
    tail = element(
        "div",
        render_entries(open_, links, marks),
        id="tail",
        hx_get=f"/c/{name}?part=tail&from={border}&known={stretch.length}",
        hx_trigger=f"every {LIVE_SECONDS}s",
        hx_swap="outerHTML",
    )
    return fragment(render_entries(settled, links, marks), tail)


def _render_way(name: str, way: str, stretch: TranscriptPart) -> Html:
    """Returns a link to the messages before or after these, which is replaced by them when it scrolls into view."""
    first = max(0, stretch.start - PAGE_MESSAGES) if way == "earlier" else stretch.end
    end = stretch.start if way == "earlier" else min(stretch.length, stretch.end + PAGE_MESSAGES)
    said = f"{'Earlier' if way == 'earlier' else 'Later'}: m{first + 1}–m{end}"
    anchor = f"m{end}" if way == "earlier" else f"m{first + 1}"
    return element(
        "p",
        element("a", said, href=f"/c/{name}?from={first}#{anchor}", class_="button"),
        class_="message",
        hx_get=f"/c/{name}?part={way}&from={first}&to={end}",
        # What comes before is fetched by a click alone: it would push away what is being read.
        hx_trigger="revealed" if way == "later" else "click",
        hx_swap="outerHTML",
    )


def render_message(
    name: str, handle: str, role: str, text: str, fate: ViewFate | None, *, pinned: bool
) -> Html:
    """Returns one message in full, without secrets."""
    shown = text[:_MOST_CHARS]
    more = [element("a", "As plain text", href=f"/c/{name}/{handle}.txt", download=f"{name}-{handle}.txt")]
    if len(shown) < len(text):
        more.insert(0, element("span", f"The first {len(shown):,} of {len(text):,} characters."))
    about = [role, pluralise(len(text), "character")]
    if fate is not None:
        about.append(fate.value)
    if pinned:
        about.append("pinned")
    return fragment(
        element("h1", handle),
        element(
            "p",
            element("span", " · ".join(about)),
            element("a", "In the transcript", href=link_message(name, handle)),
            element("a", "Unpin" if pinned else "Pin", href=f"/c/{name}/{handle}/pin"),
            *more,
            class_="about",
        ),
        element(
            "section",
            element("pre", shown, class_="full-text", dir="auto", tabindex="0"),
            aria_label=f"Message {handle}",
        ),
    )
