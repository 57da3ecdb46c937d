"""A conversation in a store: append, view, compact, rewind, undo, pin, search.

    store = penstock.open_store("sqlite:///work.db")
    session = penstock.Session.create(store, model="gpt-4.1")
    session.append([{"role": "user", "content": "…"}])
    session.view()                     # the messages to send to the model
    session.compact(target_tokens=20_000)
    session.search("the port of the staging database")
    session.original("m14")

The log only grows. A compaction is one more record, and so is a rewind: both can be undone. A compaction is made from
the view, and committed only if no other process has committed one meanwhile. Messages that arrive while it is being made
follow it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from penstock.conversation.dialects import dialect_named
from penstock.conversation.handles import (
    HandleKind,
    explain_range,
    name_message,
    parse_handle,
    parse_message_handle,
)
from penstock.conversation.view import Compaction
from penstock.conversation.wire import parse_json
from penstock.engine.attempt import WriterMemory
from penstock.engine.compress import CompressRequest, compress_list, read_settings, summarise_list
from penstock.engine.learned import notes_for
from penstock.engine.summariser import summariser_of
from penstock.engine.threads import in_thread, run_sync
from penstock.errors import SettingsError, UnknownHandle
from penstock.measure.usage import Usage, normalise_usage
from penstock.planning.policy import Trigger
from penstock.recall.ranking import Wish
from penstock.recall.tools import Budget, answer, tool_schemas
from penstock.sessions.branches import branch_off
from penstock.sessions.metering import TURN_TASK, price_request
from penstock.sessions.pins import stands_whole
from penstock.sessions.quality import measure_qualities, read_receipt
from penstock.sessions.results import READ_FILE
from penstock.sessions.retention import honour_retention
from penstock.sessions.rewinding import describe_rewind, find_standing_pins, rewind_view, rewound_positions
from penstock.sessions.stored_view import read_view
from penstock.sessions.workings import Workings, new_session_id
from penstock.stores.store import require_store
from penstock.stores.values import BRANCH, SUBAGENT, NewSession
from penstock.writing.entities import EVERYTHING, match_entities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.engine.compress import Compressed
    from penstock.engine.summariser import Summariser
    from penstock.errors import ErrorClass
    from penstock.measure.windows import Window
    from penstock.planning.receipt import Receipt
    from penstock.recall.history import Finding, History
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import LogEntry, SessionRow, UsageRow
    from penstock.writing.entities import EntityState

__all__ = ["Session"]


class Session:
    """One conversation in a store, at its tip. Not safe to share between threads, unlike the store.

    Handles are message numbers: `m1` is the first message of the log. The setting `context.engine` chooses the engine that
    compacts the view; whatever other engines have kept of the conversation can still be read.

    A host may set three attributes. `tool_limits`: for single tools, the number of characters above which `keep_results`
    stores a result, or None for never. `recall_tool`: the tool with which the agent reads originals (`history_expand`);
    stubs, previews and handoffs then name it. `endpoint`: the address of the session's model; what Penstock learns of a
    model is kept by model and address. `workings` is for hosts inside this package and may change at any time.
    """

    def __init__(
        self, store: Store, row: SessionRow, settings: Settings | Mapping[str, Any] | None = None
    ) -> None:
        self.store = store
        self.settings = read_settings(settings)
        self.endpoint = ""
        self.tool_limits: dict[str, int | None] = {READ_FILE: None}
        self.recall_tool: str | None = None
        self.workings = Workings(self, row)

    @classmethod
    def create(
        cls,
        store: Store,
        *,
        model: str = "",
        dialect: str = "chat",
        title: str = "",
        settings: Settings | Mapping[str, Any] | None = None,
    ) -> Self:
        """Returns a new conversation. First deletes those that have expired (`store.retention_days`)."""
        dialect_named(dialect)
        honour_retention(require_store(store), read_settings(settings), time.time())
        new = NewSession(id=new_session_id(), at=time.time(), dialect=dialect, model=model, title=title)
        return cls(store, store.create(new), settings)

    @classmethod
    def resume(
        cls, store: Store, session_id: str, settings: Settings | Mapping[str, Any] | None = None
    ) -> Self:
        """Returns the conversation of a session, at its tip. Raises UnknownSession, also for an expired one."""
        honour_retention(require_store(store), read_settings(settings), time.time())
        return cls(store, store.tip(str(session_id)), settings)

    @property
    def id(self) -> str:
        """The session's id; a compaction opens a continuation with another one."""
        return self.workings.row.id

    @property
    def row(self) -> SessionRow:
        """The session as the store knows it: title, model, dialect, times."""
        return self.workings.row

    def __len__(self) -> int:
        return self.workings.tip.length

    def __bool__(self) -> bool:
        return True  # even while it has no messages

    def __repr__(self) -> str:
        return f"<Session {self.id}: {len(self):,} messages, {self.row.dialect}, in {self.store.url}>"

    def append(self, messages: Sequence[Any], *, keep_results: bool = False) -> list[str]:
        """Appends messages to the log and returns their handles. JSON is kept byte for byte; objects are encoded.

        With `keep_results`, tool results that are too large go to the store, and previews take their place: see
        `keep_results`. Durable when it returns. Raises InputError for anything but a message of the dialect, and
        StoreConflict if another process has appended meanwhile (call `refresh`, look at what is new, and append again).
        """
        prepared = self.workings.prepare(messages, keep_results=keep_results)
        logged = self.workings.log_prepared(prepared)
        return [
            name_message(position + 1) for message in logged if (position := message.position) is not None
        ]

    def keep_results(self, messages: Sequence[Any]) -> list[Any]:
        """Moves large tool results to the store; returns the messages to append and send.

        Replaces a result over `tools.result_chars` (less for a small window; `tool_limits` has the limits of single
        tools), and the largest of a turn with more than `tools.turn_chars`, by its beginning, its size and a handle.
        `original` returns the whole result for the handle. All other messages are the caller's own objects.
        """
        return self.workings.keep_results(messages)

    def refresh(self) -> None:
        """Reads what other processes have written to the conversation."""
        self.workings.refresh()

    def view(self) -> list[Any]:
        """Returns the messages to send to the model: the newest compaction's view and everything logged after it.

        The view is sound even if a killed process has left a broken log: a call that never got its result has a stub,
        and a result without a call is left out. Calls at the very end may still be running and stay as they are.
        """
        return [message.wire for message in self.workings.read_view_base().view.mend()]

    def view_bytes(self) -> list[bytes]:
        """Returns the messages of `view` as JSON. Kept messages have the exact bytes that were appended.

        A message that was appended as an object has the bytes of its log entry, which never change; so do our own handoffs
        and stubs. Therefore a provider's cache of the conversation stays valid.
        """
        return [message.raw for message in self.workings.read_view_base().view.mend()]

    def compact(  # noqa: PLR0913  # all by name
        self,
        *,
        target_tokens: int | None = None,
        context_length: int | None = None,
        tools: Sequence[Any] | None = None,
        system: Any = None,
        focus: str | None = None,
        summariser: Any = None,
        trigger: Trigger = Trigger.MANUAL,
    ) -> Compressed:
        """Compacts the view and commits it, unless there is nothing to do. `trigger` is the occasion.

        Raises what `penstock.compress` raises, and StoreConflict if another process has compacted the same view
        meanwhile: that compaction stands, and this one is discarded.
        """
        return run_sync(
            self.acompact(
                target_tokens=target_tokens,
                context_length=context_length,
                tools=tools,
                system=system,
                focus=focus,
                summariser=summariser,
                trigger=trigger,
            )
        )

    async def acompact(  # noqa: PLR0913  # all by name
        self,
        *,
        target_tokens: int | None = None,
        context_length: int | None = None,
        tools: Sequence[Any] | None = None,
        system: Any = None,
        focus: str | None = None,
        summariser: Any = None,
        trigger: Trigger = Trigger.MANUAL,
    ) -> Compressed:
        """Does what `compact` does without blocking the event loop. If it is cancelled, nothing is committed."""
        base = await in_thread(self.workings.read_view_base, with_pins=True)
        request = CompressRequest(
            target_tokens=target_tokens,
            context_length=context_length or max(1, self.workings.count_reported(self.window.tokens)),
            model=self.row.model or None,
            tools=tools,
            system=system,
            focus=focus,
            trigger=trigger,
            dialect=self.row.dialect,
            settings=self.settings,
            recall_tool=self.recall_tool,
            pins=frozenset(position + 1 for position in find_standing_pins(self.store, self.id)),
            numbers=base.view.numbers,
            memory=WriterMemory(
                notes_for(self.store, self.id, self.workings.notebook.redactor.redact),
                self.workings.meter.learned,
                self.workings.book_summary,
            ),
        )
        writer = None if summariser is None else summariser_of(summariser)
        result = await self._compact_list(base.view.wires, request, writer)
        await in_thread(self.workings.commit, base, result, None, trigger)
        return result

    async def _compact_list(
        self, wires: Sequence[Any], request: CompressRequest, writer: Summariser | None
    ) -> Compressed:
        own = self.workings.compactors.get(self.settings.context.engine)
        if own is not None:
            return await own.compact(wires, request, self.workings.notebook, writer)
        if writer is None:
            return await in_thread(compress_list, wires, request, self.workings.notebook)
        return await summarise_list(wires, request, writer, self.workings.notebook)

    def rewind(self, n: int = 1) -> list[Any]:
        """Takes the last `n` messages out of the view, or all if there are fewer; returns them in order.

        The log keeps them, and `undo` brings them back. If the newest compaction summarised some of them, the view goes
        back to the one before that compaction. A call whose result is taken out stays at the end of the view, open.
        Raises StoreConflict if another process has compacted the view meanwhile.
        """
        count: Any = n
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise SettingsError(f"n is {count!r}; give the number of messages to take back, at least 1")
        base = self.workings.read_view_base()
        records = [row.compaction for row in self.store.compactions(self.id)]
        rewound = rewind_view(records, base.tip.length, count, rewound_positions(self.store, self.id))
        if not rewound.gone:
            return []
        compaction = Compaction(base.tip.id, base.tip.length, rewound.pieces)
        after = read_view(self.store, self.row, compaction, base.tip.length)
        receipt = {
            **describe_rewind(rewound),
            "tokens_before": self.workings.weigh(base.view.wires),
            "tokens_after": self.workings.weigh(after.wires),
        }
        gone = [parse_json(entry.raw) for entry in self.store.read(self.id, rewound.gone)]
        self.workings.record(base, compaction, receipt)
        return gone

    def clear(self) -> None:
        """Empties the view: the model sees only what comes next. The log keeps everything; `undo` restores the view."""
        self.rewind(max(1, len(self)))

    def undo(self) -> bool:
        """Undoes the newest compaction, rewind or clearing; returns False if there is none."""
        self.workings.meter.forget_report()
        undone = self.store.undo(self.id, time.time())
        if undone is not None:
            self.workings.view_key = undone.over
        return undone is not None

    def receipts(self) -> list[Receipt]:
        """Returns the receipts of the compactions in force, oldest first, each with the quality that later turns showed.

        Leaves out receipts that another version of Penstock wrote in another form.
        """
        qualities = measure_qualities(self.store, self.id)
        found = [read_receipt(row.receipt, qualities[row.key]) for row in self.store.compactions(self.id)]
        return [receipt for receipt in found if receipt is not None]

    def branch(self, upto: str | None = None, *, title: str = "") -> Session:
        """Returns a new conversation that shares this one's log up to a handle, or all of it.

        It begins with the view that this one had at that point: compactions and pins within the shared part come along.
        """
        length = len(self) if upto is None else parse_message_handle(upto)
        new = NewSession(
            id=new_session_id(),
            at=time.time(),
            dialect=self.row.dialect,
            model=self.row.model,
            title=title,
            kind=BRANCH,
        )
        return Session(
            self.store, branch_off(self.store, self.row, length, new, new_session_id()), self.settings
        )

    def sub_agent(self, *, model: str = "", dialect: str = "", title: str = "") -> Session:
        """Returns a new conversation for a sub-agent that works for this one: no list shows it, and it is deleted with it.

        It has this one's model and dialect unless the caller names others.
        """
        new = NewSession(
            id=new_session_id(),
            at=time.time(),
            dialect=dialect_named(dialect or self.row.dialect).name,
            model=model or self.row.model,
            title=title,
            kind=SUBAGENT,
        )
        return Session(self.store, self.store.branch(self.id, 0, new), self.settings)

    def pin(self, handle: str) -> bool:
        """Keeps the message whole in every later compaction, with the call or the results that belong to it.

        Returns False if it was shortened or summarised before: then it comes back whole with the next compaction.
        """
        position = self._position(handle)
        self.store.pin(self.id, position)
        newest = self.store.newest_compaction(self.id)
        return stands_whole(newest.compaction if newest is not None else None, position)

    def unpin(self, handle: str) -> None:
        """Lets compactions shorten and summarise the message again."""
        self.store.pin(self.id, self._position(handle), pinned=False)

    def original(self, handle: str) -> Any:
        """Returns the message with that handle, as it was appended, or the text of a stored result, a summary or a node.

        For "handoff", returns the list of all messages that the view's handoff stands for. Raises UnknownHandle.
        """
        kind = parse_handle(handle).kind
        if kind is HandleKind.HANDOFF:
            return [parse_json(entry.raw) for entry in self.workings.own_history().read_covered()]
        if kind in (HandleKind.RESULT, HandleKind.SUMMARY, HandleKind.NODE):
            return self.history.text(handle)
        return parse_json(self._entry(handle).raw)

    def search(self, query: str, *, hits: int = 10, characters: int = 1_200) -> list[Finding]:
        """Returns the best findings in the log, its summaries and its stored results; leaves out messages in the view.

        `query` may be a few words, or the live request with the text before it. Excerpts are redacted.
        """
        return list(self.history.search(query, Wish(hits=hits, characters=characters)))

    def entities(self, name: str = EVERYTHING) -> list[EntityState]:
        """Returns the last known state of the files, commands, records and people that a name refers to, newest first.

        `name` is a path or the end of one, a command or some of its words, an id, a person, or a kind such as "file"; by
        default, everything. Each comes with its last state and the handle of the message that says so. Texts are redacted.
        """
        return match_entities(self.workings.own_history().entities(), name)

    @property
    def history(self) -> History:
        """The whole conversation, for searching, and for reading by handle."""
        newest = self.store.newest_compaction(self.id)
        history: History = self.workings.own_history()
        for compactor in self.workings.compactors.values():
            history = compactor.history(history, self.workings.notebook.tokenizer.count, newest)
        return history

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Returns the schemas of the recall tools, in OpenAI's format, for the requests of an agent."""
        return tool_schemas()

    def handle_tool_call(self, name: str, args: Any, *, tokens: int = 4_000) -> str:
        """Returns a recall tool's answer as JSON of at most `tokens` tokens, whatever arguments the model sent."""
        budget = Budget(self.workings.notebook.tokenizer.count, tokens)
        return answer(self.history, name, args, budget, redact=self.workings.notebook.redactor.redact)

    @property
    def window(self) -> Window:
        """The window of the session's model, and the source of that figure."""
        return self.workings.window

    def estimate(self, *, tools: Sequence[Any] | None = None, system: Any = None) -> int:
        """Returns the tokens that the provider would report for a request with the present view and these tools.

        Starts from the provider's last report and adds what came since; before the first report, from our own count, corrected
        by the error that it was seen to have.
        """
        return self.workings.meter.estimate(self.count(tools=tools, system=system))

    def count(self, *, tools: Sequence[Any] | None = None, system: Any = None) -> int:
        """Returns the tokens of that request by our own count.

        Counts the whole view once, and again after a compaction or an undo; otherwise only adds what was logged since.
        """
        return self.workings.weigh_outside(tools=tools, system=system) + self.workings.count_view().tokens

    def record_usage(
        self,
        usage: Any,
        counted_tokens: int = 0,
        *,
        model: str = "",
        task: str = TURN_TASK,
    ) -> UsageRow:
        """Records a request's usage and cost, and learns from it how the provider counts; returns the record.

        `usage` is the provider's report in any shape, as a dict or as its SDK's object. `counted_tokens` is the result of
        `count` for that request, if it held the present view. `model` is the model that answered, if not the session's.
        """
        reported = usage if isinstance(usage, Usage) else normalise_usage(usage)
        row = price_request(self.row.id, reported, model or self.row.model, at=time.time(), task=task)
        self.workings.meter.record(row, counted_tokens)
        return row

    def learn_window(self, failure: ErrorClass) -> bool:
        """Remembers the window that a provider's error states for the session's model; returns False if it states none.

        `penstock.classify_error` reads errors.
        """
        if not failure.window_tokens or not self.row.model:
            return False
        self.workings.meter.learned.learn_window(self.row.model, self.endpoint, failure.window_tokens)
        return True

    def _position(self, handle: str) -> int:
        position = parse_message_handle(handle) - 1
        length = self.store.log_tip(self.id).length
        if not 0 <= position < length:
            raise UnknownHandle(
                f"there is no original {handle!r} in this conversation; {explain_range(length)}"
            )
        return position

    def _entry(self, handle: str) -> LogEntry:
        entries = self.store.read(self.id, [self._position(handle)])
        if not entries:
            raise UnknownHandle(f"the content of {handle} is no longer in the store: run penstock doctor")
        return entries[0]
