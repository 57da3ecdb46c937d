"""`compress`: takes a conversation and returns a smaller legal one, with a receipt and every original at hand.

    open      a notebook decodes the list, links and repairs it, and weighs and reads the messages that are new to it
    plan      what stays, what is elided, how long the handoff may be (`planning.compact`, `planning.plan`)
    write     the handoff: from excerpts, or by the writer that the request names (`writing`)
    assemble  the new list, in the wire format of its dialect
    check     the list against the rules of that dialect; then make the receipt

All of this runs without a model first. If a model is to write, it gets the turns that the plan leaves out. Its
prose is checked against the conversation, and the list is compacted once more with that prose in the handoff.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

import penstock.installed_dialects  # noqa: F401 - names of dialects are those of installed packages, too
from penstock.config import redactor_of_process
from penstock.conversation.dialects import dialect_named
from penstock.conversation.dialects.base import require_list
from penstock.conversation.handles import HandleKind, name_message, parse_handle
from penstock.conversation.rules import is_reasoning_item
from penstock.conversation.view import Handoff, is_merged
from penstock.conversation.wire import to_plain
from penstock.engine.attempt import Conversation, WriterMemory, WritingJob
from penstock.engine.contract import Beside
from penstock.engine.summariser import summariser_of
from penstock.engine.threads import in_thread, run_sync
from penstock.errors import SettingsError, UnknownHandle
from penstock.measure.prices import Money, Unknown
from penstock.measure.tokens import tokenizer_for
from penstock.measure.weigh import outside_tokens
from penstock.measure.windows import resolve_window
from penstock.planning.compact import CompactionResult, compact
from penstock.planning.layout import Wishes
from penstock.planning.plan import CompactionOrder, Fate, Goal, Verdict, verdicts
from penstock.planning.policy import Trigger, refuse_model
from penstock.planning.receipt import DEGRADED
from penstock.settings import Settings, settings_from
from penstock.writing.extractive import ExtractiveWriter
from penstock.writing.notebook import Notebook, Opened
from penstock.writing.work import WorkMaker, WorkScope
from penstock.writing.writer import PROSE_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.conversation.document import Document
    from penstock.conversation.message import Message
    from penstock.engine.summariser import Summariser, Written
    from penstock.measure.tokens import Tokenizer
    from penstock.planning.plan import Plan
    from penstock.planning.receipt import Receipt
    from penstock.writing.prose import Prose
    from penstock.writing.transcript import Transcript
    from penstock.writing.work import Work
    from penstock.writing.writer import Importance, MakeWriter

__all__ = [
    "AddedMessage",
    "CompressRequest",
    "Compressed",
    "FirstPass",
    "acompress",
    "begin",
    "compress",
    "compress_document",
    "compress_list",
    "deliver",
    "new_notebook",
    "open_messages",
    "read_settings",
    "summarise_document",
    "summarise_list",
]


_DEFAULTS = Settings()
_LEAST_PROSE = 80  # tokens


class CompressRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `compress`, apart from the messages."""

    target_tokens: int | None = None
    context_length: int | None = None
    model: str | None = None
    tools: Sequence[Any] | None = None
    system: Any = None
    focus: str | None = None
    dialect: str = "auto"
    settings: Settings = Settings()
    pins: frozenset[int] = frozenset()
    """Numbers of messages to keep unchanged."""
    numbers: Sequence[int] | None = None
    """The numbers of the messages, if they do not simply count from 1."""
    memory: WriterMemory = WriterMemory()
    beside: Beside | None = None
    """The other parts of a live agent's requests, if they differ from `system` and `tools`: a request for a summary
    includes them, and they do not count against the target."""
    unsent: int = 0
    """The number of messages at the end that no request has included yet. If they stay in the view, a model that is asked
    at the end of the conversation is asked before them, so that it reads all the rest from the cache."""
    refused: bool = False
    """True if the provider refused the conversation at its present size: then no model is asked at its end."""
    recall_tool: str | None = None
    """The name of the tool with which the agent reads originals, if it has one."""
    trigger: Trigger = Trigger.MANUAL
    """The occasion of the compaction."""
    most_request_tokens: int | None = None
    """The largest request for a summary, if that is less than the window of the model that writes it."""
    make_writer: MakeWriter = ExtractiveWriter
    """Makes the writer of the handoff."""
    importance: Importance | None = None
    """Scores how likely each value is to be needed; None for the scoring that the settings name."""

    def __post_init__(self) -> None:
        """Raises SettingsError for an impossible value."""
        numbers: dict[str, Any] = {"target_tokens": self.target_tokens, "context_length": self.context_length}
        for name, value in numbers.items():
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise SettingsError(f"{name} is {value!r}; give a whole number of tokens, at least 1")
        tools: Any = self.tools
        if tools is not None and not isinstance(tools, (list, tuple)):
            raise SettingsError(
                f"tools is a {type(tools).__name__}; give a list of the tools as the request has them"
            )
        texts: dict[str, Any] = {"model": self.model, "focus": self.focus, "dialect": self.dialect}
        for name, value in texts.items():
            if value is not None and not isinstance(value, str):
                raise SettingsError(f"{name} is {value!r}; give a text")

    def goal(self, tokenizer: Tokenizer) -> Goal:
        """Returns the target to aim at, or the window if no target is named."""
        outside = outside_tokens(self.system, self.tools, tokenizer)
        if self.target_tokens is not None:
            return Goal(self.target_tokens, outside_tokens=outside, forced=self.trigger.forces)
        configured = self.context_length or self.settings.model.window_of(self.model or "")
        window = configured if configured is not None else resolve_window(self.model).tokens
        return Goal(None, window, outside, self.trigger.forces)

    def order(self, notebook: Notebook) -> CompactionOrder:
        """Returns the planner's instructions."""
        return CompactionOrder(
            goal=self.goal(notebook.tokenizer),
            settings=self.settings.compression,
            tokenizer=notebook.tokenizer,
            redactor=notebook.redactor,
            wishes=Wishes(focus=self.focus or "", pins=self.pins, recall_tool=self.recall_tool),
            make_writer=self.make_writer,
            importance=self.importance,
        )


def compress(  # noqa: PLR0913  # the public signature
    messages: Sequence[Any],
    *,
    target_tokens: int | None = None,
    context_length: int | None = None,
    model: str | None = None,
    tools: Sequence[Any] | None = None,
    system: Any = None,
    focus: str | None = None,
    dialect: str = "auto",
    summariser: Any = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Compressed:
    """Compresses a list of wire messages (OpenAI Chat or Responses, Anthropic, ShareGPT).

    `target_tokens` bounds the whole returned list. Without it, the target follows from `context_length`, or else
    from the model's window. `tools` and `system` are the parts of the request beside the list. `focus` names a
    topic to keep in more detail. The input is never mutated.

    With a `summariser` (a `Summariser`, a model, or a function from a prompt to a text), a model writes the prose
    of the handoff. Whatever it does, every message stays reachable; if it fails, the receipt says `degraded`.

    Raises InputError for anything but a conversation, TargetTooSmall if the messages that must stay do not fit,
    and SettingsError for a wrong setting; all are PenstockError.
    """
    return run_sync(
        acompress(
            messages,
            target_tokens=target_tokens,
            context_length=context_length,
            model=model,
            tools=tools,
            system=system,
            focus=focus,
            dialect=dialect,
            summariser=summariser,
            settings=settings,
        )
    )


async def acompress(  # noqa: PLR0913  # the public signature
    messages: Sequence[Any],
    *,
    target_tokens: int | None = None,
    context_length: int | None = None,
    model: str | None = None,
    tools: Sequence[Any] | None = None,
    system: Any = None,
    focus: str | None = None,
    dialect: str = "auto",
    summariser: Any = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Compressed:
    """Does what `compress` does without blocking the event loop. Cancelling it stops a running request to a model."""
    request = CompressRequest(
        target_tokens=target_tokens,
        context_length=context_length,
        model=model,
        tools=tools,
        system=system,
        focus=focus,
        dialect=dialect,
        settings=read_settings(settings),
    )
    if summariser is None:
        return await asyncio.to_thread(compress_list, messages, request)
    return await summarise_list(messages, request, summariser_of(summariser))


def compress_list(
    messages: Sequence[Any], request: CompressRequest, notebook: Notebook | None = None
) -> Compressed:
    """Compacts a list of wire objects. With the same notebook, later compactions of the conversation are cheap."""
    return deliver(begin(messages, request, notebook))


def compress_document(document: Document, request: CompressRequest) -> Compressed:
    """Compacts a document. In the result, `messages` holds the exact bytes of kept messages, and objects for new ones."""
    return deliver(_begin_document(document, request))


async def summarise_list(
    messages: Sequence[Any],
    request: CompressRequest,
    summariser: Summariser,
    notebook: Notebook | None = None,
) -> Compressed:
    """Does what `compress_list` does, with a model that writes the handoff's prose."""
    first = await in_thread(begin, messages, request, notebook)
    return await _summarise(first, request, summariser)


async def summarise_document(
    document: Document,
    request: CompressRequest,
    summariser: Summariser,
    on_step: Callable[[str], None] | None = None,
) -> Compressed:
    """Does what `compress_document` does, with a model that writes the handoff's prose. Calls `on_step` at each step."""
    first = await asyncio.to_thread(_begin_document, document, request)
    return await _summarise(first, request, summariser, on_step)


class FirstPass(msgspec.Struct, frozen=True, eq=False):
    """An opened conversation, and its compaction without a model: the result unless a model improves on it."""

    opened: Opened
    notebook: Notebook
    result: CompactionResult
    started: float
    """The process clock at the start."""
    logged: bool = False
    """True if the messages come from a log, which needs to know how they were read."""

    def compact(self, order: CompactionOrder, prose: Prose | None = None) -> CompactionResult:
        """Compacts the opened list again."""
        with self.notebook.kept_whole():
            return compact(self.opened, order, prose)

    def trim(self, maker: WorkMaker, work: Work, room_tokens: int) -> Work:
        """Returns the work of `maker`, a maker for this list, with as many lines as the room takes."""
        with self.notebook.kept_whole():
            return maker.trim(work, room_tokens)


def begin(
    messages: Sequence[Any],
    request: CompressRequest,
    notebook: Notebook | None = None,
    raws: Sequence[bytes] | None = None,
) -> FirstPass:
    """Opens the list and compacts it without a model. `raws` are the messages' bytes, if they came as bytes."""
    started = time.perf_counter()
    book = notebook or new_notebook(request.model, request.settings)
    with book.kept_whole(), _no_collection():
        opened = open_messages(messages, request, book, raws)  # decoded, linked, repaired, weighed, read
        result = compact(opened, request.order(book))  # planned, written, assembled, checked
    return FirstPass(opened, book, result, started, logged=request.numbers is not None)


def open_messages(
    messages: Sequence[Any], request: CompressRequest, notebook: Notebook, raws: Sequence[bytes] | None = None
) -> Opened:
    """Reads the list. Raises InputError for anything but a list of messages."""
    dialect = None if request.dialect == "auto" else dialect_named(request.dialect)
    return notebook.open(list(require_list(messages)), dialect, raws, request.numbers)


def _begin_document(document: Document, request: CompressRequest) -> FirstPass:
    request = msgspec.structs.replace(request, dialect=document.dialect.name)
    return begin(document.wires, request, raws=document.raws)


async def _summarise(
    first: FirstPass,
    request: CompressRequest,
    summariser: Summariser,
    on_step: Callable[[str], None] | None = None,
) -> Compressed:
    """Compacts again with a model's prose in the handoff; delivers the first pass if no model wrote any."""
    plan = first.result.plan
    if plan is None or not plan.handoff_tokens:
        return deliver(first)
    if said := refuse_model(request.trigger, request.settings.compression, len(first.opened.came)):
        return deliver(first, reason=said)
    prose_tokens = int(plan.handoff_room * PROSE_SHARE)
    if prose_tokens < _LEAST_PROSE:
        said = f"a handoff of at most {plan.handoff_room:,} tokens has no room for a model's words"
        return deliver(first, reason=said)
    job = await in_thread(_make_job, first, plan, request, prose_tokens)
    written = await summariser.write(job, on_step)
    if written.prose is None:
        return deliver(first, written=written, outcome=DEGRADED, reason=written.reason)
    order = request.order(first.notebook)
    result = await in_thread(first.compact, order, written.prose)  # checks the prose
    return deliver(first, result, written)


def _make_job(first: FirstPass, plan: Plan, request: CompressRequest, prose_tokens: int) -> WritingJob:
    opened, book = first.opened, first.notebook
    transcript = opened.transcript
    # Messages that only came back because there was room may have to go again: the model's prose takes room, too.
    stays = plan.kept_verbatim - plan.kept_for.brought
    scope = WorkScope(plan.kept_for.request, stays, request.focus or "")
    maker = WorkMaker(transcript, scope, book.tokenizer, book.redactor)
    beside = request.beside or Beside(request.system, request.tools or ())
    came, tokens, waits = opened.came, transcript.total_tokens, bool(plan.kept_for.open)
    waits = waits or is_reasoning_item(transcript.messages[-1])
    if 0 < request.unsent < len(came) and _stay(plan, len(transcript.messages), request.unsent):
        came, waits = came[: -request.unsent], False  # an earlier request ended at this point
        tokens -= sum(transcript.tokens[-request.unsent :])
    conversation = Conversation(
        messages=to_plain(came),
        dialect=transcript.dialect.name,
        model=request.model or "",
        tokens=tokens + outside_tokens(beside.system, beside.tools, book.tokenizer),
        system=beside.system,
        tools=beside.tools,
        mark=beside.mark,
        waits=waits,
    )
    reusable = not request.refused and not opened.repairs and request.settings.model.cache_ttl != "off"
    return WritingJob(
        maker.make(prose_tokens),
        partial(first.trim, maker),
        conversation if reusable else None,
        request.memory,
        request.most_request_tokens,
    )


def _stay(plan: Plan, count: int, last: int) -> bool:
    """Returns True if the last messages, `last` of them, are all in the view, whole or shortened."""
    return all(place in plan.sizes for place in range(count - last, count))


def deliver(
    first: FirstPass, result: CompactionResult | None = None, written: Written | None = None, **changes: Any
) -> Compressed:
    """Returns the caller's result: the given one or that of the first pass, with its receipt.

    The receipt reports the model's work, `written`; `changes` sets other fields of the receipt.
    """
    result = result or first.result
    if written is not None:
        usage, cost = written.usage, written.cost
        changes |= {
            "model": written.model,
            "model_calls": written.requests,
            "model_prompt_tokens": usage.prompt_tokens,
            "model_cached_tokens": usage.cache_read_tokens,
            "model_output_tokens": usage.output_tokens,
            "cost": float(cost.usd) if isinstance(cost, Money) else None,
            "cost_note": cost.reason if isinstance(cost, Unknown) else "",
            "attempts": tuple(attempt.to_dict() for attempt in written.attempts),
            "summary_limits": msgspec.to_builtins(written.limits),
        }
    if changes:
        receipt = msgspec.structs.replace(result.receipt, **changes)
        result = msgspec.structs.replace(result, receipt=receipt)
    return Compressed(first.opened, result, time.perf_counter() - first.started, logged=first.logged)


class AddedMessage(NamedTuple):
    """A message that repair added to the input: a stub for a lost result, or an opening.

    In a log its number is 0.
    """

    number: int
    role: str
    reason: str


class Compressed:
    """A compacted conversation.

    `messages` has the dialect and shape of the input; kept messages are the caller's own objects. `receipt`
    says what was done, `sources` where each message of the result came from, and `verdicts` what became of each
    message of the input, and why.
    """

    __slots__ = (
        "_numbers",
        "_opened",
        "_origins",
        "_plan",
        "_read",
        "_removed_tokens",
        "_tokens",
        "_transcript",
        "messages",
        "receipt",
    )

    def __init__(
        self, opened: Opened, result: CompactionResult, seconds: float, *, logged: bool = False
    ) -> None:
        self.messages: list[Any] = result.encoded
        self.receipt: Receipt = msgspec.structs.replace(result.receipt, seconds=round(seconds, 6))
        self._plan = result.plan
        self._numbers = opened.transcript.numbers
        self._read = opened.transcript.messages
        self._tokens = opened.transcript.tokens
        self._origins = opened.transcript.origins
        self._transcript = opened.transcript if logged else None  # large, and only of use to a log
        self._opened = opened.opened
        self._removed_tokens = opened.removed_tokens

    def __repr__(self) -> str:
        return f"<Compressed {self.receipt.outcome}: {len(self.messages)} messages, {self.receipt.tokens_after} tokens>"

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The fate of each message of the input and the reason for it, in the order of the input."""
        if self._plan is not None:
            judged = verdicts(self._plan, self._numbers, self._tokens)
        else:
            judged = tuple(
                Verdict(place, number, Fate.KEPT, "nothing to do", tokens, tokens)
                for place, (number, tokens) in enumerate(zip(self._numbers, self._tokens, strict=True))
            )
        changed = self._opened.changed
        told = [
            Verdict(index, 0, Fate.REPAIRED, f"left out by repair: {reason}", self._removed_tokens[index], 0)
            for index, reason in self._opened.removed.items()
        ]
        for place, (one, source) in enumerate(zip(judged, self.read_sources, strict=True)):
            if source is not None:
                reason = f"{one.reason}; repaired first" if place in changed else one.reason
                told.append(msgspec.structs.replace(one, position=source, reason=reason))
        return tuple(sorted(told, key=lambda verdict: verdict.position))

    @property
    def added(self) -> tuple[AddedMessage, ...]:
        """The messages that repair added to the input, in order. They have no verdicts."""
        return tuple(
            AddedMessage(self._numbers[place], self._read[place].role.value, reason)
            for place, reason in self._opened.added.items()
        )

    @property
    def plan(self) -> Plan | None:
        """The plan that was carried out, in positions of the opened list; None if there was nothing to do."""
        return self._plan

    @property
    def transcript(self) -> Transcript | None:
        """The input as it was read and mended; None unless the caller gave numbers, as a log does."""
        return self._transcript

    @property
    def sources(self) -> tuple[int | None, ...]:
        """For each message of `messages`, its index in the input; None for a handoff and for what repair added.

        A shortened message, or one with a handoff in front of its text, has the index of the message it was made from.
        If `messages[i]` is that very object, it was kept.
        """
        if self._plan is None:
            return tuple(self.read_sources)
        return tuple(
            None if isinstance(piece, Handoff) else self.read_sources[piece.position]
            for piece in self._plan.pieces
            if not is_merged(piece)
        )

    @property
    def read_sources(self) -> Sequence[int | None]:
        """For each message of `read`, its index in the input; None for a message that was not in the input."""
        return self._opened.sources

    @property
    def originals(self) -> Iterable[tuple[int, Any]]:
        """Every message of the input with its number."""
        return zip(self._numbers, self._origins, strict=True)

    def list_others(self, known: Mapping[int, Any]) -> Iterable[tuple[int, Any]]:
        """Returns the originals but for those at the start, if they are the `known` ones and in the same order."""
        start = len(known) if self._numbers[: len(known)] == tuple(known) else 0
        return zip(self._numbers[start:], self._origins[start:], strict=True)

    @property
    def read(self) -> Sequence[tuple[int, Message]]:
        """Every message of the input as it was read, with its number; 0 for a handoff."""
        return tuple(zip(self._numbers, self._read, strict=True))

    @property
    def handles(self) -> tuple[str, ...]:
        """Every handle that `original` accepts."""
        names = tuple(
            name_message(number) for number, origin in self.originals if number and origin is not None
        )
        return (*names, HandleKind.HANDOFF.value) if self.receipt.summarised else names

    def original(self, handle: str) -> Any:
        """Returns the message that a stub stands for, exactly as the caller gave it.

        For "handoff", returns the list of all messages that the handoff stands for. Raises UnknownHandle for a
        handle that names nothing here.
        """
        asked = parse_handle(handle)
        if asked.kind is HandleKind.HANDOFF and self._plan is not None and self.receipt.summarised:
            return [origin for place, origin in enumerate(self._origins) if place not in self._plan.sizes]
        if asked.kind is HandleKind.MESSAGE:
            for known, origin in self.originals:
                if known == asked.number and origin is not None:
                    return origin
        raise UnknownHandle(
            f"there is no original {handle!r} here; handles are m1, m2 and so on, or 'handoff'"
        )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pauses the garbage collector.

    Reading makes a great many objects that stay alive, and none of them are in a cycle. The collector would walk
    over all of them again and again: a fifth of the time on a long conversation.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def new_notebook(model: str | None, settings: Settings) -> Notebook:
    """Returns an empty notebook that counts tokens as the model does and redacts as the settings say."""
    return Notebook(tokenizer_for(model), redactor_of_process(settings.redaction.detector))


def read_settings(settings: Settings | Mapping[str, Any] | None) -> Settings:
    """Returns the settings that a caller gave, as an object or by name. Raises SettingsError for a wrong one."""
    given: Any = settings
    if given is None or isinstance(given, Settings):
        return given or _DEFAULTS
    if not isinstance(given, Mapping):
        raise SettingsError(
            f'settings must be a penstock.Settings or a dict like {{"compression.threshold": 0.6}}, not a {type(given).__name__}'
        )
    return settings_from(given)
