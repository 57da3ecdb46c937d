"""The tools of a session, by name."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.agent.tools.fetch_url import FetchUrl
from penstock.agent.tools.list_files import ListFiles
from penstock.agent.tools.memory import MemoryTool
from penstock.agent.tools.patch import Patch
from penstock.agent.tools.read_file import ReadFile
from penstock.agent.tools.search_files import SearchFiles
from penstock.agent.tools.terminal import Terminal
from penstock.agent.tools.write_file import WriteFile
from penstock.loop.tools import Tool, ToolContext, ToolOutcome, failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Toolbox", "own_tools"]


def own_tools() -> tuple[Tool, ...]:
    """The tools that every agent has, in the order in which they are offered."""
    return (
        Terminal(),
        ReadFile(),
        WriteFile(),
        Patch(),
        SearchFiles(),
        ListFiles(),
        FetchUrl(),
        MemoryTool(),
    )


class Toolbox(msgspec.Struct, frozen=True):
    """Tools by name, in the order in which they are offered."""

    tools: Mapping[str, Tool]

    @classmethod
    def of(cls, tools: Iterable[Tool]) -> Toolbox:
        """These tools. Raises ValueError where two have one name."""
        named: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in named:
                raise ValueError(f"there are two tools {tool.name}")
            named[tool.name] = tool
        return cls(named)

    async def run(self, name: str, args: Any, context: ToolContext) -> ToolOutcome:
        """Run a call of the model. Never raises for what it wrote; no arguments at all are an empty object."""
        tool = self.tools.get(name)
        if tool is None:
            alike = difflib.get_close_matches(name, self.tools, n=3)
            names = ", ".join(alike or self.tools)
            return failed(f"there is no tool {name!r}; {'did you mean' if alike else 'there are'}: {names}")
        nothing = args is None or (isinstance(args, str) and not args.strip())
        return await tool.run({} if nothing else args, context)
