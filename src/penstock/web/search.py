"""The page of a search: where words stand in all conversations, and the way to each place."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from penstock.accounts.conversations import mark_words
from penstock.conversation.handles import HandleKind, parse_handle
from penstock.measure.wording import pluralise
from penstock.web.conversation import link_message
from penstock.web.markup import Html, element, fragment
from penstock.web.transcript import render_time

if TYPE_CHECKING:
    from penstock.accounts.conversations import SearchReport
    from penstock.recall.history import Finding

__all__ = ["render_search"]


def render_search(query: str, found: SearchReport | None, within: tuple[str, str], waiting: int) -> Html:
    """Returns the page. `within` is the id and the title of the conversation that is searched, empty for all of them.

    `found` is None if nothing was asked; `waiting` counts messages that are still to be indexed.
    """
    name, title = within
    form = element(
        "form",
        element(
            "label",
            element("span", "Search", class_="hidden"),
            element("input", type="search", name="q", value=query, placeholder="Words, names, paths, numbers", autofocus=not query),
            class_="grow",
        ),
        element("input", type="hidden", name="in", value=name) if name else Html(),
        element("button", "Search", class_="main-button"),
        action="/search",
        method="get",
        class_="line",
        role="search",
    )  # fmt: skip
    head = fragment(element("h1", "Search"), _say_where(query, name, title), form)
    if found is None:
        return fragment(
            head,
            element(
                "p",
                "Searches everything that was said, including what compactions have taken out of the view.",
                class_="quiet",
            ),
        )
    if waiting:
        notice = element(
            "p",
            f"{pluralise(waiting, 'new message')} still to be indexed. ",
            element("a", "Look again", href=""),
            class_="notice",
            hx_get="",
            hx_trigger="every 2s",
            hx_target="body",
        )
        return fragment(head, notice)
    if not found.hits:
        return fragment(
            head, element("p", "Nothing found. Try other words, or a name, path or number.", class_="quiet")
        )
    hits = [_render_hit(one, found, query) for one in found.hits]
    return fragment(
        head,
        element(
            "section",
            element("h2", pluralise(len(hits), "place"), id="hits"),
            *hits,
            aria_labelledby="hits",
        ),
    )


def _say_where(query: str, name: str, title: str) -> Html:
    if not name:
        return Html()
    return element(
        "p",
        element("span", "In "),
        element("a", title or "untitled", href=f"/c/{name}", dir="auto"),
        element("a", "Search everywhere", href=f"/search?q={quote(query)}"),
        class_="about",
    )


def _render_hit(hit: Finding, found: SearchReport, query: str) -> Html:
    handle = parse_handle(hit.handles[0])
    role = found.roles.get((hit.session, hit.handles[0]), "")
    match handle.kind:
        case HandleKind.MESSAGE:
            address = link_message(hit.session, handle.text)
        case HandleKind.SUMMARY:
            role, address = "handoff", f"/c/{hit.session}/{handle.text}"
        case HandleKind.RESULT:
            role, address = "stored result", f"/c/{hit.session}/{handle.text}"
        case _:
            address = f"/c/{hit.session}"
    about: list[Html] = [element("span", hit.handles[0])]
    if role:
        about.append(element("span", role))
    if hit.at is not None:
        about.append(render_time(hit.at))
    marked = [element("mark", piece) if asked else piece for piece, asked in mark_words(hit.excerpt, query)]
    return element(
        "article",
        element(
            "h3",
            element("a", found.titles[hit.session] or "untitled", href=address, dir="auto", data_stop=True),
        ),
        element("p", *about, class_="about small"),
        element("div", *marked, class_="words", dir="auto"),
        class_="hit",
    )
