"""A page from its parts: head, navigation, sections, and cards with a figure each.

A page that is served names its styles and scripts, which come from the same server. One that stands alone in a file brings
its styles inside it, and a policy that forbids a browser to load or run anything. No page holds a script, a handler or a
style of its own: a strict policy needs no exception. Light and dark follow the reader's own choice.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from penstock.web.markup import Html, element, fragment

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "LIVE_SECONDS",
    "LivePart",
    "PageSection",
    "asset_path",
    "read_asset",
    "read_stylesheet",
    "render_card",
    "render_cards",
    "render_section",
    "render_served_page",
    "render_single_page",
]

_HTMX_CONFIG = (
    '{"includeIndicatorStyles":false,"allowEval":false,"allowScriptTags":false,"selfRequestsOnly":true,'
    '"historyCacheSize":0,"scrollIntoViewOnBoost":false}'
)
_PLACES = (("/", "Conversations"), ("/search", "Search"), ("/usage", "Usage"))
_KEYS = (
    ("/", "go to the search or the filter"),
    ("j", "next row or message"),
    ("k", "previous row or message"),
    ("Enter", "open it"),
    ("?", "show these keys"),
    ("Esc", "close this, or leave a field"),
)


LIVE_SECONDS = 3
"""How often a live part asks for itself again."""


class LivePart(NamedTuple):
    """A part of a page that polls for itself, and is replaced when its content has changed.

    `address` is where it is asked for; `key` its id on the page.
    """

    key: str
    address: str
    content: Html
    sync: str | None = None

    @property
    def version(self) -> str:
        """Returns a version that changes with the content."""
        return hashlib.blake2b(self.content.encode("utf-8", "replace"), digest_size=8).hexdigest()

    def render(self) -> Html:
        """Returns the part as it stands on the page."""
        return element(
            "div",
            self.content,
            id=self.key,
            hx_get=f"{self.address}{'&' if '?' in self.address else '?'}version={self.version}",
            hx_trigger=f"every {LIVE_SECONDS}s",
            hx_swap="outerHTML",
            hx_sync=self.sync,
        )


class PageSection(NamedTuple):
    """A part of a page under its own heading. `key` is its anchor."""

    key: str
    title: str
    content: Html


@cache
def read_asset(name: str) -> bytes:
    """Returns a file that pages load. Raises FileNotFoundError if it does not exist."""
    return files("penstock.web").joinpath("assets", name).read_bytes()


def asset_path(name: str) -> str:
    """Returns the path of a file that pages load; it changes with the file, so that browsers may keep it for good."""
    return f"/assets/{hashlib.sha256(read_asset(name)).hexdigest()[:12]}/{name}"


def read_stylesheet() -> str:
    """Returns the styles that all pages share."""
    return read_asset("style.css").decode()


def render_served_page(
    title: str,
    main: Html,
    *,
    here: str = "",
    leave: Html | None = None,
    charts: bool = False,
    places: bool = True,
) -> str:
    """Returns a page of the dashboard. `here` is the path of the place that it belongs to.

    `leave` stands at the end of the navigation; `charts` loads what draws time series; without `places` there is no
    navigation, for a stranger.
    """
    scripts = ["htmx.min.js", *(["uPlot.iife.min.js"] if charts else []), "page.js"]
    styles = ["style.css", *(["uPlot.min.css"] if charts else [])]
    head = element(
        "head",
        *_describe_head(f"{title} · Penstock"),
        element("meta", name="htmx-config", content=_HTMX_CONFIG),
        *(element("link", rel="stylesheet", href=asset_path(name)) for name in styles),
        element("link", rel="icon", href=asset_path("mark.svg"), type="image/svg+xml"),
        *(element("script", src=asset_path(name), defer=True) for name in scripts),
    )
    links = [
        element("li", element("a", name, href=path, aria_current="page" if path == here else None))
        for path, name in (_PLACES if places else ())
    ]
    if leave is not None:
        links.append(element("li", leave))
    header = element(
        "header",
        element(
            "a",
            Html('<span class="brand">Penstock</span>'),
            href="/",
            aria_label="Penstock, all conversations",
        ),
        element("nav", element("ul", *links), aria_label="Places") if links else Html(),
        class_="top",
    )
    body = element(
        "body",
        element("a", "Skip to the content", href="#main", class_="skip"),
        header,
        element("main", main, id="main", tabindex="-1"),
        _render_help(),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def render_single_page(
    title: str, header: Html, sections: Sequence[PageSection], footer: Html, own_styles: str = ""
) -> str:
    """Returns a page that needs no other file. `own_styles` follow those that all pages share."""
    styles = read_stylesheet() + own_styles
    allowed = base64.b64encode(hashlib.sha256(styles.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        *_describe_head(title),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("style", Html(styles)),
    )
    body = element(
        "body",
        element("a", "Skip to the content", href="#main", class_="skip"),
        element("header", header),
        _render_contents(sections) if len(sections) > 1 else Html(),
        element("main", *(render_section(one) for one in sections), id="main"),
        element("footer", footer),
        class_="alone",
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _describe_head(title: str) -> list[Html]:
    return [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
    ]


def render_cards(cards: Sequence[Html]) -> Html:
    """Returns cards side by side, as many per line as fit."""
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


def render_section(section: PageSection, **attributes: str) -> Html:
    """Returns a section with its heading."""
    heading = element("h2", section.title, id=section.key)
    return element("section", fragment(heading, section.content), aria_labelledby=section.key, **attributes)


def _render_contents(sections: Sequence[PageSection]) -> Html:
    links = (element("li", element("a", one.title, href=f"#{one.key}")) for one in sections)
    return element("nav", element("ul", *links), aria_label="Contents")


def _render_help() -> Html:
    keys = fragment(
        *(element("div", element("dt", element("kbd", key)), element("dd", text)) for key, text in _KEYS)
    )
    return element(
        "dialog",
        element("h2", "Keys", id="keys-title"),
        element("dl", keys, class_="keys"),
        element("form", element("button", "Close"), method="dialog"),
        id="keys",
        aria_labelledby="keys-title",
    )
