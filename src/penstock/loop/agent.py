"""The agent's loop: ask, run the tools, log, keep inside the window, and repeat until the model calls no more tools.

    agent = Agent(context, model, equipment, tell)      # penstock.loop.assembly makes one
    ended = await agent.turn("Find out why the tests fail.")

The agent calls `tell` with every event as it happens. Everything said is in the log before the next step begins, so that a
kill at any point leaves a conversation that can be resumed.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.accounts.spending import sum_requests
from penstock.accounts.status import Status
from penstock.accounts.window import Fill, measure_fill
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Role, ToolCall, ToolResult
from penstock.engine.threads import in_thread
from penstock.errors import PenstockError, ProviderError
from penstock.loop.approvals import Approvals  # noqa: TC001 - a struct's field types are read at run time
from penstock.loop.asking import Asking
from penstock.loop.calls import ToolCalls
from penstock.loop.events import Noticed, TurnEnded
from penstock.loop.mcp import McpServers  # noqa: TC001 - as above
from penstock.loop.system_prompt import FrozenPrompt  # noqa: TC001 - as above
from penstock.loop.tools import Toolbox, ToolContext  # noqa: TC001 - as above
from penstock.loop.wire import is_whole, mend_calls, results_in, write_user_message
from penstock.measure.tokens import tokenizer_for
from penstock.providers.exchange import Finish

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from penstock.context.compactions import PreparedCompaction
    from penstock.context.live import Context
    from penstock.conversation.dialects import Dialect
    from penstock.loop.events import AgentEvent
    from penstock.providers.exchange import Answer, StreamingModel
    from penstock.sessions.session import Session
    from penstock.stores.values import Delivery, SessionRow, Standing
    from penstock.transfer.convert import Picture

__all__ = ["Agent", "Equipment", "TurnLimits"]

_INTERRUPTED = "[interrupted by the user]"
_CUT_OFF = "[cut off: the answer did not come to its end]"
_NOT_RUN = (
    "The turn was interrupted before this call was made or finished. What it did until then is not known."
)
_GRACE_SECONDS = 3.0  # for an interrupted command to end and to say how far it got


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum number of requests in a turn, and of tokens in an answer (None: the provider's own limit)."""

    steps: int = 200
    max_output_tokens: int | None = None


class Equipment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an agent works with, apart from its model: tools and their context, its prompt, its servers and limits.

    `provider` is the name of the model's provider, if it has one. Tools ask `approvals` before they act.
    """

    toolbox: Toolbox
    tools: ToolContext
    approvals: Approvals
    prompt: FrozenPrompt
    provider: str = ""
    servers: McpServers | None = None
    limits: TurnLimits = TurnLimits()


def _hear_nothing() -> None:
    """Does nothing, for hosts whose users wait for the answer."""


class Agent:
    """A model with tools in one session. Not safe to share between tasks, except for `interrupt`."""

    def __init__(
        self,
        context: Context,
        model: StreamingModel,
        equipment: Equipment,
        tell: Callable[[AgentEvent], None],
    ) -> None:
        self.context = context
        self.prompt = equipment.prompt
        self.approvals = equipment.approvals
        self.limits = equipment.limits
        self.hear_more: Callable[[], None] = _hear_nothing
        self._servers = equipment.servers
        self._connected = equipment.servers is None
        self._tell = tell
        self._running: asyncio.Task[Any] | None = None
        self._stopped = False
        if self.limits.max_output_tokens is not None:
            context.reserve_output(self.limits.max_output_tokens)
        self.calls = ToolCalls(context, equipment.toolbox, equipment.tools, tell)
        self.calls.note(context.read_log())
        self.asking = Asking(
            context,
            model,
            equipment.prompt,
            provider=equipment.provider,
            offer=self.calls.offer,
            tell=tell,
        )

    @property
    def session(self) -> Session:
        """The conversation."""
        return self.context.session

    async def turn(self, text: str, pictures: Sequence[Picture] = ()) -> TurnEnded:
        """Answers a person with as many requests and tool calls as it takes. Does not raise a provider's errors."""
        self._catch_up()
        self.hear(text, pictures)
        return await self.answer()

    def hear(
        self,
        text: str,
        pictures: Sequence[Picture] = (),
        *,
        delivery: Delivery | None = None,
        queued_upto: int | None = None,
    ) -> None:
        """Logs a person's message for `answer` to reply to; the other arguments are those of `Store.deliver`."""
        wire = write_user_message(self._dialect.name, text, pictures)
        prepared = self.session.workings.prepare([wire])
        self.context.append_prepared(prepared, delivery=delivery, queued_upto=queued_upto)

    async def answer(self) -> TurnEnded:
        """Answers the last message, as `turn` does.

        Calls the host's `hear_more` between two requests, which may log messages that have arrived meanwhile.
        """
        started, self._stopped = time.monotonic(), False
        self.context.begin_turn()
        self.calls.begin_turn()
        steps, most, may_pass = 0, self.limits.steps, False
        reason, what = "steps", f"the limit of {most:,} requests in one turn was reached"
        try:
            await self._interruptible(self.connect())
            while steps < most:
                steps += 1
                answer = await self._interruptible(self.asking.ask(steps, self.limits.max_output_tokens))
                # In a thread, so that other conversations of the same host do not wait for the disk.
                await in_thread(self.log, mend_calls(self._dialect.name, answer.wires))
                if not answer.calls:
                    self.asking.tell_ending(answer)
                    reason, what = "done", ""
                    break
                await self._run(answer)
                if (focus := self.calls.take_compaction()) is not None:
                    await self._interruptible(self.context.compact_for_model(focus))
                self.hear_more()
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            reason, what = "interrupted", ""
            self._log_unfinished(_INTERRUPTED, even_nothing=True)
        except PenstockError as error:
            reason, what = "failed", str(error)
            may_pass = isinstance(error, ProviderError) and error.failure.kind.transient
            self._log_unfinished(_CUT_OFF, even_nothing=False)
        ended = TurnEnded(reason, steps, time.monotonic() - started, what, may_pass)
        self._tell(ended)
        return ended

    async def _run(self, answer: Answer) -> None:
        """Runs the calls in order and logs all results together. After an interruption, the other calls count as not run."""
        results: list[ToolResult] = []
        calls = answer.calls
        try:
            for call in calls:
                cut = answer.finish is Finish.LENGTH and call is calls[-1] and not is_whole(call.arguments)
                outcome = await self._interruptible(self.calls.run(call, cut=cut))
                results.append(ToolResult(call.id, outcome.text, is_error=outcome.is_error))
                if self._stopped:
                    raise asyncio.CancelledError
        finally:
            open_calls = calls[len(results) :]
            results += [ToolResult(call.id, _NOT_RUN, is_error=True) for call in open_calls]
            await in_thread(self.log, results_in(self._dialect.name, results), keep_results=True)

    # For hosts, between turns.

    async def compact(
        self, focus: str | None = None, keep_exchanges: int | None = None
    ) -> PreparedCompaction | None:
        """Compacts on request: with a topic in focus, or everything but the last exchanges. None if there is nothing to do."""
        return await self.context.compact_by_hand(focus, keep_exchanges)

    async def switch_model(
        self, model: StreamingModel, provider: str = "", listed_window: int | None = None
    ) -> None:
        """Switches to another model; compacts the conversation first if its window is smaller. Raises SettingsError."""
        await self.asking.switch_model(model, provider, listed_window)

    def status(self) -> Status:
        """Returns the session's model, window, cost and cache hits, over all its requests so far."""
        context, session = self.context, self.session
        return Status(
            session_id=session.id,
            model=session.row.model,
            prompt_tokens=context.tokens(),
            window_tokens=context.engine.context_length,
            threshold_tokens=context.engine.threshold_tokens,
            spending=sum_requests(session.store.usage(session_id=session.id)),
            compactions=sum(not row.is_rewind for row in session.store.compactions(session.id)),
            caching=str(self.asking.caching),
        )

    def fill(self) -> Fill:
        """Returns the tokens of the next request by kind of content, against its window."""
        session, beside = self.session, self.asking.beside()
        return measure_fill(
            decode_all(self._dialect, self.context.view),
            tokenizer_for(session.row.model or None),
            system_tokens=session.workings.weigh_outside(system=beside.system),
            tools_tokens=session.workings.weigh_outside(tools=beside.tools),
        )

    async def connect(self) -> None:
        """Starts the MCP servers and adds their tools, once; tells the person which servers did not answer."""
        if self._connected or self._servers is None:
            return
        found = await self._servers.tools()
        self._connected = True
        self.calls.add(found.tools)
        for why in dict.fromkeys(found.failures.values()):  # each names its server
            self._tell(Noticed("warn", f"{self.session.workings.redact(why)}; its tools are not offered"))

    def add_to_next_request(self, text: str) -> None:
        """Sends the text with the next request only, for example something that was looked up. It is never logged."""
        self.asking.passing.append(text)

    async def aclose(self) -> None:
        """Saves to memory what must outlive the conversation; stops background work and the MCP servers."""
        self.context.leave()
        await self.context.aclose()
        if self._servers is not None:
            await self._servers.aclose()

    # The log.

    def log(self, wires: Sequence[Any], *, keep_results: bool = False) -> None:
        """Logs messages, and records the tools that they call or load."""
        self.context.append(wires, keep_results=keep_results)
        self.calls.note(wires)

    def close_open_calls(self) -> int:
        """Adds results to calls at the end of the log that have none, for example after a kill; returns how many."""
        open_calls: dict[str, None] = {}
        for message in decode_all(self._dialect, self.context.view):
            for part in message.parts:
                if isinstance(part, ToolCall):
                    open_calls[part.call_id] = None
                elif isinstance(part, ToolResult):
                    open_calls.pop(part.call_id, None)
        results = [ToolResult(call_id, _NOT_RUN, is_error=True) for call_id in open_calls]
        if results:
            self.log(results_in(self._dialect.name, results))
        return len(results)

    def _catch_up(self) -> None:
        """Reads what another process has added to this conversation, and tells the person about it."""
        if self.context.catch_up():
            self._tell(
                Noticed(
                    "warn", "another process has continued this conversation; its messages are included now"
                )
            )
            self.close_open_calls()

    def follow(self, row: SessionRow, standing: Standing) -> None:
        """Reads what another process has added to this conversation, for hosts that know of it: see `Context.follow`."""
        self.calls.note(self.context.follow(row, standing))
        self.close_open_calls()

    def _log_unfinished(self, note: str, *, even_nothing: bool) -> None:
        """Logs the text of an answer that was cut off, and why, since the person has seen it."""
        said, self.asking.unfinished = self.asking.unfinished, None
        if said or (said is not None and even_nothing):
            self.log([self._dialect.text_message(Role.ASSISTANT, f"{''.join(said)}\n\n{note}".strip())])

    @property
    def _dialect(self) -> Dialect:
        return dialect_named(self.session.row.dialect)

    # Interruptions.

    def interrupt(self) -> None:
        """Stops the running request or tool; the log stays consistent."""
        again, self._stopped = self._stopped, True
        running, ends_itself = self._running, self.calls.interrupt()
        if running is None:
            return
        if ends_itself and not again:
            # The tool should end with an outcome. One that does not is cancelled, as is any tool at the second interruption.
            running.get_loop().call_later(_GRACE_SECONDS, running.cancel)
        else:
            running.cancel()

    async def _interruptible(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Awaits the work in a way that lets `interrupt` cancel it."""
        if self._stopped:
            work.close()
            raise asyncio.CancelledError
        self._running = asyncio.ensure_future(work)
        try:
            return await self._running
        finally:
            self._running = None
