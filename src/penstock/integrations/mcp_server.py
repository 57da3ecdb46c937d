"""`penstock mcp`: recall for any client that speaks MCP, over stdio or HTTP.

The four recall tools search and read stored conversations; resources are the conversations and their messages. Sessions of
Claude Code and Codex on this machine are imported as they grow. Nothing is written but the store.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from penstock.conversation.wire import json_text, parse_json
from penstock.errors import PenstockError
from penstock.recall.tools import tool_schemas

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from penstock.integrations.client_history import ClientHistory
    from penstock.integrations.library import Library

__all__ = ["RecallServer"]

_ANSWER_TOKENS = 4_000
_CATCH_UP_SECONDS = 4.0  # of a call; what is left is imported by the next ones
_SCHEME = "penstock://conversation/"
_INSTRUCTIONS = (
    "Earlier conversations of this person with coding agents and assistants, word for word. Use history_search when "
    "something was decided, tried, read or said before; then history_expand for the whole of it."
)
_DESCRIPTIONS = {
    "history_search": "Search earlier conversations. Gives excerpts with handles, titles and times.",
    "history_entity": "Last known state of a file, command, order or person in earlier conversations, with handles.",
}


class RecallServer:
    """Serves a library. `history`, where given, is brought up to date before each call."""

    def __init__(self, library: Library, history: ClientHistory | None, version: str) -> None:
        self._library = library
        self._history = history
        self._server: Server[Any] = Server(
            "penstock",
            version=version,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )

    async def serve_stdio(self) -> None:
        """Serves the client that started this process, until it closes its end."""
        async with stdio_server() as (incoming, outgoing):
            await self._server.run(incoming, outgoing, self._server.create_initialization_options())

    def make_app(self, host: str) -> Starlette:
        """Returns the server as an ASGI application, which answers at `/mcp`."""
        return self._server.streamable_http_app(host=host, json_response=True, stateless_http=True)

    async def _list_tools(self, _context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe_tool(schema["function"]) for schema in tool_schemas()])

    async def _call_tool(self, _context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = await asyncio.to_thread(self._answer, params.name, params.arguments or {})
        failed = text.startswith('{"error"')
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=failed)

    def _answer(self, tool: str, arguments: dict[str, Any]) -> str:
        try:
            left = self._catch_up()
            text = self._library.answer(tool, arguments, _ANSWER_TOKENS)
        except PenstockError as error:
            return json_text({"error": str(error)})
        if not left:
            return text
        hint = f"{left} recorded sessions are still being read: ask again for what they hold"
        return json_text({**parse_json(text), "incomplete": hint})

    def _catch_up(self) -> int:
        return 0 if self._history is None else self._history.catch_up(_CATCH_UP_SECONDS)

    async def _list_resources(self, _context: Any, _params: Any) -> types.ListResourcesResult:
        def make() -> list[types.Resource]:
            self._catch_up()
            return [
                types.Resource(
                    uri=f"{_SCHEME}{one.id}",
                    name=one.title or one.id,
                    description=f"{one.messages:,} messages",
                    mime_type="text/markdown",
                )
                for one in self._library.list_conversations()
            ]

        return types.ListResourcesResult(resources=await asyncio.to_thread(make))

    async def _list_templates(self, _context: Any, _params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template=f"{_SCHEME}{{id}}/{{handle}}",
            name="message",
            description="One message by its handle, such as m12",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read_resource(
        self, _context: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        name = uri.removeprefix(_SCHEME)
        read = self._library.text if "/" in name else self._library.write
        try:
            text = await asyncio.to_thread(read, name)
        except PenstockError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        kind = "text/plain" if "/" in name else "text/markdown"
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, text=text, mime_type=kind)]
        )


def _describe_tool(function: dict[str, Any]) -> types.Tool:
    name = function["name"]
    return types.Tool(
        name=name,
        description=_DESCRIPTIONS.get(name, function["description"]),
        input_schema=function["parameters"],
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )
