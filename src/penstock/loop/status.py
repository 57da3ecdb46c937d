"""Reads off a running agent what `accounts` shows: its status, and what fills its window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.accounts.spending import sum_requests
from penstock.accounts.status import Status
from penstock.accounts.window import Fill, measure_fill
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.measure.tokens import tokenizer_for

if TYPE_CHECKING:
    from penstock.loop.agent import Agent

__all__ = ["agent_fill", "agent_status"]


def agent_status(agent: Agent) -> Status:
    """Returns the state of the agent's conversation."""
    context, session = agent.context, agent.session
    return Status(
        session_id=session.id,
        model=agent.model.name,
        prompt_tokens=context.tokens(),
        window_tokens=context.engine.context_length,
        threshold_tokens=context.engine.threshold_tokens,
        spending=sum_requests(session.store.usage(session_id=session.id)),
        compactions=len(session.store.compactions(session.id)) + context.listed_compactions,
        caching=str(agent.caching),
    )


def agent_fill(agent: Agent) -> Fill:
    """Returns what fills the window of the agent's next request."""
    session = agent.session
    return measure_fill(
        decode_all(dialect_named(agent.model.dialect), agent.context.view),
        tokenizer_for(session.row.model or None),
        system_tokens=session.weigh_outside(system=agent.prompt.current.text),
        tools_tokens=session.weigh_outside(tools=agent.offered()),
    )
