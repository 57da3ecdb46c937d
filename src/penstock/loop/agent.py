"""The agent's loop: ask, run the tools, log, keep inside the window, and again, until the model has nothing to call.

    agent = make_agent(…)                  # penstock.agent.assembly
    ended = await agent.turn("Find out why the tests fail.")

Everything that happens is told to `tell` as it happens. Everything said is in the log before the next step begins, so
that a kill at any point leaves a conversation that can be resumed.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.agent.tools.toolbox import Toolbox
from penstock.context.model_limits import reserve_output
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Role, ToolCall, ToolResult
from penstock.errors import PenstockError
from penstock.loop.asking import Asking
from penstock.loop.calls import Calls
from penstock.loop.events import Noticed, TurnEnded
from penstock.loop.mcp import McpServers  # noqa: TC001 - a struct's field types are read at run time
from penstock.loop.status import agent_fill, agent_status
from penstock.loop.steering import compact, switch_model
from penstock.loop.system_prompt import FrozenPrompt  # noqa: TC001 - a struct's field types are read at run time
from penstock.loop.tool_offer import ToolUse
from penstock.loop.tools import ToolContext  # noqa: TC001 - as above
from penstock.loop.wire import is_whole, results_in
from penstock.providers.cache_marks import CachePlan  # noqa: TC001 - as above
from penstock.providers.exchange import Finish

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.accounts.status import Status
    from penstock.accounts.window import Fill
    from penstock.context.compactions import ListCompacted
    from penstock.context.live import Context
    from penstock.conversation.message import Message
    from penstock.engine.compressed import Compressed
    from penstock.loop.events import AgentEvent
    from penstock.providers.exchange import Answer, StreamingModel
    from penstock.sessions.session import Session

__all__ = ["Agent", "Equipment", "TurnLimits"]

_INTERRUPTED = "[interrupted by the user]"
_CUT_OFF = "[cut off: the answer did not come to its end]"
_NOT_RUN = (
    "The turn was interrupted before this call was made or finished. What it did until then is not known."
)
_GRACE_SECONDS = 3.0  # for a command that was interrupted to end, and to say how far it came


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests a turn may take, and how many tokens an answer may have (None: the provider's own limit)."""

    steps: int = 200
    max_output_tokens: int | None = None


class Equipment(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent works with beside its model: tools and what they are given, its prompt, and how prompts are cached."""

    toolbox: Toolbox
    tools: ToolContext
    prompt: FrozenPrompt
    caching: CachePlan
    servers: McpServers | None = None
    limits: TurnLimits = TurnLimits()


class Agent:
    """A model with tools in one session. Not safe to share between tasks, but for `interrupt`."""

    def __init__(
        self,
        context: Context,
        model: StreamingModel,
        equipment: Equipment,
        tell: Callable[[AgentEvent], None],
    ) -> None:
        self.context = context
        self.model = model
        self.toolbox = equipment.toolbox
        self.prompt = equipment.prompt
        self.caching = equipment.caching
        self.limits = equipment.limits
        self._servers = equipment.servers
        self._connected = equipment.servers is None
        self.calls = Calls(self, equipment.tools, tell)
        self._tell = tell
        self._running: asyncio.Task[Any] | None = None
        self._stopped = False
        reserve_output(self)
        self.asking = Asking(self, tell)
        self.used_tools = ToolUse().after(self._decoded(context.logged()))
        self.asking.weighed_tools()

    @property
    def session(self) -> Session:
        """The conversation."""
        return self.context.session

    async def turn(self, text: str) -> TurnEnded:
        """Answer a person: all the requests and tool calls that it takes. Never raises for what a provider does."""
        started, self._stopped = time.monotonic(), False
        self.calls.begin()
        dialect = dialect_named(self.model.dialect)
        if self.context.catch_up():
            self._tell(
                Noticed("warn", "this conversation went on elsewhere meanwhile; all of it is known now")
            )
            self.close_open_calls()
        self.log([dialect.text_message(Role.USER, text)])
        steps, reason, what = (
            0,
            "steps",
            f"the limit of {self.limits.steps:,} requests in one turn was reached",
        )
        try:
            await self.interruptible(self.connect())
            while steps < self.limits.steps:
                steps += 1
                answer = await self.asking.answered(steps)
                if not answer.calls:
                    reason, what = "done", ""
                    break
                await self._run(answer)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            reason, what = "interrupted", ""
            self.asking.keep_said(_INTERRUPTED, even_nothing=True)
        except PenstockError as error:
            reason, what = "failed", str(error)
            self.asking.keep_said(_CUT_OFF, even_nothing=False)
        ended = TurnEnded(reason, steps, time.monotonic() - started, what)
        self._tell(ended)
        return ended

    def close_open_calls(self) -> int:
        """Answer the calls at the end of the log that have no result, as after a kill; how many those were."""
        open_calls: dict[str, None] = {}
        for message in self._decoded(self.context.view):
            for part in message.parts:
                if isinstance(part, ToolCall):
                    open_calls[part.call_id] = None
                elif isinstance(part, ToolResult):
                    open_calls.pop(part.call_id, None)
        results = [ToolResult(call_id, _NOT_RUN, is_error=True) for call_id in open_calls]
        self.log(results_in(self.model.dialect, results))
        return len(results)

    def interrupt(self) -> None:
        """End the request or the tool that is running; the log stays consistent."""
        again, self._stopped = self._stopped, True
        running, ends_itself = self._running, self.calls.interrupt()
        if running is None:
            return
        if ends_itself and not again:  # with an outcome; who does not keep to it, or is in a hurry, cancels
            running.get_loop().call_later(_GRACE_SECONDS, running.cancel)
        else:
            running.cancel()

    def status(self) -> Status:
        """Where it stands: model, window, cost, cache."""
        return agent_status(self)

    def offered(self) -> list[Any]:
        """The tools of the next request, in the model's dialect."""
        return self.asking.offered()

    def fill(self) -> Fill:
        """Returns what fills the window, by kind of content."""
        return agent_fill(self)

    async def compact(
        self, focus: str | None = None, keep_exchanges: int | None = None
    ) -> Compressed | ListCompacted | None:
        """Compact on request: about a topic, or all but the last so many exchanges. None where there is nothing to do."""
        return await compact(self, focus, keep_exchanges)

    async def switch_model(
        self, model: StreamingModel, provider: str = "", listed_window: int | None = None
    ) -> None:
        """Go on with another model; a smaller window has the conversation compacted first. Raises SettingsError."""
        await switch_model(self, model, provider, listed_window)

    async def connect(self) -> None:
        """Start the MCP servers and take their tools; who did not answer is told. A turn does so by itself, once."""
        if self._connected or self._servers is None:
            return
        found = await self._servers.tools()
        self._connected = True
        self.toolbox = Toolbox.of((*self.toolbox.tools.values(), *found.tools))
        for why in dict.fromkeys(found.failures.values()):  # each names its server
            self._tell(Noticed("warn", f"{self.session.redact(why)}; its tools are not offered"))

    async def aclose(self) -> None:
        """End what is being prepared, and the MCP servers."""
        await self.context.aclose()
        if self._servers is not None:
            await self._servers.aclose()

    async def _run(self, answer: Answer) -> None:
        """Run the calls in their order and log the results together; interrupted, the rest is answered as not run."""
        results: list[ToolResult] = []
        calls = answer.calls
        try:
            for call in calls:
                cut = answer.finish is Finish.LENGTH and call is calls[-1] and not is_whole(call.arguments)
                outcome = await self.interruptible(self.calls.outcome_of(call, cut=cut))
                results.append(ToolResult(call.id, outcome.text, is_error=outcome.is_error))
                if self._stopped:
                    raise asyncio.CancelledError
        finally:
            open_calls = calls[len(results) :]
            results += [ToolResult(call.id, _NOT_RUN, is_error=True) for call in open_calls]
            self.log(results_in(self.model.dialect, results), keep_results=True)

    # The log, and interruptions.

    def log(self, wires: Sequence[Any], *, keep_results: bool = False) -> None:
        """Log messages; tools that they call or load are known from then on."""
        self.context.append(wires, keep_results=keep_results)
        self.used_tools = self.used_tools.after(self._decoded(wires))

    def _decoded(self, wires: Sequence[Any]) -> Sequence[Message]:
        return decode_all(dialect_named(self.model.dialect), wires)

    async def interruptible(self, work: Any) -> Any:
        """The work, which `interrupt` cancels."""
        if self._stopped:
            work.close()
            raise asyncio.CancelledError
        self._running = asyncio.ensure_future(work)
        try:
            return await self._running
        finally:
            self._running = None
