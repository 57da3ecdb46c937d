"""A Strands agent that reads files and never outgrows its window. The line that names Penstock is all that it adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strands import Agent, tool

from penstock.integrations.strands import PenstockConversationManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from strands.models import Model
    from strands.session.session_manager import SessionManager


def make_agent(
    model: Model, read: Callable[[str], str], session: SessionManager, window_tokens: int | None = None
) -> Agent:
    """Returns an agent for `agent("…")` or `await agent.invoke_async("…")`, which goes on with its session."""

    @tool
    def read_file(path: str) -> str:
        """Returns the text of a file."""
        return read(path)

    penstock = PenstockConversationManager(context_length=window_tokens, recall_tools=True)
    return Agent(model, tools=[read_file], conversation_manager=penstock, session_manager=session)
