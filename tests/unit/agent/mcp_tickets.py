"""An MCP server for the tests: over stdio, or over HTTP on a port that it writes to a file."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tickets")


@server.tool()
def find(words: str, limit: int = 3) -> str:
    """Find tickets.

    A second paragraph that only the schema shows.
    """
    return "\n".join(f"T-{number}: {words}" for number in range(1, limit + 1))


@server.tool()
def fail() -> str:
    """Always fail."""
    raise ToolError("the ticket desk is closed")


@server.tool()
def surroundings() -> dict[str, str]:
    """What the server sees of its surroundings."""
    named = {name: os.environ.get(name, "") for name in ("TICKETS_TOKEN", "OTHER_TOKEN", "PENSTOCK_FOLDER")}
    return {**named, "folder": str(Path.cwd()), "pid": str(os.getpid())}


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=b"\x89PNG" + bytes(2_000), format="png")


@server.tool()
def flood() -> str:
    """Very much text."""
    return "x" * 500_000


@server.tool()
async def wait() -> str:
    """Wait for long."""
    await asyncio.sleep(60)
    return "late"


@server.tool()
def leave() -> str:
    """End the server in the middle of a call."""
    os._exit(3)


@server.tool(name="a.name/with:marks " + "x" * 80)
def odd() -> str:
    """An odd name."""
    return "odd"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        Path(sys.argv[1]).write_text(str(port))
        server.run("streamable-http", host="127.0.0.1", port=port)
    else:
        server.run("stdio")
