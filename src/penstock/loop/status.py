"""Reads off a live context what `accounts` shows: its status, and what fills its window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.accounts.spending import sum_requests
from penstock.accounts.status import Status
from penstock.accounts.window import Fill, measure_fill
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.measure.tokens import tokenizer_for

if TYPE_CHECKING:
    from penstock.context.live import Beside, Context
    from penstock.providers.cache_marks import CachePlan

__all__ = ["read_fill", "read_status"]


def read_status(context: Context, caching: CachePlan) -> Status:
    """Returns the state of the conversation, with all its requests so far."""
    session = context.session
    return Status(
        session_id=session.id,
        model=session.row.model,
        prompt_tokens=context.tokens(),
        window_tokens=context.engine.context_length,
        threshold_tokens=context.engine.threshold_tokens,
        spending=sum_requests(session.store.usage(session_id=session.id)),
        compactions=len(session.store.compactions(session.id)),
        caching=str(caching),
    )


def read_fill(context: Context, beside: Beside) -> Fill:
    """Returns what fills the window of the next request."""
    session = context.session
    return measure_fill(
        decode_all(dialect_named(session.row.dialect), context.view),
        tokenizer_for(session.row.model or None),
        system_tokens=session.weigh_outside(system=beside.system),
        tools_tokens=session.weigh_outside(tools=beside.tools),
    )
