"""One answer of the model: the request, what comes of it as it comes, and what is done where a provider refuses it."""

from __future__ import annotations

import math
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from penstock.context.compactions import CompactionWish
from penstock.context.model_limits import WindowQuestion, fit_window
from penstock.context.recovery import GiveUp, LowerCap, next_step
from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Role
from penstock.errors import PenstockError, ProviderError, TargetTooSmall
from penstock.loop.events import Asked, Noticed, Recovering, Said, Thought, Used
from penstock.loop.tool_offer import make_offer
from penstock.loop.tools import function_schema
from penstock.loop.wire import sound_calls, tools_in
from penstock.measure.tokens import tokenizer_for
from penstock.providers.cache_marks import mark_cache
from penstock.providers.exchange import Answered, Ask, Finish, ReasoningDelta, TextDelta
from penstock.recall.tools import TOOL_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.errors import ErrorClass
    from penstock.loop.agent import Agent
    from penstock.loop.events import AgentEvent
    from penstock.providers.exchange import Answer

__all__ = ["Asking"]

_ALWAYS = ("terminal", "read_file", "patch")  # are offered in full, however little room there is
_MOST_OUTPUT, _LEAST_OUTPUT = 32_000, 4_096  # tokens of an answer, where the API wants a number
_ROOM = 0.98  # of the window, for prompt and answer: what we count may be a little off
_WORTH_TELLING_SECONDS = 1.0
_TRUNCATED = 0.6  # of what we expect: a provider that reports less has cut the prompt without saying so
_WORTH_A_LOOK = 4_000  # tokens: below, a small error of ours looks like a cut


class Asking:
    """Asks for the answers of one agent."""

    def __init__(self, agent: Agent, tell: Callable[[AgentEvent], None]) -> None:
        self._agent = agent
        self._tell = tell
        self._said: list[str] | None = None  # of the answer that is coming
        self._window = WindowQuestion()

    async def learn_window(self) -> None:
        """Ask the provider how large the model's window is, where nobody has said so. The first answer does so by itself."""
        await self._window.ask(self._agent)

    async def answered(self, step: int) -> Answer:
        """One answer, logged. What a provider refuses as too large is made to fit; the rest is raised."""
        await self._agent.interruptible(self.learn_window())
        tools = self.weighed_tools()
        await self._agent.interruptible(self._agent.context.fit())
        cap, attempt = self._output_cap(), 0
        while True:
            sent = self._agent.context.tokens()
            self._tell(Asked(step, sent, self._agent.context.engine.context_length))
            try:
                answer = await self._streamed(tools, cap)
            except ProviderError as error:
                attempt += 1
                cap = await self._recovered(error, sent, cap, attempt)
                tools = self.weighed_tools()  # a window that turned out to be small has room for fewer
                continue
            self._take(answer, sent)
            return answer

    async def _streamed(self, tools: Sequence[Any], cap: int | None) -> Answer:
        """The answer, told as it comes. What there is of it when it ends too early is in `_said`."""
        said: list[str] = []
        self._said = said

        async def listen() -> Answer:
            async with aclosing(self._agent.model.stream(self._request(tools, cap))) as events:  # type: ignore[type-var]
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

        answer: Answer = await self._agent.interruptible(listen())
        self._said = None
        return answer

    def keep_said(self, note: str, *, even_nothing: bool) -> None:
        """Log what was said of an answer that did not come to its end, and why: the person has seen it."""
        said, self._said = self._said, None
        if said or (said is not None and even_nothing):
            text = f"{''.join(said)}\n\n{note}".strip()
            self._agent.log([dialect_named(self._agent.model.dialect).text_message(Role.ASSISTANT, text)])

    def _output_cap(self) -> int | None:
        """The most tokens to ask for: as the host says, and no more than the provider said that the model gives."""
        asked, known = self._agent.limits.max_output_tokens, self._agent.session.output_cap
        if asked is None and self._agent.model.dialect == "anthropic":  # whose API wants to be told
            window = self._agent.context.engine.context_length
            asked = min(_MOST_OUTPUT, max(_LEAST_OUTPUT, int(window * _ROOM) - self._agent.context.tokens()))
        return asked if known is None or asked is None else min(asked, known)

    def _request(self, tools: Sequence[Any], cap: int | None) -> Ask:
        dialect = self._agent.model.dialect
        body = {
            "messages": self._agent.context.view,
            "tools": tools,
            "system": self._agent.prompt.current.text,
        }
        plan = self._agent.caching
        if plan.on and plan.dialect == dialect:
            body = dict(
                mark_cache(body, dialect=dialect, ttl=plan.ttl, prefix_end=self._agent.context.prefix_end)
            )
        return Ask(
            messages=body["messages"],
            system=body["system"],
            tools=body["tools"],
            max_output_tokens=cap,
            on_wait=self._waits,
        )

    def _waits(self, seconds: float, failure: ErrorClass) -> None:
        if seconds >= _WORTH_TELLING_SECONDS:
            self._tell(Recovering(str(failure.kind), f"asking again in {math.ceil(seconds)} s"))

    async def _recovered(self, error: ProviderError, sent: int, cap: int | None, attempt: int) -> int | None:
        """The cap for the next try, after what was too large was made smaller. Raises the error where nothing helps."""
        session = self._agent.session
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
            fit_window(self._agent, session.window.tokens)
            self.weighed_tools()
        target = max(1, step.target_tokens - self._agent.context.outside_tokens)
        self._tell(Recovering(kind, f"compacting to {step.target_tokens:,} tokens, then asking again"))
        reason = f"the provider refused the request as too large (attempt {attempt} of {most})"
        wish = CompactionWish(target_tokens=target)
        try:
            done = await self._agent.interruptible(self._agent.context.compact(reason, sent, wish))
        except TargetTooSmall as small:
            raise self._too_large(error, small.parts) from error
        if done is None and self._agent.context.tokens() >= sent:
            raise self._too_large(error, {})  # the same request would be refused again
        return cap

    def _too_large(self, error: ProviderError, parts: Mapping[str, int]) -> ProviderError:
        """Which part of a request that cannot be made smaller takes how many tokens."""
        outside = {
            "system prompt": self._agent.session.weigh_outside(system=self._agent.prompt.current.text),
            "tools": self._agent.session.weigh_outside(tools=self.offered()),
        }
        listed = ", ".join(f"{name} {tokens:,}" for name, tokens in {**outside, **parts}.items() if tokens)
        told = f"{str(error).rstrip('.')}; no more of the request can give way: it has {listed} tokens"
        return ProviderError(told, failure=error.failure, requests=error.requests)

    def _take(self, answer: Answer, expected: int) -> None:
        """Log the answer, book what it used, and look at what the provider reported."""
        context = self._agent.context
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
        self._agent.log(sound_calls(self._agent.model.dialect, answer.wires))
        if not answer.calls and (why := _unusual(answer)):
            self._tell(Noticed("warn", why))

    def weighed_tools(self) -> list[Any]:
        """The tools of the next request; what stands beside the messages is weighed anew."""
        tools = self.offered()
        system = self._agent.prompt.current.text
        self._agent.context.outside_tokens = self._agent.session.weigh_outside(tools=tools, system=system)
        return tools

    def offered(self) -> list[Any]:
        """The tools of the next request, in the model's dialect: all in full, or the rarely used ones by name."""
        recall = self._agent.context.session.get_tool_schemas()
        own = self._agent.calls.engine_schemas()
        schemas = [*map(function_schema, self._agent.toolbox.tools.values()), *recall, *own]
        offer = make_offer(
            schemas,
            self._agent.used_tools,
            window_tokens=self._agent.context.engine.context_length,
            tokenizer=tokenizer_for(self._agent.model.name),
            always=(*_ALWAYS, *TOOL_NAMES, *(schema["function"]["name"] for schema in own)),
        )
        return tools_in(self._agent.model.dialect, offer.schemas)


def _unusual(answer: Answer) -> str:
    """What a person should know of how an answer ended; empty where it simply did."""
    match answer.finish:
        case Finish.LENGTH:
            return f"the answer was cut at its limit, after {answer.usage.output_tokens:,} tokens; say 'continue' to go on"
        case Finish.REFUSED:
            return "the model declined to answer"
        case _ if not answer.text.strip():
            return "the model answered with nothing; say it again, or otherwise"
    return ""
