"""`penstock sessions show`: one conversation, its sessions and its compactions."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.layout import aligned, plural, printable
from penstock.cli.screen import Screen, screen_of
from penstock.cli.session_handle import read_one
from penstock.cli.session_list import title_of, view_tokens
from penstock.cli.stored import found_session, moment, money, opened_store, redacted
from penstock.planning.receipt import Receipt
from penstock.sessions.branches import TAKEN_OVER
from penstock.sessions.exporting import read_view_bytes
from penstock.sessions.facts import KeptKind
from penstock.stores.values import COMPRESSION, SUBAGENT

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.stores.store import Store
    from penstock.stores.values import CompactionRow, FactRow, SessionRow, UsageRow

__all__ = ["ShownConversation", "lines", "run_show", "shown"]


class ShownConversation(msgspec.Struct, frozen=True):
    """A conversation: the sessions it went through, who branched off or worked for it, and its sizes."""

    lineage: list[SessionRow]
    relatives: list[SessionRow]
    compactions: Sequence[CompactionRow]
    pins: list[int]
    title: str
    log_messages: int
    log_tokens: int
    view_messages: int
    view_tokens: int
    requests: Sequence[UsageRow]
    facts: Sequence[FactRow] | None = None

    @property
    def cost(self) -> float | None:
        """What its requests cost together; None where one of them is not known, or there were none."""
        costs = [row.cost for row in self.requests if row.cost is not None]
        return sum(costs) if costs and len(costs) == len(self.requests) else None


def run_show(args: argparse.Namespace) -> int:
    """Show the conversation, or one thing in it. Raises UnknownSession, UnknownHandle."""
    screen = screen_of(sys.stdout)
    with opened_store(args, is_there=True) as store:
        tip = found_session(store, args.id)
        if args.handle:
            return read_one(store, tip, args.handle.lower(), screen, as_json=args.json)
        found = shown(store, tip, facts=args.facts)
    if args.json:
        screen.say(json.dumps(_as_json(found), indent=2))
        return 0
    for line in lines(found, screen):
        screen.say(line)
    return 0


def shown(store: Store, tip: SessionRow, *, facts: bool = False) -> ShownConversation:
    """Everything there is to show of the conversation with that tip, its facts only if they are wanted."""
    lineage = _lineage(store, tip)
    children = [child for row in lineage for child in store.children(row.id)]
    entries = store.read_from(tip.id, 0)
    return ShownConversation(
        lineage=lineage,
        relatives=[row for row in children if row.kind != COMPRESSION],
        compactions=store.compactions(tip.id, undone=True),
        pins=sorted(store.pins(tip.id)),
        title=title_of(store, tip, next((row.title for row in reversed(lineage) if row.title), "")),
        log_messages=len(entries),
        log_tokens=sum(entry.tokens for entry in entries),
        view_messages=len(read_view_bytes(store, tip.id)),
        view_tokens=view_tokens(store, tip.id),
        requests=store.usage(session_id=tip.id),
        facts=store.facts(tip.id) if facts else None,
    )


def lines(found: ShownConversation, screen: Screen) -> Iterator[str]:
    """The report."""
    first, tip = found.lineage[0], found.lineage[-1]
    yield screen.paint(screen.clip(f"{first.id}  {printable(found.title)}".rstrip(), 0), "bold")
    about = [tip.dialect, printable(tip.model or "no model named"), first.kind]
    if first.parent:
        about.append(f"of session {first.parent}")
    yield screen.paint("  " + " · ".join(about), "dim")
    yield f"  log          {plural(found.log_messages, 'message')}, {plural(found.log_tokens, 'token')}"
    yield f"  view         {plural(found.view_messages, 'message')}, {plural(found.view_tokens, 'token')}"
    if found.pins:
        yield f"  pins         {', '.join(f'm{place + 1}' for place in found.pins)}"
    if found.requests:
        yield f"  requests     {len(found.requests):,}, cost {money(found.cost)}"
    yield screen.paint("sessions", "bold")
    rows = [[row.id, *_span(row)] for row in found.lineage]
    yield from ("  " + "  ".join(cells).rstrip() for cells in aligned(rows))
    if found.compactions:
        yield screen.paint("compactions", "bold")
    for row in found.compactions:
        undone = f", taken back {moment(row.undone)}" if row.undone is not None else ""
        origin = row.receipt.get(TAKEN_OVER)
        source = f", taken over from session {printable(str(origin))}" if origin else ""
        yield f"  {moment(row.created)}  {_receipt_line(row)}{source}{undone}"
    yield from _fact_lines(found.facts, screen)
    for kind, heading in ((SUBAGENT, "sub-agents"), ("branch", "branches")):
        related = [row for row in found.relatives if row.kind == kind]
        if related:
            yield screen.paint(heading, "bold")
        yield from (
            f"  {row.id}  {moment(row.started)}  {printable(redacted(row.title))}".rstrip() for row in related
        )


def _fact_lines(facts: Sequence[FactRow] | None, screen: Screen) -> Iterator[str]:
    if facts is None:
        return
    yield screen.paint("facts", "bold")
    if not facts:
        yield "  none: they are kept of messages that a compaction takes out of the view"
        return
    rows = [[f"m{fact.position + 1}", fact.kind, _fact_text(fact)] for fact in facts]
    yield from (screen.clip("  " + "  ".join(cells), 0) for cells in aligned(rows, right={0}))


def _fact_text(fact: FactRow) -> str:
    times = f" ({fact.uses:,} times)" if fact.uses > 1 and fact.kind == KeptKind.ACTION else ""
    changed = f" (changed by m{fact.superseded + 1})" if fact.superseded is not None else ""
    return printable(" ".join(fact.text.split())) + times + changed


def _lineage(store: Store, tip: SessionRow) -> list[SessionRow]:
    """The sessions of the conversation, the first one first."""
    rows = [tip]
    while rows[0].kind == COMPRESSION and rows[0].parent:
        rows.insert(0, store.session(rows[0].parent))
    return rows


def _span(row: SessionRow) -> list[str]:
    if row.ended is None:
        return [moment(row.started), "open", ""]
    return [moment(row.started), moment(row.ended), printable(row.end_reason)]


def _receipt_line(row: CompactionRow) -> str:
    try:
        receipt = msgspec.convert(dict(row.receipt), Receipt)
    except msgspec.ValidationError:  # written by another version
        return "a compaction without a receipt that can be read"
    return str(receipt).splitlines()[0]


def _as_json(found: ShownConversation) -> dict[str, Any]:
    return {
        "id": found.lineage[0].id,
        "title": found.title,
        "dialect": found.lineage[-1].dialect,
        "model": found.lineage[-1].model,
        "log": {"messages": found.log_messages, "tokens": found.log_tokens},
        "view": {"messages": found.view_messages, "tokens": found.view_tokens},
        "pins": [f"m{place + 1}" for place in found.pins],
        "requests": len(found.requests),
        "cost": found.cost,
        "sessions": [_session_json(row) for row in found.lineage],
        "relatives": [_session_json(row) for row in found.relatives],
        "compactions": [
            {
                "session": row.session,
                "created": row.created,
                "undone": row.undone,
                "receipt": dict(row.receipt),
            }
            for row in found.compactions
        ],
        **({} if found.facts is None else {"facts": [_fact_json(fact) for fact in found.facts]}),
    }


def _fact_json(fact: FactRow) -> dict[str, Any]:
    return {
        "handle": f"m{fact.position + 1}",
        "kind": fact.kind,
        "text": fact.text,
        "label": fact.label,
        "uses": fact.uses,
        "changed_by": None if fact.superseded is None else f"m{fact.superseded + 1}",
        "at": fact.at,
    }


def _session_json(row: SessionRow) -> dict[str, Any]:
    return {**msgspec.structs.asdict(row), "title": redacted(row.title)}
