"""Works out compactions from values alone: the bytes of a view, and the wishes. No store, no session.

A host with many conversations passes the orders to another process, where reading and planning make nobody wait
(`Context.drafter`): for a long conversation they take a second of one core. The log stays with the host, which commits
the result over the compaction that the order was made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.view import Compaction, ViewMessage
from penstock.conversation.wire import parse_json
from penstock.engine.compress import CompressRequest, compress_list
from penstock.measure.weigh import weigh
from penstock.planning.policy import Trigger  # noqa: TC001 - a struct's field types are read at run time
from penstock.planning.receipt import NOTHING_TO_DO, Receipt
from penstock.sessions.completing import CompletionLimits, complete_draft, find_lacking, find_missed
from penstock.sessions.drafts import CompactionDraft, draft_compaction
from penstock.sessions.stored_view import StoredView, ViewBase
from penstock.settings import Settings  # noqa: TC001 - as above
from penstock.stores.compactions import read_pieces, write_pieces
from penstock.stores.encoding import clean_label, is_storable
from penstock.stores.values import LogTip, NewFact

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from penstock.writing.notebook import Notebook

__all__ = [
    "BaseBytes",
    "CompletedView",
    "CompletionOrder",
    "DraftOrder",
    "DraftedView",
    "Drafter",
    "complete_view",
    "draft_view",
    "restore_draft",
    "restore_messages",
]

_NEW_FACT = NewFact.__struct_fields__


class BaseBytes(msgspec.Struct, frozen=True):
    """The base of a compaction as bytes: the pieces of the view, the messages of the log that they name, and its end."""

    pieces: bytes
    raws: dict[int, bytes]
    dialect: str
    tip: LogTip

    @classmethod
    def of(cls, base: ViewBase) -> BaseBytes:
        """Returns the bytes of a base."""
        view = base.view
        return cls(write_pieces(view.pieces), view.raws, view.dialect, base.tip)

    def read(self) -> ViewBase:
        """Returns it as a compaction is made of it."""
        return ViewBase(StoredView(read_pieces(self.pieces), self.raws, self.dialect), self.tip, None)


class DraftOrder(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Compact this view. Answered by `DraftedView`."""

    conversation: str
    """A name by which what was read of the conversation is known again."""
    base: BaseBytes
    settings: Settings
    model: str | None
    context_length: int | None
    target_tokens: int | None
    focus: str | None
    pins: frozenset[int]
    recall_tool: str | None
    trigger: Trigger
    earlier: tuple[NewFact, ...]
    """The facts that were kept before."""
    waits: bool
    """True if the draft is not put in place at once: then what it lacks is noted."""

    @classmethod
    def of(
        cls,
        conversation: str,
        base: ViewBase,
        request: CompressRequest,
        earlier: Sequence[NewFact],
        *,
        waits: bool,
    ) -> DraftOrder:
        """Returns the order for what `compress_list` is asked for."""
        return cls(
            conversation=conversation,
            base=BaseBytes.of(base),
            settings=request.settings,
            model=request.model,
            context_length=request.context_length,
            target_tokens=request.target_tokens,
            focus=request.focus,
            pins=request.pins,
            recall_tool=request.recall_tool,
            trigger=request.trigger,
            earlier=tuple(map(_as_new, earlier)),
            waits=waits,
        )

    def __repr__(self) -> str:
        return f"DraftOrder({self.conversation})"  # the rest is a person's


class DraftedView(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A compaction that was worked out: what a commit records, and the view that it gives. Without pieces, nothing was to do."""

    receipt: Receipt
    pieces: bytes = b""
    facts: tuple[NewFact, ...] = ()
    messages: tuple[tuple[bytes, int | None], ...] = ()
    """The bytes of each message of the view, and its place in the log."""
    view_tokens: int = 0
    lacking: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"DraftedView({self.view_tokens:,} tokens)"


class CompletionOrder(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Put into a draft that has waited what the agent has used since. Answered by `CompletedView`."""

    conversation: str
    base: BaseBytes
    settings: Settings
    model: str | None
    pieces: bytes
    """Those of the draft."""
    later: tuple[bytes, ...]
    """The messages that were logged since."""
    lacking: frozenset[str]
    target_tokens: int

    def __repr__(self) -> str:
        return f"CompletionOrder({self.conversation})"  # as above


class CompletedView(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A draft that was completed, as `CompletedDraft` has it. Without pieces, it stays as it was."""

    pieces: bytes = b""
    messages: tuple[tuple[bytes, int | None], ...] = ()
    view_tokens: int = 0
    facts_added: int = 0
    facts_gained: int = 0

    def __repr__(self) -> str:
        return f"CompletedView({self.view_tokens:,} tokens)"


class Drafter(Protocol):
    """Carries out orders elsewhere. Raises what the work itself raises, and EngineFailure if it is not done."""

    async def draft(self, order: DraftOrder) -> DraftedView:
        """Returns the compaction of a view."""

    async def complete(self, order: CompletionOrder) -> CompletedView:
        """Returns a draft completed."""


# Carrying orders out.


def draft_view(order: DraftOrder, notebook: Notebook) -> DraftedView:
    """Returns the compaction of the view of an order. The notebook remembers what it read of the conversation.

    Raises what `compress_list` raises.
    """
    base = order.base.read()
    request = CompressRequest(
        target_tokens=order.target_tokens,
        context_length=order.context_length,
        model=order.model,
        focus=order.focus,
        dialect=base.view.dialect,
        settings=order.settings,
        pins=order.pins,
        numbers=base.view.numbers,
        recall_tool=order.recall_tool,
        trigger=order.trigger,
    )
    result = compress_list(base.view.wires, request, notebook)
    if result.receipt.outcome == NOTHING_TO_DO:
        return DraftedView(receipt=result.receipt)
    draft = draft_compaction(base, result, notebook.redactor, order.earlier)
    lacking = find_lacking(draft) if order.waits else frozenset()
    return DraftedView(
        receipt=result.receipt,
        pieces=write_pieces(draft.compaction.pieces),
        facts=tuple(map(_as_stored, draft.facts)),
        messages=_bytes_of(draft),
        view_tokens=_weigh(draft.wires, base, notebook),
        lacking=frozenset(filter(is_storable, lacking)),
    )


def complete_view(order: CompletionOrder, notebook: Notebook) -> CompletedView:
    """Returns the draft of an order, completed."""
    base = order.base.read()
    view = base.view.replace(read_pieces(order.pieces))
    compaction = Compaction(base.tip.id, base.tip.length, view.pieces)
    draft = CompactionDraft(base, compaction, {}, [], view.messages)
    later = restore_messages([(raw, None) for raw in order.later])
    missed = find_missed(later, order.lacking, base.view.dialect)

    def weigh_wires(wires: Sequence[Any]) -> int:
        return _weigh(wires, base, notebook)

    limits = CompletionLimits(
        order.target_tokens, weigh_wires, notebook.tokenizer.count, notebook.redactor.redact
    )
    done = complete_draft(draft, missed, limits) if missed else None
    if done is None:
        return CompletedView()
    return CompletedView(
        pieces=write_pieces(done.draft.compaction.pieces),
        messages=_bytes_of(done.draft),
        view_tokens=done.view_tokens,
        facts_added=done.facts_added,
        facts_gained=done.facts_gained,
    )


def _weigh(wires: Sequence[Any], base: ViewBase, notebook: Notebook) -> int:
    return sum(weigh(decode_all(dialect_named(base.view.dialect), wires), notebook.tokenizer))


def _bytes_of(draft: CompactionDraft) -> tuple[tuple[bytes, int | None], ...]:
    return tuple((message.raw, message.position) for message in draft.messages)


def _as_new(fact: NewFact) -> NewFact:
    """Returns a fact without what only a store knows of it."""
    return NewFact(**{name: getattr(fact, name) for name in _NEW_FACT})


def _as_stored(fact: NewFact) -> NewFact:
    """Returns a fact in the form that a store keeps, which can also be sent."""
    return msgspec.structs.replace(fact, text=clean_label(fact.text), label=clean_label(fact.label))


# Taking over what comes back.


def restore_draft(base: ViewBase, drafted: DraftedView) -> CompactionDraft | None:
    """Returns the draft that was made of this base; None if there was nothing to do."""
    if not drafted.pieces:
        return None
    return CompactionDraft(
        base=base,
        compaction=Compaction(base.tip.id, base.tip.length, read_pieces(drafted.pieces)),
        receipt=drafted.receipt.to_dict(),
        facts=drafted.facts,
        messages=restore_messages(drafted.messages),
    )


def restore_messages(told: Sequence[tuple[bytes, int | None]]) -> list[ViewMessage]:
    """Returns messages of a view from the bytes of each, and its place in the log."""
    return [ViewMessage(parse_json(raw), raw, position) for raw, position in told]
