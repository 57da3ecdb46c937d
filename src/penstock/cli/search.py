"""`penstock search`: messages of stored conversations, with the handles to read them in full."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from penstock.accounts.conversations import (
    find_conversation,
    iterate_conversations,
    mark_words,
    search_conversations,
)
from penstock.accounts.display import SHORT_ID_CHARS, format_time
from penstock.cli.options import carry_store
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import printable, screen_of
from penstock.cli.source import settings_of
from penstock.cli.stored import open_store_of
from penstock.errors import InputError
from penstock.measure.wording import pluralise
from penstock.recall.ranking import Wish
from penstock.recall.semantic import embedder_for
from penstock.stores.searching import SearchFilter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.accounts.conversations import SearchReport
    from penstock.cli.screen import Screen
    from penstock.recall.embedding import Embedder
    from penstock.stores.store import Store

__all__ = ["reading_hint", "run", "search_lines", "search_store"]


def run(args: argparse.Namespace) -> int:
    """Searches, and shows the hits, best first. Raises UnknownSession, InputError."""
    query = " ".join(args.query)
    if not query.strip():
        raise InputError("search for what? give words, a name, a path or a number")
    with open_store_of(args, must_exist=True) as store:
        session_id = find_conversation(store, args.session).id if args.session else None
        wish = Wish(hits=args.limit, characters=args.characters)
        within = SearchFilter(args.since, args.role or "", args.tool or "", args.path or "")
        found = search_store(store, query, wish, session_id, embedder_for(settings_of(args)), within)
        is_empty = not found.hits and not any(iterate_conversations(store))
        url = store.url
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps(found.to_dicts(), indent=2))
        if found.waiting:
            print(_say_waiting(found), file=sys.stderr)
        return 0
    if is_empty:
        hint = carry_store("add some with penstock sessions import FILE", args)
        screen.say(f"no conversations in {printable(url)}; {hint}")
        return 0
    narrowing = [f"--{name}" for name in ("session", "since", "role", "tool", "path") if getattr(args, name)]
    for line in search_lines(found, query, screen, narrowing):
        screen.say(line)
    if found.hits:
        screen.say("")
        screen.say(screen.paint(carry_store(reading_hint(found), args), "dim"))
    return 0


def search_store(
    store: Store,
    query: str,
    wish: Wish,
    session_id: str | None = None,
    embedder: Embedder | None = None,
    within: SearchFilter | None = None,
) -> SearchReport:
    """Searches one conversation or all; a line on the terminal shows the progress of indexing new messages."""
    with ProgressLine("searching") as progress:

        def show_progress(done: int, left: int) -> None:
            progress.now(f"indexing new messages, {done:,} done, {left:,} to go" if left else "searching")

        return search_conversations(
            store, query, wish, session_id, embedder, on_indexed=show_progress, within=within
        )


def search_lines(
    found: SearchReport, query: str, screen: Screen, narrowing: Sequence[str] = ()
) -> Iterator[str]:
    """Yields the hits, with the words of the query in colour. `narrowing` are the options that left some out."""
    if found.waiting:
        yield screen.paint(_say_waiting(found), "yellow")
    if not found.hits:
        yield (
            "nothing found: try other words, or a name, path or number from the conversation"
            f"{'; or search without ' + listed if (listed := ', '.join(narrowing)) else ''}"
        )
        return
    for number, one in enumerate(found.hits):
        if number:
            yield ""
        when = format_time(one.at) if one.at is not None else ""
        parts = (one.session[:SHORT_ID_CHARS], " ".join(one.handles), when, found.get_role(one))
        head = "  ".join(filter(None, parts))
        title = screen.clip(printable(found.titles[one.session]), len(head) + 2)
        yield f"{screen.paint(head, 'bold')}  {screen.paint(title, 'dim')}".rstrip()
        for line in one.excerpt.split("\n"):
            yield "  " + _highlight(printable(line), query, screen)


def _say_waiting(found: SearchReport) -> str:
    messages = pluralise(found.waiting, "message")
    return f"{messages} not searched yet: still to be indexed; search again to include them"


def reading_hint(found: SearchReport) -> str:
    """Returns the command that shows the best message in full."""
    first = found.hits[0]
    return f"to read one in full: penstock sessions show {first.session[:SHORT_ID_CHARS]} --handle {first.handles[0]}"


def _highlight(line: str, query: str, screen: Screen) -> str:
    """Returns the line, cut to the screen, with the words of the query in colour."""
    shown = screen.clip(line, 2)
    if not screen.colour:
        return shown
    return "".join(
        screen.paint(piece, "yellow") if asked else piece for piece, asked in mark_words(shown, query)
    )
