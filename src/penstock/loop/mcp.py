"""Tools of MCP servers: started when their tools are first asked for, offered as `server__tool`, closed with the session.

The package `mcp` (extra `mcp`) does the talking; it is imported with the first server.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Self, TextIO

import msgspec

from penstock.conversation.wire import json_text
from penstock.errors import InputError, ToolFailure, name_install
from penstock.loop.approvals import Access, Permission
from penstock.loop.capping import cap_text
from penstock.loop.text_files import size_in_words
from penstock.loop.tools import Tool, ToolContext, ToolOutcome, fail, refuse
from penstock.measure.wording import pluralise
from penstock.recall.tool_arguments import read_object
from penstock.writing.stubs import shorten

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    import mcp

    from penstock.settings import McpServer

__all__ = ["ConnectedTools", "ForeignTool", "LastWords", "McpConnection", "McpServers", "McpTool"]


_LONGEST_NAME = 64  # what providers allow
_LONGEST_DESCRIPTION = 1_000


class ConnectedTools(msgspec.Struct, frozen=True):
    """The tools of the servers that answered, and why the others did not, by the server's name."""

    tools: tuple[Tool, ...]
    failures: Mapping[str, str]


class McpServers:
    """The servers of a session. Nothing is started before `tools` is called; `aclose` ends all of it."""

    def __init__(
        self, servers: Mapping[str, McpServer], *, folder: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables` holds the values of those that the servers name.

        Commands start in an empty folder of their own, never in `folder`, where the agent works: a cloned repository
        must not decide what `python -m server` or `npx server` is. They are told of it by PENSTOCK_FOLDER.
        """
        self._connections = {
            name: McpConnection(name, server, folder=folder, variables=variables or {})
            for name, server in servers.items()
        }

    async def tools(self) -> ConnectedTools:
        """Starts servers that are not running, and asks each for its tools."""
        listings = await asyncio.gather(*(_list_tools(one) for one in self._connections.values()))
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
        """Stops every server that was started."""
        await asyncio.gather(*(connection.aclose() for connection in self._connections.values()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class McpTool:
    """One tool of a server. Every call asks for approval, whatever the server says about itself."""

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
        """Asks for approval, then calls the server."""
        try:
            given = read_object(args)
        except InputError as error:
            return fail(str(error))
        # The arguments are what is allowed: "always" is for this very call, a rule of the settings may be for the tool.
        subject = json_text(given)
        decision = await context.approve(Permission(tool=self.name, access=self.access, subject=subject))
        if not decision.allowed:
            return refuse(decision)
        try:
            text, is_error = await self._connection.call(self._foreign_name, given)
        except ToolFailure as error:
            return fail(str(error))
        text = text if self.most_chars is None else cap_text(text, self.most_chars)
        lines = text.count("\n") + 1 if text else 0
        summary = shorten(text.partition("\n")[0]) if is_error or lines == 1 else pluralise(lines, "line")
        return ToolOutcome(text or "[the tool returned nothing]", is_error, summary)


async def _list_tools(connection: McpConnection) -> tuple[ForeignTool, ...] | str:
    try:
        return await connection.list_tools()
    except ToolFailure as error:
        return str(error)


def _tool_name(server: str, tool: str, taken: Mapping[str, Any]) -> str:
    """Returns `server__tool` in characters that providers allow; one that is too long or taken ends in a hash."""
    whole = f"{server}__{tool}"
    name = re.sub(r"[^A-Za-z0-9_-]", "_", whole)
    if len(name) <= _LONGEST_NAME and name not in taken:
        return name
    digest = hashlib.sha256(whole.encode(errors="replace")).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}_{digest}"


# A connection to one MCP server: opened when it is needed, opened again after the server has gone.
#
# The client of the `mcp` package must be entered and left by one task, so each connection has a task of its own.

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
    """One server. Every failure is a ToolFailure that names it."""

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
        """Returns the server's tools."""
        client = await self._open_client()
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
        """Returns the result of a tool as text, and True if the server calls it an error."""
        client = await self._open_client()
        with self._foreign_errors():
            result = await client.call_tool(tool, arguments)
        text = "\n".join(_as_text(block) for block in result.content)
        if not text and result.structured_content is not None:
            text = json_text(result.structured_content)
        return text, result.is_error

    async def aclose(self) -> None:
        """Stops the server, if it was started. Safe to call twice."""
        task, self._task, self._client = self._task, None, None
        if task is None:
            return
        self._stop.set()
        await asyncio.wait({task}, timeout=_CLOSE_SECONDS)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _open_client(self) -> mcp.Client:
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
        """Holds the connection until `stop` is set; `ready` gets the client, or the error."""
        said = LastWords()
        try:
            with self._foreign_errors():
                async with said.stream() as complaints, self._client_of_server(complaints) as client:
                    ready.set_result(client)
                    await stop.wait()
        except ToolFailure as error:
            if not ready.done():
                ready.set_exception(self._failure_to_start(error, said.line))
        finally:
            ready.cancel()

    def _failure_to_start(self, error: ToolFailure, last_words: str) -> ToolFailure:
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
                empty = await asyncio.to_thread(tempfile.mkdtemp, prefix="penstock-mcp-")
                stack.callback(shutil.rmtree, empty, ignore_errors=True)
                transport = mcp.stdio_client(self._command(empty), complaints)
            client = mcp.Client(transport, read_timeout_seconds=_CALL_SECONDS)
            yield await stack.enter_async_context(client)

    def _command(self, start_folder: str) -> mcp.StdioServerParameters:
        import mcp  # noqa: PLC0415 - as above

        values = {name: self._variable(name) for name in self._server.env}
        return mcp.StdioServerParameters(
            command=self._server.command or "",
            args=list(self._server.args),
            env={"PENSTOCK_FOLDER": str(self._folder), "PYTHONSAFEPATH": "1", **values},
            cwd=start_folder,
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
        """Raises ToolFailure for errors of the package and of those below it. Its texts may quote the server."""
        try:
            import anyio  # noqa: PLC0415 - comes with mcp
            import httpx2  # noqa: PLC0415 - as above
            import mcp  # noqa: PLC0415 - as above
        except ImportError:
            raise ToolFailure(f"tools of MCP servers need the extra `mcp`: {name_install('mcp')}") from None
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
    """Returns a part of a result as text; other parts are listed with their size."""
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


# What a program complains about while it runs: the end of it is kept, so that one that dies can be quoted.

_KEPT_BYTES = 4_096
_CHUNK_BYTES = 1 << 16
_DRAIN_SECONDS = 0.3  # for what a process outside still holds back
_LONGEST_CHARS = 200


class LastWords:
    """A stream for a program's errors that keeps the last bytes. Nothing of it reaches the screen."""

    def __init__(self) -> None:
        self._kept = b""

    @property
    def line(self) -> str:
        """The last line that is not blank; empty if there is none."""
        lines = [line.strip() for line in self._kept.decode(errors="replace").splitlines()]
        return next((line[:_LONGEST_CHARS] for line in reversed(lines) if line), "")

    @contextlib.asynccontextmanager
    async def stream(self) -> AsyncIterator[TextIO]:
        """Yields the end that the program writes to. After the block, everything written has been read."""
        read_end, write_end = os.pipe()
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
        )
        reading = asyncio.create_task(self._read(reader))
        try:
            with os.fdopen(write_end, "w", encoding="utf-8") as stream:
                yield stream
        finally:
            await asyncio.wait({reading}, timeout=_DRAIN_SECONDS)
            transport.close()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            self._kept = (self._kept + data)[-_KEPT_BYTES:]
