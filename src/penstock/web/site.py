"""The dashboard as a function: a request of a reader in, a page out.

    site = Site(store, settings)
    site.answer(PageRequest("GET", "/c/4f2a…", reader=Visitor(owner=None)))

It knows nothing of HTTP servers, cookies or keys: `serving` does. Calls are synchronous and may come from several threads.
What changes something is a POST with the reader's form token, from a page that asked first.
"""

from __future__ import annotations

import base64
import binascii
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from penstock.accounts.catalogue import Catalogue, read_catalogue_query
from penstock.accounts.changes import change_pin, undo_compaction
from penstock.accounts.comparison import compare_compaction, find_compaction
from penstock.accounts.conversations import (
    SearchReport,
    find_conversation,
    measure_window,
    open_conversation,
    read_handle,
    search_conversations,
    title_conversation,
)
from penstock.accounts.display import redact
from penstock.accounts.overview import read_overview
from penstock.accounts.talk import read_talk
from penstock.accounts.timeline import trace_fates
from penstock.accounts.usage import report_insights, report_usage
from penstock.conversation.handles import HandleKind, parse_handle
from penstock.conversation.wire import parse_json
from penstock.errors import PenstockError, StoreError, UnknownHandle, UnknownSession
from penstock.recall.ranking import Wish
from penstock.recall.semantic import embedder_for
from penstock.sessions.quality import measure_qualities
from penstock.transfer.convert import find_pictures
from penstock.web.compaction import render_compaction, render_quality
from penstock.web.conversation import (
    PAGE_MESSAGES,
    TranscriptPart,
    link_message,
    make_live_state,
    render_conversation,
    render_fill,
    render_message,
    render_stretch,
    render_tail,
)
from penstock.web.markup import Html, element, fragment
from penstock.web.overview import make_live_figures, make_live_rows, render_overview
from penstock.web.page import render_served_page
from penstock.web.search import render_search
from penstock.web.transcript import MessageMarks
from penstock.web.usage import PERIODS, render_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.accounts.conversations import ConversationOverview
    from penstock.accounts.overview import Overview
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow
    from penstock.web.page import LivePart

__all__ = ["PageAnswer", "PageRequest", "Site", "Visitor"]

PAGE_ROWS = 40
_HITS, _HIT_CHARS = 25, 700
_LOOK_SECONDS = 1.0  # between two looks at what has changed in the store
_SMALL_VIEW = 400  # messages: what fills the window is counted before the page is shown
_SMALL_LOG = 1_500  # messages: so is how good a compaction was
_INDEXED_AT_ONCE = 2_000  # messages: from more on, a search says how many are left
_MOST_CATALOGUES = 16
_TYPES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_DONE = {
    "undo": "The compaction is undone: the view is again what it was before it.",
    "late": "Nothing was undone: another compaction was made meanwhile, or this one was undone already.",
    "pin": "Pinned: later compactions keep this message in full.",
    "pin-later": "Pinned: the next compaction restores this message in full, and later ones keep it.",
    "unpin": "No longer pinned.",
}


class Visitor(NamedTuple):
    """A reader of pages. `owner` is the owner of the conversations they see, None for all; `form_token` goes into every form.

    `may_leave` shows a way to log out.
    """

    owner: str | None = None
    form_token: str = ""
    may_leave: bool = False


class PageRequest(NamedTuple):
    """A request for a page."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    form: Mapping[str, str] = {}
    reader: Visitor = Visitor()


class PageAnswer(NamedTuple):
    """The answer to a request. `place` is where the reader is redirected to."""

    body: bytes
    status: int = 200
    content_type: str = "text/html; charset=utf-8"
    place: str = ""
    keep: bool = False
    """True if the browser may keep it: what is at this address never changes."""


class _Missing(PenstockError):
    """There is no page at an address."""


class Site:
    """The pages over a store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._catalogues: dict[str | None, Catalogue] = {}
        self._looked: dict[str | None, float] = {}
        self._lock = threading.Lock()
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="penstock-catalogue")

    def answer(self, request: PageRequest) -> PageAnswer:
        """Returns the page, or one that says what is wrong. Errors of the store are shown, not raised."""
        try:
            return _Visit(self, request).answer()
        except (_Missing, UnknownSession, UnknownHandle) as error:
            return self._explain(request, "Not found", str(error), 404)
        except StoreError as error:
            return self._explain(request, "The store does not answer", redact(str(error)), 503)

    def _explain(self, request: PageRequest, title: str, text: str, status: int) -> PageAnswer:
        main = fragment(
            element("h1", title),
            element("p", f"{text[:1].upper()}{text[1:]}.", class_="lead"),
            element("p", element("a", "All conversations", href="/")),
        )
        return PageAnswer(_render(title, main, request.reader), status)

    def open_catalogue(self, reader: Visitor, store: Store) -> Catalogue:
        """Returns the catalogue of a reader, as current as it can be without waiting; the rest is read in a thread."""
        with self._lock:
            found = self._catalogues.get(reader.owner)
            if found is None:
                if len(self._catalogues) >= _MOST_CATALOGUES:
                    self._forget_catalogues()
                found = self._catalogues[reader.owner] = Catalogue(store)
            due = time.monotonic() - self._looked.get(reader.owner, -_LOOK_SECONDS) >= _LOOK_SECONDS
            if due:
                self._looked[reader.owner] = time.monotonic()
        if due and not found.refresh(quick=True):
            self._reading.submit(_finish, found)
        return found

    def close(self) -> None:
        """Stops background reading. The store is left open."""
        with self._lock:
            self._forget_catalogues()
        self._reading.shutdown(cancel_futures=True)

    def _forget_catalogues(self) -> None:
        for catalogue in self._catalogues.values():
            catalogue.stop()
        self._catalogues.clear()
        self._looked.clear()

    @property
    def store(self) -> Store:
        """The whole store."""
        return self._store

    @property
    def settings(self) -> Settings:
        """The settings that pages are made by."""
        return self._settings

    @property
    def now(self) -> float:
        """Returns the time."""
        return time.time()


def _finish(catalogue: Catalogue) -> None:
    try:
        catalogue.refresh()
    except StoreError:  # the next look tries again
        return


class _Visit:
    """One request: finds its page and makes it."""

    def __init__(self, site: Site, request: PageRequest) -> None:
        self._site = site
        self._request = request
        self._query = request.query
        owner = request.reader.owner
        self._store = site.store if owner is None else site.store.for_owner(owner)

    def answer(self) -> PageAnswer:
        parts = [unquote(part) for part in self._request.path.strip("/").split("/")]
        if self._request.method == "POST":
            return self._change(parts)
        match parts:
            case [""]:
                return self._show_overview()
            case ["search"]:
                return self._show_search()
            case ["usage"]:
                return self._show_usage()
            case ["usage.json"]:
                return self._show_usage(as_json=True)
            case ["c", name]:
                return self._show_conversation(find_conversation(self._store, name))
            case ["c", name, "window"]:
                return self._show_window(find_conversation(self._store, name))
            case ["c", name, handle, *rest]:
                return self._show_handle(find_conversation(self._store, name), handle, rest)
            case _:
                raise _Missing("There is no page at this address.")

    def _page(self, title: str, main: Html, here: str = "", *, charts: bool = False) -> PageAnswer:
        done = _DONE.get(self._query.get("done", ""))
        if done is not None:
            main = fragment(element("p", done, class_="notice", role="status"), main)
        return PageAnswer(_render(title, main, self._request.reader, here, charts=charts))

    def _part(self, part: LivePart) -> PageAnswer:
        if self._query.get("version") == part.version:
            return PageAnswer(b"", 204)
        return PageAnswer(part.render().encode("utf-8", "replace"))

    def _number(self, name: str, otherwise: int) -> int:
        given = self._query.get(name, "")
        return min(int(given), 1 << 40) if given.isascii() and given.isdigit() else otherwise

    # The overview, search and usage.

    def _show_overview(self) -> PageAnswer:
        typed, now = self._query.get("q", "")[:500], self._site.now
        start = self._number("start", 0)
        catalogue = self._site.open_catalogue(self._request.reader, self._store)
        overview: Overview = read_overview(
            self._store, catalogue, self._site.settings, read_catalogue_query(typed), (start, PAGE_ROWS), now
        )
        match self._query.get("part"):
            case "rows":
                return self._part(make_live_rows(overview, typed, PAGE_ROWS, now))
            case "figures":
                return self._part(make_live_figures(overview, now))
            case _:
                main = render_overview(overview, typed, PAGE_ROWS, now)
                return self._page("Conversations", main, "/")

    def _show_search(self) -> PageAnswer:
        query = self._query.get("q", "").strip()[:1_000]
        tip = find_conversation(self._store, self._query["in"]) if self._query.get("in") else None
        title = title_conversation(self._store, tip.id) if tip is not None else ""
        found: SearchReport | None = None
        waiting = 0
        if query:
            embedder = embedder_for(self._site.settings)
            waiting = self._store.count_unindexed(embedder=embedder)
            if waiting > _INDEXED_AT_ONCE:
                self._store.index(_INDEXED_AT_ONCE, embedder=embedder)
                found, waiting = SearchReport((), {}), self._store.count_unindexed(embedder=embedder)
            if waiting <= _INDEXED_AT_ONCE:
                wish, waiting = Wish(hits=_HITS, characters=_HIT_CHARS), 0
                session = tip.id if tip is not None else None
                found = search_conversations(self._store, query, wish, session, embedder)
        within = (tip.conversation, title) if tip is not None else ("", "")
        return self._page("Search", render_search(query, found, within, waiting), "/search")

    def _show_usage(self, *, as_json: bool = False) -> PageAnswer:
        days = max(1, min(3_650, self._number("days", PERIODS[2])))
        usage, insights = report_usage(self._store), report_insights(self._store, days, self._site.now)
        if as_json:
            told = {"usage": usage.to_dict(), "insights": insights.to_dict()}
            return PageAnswer(msgspec.json.encode(told), content_type="application/json")
        return self._page("Usage", render_usage(usage, insights), "/usage")

    # A conversation.

    def _show_conversation(self, tip: SessionRow) -> PageAnswer:
        name, part = tip.conversation, self._query.get("part")
        length = self._store.log_tip(tip.id).length
        at = self._query.get("at", "").strip()
        if at and parse_handle(at).kind is not HandleKind.MESSAGE:
            return PageAnswer(b"", 303, place=f"/search?q={quote(at)}&in={quote(name)}")
        if part == "tail" and self._number("known", 0) == length:
            return PageAnswer(b"", 204)
        if part == "state":
            return self._part(make_live_state(self._open(tip), self._site.now))
        stretch = self._read_stretch(tip, length, parse_handle(at).number if at else 0)
        marks = self._read_marks(tip, length)
        if part == "tail":
            return _fragment(render_tail(name, stretch, marks))
        if part in {"earlier", "later"}:
            return _fragment(render_stretch(name, stretch, marks, part))
        opened = self._open(tip)
        fill = measure_window(self._store, tip) if self._is_small(tip, length) else None
        main = render_conversation(opened, stretch, marks, fill, self._site.now)
        return self._page(opened.title or "Conversation", main, charts=True)

    def _open(self, tip: SessionRow) -> ConversationOverview:
        return open_conversation(self._store, tip, self._site.settings)

    def _read_stretch(self, tip: SessionRow, length: int, number: int) -> TranscriptPart:
        if number > length:
            raise UnknownHandle(f"there is no m{number}: this conversation has {length:,} messages")
        if number:
            start = max(0, number - 1 - PAGE_MESSAGES // 4)
        else:
            start = min(self._number("from", max(0, length - PAGE_MESSAGES)), length)
        end = min(length, self._number("to", start + PAGE_MESSAGES))
        if self._query.get("part") == "tail":
            end = length if length - start <= 4 * PAGE_MESSAGES else start + 4 * PAGE_MESSAGES
        end = min(end, start + 4 * PAGE_MESSAGES)
        return TranscriptPart(read_talk(self._store, tip.id, start, end - start), start, end, length)

    def _read_marks(self, tip: SessionRow, length: int) -> MessageMarks:
        newest = self._store.newest_compaction(tip.id)
        fates = trace_fates(length, newest.compaction if newest is not None else None)
        return MessageMarks(fates, self._store.pins(tip.id))

    def _is_small(self, tip: SessionRow, length: int) -> bool:
        newest = self._store.newest_compaction(tip.id)
        if newest is None:
            return length <= _SMALL_VIEW
        return len(newest.compaction.pieces) + length - newest.compaction.length <= _SMALL_VIEW

    def _show_window(self, tip: SessionRow) -> PageAnswer:
        content = render_fill(measure_window(self._store, tip))
        if self._query.get("part") == "fill":
            return _fragment(content)
        back = element(
            "p",
            element(
                "a",
                title_conversation(self._store, tip.id) or "The conversation",
                href=f"/c/{tip.conversation}",
            ),
            class_="about",
        )
        main = fragment(
            element("h1", "What fills the window"),
            back,
            element("section", content, aria_label="What fills the window"),
        )
        return self._page("What fills the window", main)

    # What a handle names: a message, a compaction, a stored result.

    def _show_handle(self, tip: SessionRow, given: str, rest: list[str]) -> PageAnswer:
        as_text = given.endswith(".txt") and not rest
        handle = parse_handle(given.removesuffix(".txt") if as_text else given)
        match handle.kind, rest:
            case HandleKind.MESSAGE, ["picture", digest]:
                return self._show_picture(tip, handle.number - 1, digest)
            case HandleKind.MESSAGE, ["pin"]:
                return self._ask_to_pin(tip, handle.text)
            case HandleKind.SUMMARY, [] if not as_text:
                return self._show_compaction(tip, handle.number)
            case HandleKind.SUMMARY, ["since"]:
                return self._show_quality(tip, handle.number)
            case HandleKind.SUMMARY, ["undo"]:
                return self._ask_to_undo(tip, handle.number)
            case ((HandleKind.MESSAGE | HandleKind.RESULT | HandleKind.SUMMARY | HandleKind.NODE), []):
                return self._show_message(tip, handle.text, as_text=as_text)
            case _:
                raise _Missing("There is no page at this address.")

    def _show_message(self, tip: SessionRow, handle: str, *, as_text: bool) -> PageAnswer:
        place, text = read_handle(self._store, tip, handle)
        if as_text:
            return PageAnswer(text.encode("utf-8", "replace"), content_type="text/plain; charset=utf-8")
        position = (
            parse_handle(handle).number - 1 if parse_handle(handle).kind is HandleKind.MESSAGE else None
        )
        marks = self._read_marks(tip, self._store.log_tip(tip.id).length)
        fate = marks.fates[position] if position is not None and position < len(marks.fates) else None
        main = render_message(
            tip.conversation, handle, place.role or place.kind, text, fate, pinned=position in marks.pins
        )
        return self._page(handle, main)

    def _show_picture(self, tip: SessionRow, position: int, digest: str) -> PageAnswer:
        for entry in self._store.read(tip.id, [position]):
            picture = find_pictures(parse_json(entry.raw)).get(digest)
            if picture is not None and picture.media_type in _TYPES:
                try:
                    data = base64.b64decode(picture.data, validate=True)
                except (binascii.Error, ValueError):
                    break
                return PageAnswer(data, content_type=picture.media_type, keep=True)
        raise _Missing("There is no such picture.")

    def _show_compaction(self, tip: SessionRow, number: int) -> PageAnswer:
        compared = compare_compaction(self._store, tip, number)
        quality = None
        if compared.log_length <= _SMALL_LOG:
            quality = measure_qualities(self._store, tip.id).get(compared.row.key)
        title = title_conversation(self._store, tip.id)
        main = render_compaction(tip.conversation, title, compared, quality)
        return self._page(f"Compaction s{number}", main)

    def _show_quality(self, tip: SessionRow, number: int) -> PageAnswer:
        row = find_compaction(self._store, tip.id, number)
        content = render_quality(measure_qualities(self._store, tip.id)[row.key])
        if self._query.get("part") == "quality":
            return _fragment(content)
        back = element(
            "p",
            element("a", f"Compaction s{number}", href=f"/c/{tip.conversation}/s{number}"),
            class_="about",
        )
        main = fragment(
            element("h1", "What followed"), back, element("section", content, aria_label="What followed")
        )
        return self._page("What followed", main)

    # What changes something: a page that asks, and the answer to it.

    def _ask_to_undo(self, tip: SessionRow, number: int) -> PageAnswer:
        compared = compare_compaction(self._store, tip, number)
        back = f"/c/{tip.conversation}/s{number}"
        if not compared.is_newest:
            main = fragment(
                element("h1", f"s{number} cannot be undone"),
                element("p", "Only the newest compaction in force can. Undo the later ones first."),
                element("p", element("a", "Back", href=back)),
            )
            return self._page("Undo", main)
        sizes = compared.row.receipt
        said = (
            "The view becomes what it was before: every message that this compaction shortened or summarised is sent "
            "again from the next request on, about "
            f"{sizes.get('tokens_before', 0):,} tokens instead of {sizes.get('tokens_after', 0):,}. "
            "Nothing that was said since is lost."
        )
        form = self._ask(f"{back}/undo", "Undo it", back, key=str(compared.row.key))
        return self._page(
            "Undo", fragment(element("h1", f"Undo compaction s{number}?"), _section(said, form))
        )

    def _ask_to_pin(self, tip: SessionRow, handle: str) -> PageAnswer:
        position = parse_handle(handle).number - 1
        if position >= self._store.log_tip(tip.id).length:
            raise UnknownHandle(f"there is no {handle} in this conversation")
        pinned = position in self._store.pins(tip.id)
        said = (
            "Compactions may shorten and summarise it again."
            if pinned
            else "Every later compaction keeps it in full, with the call or the results that belong to it."
        )
        form = self._ask(
            f"/c/{tip.conversation}/{handle}/pin",
            "Unpin it" if pinned else "Pin it",
            link_message(tip.conversation, handle),
            to="unpin" if pinned else "pin",
        )
        title = f"{'Unpin' if pinned else 'Pin'} {handle}?"
        return self._page(title, fragment(element("h1", title), _section(said, form)))

    def _ask(self, action: str, verb: str, back: str, **values: str) -> Html:
        hidden = {"token": self._request.reader.form_token, **values}
        return element(
            "form",
            *(element("input", type="hidden", name=name, value=value) for name, value in hidden.items()),
            element("button", verb, class_="main-button"),
            element("a", "Cancel", href=back, class_="button"),
            action=action,
            method="post",
            class_="line",
        )

    def _change(self, parts: list[str]) -> PageAnswer:
        form = self._request.form
        match parts:
            case ["c", name, handle, "undo"] if parse_handle(handle).kind is HandleKind.SUMMARY:
                tip = find_conversation(self._store, name)
                key = form.get("key", "")
                done = undo_compaction(self._store, tip.id, int(key) if key.isdigit() else -1)
                said = "undo" if done.undone else "late"
                return PageAnswer(b"", 303, place=f"/c/{tip.conversation}/{handle}?done={said}")
            case ["c", name, handle, "pin"]:
                tip = find_conversation(self._store, name)
                pinned = form.get("to") == "pin"
                change = change_pin(self._store, tip.id, handle, pinned=pinned)
                said = "unpin" if not pinned else "pin" if change.whole_in_view else "pin-later"
                place = f"/c/{tip.conversation}?at={change.handle}&done={said}#{change.handle}"
                return PageAnswer(b"", 303, place=place)
            case _:
                raise _Missing("There is nothing to change at this address.")


def _section(said: str, form: Html) -> Html:
    return element("section", element("p", said), form, aria_label="Confirm")


def _fragment(content: Html) -> PageAnswer:
    return PageAnswer(content.encode("utf-8", "replace"))


def _render(title: str, main: Html, reader: Visitor, here: str = "", *, charts: bool = False) -> bytes:
    leave = None
    if reader.may_leave:
        leave = element(
            "form",
            element("input", type="hidden", name="token", value=reader.form_token),
            element("button", "Log out", class_="link-button"),
            action="/logout",
            method="post",
        )
    page = render_served_page(title, main, here=here, leave=leave, charts=charts)
    return page.encode("utf-8", "replace")
