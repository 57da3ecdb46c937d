"""Asks a person to approve a tool call: shows it in full, and takes yes, no or always.

Always means in this session, or in this project, from any chat. `approval_lines` shows what is allowed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from penstock.cli.screen import printable, screen_of, wrap
from penstock.loop.approvals import Access, ApprovalReply
from penstock.measure.wording import pluralise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.cli.screen import Screen
    from penstock.loop.approvals import ApprovalRule, Approvals, Permission

__all__ = ["approval_lines", "ask_on_lines", "list_given", "make_key_asker", "permission_lines"]

_VIEW = "v"
_MOST_TYPED = 4_096
_REPLIES = {
    "y": ApprovalReply.ONCE,
    "a": ApprovalReply.SESSION,
    "p": ApprovalReply.PROJECT,
    "n": ApprovalReply.NO,
}
_SAID = {
    ApprovalReply.ONCE: "allowed once",
    ApprovalReply.SESSION: "allowed for this session",
    ApprovalReply.PROJECT: "always allowed in this project; /approvals shows and revokes it",
    ApprovalReply.NO: "not allowed",
}
_WANTS = {Access.RUN: "wants to run", Access.WRITE: "wants to write", Access.READ: "wants to read"}


def _write_question(columns: int, *, view: bool, keeps: bool) -> tuple[str, str]:
    """Returns the question and its keys: `view` where not all is shown, `keeps` where a project's approvals are kept."""
    viewing, keeping = "[v]iew all of it, " if view else "", ", always in this [p]roject" if keeps else ""
    question = f"allow this? {viewing}[y]es, [a]lways in this session{keeping}, [n]o"
    return "\n".join(wrap(question, columns - 2)) + " ", f"{_VIEW if view else ''}ya{'p' if keeps else ''}n"


def permission_lines(asked: Permission, screen: Screen, rows: int) -> list[str]:
    """Returns the text of the question: the command or the file, the difference, and why it needs approval.

    Characters that would move the cursor or reverse the text are shown as escapes, so that the person reads what will run.
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
    key: Callable[[str, str], Awaitable[str]], keeps: Callable[[], bool]
) -> Callable[[Permission, Screen, int], Awaitable[ApprovalReply]]:
    """Returns a function that asks for single keys, read by `key`. `keeps` says whether approvals are kept for the project."""

    async def ask(asked: Permission, screen: Screen, rows: int) -> ApprovalReply:
        for line in permission_lines(asked, screen, rows):
            screen.say(line)
        said = _VIEW
        if asked.detail.rstrip("\n").count("\n") >= rows:
            said = await key(*_write_question(screen.columns, view=True, keeps=keeps()))
            if said == _VIEW:
                for line in permission_lines(asked, screen, asked.detail.count("\n") + 1):
                    screen.say(line)
        if said == _VIEW:
            said = await key(*_write_question(screen.columns, view=False, keeps=keeps()))
        reply = _REPLIES[said]
        for line in wrap(f"  {_SAID[reply]}", screen.columns, 2):
            screen.say(screen.paint(line, "dim"))
        return reply

    return ask


async def ask_on_lines(asked: Permission) -> ApprovalReply:
    """Asks on standard error and reads a line, for a terminal without the chat's own screen. No answer means no."""
    screen = screen_of(sys.stderr)
    for line in permission_lines(asked, screen, asked.detail.count("\n") + 1):
        screen.say(line)
    question, _ = _write_question(screen.columns, view=False, keeps=True)
    print(question, end="", file=sys.stderr, flush=True)
    try:
        said = await _read_line(sys.stdin.fileno())
    except asyncio.CancelledError:
        print(file=sys.stderr)  # what is written next begins on a line of its own
        raise
    return _REPLIES.get(said.strip().lower()[:1], ApprovalReply.NO)


async def _read_line(descriptor: int) -> str:
    """Returns the next line typed. Unlike a reading thread, it can be stopped by Ctrl-C."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _MOST_TYPED).decode(errors="replace")


# What is allowed, to be seen and revoked.


def list_given(approvals: Approvals) -> list[ApprovalRule]:
    """Returns the person's approvals in the order of their numbers: those of the project, then those of the session."""
    kept = approvals.project.rules() if approvals.project is not None else ()
    return [*kept, *(rule for rule in approvals.remembered if rule not in kept)]


def approval_lines(approvals: Approvals, folder: str, screen: Screen) -> list[str]:
    """Returns what is allowed without asking, and since when: numbered if it can be revoked, then rules and `--yes`."""
    given = list_given(approvals)
    kept = approvals.project.rules() if approvals.project is not None else ()
    lines: list[str] = []
    heads = (
        (f"always, in {printable(folder)}:", given[: len(kept)]),
        ("in this session:", given[len(kept) :]),
    )
    number = 0
    for head, rules in heads:
        lines += [screen.paint(head, "dim")] if rules else []
        for rule in rules:
            number += 1
            lines.append(f"{number:>3}  {screen.clip(printable(str(rule)), 5)}")
    if approvals.rules:
        lines.append(screen.paint("by agent.allow of the settings:", "dim"))
        lines += [f"     {screen.clip(printable(str(rule)), 5)}" for rule in approvals.rules]
    if approvals.yes:
        lines.append("everything is allowed (--yes)")
    if not lines:
        return ["everything needs your approval; a question can be answered for the session or the project"]
    if given:
        lines.append(
            screen.paint("/approvals forget N revokes one, /approvals forget all revokes them all", "dim")
        )
    return lines
