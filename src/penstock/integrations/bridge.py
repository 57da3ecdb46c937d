"""Bridges the messages of a framework and a conversation in a store. All adapters use it.

    bridge = Bridge(translator, "langchain", {"recall_tools": True})
    conversation = bridge.open("thread 7", messages, model="gpt-5", system=prompt, tools=schemas)
    fitted = conversation.fit(messages)   # before a request
    conversation.use(usage)               # after its answer

Each message of the framework is translated once and logged. `fit` compacts if that is due and returns the list to send.
Kept messages are the framework's own objects, since every message of a view knows its place in the log; only handoffs,
stubs and messages with a handoff in front are translated back. A system prompt at the beginning of the list, if the
translator knows one, stays in front: it is not logged, and counts as part of the request beside the messages. A host may put
the returned list into its state, or continue with its own: the bridge recognises both, and also a list that another process
left in the host's checkpoint. Without a store, the log is in memory and ends with the process.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import contextmanager
from itertools import accumulate
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypedDict, TypeVar

from msgspec.structs import replace

from penstock._log import log
from penstock.context.events import Compacted, Noticed
from penstock.context.live import Context, RefusedRequest
from penstock.conversation.dialects import dialect_named
from penstock.conversation.identity import chain, content_digest
from penstock.conversation.message import Role, Summary
from penstock.conversation.view import Compaction, Handoff, Kept
from penstock.conversation.wire import encode_wire, json_text, parse_json
from penstock.engine.compress import read_settings
from penstock.engine.contract import Beside
from penstock.engine.registry import engine_named
from penstock.engine.threads import in_thread, run_sync
from penstock.errors import (
    EngineFailure,
    ErrorKind,
    PenstockError,
    ProviderError,
    StoreConflict,
    TargetTooSmall,
    UnknownSession,
)
from penstock.integrations.translators import read_text
from penstock.measure.tokens import tokenizer_for
from penstock.measure.usage import Usage, normalise_usage
from penstock.planning.pressure import Level
from penstock.providers.classify import classify_error
from penstock.recall.tools import EXPAND, limit_answer, tool_schemas
from penstock.sessions.appending import prepare_given
from penstock.sessions.rewinding import rewound_positions
from penstock.sessions.session import Session
from penstock.stores.store import open_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from penstock.context.events import ContextEvent
    from penstock.conversation.view import Piece, ViewMessage
    from penstock.engine.contract import ContextEngine
    from penstock.integrations.translators import Translator
    from penstock.planning.pressure import Notice
    from penstock.planning.receipt import Receipt
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.writing.notebook import Opened

__all__ = [
    "Bridge",
    "BridgeOptions",
    "BridgedConversation",
    "FittedMessages",
    "RecallTool",
    "trace_compaction",
    "write_options",
]

M = TypeVar("M")
T = TypeVar("T")

_NOTE = "integration"
_UNAVAILABLE = "[unavailable]"  # in the log, the text of a message that this store never got
_MOST_OPEN = 256  # conversations in memory; others are opened again when they are needed
_TRIES = 3  # while another process writes to the same conversation
_GOES_ON = "the conversation goes on as it is: %s"
_MOST_RECOVERIES = 3  # of one request
_MOST_UNAVAILABLE = 100_000  # a handoff that names more is not ours


class BridgeOptions(TypedDict, total=False):
    """The options that every adapter takes, all by name."""

    context_length: int | None
    """The window in tokens; without it, that of the model."""
    model: str
    """The name of the model, for its tokens, window and prices. Not needed if the adapter can find it out."""
    store: Store | str | None
    """A store, or its address, in which conversations outlive the process; without it they are kept in memory."""
    recall_tools: bool
    """True gives the agent tools to find and read messages that have left its view."""
    summariser: Any
    """A model that writes the prose of handoffs."""
    settings: Settings | Mapping[str, Any] | None
    """Settings as for `penstock.compress`; `context.engine` chooses the engine."""
    on_receipt: Callable[[Receipt], None]
    """Called with the receipt of each compaction."""


def write_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that can be written as JSON: without open stores, functions, and addresses with a password."""
    plain = (str, int, float, dict, type(None))
    return {name: one for name, one in options.items() if isinstance(one, plain) and "@" not in str(one)}


class FittedMessages(NamedTuple, Generic[M]):
    """The messages to send. `changed` is True if they differ from the given list; `receipt` is that of a compaction."""

    messages: list[M]
    changed: bool
    receipt: Receipt | None


class RecallTool(NamedTuple):
    """A recall tool, which an adapter turns into a tool of its framework. `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


def trace_compaction(receipt: Receipt | None, tracer: Any) -> None:
    """Writes a receipt, if there is one, as a span of an OpenTelemetry tracer."""
    if receipt is not None:
        told = receipt.to_dict().items()
        plain = {f"penstock.{name}": value for name, value in told if isinstance(value, (str, int, float))}
        tracer.start_span("penstock.compaction", attributes=plain).end()


class Bridge(Generic[M]):
    """All conversations of one adapter. Safe to share between threads."""

    def __init__(self, translator: Translator[M], app: str, options: BridgeOptions) -> None:
        store = options.get("store")
        self.translator = translator
        self.app = app
        self.options = options
        self.settings = read_settings(options.get("settings"))
        self.in_memory = store is None
        self.store = open_store(store or "memory:") if store is None or isinstance(store, str) else store
        self._open: OrderedDict[str, BridgedConversation[M]] = OrderedDict()
        self._lock = threading.Lock()

    def make_tools(self, make: Callable[[RecallTool], T]) -> list[T]:
        """Returns the tools that `make` returns for each recall tool; none without the option `recall_tools`."""
        schemas = tool_schemas() if self.options.get("recall_tools") else []
        return [make(RecallTool(**schema["function"])) for schema in schemas]

    def open(
        self,
        key: str | None,
        messages: Sequence[M] = (),
        *,
        model: str = "",
        window: int | None = None,
        system: Any = None,
        tools: Sequence[Any] | None = None,
    ) -> BridgedConversation[M]:
        """Returns the conversation with that key; without a key, the one that these messages continue, or a new one.

        An adapter that is about to send a request names the model, the model's window if the framework knows it, and the
        other parts of the request.
        """
        aside, rest = self.translator.split_system(messages)
        found = self._open_known(key, rest)
        found.name_model(model, window)
        if tools is not None:
            texts = [system] if isinstance(system, str) and system else []
            texts += [read_text(self.translator.to_wire(one)) for one in aside]
            found.surround("\n\n".join(texts) if aside else system, tools)
        return found

    def _open_known(self, key: str | None, messages: Sequence[M]) -> BridgedConversation[M]:
        with self._lock:
            found = self._open.get(key) if key else self._find_continued(messages)
            if found is None:
                found = BridgedConversation(self, key or "")
            self._open[key or f"\0{id(found)}"] = found
            self._open.move_to_end(key or f"\0{id(found)}")
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)[1].leave()
            return found

    def holds(self, key: str | None, messages: Sequence[M]) -> bool:
        """Returns True if the conversation with that key, or the one that these messages continue, is open here."""
        rest = self.translator.split_system(messages)[1]
        with self._lock:
            return key in self._open if key else self._find_continued(rest) is not None

    def _find_continued(self, messages: Sequence[M]) -> BridgedConversation[M] | None:
        nameless = (one for one in reversed(self._open.values()) if not one.key)
        return next((one for one in nameless if one.is_continued_by(messages)), None)


class BridgedConversation(Generic[M]):
    """One conversation of a framework. Its methods may be called from any thread, one after the other."""

    def __init__(self, bridge: Bridge[M], key: str) -> None:
        self.key = key
        self._bridge = bridge
        self._translator = bridge.translator
        self._lock = threading.RLock()
        self._context: Context | None = None
        self._given: list[M] = []  # the host's own list when it last asked
        self._sent: list[M] = []  # the list that we told it to send
        self._natives: dict[
            int, tuple[Any, M]
        ] = {}  # by place in the log: what was logged, and the host's object
        self._ahead: list[M] = []  # logged by `fit`, before `extend` brought them
        self._made: dict[bytes, M] = {}  # by JSON: messages of ours in the framework's own form
        self._receipt: Receipt | None = None
        self._beside = Beside()
        self._model = str(bridge.options.get("model") or "")
        self._window = bridge.options.get("context_length")
        self._refusals = 0  # since the last new message
        self._sent_tokens = 0

    @property
    def session(self) -> Session:
        """The conversation in the store."""
        return self._live().session

    @property
    def context(self) -> Context:
        """The live context of the conversation."""
        return self._live()

    # Before a request.

    def fit(self, messages: Sequence[M]) -> FittedMessages[M]:
        """Logs the new messages of the host's list, and returns the messages to send, compacted if that is due.

        Never raises errors of Penstock: if it cannot work, the list is returned unchanged, and the log says why.
        """
        return self._try(messages, self._fit)

    async def afit(self, messages: Sequence[M]) -> FittedMessages[M]:
        """Does what `fit` does without blocking the event loop."""
        return await in_thread(self.fit, messages)

    def compact(self, messages: Sequence[M], focus: str | None = None) -> FittedMessages[M]:
        """Does what `fit` does, but compacts now, on request."""
        return self._try(messages, lambda rest: self._fit(rest, focus or ""))

    async def acompact(self, messages: Sequence[M], focus: str | None = None) -> FittedMessages[M]:
        """Does what `compact` does without blocking the event loop."""
        return await in_thread(self.compact, messages, focus)

    def surround(self, system: Any, tools: Sequence[Any]) -> None:
        """Sets the other parts of requests from now on, which count against the window."""
        self._beside = Beside(system, tools)

    def send(self, messages: list[M], ask: Callable[[list[M]], T]) -> T:
        """Calls `ask` with the messages; if the provider refuses them as too long, again with fewer."""
        while True:
            try:
                return ask(messages)
            except Exception as error:  # noqa: BLE001  # raised again, unless it says: too long
                messages = self.recover(messages, error).messages

    async def asend(self, messages: list[M], ask: Callable[[list[M]], Awaitable[T]]) -> T:
        """Does what `send` does without blocking the event loop."""
        while True:
            try:
                return await ask(messages)
            except Exception as error:  # noqa: BLE001  # raised again, unless it says: too long
                messages = (await self.arecover(messages, error)).messages

    def recover(
        self, messages: Sequence[M], error: Exception, *, too_long: bool = False
    ) -> FittedMessages[M]:
        """Returns a smaller list if `error` says that the last one was too long. Raises `error` if that does not help.

        Gives up after some refusals in a row. With `too_long`, the host knows that the list was too long, whatever the error
        says.
        """
        failure = _read_failure(error, too_long=too_long)
        system, rest = self._translator.split_system(messages)
        with self._lock:
            self._refusals += 1
            fitted = None
            if failure is not None and self._refusals <= _MOST_RECOVERIES:
                fitted = self._shrink(rest, failure)
            if fitted is None or not fitted.changed:
                self._refusals = 0
                raise error
            return self._join_system(system, fitted)

    async def arecover(self, messages: Sequence[M], error: Exception) -> FittedMessages[M]:
        """Does what `recover` does without blocking the event loop."""
        return await in_thread(self.recover, messages, error)

    def _shrink(self, messages: list[M], failure: ProviderError) -> FittedMessages[M] | None:
        context = self._live()
        refused = RefusedRequest(max(self._sent_tokens, context.tokens()), None, self._refusals)
        self._receipt = None
        try:
            run_sync(context.recover(failure, refused, lambda: self._beside))
        except PenstockError as reason:
            log.warning("the request stays as it is: %s", reason)
            return None
        return self._take_view(messages)

    def _join_system(self, system: list[M], fitted: FittedMessages[M]) -> FittedMessages[M]:
        return fitted._replace(messages=self._translator.join_system(system, fitted.messages))

    def _try(self, messages: Sequence[M], work: Callable[[list[M]], FittedMessages[M]]) -> FittedMessages[M]:
        system, rest = self._translator.split_system(messages)
        with self._lock:
            for _ in range(_TRIES):
                try:
                    return self._join_system(system, work(rest))
                except StoreConflict as error:  # another process wrote to the conversation: read it again
                    self._forget()
                    failure: PenstockError = error
                except PenstockError as error:
                    failure = error
                    break
            log.warning(_GOES_ON, failure)
            return FittedMessages(list(messages), changed=False, receipt=None)

    def _fit(self, messages: list[M], focus: str | None = None) -> FittedMessages[M]:
        self._log(messages)
        context = self._live()
        self._receipt = None
        if focus is None:
            run_sync(context.fit(self._beside))
        else:
            context.weigh(self._beside)
            run_sync(_compact_by_hand(context, focus))
        return self._take_view(messages)

    def _take_view(self, messages: list[M]) -> FittedMessages[M]:
        """Returns the view as the framework's messages, and remembers the host's list and ours."""
        context = self._live()
        sent = [self._to_native(one) for one in context.messages]
        self._given, self._sent, self._sent_tokens = list(messages), list(sent), context.tokens()
        standing = {one.position for one in context.messages}
        self._natives = {place: one for place, one in self._natives.items() if place in standing}
        changed = len(sent) != len(messages) or any(a is not b for a, b in zip(sent, messages, strict=True))
        return FittedMessages(sent, changed, self._receipt)

    def _to_native(self, message: ViewMessage) -> M:
        logged = None if message.position is None else self._natives.get(message.position)
        if logged is not None and (logged[0] is message.wire or logged[0] == message.wire):
            return logged[1]
        written = encode_wire(message.wire)
        if written not in self._made:
            original = None if logged is None else logged[1]
            self._made[written] = self._translator.from_wire(message.wire, original)
        return self._made[written]

    # After a request.

    def use(self, usage: Any, *, includes_cache: bool = False) -> None:
        """Records a request's usage as the framework reports it, for the next estimate.

        With `includes_cache`, its input tokens include those read from a cache and written to it.
        """
        reported = normalise_usage(usage)
        if includes_cache:
            cached = reported.cache_read_tokens + reported.cache_write_tokens
            reported = replace(reported, input_tokens=max(0, reported.input_tokens - cached))
        with self._lock, _go_on():
            if reported.prompt_tokens:
                self._live().take_usage(reported, self._sent_tokens)

    def use_counts(
        self, prompt: int | None, output: int | None, cache_read: int | None, cache_write: int | None
    ) -> None:
        """Does what `use` does, for counts whose prompt includes the tokens read from a cache and written to it."""
        self.use(Usage(prompt or 0, output or 0, cache_read or 0, cache_write or 0), includes_cache=True)

    def name_model(self, model: str, window: int | None = None) -> None:
        """Sets the model of the conversation, and its window in tokens, if they were unknown before."""
        with self._lock, _go_on():
            self._window = self._window or window
            if not model or self._model:
                return
            self._model = model
            if self._context is not None:
                session = self._context.session
                session.store.update(session.id, model=model)
                session.refresh()
                self._context.use_model(model, self._window or session.window.tokens)

    def answer(self, tool: str, arguments: Any) -> str:
        """Returns the answer of a recall tool, as JSON."""
        with self._lock:
            context = self._live()
            tokens = limit_answer(context.engine.context_length or context.session.window.tokens)
            return context.session.handle_tool_call(tool, arguments, tokens=tokens)

    async def aanswer(self, tool: str, arguments: Any) -> str:
        """Does what `answer` does without blocking the event loop."""
        return await in_thread(self.answer, tool, arguments)

    def leave(self) -> None:
        """Releases the conversation; deletes it if there is no store."""
        with self._lock:
            if self._context is not None and self._bridge.in_memory:
                self._bridge.store.delete(self._context.session.row.conversation)
            self._forget()

    # For a host that keeps no list of its own.

    def read(self) -> list[M]:
        """Returns the list from which to continue: the view."""
        with self._lock:
            self._live().catch_up()
            return self._take_view([self._to_native(one) for one in self._live().messages]).messages

    def extend(self, messages: Sequence[M]) -> None:
        """Logs the next messages, except those that `fit` has logged already for a request."""
        with self._lock:
            self._live()
            new = list(messages)
            while new and self._ahead and self._are_equal(self._ahead[0], new[0]):
                del self._ahead[0], new[0]
            self._append(new)
            self._given += new
            self._sent += new

    def take_back(self, count: int = 1) -> list[M]:
        """Takes the last `count` messages out of the view, and returns them."""
        with self._lock:
            self.read()
            places = [one.position for one in self._live().messages]
            known = dict(self._natives)
            gone = self._live().session.rewind(count)
            self._live().reload()
            natives = [known[place][1] for place in places[-len(gone) :] if place in known] if gone else []
            self.read()
            return (
                natives
                if len(natives) == len(gone)
                else [self._translator.from_wire(one, None) for one in gone]
            )

    def clear(self) -> None:
        """Empties the view; the store keeps the messages."""
        with self._lock:
            self._live().session.clear()
            self._live().reload()
            self.read()

    def refit(self) -> FittedMessages[M]:
        """Does what `fit` does, with the host's list of the last call."""
        return self._try(self._given, self._fit)

    def _are_equal(self, one: M, other: M) -> bool:
        return (
            self._count_shared([(None, self._translator.to_wire(one))], [self._translator.to_wire(other)])
            == 1
        )

    # Recognising the host's list.

    def is_continued_by(self, messages: Sequence[M]) -> bool:
        """Returns True if the list begins with this conversation's messages at the last call."""
        return bool(self._sent) and any(
            len(known) <= len(messages) and all(map(_are_same, known, messages))
            for known in (self._sent, self._given)
        )

    def _log(self, messages: list[M]) -> None:
        """Logs the messages that the conversation does not have. First takes back those in which the list differs."""
        for known in (self._sent, self._given):
            if known and len(known) <= len(messages) and all(map(_are_same, known, messages)):
                self._append(messages[len(known) :])
                self._ahead += messages[len(known) :]
                return
        wires = [parse_json(encode_wire(self._translator.to_wire(one))) for one in messages]
        if self._context is None:
            self._context = self._resume() if self.key else self._find_stored(wires)
        if self._context is not None:
            for standing in (self._read_view(), self._read_log()):
                if self._follow(standing, messages, wires):
                    return
            if self.key and self._go_back(messages, wires):
                return
        self._context = self._begin()
        self._hold(_adopt(self._context, wires), messages)

    def _append(self, messages: Sequence[M], wires: Sequence[Any] | None = None) -> None:
        if messages:
            self._refusals = 0
            context = self._live()
            context.append(list(map(self._translator.to_wire, messages)) if wires is None else wires)
            for native, logged in zip(messages, context.messages[-len(messages) :], strict=True):
                self._natives[logged.position or 0] = (logged.wire, native)

    def _follow(self, standing: list[tuple[int | None, Any]], messages: list[M], wires: list[Any]) -> bool:
        """Logs the rest of a list that begins with all of these; returns False for any other list."""
        if len(standing) > len(wires) or self._count_shared(standing, wires) < len(standing):
            return False
        self._hold(standing, messages)
        self._append(messages[len(standing) :], wires[len(standing) :])
        return True

    def _go_back(self, messages: list[M], wires: list[Any]) -> bool:
        """Takes back what the host took back; returns False if its list has nothing in common with the conversation."""
        for standing in (self._read_view(), self._read_log()):
            shared = self._count_shared(standing, wires)
            last = next((place for place, _ in reversed(standing[:shared]) if place is not None), None)
            if last is None:
                continue
            context = self._live()
            later = sum(1 for place, _ in self._read_log() if place is not None and place > last)
            if later:
                context.session.rewind(later)
                context.reload()
            if any(self._follow(one, messages, wires) for one in (self._read_view(), self._read_log())):
                return True
        return False

    def _count_shared(self, standing: Sequence[tuple[int | None, Any]], wires: Sequence[Any]) -> int:
        """Returns how many messages at the start have the same content; ids and marks are not content."""
        dialect = dialect_named(self._translator.dialect)
        pairs = zip((wire for _, wire in standing), wires, strict=False)
        for place, (one, other) in enumerate(pairs):
            if one != other and content_digest(dialect.decode(one)) != content_digest(dialect.decode(other)):
                return place
        return min(len(standing), len(wires))

    def _hold(self, standing: Sequence[tuple[int | None, Any]], messages: Sequence[M]) -> None:
        """Remembers the host's objects by their places in the log, and objects of our own messages by their JSON."""
        for (place, wire), native in zip(standing, messages, strict=False):
            if place is None:
                self._made[encode_wire(wire)] = native
            else:
                self._natives[place] = (wire, native)

    def _read_view(self) -> list[tuple[int | None, Any]]:
        view = self._live().session.workings.read_view_base().view
        return list(zip(view.positions, view.wires, strict=True))

    def _read_log(self) -> list[tuple[int | None, Any]]:
        session = self._live().session
        gone = rewound_positions(session.store, session.id)
        entries = session.store.read_from(session.id, 0)
        return [(one.position, parse_json(one.raw)) for one in entries if one.position not in gone]

    # The conversation in the store.

    def _live(self) -> Context:
        if self._context is None:
            self._context = self._resume() or self._begin()
        return self._context

    def _forget(self) -> None:
        self._context, self._given, self._sent = None, [], []
        self._natives.clear()
        self._made.clear()

    def _resume(self) -> Context | None:
        """Returns the context of the conversation in the store; None if it is not there."""
        noted = self._bridge.store.note(_NOTE, self._note_key) if self.key else None
        return None if noted is None else self._open_session(noted.decode())

    def _find_stored(self, wires: Sequence[Any]) -> Context | None:
        """Returns the context of this adapter's stored conversation that the list continues, judging by the content."""
        if self._bridge.in_memory or not wires:
            return None
        new = prepare_given(
            wires, dialect_named(self._translator.dialect), tokenizer_for(self._model or None)
        ).new
        ids = list(accumulate((one.digest for one in new), chain, initial=""))[1:]
        known = self._bridge.store.find_known_prefix(ids)
        if known is None:
            return None
        conversation = self._bridge.store.session(known[0]).conversation
        if self._bridge.store.note(_NOTE, conversation) is None:  # it belongs to another program
            return None
        return self._open_session(known[0])

    def _open_session(self, session_id: str) -> Context | None:
        try:
            session = Session.resume(self._bridge.store, session_id, self._bridge.settings)
        except UnknownSession:  # deleted since
            return None
        return self._make_context(session)

    def _begin(self) -> Context:
        self._forget()
        session = Session.create(
            self._bridge.store,
            model=self._model,
            dialect=self._translator.dialect,
            title=self._bridge.app if not self.key else f"{self._bridge.app} {self.key}",
            settings=self._bridge.settings,
        )
        self._bridge.store.put_note(
            _NOTE, self._note_key if self.key else session.row.conversation, session.id.encode()
        )
        return self._make_context(session)

    @property
    def _note_key(self) -> str:
        return f"{self._bridge.app}\n{self.key}"

    def _make_context(self, session: Session) -> Context:
        options, settings = self._bridge.options, self._bridge.settings
        if options.get("recall_tools"):
            session.recall_tool = EXPAND
        window = self._window or session.window.tokens
        engine: ContextEngine = engine_named(
            settings.context.engine,
            settings,
            context_length=window,
            model=session.row.model or None,
            summariser=options.get("summariser"),
            on_notice=_log_notice,
            store=self._bridge.store,
        )
        engine.update_model(session.row.model, window)
        engine.on_session_start(session.id, model=session.row.model)
        context = Context(session, engine, self._hear)
        context.prepares = False
        return context

    def _hear(self, event: ContextEvent) -> None:
        if isinstance(event, Compacted):
            self._receipt = event.receipt
            if (tell := self._bridge.options.get("on_receipt")) is not None:
                tell(event.receipt)
        elif isinstance(event, Noticed) and event.level != "log":
            log.warning("%s", event.text)


def _log_notice(notice: Notice) -> None:
    """Logs a notice. A window that is filling up is routine, since a compaction follows by itself; a full one is not."""
    log.log(WARNING if notice.level is Level.EMERGENCY else INFO, "%s", notice.text)


def _adopt(context: Context, wires: Sequence[Any]) -> list[tuple[int | None, Any]]:
    """Logs a whole list, and returns the place of each message in the log.

    A list that an earlier process compacted begins with its handoff, which names messages by their numbers. These messages
    are gone, but they keep their numbers: the log says of each that it is unavailable.
    """
    workings = context.session.workings
    dialect = dialect_named(context.session.row.dialect)
    with workings.notebook.kept_whole():
        numbers = _read_numbers(workings.notebook.open(list(wires), dialect)) if wires else {}
    length = max(numbers.values(), default=0)
    if length <= len(numbers) or length > len(wires) + _MOST_UNAVAILABLE:
        context.append(wires)
        return list(enumerate(wires))
    logged = [dialect.text_message(Role.USER, _UNAVAILABLE)] * length
    for index, number in numbers.items():
        if number:
            logged[number - 1] = wires[index]
    context.append(logged)
    covers = tuple(sorted(set(range(length)) - {number - 1 for number in numbers.values()}))
    pieces: list[Piece] = []
    for index, number in sorted(numbers.items()):
        if number:
            pieces.append(Kept(number - 1))
        else:
            pieces.append(Handoff(Summary(_UNAVAILABLE, 1), covers, written=json_text(wires[index])))
            covers = ()
    base = workings.read_view_base()
    tokens = workings.weigh(wires)
    receipt = {"adopted": len(wires), "tokens_before": tokens, "tokens_after": tokens}
    workings.record(base, Compaction(base.tip.id, base.tip.length, tuple(pieces)), receipt)
    context.reload()
    places = {index: number - 1 for index, number in numbers.items() if number}
    return [(places.get(index), wire) for index, wire in enumerate(wires)]


def _read_numbers(opened: Opened) -> dict[int, int]:
    """Returns the number of each message of the list, by index; 0 for a handoff that is a message of its own."""
    pairs = zip(opened.sources, opened.transcript.numbers, strict=True)
    numbers: dict[int, int] = {}
    for source, number in pairs:
        if source is not None:
            numbers[source] = max(number, numbers.get(source, 0))
    return numbers


@contextmanager
def _go_on() -> Iterator[None]:
    """Lets an agent continue after a failure of its context engine, which the log reports."""
    try:
        yield
    except PenstockError as error:
        log.warning(_GOES_ON, error)


async def _compact_by_hand(context: Context, focus: str) -> None:
    try:
        await context.compact_by_hand(focus or None)
    except (EngineFailure, TargetTooSmall) as error:
        log.warning("%s; the conversation goes on as it is", error)


def _read_failure(error: Exception, *, too_long: bool) -> ProviderError | None:
    """Returns an SDK's error if it says, or the host knows, that the request was too long."""
    status, body = getattr(error, "status_code", None), getattr(error, "body", None)
    failure = classify_error(status if isinstance(status, int) else None, body or str(error))
    if failure.kind not in (ErrorKind.PROMPT_TOO_LONG, ErrorKind.PAYLOAD_TOO_LARGE):
        if not too_long:
            return None
        failure = failure._replace(kind=ErrorKind.PROMPT_TOO_LONG)
    return ProviderError(str(error), failure=failure)


def _are_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))
