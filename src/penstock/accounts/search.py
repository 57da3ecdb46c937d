"""Messages of stored conversations that match a query, as people are shown them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.accounts.conversations import title_conversation
from penstock.accounts.display import make_redactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.recall.embedding import Embedder
    from penstock.recall.history import Finding
    from penstock.recall.ranking import Wish
    from penstock.stores.store import Store

__all__ = ["SearchReport", "search_conversations"]

_AT_ONCE = 2_000  # messages that are indexed between two reports of progress


class SearchReport(msgspec.Struct, frozen=True):
    """Hits, the best first, and the titles of their conversations by session."""

    hits: tuple[Finding, ...]
    titles: dict[str, str]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Returns the hits as JSON."""
        return [
            {
                "session": hit.session,
                "title": self.titles[hit.session],
                "handles": list(hit.handles),
                "turn": hit.turn,
                "at": hit.at,
                "score": round(hit.score, 4),
                "excerpt": hit.excerpt,
            }
            for hit in self.hits
        ]


def search_conversations(
    store: Store,
    query: str,
    wish: Wish,
    session_id: str | None = None,
    embedder: Embedder | None = None,
    on_indexed: Callable[[int, int], None] | None = None,
) -> SearchReport:
    """Returns what matches in one conversation, or in all; excerpts and titles are without secrets.

    New messages are indexed first; `on_indexed` hears how many are done and how many are left.
    """
    left, done = store.unindexed(embedder=embedder), 0
    while left and (
        some := store.index(_AT_ONCE, embedder=embedder)
    ):  # indexing waits for other writers: only if needed
        left, done = store.unindexed(embedder=embedder), done + some
        if on_indexed is not None:
            on_indexed(done, left)
    redact = make_redactor().redact
    hits = tuple(store.search(query, wish, session_id=session_id, redact=redact, embedder=embedder))
    sessions = {hit.session for hit in hits}
    return SearchReport(hits, {session: title_conversation(store, session) for session in sessions})
