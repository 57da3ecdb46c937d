"""A conversation in one file of HTML for a colleague: redacted, with nothing to load and nothing that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.accounts.display import format_time
from penstock.measure.wording import pluralise
from penstock.web.drawings import draw_strip
from penstock.web.markup import element, fragment
from penstock.web.page import PageSection, render_single_page
from penstock.web.transcript import MessageMarks, TranscriptLinks, render_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.accounts.conversations import ConversationOverview
    from penstock.accounts.talk import TalkEntry
    from penstock.accounts.timeline import ViewFate

__all__ = ["render_export"]


def render_export(opened: ConversationOverview, entries: Sequence[TalkEntry]) -> bytes:
    """Returns the page: the whole log to read, under a strip of what the view has of each message."""
    created = opened.shape.created
    about = [pluralise(len(created), "message"), opened.tip.model, opened.tip.dialect]
    if created:
        about.append(f"{format_time(created[0])} to {format_time(created[-1])}")
    header = fragment(
        element("h1", opened.title or "Conversation", dir="auto"),
        element("p", " · ".join(filter(None, about)), class_="quiet"),
    )
    fates: list[ViewFate] = []
    for run in opened.runs:
        fates += [run.fate] * (run.end - run.start)
    strip = draw_strip(opened.runs, opened.cuts, lambda position: f"#m{position + 1}")
    talk = render_entries(entries, TranscriptLinks(), MessageMarks(fates, opened.pins))
    sections = [
        PageSection("strip", f"All {pluralise(len(created), 'message')}", strip),
        PageSection("transcript", "Transcript", element("div", talk, class_="talk")),
    ]
    footer = element(
        "p",
        "Written by penstock sessions export. Secrets are blanked, pictures are left out. This page loads nothing.",
    )
    page = render_single_page(opened.title or "Conversation", header, sections, footer)
    return page.encode("utf-8", "replace")
