"""Asks a model for one answer: sends the request, reports its events as they arrive, and retries if it is refused as too large."""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from penstock.accounts.display import SHORT_ID_CHARS
from penstock.context.bookkeeping import Bookkeeper
from penstock.context.live import Beside, RefusedRequest
from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Role
from penstock.engine.auxiliary import summariser_for
from penstock.errors import PenstockError, ProviderError, SettingsError
from penstock.loop.events import Asked, Noticed, Recovering, Said, Thought, Used
from penstock.providers.cache_marks import caching_for, mark_cache
from penstock.providers.exchange import Answered, Ask, Finish, ReasoningDelta, TextDelta
from penstock.writing.handoff import SYSTEM_NOTE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.context.live import Context
    from penstock.conversation.dialects import Dialect
    from penstock.errors import ErrorClass
    from penstock.loop.events import AgentEvent
    from penstock.loop.system_prompt import FrozenPrompt
    from penstock.providers.cache_marks import CachePlan
    from penstock.providers.exchange import Answer, StreamingModel
    from penstock.sessions.session import Session
    from penstock.stores.values import SessionRow

__all__ = ["Asking", "adopt_model", "require_dialect"]

_MOST_OUTPUT, _LEAST_OUTPUT = 32_000, 4_096  # tokens of an answer, where the API wants a number
_ROOM = 0.98  # of the window, for prompt and answer: what we count may be a little off
_WORTH_TELLING_SECONDS = 1.0


def require_dialect(model: StreamingModel, row: SessionRow) -> None:
    """Raises SettingsError if the model speaks another dialect than the conversation."""
    if model.dialect != row.dialect:
        short_id = row.conversation[:SHORT_ID_CHARS]
        raise SettingsError(
            f"{short_id} is stored in the dialect {row.dialect}, but {model.name} speaks {model.dialect}: choose a model "
            f"that speaks {row.dialect}, start a new conversation, or convert this one with penstock sessions export "
            f"{short_id} --dialect {model.dialect}"
        )


def adopt_model(session: Session, model: StreamingModel, listed_window: int | None = None) -> None:
    """Makes this the session's model from now on. Raises SettingsError if it speaks another dialect.

    `listed_window` is the window that its provider states for it, if known.
    """
    require_dialect(model, session.row)
    if session.row.model != model.name:
        session.store.update(session.id, model=model.name)
        session.refresh()
    session.endpoint, session.workings.listed_window = str(getattr(model, "base_url", "")), listed_window


class Asking:
    """Asks one model for the answers of one conversation; `switch_model` changes the model.

    The model is already that of the session (`adopt_model`). `provider` is the name of its provider, if it has one.
    `offer` gives the tools of the next request. `unfinished` is the text of an answer that is coming or was cut off, or None.
    `passing` are texts for the next request alone: they are sent with it and never logged.
    """

    def __init__(
        self,
        context: Context,
        model: StreamingModel,
        prompt: FrozenPrompt,
        *,
        provider: str = "",
        offer: Callable[[], Sequence[Any]],
        tell: Callable[[AgentEvent], None],
    ) -> None:
        self.unfinished: list[str] | None = None
        self.passing: list[str] = []
        self._context = context
        self._prompt = prompt
        self._offer = offer
        self._tell = tell
        self._use_model(model, provider)
        context.weigh(self.beside())

    def beside(self) -> Beside:
        """Returns the system prompt and the tools of the next request."""
        text = self._prompt.current.text
        if self._context.session.settings.compression.system_note and self._context.prefix_end is not None:
            text = f"{text}\n\n{SYSTEM_NOTE}"  # from the first compaction on, which changes the prefix anyway
        return Beside(text, self._offer(), self._mark, passing=tuple(self.passing))

    async def learn_window(self) -> None:
        """Asks the provider for the size of the model's window, if it is unknown. `ask` does this by itself."""
        await self._context.learn_window(self.model)

    async def ask(self, step: int, max_output_tokens: int | None) -> Answer:
        """Returns one answer. A request that the provider refuses as too large is made to fit; other errors are raised.

        `step` is its number within the turn.
        """
        await self.learn_window()
        beside = self.beside()
        try:
            return await self._ask_fitting(step, max_output_tokens, beside)
        finally:
            del self.passing[: len(beside.passing)]  # what was added meanwhile is for the next one

    async def _ask_fitting(self, step: int, max_output_tokens: int | None, beside: Beside) -> Answer:
        context = self._context
        await context.fit(beside)
        cap, attempt = self._output_cap(max_output_tokens), 0
        while True:
            sent_tokens = context.tokens()
            self._tell(Asked(step, sent_tokens, context.engine.context_length))
            try:
                answer = await self._stream(beside, cap)
            except asyncio.CancelledError:
                context.lose()
                raise
            except ProviderError as error:
                if error.failure.may_be_billed:
                    context.lose()
                attempt += 1
                cap = await context.recover(error, RefusedRequest(sent_tokens, cap, attempt), self.beside)
                beside = self.beside()
                continue
            row = context.take_usage(answer.usage, sent_tokens, names_cache=answer.names_cache)
            context.prepare()
            prompt_tokens = answer.usage.prompt_tokens or sent_tokens
            self._tell(Used(answer.usage, row.cost, prompt_tokens, context.engine.context_length))
            return answer

    async def switch_model(
        self, model: StreamingModel, provider: str = "", listed_window: int | None = None
    ) -> None:
        """Switches to another model and keeps inside its window: for a smaller one, the conversation is compacted first.

        `listed_window` is what the provider states for it, if known; otherwise it is asked. Raises SettingsError
        if the model speaks another dialect than the conversation.
        """
        context, session = self._context, self._context.session
        adopt_model(session, model, listed_window)
        context.use_model(model.name, session.window.tokens, provider)
        self._use_model(model, provider)
        await context.fit()  # by the model that was there before, whose window holds all of it
        summariser = summariser_for(session.settings, model, session.window.tokens, provider)
        context.engine.hosting.use_summariser(summariser)

    def _use_model(self, model: StreamingModel, provider: str) -> None:
        """Uses this model from now on: sets up its prompt caching, and opens its books."""
        context, settings = self._context, self._context.session.settings
        self.model = model
        self.caching: CachePlan = caching_for(
            model.name, context.session.endpoint, provider, ttl=settings.model.cache_ttl
        )
        context.bookkeeper = Bookkeeper(context.session, self.caching, context.engine.threshold_tokens)

    async def _stream(self, beside: Beside, cap: int | None) -> Answer:
        """Returns the answer, and reports it as it arrives. If it is cut off, `unfinished` has the text so far."""
        said: list[str] = []
        self.unfinished = said
        async with aclosing(self.model.stream(self._request(beside, cap))) as events:  # type: ignore[type-var]
            async for event in events:
                match event:
                    case TextDelta(text=text):
                        said.append(text)
                        self._tell(Said(text))
                    case ReasoningDelta(text=text):
                        self._tell(Thought(text))
                    case Answered(answer=answer):
                        self.unfinished = None
                        return answer
        self._context.lose()
        raise PenstockError("the model's answer ended before it was complete; ask again")

    def _request(self, beside: Beside, cap: int | None) -> Ask:
        body = self._mark({"messages": self._context.view, "tools": beside.tools, "system": beside.system})
        messages = self._context.restore_bytes(body["messages"])
        if beside.passing:
            _add_passing(messages, body["messages"], beside.passing, dialect_named(self.model.dialect))
        return Ask(
            messages=messages,
            system=body["system"],
            tools=body["tools"],
            max_output_tokens=cap,
            on_wait=self._tell_wait,
        )

    def _mark(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns a request (`messages`, `system`, `tools`) with the cache marks that the model's route takes."""
        plan, prefix_end = self.caching, self._context.prefix_end
        if not plan.on or plan.dialect != self.model.dialect:
            return body
        if plan.dialect != "chat" or not body["system"]:
            return mark_cache(body, dialect=plan.dialect, ttl=plan.ttl, prefix_end=prefix_end)
        # There the system prompt goes out as the first message, and has to be marked as one.
        opened = {**body, "messages": [{"role": "system", "content": body["system"]}, *body["messages"]]}
        marked = mark_cache(
            opened, dialect="chat", ttl=plan.ttl, prefix_end=None if prefix_end is None else prefix_end + 1
        )
        first, *messages = marked["messages"]
        return {**marked, "system": first["content"], "messages": messages}

    def _output_cap(self, asked: int | None) -> int | None:
        """Returns the maximum tokens to ask for: the host's limit, and no more than the provider is known to give."""
        known = self._context.session.workings.output_cap
        if asked is None and self.model.dialect == "anthropic":  # whose API wants to be told
            window = self._context.engine.context_length
            asked = min(_MOST_OUTPUT, max(_LEAST_OUTPUT, int(window * _ROOM) - self._context.tokens()))
        return asked if known is None or asked is None else min(asked, known)

    def _tell_wait(self, seconds: float, failure: ErrorClass) -> None:
        if seconds >= _WORTH_TELLING_SECONDS:
            self._tell(Recovering(str(failure.kind), f"asking again in {math.ceil(seconds)} s"))

    def tell_ending(self, answer: Answer) -> None:
        """Tells the person how an answer without calls ended, unless it ended normally."""
        match answer.finish:
            case Finish.LENGTH:
                tokens = answer.usage.output_tokens
                text = f"the answer was cut at its limit, after {tokens:,} tokens; say 'continue' to go on"
            case Finish.REFUSED:
                text = "the model declined to answer"
            case _ if not answer.text.strip():
                text = "the model gave an empty answer; say 'continue', or put it another way"
            case _:
                return
        self._tell(Noticed("warn", text))


_PASSING = "[Context for this request only, added by the application. It is not a message from the user.]"


def _add_passing(messages: list[Any], wires: Sequence[Any], texts: Sequence[str], dialect: Dialect) -> None:
    """Adds texts after the last message, if they do not disturb the provider's cache there, or at its end.

    `wires` are the same messages, none of them as bytes.
    """
    text = "\n\n".join([_PASSING, *texts])
    last = dialect.decode(wires[-1]) if wires else None
    if last is None or dialect.can_follow(last.role, Role.USER):
        messages.append(dialect.text_message(Role.USER, text))
    else:
        messages[-1] = dialect.append_text(last, text)
