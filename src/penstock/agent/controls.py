"""What a person at the terminal asks of an agent beside the conversation: its state, a compaction, another model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.agent.context import CompactionWish
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Role
from penstock.errors import SettingsError
from penstock.measure.usage import Usage
from penstock.providers.cache_plan import caching_for

if TYPE_CHECKING:
    from penstock.agent.loop import Agent
    from penstock.engine.compressed import Compressed
    from penstock.providers.exchange import StreamingModel

__all__ = ["Status", "compact", "filling", "status", "switch_model"]


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


def status(agent: Agent) -> Status:
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
        compactions=len(session.store.compactions(session.id)),
        requests=len(rows),
        usage=usage,
        caching=str(agent.caching),
    )


def filling(agent: Agent) -> list[tuple[str, int]]:
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


async def compact(
    agent: Agent, focus: str | None = None, keep_exchanges: int | None = None
) -> Compressed | None:
    """Compact on request: about a topic, or all but the last so many exchanges. None where there is nothing to do."""
    wish = CompactionWish(focus=focus or None, pins=_last_exchanges(agent, keep_exchanges))
    return await agent.context.compact("asked for by hand", agent.context.tokens(), wish)


def _last_exchanges(agent: Agent, count: int | None) -> frozenset[int]:
    """The numbers of the messages from the last so many requests on."""
    if not count:
        return frozenset()
    view = agent.session.standing().view
    messages = decode_all(dialect_named(agent.model.dialect), view.wires)
    asked = [place for place, message in enumerate(messages) if message.role is Role.USER]
    first = asked[-count] if len(asked) >= count else 0
    return frozenset(number for number in view.numbers[first:] if number)


async def switch_model(agent: Agent, model: StreamingModel, provider: str = "") -> None:
    """Go on with another model, inside its window: a smaller one has the conversation compacted first.

    Raises SettingsError where it speaks another dialect than the conversation is kept in.
    """
    session, engine = agent.session, agent.context.engine
    if model.dialect != session.row.dialect:
        raise SettingsError(
            f"{model.name} speaks {model.dialect}, and this conversation is kept in {session.row.dialect}: "
            "begin a new one, or export and import it in the other dialect"
        )
    session.store.update(session.id, model=model.name)
    session.refresh()
    base_url = str(getattr(model, "base_url", ""))
    session.endpoint = base_url
    agent.model = model
    agent.caching = caching_for(model.name, base_url, provider, ttl=session.settings.model.cache_ttl)
    engine.update_model(model.name, session.window.tokens)
    await agent.context.fit()
