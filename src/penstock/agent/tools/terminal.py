"""`terminal`: runs a shell command in the working folder."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from penstock.errors import ToolFailure
from penstock.loop.approvals import Access, Permission
from penstock.loop.capping import HeadAndTail
from penstock.loop.tools import OwnTool, ToolContext, ToolOutcome, refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

__all__ = ["Terminal"]

_TIMEOUT_SECONDS = 120.0
_GRACE_SECONDS = 1.0  # between asking a group to end and ending it
_DRAIN_SECONDS = 0.5  # for output that a process outside the group still holds back
_CHUNK_BYTES = 1 << 16
_FOR_NOTES = 300  # characters for what was left out and how it ended
_SUCCESS = "exit code 0"
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles and links
    r"|\x1b[@-Z\\-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_QUIET = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


class CommandArguments(msgspec.Struct, frozen=True):
    """Arguments of `terminal`."""

    command: Annotated[str, Meta(description="as typed into a shell")]
    timeout_seconds: Annotated[float, Meta(gt=0, le=3_600)] = _TIMEOUT_SECONDS


class Terminal(OwnTool[CommandArguments]):
    """Runs a command with no input, in a process group of its own that never outlives the call."""

    name = "terminal"
    description = "Run a shell command in the working folder. It gets no input, and what it leaves in the background ends with it."
    access = Access.RUN
    most_chars = 30_000
    arguments = CommandArguments
    ends_itself = True  # when it is interrupted, with what the command had said

    async def act(self, wanted: CommandArguments, context: ToolContext) -> ToolOutcome:
        """Asks, runs the command, and returns its output and how it ended."""
        command = wanted.command
        if not command.strip() or "\0" in command:
            raise ToolFailure("the command is empty or contains a null character")
        asked = Permission(tool=self.name, access=self.access, subject=command)
        decision = await context.approve(asked)
        if not decision.allowed:
            return refuse(decision)
        output = _Output(self.most_chars - _FOR_NOTES, context.on_line)
        started = time.monotonic()
        ending = await _run(wanted, context, output)
        seconds = time.monotonic() - started
        said = f"{ending}, {seconds:.1f} s"
        text = output.text()
        gap = "" if not text or text.endswith("\n") else "\n"
        return ToolOutcome(f"{text}{gap}[{said}]", is_error=ending != _SUCCESS, summary=said)


class _Output:
    """The output of a command: decoded as it arrives, reported line by line, with both ends kept."""

    def __init__(self, most_chars: int, on_line: Callable[[str], None]) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._kept = HeadAndTail(most_chars)
        self._on_line = on_line
        self._line = ""
        self._most_chars = most_chars

    def add(self, data: bytes, *, final: bool = False) -> None:
        """Adds bytes; `final` means that no more will come."""
        lines = (self._line + self._decode(data, final)).split("\n")
        self._line = lines.pop()
        for line in lines:
            self._take(line, "\n")
        if len(self._line) > self._most_chars:  # a line without an end must not be held for ever
            self._take(self._line, "")
            self._line = ""
        if final and self._line:
            self._take(self._line, "")
            self._line = ""

    def text(self) -> str:
        """Returns the output that is kept."""
        return self._kept.text()

    def _take(self, line: str, end: str) -> None:
        # Of a progress bar that overwrites itself, what stands there in the end is kept.
        shown = _CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2])
        self._kept.add(shown + end)
        self._on_line(shown)


async def _run(wanted: CommandArguments, context: ToolContext, output: _Output) -> str:
    """Runs it to its end, its timeout or its interruption; returns how it ended, in words."""
    async with _pipe(output) as (write_end, reading):
        try:
            process = await asyncio.create_subprocess_exec(
                *(_shell(), "-c", wanted.command),
                cwd=context.workspace.root,
                env=_environment(context.environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
            )
        finally:
            os.close(write_end)  # so that the pipe ends with the last process that holds it
        ended = asyncio.create_task(process.wait())
        interrupted = asyncio.create_task(_until_set(context.interrupt))
        try:
            await asyncio.wait(
                {ended, interrupted}, timeout=wanted.timeout_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            ending = _describe_ending(wanted, ended, interrupted)
            if not ended.done():
                await _ask_to_end(process.pid, ended)
            _kill_group(process.pid)
            await asyncio.wait({reading}, timeout=_DRAIN_SECONDS)
        finally:  # also where the call is cancelled: nothing is left behind
            _kill_group(process.pid)
            interrupted.cancel()
            await asyncio.shield(ended)
    output.add(b"", final=True)
    return ending


@contextlib.asynccontextmanager
async def _pipe(output: _Output) -> AsyncIterator[tuple[int, asyncio.Task[None]]]:
    """Returns the end that a command writes to, and the task that reads the other one.

    A pipe of our own, since one of asyncio's could only be closed by the last process that holds it.
    """
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    reading = asyncio.create_task(_read(reader, output))
    try:
        yield write_end, reading
    finally:
        transport.close()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _read(reader: asyncio.StreamReader, output: _Output) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        output.add(data)


def _describe_ending(
    wanted: CommandArguments, ended: asyncio.Task[int], interrupted: asyncio.Task[None]
) -> str:
    if ended.done():
        return _exit_in_words(ended.result())
    if interrupted.done():
        return "interrupted by the user"
    return f"timed out after {wanted.timeout_seconds:g} s and was ended; timeout_seconds may be up to 3,600"


async def _until_set(event: asyncio.Event | None) -> None:
    await (event or asyncio.Event()).wait()


async def _ask_to_end(group: int, ended: asyncio.Task[int]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
    await asyncio.wait({ended}, timeout=_GRACE_SECONDS)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # no process of it is left
        os.killpg(group, signal.SIGKILL)


def _exit_in_words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"exit code {code}, ended by {name}"


def _shell() -> str:
    return next((shell for shell in ("/bin/bash", "/usr/bin/bash") if os.access(shell, os.X_OK)), "/bin/sh")


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    return {**given, **_QUIET}
