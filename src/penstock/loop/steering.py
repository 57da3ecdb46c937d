"""What a person asks of an agent beside the conversation: a compaction, another model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.context.bookkeeping import books_for
from penstock.context.compactions import CompactionWish
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Role
from penstock.engine.auxiliary import summariser_for
from penstock.engine.compressor import ContextCompressor
from penstock.engine.registry import blaming
from penstock.errors import EngineFailure, SettingsError, TargetTooSmall
from penstock.providers.cache_marks import caching_for

if TYPE_CHECKING:
    from penstock.context.compactions import ListCompacted
    from penstock.engine.compressed import Compressed
    from penstock.loop.agent import Agent
    from penstock.providers.exchange import StreamingModel

__all__ = ["BY_HAND", "compact", "switch_model"]

BY_HAND = "asked for by hand"
_LEAST = 1_000  # tokens: nobody gains from making less of it


async def compact(
    agent: Agent, focus: str | None = None, keep_exchanges: int | None = None
) -> Compressed | ListCompacted | None:
    """Compact on request: about a topic, or all but the last so many exchanges. None where there is nothing to do.

    Raises EngineFailure where an engine of a third party cannot do it.
    """
    context = agent.context
    if keep_exchanges and context.listed is not None:
        raise EngineFailure(
            f"the engine {context.engine.name!r} cannot be told which exchanges to keep; compact without saying so"
        )
    wish = CompactionWish(focus=focus or None, pins=_last_exchanges(agent, keep_exchanges))
    result = await context.compact(BY_HAND, context.tokens(), wish)
    half = (context.counted - context.outside_tokens) // 2
    if result is not None or half < _LEAST or context.listed is not None:
        return result
    # The conversation is smaller than what a full window is compacted to; who asks wants it smaller still.
    try:
        return await context.compact(
            BY_HAND, context.tokens(), msgspec.structs.replace(wish, target_tokens=half)
        )
    except TargetTooSmall:
        return None


def _last_exchanges(agent: Agent, count: int | None) -> frozenset[int]:
    """The numbers of the messages from the last so many requests on."""
    if not count:
        return frozenset()
    view = agent.session.standing().view
    messages = decode_all(dialect_named(agent.model.dialect), view.wires)
    asked = [place for place, message in enumerate(messages) if message.role is Role.USER]
    first = asked[-count] if len(asked) >= count else 0
    return frozenset(number for number in view.numbers[first:] if number)


async def switch_model(
    agent: Agent, model: StreamingModel, provider: str = "", listed_window: int | None = None
) -> None:
    """Go on with another model, inside its window: a smaller one has the conversation compacted first.

    `listed_window` is what the provider states for it, where that is known; else it is asked.

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
    session.endpoint, session.listed_window = base_url, listed_window
    agent.model = model
    agent.caching = caching_for(model.name, base_url, provider, ttl=session.settings.model.cache_ttl)
    with blaming(engine.name):
        engine.update_model(model.name, session.window.tokens, base_url=base_url, provider=provider)
    agent.context.bookkeeper = books_for(model.name, agent.caching, engine.threshold_tokens, session.settings)
    await agent.context.fit()  # by the model that was there before, whose window holds all of it
    if isinstance(engine, ContextCompressor):
        engine.use_summariser(summariser_for(session.settings, model, session.window.tokens))
