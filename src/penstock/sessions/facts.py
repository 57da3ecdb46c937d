"""Keeps what the ledger holds of messages that leave a view, so that it outlives them there.

A message gives its facts once: when a compaction first takes it out of the view or shortens it. Later ones see a stub of
it, or nothing. A constraint that a later message changes is given again, with what changed it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.message import Message, Role, Text
from penstock.conversation.view import Kept, Rewritten
from penstock.stores.values import NewFact
from penstock.writing.ledger import Fact, FactKind, Ledger, facts_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.conversation.dialects import Dialect
    from penstock.conversation.view import Piece
    from penstock.engine.compress import Compressed
    from penstock.planning.plan import Plan
    from penstock.redaction import Redactor
    from penstock.sessions.stored_view import StoredView
    from penstock.writing.transcript import Transcript

__all__ = ["MOST_FACTS", "KeptFact", "KeptKind", "list_demands", "record_facts"]

MOST_FACTS = 2_000  # of one compaction


class KeptKind(StrEnum):
    """The kinds of fact that are kept. If there are too many facts, the kinds at the end of this list give way first."""

    CONSTRAINT = "constraint"
    ERROR = "error"
    QUESTION = "question"
    DECISION = "decision"
    ACTION = "action"
    FILE = "file"


class KeptFact(msgspec.Struct, frozen=True, gc=False):
    """A fact, in the words of its source, redacted. `label` is the tool of an action, the path of a file.

    `number` is its message, `superseded_by` the one that changed it, 0 if none did.
    """

    kind: KeptKind
    text: str
    number: int
    label: str = ""
    uses: int = 1
    superseded_by: int = 0


def record_facts(
    pieces: Sequence[Piece],
    result: Compressed,
    redactor: Redactor,
    earlier: Sequence[NewFact],
) -> list[NewFact]:
    """Returns the facts of the messages that a compaction takes out of a view of these pieces, as a store takes them.

    `earlier` are the facts that were kept before.
    """
    if result.plan is None or result.transcript is None:
        return []
    before = [
        KeptFact(KeptKind(fact.kind), fact.text, fact.position + 1)
        for fact in earlier
        if fact.kind == KeptKind.CONSTRAINT and fact.superseded is None
    ]
    shortened = {piece.position + 1 for piece in pieces if isinstance(piece, Rewritten)}
    return [
        _new_fact(fact)
        for fact in _collect_leaving(
            result.transcript, result.plan, redactor, shortened=shortened, earlier=before
        )
    ]


def list_demands(view: StoredView, dialect: Dialect, redactor: Redactor) -> list[NewFact]:
    """Returns what people demand in the messages that stand whole in a view, the newest first, as a store takes facts."""
    whole = {piece.position for piece in view.pieces if isinstance(piece, Kept)}
    facts: list[Fact] = []
    for wire, position in zip(view.wires, view.positions, strict=True):
        message = dialect.decode(wire) if position in whole else None
        if position is None or message is None or message.role is not Role.USER:
            continue
        said = Message(Role.USER, tuple(part for part in message.parts if isinstance(part, Text)))
        facts += (msgspec.structs.replace(fact, number=position + 1) for fact in facts_in(said, redactor))
    return [_new_fact(fact) for fact in _list_facts(Ledger.of(facts))][:MOST_FACTS]


def _new_fact(fact: KeptFact) -> NewFact:
    return NewFact(
        position=fact.number - 1,
        kind=fact.kind.value,
        text=fact.text,
        label=fact.label,
        uses=fact.uses,
        superseded=fact.superseded_by - 1 if fact.superseded_by else None,
    )


def _collect_leaving(
    transcript: Transcript,
    plan: Plan,
    redactor: Redactor,
    *,
    shortened: set[int],
    earlier: Sequence[KeptFact],
) -> list[KeptFact]:
    """Returns the facts of messages that the plan takes out of the view, the most needed first, the newest of each kind first.

    `shortened` are the numbers of messages that an earlier compaction had rewritten, `earlier` the constraints that
    were kept before and that nothing had changed: those that have been changed since come again.
    """
    whole = {piece.position for piece in plan.pieces if isinstance(piece, Kept)}
    leaving = {
        number
        for place, number in enumerate(transcript.numbers)
        if number and place not in whole and number not in shortened
    }
    # A message without a number is one that repair put in: the log does not hold it.
    facts = [fact for fact in transcript.facts(redactor, len(transcript.messages)) if fact.number]
    # A call and its outcome are one fact: it is told with the first of the two that leaves.
    told = {fact.call_id for fact in facts if fact.kind is FactKind.OUTCOME and fact.number in shortened}
    answered = {fact.call_id for fact in facts if fact.kind is FactKind.OUTCOME and fact.number in leaving}
    leaving |= {fact.number for fact in facts if fact.kind is FactKind.CALL and fact.call_id in answered}
    fresh = (fact for fact in facts if fact.number not in shortened and fact.call_id not in told)
    ledger = Ledger.of([*_as_facts(earlier), *fresh])
    again = {(fact.number, fact.text) for fact in earlier}
    return [
        fact
        for fact in _list_facts(ledger)
        if fact.number in leaving or (fact.superseded_by and (fact.number, fact.text) in again)
    ][:MOST_FACTS]


def _as_facts(constraints: Sequence[KeptFact]) -> list[Fact]:
    return [Fact(FactKind.CONSTRAINT, fact.text, number=fact.number) for fact in constraints]


def _list_facts(ledger: Ledger) -> Iterator[KeptFact]:
    by_kind: dict[KeptKind, Sequence[Fact]] = {
        KeptKind.CONSTRAINT: ledger.constraints,
        KeptKind.ERROR: ledger.open_errors,
        KeptKind.QUESTION: ledger.questions,
        KeptKind.DECISION: ledger.decisions,
        KeptKind.ACTION: ledger.actions,
        KeptKind.FILE: ledger.files,
    }
    for kind in KeptKind:
        for fact in sorted(by_kind[kind], key=lambda one: one.number, reverse=True):
            yield KeptFact(kind, fact.text, fact.number, fact.label, fact.uses, fact.superseded_by)
