"""The safety net of any host, before a message reaches the model: a session that nearly fills its window is compacted.

No model is asked. It is for a session that is about to be used, as by a process that resumes it; a live context keeps its
session inside the window by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.context.compactions import make_compaction
from penstock.context.engine_adapter import EngineAdapter
from penstock.engine.contract import CompactionWish
from penstock.engine.registry import compacts_stored_sessions
from penstock.engine.threads import run_sync
from penstock.planning.policy import Compact, Policy, Trigger
from penstock.planning.receipt import NOTHING_TO_DO
from penstock.sessions.metering import TURN_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.engine.contract import ContextEngine
    from penstock.planning.receipt import Receipt
    from penstock.sessions.session import Session
    from penstock.stores.values import NewFact

__all__ = ["find_prompt_tokens", "tidy"]


def tidy(
    session: Session,
    engine: ContextEngine | None = None,
    *,
    reported_tokens: int | None = None,
    before_compaction: Callable[[Sequence[NewFact]], None] | None = None,
) -> Receipt | None:
    """Compacts a resumed session that has reached `compression.hygiene_threshold` of its window; returns None if it has not.

    The safety net of any host, before a message reaches the model; no model is asked for a summary. `reported_tokens` is
    the last report of the provider, if the caller knows it; otherwise the store is asked. A conversation of fewer than four
    messages is left alone. `engine` is the session's, told of its model; its session need not have started. It is only needed
    for an engine that `Session.compact` does not know: without it, such a session waits for its first request.
    `before_compaction` first gets what people demand in the view. Raises what it raises, EngineFailure if that
    engine fails, and what `Session.compact` raises.
    """
    policy = Policy.of(session.settings.compression, session.window.tokens)
    tokens = find_prompt_tokens(session) if reported_tokens is None else reported_tokens
    decision = policy.hygiene(tokens, len(session))
    if not isinstance(decision, Compact):
        return None
    if before_compaction is not None:
        before_compaction(session.workings.list_demands())
    if compacts_stored_sessions(session.settings.context.engine):
        receipt = session.compact(trigger=decision.trigger).receipt
    elif engine is not None:
        receipt = run_sync(_compact_stored(session, engine, tokens, decision.reason, decision.trigger))
    else:
        return None
    return None if receipt.outcome == NOTHING_TO_DO else receipt


async def _compact_stored(
    session: Session, engine: ContextEngine, tokens: int, reason: str, trigger: Trigger
) -> Receipt:
    """Compacts and commits, with any engine and without a live context."""
    adapter = EngineAdapter(engine, session.row.dialect)
    wish = CompactionWish(may_call_model=False, trigger=trigger)
    made = await make_compaction(session, adapter, wish, tokens)
    if made.draft is not None:
        session.workings.commit_draft(made.draft, {"reason": reason}, trigger)
    adapter.settle(made.receipt, tokens)
    return made.receipt


def find_prompt_tokens(session: Session) -> int:
    """Returns the least size of the next prompt: the provider's last report for this view, or our estimate.

    The report includes the system prompt and the tools' schemas, the estimate what has been added since; the larger counts.
    """
    newest = session.store.newest_compaction(session.id)
    rows = session.store.usage(session_id=session.id, since=0.0 if newest is None else newest.created)
    turns = [row.usage.prompt_tokens for row in rows if row.task == TURN_TASK and row.usage.prompt_tokens]
    return max([session.estimate(), *turns[-1:]])
