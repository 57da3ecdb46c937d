"""The safety net of any host: a session that nearly fills its window is compacted before a message reaches the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.planning.policy import Compact, Policy
from penstock.planning.receipt import NOTHING_TO_DO

if TYPE_CHECKING:
    from penstock.engine.compress import Compressed
    from penstock.sessions.session import Session

__all__ = ["tidy"]


def tidy(
    session: Session, *, reported_tokens: int | None = None, summariser: Any = None
) -> Compressed | None:
    """Compact the session where it has reached `compression.hygiene_threshold` of its window; None where it has not.

    `reported_tokens` are the prompt tokens that the provider reported last; without them, what we expect counts. A
    conversation of fewer than four messages is left alone. Without a summariser no model is asked. Raises what
    `Session.compact` raises.
    """
    policy = Policy.of(session.settings.compression, session.window.tokens)
    tokens = session.estimate() if reported_tokens is None else reported_tokens
    if not isinstance(policy.hygiene(tokens, len(session)), Compact):
        return None
    result = session.compact(summariser=summariser)
    return None if result.receipt.outcome == NOTHING_TO_DO else result
