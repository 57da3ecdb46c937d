"""A page from its parts: head, contents, sections, and cards with a figure each.

Pages hold no script and no handler, in light and dark by the reader's own choice. One that stands alone in a file brings
its styles inside it and a policy that forbids a browser to load or run anything.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from penstock.web.markup import Html, element, fragment

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PageSection", "read_stylesheet", "render_card", "render_cards", "render_single_page"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class PageSection(NamedTuple):
    """A part of a page under its own heading. `key` is its anchor."""

    key: str
    title: str
    content: Html


def read_stylesheet() -> str:
    """Returns the styles that all pages share."""
    return files("penstock.web").joinpath("style.css").read_text(encoding="utf-8")


def render_single_page(
    title: str, header: Html, sections: Sequence[PageSection], footer: Html, own_styles: str = ""
) -> str:
    """Returns a page that needs no other file. `own_styles` follow those that all pages share."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Html(read_stylesheet() + own_styles)),
    )
    body = element(
        "body",
        element("a", "To the figures", href="#main", class_="skip"),
        element("header", header),
        _render_contents(sections),
        element("main", *(_render_section(one) for one in sections), id="main"),
        element("footer", footer),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def render_cards(cards: Sequence[Html]) -> Html:
    """Returns cards beside each other, as many in a line as there is room for."""
    return element("dl", *cards, class_="cards")


def render_card(label: str, value: Html, note: str, *, warns: bool = False) -> Html:
    """Returns a card: a figure, with its name above it and a remark below."""
    return element(
        "div",
        element("dt", label),
        element("dd", value),
        element("dd", note, class_="note"),
        class_="card warn" if warns else "card",
    )


def _render_contents(sections: Sequence[PageSection]) -> Html:
    links = (element("li", element("a", one.title, href=f"#{one.key}")) for one in sections)
    return element("nav", element("ul", *links), aria_label="Contents")


def _render_section(section: PageSection) -> Html:
    heading = element("h2", section.title, id=section.key)
    return element("section", fragment(heading, section.content), aria_labelledby=section.key)
