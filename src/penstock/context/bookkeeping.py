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
    from collections.abc import Callable

    from penstock.measure.usage import Usage
    from penstock.planning.economics import Caching, Weighed
    from penstock.providers.cache_marks import CachePlan
    from penstock.settings import Settings

__all__ = ["Bookkeeper", "books_for"]


def books_for(model: str, plan: CachePlan, limit_tokens: int, settings: Settings) -> Bookkeeper:
    """Open the books for a model, as its prompts are cached: by our marks, else by the provider itself."""
    caching: Caching = "1h" if plan.ttl == "1h" else "5m" if plan.on else "automatic"
    return Bookkeeper(model, caching, limit_tokens, settings)


class Bookkeeper:
    """The books of one conversation with one model. `clock` gives seconds; only differences count."""

    def __init__(
        self,
        model: str,
        caching: Caching,
        limit_tokens: int,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._last: float | None = None
        self._sent_tokens = 0
        self._pending: PricedRequest | None = None
        price = price_of(model)
        terms = Unknown("no price") if price is None else terms_of(price, caching)
        mode = settings.context.economics
        self.books = None if isinstance(terms, Unknown) else Books(terms, limit_tokens, mode)

    def weigh(
        self, view_tokens: int, static_tokens: int, kept_tokens: int, summary_tokens: int = 0
    ) -> Weighed | None:
        """Weigh a compaction before the next request by its price; None where prices are not known."""
        if self.books is None:
            return None
        now = self._clock()
        warm = self._last is not None and self.books.terms.warm(now - self._last)
        appended = view_tokens if self._last is None else max(0, view_tokens - self._sent_tokens)
        self._pending = PricedRequest(
            view_tokens, min(appended, view_tokens), static_tokens, kept_tokens, warm, summary_tokens
        )
        return weigh(self.books, self._pending)

    def sent(self, tokens: int, *, compacted: bool, summary_tokens: int = 0) -> None:
        """Book a request that goes out with so many tokens, after a compaction or as it was."""
        if self.books is not None and self._pending is not None:
            after = tokens if compacted else None
            self.books = book(self.books, self._pending, after, summary_tokens=summary_tokens)
        self._pending = None
        self._last, self._sent_tokens = self._clock(), tokens

    def settle(self, usage: Usage) -> None:
        """Correct what was taken for warm or cold by what the provider reports."""
        if self.books is not None:
            self.books = settle(self.books, usage)

    def limit(self, tokens: int) -> None:
        """Set from how many tokens on a compaction always runs: the window turned out to be another one."""
        if self.books is not None:
            self.books = msgspec.structs.replace(self.books, limit_tokens=tokens)

    @property
    def saved_usd(self) -> float | None:
        """US dollars that compacting has saved so far; None where prices are not known."""
        return None if self.books is None else self.books.saved_usd
