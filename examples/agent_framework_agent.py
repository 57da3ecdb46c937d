"""An agent of Microsoft Agent Framework whose model calls stay inside the window, however many tools a run calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_framework import Agent, tool

from penstock.integrations.agent_framework import PenstockContextProvider

if TYPE_CHECKING:
    from collections.abc import Callable


def make_agent(client: Any, read: Callable[[str], str], window_tokens: int | None = None) -> Agent:
    """Returns an agent for `await agent.run("…", session=session)`."""

    @tool(approval_mode="never_require")
    def read_file(path: str) -> str:
        """Returns the text of a file."""
        return read(path)

    penstock = PenstockContextProvider(context_length=window_tokens, recall_tools=True)
    return Agent(client, tools=[read_file], context_providers=[penstock])
