"""A working folder, tools in it, and a person who answers."""

from __future__ import annotations

import asyncio
import os

import msgspec

from penstock.agent.assembly import own_tools
from penstock.loop.approvals import ApprovalReply, Approvals, Decision
from penstock.loop.memory import MemoryFiles
from penstock.loop.tools import Toolbox, ToolContext
from penstock.loop.workspace import Workspace


class Person:
    """Answers every question in the same way, and remembers what was asked."""

    def __init__(self, reply: ApprovalReply = ApprovalReply.ONCE) -> None:
        self.reply = reply
        self.asked = []

    async def __call__(self, permission):
        self.asked.append(permission)
        return self.reply


class Stage:
    """Runs calls as a loop would."""

    def __init__(self, folder, **changes) -> None:
        self.root = folder / "work"
        self.root.mkdir()
        self.person = Person()
        self.approvals = Approvals(ask=self.person)
        self.context = ToolContext(
            workspace=Workspace.at(self.root),
            approve=self.approvals.approve,
            environment=dict(os.environ),
            memory=MemoryFiles(folder / "memory"),
        )
        self.context = msgspec.structs.replace(self.context, **changes)
        self.tools = Toolbox.of(own_tools())

    def run(self, name, args=None, /, **given):
        return asyncio.run(self.arun(name, args, **given))

    async def arun(self, name, args=None, /, **given):
        return await self.tools.run(name, given if args is None else args, self.context)

    def write(self, name, content):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


async def refuse(_permission):
    return Decision(allowed=False, reason="the user said no")
