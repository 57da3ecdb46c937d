"""Has a model write handoffs, and deals with its failures.

    summariser = penstock.Summariser(connect("anthropic", "claude-haiku-4-5"))
    result = penstock.compress(messages, target_tokens=20_000, summariser=summariser)

The ladder: the chosen model, then the session's own, then smaller parts, then no model at all. Whatever happens,
the conversation is not touched here: the worst outcome is an extractive handoff that says so.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from penstock.engine.attempt import Allowance, Writer, Writing, WritingJob
from penstock.engine.learned import PartNotes
from penstock.engine.threads import in_daemon_thread
from penstock.errors import ErrorClass, ErrorKind, NotWritten, ProviderError, SettingsError
from penstock.measure.prices import Cost, Money, Unknown, add_costs, cost_of
from penstock.measure.usage import Usage
from penstock.measure.windows import resolve_window
from penstock.providers.exchange import Answer, Ask
from penstock.stores.shelf import MemoryShelf

if TYPE_CHECKING:
    from penstock.engine.learned import Learned
    from penstock.providers.exchange import Model
    from penstock.stores.shelf import Shelf
    from penstock.writing.prose import Prose

__all__ = ["Attempt", "Cooldown", "Summariser", "SummaryLimits", "Written", "summariser_of"]


IN_CONVERSATION = "at the end of the conversation"
ON_ITS_OWN = "from the turns"
SMALLER_PARTS = "from smaller parts"

_LEAST_PART = 1_000  # tokens: work below twice this is not cut into parts
_NO_SMALLER_PARTS = {ErrorKind.AUTH, ErrorKind.QUOTA, ErrorKind.BAD_REQUEST}
_REMEMBERED_NOTES = 256

_FIRST_SECONDS = 30.0
_LONGEST_SECONDS = 600.0
_NOBODY_THERE = {ErrorKind.AUTH, ErrorKind.QUOTA}


class SummaryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for all requests of one compaction's summary: their number, prompt tokens, and seconds."""

    requests: int = 32
    prompt_tokens: int = 2_000_000
    seconds: float = 180.0


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One rung of the ladder: the model, the way in which it was asked, the outcome, and the usage."""

    model: str
    way: str
    outcome: str
    requests: int = 0
    usage: Usage = Usage()
    cost: Cost | None = None
    """None if nothing was answered."""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Returns the attempt as JSON; an unknown cost is null."""
        usd = float(self.cost.usd) if isinstance(self.cost, Money) else None
        return {**msgspec.structs.asdict(self), "usage": msgspec.structs.asdict(self.usage), "cost": usd}


class Written(msgspec.Struct, frozen=True, eq=False):
    """The outcome of the ladder. `prose` is None if no model wrote a handoff."""

    prose: Prose | None
    attempts: tuple[Attempt, ...]
    limits: SummaryLimits

    @property
    def model(self) -> str:
        """The model that wrote the handoff, or an empty text."""
        return self.attempts[-1].model if self.prose is not None else ""

    @property
    def requests(self) -> int:
        """The number of all requests."""
        return sum(attempt.requests for attempt in self.attempts)

    @property
    def usage(self) -> Usage:
        """The usage of all requests."""
        return sum((attempt.usage for attempt in self.attempts), Usage())

    @property
    def cost(self) -> Cost | None:
        """The cost of all attempts; None if nothing was answered."""
        costs = [attempt.cost for attempt in self.attempts if attempt.cost is not None]
        return add_costs(costs) if costs else None

    @property
    def reason(self) -> str:
        """Why there is no prose, in one line."""
        tried = "; ".join(dict.fromkeys(f"{attempt.model}: {attempt.outcome}" for attempt in self.attempts))
        return f"the handoff was written without a model ({tried or 'none could be asked'}); it has excerpts and facts instead"


class Cooldown(msgspec.Struct, frozen=True):
    """The pause of a model that failed: its end, and the number of failures in a row."""

    until: float = 0.0
    failures: int = 0

    def after(self, failure: ErrorClass, now: float) -> Cooldown:
        """Returns the cooldown after one more failure.

        The pause grows with each transient failure. It is at its longest at once if the provider denies access, and
        does not exist if trying again cannot help.
        """
        if failure.kind in _NOBODY_THERE:
            return Cooldown(now + _LONGEST_SECONDS, self.failures + 1)
        if not failure.kind.transient:
            return self
        seconds = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2**self.failures)
        return Cooldown(now + max(seconds, failure.retry_after_seconds or 0.0), self.failures + 1)

    def left(self, now: float) -> float:
        """Returns the seconds until the model may be asked again."""
        return max(0.0, self.until - now)


class Summariser:
    """Has a model write the prose of handoffs. One summariser may serve many conversations, from several tasks.

    `main` is the session's own model, if there is one: it is asked if the chosen model fails. If it is the chosen
    model itself, and the conversation is in its dialect, it is asked at the end of the conversation, which uses
    the provider's cache of the prefix; any other model gets the turns without their secrets. `window_tokens` is
    the chosen model's window, if it differs from the known one. `notes` keeps the texts on parts of long
    conversations, so that a retry continues where the last try stopped.
    """

    def __init__(  # noqa: PLR0913 - all but the first by name
        self,
        model: Model,
        *,
        main: Model | None = None,
        window_tokens: int | None = None,
        timeout_seconds: float = 120.0,
        limits: SummaryLimits = SummaryLimits(),  # noqa: B008 - frozen
        notes: Shelf | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._models = [model] if main is None or main is model else [model, main]
        self._main = main
        self._windows: dict[str, int] = {}
        self._given_window = window_tokens
        self._timeout_seconds = timeout_seconds
        self._limits = limits
        self._notes = PartNotes(MemoryShelf(_REMEMBERED_NOTES) if notes is None else notes)
        self._now = now
        self._resting: dict[str, Cooldown] = {}

    @property
    def model(self) -> Model:
        """The model that is asked first."""
        return self._models[0]

    def __repr__(self) -> str:
        return f"Summariser({', '.join(model.name for model in self._models)})"

    @property
    def limits(self) -> SummaryLimits:
        """The limits of the summary of one compaction."""
        return self._limits

    async def write(
        self,
        job: WritingJob,
        on_step: Callable[[str], None] | None = None,
        limits: SummaryLimits | None = None,
    ) -> Written:
        """Returns the prose of a handoff, or the reason why there is none.

        Never raises a model's errors; can be cancelled. Calls `on_step` with a few words at each step. `limits` are
        those of this job, if a compaction has several.
        """
        limits = limits or self._limits
        run = _Run(limits, self._now, job.memory.book)
        writers = [await self._find_writer(model, place, job) for place, model in enumerate(self._models)]
        attempts: list[Attempt] = []
        spent: set[str] = set()
        for writer, way in self._list_rungs(writers, job, spent):
            resting = self._resting.get(writer.key, Cooldown()).left(self._now())
            if resting:
                attempts.append(
                    Attempt(
                        model=writer.model.name, way=way, outcome=f"rests for {resting:.0f} s after a failure"
                    )
                )
                spent.add(writer.key)
                continue
            if on_step is not None:
                on_step(f"{writer.model.name} writes the handoff, {way}")
            prose, attempt = await self._try(writer, way, job, run, spent)
            attempts.append(attempt)
            if prose is not None:
                return Written(prose, tuple(attempts), limits)
            if run.over:
                break
        return Written(None, tuple(attempts), limits)

    def _list_rungs(
        self, writers: list[Writer], job: WritingJob, spent: set[str]
    ) -> Iterator[tuple[Writer, str]]:
        """Yields the writers and the ways to ask them, best first.

        `spent` are the ones that can no longer be asked.
        """
        for writer in writers:
            if self._start_writing(writer, job, _Run(self._limits, self._now)).fits_conversation:
                yield writer, IN_CONVERSATION
            if writer.key not in spent:
                yield writer, ON_ITS_OWN
        for writer in writers if job.work.tokens >= 2 * _LEAST_PART else ():
            if writer.key not in spent:
                window = min(writer.window_tokens, self._windows.get(writer.key, writer.window_tokens))
                most = min(job.work.tokens // 2 + 1, window // 2)
                yield (
                    msgspec.structs.replace(writer, window_tokens=window, most_tokens=most),
                    SMALLER_PARTS,
                )

    async def _try(
        self, writer: Writer, way: str, job: WritingJob, run: _Run, spent: set[str]
    ) -> tuple[Prose | None, Attempt]:
        run.begin(writer.model.name)
        writing = self._start_writing(writer, job, run)
        prose: Prose | None = None
        outcome = "wrote the handoff"
        try:
            prose = await (
                writing.write_in_conversation() if way == IN_CONVERSATION else writing.write_on_its_own()
            )
            self._resting.pop(writer.key, None)
        except NotWritten as problem:
            outcome = str(problem)
        except ProviderError as error:
            failure = error.failure
            outcome = f"{failure.kind.value} ({failure.status or failure.code or 'no status'})"
            self._resting[writer.key] = self._resting.get(writer.key, Cooldown()).after(failure, self._now())
            if failure.window_tokens:
                self._windows[writer.key] = failure.window_tokens
                if job.memory.learned is not None:
                    job.memory.learned.learn_window(writer.model.name, writer.endpoint, failure.window_tokens)
            refused_there = way == IN_CONVERSATION and failure.kind is ErrorKind.BAD_REQUEST
            if failure.kind.transient or (failure.kind in _NO_SMALLER_PARTS and not refused_there):
                spent.add(writer.key)
        attempt = Attempt(
            model=writer.model.name,
            way=way,
            outcome=outcome,
            requests=run.requests_now,
            usage=run.usage_now,
            cost=add_costs(run.costs_now) if run.costs_now else None,
            seconds=round(run.seconds_now, 3),
        )
        return prose, attempt

    def _start_writing(self, writer: Writer, job: WritingJob, run: _Run) -> Writing:
        return Writing(writer, job, run, job.memory.notes or self._notes)

    async def _find_writer(self, model: Model, place: int, job: WritingJob) -> Writer:
        """Returns the model with its window, in tokens as we count them."""
        writer, known = Writer(model, 0, self._timeout_seconds, model is self._main), job.memory.learned
        window = await self._find_window(writer, place, known)
        if known is not None:  # if its tokens are smaller than ours, fewer of ours fit
            window = min(window, known.calibration(model.name, writer.endpoint).count(window))
        if writer.is_main and job.most_request_tokens is not None:
            window = min(window, job.most_request_tokens)
        return msgspec.structs.replace(writer, window_tokens=window)

    async def _find_window(self, writer: Writer, place: int, known: Learned | None) -> int:
        """Returns the window of a model: given, learned, stated by its provider, or from the table.

        Never exceeds a window that its provider has stated in an error.
        """
        name, key = writer.model.name, writer.key
        learned = None if known is None else known.window(name, writer.endpoint)
        if key not in self._windows:
            configured = self._given_window if place == 0 else None
            window = resolve_window(name, configured=configured, learned=learned)
            if window.source == "default":
                window = resolve_window(name, listed=await _ask_window(writer.model))
            if window.source == "default":
                return window.tokens
            self._windows[key] = window.tokens
        return min(self._windows[key], learned or self._windows[key])


class _Run:
    """The requests, tokens and seconds that one compaction's summary has used so far."""

    def __init__(
        self,
        limits: SummaryLimits,
        now: Callable[[], float],
        book: Callable[[str, Usage], None] | None = None,
    ) -> None:
        self._limits = limits
        self._now = now
        self._book = book
        self._started = now()
        self._requests = 0
        self._tokens = 0
        self.begin("")

    def begin(self, model: str) -> None:
        """Begins a new attempt, with this model."""
        self._since = self._now()
        self._model = model
        self.requests_now = 0
        self.usage_now = Usage()
        self.costs_now: list[Cost] = []  # of each request: a rate may depend on the size of its prompt

    @property
    def seconds_now(self) -> float:
        return self._now() - self._since

    @property
    def over(self) -> bool:
        """True if no more requests are allowed."""
        limits = self._limits
        return (
            self._requests >= limits.requests
            or self._tokens >= limits.prompt_tokens
            or self._now() - self._started >= limits.seconds
        )

    def require(self, requests: int, prompt_tokens: int) -> None:
        """Raises NotWritten if fewer requests or tokens than that are left."""
        limits = self._limits
        if self._requests + requests > limits.requests:
            raise NotWritten(f"the limit of {limits.requests} requests is used up")
        if self._tokens + prompt_tokens > limits.prompt_tokens:
            raise NotWritten(f"the limit of {limits.prompt_tokens:,} prompt tokens is used up")

    def allow(self, prompt_tokens: int) -> Allowance:
        """Returns the rest of the budget for a request, which counts from now on.

        Raises NotWritten if something is used up.
        """
        self.require(1, prompt_tokens)
        left = self._limits.seconds - (self._now() - self._started)
        if left <= 0:
            raise NotWritten(f"the limit of {self._limits.seconds:g} seconds is used up")
        allowed = Allowance(left, self._limits.requests - self._requests)
        self._requests += 1
        self.requests_now += 1
        self._tokens += prompt_tokens
        return allowed

    def book(self, usage: Usage, requests: int) -> None:
        """Counts the usage; the first request was counted when it was allowed."""
        self.usage_now += usage
        if usage.total_tokens:
            self.costs_now.append(cost_of(usage, self._model))
            if self._book is not None:
                self._book(self._model, usage)
        self._requests += requests - 1
        self.requests_now += requests - 1

    def lose(self) -> None:
        """Records that a request was broken off, so that its usage is unknown."""
        self.costs_now.append(Unknown("a request was broken off"))
        if self._book is not None:
            self._book(self._model, Usage())


async def _ask_window(model: Model) -> int | None:
    ask = getattr(model, "window_tokens", None)
    if ask is None:
        return None
    try:
        listed = await ask()
    except (
        ProviderError
    ):  # the model will be asked for the handoff next, and that failure is the one to report
        return None
    return listed if isinstance(listed, int) else None


WritesText: TypeAlias = Callable[[str], Any]


def summariser_of(given: Summariser | Model | WritesText) -> Summariser:
    """Returns a summariser for the argument of a caller.

    That may be a summariser, a model, or a function from a prompt to a text.
    """
    if isinstance(given, Summariser):
        return given
    if callable(getattr(given, "answer", None)) and hasattr(given, "dialect"):
        return Summariser(cast("Model", given))
    if callable(given):
        return Summariser(_Function(given))
    raise SettingsError(
        f"summariser is a {type(given).__name__}; give a Summariser, a model, or a function from a prompt to a text"
    )


class _Function:
    """A function as a model. It may be a coroutine function; a plain one runs in a thread."""

    dialect = "chat"

    def __init__(self, function: WritesText) -> None:
        self._function = function
        self.name = getattr(function, "__name__", "function")

    async def answer(self, ask: Ask) -> Answer:
        prompt = f"{ask.system}\n\n{ask.messages[-1]['content']}"
        try:
            async with asyncio.timeout(ask.timeout_seconds):
                text = await self._call(prompt)
        except TimeoutError:
            said = f"{self.name} did not answer in time"
            raise ProviderError(said, failure=ErrorClass(kind=ErrorKind.TIMEOUT, message=said)) from None
        except Exception as error:  # a caller's function may raise anything
            said = f"{self.name} raised {type(error).__name__}"
            raise ProviderError(
                said, failure=ErrorClass(kind=ErrorKind.BAD_REQUEST, code="function", message=said)
            ) from error
        return Answer(text=text if isinstance(text, str) else "", model=self.name)

    async def _call(self, prompt: str) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(prompt)
        text = await in_daemon_thread(self._function, prompt)
        return await text if inspect.isawaitable(text) else text
