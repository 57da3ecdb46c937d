"""Where an agent stands, and what fills its window: for a status line, and for people who ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Role
from penstock.measure.usage import Usage

if TYPE_CHECKING:
    from penstock.loop.agent import Agent

__all__ = ["Status", "filling_of", "status_of"]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent stands. `cost` and `cache_hit` are None where they are not known."""

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


def status_of(agent: Agent) -> Status:
    """The state of the session, of all its requests so far."""
    context, session = agent.context, agent.session
    rows = session.store.usage(session_id=session.id)
    usage = sum((row.usage for row in rows), Usage())
    costs = [row.cost for row in rows if row.cost is not None]
    return Status(
        session_id=session.id,
        model=agent.model.name,
        prompt_tokens=context.tokens(),
        window_tokens=context.engine.context_length,
        threshold_tokens=context.engine.threshold_tokens,
        cost=sum(costs) if costs and len(costs) == len(rows) else None,
        cache_hit=usage.cache_read_tokens / usage.prompt_tokens if usage.prompt_tokens else None,
        compactions=len(session.store.compactions(session.id)) + context.listed_compactions,
        requests=len(rows),
        usage=usage,
        caching=str(agent.caching),
    )


def filling_of(agent: Agent) -> list[tuple[str, int]]:
    """What fills the window, by who said it: names and tokens as we count them."""
    session, tools = agent.session, agent.offered()
    amounts = {
        "system prompt": session.weigh_outside(system=agent.prompt.current.text),
        "tools": session.weigh_outside(tools=tools),
    }
    names = {Role.USER: "your messages", Role.ASSISTANT: "answers and calls", Role.TOOL: "tool results"}
    prefix = agent.context.prefix_end or 0
    messages = decode_all(dialect_named(agent.model.dialect), agent.context.view)
    for place, (message, wire) in enumerate(zip(messages, agent.context.view, strict=True)):
        name = "compacted" if place < prefix else names.get(message.role, "other")
        amounts[name] = amounts.get(name, 0) + session.weigh([wire])
    return [(name, tokens) for name, tokens in amounts.items() if tokens]
