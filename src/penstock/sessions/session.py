"""A conversation in a store: append, view, compact, undo, pin, search.

    store = penstock.open_store("sqlite:///work.db")
    session = penstock.Session.create(store, model="gpt-4.1")
    session.append([{"role": "user", "content": "…"}])
    session.view()                     # what the model is to be sent
    session.compact(target_tokens=20_000)
    session.search("the port of the staging database")
    session.original("m14")

The log only grows. A compaction is one more record: it is made of the view, and committed only if no other process has
committed one meanwhile. Messages that arrive while it is made stand behind it.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Self

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.handles import HandleKind, name_message, parse_handle, parse_message_handle
from penstock.conversation.view import ViewMessage
from penstock.conversation.wire import parse_json
from penstock.engine.attempt import WriterMemory
from penstock.engine.compress import CompressRequest, compress_list, new_notebook, run_sync, summarise_list
from penstock.engine.learned import notes_for
from penstock.engine.registry import session_compactors
from penstock.engine.summariser import summariser_of
from penstock.engine.threads import in_thread
from penstock.errors import UnknownHandle
from penstock.measure.usage import Usage, normalise_usage
from penstock.measure.weigh import weigh
from penstock.planning.receipt import NOTHING_TO_DO
from penstock.recall.ranking import Wish
from penstock.recall.semantic import embedder_for
from penstock.recall.tools import Budget, answer, tool_schemas
from penstock.sessions.appending import encode_given, prepare_messages, read_given
from penstock.sessions.branches import branch_off
from penstock.sessions.completing import CompletionLimits, complete_draft
from penstock.sessions.drafts import CompactionDraft, draft_compaction
from penstock.sessions.facts import list_demands
from penstock.sessions.history import SessionHistory
from penstock.sessions.metering import SUMMARY_TASK, TURN_TASK, CountedView, Meter, price_request
from penstock.sessions.pins import stands_whole
from penstock.sessions.previews import scale_limits
from penstock.sessions.quality import measure_qualities, read_receipt
from penstock.sessions.results import READ_FILE, ResultKeeper
from penstock.sessions.retention import honour_retention
from penstock.sessions.stored_view import ViewBase, read_standing
from penstock.settings import Settings
from penstock.stores.values import BRANCH, COMPRESSION, SUBAGENT, NewCompaction, NewSession
from penstock.writing.entities import EVERYTHING, match_entities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.engine.compress import Compressed
    from penstock.engine.summariser import Summariser
    from penstock.errors import ErrorClass
    from penstock.measure.windows import Window
    from penstock.planning.receipt import Receipt
    from penstock.recall.history import Finding, History
    from penstock.sessions.completing import CompletedDraft
    from penstock.stores.store import Store
    from penstock.stores.values import LogEntry, NewFact, SessionRow, UsageRow
    from penstock.writing.entities import EntityState
    from penstock.writing.notebook import Notebook

__all__ = ["Session", "ViewBase"]


class Session:
    """One conversation in a store, at its tip. Not safe to share between threads; the store is.

    Handles are message numbers: `m1` is the first message of the log. `context.engine` of the settings chooses how the view
    is compacted; what other engines have kept of the conversation can still be read.

    A host may set four attributes. `tool_limits`: from how many characters on `keep_results` stores the results of single
    tools, None for never. `recall_tool`: the tool by which the agent reads originals (`history_expand`), which stubs,
    previews and handoffs then name. `endpoint`: the address of the session's model; what is learned of a model is kept by
    both. `listed_window`: the window that the provider's list of models states for it.
    """

    def __init__(self, store: Store, row: SessionRow, settings: Settings | None = None) -> None:
        self.store = store
        self.settings = settings or Settings()
        self.endpoint = ""
        self.listed_window: int | None = None
        self.tool_limits: dict[str, int | None] = {READ_FILE: None}
        self.recall_tool: str | None = None
        self._row = row
        self._tip = store.log_tip(row.id)
        self._notebook: Notebook = new_notebook(row.model or None, self.settings)
        self._meter = Meter(store, row.model)
        self._counted: CountedView | None = None
        self._history: SessionHistory | None = None
        self._compactors = session_compactors(store, row.id)

    @classmethod
    def create(
        cls,
        store: Store,
        *,
        model: str = "",
        dialect: str = "chat",
        title: str = "",
        settings: Settings | None = None,
    ) -> Self:
        """Returns a new conversation. First deletes from the store what is due by `store.retention_days` of the settings."""
        dialect_named(dialect)
        honour_retention(store, settings or Settings(), time.time())
        new = NewSession(id=_new_id(), at=time.time(), dialect=dialect, model=model, title=title)
        return cls(store, store.create(new), settings)

    @classmethod
    def resume(cls, store: Store, session_id: str, settings: Settings | None = None) -> Self:
        """Returns the conversation of a session, at its tip. Raises UnknownSession, also where it was due for deletion."""
        honour_retention(store, settings or Settings(), time.time())
        return cls(store, store.tip(session_id), settings)

    @property
    def id(self) -> str:
        """The session's id; a compaction opens a continuation with another one."""
        return self._row.id

    @property
    def row(self) -> SessionRow:
        """The session as the store knows it."""
        return self._row

    def __len__(self) -> int:
        return self._tip.length

    def __bool__(self) -> bool:
        return True  # it is there, also while nothing was said in it

    def __repr__(self) -> str:
        return f"<Session {self.id}: {len(self):,} messages, {self._row.dialect}, in {self.store.url}>"

    def append(self, messages: Sequence[Any], *, keep_results: bool = False) -> list[str]:
        """Appends messages (objects, or their JSON, which is kept byte for byte) to the log; returns their handles.

        With `keep_results`, tool results that are too large go to the store, and previews stand in their place: see
        `keep_results`. Durable when it returns. Raises InputError for a message that is not one of the dialect,
        StoreConflict where another process has appended meanwhile (`refresh`, look at what it was, and append anew).
        """
        logged = self.log_messages(messages, keep_results=keep_results)
        return [
            name_message(position + 1) for message in logged if (position := message.position) is not None
        ]

    def log_messages(self, messages: Sequence[Any], *, keep_results: bool = False) -> list[ViewMessage]:
        """Appends messages, as `append` does; returns them as they stand in the view from now on.

        For a host that keeps the view in memory: with the bytes that were logged, and where.
        """
        given = self.keep_results(messages) if keep_results else messages
        raws, wires = encode_given(given, read_given(given))
        dialect = dialect_named(self._row.dialect)
        new = prepare_messages(raws, wires, dialect, self._notebook.tokenizer)
        first = self._tip.length
        done = self.store.append(self.id, new, self._tip.id, time.time())
        self._tip = done.tip
        if done.again:  # another process has logged the same there, and may have spelled it otherwise
            raws = [entry.raw for entry in self.store.read_from(self.id, first, len(new))]
            wires = [parse_json(raw) for raw in raws]
        return [
            ViewMessage(wire, raw, first + n) for n, (wire, raw) in enumerate(zip(wires, raws, strict=True))
        ]

    def keep_results(self, messages: Sequence[Any]) -> list[Any]:
        """Keeps large tool results in the store; returns the messages as they may be appended and sent.

        A result over `tools.result_chars` (less for a small window; `tool_limits` has the limits of single tools), and
        the largest of a turn that has more than `tools.turn_chars`, are replaced by their beginning, their size and a
        handle. `original` gives all of one by its handle. Other messages are the objects that were given.
        """
        wires = read_given(messages)
        keeper = ResultKeeper(
            store=self.store,
            session=self._row,
            limits=scale_limits(self.settings.tools, self.window.tokens),
            redact=self._notebook.redactor.redact,
            tool_limits=self.tool_limits,
            recall_tool=self.recall_tool,
        )
        kept = keeper.keep(wires)
        return [one if now is wire else now for one, wire, now in zip(messages, wires, kept, strict=True)]

    def redact(self, text: str) -> str:
        """Returns the text without secrets, by the settings."""
        return self._notebook.redactor.redact(text)

    def is_behind(self) -> bool:
        """Returns True where another process has written to the conversation's log."""
        return self.store.log_tip(self.id) != self._tip

    def refresh(self) -> None:
        """Goes to where the conversation stands now, whichever process has written to it."""
        self._row = self.store.tip(self.id)
        self._tip = self.store.log_tip(self.id)

    def view(self) -> list[Any]:
        """Returns the messages to send to the model: the newest compaction's view and all that was logged after it.

        Where the log is broken, as a killed process leaves it, the view is not: a call that never got its result has a
        stub, a result without a call is left out. Calls at the very end may still run and stay as they are.
        """
        return [message.wire for message in self.standing().view.mend()]

    def view_bytes(self) -> list[bytes]:
        """Returns the messages of `view` as JSON, each that the view keeps with the bytes that it was appended with.

        A message that was appended as an object has the bytes that it was logged with, which never change; so have
        handoffs and stubs, which are ours. A provider's cache of the conversation so far therefore holds.
        """
        return [message.raw for message in self.standing().view.mend()]

    def compact(
        self,
        *,
        target_tokens: int | None = None,
        context_length: int | None = None,
        tools: Sequence[Any] | None = None,
        system: Any = None,
        focus: str | None = None,
        summariser: Any = None,
    ) -> Compressed:
        """Compacts the view and commits it. Nothing is committed where there is nothing to do.

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
            )
        )

    async def acompact(
        self,
        *,
        target_tokens: int | None = None,
        context_length: int | None = None,
        tools: Sequence[Any] | None = None,
        system: Any = None,
        focus: str | None = None,
        summariser: Any = None,
    ) -> Compressed:
        """As `compact`, without blocking the event loop. Where it is cancelled, nothing is committed."""
        standing = await in_thread(self.standing, with_pins=True)
        request = CompressRequest(
            target_tokens=target_tokens,
            context_length=context_length or self.window.tokens,
            model=self._row.model or None,
            tools=tools,
            system=system,
            focus=focus,
            dialect=self._row.dialect,
            settings=self.settings,
            recall_tool=self.recall_tool,
            pins=frozenset(position + 1 for position in self.store.pins(self.id)),
            numbers=standing.view.numbers,
            memory=WriterMemory(
                notes_for(self.store, self.id, self._notebook.redactor.redact),
                self._meter.learned,
                self.book_summary,
            ),
        )
        writer = None if summariser is None else summariser_of(summariser)
        result = await self._compact_list(standing.view.wires, request, writer)
        await in_thread(self.commit, standing, result)
        return result

    async def _compact_list(
        self, wires: Sequence[Any], request: CompressRequest, writer: Summariser | None
    ) -> Compressed:
        own = self._compactors.get(self.settings.context.engine)
        if own is not None:
            return await own.compact(wires, request, self._notebook, writer)
        if writer is None:
            return await in_thread(compress_list, wires, request, self._notebook)
        return await summarise_list(wires, request, writer, self._notebook)

    def standing(self, *, with_pins: bool = False) -> ViewBase:
        """Returns the view as it is now, for a compaction that is made elsewhere and committed later.

        `with_pins` brings back, whole, pinned messages that an earlier compaction took out: a compaction is made of that
        view, and it is not sent before.
        """
        return read_standing(self.store, self._row, with_pins=with_pins)

    def commit(
        self, standing: ViewBase, result: Compressed, decision: Mapping[str, Any] | None = None
    ) -> bool:
        """Commits a compaction of that view, whatever was appended since; returns False where there was nothing to do.

        `decision` says why now, and is kept with the receipt. Raises StoreConflict where another process has compacted the
        same view meanwhile.
        """
        draft = self.draft(standing, result)
        if draft is not None:
            self.commit_draft(draft, decision)
        return draft is not None

    def draft(self, standing: ViewBase, result: Compressed) -> CompactionDraft | None:
        """Returns what `commit` would record of a compaction of that view; None where there is nothing to do.

        Reads the store and writes nothing. All the work is here: `commit_draft` only writes.
        """
        if result.receipt.outcome == NOTHING_TO_DO:
            return None
        return draft_compaction(standing, result, self.store, self._row, self._notebook.redactor)

    def complete_draft(
        self, draft: CompactionDraft, missed: Sequence[str], target_tokens: int
    ) -> CompletedDraft | None:
        """Returns a draft that waits to be committed with these values of the view it was made of put in.

        The view it gives takes at most `target_tokens`. None where nothing can be put in. Reads the store and writes
        nothing.
        """
        book = self._notebook
        limits = CompletionLimits(target_tokens, self.weigh, book.tokenizer.count, book.redactor.redact)
        return complete_draft(draft, missed, self.store, self._row, limits)

    def commit_draft(self, draft: CompactionDraft, decision: Mapping[str, Any] | None = None) -> None:
        """Commits a draft, as `commit` does."""
        over = draft.base.newest
        new = NewSession(
            id=_new_id(),
            at=time.time(),
            dialect=self._row.dialect,
            model=self._row.model,
            title=self.store.tip(self.id).title,  # as it is now: it may have been renamed
            kind=COMPRESSION,
        )
        row = self.store.commit(
            self.id,
            NewCompaction(
                compaction=draft.compaction,
                over=over.key if over is not None else 0,
                receipt={**draft.receipt, **({"decision": dict(decision)} if decision else {})},
                session=new,
                key=new.id,
                facts=draft.facts,
            ),
        )
        self._row = self.store.session(row.session)
        self._meter.forget_report()

    def list_demands(self) -> list[NewFact]:
        """Returns what people demand in the messages that stand whole in the view, the newest first, redacted."""
        view = self.standing().view
        return list_demands(view, dialect_named(self._row.dialect), self._notebook.redactor)

    def undo(self) -> bool:
        """Takes the newest compaction back; returns False where there is none."""
        self._meter.forget_report()
        return self.store.undo(self.id, time.time()) is not None

    def receipts(self) -> list[Receipt]:
        """Returns the receipts of the compactions in force, oldest first, each with what the turns since tell of it.

        Receipts that another version of Penstock wrote in another form are left out.
        """
        qualities = measure_qualities(self.store, self.id)
        found = [read_receipt(row.receipt, qualities[row.key]) for row in self.store.compactions(self.id)]
        return [receipt for receipt in found if receipt is not None]

    def branch(self, upto: str | None = None, *, title: str = "") -> Session:
        """Returns another conversation that shares this one's log up to a handle (all of it where none is given).

        It begins with the view that this one has there: a compaction that lies within what is shared is taken over, and
        so are pins.
        """
        length = len(self) if upto is None else parse_message_handle(upto)
        new = NewSession(
            id=_new_id(),
            at=time.time(),
            dialect=self._row.dialect,
            model=self._row.model,
            title=title,
            kind=BRANCH,
        )
        return Session(self.store, branch_off(self.store, self._row, length, new, _new_id()), self.settings)

    def sub_agent(self, *, model: str = "", dialect: str = "", title: str = "") -> Session:
        """Returns a new conversation for a sub-agent that works for this one: not in lists, and deleted with it.

        Model and dialect are those of this one unless others are named.
        """
        new = NewSession(
            id=_new_id(),
            at=time.time(),
            dialect=dialect_named(dialect or self._row.dialect).name,
            model=model or self._row.model,
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
        """Returns the message with that handle, as it was appended; of a stored result, a summary or a node, its text.

        For "handoff" it is the list of all messages that the handoff in the view stands for. Raises UnknownHandle.
        """
        kind = parse_handle(handle).kind
        if kind is HandleKind.HANDOFF:
            return [parse_json(entry.raw) for entry in self._own_history().read_covered()]
        if kind in (HandleKind.RESULT, HandleKind.SUMMARY, HandleKind.NODE):
            return self.history.text(handle)
        return parse_json(self._entry(handle).raw)

    def search(self, query: str, *, hits: int = 10, characters: int = 1_200) -> list[Finding]:
        """Returns the best findings in the log, its summaries and its stored results, but for what stands in the view.

        `query` may be a few words, or the live request with what came before it. Excerpts are redacted.
        """
        return list(self.history.search(query, Wish(hits=hits, characters=characters)))

    def entities(self, name: str = EVERYTHING) -> list[EntityState]:
        """Returns what is known now of the files, commands, records and people that a name means, the newest first.

        A path or its end, a command or words of it, an id, a person, a kind such as "file"; by default all of them. Each
        has its last state and the handle of the message where that stands. What is returned is redacted.
        """
        return match_entities(self._own_history().entities(), name)

    @property
    def history(self) -> History:
        """The whole conversation, to be searched and read by handle."""
        newest = self.store.newest_compaction(self.id)
        history: History = self._own_history()
        for compactor in self._compactors.values():
            history = compactor.history(history, self._notebook.tokenizer.count, newest)
        return history

    def _own_history(self) -> SessionHistory:
        """Returns the history without what engines have kept of it."""
        if self._history is None or self._history.session_id != self.id:
            count, redact = self._notebook.tokenizer.count, self._notebook.redactor.redact
            self._history = SessionHistory(self.store, self.id, count, redact, embedder_for(self.settings))
        return self._history

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Returns the recall tools, in the format of OpenAI's function tools: for the requests of an agent that may use them."""
        return tool_schemas()

    def handle_tool_call(self, name: str, args: Any, *, tokens: int = 4_000) -> str:
        """Returns the answer of a recall tool as JSON of at most so many tokens, whatever a model sent as arguments."""
        budget = Budget(self._notebook.tokenizer.count, tokens)
        return answer(self.history, name, args, budget, redact=self._notebook.redactor.redact)

    @property
    def window(self) -> Window:
        """The window of the session's model, and how it is known."""
        configured = self.settings.model.window_of(self._row.model)
        return self._require_meter().window(configured, self.listed_window)

    def estimate(self, *, tools: Sequence[Any] | None = None, system: Any = None) -> int:
        """Returns the tokens that the provider would report for a request with the present view, and with these tools.

        What it reported last counts, with what came since; before that, our own count, as far as it was seen to be off.
        """
        return self.expected(self.count(tools=tools, system=system))

    def expected(self, counted_tokens: int) -> int:
        """Returns the tokens that the provider would report for a request of the view that we count so many in."""
        return self._require_meter().estimate(counted_tokens)

    def count(self, *, tools: Sequence[Any] | None = None, system: Any = None) -> int:
        """Returns the tokens of that request as we count them.

        The view is counted whole once, and again after a compaction or an undo; else what was logged since is added.
        """
        return self.weigh_outside(tools=tools, system=system) + self._count_view().tokens

    def weigh(self, messages: Sequence[Any]) -> int:
        """Returns the tokens of messages as we count them."""
        decoded = decode_all(dialect_named(self._row.dialect), messages)
        return sum(weigh(decoded, self._notebook.tokenizer))

    def weigh_outside(self, *, tools: Sequence[Any] | None = None, system: Any = None) -> int:
        """Returns the tokens of what stands beside the messages of a request, as we count them."""
        request = CompressRequest(tools=tools, system=system, settings=self.settings)
        return request.goal(self._notebook.tokenizer).outside_tokens

    def record_usage(
        self,
        usage: Usage | Mapping[str, Any],
        counted_tokens: int = 0,
        *,
        model: str = "",
        task: str = TURN_TASK,
    ) -> UsageRow:
        """Books what a request used and cost, and learns from it how the provider counts; returns what was booked.

        `usage` is what the provider reported, in any shape. `counted_tokens` is what `count` gave for that request, where
        it was one of the present view. `model` is the one that answered, where it is not the session's.
        """
        reported = usage if isinstance(usage, Usage) else normalise_usage(usage)
        row = price_request(self._row.id, reported, model or self._row.model, at=time.time(), task=task)
        self._require_meter().record(row, counted_tokens)
        return row

    def book_summary(self, model: str, usage: Usage) -> None:
        """Books what a request for a summary used, whether the summary is put in place or not."""
        self.record_usage(usage, model=model, task=SUMMARY_TASK)

    def restore_report(self, counted_tokens: int, reported_tokens: int) -> None:
        """Takes the report of an earlier process for the last one: of so many tokens as we counted them, for this view."""
        self._meter.restore_report(counted_tokens, reported_tokens)

    def forget_report(self) -> None:
        """Drops the provider's last report: the view was replaced beside the store, and the next request is another one."""
        self._meter.forget_report()

    def learn_window(self, failure: ErrorClass) -> bool:
        """Keeps the window that a provider's error states for the session's model; False where it states none.

        `penstock.classify_error` reads errors.
        """
        if not failure.window_tokens or not self._row.model:
            return False
        self._require_meter().learned.learn_window(self._row.model, self.endpoint, failure.window_tokens)
        return True

    @property
    def output_cap(self) -> int | None:
        """The most tokens of an answer that the provider lets the session's model be asked for; None until it has said so."""
        return (
            self._require_meter().learned.output_cap(self._row.model, self.endpoint)
            if self._row.model
            else None
        )

    def learn_output_cap(self, failure: ErrorClass) -> bool:
        """Keeps the most tokens of an answer that a provider's error states for the session's model; False where it states none.

        What an error leaves after the prompt is that of one request, and is not kept.
        """
        if not failure.output_cap_tokens or failure.window_tokens or not self._row.model:
            return False
        self._require_meter().learned.learn_output_cap(
            self._row.model, self.endpoint, failure.output_cap_tokens
        )
        return True

    def _require_meter(self) -> Meter:
        self._meter.model, self._meter.endpoint = self._row.model, self.endpoint
        return self._meter

    def _count_view(self) -> CountedView:
        """Returns the tokens of the present view: what is known of it, and what was logged since."""
        newest, tip = self.store.newest_compaction(self.id), self.store.log_tip(self.id)
        key, dialect = newest.key if newest is not None else 0, dialect_named(self._row.dialect)
        counted = self._counted
        if counted is not None and counted.compaction == key and counted.tip != tip:
            start = counted.tip.length
            entries = self.store.read_from(self.id, start, tip.length - start)
            wires = [parse_json(entry.raw) for entry in entries]
            counted = counted.extend(wires, dialect, self._notebook.tokenizer, tip)
        if counted is None or counted.compaction != key:
            now = self.standing()
            key = now.newest.key if now.newest is not None else 0
            sent = [message.wire for message in now.view.mend()]
            tokens = sum(self._notebook.weigh(sent, dialect))
            counted = CountedView.of(now.view.wires, tokens, dialect, compaction=key, tip=now.tip)
        self._counted = counted
        return counted

    def _position(self, handle: str) -> int:
        position = parse_message_handle(handle) - 1
        if not 0 <= position < self.store.log_tip(self.id).length:
            raise UnknownHandle(f"there is no original {handle!r} in this conversation")
        return position

    def _entry(self, handle: str) -> LogEntry:
        entries = self.store.read(self.id, [self._position(handle)])
        if not entries:
            raise UnknownHandle(f"the content of {handle} is not in the store any more: run penstock doctor")
        return entries[0]


def _new_id() -> str:
    return secrets.token_hex(8)
