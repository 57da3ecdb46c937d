"""A run of the OpenAI Agents SDK in a stored session, with as many tool calls as it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents import Agent, Runner, function_tool

from penstock.integrations.openai_agents import PenstockSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.models.interface import Model


async def run(
    model: Model | str, asked: str, read: Callable[[str], str], store: str, window_tokens: int | None = None
) -> str:
    """Returns the agent's answer. Another process goes on with the same session."""

    @function_tool
    def read_file(path: str) -> str:
        """Returns the text of a file."""
        return read(path)

    session = PenstockSession("customer-7", store=store, context_length=window_tokens, recall_tools=True)
    agent = Agent(name="reader", model=model, tools=[read_file, *session.tools])
    result = await Runner.run(agent, asked, session=session, run_config=session.run_config(), max_turns=200)
    return str(result.final_output)
