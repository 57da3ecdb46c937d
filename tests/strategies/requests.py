"""Hypothesis strategies for whole requests to a provider."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.strategies.conversations import broken_conversations, conversations, texts

__all__ = ["TTLS", "requests"]

TTLS = st.sampled_from(["5m", "1h"])


@st.composite
def requests(draw: st.DrawFn, dialect: str) -> dict[str, Any]:
    """Requests without marks on the wire of the dialect; some would be refused."""
    some = draw(st.sampled_from([conversations, broken_conversations]))
    request = {"model": "claude-x", "messages": draw(some(dialect))}
    if dialect == "anthropic":
        request["system"] = draw(
            st.one_of(
                st.just(""),
                texts(),
                st.lists(st.builds(lambda t: {"type": "text", "text": t}, texts()), max_size=3),
            )
        )
        request["tools"] = draw(st.lists(st.builds(_tool, st.booleans()), max_size=3))
    return request


def _tool(deferred: bool) -> dict[str, Any]:
    whole = {"name": "terminal", "description": "Runs.", "input_schema": {"type": "object", "properties": {}}}
    return {**whole, "defer_loading": True} if deferred else whole
