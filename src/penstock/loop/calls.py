"""One call of a tool, from its arguments to its outcome: ours, those of MCP servers, the recall tools, those of an engine."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.message import ToolCall
from penstock.errors import EngineFailure
from penstock.loop.events import ToolEnded, ToolLine, ToolStarted
from penstock.loop.tool_offer import LOAD_TOOLS, loaded_text
from penstock.loop.tools import ToolOutcome
from penstock.lossless.engine import LosslessEngine
from penstock.recall.tools import TOOL_NAMES
from penstock.writing.stubs import arguments_of, main_argument, tool_family

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.context.list_engine import ListEngine
    from penstock.loop.agent import Agent
    from penstock.loop.approvals import Decision, Permission
    from penstock.loop.events import AgentEvent
    from penstock.loop.tools import ToolContext
    from penstock.providers.exchange import Called

__all__ = ["Calls"]

_CUT = ToolOutcome(
    "Not done: the answer reached its limit of tokens before this call was whole. Make it again in smaller parts.",
    is_error=True,
    summary="cut off: the answer reached its limit of tokens",
)
_LEAST_PAGE, _MOST_PAGE = 4_000, 50_000  # characters of a page of read_file


class Calls:
    """Makes the calls of one agent, one at a time."""

    def __init__(self, agent: Agent, tools: ToolContext, tell: Callable[[AgentEvent], None]) -> None:
        self._agent = agent
        self._tools = tools
        self._tell = tell
        self._ends_itself = False
        self._asked_seconds = 0.0  # how long a person was asked during the call

    def begin(self) -> None:
        """A turn begins: what interrupted the one before is over."""
        if self._tools.interrupt is not None:
            self._tools.interrupt.clear()

    def interrupt(self) -> bool:
        """Have the running tool end; whether it does so by itself, with an outcome that tells how far it came."""
        if self._tools.interrupt is None:
            return False
        self._tools.interrupt.set()
        return self._ends_itself

    async def outcome_of(self, call: Called, *, cut: bool = False) -> ToolOutcome:
        """What the call gave; beginning and end of it are told. One that was `cut` off is not made."""
        about = main_argument(
            tool_family(call.name), arguments_of(ToolCall(call.id, call.name, call.arguments))
        )
        self._tell(ToolStarted(call.id, call.name, about))
        started, self._asked_seconds = time.monotonic(), 0.0
        try:
            outcome = _CUT if cut else await self._outcome(call, self._context(call))
        finally:
            self._ends_itself = False
        seconds = time.monotonic() - started - self._asked_seconds
        self._tell(ToolEnded(call.id, call.name, outcome.summary, outcome.is_error, max(0.0, seconds)))
        return outcome

    def _context(self, call: Called) -> ToolContext:
        window = self._agent.context.engine.context_length
        tool = self._agent.toolbox.tools.get(call.name)

        async def approve(asked: Permission) -> Decision:
            started, self._ends_itself = time.monotonic(), False
            try:
                return await self._tools.approve(asked)
            finally:
                self._asked_seconds += time.monotonic() - started
                self._ends_itself = bool(getattr(tool, "ends_itself", False))

        return msgspec.structs.replace(
            self._tools,
            approve=approve,
            on_line=lambda line: self._tell(ToolLine(call.id, line)),
            page_chars=max(_LEAST_PAGE, min(_MOST_PAGE, window // 2)),
        )

    async def _outcome(self, call: Called, context: ToolContext) -> ToolOutcome:
        agent = self._agent
        if call.name in TOOL_NAMES:
            text = await asyncio.to_thread(self.recall, call.name, call.arguments)
            return ToolOutcome(
                text, summary="searched the history" if "search" in call.name else "read the history"
            )
        if call.name == LOAD_TOOLS:
            text, failed = loaded_text(call.arguments, agent.toolbox.tools, agent.toolbox.tools)
            return ToolOutcome(text, is_error=failed, summary=text.partition("\n")[0])
        listed = agent.context.listed
        if listed is not None and any(
            call.name == schema["function"]["name"] for schema in self.engine_schemas()
        ):
            return await self._engine_outcome(listed, call)
        return await agent.toolbox.run(call.name, call.arguments, context)

    async def _engine_outcome(self, listed: ListEngine, call: Called) -> ToolOutcome:
        context = self._agent.context
        try:
            text = await asyncio.to_thread(listed.call, call.name, call.arguments, context.view)
        except EngineFailure as error:
            return ToolOutcome(str(error), is_error=True, summary=str(error))
        return ToolOutcome(text, summary=f"answered by the engine {context.engine.name}")

    def engine_schemas(self) -> list[dict[str, Any]]:
        """The tools of an engine for lists; ours win where two have one name. The other engines' are the recall tools."""
        agent = self._agent
        listed = agent.context.listed
        return [] if listed is None else listed.tool_schemas({*agent.toolbox.tools, *TOOL_NAMES, LOAD_TOOLS})

    def recall(self, name: str, arguments: str) -> str:
        """The answer of a recall tool: of the engine's own, where it has nodes, else of the session."""
        engine, session = self._agent.context.engine, self._agent.session
        if isinstance(engine, LosslessEngine):
            return engine.handle_tool_call(name, arguments, messages=self._agent.context.view)
        most = max(400, min(4_000, engine.context_length // 8))
        return session.handle_tool_call(name, arguments, tokens=most)
