"""`penstock sessions list`: one row for each conversation."""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.layout import aligned, clipped, fitting, printable
from penstock.cli.screen import Screen, screen_of
from penstock.cli.stored import SHORT, conversations, moment, money, opened_store, redacted
from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Role, Text
from penstock.conversation.wire import parse_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.stores.store import Store
    from penstock.stores.values import ConversationRow, SessionRow

__all__ = ["ListedConversation", "lines", "listed", "run_list", "title_of", "view_tokens"]

_COLUMNS = 80  # where the output is no terminal
_FIRST = 12  # messages among which the first request is looked for
_TITLE_CHARS = 100
_LEAST_TITLE = 10  # columns
_GIVE_WAY = (4, 5, 2, 3)  # columns of the table that go where it is too narrow for all
_HEADINGS = ["id", "last used", "msgs", "tokens", "comp", "cost", "title"]


class ListedConversation(msgspec.Struct, frozen=True):
    """A conversation in the list, with a title as it may be shown."""

    row: ConversationRow
    title: str


def run_list(args: argparse.Namespace) -> int:
    """Show the conversations, the one that was used last first."""
    with opened_store(args) as store:
        shown = [listed(store, row) for row in islice(conversations(store), args.limit)]
        url = store.url
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps([_as_json(one) for one in shown], indent=2))
        return 0
    if not shown:
        screen.say(f"no conversations in {printable(url)}; bring some with penstock sessions import FILE")
        return 0
    for line in lines(shown, screen):
        screen.say(line)
    return 0


def listed(store: Store, row: ConversationRow) -> ListedConversation:
    """The row with a title."""
    return ListedConversation(row, title_of(store, row.tip, row.title))


def title_of(store: Store, tip: SessionRow, title: str) -> str:
    """The title, or the first words of the first request, as they may be shown."""
    return " ".join(redacted(title or _first_words(store, tip)).split())[:_TITLE_CHARS]


def lines(shown: Sequence[ListedConversation], screen: Screen) -> Iterator[str]:
    """The table, no wider than the screen: on a narrow one, columns give way to the title."""
    columns = screen.columns or _COLUMNS
    rows = [_HEADINGS[:-1], *(_cells(one) for one in shown)]
    cells_that_fit = fitting(rows, columns - _LEAST_TITLE - 2, _GIVE_WAY)
    titles = [_HEADINGS[-1], *(printable(one.title) for one in shown)]
    for number, (cells, title) in enumerate(
        zip(aligned(cells_that_fit, right={2, 3, 4, 5}), titles, strict=True)
    ):
        start = "  ".join(cells)
        room = columns - len(start) - 2
        line = f"{start}  {clipped(title, max(room, 8), screen.unicode)}".rstrip()
        yield screen.paint(line, "dim") if number == 0 else line


def view_tokens(store: Store, session_id: str) -> int:
    """Tokens of the view: of the newest compaction's result, and of what was logged after it."""
    newest = store.newest_compaction(session_id)
    before = newest.receipt.get("tokens_after", 0) if newest is not None else 0
    start = newest.compaction.length if newest is not None else 0
    return before + sum(entry.tokens for entry in store.read_from(session_id, start))


def _first_words(store: Store, tip: SessionRow) -> str:
    """The first request, rather not one that a program has put in front."""
    dialect = dialect_named(tip.dialect)
    requests: list[str] = []
    for entry in store.read_from(tip.id, 0, _FIRST):
        message = dialect.decode(parse_json(entry.raw))
        if message.role is Role.USER:
            requests += [part.text.strip() for part in message.parts if isinstance(part, Text)]
    words = [text for text in requests if text]
    return next((text for text in words if not text.startswith(("<", "# AGENTS.md"))), "") or next(
        iter(words), ""
    )


def _cells(one: ListedConversation) -> list[str]:
    row = one.row
    cost = "-" if row.cost is None and not row.usage.total_tokens else money(row.cost)
    return [
        row.id[:SHORT],
        moment(row.updated),
        f"{row.messages:,}",
        _short(row.view_tokens),
        str(row.compactions or "-"),
        cost,
    ]


def _short(count: int) -> str:
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1_000:.0f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def _as_json(one: ListedConversation) -> dict[str, Any]:
    row = one.row
    return {
        "id": row.id,
        "session": row.tip.id,
        "title": one.title,
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
