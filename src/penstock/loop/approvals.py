"""Approvals: reading is free; writes, commands and calls of foreign servers are allowed by a rule, by `--yes`, or
by a person who is asked: once, for the session or for the project.

    terminal                   every command
    terminal(git status*)      commands that begin so
    write_file(src/**)         files below src
    weather__*                 every tool of the MCP server `weather`

`*` in a pattern stands for anything; for paths it ends at a `/` and `**` does not. A command that chains others or
redirects (`;`, `|`, `&`, `<`, `>`, `$`, a backquote, a line break) is matched by a pattern only if it is the pattern,
character by character: `git status*` must not allow `git status; rm -r src`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from penstock.errors import SettingsError
from penstock.loop.globs import compile_glob

__all__ = [
    "Access",
    "ApprovalBook",
    "ApprovalReply",
    "ApprovalRule",
    "Approvals",
    "Ask",
    "Decision",
    "Permission",
    "decide",
    "read_rule",
]

_RULE = re.compile(r"(?P<tool>[\w*-]+)(?:\((?P<pattern>.+)\))?", re.DOTALL)
_CHAINS = re.compile(r"[;|&<>$`\n\r\\]|[({]")


class Access(StrEnum):
    """The effect of a tool on the world."""

    READ = "read"
    WRITE = "write"
    RUN = "run"


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """The permission that a call asks for.

    `subject` is what rules look at: the command, the path from the working folder on, the address. `detail` is what a
    person sees beside it, such as the difference that a write makes. `why` says why reading is not free here.
    """

    tool: str
    access: Access
    subject: str
    detail: str = ""
    why: str = ""

    @property
    def rule(self) -> ApprovalRule:
        """The rule that allows this very thing again."""
        return ApprovalRule(self.tool, self.subject, exact=True)


class ApprovalRule(msgspec.Struct, frozen=True):
    """Allows a tool, or what it does to subjects that the pattern matches. An `exact` pattern is plain text."""

    tool: str
    pattern: str | None = None
    exact: bool = False

    def allows(self, asked: Permission) -> bool:
        """Returns True for calls of this tool with such a subject."""
        if not compile_glob(self.tool).matches(asked.tool):
            return False
        if self.pattern is None or self.pattern == asked.subject:
            return True
        if self.exact or (asked.tool == "terminal" and _CHAINS.search(asked.subject)):
            return False
        crossing = asked.tool == "terminal"  # a command has no folders
        return compile_glob(self.pattern, star_crosses=crossing).matches(asked.subject)

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"


class Decision(msgspec.Struct, frozen=True):
    """The answer to a call that asked for permission, and the reason."""

    allowed: bool
    reason: str


class ApprovalReply(StrEnum):
    """A person's answer."""

    ONCE = "once"
    SESSION = "session"
    PROJECT = "project"
    NO = "no"


Ask: TypeAlias = Callable[[Permission], Awaitable[ApprovalReply]]


def read_rule(text: str) -> ApprovalRule:
    """Parses a rule as written in the settings. Raises SettingsError for anything else."""
    match = _RULE.fullmatch(text.strip())
    if match is None:
        raise SettingsError(
            f"{text!r} is not an approval rule; write a tool, or a tool and a pattern such as terminal(git status*)"
        )
    return ApprovalRule(match["tool"], match["pattern"])


def decide(asked: Permission, rules: tuple[ApprovalRule, ...], *, yes: bool = False) -> Decision | None:
    """Decides without asking; None if a person must be asked."""
    if asked.access is Access.READ and not asked.why:
        return Decision(allowed=True, reason="reading is free")
    for rule in rules:
        if rule.allows(asked):
            return Decision(allowed=True, reason=f"allowed by the rule {rule}")
    if yes:
        return Decision(allowed=True, reason="everything is allowed (--yes)")
    return None


class ApprovalBook(Protocol):
    """Approvals that outlive a session: those of a project, or of a hosted conversation."""

    def rules(self) -> tuple[ApprovalRule, ...]:
        """Returns the rules in force."""

    def add(self, rule: ApprovalRule) -> None:
        """Allows this from now on. Raises OSError if it cannot be stored."""

    def remove(self, rule: ApprovalRule) -> bool:
        """Revokes a rule; returns True if it was there. Raises OSError if that cannot be stored."""


class Approvals:
    """The approvals of one session: its rules, what a person has allowed in it and in its project, and how to ask.

    Without `ask` (a script, a pipe), anything that no rule allows is refused. One question is asked at a time. Without
    `project`, an approval for the project holds for the session.
    """

    def __init__(
        self,
        *,
        rules: tuple[ApprovalRule, ...] = (),
        yes: bool = False,
        ask: Ask | None = None,
        project: ApprovalBook | None = None,
    ) -> None:
        self.rules = rules
        self.remembered: tuple[ApprovalRule, ...] = ()
        self.project = project
        self.yes = yes
        self._ask = ask
        self._asking = asyncio.Lock()

    async def approve(self, asked: Permission) -> Decision:
        """Returns the decision; a person who answers `session` is not asked for the same again."""
        if (decision := self._decide(asked)) is not None:
            return decision
        if self._ask is None:
            return Decision(
                allowed=False,
                reason="there is no one to ask, and no rule allows it "
                f"(--yes would, or a rule for {asked.tool})",
            )
        async with self._asking:
            # Whoever waited here may find that the answer was remembered meanwhile.
            if (decision := self._decide(asked)) is not None:
                return decision
            return self._take_reply(asked, await self._ask(asked))

    def remember(self, rule: ApprovalRule) -> None:
        """Allows what the rule says from now on, in this session."""
        self.remembered = (*self.remembered, rule)

    def forget(self, rule: ApprovalRule) -> bool:
        """Revokes an approval; returns True if there was one. Raises OSError if that cannot be stored."""
        found = rule in self.remembered
        self.remembered = tuple(one for one in self.remembered if one != rule)
        return (self.project is not None and self.project.remove(rule)) or found

    def _decide(self, asked: Permission) -> Decision | None:
        decision = decide(asked, (*self.rules, *self.remembered), yes=self.yes)
        if decision is None and self.project is not None:
            decision = decide(asked, self.project.rules())
        return decision

    def _take_reply(self, asked: Permission, reply: ApprovalReply) -> Decision:
        if reply is ApprovalReply.PROJECT and self.project is not None:
            with suppress(OSError):  # then it holds for this session
                self.project.add(asked.rule)
                return Decision(allowed=True, reason="the user allowed it in this project")
        if reply in (ApprovalReply.SESSION, ApprovalReply.PROJECT):
            self.remember(asked.rule)
            return Decision(allowed=True, reason="the user allowed it for this session")
        if reply is ApprovalReply.ONCE:
            return Decision(allowed=True, reason="the user allowed it")
        return Decision(allowed=False, reason="the user said no")
