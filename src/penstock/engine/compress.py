"""`compress`: a conversation in, a smaller legal one out, with a receipt and every original at hand."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from penstock.config import cache_folder, own_secrets
from penstock.conversation.dialects import detect, dialect_named
from penstock.conversation.rules import is_reasoning_item
from penstock.conversation.wire import json_text
from penstock.engine.attempt import Conversation, WriterMemory, WritingJob
from penstock.engine.compressed import Compressed
from penstock.engine.summariser import summariser_of
from penstock.engine.threads import in_thread
from penstock.errors import InputError, SettingsError
from penstock.lossless.outline import NodeTexts  # noqa: TC001 - a struct's field types are read at run time
from penstock.measure.prices import Money, Unknown
from penstock.measure.tokens import tokenizer_for
from penstock.measure.weigh import MESSAGE_FRAME, tools_tokens
from penstock.measure.windows import resolve_window
from penstock.planning.compact import CompactionResult, Goal, compact
from penstock.planning.plan import Wishes
from penstock.planning.receipt import DEGRADED
from penstock.redaction import Redactor
from penstock.redaction.kingfisher import kingfisher
from penstock.settings import Settings, settings_from
from penstock.writing.notebook import Notebook, Opened
from penstock.writing.sections import PROSE_SHARE
from penstock.writing.work import WorkMaker

if TYPE_CHECKING:
    from penstock.conversation.document import Document
    from penstock.engine.summariser import Summariser, Written
    from penstock.measure.tokens import Tokenizer
    from penstock.planning.plan import Plan
    from penstock.writing.prose import Prose

__all__ = [
    "Begun",
    "CompressRequest",
    "acompress",
    "begin_list",
    "compacted",
    "compress",
    "compress_document",
    "compress_list",
    "finished",
    "new_notebook",
    "noted",
    "redactor_of_process",
    "run_sync",
    "summarise_document",
    "summarise_list",
    "wishes_of",
]

_T = TypeVar("_T")
_Opening: TypeAlias = "tuple[Notebook, Callable[[], Opened]]"
_LEAST_PROSE = 80  # tokens


class CompressRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What `compress` was asked for, beside the messages. `recall_tool` reads originals, where the agent has such a tool."""

    target_tokens: int | None = None
    context_length: int | None = None
    model: str | None = None
    tools: Sequence[Any] | None = None
    system: Any = None
    focus: str | None = None
    dialect: str = "auto"
    settings: Settings = Settings()
    pins: frozenset[int] = frozenset()
    numbers: Sequence[int] | None = None  # of the messages given, where they are not to be counted
    memory: WriterMemory = WriterMemory()
    recall_tool: str | None = None
    nodes: NodeTexts | None = None  # makes the handoff an outline

    def __post_init__(self) -> None:
        """Raises SettingsError for a value that cannot be meant."""
        numbers: dict[str, Any] = {"target_tokens": self.target_tokens, "context_length": self.context_length}
        for name, value in numbers.items():
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise SettingsError(f"{name} is {value!r}; give a whole number of tokens, at least 1")
        texts: dict[str, Any] = {"model": self.model, "focus": self.focus, "dialect": self.dialect}
        for name, value in texts.items():
            if value is not None and not isinstance(value, str):
                raise SettingsError(f"{name} is {value!r}; give a text")

    def goal(self, tokenizer: Tokenizer) -> Goal:
        """The target or window to aim at."""
        configured = self.context_length or self.settings.model.window_of(self.model or "")
        window = configured if configured is not None else resolve_window(self.model).tokens
        outside = tools_tokens(self.tools, tokenizer) + _system_tokens(self.system, tokenizer)
        return Goal(self.target_tokens, window, outside)


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
    """Compress a conversation given as a list of wire messages (OpenAI Chat or Responses, Anthropic, ShareGPT).

    `target_tokens` bounds the whole returned list. Without it the target follows from `context_length`, else
    from the model's window. `tools` and `system` are what the request holds beside the list. `focus` is a topic
    to keep in more detail. The input is never mutated.

    `summariser` has a model write the prose of the handoff: a `Summariser`, a model, or a function from a prompt to
    a text. Whatever it does, every message stays reachable: where it fails, the receipt says `degraded`.

    Raises InputError for what is not a conversation, TargetTooSmall where what may not be dropped does not fit,
    SettingsError for a wrong setting; all are PenstockError.
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
    """As `compress`, without blocking the event loop. Cancelling it stops a model that is being asked."""
    request = CompressRequest(
        target_tokens=target_tokens,
        context_length=context_length,
        model=model,
        tools=tools,
        system=system,
        focus=focus,
        dialect=dialect,
        settings=_settings(settings),
    )
    if summariser is None:
        return await asyncio.to_thread(compress_list, messages, request)
    return await summarise_list(messages, request, summariser_of(summariser))


def compress_list(
    messages: Sequence[Any], request: CompressRequest, notebook: Notebook | None = None
) -> Compressed:
    """One compaction of a list of wire objects. A notebook makes a later one of the same conversation cheap."""
    return finished(begin_list(messages, request, notebook))


def begin_list(messages: Sequence[Any], request: CompressRequest, notebook: Notebook | None = None) -> Begun:
    """The list opened, and compacted without a model: what a compaction with one begins with."""
    return _begun(_listed(messages, request, notebook), request)


def compress_document(document: Document, request: CompressRequest) -> Compressed:
    """One compaction of a document: `messages` of the result are the exact bytes of what was kept, and new objects."""
    return finished(_begun(_documented(document, request), request))


async def summarise_list(
    messages: Sequence[Any],
    request: CompressRequest,
    summariser: Summariser,
    notebook: Notebook | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Compressed:
    """As `compress_list`, with a model that writes the prose of the handoff. Says to `on_step` what it does."""
    begun = await in_thread(begin_list, messages, request, notebook)
    return await _with_model(begun, request, summariser, on_step)


async def summarise_document(
    document: Document,
    request: CompressRequest,
    summariser: Summariser,
    on_step: Callable[[str], None] | None = None,
) -> Compressed:
    """As `compress_document`, with a model that writes the prose of the handoff."""
    begun = await asyncio.to_thread(lambda: _begun(_documented(document, request), request))
    return await _with_model(begun, request, summariser, on_step)


class Begun(msgspec.Struct, frozen=True, eq=False):
    """A conversation that was opened, and its compaction without a model."""

    opened: Opened
    book: Notebook
    result: CompactionResult
    started: float
    logged: bool = False


def _listed(messages: Sequence[Any], request: CompressRequest, notebook: Notebook | None) -> _Opening:
    if isinstance(messages, (str, bytes, Mapping)):
        raise InputError("messages must be a list of message objects, not one object or text")
    wires = list(messages)
    dialect = detect(wires) if request.dialect == "auto" else dialect_named(request.dialect)
    book = notebook or new_notebook(request.model, request.settings)
    return book, lambda: book.open(wires, dialect, numbers=request.numbers)


def _documented(document: Document, request: CompressRequest) -> _Opening:
    book = new_notebook(request.model, request.settings)
    return book, lambda: book.open(document.wires, document.dialect, document.raws)


def _begun(opening: _Opening, request: CompressRequest) -> Begun:
    started = time.perf_counter()
    book, open_it = opening
    with _no_collection():
        opened = open_it()
        result = compacted(opened, request, book)
    return Begun(opened, book, result, started, logged=request.numbers is not None)


def finished(begun: Begun) -> Compressed:
    """What callers get."""
    seconds = time.perf_counter() - begun.started
    return Compressed(begun.opened, begun.result, seconds, logged=begun.logged)


async def _with_model(
    begun: Begun, request: CompressRequest, summariser: Summariser, on_step: Callable[[str], None] | None
) -> Compressed:
    """The compaction with a model's prose in its handoff, or the one without where there is none to be had."""
    plan = begun.result.plan
    if plan is None or not plan.handoff_tokens:
        return finished(begun)
    prose_tokens = int(plan.handoff_room * PROSE_SHARE)
    if prose_tokens < _LEAST_PROSE:
        said = f"a handoff of at most {plan.handoff_room:,} tokens has no room for a model's words"
        return finished(noted(begun, begun.result, reason=said))
    job = await in_thread(_job, begun, plan, request, prose_tokens)
    written = await summariser.write(job, on_step)
    if written.prose is None:
        return finished(noted(begun, begun.result, written, outcome=DEGRADED, reason=written.reason))
    result = await in_thread(compacted, begun.opened, request, begun.book, written.prose)
    return finished(noted(begun, result, written))


def _job(begun: Begun, plan: Plan, request: CompressRequest, prose_tokens: int) -> WritingJob:
    opened, book = begun.opened, begun.book
    transcript = opened.transcript
    maker = WorkMaker.of_plan(transcript, plan, wishes_of(request), book.tokenizer, book.redactor)
    outside = request.goal(book.tokenizer).outside_tokens
    conversation = Conversation(
        messages=opened.came,
        dialect=transcript.dialect.name,
        model=request.model or "",
        tokens=transcript.total_tokens + outside,
        system=request.system,
        tools=request.tools or (),
        waits=bool(plan.standing.open) or is_reasoning_item(transcript.messages[-1]),
    )
    reusable = not opened.repairs and request.settings.model.cache_ttl != "off"
    return WritingJob(
        maker.work(prose_tokens), maker.trimmed, conversation if reusable else None, request.memory
    )


def noted(begun: Begun, result: CompactionResult, written: Written | None = None, **changes: Any) -> Begun:
    """With what the model did, in the receipt."""
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
    receipt = msgspec.structs.replace(result.receipt, **changes)
    return msgspec.structs.replace(begun, result=msgspec.structs.replace(result, receipt=receipt))


def compacted(
    opened: Opened, request: CompressRequest, book: Notebook, prose: Prose | None = None
) -> CompactionResult:
    """One compaction of an opened conversation, as the request says."""
    return compact(
        opened,
        request.goal(book.tokenizer),
        wishes_of(request),
        request.settings.compression,
        tokenizer=book.tokenizer,
        redactor=book.redactor,
        prose=prose,
        nodes=request.nodes,
    )


def wishes_of(request: CompressRequest) -> Wishes:
    """What the planner is told of the request."""
    return Wishes(focus=request.focus or "", pins=request.pins, recall_tool=request.recall_tool)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection meanwhile.

    Reading makes very many objects that stay, and none that are in a cycle. The collector would walk over all
    of them again and again: a fifth of the time on a long conversation.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def new_notebook(model: str | None, settings: Settings) -> Notebook:
    """An empty notebook that counts as the model does and redacts as the settings say."""
    return Notebook(tokenizer_for(model), redactor_of_process(settings.redaction.detector))


@lru_cache(maxsize=2)
def redactor_of_process(detector: str = "own") -> Redactor:
    """The redactor that also knows the values of this process's own secret variables.

    "kingfisher" adds that detector's rules, which take a moment to load, less when they were loaded before on
    this machine. Raises SettingsError where it is not installed.
    """
    detectors = [kingfisher(str(cache_folder() / "kingfisher"))] if detector == "kingfisher" else []
    return Redactor(own_secrets(), detectors=detectors)


def _settings(settings: Settings | Mapping[str, Any] | None) -> Settings:
    if isinstance(settings, Settings):
        return settings
    return settings_from(settings) if settings is not None else Settings()


def _system_tokens(system: Any, tokenizer: Tokenizer) -> int:
    if not system:
        return 0
    return tokenizer.count(system if isinstance(system, str) else json_text(system)) + MESSAGE_FRAME


def run_sync(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of the coroutine, from sync code: also where an event loop already runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result()
