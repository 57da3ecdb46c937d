"""A LangChain agent that reads files and never outgrows its window. The line that names Penstock is all that it adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain_core.tools import tool

from penstock.integrations.langchain import PenstockMiddleware

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.language_models import BaseChatModel
    from langgraph.checkpoint.base import BaseCheckpointSaver


def make_agent(
    model: BaseChatModel,
    read: Callable[[str], str],
    saver: BaseCheckpointSaver[Any],
    window_tokens: int | None = None,
) -> Any:
    """Returns an agent for `agent.invoke({"messages": […]}, {"configurable": {"thread_id": "7"}})`."""

    @tool
    def read_file(path: str) -> str:
        """Returns the text of a file."""
        return read(path)

    penstock = PenstockMiddleware(context_length=window_tokens, recall_tools=True)
    return create_agent(model, [read_file], middleware=[penstock], checkpointer=saver)
