"""`penstock sessions list` and `show`: stored conversations, one of them, or one message of it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import msgspec

from penstock.accounts.conversations import (
    describe_conversation,
    find_conversation,
    find_entities,
    list_conversations,
    read_handle,
)
from penstock.accounts.display import SHORT_ID_CHARS, format_sum, format_time, redact, shorten_count
from penstock.accounts.talk import read_talk
from penstock.cli.options import carry_store
from penstock.cli.screen import Screen, align, drop_columns, printable, screen_of, wrap
from penstock.cli.stored import open_store_of
from penstock.cli.talk import page, talk_lines
from penstock.conversation.handles import name_message
from penstock.measure.wording import pluralise
from penstock.sessions.facts import KeptKind
from penstock.stores.values import SUBAGENT

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.accounts.conversations import ConversationAccount, ListedConversation
    from penstock.recall.history import HistoryPlace
    from penstock.sessions.handovers import HandedOver, HandoverOrigin
    from penstock.stores.values import FactRow, SessionRow
    from penstock.writing.entities import EntityState

__all__ = ["entity_lines", "handle_lines", "list_lines", "run_list", "run_show", "show_lines"]

_LEAST_TITLE_COLUMNS = 10
_HEADINGS = ["id", "last used", "msgs", "tokens", "comp", "cost", "title"]
_UNDER_TIME = 20  # columns: where what stands behind a moment begins
_DROPPED_FIRST = (4, 5, 2, 3)  # columns of the list that go where it is too narrow for all


def run_list(args: argparse.Namespace) -> int:
    """Lists the conversations, the most recently used first."""
    with open_store_of(args, must_exist=True) as store:
        found = list_conversations(store, args.limit, with_empty=False)
        url = store.url
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps([one.to_dict() for one in found], indent=2))
        return 0
    if not found:
        hint = carry_store("add some with penstock sessions import FILE", args)
        screen.say(f"no conversations in {printable(url)}; {hint}")
        return 0
    for line in list_lines(found, screen):
        screen.say(line)
    return 0


def list_lines(found: Sequence[ListedConversation], screen: Screen) -> Iterator[str]:
    """Yields the table, no wider than the screen: on a narrow one, columns are dropped before the title. A pipe gets every column."""
    room = max(1, screen.columns - _LEAST_TITLE_COLUMNS - 2) if screen.columns else 0
    rows = [_HEADINGS[:-1], *(_cells(one) for one in found)]
    cells_that_fit = drop_columns(rows, room, _DROPPED_FIRST)
    titles = [_HEADINGS[-1], *(printable(one.title) for one in found)]
    for number, (cells, title) in enumerate(
        zip(align(cells_that_fit, right={2, 3, 4, 5}), titles, strict=True)
    ):
        start = "  ".join(cells)
        line = f"{start}  {screen.clip(title, len(start) + 2)}".rstrip()
        yield screen.paint(line, "dim") if number == 0 else line


def _cells(one: ListedConversation) -> list[str]:
    row = one.row
    nothing = row.cost is None and not row.usage.total_tokens
    cost = "-" if nothing else format_sum(row.cost, row.known_cost)
    return [
        row.id[:SHORT_ID_CHARS],
        format_time(row.updated),
        f"{row.messages:,}",
        shorten_count(row.view_tokens),
        str(row.compactions or "-"),
        cost,
    ]


def run_show(args: argparse.Namespace) -> int:
    """Shows a conversation, or with `--handle` one message, with `--entity` what is known of something in it.

    Raises UnknownSession, UnknownHandle.
    """
    with open_store_of(args, must_exist=True) as store:
        tip = find_conversation(store, args.id)
        if args.handle:
            return _show_handle(*read_handle(store, tip, args.handle.lower()), as_json=args.json)
        if args.entity is not None:
            return _show_entities(find_entities(store, tip, args.entity), as_json=args.json)
        found = describe_conversation(store, tip, facts=args.facts)
        entries = [] if args.json or args.facts else read_talk(store, tip.id)
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps(found.to_dict(), indent=2))
        return 0
    page([*show_lines(found, screen), *talk_lines(entries, screen)], screen)
    return 0


def _show_handle(place: HistoryPlace, text: str, *, as_json: bool) -> int:
    screen = screen_of(sys.stdout)
    if as_json:
        screen.say(json.dumps({**msgspec.to_builtins(place), "text": text}, indent=2))
        return 0
    for line in handle_lines(place, text, screen):
        screen.say(line)
    return 0


def handle_lines(place: HistoryPlace, text: str, screen: Screen) -> Iterator[str]:
    """Yields the full text behind a handle, under a line that says what it is."""
    about = [place.handle, place.role or place.kind, pluralise(place.tokens, "token")]
    if place.at is not None:
        about.append(format_time(place.at))
    if place.in_view:
        about.append("in the view")
    yield screen.paint(" · ".join(map(printable, about)), "bold")
    for line in text.split("\n"):
        yield "\t".join(map(printable, line.removesuffix("\r").split("\t")))


def _show_entities(found: Sequence[EntityState], *, as_json: bool) -> int:
    screen = screen_of(sys.stdout)
    if as_json:
        screen.say(json.dumps(msgspec.to_builtins(found), indent=2))
        return 0
    for line in entity_lines(found, screen):
        screen.say(line)
    return 0


def entity_lines(found: Sequence[EntityState], screen: Screen) -> Iterator[str]:
    """Yields everything known about one entity; for several, one line each."""
    if len(found) > 1:
        rows = [[one.handle, one.kind, _entity_text(one)] for one in found]
        yield from (screen.clip("  ".join(cells), 0) for cells in align(rows, right={0}))
        return
    for one in found:
        yield screen.paint(printable(f"{one.kind} {one.name}"), "bold")
        moment = f", {format_time(one.at)}" if one.at is not None else ""
        yield from wrap(printable(f"  now      {one.state} ({one.handle}{moment})"), screen.columns, 11)
        if one.tried is not None:
            yield from wrap(
                printable(f"  tried    {one.tried.what} ({one.tried.handle})"), screen.columns, 11
            )
        yield f"  seen     {pluralise(one.times, 'time')}"
        width = max((len(change.handle) for change in one.changes), default=0)
        for place, change in enumerate(one.changes if len(one.changes) > 1 else ()):
            start = "  history  " if place == 0 else " " * 11
            yield screen.clip(printable(f"{start}{change.handle:>{width}}  {change.what}"), 0)


def _entity_text(one: EntityState) -> str:
    tried = f"; {one.tried.what} ({one.tried.handle})" if one.tried is not None else ""
    return printable(f"{one.name}: {one.state}{tried}")


def show_lines(found: ConversationAccount, screen: Screen) -> Iterator[str]:
    """Yields the report on one conversation."""
    first, tip = found.lineage[0], found.lineage[-1]
    yield screen.paint(screen.clip(f"{first.id}  {printable(found.title)}".rstrip(), 0), "bold")
    about = [tip.dialect, printable(tip.model or "no model named"), first.kind]
    if first.parent:
        about.append(f"of session {first.parent}")
    yield screen.paint("  " + " · ".join(about), "dim")
    yield f"  log          {pluralise(found.log_messages, 'message')}, {pluralise(found.log_tokens, 'token')}"
    yield f"  view         {pluralise(found.view_messages, 'message')}, {pluralise(found.view_tokens, 'token')}"
    if found.pins:
        yield f"  pins         {', '.join(name_message(place + 1) for place in found.pins)}"
    yield from _origin_lines(found.origin)
    if found.requests:
        cost = format_sum(found.spending.cost, found.spending.known_cost)
        yield f"  requests     {len(found.requests):,}, cost {cost}"
    yield screen.paint("sessions", "bold")
    rows = [[row.id, *_period(row)] for row in found.lineage]
    yield from ("  " + "  ".join(cells).rstrip() for cells in align(rows))
    if found.compactions:
        yield screen.paint("compactions", "bold")
    for one in found.compactions:
        source = f", taken over from session {printable(one.taken_over_from)}" if one.taken_over_from else ""
        undone = f", undone {format_time(one.undone)}" if one.undone is not None else ""
        headline = f"  {format_time(one.created)}  {one.headline}{source}{undone}"
        yield from wrap(headline, screen.columns, _UNDER_TIME)
        if one.quality.answers:
            yield from wrap(f"{' ' * _UNDER_TIME}{one.quality}", screen.columns, _UNDER_TIME)
    yield from _handover_lines(found.handovers, screen)
    yield from _fact_lines(found.facts, screen)
    for kind, heading in ((SUBAGENT, "sub-agents"), ("branch", "branches")):
        related = [row for row in found.relatives if row.kind == kind]
        if related:
            yield screen.paint(heading, "bold")
        yield from (
            f"  {row.id}  {format_time(row.started)}  {printable(redact(row.title))}".rstrip()
            for row in related
        )


def _origin_lines(origin: HandoverOrigin | None) -> Iterator[str]:
    if origin is not None:
        behind = f", behind {name_message(origin.length)}" if origin.length else ""
        yield f"  continues    {origin.conversation}{behind}, which its client compacted"


def _handover_lines(handovers: Sequence[HandedOver], screen: Screen) -> Iterator[str]:
    if handovers:
        yield screen.paint("handed over to its client", "bold")
    for given in handovers:
        sizes = f"{given.tokens_before:,} {screen.arrow} {given.tokens_after:,} tokens"
        form = f"as text ({printable(given.client)})" if given.client else "sealed"
        yield f"  {format_time(given.created)}  {pluralise(given.messages, 'message')}: {sizes}, {form}, no model"


def _period(row: SessionRow) -> list[str]:
    if row.ended is None:
        return [format_time(row.started), "open", ""]
    return [format_time(row.started), format_time(row.ended), printable(row.end_reason)]


def _fact_lines(facts: Sequence[FactRow] | None, screen: Screen) -> Iterator[str]:
    if facts is None:
        return
    yield screen.paint("facts", "bold")
    if not facts:
        yield "  none: facts are kept for messages that a compaction removes from the view"
        return
    rows = [[name_message(fact.position + 1), fact.kind, _fact_text(fact)] for fact in facts]
    yield from (screen.clip("  " + "  ".join(cells), 0) for cells in align(rows, right={0}))


def _fact_text(fact: FactRow) -> str:
    times = f" ({fact.uses:,} times)" if fact.uses > 1 and fact.kind == KeptKind.ACTION else ""
    changed = f" (changed by {name_message(fact.superseded + 1)})" if fact.superseded is not None else ""
    return printable(" ".join(fact.text.split())) + times + changed
