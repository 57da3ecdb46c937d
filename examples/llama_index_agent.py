"""A LlamaIndex agent with a stored memory. Run it again with the same session, and the conversation goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_index.core.tools import FunctionTool

from penstock.integrations.llama_index import PenstockFunctionAgent, PenstockMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.core.llms.function_calling import FunctionCallingLLM


async def run(
    llm: FunctionCallingLLM,
    asked: str,
    read: Callable[[str], str],
    store: str,
    window_tokens: int | None = None,
) -> str:
    """Returns the agent's answer. `store` is an address such as `sqlite:///agents.db`."""

    def read_file(path: str) -> str:
        """Returns the text of a file."""
        return read(path)

    memory = PenstockMemory("customer-7", store=store, context_length=window_tokens, recall_tools=True)
    agent = PenstockFunctionAgent(llm=llm, tools=[FunctionTool.from_defaults(read_file), *memory.tools])
    return str(await agent.run(user_msg=asked, memory=memory, max_iterations=200))
