"""The status of a running agent: for a status line, a report at the end, a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from penstock.accounts.spending import Spending

__all__ = ["Status"]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The status of an agent's conversation."""

    session_id: str
    model: str
    prompt_tokens: int
    """Tokens that the next request is estimated to have."""
    window_tokens: int
    threshold_tokens: int
    """Tokens from which on the conversation is compacted."""
    spending: Spending
    """All requests of the conversation so far."""
    compactions: int
    caching: str
    """A sentence on how prompts are cached."""

    @property
    def requests(self) -> int:
        """Returns the number of requests so far."""
        return self.spending.requests

    @property
    def cost(self) -> float | None:
        """Returns the cost of all requests; None if one is unknown, or there were none."""
        return self.spending.cost

    @property
    def cache_hit(self) -> float | None:
        """Returns the share of prompt tokens that came from the provider's cache; None if nothing was sent."""
        return self.spending.cache_hit_ratio
