"""Asks a person to allow what a tool is about to do: shows it in full, and takes yes, no or always."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from penstock.cli.screen import printable, screen_of
from penstock.loop.approvals import Access, ApprovalReply
from penstock.measure.wording import pluralise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.cli.screen import Screen
    from penstock.loop.approvals import Permission

__all__ = ["QUESTION", "ask_on_lines", "make_key_asker", "permission_lines"]

QUESTION = "allow this? [y]es, [a]lways in this session, [n]o "
_QUESTION_ON_EXCERPT = "allow this? [v]iew all of it, [y]es, [a]lways in this session, [n]o "
_VIEW = "v"
_MOST_TYPED = 4_096
_KEYS = "yan"
_REPLIES = {"y": ApprovalReply.ONCE, "a": ApprovalReply.SESSION, "n": ApprovalReply.NO}
_SAID = {
    ApprovalReply.ONCE: "allowed once",
    ApprovalReply.SESSION: "allowed for this session",
    ApprovalReply.NO: "not allowed",
}
_WANTS = {Access.RUN: "wants to run", Access.WRITE: "wants to write", Access.READ: "wants to read"}


def permission_lines(asked: Permission, screen: Screen, rows: int) -> list[str]:
    """Returns what is to be allowed: the command or the file, the difference, and why it needs permission.

    Characters that would move the cursor or reverse the text are shown as escapes: what is read is what is done.
    """
    edge = "│ " if screen.unicode else "| "
    lines = [
        f"{screen.paint(asked.tool, 'bold')} {_WANTS[asked.access]}{f', {asked.why}' if asked.why else ''}:"
    ]
    lines += [f"  {screen.paint(edge, 'yellow')}{printable(line)}" for line in asked.subject.split("\n")]
    if asked.detail:
        detail = asked.detail.rstrip("\n").split("\n")
        lines += [
            f"  {screen.paint(edge, 'dim')}{_colour_difference(line, screen)}" for line in detail[:rows]
        ]
        if len(detail) > rows:
            lines.append(f"  {screen.paint(edge, 'dim')}… {pluralise(len(detail) - rows, 'more line')}")
    return lines


def _colour_difference(line: str, screen: Screen) -> str:
    """Returns a line of a difference in colour."""
    shown = "\t".join(map(printable, line.split("\t")))
    if line.startswith(("+++", "---")):
        return screen.paint(shown, "bold")
    colour = {"+": "green", "-": "magenta", "@": "cyan"}.get(line[:1])
    return screen.paint(shown, colour) if colour else shown


def make_key_asker(
    key: Callable[[str, str], Awaitable[str]],
) -> Callable[[Permission, Screen, int], Awaitable[ApprovalReply]]:
    """Returns a function that asks with single keys, read by `key`."""

    async def ask(asked: Permission, screen: Screen, rows: int) -> ApprovalReply:
        for line in permission_lines(asked, screen, rows):
            screen.say(line)
        said = _VIEW
        if asked.detail.rstrip("\n").count("\n") >= rows:
            said = await key(_QUESTION_ON_EXCERPT, _VIEW + _KEYS)
            if said == _VIEW:
                for line in permission_lines(asked, screen, asked.detail.count("\n") + 1):
                    screen.say(line)
        reply = _REPLIES[await key(QUESTION, _KEYS) if said == _VIEW else said]
        screen.say(screen.paint(f"  {_SAID[reply]}", "dim"))
        return reply

    return ask


async def ask_on_lines(asked: Permission) -> ApprovalReply:
    """Asks on standard error and reads a line, for a terminal that is not taken over. No answer means no."""
    screen = screen_of(sys.stderr)
    for line in permission_lines(asked, screen, asked.detail.count("\n") + 1):
        screen.say(line)
    print(QUESTION, end="", file=sys.stderr, flush=True)
    try:
        said = await _read_line(sys.stdin.fileno())
    except asyncio.CancelledError:
        print(file=sys.stderr)  # what is written next begins on a line of its own
        raise
    return _REPLIES.get(said.strip().lower()[:1], ApprovalReply.NO)


async def _read_line(descriptor: int) -> str:
    """Returns the next line typed. A thread that reads could not be stopped by Ctrl-C; this can."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _MOST_TYPED).decode(errors="replace")
