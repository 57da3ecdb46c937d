"""Tools of MCP servers: started when their tools are first asked for, offered as `server__tool`, closed with the session.

The package `mcp` (extra `mcp`) does the talking and is imported by the first server.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import TYPE_CHECKING, Any, Self

import msgspec

from penstock.agent.approval import Access, Permission
from penstock.agent.mcp_connection import McpConnection
from penstock.agent.tools.base import Tool, ToolContext, ToolOutcome, failed, refused
from penstock.agent.tools.capping import capped
from penstock.agent.tools.text_files import counted
from penstock.compaction.stubs import shorten
from penstock.conversation.wire import json_text
from penstock.errors import InputError, ToolFailure
from penstock.recall.tool_arguments import object_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from penstock.agent.mcp_connection import ForeignTool
    from penstock.settings import McpServer

__all__ = ["ConnectedTools", "McpServers", "McpTool"]

_LONGEST_NAME = 64  # what providers allow
_LONGEST_DESCRIPTION = 1_000
_DETAIL_CHARS = 2_000


class ConnectedTools(msgspec.Struct, frozen=True):
    """The tools of the servers that answered, and why the others did not, by the server's name."""

    tools: tuple[Tool, ...]
    failures: Mapping[str, str]


class McpServers:
    """The servers of a session. Nothing is started before `tools` is called; `aclose` ends all of it."""

    def __init__(
        self, servers: Mapping[str, McpServer], *, folder: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        """`folder` is where commands start; `variables` holds the values of those that the servers name."""
        self._connections = {
            name: McpConnection(name, server, folder=folder, variables=variables or {})
            for name, server in servers.items()
        }

    async def tools(self) -> ConnectedTools:
        """Start what is not running, and ask each server for its tools."""
        listings = await asyncio.gather(*(_listed(one) for one in self._connections.values()))
        tools: dict[str, Tool] = {}
        failures: dict[str, str] = {}
        for connection, listing in zip(self._connections.values(), listings, strict=True):
            if isinstance(listing, str):
                failures[connection.name] = listing
                continue
            for foreign in listing:
                name = _tool_name(connection.name, foreign.name, taken=tools)
                tools[name] = McpTool(name, foreign, connection)
        return ConnectedTools(tuple(tools.values()), failures)

    async def aclose(self) -> None:
        """End every server that was started."""
        await asyncio.gather(*(connection.aclose() for connection in self._connections.values()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class McpTool:
    """One tool of a server. What a server says of itself is not believed: every call asks for approval."""

    access = Access.RUN
    most_chars: int | None = 50_000

    def __init__(self, name: str, foreign: ForeignTool, connection: McpConnection) -> None:
        self.name = name
        self.description = (
            foreign.description[:_LONGEST_DESCRIPTION] or f"{foreign.name} of {connection.name}"
        )
        self.parameters = foreign.parameters
        self._foreign_name = foreign.name
        self._connection = connection

    async def run(self, args: Any, context: ToolContext) -> ToolOutcome:
        """Ask, then have the server do it."""
        try:
            given = object_in(args)
        except InputError as error:
            return failed(str(error))
        detail = capped(json_text(given), _DETAIL_CHARS)
        decision = await context.approve(
            Permission(tool=self.name, access=self.access, subject="", detail=detail)
        )
        if not decision.allowed:
            return refused(decision)
        try:
            text, is_error = await self._connection.call(self._foreign_name, given)
        except ToolFailure as error:
            return failed(str(error))
        text = text if self.most_chars is None else capped(text, self.most_chars)
        lines = text.count("\n") + 1 if text else 0
        summary = shorten(text.partition("\n")[0]) if is_error or lines == 1 else counted(lines, "line")
        return ToolOutcome(text or "[the tool gave nothing]", is_error, summary)


async def _listed(connection: McpConnection) -> tuple[ForeignTool, ...] | str:
    try:
        return await connection.list_tools()
    except ToolFailure as error:
        return str(error)


def _tool_name(server: str, tool: str, taken: Mapping[str, Any]) -> str:
    """`server__tool`, made of what providers allow; one that is too long or taken gets a hash of it at its end."""
    whole = f"{server}__{tool}"
    name = re.sub(r"[^A-Za-z0-9_-]", "_", whole)
    if len(name) <= _LONGEST_NAME and name not in taken:
        return name
    digest = hashlib.sha256(whole.encode(errors="replace")).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}_{digest}"
