"""The tools of one session: offers them to the model, and runs its calls.

There are five kinds: those handed in, those of MCP servers, the recall tools of the session, those of its engine, and
`compact_context`, by which the model asks for a compaction where `agent.compact_tool` lets it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import ToolCall
from penstock.errors import EngineFailure
from penstock.loop.events import ToolEnded, ToolLine, ToolStarted
from penstock.loop.tool_offer import LOAD_TOOLS, ToolUse, answer_load, make_offer
from penstock.loop.tools import Toolbox, ToolOutcome, function_schema
from penstock.loop.wire import tools_in
from penstock.measure.tokens import tokenizer_for
from penstock.planning.policy import Compact
from penstock.recall.tools import ENTITY, TOOL_NAMES, limit_answer
from penstock.writing.stubs import arguments_of, main_argument, tool_family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.context.live import Context
    from penstock.loop.approvals import Decision, Permission
    from penstock.loop.events import AgentEvent
    from penstock.loop.tools import Tool, ToolContext
    from penstock.providers.exchange import Called

__all__ = ["COMPACT_CONTEXT", "ToolCalls"]

COMPACT_CONTEXT = "compact_context"
_COMPACT_SCHEMA = {
    "type": "function",
    "function": {
        "name": COMPACT_CONTEXT,
        "description": (
            "Replace the older part of this conversation by a summary, after this step and if it is long enough. Call it "
            "when a piece of work is finished and its details are no longer needed; originals can still be found with "
            "history_search."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "focus": {"type": "string", "description": "a topic, file or task to keep in full detail"}
            },
            "additionalProperties": False,
        },
    },
}
_ALWAYS = ("terminal", "read_file", "patch")  # are offered in full, however little room there is
_RECALL = TOOL_NAMES - {ENTITY}  # a search finds what it would tell, where there is no room for both
_CUT = ToolOutcome(
    "Not done: the answer reached its limit of tokens before this call was whole. Make it again in smaller parts.",
    is_error=True,
    summary="cut off: the answer reached its limit of tokens",
)
_LEAST_PAGE, _MOST_PAGE = 4_000, 50_000  # characters of a page of read_file


class ToolCalls:
    """Offers the tools of a session, and runs its calls, one at a time."""

    def __init__(
        self,
        context: Context,
        toolbox: Toolbox,
        given: ToolContext,
        tell: Callable[[AgentEvent], None],
    ) -> None:
        self.toolbox = toolbox
        self._context = context
        self._given = given
        self._tell = tell
        self._use = ToolUse()
        self._focus: str | None = None  # of the compaction that the model asked for in this step
        self._ends_itself = False
        self._asked_seconds = 0.0  # how long a person was asked during the call

    def add(self, tools: Iterable[Tool]) -> None:
        """Offers these as well from now on. Raises ValueError if two have the same name."""
        self.toolbox = Toolbox.of((*self.toolbox.tools.values(), *tools))

    def note(self, wires: Sequence[Any]) -> None:
        """Notes the tools that logged messages call or load: they are offered in full from now on."""
        self._use = self._use.after(decode_all(dialect_named(self._context.session.row.dialect), wires))

    def offer(self) -> list[Any]:
        """Returns the tools of the next request, in its dialect: all in full, or the rarely used ones by name."""
        session = self._context.session
        own = self._engine_schemas()
        schemas = [
            *map(function_schema, self.toolbox.tools.values()),
            *session.get_tool_schemas(),
            *([_COMPACT_SCHEMA] if self._may_compact() else []),
            *own,
        ]
        offer = make_offer(
            schemas,
            self._use,
            window_tokens=self._context.engine.context_length,
            tokenizer=tokenizer_for(session.row.model),
            always=(*_ALWAYS, *_RECALL, COMPACT_CONTEXT, *(schema["function"]["name"] for schema in own)),
        )
        return tools_in(session.row.dialect, offer.schemas)

    def take_compaction(self) -> str | None:
        """Returns the focus of the compaction that the model has asked for, which may be empty; None if it has not asked."""
        focus, self._focus = self._focus, None
        return focus

    def _may_compact(self) -> bool:
        settings = self._context.session.settings
        return settings.agent.compact_tool and settings.compression.enabled

    def begin_turn(self) -> None:
        """Clears the interruption and the wish for a compaction of the turn before."""
        self._focus = None
        if self._given.interrupt is not None:
            self._given.interrupt.clear()

    def interrupt(self) -> bool:
        """Asks the running tool to stop; returns True if it does so by itself, with an outcome that says how far it got."""
        if self._given.interrupt is None:
            return False
        self._given.interrupt.set()
        return self._ends_itself

    async def run(self, call: Called, *, cut: bool = False) -> ToolOutcome:
        """Runs the call, and reports its start and end. One that was `cut` off is not run."""
        about = main_argument(
            tool_family(call.name), arguments_of(ToolCall(call.id, call.name, call.arguments))
        )
        self._tell(ToolStarted(call.id, call.name, about))
        started, self._asked_seconds = time.monotonic(), 0.0
        try:
            outcome = _CUT if cut else await self._run(call)
        finally:
            self._ends_itself = False
        seconds = time.monotonic() - started - self._asked_seconds
        self._tell(ToolEnded(call.id, call.name, outcome.summary, outcome.is_error, max(0.0, seconds)))
        return outcome

    async def _run(self, call: Called) -> ToolOutcome:
        if call.name in TOOL_NAMES:
            text = await asyncio.to_thread(self.recall, call.name, call.arguments)
            summary = "searched the history" if "search" in call.name else "read the history"
            return ToolOutcome(text, summary=summary)
        if call.name == COMPACT_CONTEXT and self._may_compact():
            return self._note_compaction(call)
        if call.name == LOAD_TOOLS:
            text, is_error = answer_load(call.arguments, self.toolbox.tools)
            return ToolOutcome(text, is_error=is_error, summary=text.partition("\n")[0])
        if any(call.name == schema["function"]["name"] for schema in self._engine_schemas()):
            return await self._run_engine_tool(call)
        return await self.toolbox.run(call.name, call.arguments, self._context_for(call))

    def _note_compaction(self, call: Called) -> ToolOutcome:
        """Notes the wish until this step is over: once its results are logged, the summary can read from the cache."""
        if self._focus is not None:
            return ToolOutcome("Already asked for in this step.", summary="asked for a compaction again")
        decision = self._context.judge_wish_of_model()
        if not isinstance(decision, Compact):
            return ToolOutcome(
                f"Nothing new to compact: {decision.reason}.", summary="nothing new to compact"
            )
        given = arguments_of(ToolCall(call.id, call.name, call.arguments)).get("focus")
        self._focus = given.strip() if isinstance(given, str) else ""
        about = f" It keeps most of its room for: {self._focus}." if self._focus else ""
        text = f"Before your next step, earlier turns are replaced by a summary if that saves enough.{about}"
        return ToolOutcome(text, summary="asked for a compaction")

    async def _run_engine_tool(self, call: Called) -> ToolOutcome:
        try:
            text = await asyncio.to_thread(self._context.call_engine_tool, call.name, call.arguments)
        except EngineFailure as error:
            return ToolOutcome(str(error), is_error=True, summary=str(error))
        return ToolOutcome(text, summary=f"answered by the engine {self._context.engine.name}")

    def _engine_schemas(self) -> list[dict[str, Any]]:
        """Returns the tools of the engine; ours win if two have the same name."""
        return self._context.engine_tools({*self.toolbox.tools, *TOOL_NAMES, LOAD_TOOLS, COMPACT_CONTEXT})

    def recall(self, name: str, arguments: str) -> str:
        """Returns the answer of a recall tool, in a share of the window."""
        tokens = limit_answer(self._context.engine.context_length)
        return self._context.session.handle_tool_call(name, arguments, tokens=tokens)

    def _context_for(self, call: Called) -> ToolContext:
        """Returns the tool context for this call: it reports lines of output, and times how long a person is asked."""
        tool = self.toolbox.tools.get(call.name)

        async def approve(asked: Permission) -> Decision:
            started, self._ends_itself = time.monotonic(), False
            try:
                return await self._given.approve(asked)
            finally:
                self._asked_seconds += time.monotonic() - started
                self._ends_itself = bool(getattr(tool, "ends_itself", False))

        return msgspec.structs.replace(
            self._given,
            approve=approve,
            on_line=lambda line: self._tell(ToolLine(call.id, line)),
            page_chars=self.page_chars,
        )

    @property
    def page_chars(self) -> int:
        """The most characters of a page of `read_file`, by the window."""
        return max(_LEAST_PAGE, min(_MOST_PAGE, self._context.engine.context_length // 2))
