"""The agent's loop: ask, run the tools, log, keep inside the window, and again, until the model has nothing to call.

    agent = make_agent(…)                  # penstock.agent.assembly
    ended = await agent.turn("Find out why the tests fail.")

Everything that happens is told to `tell` as it happens. Everything said is in the log before the next step begins, so
that a kill at any point leaves a conversation that can be resumed.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.agent.calls import Calls
from penstock.agent.context import CompactionWish
from penstock.agent.events import (
    Asked,
    Noticed,
    Recovering,
    Said,
    Thought,
    TurnEnded,
    Used,
)
from penstock.agent.mcp_servers import McpServers  # noqa: TC001 - a struct's field types are read at run time
from penstock.agent.model_limits import WindowQuestion, fit_window
from penstock.agent.recovery import GiveUp, LowerCap, next_step
from penstock.agent.snapshot import FrozenPrompt  # noqa: TC001 - a struct's field types are read at run time
from penstock.agent.status import filling_of, status_of
from penstock.agent.steering import compact, switch_model
from penstock.agent.tool_offer import ToolUse, make_offer
from penstock.agent.tools.base import ToolContext, function_schema
from penstock.agent.tools.toolbox import Toolbox
from penstock.agent.wire import results_in, tools_in
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Role, ToolCall, ToolResult
from penstock.errors import PenstockError, ProviderError
from penstock.measure.tokens import tokenizer_for
from penstock.providers.anthropic import DEFAULT_OUTPUT_TOKENS
from penstock.providers.cache_marks import mark_cache
from penstock.providers.cache_plan import CachePlan  # noqa: TC001 - as above
from penstock.providers.exchange import Answered, Ask, ReasoningDelta, TextDelta
from penstock.recall.tools import TOOL_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.agent.context import Context, ListCompacted
    from penstock.agent.events import AgentEvent
    from penstock.agent.status import Status
    from penstock.conversation.message import Message
    from penstock.engine.compressed import Compressed
    from penstock.engine.session import Session
    from penstock.providers.exchange import Answer, Called, StreamingModel

__all__ = ["Agent", "Equipment", "Limits"]

_ALWAYS = ("terminal", "read_file", "patch")  # are offered in full, however little room there is
_INTERRUPTED = "[interrupted by the user]"
_NOT_RUN = (
    "The turn was interrupted before this call was made or finished. What it did until then is not known."
)
_GRACE_SECONDS = 3.0  # for a command that was interrupted to end, and to say how far it came
_TRUNCATED = 0.6  # of what we expect: a provider that reports less has cut the prompt without saying so
_WORTH_A_LOOK = 4_000  # tokens: below, a small error of ours looks like a cut


class Limits(msgspec.Struct, frozen=True, kw_only=True):
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
    limits: Limits = Limits()


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
        self._window = WindowQuestion()
        self._used = ToolUse().after(self._decoded(context.logged()))
        self._weighed_tools()

    @property
    def session(self) -> Session:
        """The conversation."""
        return self.context.session

    async def turn(self, text: str) -> TurnEnded:
        """Answer a person: all the requests and tool calls that it takes. Never raises for what a provider does."""
        started, self._stopped = time.monotonic(), False
        self.calls.begin()
        dialect = dialect_named(self.model.dialect)
        self._log([dialect.text_message(Role.USER, text)])
        steps, reason, what = (
            0,
            "steps",
            f"the limit of {self.limits.steps:,} requests in one turn was reached",
        )
        try:
            await self._interruptible(self.connect())
            while steps < self.limits.steps:
                steps += 1
                answer = await self._answered(steps)
                if not answer.calls:
                    reason, what = "done", ""
                    break
                await self._run(answer.calls)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            reason, what = "interrupted", ""
        except PenstockError as error:
            reason, what = "failed", str(error)
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
        self._log(results_in(self.model.dialect, results))
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
        return status_of(self)

    def filling(self) -> list[tuple[str, int]]:
        """What fills the window: names and tokens."""
        return filling_of(self)

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
        self._connected = True
        found = await self._servers.tools()
        self.toolbox = Toolbox.of((*self.toolbox.tools.values(), *found.tools))
        for why in dict.fromkeys(found.failures.values()):  # each names its server
            self._tell(Noticed("warn", f"{self.session.redact(why)}; its tools are not offered"))

    async def aclose(self) -> None:
        """End what is being prepared, and the MCP servers."""
        await self.context.aclose()
        if self._servers is not None:
            await self._servers.aclose()

    # Asking.

    async def _answered(self, step: int) -> Answer:
        """One answer, logged. What a provider refuses as too large is made to fit; the rest is raised."""
        await self._interruptible(self._window.ask(self))
        tools = self._weighed_tools()
        await self._interruptible(self.context.fit())
        cap, attempt = self._output_cap(), 0
        while True:
            sent = self.context.tokens()
            self._tell(Asked(step, sent, self.context.engine.context_length))
            try:
                answer = await self._streamed(tools, cap)
            except ProviderError as error:
                attempt += 1
                cap = await self._recovered(error, sent, cap, attempt)
                continue
            self._take(answer, sent)
            return answer

    async def _streamed(self, tools: Sequence[Any], cap: int | None) -> Answer:
        """The answer, told as it comes. Interrupted, what there is of it is logged, and the cancellation goes on."""
        said: list[str] = []

        async def listen() -> Answer:
            async with aclosing(self.model.stream(self._request(tools, cap))) as events:  # type: ignore[type-var]
                async for event in events:
                    match event:
                        case TextDelta(text=text):
                            said.append(text)
                            self._tell(Said(text))
                        case ReasoningDelta(text=text):
                            self._tell(Thought(text))
                        case Answered(answer=answer):
                            return answer
            raise PenstockError("the model's answer ended before it was whole; ask again")

        try:
            answer: Answer = await self._interruptible(listen())
        except asyncio.CancelledError:
            if self._stopped:
                text = f"{''.join(said)}\n\n{_INTERRUPTED}".strip()
                self._log([dialect_named(self.model.dialect).text_message(Role.ASSISTANT, text)])
            raise
        return answer

    def _output_cap(self) -> int | None:
        """The most tokens to ask for: as the host says, and no more than the provider said that the model gives."""
        asked, known = self.limits.max_output_tokens, self.session.output_cap
        if known is None:
            return asked
        if asked is None:  # then the provider's own limit holds, unless even that was too much
            return known if known < DEFAULT_OUTPUT_TOKENS else None
        return min(asked, known)

    def _request(self, tools: Sequence[Any], cap: int | None) -> Ask:
        dialect = self.model.dialect
        body = {"messages": self.context.view, "tools": tools, "system": self.prompt.current.text}
        plan = self.caching
        if plan.on and plan.dialect == dialect:
            body = dict(mark_cache(body, dialect=dialect, ttl=plan.ttl, prefix_end=self.context.prefix_end))
        return Ask(
            messages=body["messages"], system=body["system"], tools=body["tools"], max_output_tokens=cap
        )

    async def _recovered(self, error: ProviderError, sent: int, cap: int | None, attempt: int) -> int | None:
        """The cap for the next try, after what was too large was made smaller. Raises the error where nothing helps."""
        session = self.session
        most = session.settings.compression.max_attempts
        step = next_step(
            error.failure, sent_tokens=sent, max_output_tokens=cap, attempt=attempt, max_attempts=most
        )
        if isinstance(step, GiveUp):
            if attempt > most:
                raise ProviderError(step.why, failure=error.failure, requests=error.requests) from error
            raise error
        kind = str(error.failure.kind)
        if isinstance(step, LowerCap):
            self._tell(Recovering(kind, f"asking for at most {step.max_output_tokens:,} tokens of answer"))
            session.learn_output_cap(error.failure)
            return step.max_output_tokens
        if session.learn_window(error.failure):
            fit_window(self, session.window.tokens)
        target = max(1, step.target_tokens - self.context.outside_tokens)
        self._tell(Recovering(kind, f"compacting to {step.target_tokens:,} tokens, then asking again"))
        reason = f"the provider refused the request as too large (attempt {attempt} of {most})"
        wish = CompactionWish(target_tokens=target)
        done = await self._interruptible(self.context.compact(reason, sent, wish))
        if done is None and self.context.tokens() >= sent:
            raise error  # nothing more can give way: the same request would be refused again
        return cap

    def _take(self, answer: Answer, expected: int) -> None:
        """Log the answer, book what it used, and look at what the provider reported."""
        context = self.context
        counted = context.counted
        reported = answer.usage.prompt_tokens
        row = context.session.record_usage(answer.usage, counted)
        if reported:
            if context.bookkeeper is not None:
                context.bookkeeper.answered(answer.usage)
            context.used(answer.usage)
            if expected > _WORTH_A_LOOK and reported < _TRUNCATED * expected:
                self._tell(
                    Noticed(
                        "warn",
                        f"the provider read {reported:,} tokens where about {expected:,} were sent: it may cut long prompts "
                        "without saying so; set model.context_length to its real window",
                    )
                )
        window = context.engine.context_length
        self._tell(Used(answer.usage, row.cost, reported or expected, window))
        self._log(answer.wires)

    # Tools.

    def _weighed_tools(self) -> list[Any]:
        """The tools of the next request; what stands beside the messages is weighed anew."""
        tools = self.offered()
        system = self.prompt.current.text
        self.context.outside_tokens = self.session.weigh_outside(tools=tools, system=system)
        return tools

    def offered(self) -> list[Any]:
        """The tools of the next request, in the model's dialect: all in full, or the rarely used ones by name."""
        recall = self.context.session.get_tool_schemas()
        own = self.calls.engine_schemas()
        schemas = [*map(function_schema, self.toolbox.tools.values()), *recall, *own]
        offer = make_offer(
            schemas,
            self._used,
            window_tokens=self.context.engine.context_length,
            tokenizer=tokenizer_for(self.model.name),
            always=(*_ALWAYS, *TOOL_NAMES, *(schema["function"]["name"] for schema in own)),
        )
        return tools_in(self.model.dialect, offer.schemas)

    async def _run(self, calls: Sequence[Called]) -> None:
        """Run the calls in their order and log the results together; interrupted, the rest is answered as not run."""
        results: list[ToolResult] = []
        try:
            for call in calls:
                outcome = await self._interruptible(self.calls.outcome_of(call))
                results.append(ToolResult(call.id, outcome.text, is_error=outcome.is_error))
                if self._stopped:
                    raise asyncio.CancelledError
        finally:
            open_calls = calls[len(results) :]
            results += [ToolResult(call.id, _NOT_RUN, is_error=True) for call in open_calls]
            self._log(results_in(self.model.dialect, results), keep_results=True)

    # The log, and interruptions.

    def _log(self, wires: Sequence[Any], *, keep_results: bool = False) -> None:
        self.context.append(wires, keep_results=keep_results)
        self._used = self._used.after(self._decoded(wires))

    def _decoded(self, wires: Sequence[Any]) -> Sequence[Message]:
        return decode_all(dialect_named(self.model.dialect), wires)

    async def _interruptible(self, work: Any) -> Any:
        """The work, which `interrupt` cancels."""
        if self._stopped:
            work.close()
            raise asyncio.CancelledError
        self._running = asyncio.ensure_future(work)
        try:
            return await self._running
        finally:
            self._running = None
