"""The page of one compaction: why, what it cost and saved, before and after, the handoff, and what followed."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from penstock.accounts.display import format_money, format_time, redact
from penstock.accounts.timeline import ViewFate
from penstock.measure.wording import format_share, pluralise
from penstock.planning.receipt import DEGRADED
from penstock.web.conversation import link_message
from penstock.web.drawings import draw_bars
from penstock.web.markup import Html, element, fragment
from penstock.web.overview import describe_savings
from penstock.web.page import PageSection, render_section
from penstock.writing.handoff import HandoffSection, parse_handoff
from penstock.writing.verify import STRUCK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.accounts.comparison import CompactionComparison, ComparedMessage, ComparedStretch
    from penstock.planning.receipt import LiveQuality, Receipt
    from penstock.writing.handoff import HandoffEntry

__all__ = ["describe_receipt", "render_compaction", "render_quality"]

_HANDLE = re.compile(r"\bm(\d{1,9})\b")
_FOLDED_FROM = 20  # excerpts


def render_compaction(
    name: str, title: str, compared: CompactionComparison, quality: LiveQuality | None
) -> Html:
    """Returns the whole page. Without `quality`, the page asks for it once it is loaded."""
    head = fragment(
        element("h1", f"Compaction s{compared.number}"),
        element(
            "p",
            element("a", title or "Untitled conversation", href=f"/c/{name}", dir="auto"),
            element("span", format_time(compared.row.created)),
            *_render_state(name, compared),
            class_="about",
        ),
    )
    if compared.row.is_rewind:
        return fragment(head, render_section(PageSection("rewind", "A rewind", _describe_rewind(compared))))
    sections = [
        PageSection("receipt", "What happened", _render_receipt(compared)),
        PageSection("since", "What followed", _place_quality(name, compared, quality)),
    ]
    pair = element("div", *(render_section(one) for one in sections), class_="pair")
    sides = render_section(PageSection("sides", "Before and after", _render_sides(name, compared)))
    parts = [head, pair, sides]
    if compared.handoff:
        parts.append(render_section(PageSection("handoff", "The handoff", _render_handoff(name, compared))))
    return fragment(*parts)


def _render_state(name: str, compared: CompactionComparison) -> Iterator[Html]:
    if compared.row.undone is not None:
        yield element("span", f"undone {format_time(compared.row.undone)}", class_="badge")
    elif compared.is_newest:
        yield element("span", "in force", class_="badge on")
        yield element("a", "Undo", href=f"/c/{name}/s{compared.number}/undo", class_="button act")
    else:
        yield element("span", "followed by another", class_="badge")


def _describe_rewind(compared: CompactionComparison) -> Html:
    count = compared.row.receipt.get("rewound", 0)
    return element(
        "p",
        f"{pluralise(count, 'message')} {'was' if count == 1 else 'were'} taken out of the view. "
        "The log keeps everything, and undo brings it back.",
    )


# The receipt.


def _render_receipt(compared: CompactionComparison) -> Html:
    made, decision = compared.totals, compared.decision
    price = describe_savings(made.cost, made.known_cost, made.saved, made.known_saved)
    if not made.saved_tokens:
        price = f"paid {format_money(made.cost)}; no request since"
    lines = describe_receipt(compared.receipt) if compared.receipt is not None else [
        "Another version of Penstock wrote its receipt in another form."
    ]  # fmt: skip
    if decision is not None and isinstance(decision.get("reason"), str):
        lines.insert(0, f"Made because {decision['reason']}.")
    return fragment(
        element("p", price[0].upper() + price[1:], class_="price"),
        element("ul", *(element("li", line) for line in lines), class_="plain"),
    )


def describe_receipt(receipt: Receipt) -> list[str]:
    """Returns a receipt in plain sentences."""
    lines = [
        (
            f"{pluralise(receipt.messages_before, 'message')} became {receipt.messages_after:,}: "
            f"{receipt.tokens_before:,} → {receipt.tokens_after:,} tokens, {format_share(receipt.ratio)} of before."
        ),
        (
            f"{receipt.kept:,} stayed as they were, {receipt.elided:,} were shortened, "
            f"{receipt.summarised:,} went into the handoff ({receipt.handoff_tokens:,} tokens)."
        ),
        (
            f"Of the facts in them, {receipt.facts_kept:,} still stand in the view; "
            f"{receipt.facts_reachable:,} are reachable by their handle."
        ),
    ]
    if receipt.room is not None:
        *why, went_to = receipt.room.lines()
        lines += [f"{line[0].upper()}{line[1:]}." for line in why]
        lines.append(f"The view's tokens went to: {went_to}.")
    if receipt.facts_struck:
        lines.append(
            f"{pluralise(receipt.facts_struck, 'claim')} that the conversation does not hold "
            f"{'was' if receipt.facts_struck == 1 else 'were'} struck."
        )
    if receipt.facts_added:
        lines.append(f"{pluralise(receipt.facts_added, 'value')} that the agent used meanwhile came in last.")
    if receipt.model:
        lines.append(
            f"{receipt.model} wrote sections of the handoff: {receipt.model_prompt_tokens:,} tokens read, "
            f"{receipt.model_output_tokens:,} written."
        )
    elif receipt.attempts:
        lines.append(f"A model was asked and wrote nothing that could be used: {receipt.summary_call.error}.")
    else:
        lines.append("No model was asked: the handoff is made of excerpts.")
    if receipt.redacted:
        lines.append(f"{pluralise(receipt.redacted, 'secret')} left out of what was written.")
    if receipt.repaired:
        lines.append(f"{pluralise(receipt.repaired, 'fault')} of the input repaired.")
    if receipt.reason:
        lines.append(f"{'Not as planned' if receipt.outcome == DEGRADED else 'Note'}: {receipt.reason}.")
    lines.append(f"It took {receipt.seconds * 1000:,.0f} ms.")
    return lines


def _place_quality(name: str, compared: CompactionComparison, quality: LiveQuality | None) -> Html:
    if quality is not None:
        return render_quality(quality)
    address = f"/c/{name}/s{compared.number}/since"
    return element(
        "div",
        element("p", element("a", "Look through the turns since", href=address)),
        hx_get=f"{address}?part=quality",
        hx_trigger="load",
        hx_swap="innerHTML",
    )


def render_quality(quality: LiveQuality) -> Html:
    """Returns how the agent got at the earlier values that it used after a compaction."""
    said = element("p", str(quality))
    if not quality.used:
        return said
    rows = {
        "stood in the view": quality.in_view,
        "came back by recall": quality.recalled,
        "read again": quality.read_again,
        "asked of the person again": quality.asked_again,
        "system prompt, or put together": quality.otherwise,
    }

    settled = "" if quality.settled else "Later turns may still change this."
    return fragment(
        said,
        draw_bars({what: count for what, count in rows.items() if count}, ""),
        element("p", settled, class_="small quiet more") if settled else Html(),
    )


# Before and after.


def _render_sides(name: str, compared: CompactionComparison) -> Html:
    told = False
    parts: list[Html] = [element("h3", "Before"), element("h3", "After")]
    for stretch in compared.stretches:
        parts.append(_render_stretch(name, stretch, compared, told=told))
        told = told or stretch.fate is ViewFate.HANDED_ON
    return element("div", *parts, class_="compare")


def _render_stretch(
    name: str, stretch: ComparedStretch, compared: CompactionComparison, *, told: bool
) -> Html:
    messages = pluralise(stretch.count, "message")
    left = _render_side(name, stretch, f"{messages}, {pluralise(stretch.tokens, 'token')}")
    match stretch.fate:
        case ViewFate.VERBATIM:
            right = element("div", element("p", f"{messages} as they came", class_="what"), class_="side")
        case ViewFate.ELIDED:
            right = _render_side(name, stretch, f"{messages}, shortened", after=True)
        case ViewFate.HANDED_ON if not told:
            size = compared.receipt.handoff_tokens if compared.receipt is not None else 0
            right = element(
                "div",
                element(
                    "p",
                    element("a", "The handoff", href="#handoff"),
                    f", {pluralise(size, 'token')}",
                    class_="what",
                ),
                element("p", _begin(compared.handoff), class_="small"),
                class_="side result",
            )
        case ViewFate.HANDED_ON:
            right = element(
                "div",
                element("p", "in the ", element("a", "handoff", href="#handoff"), class_="what"),
                class_="side result",
            )
        case _:
            right = element("div", element("p", "taken out", class_="what"), class_="side")
    return element("div", left, right, class_="stretch")


def _render_side(name: str, stretch: ComparedStretch, what: str, *, after: bool = False) -> Html:
    lines = [_render_line(name, one, after=after) for one in stretch.first]
    if stretch.hidden:
        lines.append(
            element("li", element("span", "…"), element("span", f"{stretch.hidden:,} more", class_="quiet"))
        )
    lines += [_render_line(name, one, after=after) for one in stretch.last]
    handed = " handed" if stretch.fate is ViewFate.HANDED_ON else ""
    return element("div", element("p", what, class_="what"), element("ul", *lines), class_=f"side{handed}")


def _render_line(name: str, one: ComparedMessage, *, after: bool) -> Html:
    handle = (
        element("a", one.handle, href=link_message(name, one.handle)) if one.handle else element("span", "")
    )
    text = one.after if after and one.after else one.before
    return element("li", handle, element("span", f"{one.role}: {text}", title=text[:300], dir="auto"))


def _begin(handoff: str) -> str:
    lines = [line for line in handoff.split("\n") if line.startswith(("- ", "1. "))]
    return " ".join(lines[:2])[:280] + "…" if lines else ""


# The handoff.


def _render_handoff(name: str, compared: CompactionComparison) -> Html:
    text = compared.handoff
    framing = text.split("\n## ", 1)[0].strip()
    entries = parse_handoff(text)
    parts: list[Html] = []
    if framing and not framing.startswith("## "):
        parts.append(element("p", framing, class_="quiet small"))
    if compared.by_model and compared.receipt is not None:
        who = compared.receipt.model or "a model, in an earlier compaction,"
        struck = text.count(STRUCK)
        said = f"{who} wrote sections of it; every value in them was looked up in the conversation."
        if compared.receipt.facts_struck:
            said += f" {pluralise(compared.receipt.facts_struck, 'claim')} not found there: struck"
            said += (
                f", {struck:,} of them marked {STRUCK} below."
                if struck
                else ", with the entries that made them."
            )
        parts.append(element("p", said, class_="notice"))
        if compared.receipt.struck:
            struck_lines = (element("li", element("s", redact(one))) for one in compared.receipt.struck)
            parts += [element("h3", "Struck"), element("ul", *struck_lines, class_="plain")]
    for section, group in groupby(entries, key=lambda entry: entry.section):
        lines = [_render_entry(name, entry, compared.log_length) for entry in group]
        if section is HandoffSection.CONTEXT and len(lines) > _FOLDED_FROM:
            summary = element("summary", f"{section.value}: {pluralise(len(lines), 'excerpt')}")
            parts.append(element("details", summary, element("div", *lines, class_="handoff")))
        else:
            parts += [element("h3", section.value), *lines]
    if not entries:
        parts.append(element("pre", text, tabindex="0"))
    return element("div", *parts, class_="handoff")


def _render_entry(name: str, entry: HandoffEntry, length: int) -> Html:
    known = 0 < entry.number <= length
    handle = f"m{entry.number}"
    where = (
        element("a", handle, href=link_message(name, handle))
        if known
        else element("span", "–", class_="quiet", title="names no message")
    )
    quoted = entry.section is HandoffSection.CONTEXT
    label = [element("span", entry.label, class_="label")] if entry.label else []
    return element(
        "div",
        where,
        element(
            "div",
            *label,
            *_link_handles(entry.text, name, length),
            class_="text quoted" if quoted else "text",
            dir="auto",
        ),
        class_="entry",
    )


def _link_handles(text: str, name: str, length: int) -> Sequence[str]:
    """Returns the text with the handles in it as links, where they name messages of this conversation."""
    pieces: list[str] = []
    end = 0
    for found in _HANDLE.finditer(text):
        if 0 < int(found[1]) <= length:
            pieces += [text[end : found.start()], element("a", found[0], href=link_message(name, found[0]))]
            end = found.end()
    return [*pieces, text[end:]]
