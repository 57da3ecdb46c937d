"""Stored conversations as people are shown them: the list, one with its sessions and compactions, and a search."""

from __future__ import annotations

import re
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock.accounts.display import format_time, redact
from penstock.accounts.pressure import PressureGauge, WindowPressure
from penstock.accounts.spending import CompactionTotals, Spending, sum_compactions, sum_requests
from penstock.accounts.timeline import (
    FateRun,
    TimePoint,
    find_cuts,
    find_runs,
    trace_fates,
    trace_requests,
)
from penstock.accounts.window import measure_fill
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.handles import HandleKind, name_message, parse_handle
from penstock.conversation.message import Role
from penstock.conversation.speakers import find_typed_command, people_in, person_words
from penstock.conversation.wire import parse_json
from penstock.errors import UnknownHandle, UnknownSession
from penstock.measure.wording import pluralise
from penstock.planning.receipt import LiveQuality
from penstock.recall.stems import find_forms, find_language
from penstock.recall.terms import split_tokens
from penstock.sessions.branches import TAKEN_OVER
from penstock.sessions.exporting import read_view_bytes
from penstock.sessions.handovers import HandedOver, HandoverOrigin, read_handovers, read_origin
from penstock.sessions.quality import measure_qualities, read_receipt
from penstock.sessions.session import Session
from penstock.sessions.stored_view import read_view_base
from penstock.stores.values import COMPRESSION, REWOUND
from penstock.writing.entities import EVERYTHING
from penstock.writing.reading import spoken_text
from penstock.writing.stubs import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.accounts.window import Fill
    from penstock.recall.embedding import Embedder
    from penstock.recall.history import Finding, HistoryPlace
    from penstock.recall.ranking import Wish
    from penstock.settings import Settings
    from penstock.stores.searching import SearchFilter
    from penstock.stores.store import Store
    from penstock.stores.values import (
        CompactionRow,
        ConversationRow,
        FactRow,
        LogShape,
        SessionRow,
        UsageRow,
    )
    from penstock.writing.entities import EntityState

__all__ = [
    "CompactionAccount",
    "ConversationAccount",
    "ConversationOverview",
    "ListedConversation",
    "SearchReport",
    "count_view_tokens",
    "describe_conversation",
    "filter_conversations",
    "find_conversation",
    "find_entities",
    "iterate_conversations",
    "list_conversations",
    "make_title",
    "mark_words",
    "measure_window",
    "open_conversation",
    "read_handle",
    "search_conversations",
    "show_remaining",
    "title_conversation",
]

_Found = TypeVar("_Found")
_Shown = TypeVar("_Shown")
_PAGE = 200  # conversations that are read from the store at once
_LISTED_MATCHES = 4
_FIRST_MESSAGES = 12  # among which the first request is looked for
_TITLE_CHARS = 100


def iterate_conversations(store: Store) -> Iterator[ConversationRow]:
    """Yields all conversations, the most recently used first."""
    offset = 0
    while page := store.list(limit=_PAGE, offset=offset):
        yield from page
        offset += len(page)


def find_conversation(store: Store, given: str) -> SessionRow:
    """Returns the tip of the conversation with that id, or with the only id that begins with `given`.

    Raises UnknownSession if there is none, or more than one.
    """
    try:
        return store.tip(given)
    except UnknownSession:
        pass
    found = store.find(given, limit=_LISTED_MATCHES + 1) if given else ()
    if not found:
        raise UnknownSession(f"no conversation has the id {given!r}; see penstock sessions list")
    if len(found) > 1:
        ids = ", ".join(row.conversation for row in found[:_LISTED_MATCHES]) + (
            ", …" if len(found) > _LISTED_MATCHES else ""
        )
        raise UnknownSession(f"{given!r} matches several ids ({ids}): give more characters")
    return found[0]


# The list.


class ListedConversation(msgspec.Struct, frozen=True):
    """A conversation in the list, with a title to show."""

    row: ConversationRow
    title: str

    @property
    def cache_hit(self) -> float | None:
        """Returns the share of prompt tokens that came from the provider's cache; None if nothing was sent."""
        used = self.row.usage
        return used.cache_read_tokens / used.prompt_tokens if used.prompt_tokens else None

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON."""
        row = self.row
        return {
            "id": row.id,
            "session": row.tip.id,
            "title": self.title,
            "dialect": row.tip.dialect,
            "model": row.tip.model,
            "started": row.started,
            "updated": row.updated,
            "messages": row.messages,
            "tokens": row.tokens,
            "view_tokens": row.view_tokens,
            "compactions": row.compactions,
            "usage": msgspec.structs.asdict(row.usage),
            "cost": row.cost,
        }


def list_conversations(
    store: Store, limit: int | None = None, *, with_empty: bool = True
) -> list[ListedConversation]:
    """Returns conversations with their titles, the most recently used first."""
    rows = (row for row in iterate_conversations(store) if with_empty or row.messages)
    listed = show_remaining(rows, lambda row: ListedConversation(row, make_title(store, row.tip, row.title)))
    return list(islice(listed, limit))


def show_remaining(found: Iterable[_Found], show: Callable[[_Found], _Shown]) -> Iterator[_Shown]:
    """Yields what `show` makes of each item of a list; skips items that were deleted since the list was read."""
    for one in found:
        try:
            shown = show(one)
        except UnknownSession:
            continue
        yield shown


def filter_conversations(found: Sequence[ListedConversation], query: str) -> list[ListedConversation]:
    """Returns those in whose title, id, model or time of last use every word of the query occurs, in their order."""
    words = query.casefold().split()
    return [
        one
        for one in found
        if all(
            word in f"{one.title} {one.row.id} {one.row.tip.model} {format_time(one.row.updated)}".casefold()
            for word in words
        )
    ]


def title_conversation(store: Store, session_id: str) -> str:
    """Returns the title of the conversation that a session belongs to, as in the list."""
    tip = store.tip(session_id)
    return make_title(store, tip, _last_title(_trace_lineage(store, tip)))


def make_title(store: Store, tip: SessionRow, title: str) -> str:
    """Returns the title, or the first words of the first request if there is none, without secrets."""
    return shorten(" ".join(redact(title or _read_first_words(store, tip)).split()), _TITLE_CHARS)


def _last_title(lineage: Sequence[SessionRow]) -> str:
    return next((row.title for row in reversed(lineage) if row.title), "")


def _read_first_words(store: Store, tip: SessionRow) -> str:
    """Returns the first words of a person or, if there are none, those that a program has inserted before them.

    A command that a person typed counts if nothing else was typed.
    """
    dialect = dialect_named(tip.dialect)
    entries = store.read_from(tip.id, 0, _FIRST_MESSAGES)
    messages = [dialect.decode(parse_json(entry.raw)) for entry in entries]
    said = [messages[place] for place in people_in(messages)]
    texts = [words for message in said if (words := person_words(message).strip())]
    texts += [find_typed_command(message) for message in said]
    texts += [spoken_text(message).strip() for message in messages if message.role is Role.USER]
    return next(filter(None, texts), "")


# One conversation.


class CompactionAccount(msgspec.Struct, frozen=True):
    """A compaction: its receipt, its reason, its cost, its savings since then and its quality."""

    session: str
    created: float
    undone: float | None
    receipt: Mapping[str, Any]
    totals: CompactionTotals
    quality: LiveQuality

    @property
    def headline(self) -> str:
        """Returns the receipt in one line."""
        if (count := self.receipt.get(REWOUND)) is not None:
            return f"rewound by {pluralise(count, 'message')}"
        receipt = read_receipt(self.receipt)
        if receipt is None:
            return "a compaction whose receipt cannot be read"
        return str(receipt).splitlines()[0]

    @property
    def decision(self) -> Mapping[str, Any] | None:
        """Returns why it was made at that moment; None if that was not recorded."""
        found = self.receipt.get("decision")
        return found if isinstance(found, dict) else None

    @property
    def taken_over_from(self) -> str:
        """Returns the session that made it, if a branch took it over from there; otherwise an empty text."""
        return str(self.receipt.get(TAKEN_OVER) or "")

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON."""
        return {
            "session": self.session,
            "created": self.created,
            "undone": self.undone,
            "receipt": {**self.receipt, "quality": self.quality.to_dict()},
        }


class ConversationAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation: its sessions, what became of them, its sizes and its cost."""

    lineage: list[SessionRow]
    """Its sessions, the oldest first; each compaction begins another one."""
    relatives: list[SessionRow]
    """Branches and sub-agents that began in one of its sessions."""
    compactions: list[CompactionAccount]
    """All compactions, undone ones included, in the order in which they were made."""
    pins: list[int]
    """Positions of pinned messages."""
    title: str
    log_messages: int
    log_tokens: int
    view_messages: int
    view_tokens: int
    requests: Sequence[UsageRow]
    facts: Sequence[FactRow] | None = None
    """Notes on messages that left the view; None if they were not asked for."""
    origin: HandoverOrigin | None = None
    """The conversation that its client had compacted to begin this one; None if it began by itself."""
    handovers: Sequence[HandedOver] = ()
    """Handoffs of it that clients were given to go on from."""

    @property
    def spending(self) -> Spending:
        """Returns what its requests used and cost."""
        return sum_requests(self.requests)

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON."""
        first, tip = self.lineage[0], self.lineage[-1]
        return {
            "id": first.id,
            "title": self.title,
            "dialect": tip.dialect,
            "model": tip.model,
            "log": {"messages": self.log_messages, "tokens": self.log_tokens},
            "view": {"messages": self.view_messages, "tokens": self.view_tokens},
            "pins": [name_message(place + 1) for place in self.pins],
            "requests": len(self.requests),
            "cost": self.spending.cost,
            "sessions": [_session_to_dict(row) for row in self.lineage],
            "relatives": [_session_to_dict(row) for row in self.relatives],
            "compactions": [one.to_dict() for one in self.compactions],
            "continues": None if self.origin is None else msgspec.to_builtins(self.origin),
            "handed_over": msgspec.to_builtins(self.handovers),
            **({} if self.facts is None else {"facts": [_fact_to_dict(fact) for fact in self.facts]}),
        }


def describe_conversation(store: Store, tip: SessionRow, *, facts: bool = False) -> ConversationAccount:
    """Returns everything there is to show of the conversation with that tip; its facts only if they are asked for."""
    lineage = _trace_lineage(store, tip)
    children = [child for row in lineage for child in store.list_children(row.id)]
    entries = store.read_from(tip.id, 0)
    requests, qualities = store.usage(session_id=tip.id), measure_qualities(store, tip.id)
    return ConversationAccount(
        lineage=lineage,
        relatives=[row for row in children if row.kind != COMPRESSION],
        compactions=[
            _describe_compaction(row, requests, qualities[row.key])
            for row in store.compactions(tip.id, undone=True)
        ],
        pins=sorted(store.pins(tip.id)),
        title=make_title(store, tip, _last_title(lineage)),
        log_messages=len(entries),
        log_tokens=sum(entry.tokens for entry in entries),
        view_messages=len(read_view_bytes(store, tip.id)),
        view_tokens=count_view_tokens(store, tip.id),
        requests=requests,
        facts=store.facts(tip.id) if facts else None,
        origin=read_origin(store, tip.conversation),
        handovers=read_handovers(store, tip.conversation),
    )


class ConversationOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation at a glance, however long it is: none of its messages is read for it."""

    tip: SessionRow
    title: str
    shape: LogShape
    view_tokens: int
    pressure: WindowPressure
    runs: list[FateRun]
    cuts: list[tuple[int, int]]
    points: list[TimePoint]
    compactions: list[CompactionAccount]
    """All compactions, undone ones included, in the order in which they were made; not judged by what followed."""
    newest: int
    """The number of the compaction that the view rests on, from 1 on; 0 if it is the bare log."""
    pins: frozenset[int]
    relatives: list[SessionRow]
    spending: Spending
    """The usage and cost of its requests."""


def open_conversation(store: Store, tip: SessionRow, settings: Settings) -> ConversationOverview:
    """Returns a conversation at a glance."""
    lineage = _trace_lineage(store, tip)
    rows = store.compactions(tip.id, undone=True)
    holding = store.newest_compaction(tip.id)
    shape, requests = store.shape(tip.id), store.usage(session_id=tip.id)
    length = holding.compaction.length if holding is not None else 0
    after = holding.receipt.get("tokens_after", 0) if holding is not None else 0
    view_tokens = after + sum(shape.tokens[length:])
    fates = trace_fates(len(shape.tokens), holding.compaction if holding is not None else None)
    children = [child for row in lineage for child in store.list_children(row.id)]
    return ConversationOverview(
        tip=tip,
        title=make_title(store, tip, _last_title(lineage)),
        shape=shape,
        view_tokens=view_tokens,
        pressure=PressureGauge(store, settings).measure(tip, view_tokens),
        runs=find_runs(fates, shape),
        cuts=find_cuts(rows),
        points=trace_requests(requests, shape),
        compactions=[_describe_compaction(row, requests, LiveQuality()) for row in rows],
        newest=next(
            (n for n, row in enumerate(rows, 1) if holding is not None and row.key == holding.key), 0
        ),
        pins=store.pins(tip.id),
        relatives=[row for row in children if row.kind != COMPRESSION],
        spending=sum_requests(requests),
    )


def measure_window(store: Store, tip: SessionRow) -> Fill:
    """Returns what fills the window now: the tokens of the view by kind of content."""
    session = Session(store, tip)
    sent = [message.wire for message in read_view_base(store, tip).view.mend()]
    return measure_fill(decode_all(dialect_named(tip.dialect), sent), session.workings.notebook.tokenizer)


def count_view_tokens(store: Store, session_id: str) -> int:
    """Returns the tokens of the view: of the newest compaction's result, and of the messages logged after it."""
    newest = store.newest_compaction(session_id)
    before = newest.receipt.get("tokens_after", 0) if newest is not None else 0
    start = newest.compaction.length if newest is not None else 0
    return before + sum(entry.tokens for entry in store.read_from(session_id, start))


def read_handle(store: Store, tip: SessionRow, handle: str) -> tuple[HistoryPlace, str]:
    """Returns the place of a message, summary, node or stored result, and its whole text without secrets.

    Raises UnknownHandle.
    """
    history = Session(store, tip).history
    return history.describe(handle), history.text(handle)


def find_entities(store: Store, tip: SessionRow, name: str) -> list[EntityState]:
    """Returns what is known now of the files, commands, records and people that a name means, without secrets.

    Raises UnknownHandle if there is none.
    """
    found = Session(store, tip).entities(name)
    if not found and name == EVERYTHING:
        raise UnknownHandle(
            "nothing is known yet of any file, command, record or person in this conversation"
        )
    if not found:
        raise UnknownHandle(
            f"nothing is known of {name!r} in this conversation; try the end of a path, a command, an id, a kind such as "
            "file, command or person, or '*' for all"
        )
    return found


def _describe_compaction(
    row: CompactionRow, requests: Sequence[UsageRow], quality: LiveQuality
) -> CompactionAccount:
    return CompactionAccount(
        session=row.session,
        created=row.created,
        undone=row.undone,
        receipt=row.receipt,
        totals=sum_compactions([row], requests),
        quality=quality,
    )


def _trace_lineage(store: Store, tip: SessionRow) -> list[SessionRow]:
    """Returns the sessions of the conversation, the oldest first."""
    rows = [tip]
    while rows[0].kind == COMPRESSION and rows[0].parent:
        rows.insert(0, store.session(rows[0].parent))
    return rows


def _fact_to_dict(fact: FactRow) -> dict[str, Any]:
    return {
        "handle": name_message(fact.position + 1),
        "kind": fact.kind,
        "text": fact.text,
        "label": fact.label,
        "uses": fact.uses,
        "changed_by": None if fact.superseded is None else name_message(fact.superseded + 1),
        "at": fact.at,
    }


def _session_to_dict(row: SessionRow) -> dict[str, Any]:
    shown = {**msgspec.structs.asdict(row), "title": redact(row.title)}
    if not row.owner:
        del shown["owner"]
    return shown


# Search.

_WORD = re.compile(r"\w+")
_AT_ONCE = 500  # messages that are indexed between two reports of progress
_RENEWED = 64  # messages that are indexed anew with each search, where an older version indexed them
_INDEXING_SECONDS = 5.0


class SearchReport(msgspec.Struct, frozen=True):
    """Hits, the best first, and the titles of their conversations by session.

    `waiting` counts messages that were not searched, since they are not indexed yet.
    """

    hits: tuple[Finding, ...]
    titles: dict[str, str]
    roles: dict[tuple[str, str], str] = {}
    """The role of the first message of each hit, by session and handle."""
    waiting: int = 0

    def get_role(self, hit: Finding) -> str:
        """Returns who speaks in a hit: a role, `handoff` for a summary, or nothing if it is not known."""
        if hit.handles and parse_handle(hit.handles[0]).kind is HandleKind.SUMMARY:
            return "handoff"
        return self.roles.get((hit.session, hit.handles[0]), "")

    def to_dicts(self) -> list[dict[str, Any]]:
        """Returns the hits as JSON."""
        return [
            {
                "session": hit.session,
                "title": self.titles[hit.session],
                "handles": list(hit.handles),
                "turn": hit.turn,
                "role": self.get_role(hit),
                "at": hit.at,
                "score": round(hit.score, 4),
                "excerpt": hit.excerpt,
            }
            for hit in self.hits
        ]


def search_conversations(  # noqa: PLR0913  # what is rarely given, by name
    store: Store,
    query: str,
    wish: Wish,
    session_id: str | None = None,
    embedder: Embedder | None = None,
    *,
    on_indexed: Callable[[int, int], None] | None = None,
    within: SearchFilter | None = None,
) -> SearchReport:
    """Returns what matches in one conversation, or in all; excerpts and titles are without secrets.

    New messages are indexed first, for a few seconds; `on_indexed` hears how many are done and how many are left.
    """
    left, done = store.count_unindexed(embedder=embedder), 0
    until = time.monotonic() + _INDEXING_SECONDS
    while left and time.monotonic() < until and (some := store.index(_AT_ONCE, embedder=embedder)):
        left, done = store.count_unindexed(embedder=embedder), done + some
        if on_indexed is not None:
            on_indexed(done, left)
    if not left:
        store.index(_RENEWED)  # where an older version indexed: some of it anew
    dated = msgspec.structs.replace(wish, now=wish.now or time.time())
    hits = tuple(
        store.search(query, dated, session_id=session_id, redact=redact, embedder=embedder, within=within)
    )
    sessions = {hit.session for hit in hits}
    titles = dict(show_remaining(sessions, lambda one: (one, title_conversation(store, one))))
    roles = dict(show_remaining(hits, lambda hit: ((hit.session, hit.handles[0]), _read_role(store, hit))))
    return SearchReport(tuple(hit for hit in hits if hit.session in titles), titles, roles, left)


def _read_role(store: Store, hit: Finding) -> str:
    handle = parse_handle(hit.handles[0])
    if handle.kind is not HandleKind.MESSAGE:
        return ""
    return next((entry.role for entry in store.read(hit.session, [handle.number - 1])), "")


def mark_words(text: str, query: str) -> Iterator[tuple[str, bool]]:
    """Yields the text in pieces, each with whether it is a word of the query, as the search understands words."""
    language = find_language(f"{query} {text}")
    asked = frozenset(form for token in split_tokens(query) for form in find_forms(token, language))
    place = 0
    for word in _WORD.finditer(text):
        if asked.intersection(find_forms(word[0], language)):
            if word.start() > place:
                yield text[place : word.start()], False
            yield word[0], True
            place = word.end()
    if place < len(text):
        yield text[place:], False
