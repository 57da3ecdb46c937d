"""A connection to one MCP server: opened when it is needed, opened again after the server has gone.

The client of the `mcp` package must be entered and left by one task, so each connection has a task of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from penstock.agent.last_words import LastWords
from penstock.agent.tools.text_files import size_in_words
from penstock.conversation.wire import json_text
from penstock.errors import ToolFailure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    import mcp

    from penstock.settings import McpServer

__all__ = ["ForeignTool", "McpConnection"]

_START_SECONDS = 30.0
_CALL_SECONDS = 300.0
_CLOSE_SECONDS = 10.0
_MOST_PAGES = 50
_CONNECTION_CLOSED = -32_000


class ForeignTool(msgspec.Struct, frozen=True):
    """A tool as a server describes it."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class McpConnection:
    """One server. Everything that goes wrong with it is a ToolFailure that names it."""

    def __init__(self, name: str, server: McpServer, *, folder: Path, variables: Mapping[str, str]) -> None:
        self.name = name
        self._server = server
        self._folder = folder
        self._variables = variables
        self._opening = asyncio.Lock()
        self._client: mcp.Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def list_tools(self) -> tuple[ForeignTool, ...]:
        """The tools that it has."""
        client = await self._opened()
        found: list[ForeignTool] = []
        cursor: str | None = None
        with self._foreign_errors():
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                found += [
                    ForeignTool(tool.name, tool.description or "", tool.input_schema) for tool in page.tools
                ]
                cursor = page.next_cursor
                if not cursor:
                    break
        return tuple(found)

    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """What a tool gave, as text, and whether it says that it failed."""
        client = await self._opened()
        with self._foreign_errors():
            result = await client.call_tool(tool, arguments)
        text = "\n".join(_as_text(block) for block in result.content)
        if not text and result.structured_content is not None:
            text = json_text(result.structured_content)
        return text, result.is_error

    async def aclose(self) -> None:
        """End the server, if it was started. Safe to call twice."""
        task, self._task, self._client = self._task, None, None
        if task is None:
            return
        self._stop.set()
        await asyncio.wait({task}, timeout=_CLOSE_SECONDS)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _opened(self) -> mcp.Client:
        async with self._opening:
            if self._client is not None and self._task is not None and not self._task.done():
                return self._client
            await self.aclose()
            self._stop = asyncio.Event()
            ready: asyncio.Future[mcp.Client] = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._live(ready, self._stop))
            try:
                async with asyncio.timeout(_START_SECONDS):
                    self._client = await asyncio.shield(ready)
            except TimeoutError:
                await self.aclose()
                raise ToolFailure(
                    f"the MCP server {self.name} did not answer within {_START_SECONDS:g} s"
                ) from None
            return self._client

    async def _live(self, ready: asyncio.Future[mcp.Client], stop: asyncio.Event) -> None:
        """Hold the connection until `stop` is set; `ready` gets the client, or why there is none."""
        said = LastWords()
        try:
            with self._foreign_errors():
                async with said.stream() as complaints, self._client_of_server(complaints) as client:
                    ready.set_result(client)
                    await stop.wait()
        except ToolFailure as error:
            if not ready.done():
                ready.set_exception(self._not_started(error, said.line))
        finally:
            ready.cancel()

    def _not_started(self, error: ToolFailure, last_words: str) -> ToolFailure:
        text = (
            f"the MCP server {self.name} ended before it answered" if isinstance(error, _Gone) else str(error)
        )
        return ToolFailure(f"{text} ({last_words})" if last_words else text)

    @contextlib.asynccontextmanager
    async def _client_of_server(self, complaints: TextIO) -> AsyncIterator[mcp.Client]:
        import mcp  # noqa: PLC0415 - an extra, and heavy: only a server needs it

        async with contextlib.AsyncExitStack() as stack:
            if self._server.url is not None:
                transport: Any = await self._http_transport(stack)
            else:
                transport = mcp.stdio_client(self._command(), complaints)
            client = mcp.Client(transport, read_timeout_seconds=_CALL_SECONDS)
            yield await stack.enter_async_context(client)

    def _command(self) -> mcp.StdioServerParameters:
        import mcp  # noqa: PLC0415 - as above

        values = {name: self._variable(name) for name in self._server.env}
        return mcp.StdioServerParameters(
            command=self._server.command or "",
            args=list(self._server.args),
            env=values,
            cwd=self._folder,
        )

    async def _http_transport(self, stack: contextlib.AsyncExitStack) -> Any:
        import httpx2  # noqa: PLC0415 - comes with mcp
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - as above

        headers = {name: self._variable(variable) for name, variable in self._server.headers.items()}
        timeout = httpx2.Timeout(_START_SECONDS, read=_CALL_SECONDS)
        http = await stack.enter_async_context(
            httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=False)
        )
        return streamable_http_client(self._server.url or "", http_client=http)

    def _variable(self, name: str) -> str:
        if name not in self._variables:
            raise ToolFailure(f"the MCP server {self.name} needs the environment variable {name}; set it")
        return self._variables[name]

    def _gone(self) -> ToolFailure:
        self._client = None
        return _Gone(f"the MCP server {self.name} has gone; the next call starts it again")

    @contextlib.contextmanager
    def _foreign_errors(self) -> Iterator[None]:
        """What the package and what it stands on raise, as ToolFailure. Its texts may quote what the server said."""
        try:
            import anyio  # noqa: PLC0415 - comes with mcp
            import httpx2  # noqa: PLC0415 - as above
            import mcp  # noqa: PLC0415 - as above
        except ImportError:
            raise ToolFailure(
                "tools of MCP servers need the extra `mcp`: pip install 'penstock[mcp]'"
            ) from None
        try:
            yield
        except mcp.MCPError as error:
            if error.error.code == _CONNECTION_CLOSED:
                raise self._gone() from None
            raise ToolFailure(f"the MCP server {self.name}: {error.error.message}") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            raise self._gone() from None
        except (OSError, ValueError, RuntimeError, httpx2.HTTPError) as error:
            said = str(error) or type(error).__name__
            raise ToolFailure(f"the MCP server {self.name} cannot be used: {said}") from None
        except ExceptionGroup as group:  # of the task groups in the package: the first one is the cause
            cause = _first(group)
            if isinstance(cause, mcp.MCPError) and cause.error.code == _CONNECTION_CLOSED:
                raise self._gone() from None
            said = str(cause) or type(cause).__name__
            raise ToolFailure(f"the MCP server {self.name} cannot be used: {said}") from None


class _Gone(ToolFailure):
    """The connection to a server has ended."""


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _as_text(block: Any) -> str:
    """A piece of a result as text; what is none is named with its size."""
    match block.type:
        case "text":
            return str(block.text)
        case "resource" if hasattr(block.resource, "text"):
            return str(block.resource.text)
        case "resource":
            return f"[{block.resource.uri}, {_size(block.resource.blob)}: not text]"
        case "resource_link":
            return f"[{block.name}: {block.uri}]"
        case _:
            return f"[{block.mime_type}, {_size(block.data)}: not shown]"


def _size(base64_text: str) -> str:
    return size_in_words(len(base64_text) * 3 // 4)
