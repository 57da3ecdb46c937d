"""`penstock search`: what was said in stored conversations, with the handle by which it can be read whole."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.cli.layout import plural, printable
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import screen_of
from penstock.cli.session_list import title_of
from penstock.cli.source import settings_of
from penstock.cli.stored import SHORT, found_session, moment, opened_store, redactor
from penstock.recall.ranking import Wish
from penstock.recall.semantic import embedder_for
from penstock.recall.terms import find_terms, split_tokens
from penstock.stores.values import COMPRESSION

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from penstock.cli.screen import Screen
    from penstock.recall.embedding import Embedder
    from penstock.recall.history import Finding
    from penstock.stores.store import Store

__all__ = ["FoundMessages", "findings_of", "lines", "run"]

_AT_ONCE = 2_000  # messages that are indexed between two looks at the progress
_WORD = re.compile(r"\w+")


class FoundMessages(NamedTuple):
    """What was found, best first, and the titles of the conversations it is in."""

    hits: tuple[Finding, ...]
    titles: dict[str, str]


def run(args: argparse.Namespace) -> int:
    """Search, and show what was found, best first. Raises UnknownSession."""
    query = " ".join(args.query)
    with opened_store(args, is_there=True) as store:
        session_id = found_session(store, args.session).id if args.session else None
        wish = Wish(hits=args.limit, characters=args.characters)
        found = findings_of(store, query, wish, session_id, embedder_for(settings_of(args)))
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps([_as_json(one, found.titles[one.session]) for one in found.hits], indent=2))
        return 0
    for line in lines(found, query, screen):
        screen.say(line)
    return 0


def findings_of(
    store: Store,
    query: str,
    wish: Wish,
    session_id: str | None = None,
    embedder: Embedder | None = None,
) -> FoundMessages:
    """Search a conversation, or all; what is new is indexed first."""
    _index(store, embedder)
    redact = redactor().redact
    hits = tuple(store.search(query, wish, session_id=session_id, redact=redact, embedder=embedder))
    return FoundMessages(hits, {one.session: _title(store, one.session) for one in hits})


def _index(store: Store, embedder: Embedder | None) -> None:
    """Index what is new, and say how far that is."""
    if not store.unindexed(embedder=embedder):
        return
    with ProgressLine("indexing what is new") as progress:
        done = 0
        while some := store.index(_AT_ONCE, embedder=embedder):
            done += some
            left = store.unindexed(embedder=embedder)
            progress.now(f"indexing what is new, {plural(done, 'message')} done, {left:,} to go")


def _title(store: Store, session: str) -> str:
    """As in the list: the last title that the conversation was given, in whichever of its sessions."""
    tip = row = store.tip(session)
    while not row.title and row.kind == COMPRESSION and row.parent:
        row = store.session(row.parent)
    return title_of(store, tip, row.title)


def lines(found: FoundMessages, query: str, screen: Screen) -> Iterator[str]:
    """What was found, with the words that were asked for in colour."""
    if not found.hits:
        yield "nothing found: try other words, or a name, path or number that stood there"
        return
    asked = frozenset(term for token in split_tokens(query) for term in find_terms(token))
    for number, one in enumerate(found.hits):
        if number:
            yield ""
        when = moment(one.at) if one.at is not None else ""
        head = "  ".join(filter(None, (one.session[:SHORT], " ".join(one.handles), when)))
        title = screen.clip(printable(found.titles[one.session]), len(head) + 2)
        yield f"{screen.paint(head, 'bold')}  {screen.paint(title, 'dim')}".rstrip()
        for line in one.excerpt.split("\n"):
            yield "  " + _highlighted(printable(line), asked, screen)
    first = found.hits[0]
    yield ""
    yield screen.paint(
        f"read one whole: penstock sessions show {first.session[:SHORT]} --handle {first.handles[0]}", "dim"
    )


def _highlighted(line: str, asked: frozenset[str], screen: Screen) -> str:
    """The line, cut to the screen, with the words that were asked for in colour."""
    shown = screen.clip(line, 2)
    if not screen.colour:
        return shown
    return _WORD.sub(
        lambda word: screen.paint(word[0], "yellow") if asked.intersection(find_terms(word[0])) else word[0],
        shown,
    )


def _as_json(one: Finding, title: str) -> dict[str, Any]:
    return {
        "session": one.session,
        "title": title,
        "handles": list(one.handles),
        "turn": one.turn,
        "at": one.at,
        "score": round(one.score, 4),
        "excerpt": one.excerpt,
    }
