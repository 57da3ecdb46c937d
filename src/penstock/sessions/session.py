"""A conversation in a store: append, view, compact, rewind, undo, pin, search.

    store = penstock.open_store("sqlite:///work.db")
    session = penstock.Session.create(store, model="gpt-4.1")
    session.append([{"role": "user", "content": "…"}])
    session.view()                     # what the model is to be sent
    session.compact(target_tokens=20_000)
    session.search("the port of the staging database")
    session.original("m14")

The log only grows. A compaction is one more record, and so is a rewind: both can be undone. It is made of the view, and
committed only if no other process has committed one meanwhile. Messages that arrive while it is made stand behind it.
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
from penstock.engine.compress import (
    CompressRequest,
    compress_list,
    read_settings,
    run_sync,
    summarise_list,
)
from penstock.engine.learned import notes_for
from penstock.engine.summariser import summariser_of
from penstock.engine.threads import in_thread
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
    """One conversation in a store, at its tip. Not safe to share between threads; the store is.

    Handles are message numbers: `m1` is the first message of the log. `context.engine` of the settings chooses how the view
    is compacted; what other engines have kept of the conversation can still be read.

    A host may set three attributes. `tool_limits`: from how many characters on `keep_results` stores the results of single
    tools, None for never. `recall_tool`: the tool by which the agent reads originals (`history_expand`), which stubs,
    previews and handoffs then name. `endpoint`: the address of the session's model; what is learned of a model is kept by
    both. `workings` is for hosts inside this package and may change at any time.
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
        """Returns a new conversation. First deletes conversations that have expired by `store.retention_days`."""
        dialect_named(dialect)
        honour_retention(require_store(store), read_settings(settings), time.time())
        new = NewSession(id=new_session_id(), at=time.time(), dialect=dialect, model=model, title=title)
        return cls(store, store.create(new), settings)

    @classmethod
    def resume(
        cls, store: Store, session_id: str, settings: Settings | Mapping[str, Any] | None = None
    ) -> Self:
        """Returns the conversation of a session, at its tip. Raises UnknownSession, also for one that has expired."""
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
        return True  # it is there, also while nothing was said in it

    def __repr__(self) -> str:
        return f"<Session {self.id}: {len(self):,} messages, {self.row.dialect}, in {self.store.url}>"

    def append(self, messages: Sequence[Any], *, keep_results: bool = False) -> list[str]:
        """Appends messages (objects, or their JSON, which is kept byte for byte) to the log; returns their handles.

        With `keep_results`, tool results that are too large go to the store, and previews stand in their place: see
        `keep_results`. Durable when it returns. Raises InputError for a message that is not one of the dialect,
        StoreConflict where another process has appended meanwhile (`refresh`, look at what it was, and append anew).
        """
        logged = self.workings.log_messages(messages, keep_results=keep_results)
        return [
            name_message(position + 1) for message in logged if (position := message.position) is not None
        ]

    def keep_results(self, messages: Sequence[Any]) -> list[Any]:
        """Keeps large tool results in the store; returns the messages as they may be appended and sent.

        A result over `tools.result_chars` (less for a small window; `tool_limits` has the limits of single tools), and
        the largest of a turn that has more than `tools.turn_chars`, are replaced by their beginning, their size and a
        handle. `original` gives all of one by its handle. Other messages are the objects that were given.
        """
        return self.workings.keep_results(messages)

    def refresh(self) -> None:
        """Catches up with the store, whichever process has written to the conversation."""
        self.workings.refresh()

    def view(self) -> list[Any]:
        """Returns the messages to send to the model: the newest compaction's view and everything logged after it.

        Where the log is broken, as a killed process leaves it, the view is not: a call that never got its result has a
        stub, a result without a call is left out. Calls at the very end may still run and stay as they are.
        """
        return [message.wire for message in self.workings.read_standing().view.mend()]

    def view_bytes(self) -> list[bytes]:
        """Returns the messages of `view` as JSON; kept messages have the bytes with which they were appended.

        A message that was appended as an object has the bytes that it was logged with, which never change; so have
        handoffs and stubs, which are ours. A provider's cache of the conversation so far therefore holds.
        """
        return [message.raw for message in self.workings.read_standing().view.mend()]

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

        Raises what `penstock.compress` raises, and StoreConflict where another process has compacted the same view
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
        """As `compact`, without blocking the event loop. If it is cancelled, nothing is committed."""
        standing = await in_thread(self.workings.read_standing, with_pins=True)
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
            numbers=standing.view.numbers,
            memory=WriterMemory(
                notes_for(self.store, self.id, self.workings.notebook.redactor.redact),
                self.workings.meter.learned,
                self.workings.book_summary,
            ),
        )
        writer = None if summariser is None else summariser_of(summariser)
        result = await self._compact_list(standing.view.wires, request, writer)
        await in_thread(self.workings.commit, standing, result, None, trigger)
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
        """Takes the last `n` messages out of the view, or all if there are fewer; returns them in their order.

        The log keeps them, and `undo` brings them back. Where the newest compaction summarised some of them, the view is
        again the one that it had before. A call whose result is taken out stands at the end of the view, open. Raises
        StoreConflict where another process has compacted the view meanwhile.
        """
        count: Any = n
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise SettingsError(f"n is {count!r}; give the number of messages to take back, at least 1")
        base = self.workings.read_standing()
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
        """Empties the view: the next message is the first one sent to the model. The log keeps all; `undo` restores it."""
        self.rewind(max(1, len(self)))

    def undo(self) -> bool:
        """Takes back the newest compaction, rewind or clearing; returns False if there is none."""
        self.workings.forget_report()
        undone = self.store.undo(self.id, time.time())
        if undone is not None:
            self.workings.view_key = undone.over
        return undone is not None

    def receipts(self) -> list[Receipt]:
        """Returns the receipts of the compactions in force, oldest first, each with its quality as later turns show it.

        Receipts that another version of Penstock wrote in another form are left out.
        """
        qualities = measure_qualities(self.store, self.id)
        found = [read_receipt(row.receipt, qualities[row.key]) for row in self.store.compactions(self.id)]
        return [receipt for receipt in found if receipt is not None]

    def branch(self, upto: str | None = None, *, title: str = "") -> Session:
        """Returns another conversation that shares this one's log up to a handle, or all of it.

        It begins with the view that this one has there: a compaction that lies within what is shared is taken over, and
        so are pins.
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
        """Returns a new conversation for a sub-agent that works for this one: not in lists, and deleted with it.

        Model and dialect are those of this one unless others are named.
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

        Returns False where it was shortened or summarised before: then it comes back whole with the next compaction.
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

        For "handoff" it is the list of all messages that the handoff in the view stands for. Raises UnknownHandle.
        """
        kind = parse_handle(handle).kind
        if kind is HandleKind.HANDOFF:
            return [parse_json(entry.raw) for entry in self.workings.own_history().read_covered()]
        if kind in (HandleKind.RESULT, HandleKind.SUMMARY, HandleKind.NODE):
            return self.history.text(handle)
        return parse_json(self._entry(handle).raw)

    def search(self, query: str, *, hits: int = 10, characters: int = 1_200) -> list[Finding]:
        """Returns the best findings in the log, its summaries and its stored results, except for messages in the view.

        `query` may be a few words, or the live request with what came before it. Excerpts are redacted.
        """
        return list(self.history.search(query, Wish(hits=hits, characters=characters)))

    def entities(self, name: str = EVERYTHING) -> list[EntityState]:
        """Returns the last known state of the files, commands, records and people that a name refers to, newest first.

        A path or its end, a command or words of it, an id, a person, a kind such as "file"; by default all of them. Each
        has its last state and the handle of the message where that stands. What is returned is redacted.
        """
        return match_entities(self.workings.own_history().entities(), name)

    @property
    def history(self) -> History:
        """The whole conversation, to be searched and read by handle."""
        newest = self.store.newest_compaction(self.id)
        history: History = self.workings.own_history()
        for compactor in self.workings.compactors.values():
            history = compactor.history(history, self.workings.notebook.tokenizer.count, newest)
        return history

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Returns the schemas of the recall tools, in OpenAI's format, for the requests of an agent."""
        return tool_schemas()

    def handle_tool_call(self, name: str, args: Any, *, tokens: int = 4_000) -> str:
        """Returns the answer of a recall tool as JSON of at most `tokens` tokens, whatever arguments the model sent."""
        budget = Budget(self.workings.notebook.tokenizer.count, tokens)
        return answer(self.history, name, args, budget, redact=self.workings.notebook.redactor.redact)

    @property
    def window(self) -> Window:
        """The window of the session's model, and its source."""
        return self.workings.window

    def estimate(self, *, tools: Sequence[Any] | None = None, system: Any = None) -> int:
        """Returns the tokens that the provider would report for a request with the present view and these tools.

        What it reported last counts, with what came since; before that, our own count, as far as it was seen to be off.
        """
        return self.workings.expect_tokens(self.count(tools=tools, system=system))

    def count(self, *, tools: Sequence[Any] | None = None, system: Any = None) -> int:
        """Returns the tokens of that request by our own count.

        The view is counted whole once, and again after a compaction or an undo; else what was logged since is added.
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
        """Records what a request used and cost, and learns from it how the provider counts; returns the record.

        `usage` is what the provider reported, in any shape, as a dict or as its SDK's object. `counted_tokens` is what `count` gave for that request, where
        it was one of the present view. `model` is the one that answered, where it is not the session's.
        """
        reported = usage if isinstance(usage, Usage) else normalise_usage(usage)
        row = price_request(self.row.id, reported, model or self.row.model, at=time.time(), task=task)
        self.workings.meter.record(row, counted_tokens)
        return row

    def learn_window(self, failure: ErrorClass) -> bool:
        """Keeps the window that a provider's error states for the session's model; returns False if it states none.

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
            raise UnknownHandle(f"the content of {handle} is not in the store any more: run penstock doctor")
        return entries[0]
