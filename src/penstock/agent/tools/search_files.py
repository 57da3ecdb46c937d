"""`search_files`: finds lines that match a regular expression.

The search runs in a process of its own, so that a runaway expression can be stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.agent.tools.search_child import FoundLines, SearchJob
from penstock.agent.tools.walking import looks_secret
from penstock.errors import ToolFailure
from penstock.loop.tools import OwnTool, ToolContext, ToolOutcome
from penstock.measure.wording import pluralise

__all__ = ["SearchFiles"]

_CHILD = ("-P", "-m", "penstock.agent.tools.search_child")
"""`-P`: a file in the working folder must not take the place of a module."""

_READ_LINES = msgspec.json.Decoder(FoundLines).decode
_SECONDS = 30.0


class SearchArguments(msgspec.Struct, frozen=True):
    """Arguments of `search_files`."""

    pattern: Annotated[str, Meta(description="regular expression, matched within lines")]
    path: Annotated[str, Meta(description="folder or file")] = "."
    glob: Annotated[str | None, Meta(description="only files like this, such as *.py or docs/**")] = None
    ignore_case: bool = False
    limit: Annotated[int, Meta(ge=1, le=1_000, description="matches at most")] = 100


class SearchFiles(OwnTool[SearchArguments]):
    """Searches the files that `list_files` lists. With ripgrep it is faster and finds the same."""

    name = "search_files"
    description = "Search files for lines that match a regular expression. Gives path:line: text."
    most_chars = 30_000
    arguments = SearchArguments

    async def act(self, wanted: SearchArguments, context: ToolContext) -> ToolOutcome:
        """Searches, and returns the hits as text."""
        start = context.workspace.resolve(wanted.path)
        if not start.exists():
            raise ToolFailure(f"{wanted.path} does not exist; list_files shows what there is")
        root = context.workspace.root
        job = SearchJob(
            root=str(root),
            start="" if start == root else context.workspace.relative_name(start),
            pattern=wanted.pattern,
            glob=wanted.glob,
            ignore_case=wanted.ignore_case,
            limit=wanted.limit,
            ripgrep=shutil.which("rg", path=context.environment.get("PATH", os.defpath)),
        )
        found = await _search_in_child(job)
        if found.error:
            raise ToolFailure(found.error)
        lines = [f"{hit.path}:{hit.line}: {hit.text}" for hit in found.hits]
        if not lines:
            lines = [f"[no match in {pluralise(found.files, 'file')}]"]
            if looks_secret(job.start):
                lines = [
                    "[files that look like they hold secrets are not searched; read_file asks for approval]"
                ]
        elif found.more:
            lines.append(f"[more than {wanted.limit:,} matches: narrow the pattern, the path or the glob]")
        hits = pluralise(len(found.hits), "match", "matches")
        return ToolOutcome("\n".join(lines), summary=f"{hits} and more" if found.more else hits)


async def _search_in_child(job: SearchJob) -> FoundLines:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *_CHILD),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        answer, _ = await asyncio.wait_for(process.communicate(msgspec.json.encode(job)), _SECONDS)
    except TimeoutError:
        raise ToolFailure(
            f"the search took more than {_SECONDS:g} s and was stopped; use a simpler pattern or a narrower path"
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
    try:
        return _READ_LINES(answer)
    except msgspec.DecodeError:
        raise ToolFailure("the search ended without an answer; use a simpler pattern") from None
