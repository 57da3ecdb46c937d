"""The bill of a session as it grows: says when a compaction would pay, what each has cost, and what it has saved.

Where the model's price is not known there are no books, and only the threshold decides.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from penstock.measure.prices import Unknown, price_of
from penstock.planning.economics import Books, PricedRequest, book, settle, terms_of, weigh

if TYPE_CHECKING:
    from penstock.measure.usage import Usage
    from penstock.planning.economics import Caching, Weighed
    from penstock.providers.cache_marks import CachePlan
    from penstock.settings import Settings

__all__ = ["Bookkeeper"]


class Bookkeeper:
    """The books of one conversation with one model.

    `plan` says how its prompts are cached: by our marks, else by the provider itself. From `limit_tokens` on a compaction
    always runs. `books` is None where the price of the model is not known.
    """

    def __init__(self, model: str, plan: CachePlan, limit_tokens: int, settings: Settings) -> None:
        self._last: float | None = None  # the second at which a request went out
        self._sent_tokens = 0
        self._pending: PricedRequest | None = None
        price = price_of(model)
        caching: Caching = "1h" if plan.ttl == "1h" else "5m" if plan.on else "automatic"
        terms = Unknown("no price") if price is None else terms_of(price, caching)
        mode = settings.context.economics
        self.books = None if isinstance(terms, Unknown) else Books(terms, limit_tokens, mode)

    def weigh(self, view_tokens: int, static_tokens: int, kept_tokens: int) -> Weighed | None:
        """Weighs a compaction before the next request by its price; None where prices are not known."""
        if self.books is None:
            return None
        warm = self._last is not None and self.books.terms.warm(time.monotonic() - self._last)
        appended = view_tokens if self._last is None else max(0, view_tokens - self._sent_tokens)
        self._pending = PricedRequest(
            view_tokens, min(appended, view_tokens), static_tokens, kept_tokens, warm
        )
        return weigh(self.books, self._pending)

    def book(self, tokens: int, *, compacted: bool) -> None:
        """Books a request that goes out with so many tokens, after a compaction or as it was."""
        if self.books is not None and self._pending is not None:
            after = tokens if compacted else None
            self.books = book(self.books, self._pending, after)
        self._pending = None
        self._last, self._sent_tokens = time.monotonic(), tokens

    def settle(self, usage: Usage) -> None:
        """Corrects what was taken for warm or cold by what the provider reports."""
        if self.books is not None:
            self.books = settle(self.books, usage)

    def set_limit(self, tokens: int) -> None:
        """Sets from how many tokens on a compaction always runs: the window turned out to be another one."""
        if self.books is not None:
            self.books = msgspec.structs.replace(self.books, limit_tokens=tokens)
