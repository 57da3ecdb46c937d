"""The state of an agent's session and the parts that fill its window, for a status line and for people who ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Role
from penstock.measure.usage import Usage

if TYPE_CHECKING:
    from penstock.context.live import Beside, Context
    from penstock.providers.cache_marks import CachePlan

__all__ = ["Status", "filling_of", "status_of"]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a session. `cost` and `cache_hit` are None where they are not known."""

    session_id: str
    model: str
    prompt_tokens: int
    window_tokens: int
    threshold_tokens: int
    cost: float | None
    cache_hit: float | None
    compactions: int
    requests: int
    usage: Usage
    caching: str


def status_of(context: Context, caching: CachePlan) -> Status:
    """The state of the session, of all its requests so far."""
    session = context.session
    rows = session.store.usage(session_id=session.id)
    usage = sum((row.usage for row in rows), Usage())
    costs = [row.cost for row in rows if row.cost is not None]
    return Status(
        session_id=session.id,
        model=session.row.model,
        prompt_tokens=context.tokens(),
        window_tokens=context.engine.context_length,
        threshold_tokens=context.engine.threshold_tokens,
        cost=sum(costs) if costs and len(costs) == len(rows) else None,
        cache_hit=usage.cache_read_tokens / usage.prompt_tokens if usage.prompt_tokens else None,
        compactions=len(session.store.compactions(session.id)),
        requests=len(rows),
        usage=usage,
        caching=str(caching),
    )


def filling_of(context: Context, beside: Beside) -> list[tuple[str, int]]:
    """The parts that fill the window, by speaker: names and tokens as we count them."""
    session = context.session
    amounts = {
        "system prompt": session.weigh_outside(system=beside.system),
        "tools": session.weigh_outside(tools=beside.tools),
    }
    names = {Role.USER: "your messages", Role.ASSISTANT: "answers and calls", Role.TOOL: "tool results"}
    prefix = context.prefix_end or 0
    messages = decode_all(dialect_named(session.row.dialect), context.view)
    for place, (message, wire) in enumerate(zip(messages, context.view, strict=True)):
        name = "compacted" if place < prefix else names.get(message.role, "other")
        amounts[name] = amounts.get(name, 0) + session.weigh([wire])
    return [(name, tokens) for name, tokens in amounts.items() if tokens]
