"""Compactions as values: what is wanted, what was made and waits to be put in place, what an engine for lists has done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.wire import encode_wire
from penstock.engine.compressed import Compressed  # noqa: TC001 - as above
from penstock.planning.economics import Weighed  # noqa: TC001 - a struct's field types are read at run time
from penstock.planning.receipt import COMPACTED, Receipt
from penstock.sessions.drafts import CompactionDraft  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.contract import ContextEngine

__all__ = ["CompactionWish", "ListCompacted", "Made", "ended", "list_receipt"]


class CompactionWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction is to be like: how small (messages only), about what, and which messages stay, by number."""

    target_tokens: int | None = None
    focus: str | None = None
    pins: frozenset[int] = frozenset()
    may_call_model: bool = True
    decision: Weighed | None = None

    @property
    def is_plain(self) -> bool:
        """Whether what was prepared will do."""
        return self.target_tokens is None and not self.focus and not self.pins


class Made(msgspec.Struct, frozen=True, eq=False):
    """A compaction that was made and not yet put in place. Without a draft there was nothing to do.

    `tokens` are those of the view that it gives, `length` that of the log it was made of, `pins` what was pinned in it.
    """

    result: Compressed
    draft: CompactionDraft | None
    tokens: int
    length: int
    pins: frozenset[int]


class ListCompacted(msgspec.Struct, frozen=True, eq=False):
    """What an engine for lists made of the view."""

    messages: list[Any]
    receipt: Receipt


def list_receipt(
    engine: ContextEngine, before: Sequence[Any], after: Sequence[Any], tokens: tuple[int, int]
) -> Receipt:
    """What an engine for lists has done: `tokens` are those before and after."""
    standing = {encode_wire(wire) for wire in after}
    kept = sum(encode_wire(wire) in standing for wire in before)
    return Receipt(
        outcome=COMPACTED,
        reason=f"by the engine {engine.name}",
        tokens_before=tokens[0],
        tokens_after=tokens[1],
        messages_before=len(before),
        messages_after=len(after),
        target_tokens=engine.threshold_tokens,
        kept=kept,
        summarised=len(before) - kept,
    )


async def ended(prepared: asyncio.Task[Made]) -> None:
    """What was being prepared is not wanted any more, and is over: the next one reads in the same notebook."""
    if prepared.cancel():
        await asyncio.wait([prepared])
    if not prepared.cancelled():
        prepared.exception()  # nobody wants to hear of it any more
