"""A pydantic-ai agent whose histories stay inside the window, from run to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_ai import Agent

from penstock.integrations.pydantic_ai import PenstockCapability

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_ai.models import Model


def make_agent(
    model: Model | str, read: Callable[[str], str], window_tokens: int | None = None
) -> Agent[None, str]:
    """Returns an agent; pass `result.all_messages()` of one run to the next as its `message_history`."""
    agent = Agent(model, capabilities=[PenstockCapability(context_length=window_tokens, recall_tools=True)])

    @agent.tool_plain
    def read_file(path: str) -> str:
        """Returns the text of a file."""
        return read(path)

    return agent
