"""The terminal agent's own tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.agent.tools.fetch_url import FetchUrl
from penstock.agent.tools.list_files import ListFiles
from penstock.agent.tools.memory import MemoryTool
from penstock.agent.tools.patch import Patch
from penstock.agent.tools.read_file import ReadFile
from penstock.agent.tools.search_files import SearchFiles
from penstock.agent.tools.terminal import Terminal
from penstock.agent.tools.write_file import WriteFile

if TYPE_CHECKING:
    from penstock.loop.tools import Tool

__all__ = ["own_tools"]


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
