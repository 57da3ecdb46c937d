"""Recall over what Claude Code has recorded about a project, through `penstock mcp`.

Claude Code needs one line, and no program:

    claude mcp add penstock -- penstock mcp

What its model can then do is done here with the client of the `mcp` package: search what was said, and read the message that was
found, word for word. In the folder of a project that you have worked on with Claude Code:

    python -m examples.mcp_claude_code "retry limit of the webhook"
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp import Client, StdioServerParameters
from mcp.types import TextContent

if TYPE_CHECKING:
    from collections.abc import Mapping


def describe_server(folder: Path, environment: Mapping[str, str] | None = None) -> StdioServerParameters:
    """Returns how to start the server, as Claude Code does in the folder of a project; for Claude Code's own sessions only."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "penstock", "mcp", "--client", "claude-code"],
        cwd=str(folder),
        env=None if environment is None else dict(environment),
    )


async def recall(server: StdioServerParameters, query: str) -> str | None:
    """Returns the message that answers the query best, in full; None where nothing was said about it."""
    async with Client(server) as client:
        found = (await _call(client, "history_search", query=query))["found"]
        return await _read(client, found[0]["handles"][0]) if found else None


async def _read(client: Client, handle: str) -> str:
    """Returns the whole message: a long one comes in pages."""
    text, offset = "", 0
    while True:
        page = await _call(client, "history_expand", handle=handle, offset=offset)
        text += str(page["text"])
        if "next_offset" not in page:
            return text
        offset = page["next_offset"]


async def _call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    content = result.content[0]
    answer: dict[str, Any] = json.loads(content.text if isinstance(content, TextContent) else "{}")
    if result.is_error:
        raise RuntimeError(answer["error"])
    return answer


if __name__ == "__main__":
    answer = asyncio.run(recall(describe_server(Path.cwd()), " ".join(sys.argv[1:])))
    sys.stdout.write(f"{answer or 'Nothing was said about that in this folder.'}\n")
