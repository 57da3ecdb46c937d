"""The workings of a `Session`: its state and its single steps, for rooms of this package that host one.

Users see `Session`. A host that keeps the view in memory, or prepares compactions in the background, takes the steps one
by one: `read_view_base` returns the view for a compaction, `draft` works out its record, and `commit_draft` only writes.
None of this is part of the public interface.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._log import log
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.view import ViewMessage
from penstock.conversation.wire import parse_json
from penstock.engine.compress import new_notebook
from penstock.engine.registry import session_compactors
from penstock.measure.weigh import outside_tokens, weigh
from penstock.planning.policy import Trigger
from penstock.planning.receipt import NOTHING_TO_DO, describe_compaction
from penstock.recall.semantic import embedder_for
from penstock.sessions.appending import PreparedMessages, prepare_given, read_given
from penstock.sessions.completing import CompletionLimits, complete_draft
from penstock.sessions.drafts import CompactionDraft, draft_compaction
from penstock.sessions.facts import list_demands
from penstock.sessions.history import SessionHistory
from penstock.sessions.metering import SUMMARY_TASK, CountedView, Meter
from penstock.sessions.quality import read_receipt
from penstock.sessions.results import ResultKeeper, scale_limits
from penstock.sessions.stored_view import ViewBase, read_view_base
from penstock.stores.values import COMPRESSION, NewCompaction, NewSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.conversation.view import Compaction
    from penstock.engine.compress import Compressed
    from penstock.errors import ErrorClass
    from penstock.measure.usage import Usage
    from penstock.measure.windows import Window
    from penstock.sessions.completing import CompletedDraft
    from penstock.sessions.session import Session
    from penstock.settings import Settings
    from penstock.stores.values import Delivery, LogTip, NewFact, SessionRow, Standing
    from penstock.writing.notebook import Notebook

__all__ = ["Workings", "new_session_id"]


class _LoggedMessages(NamedTuple):
    """The bytes of the last append, and the ends of the log before and after it, whose ids identify everything before."""

    start: LogTip
    end: LogTip
    raws: Sequence[bytes]


class Workings:
    """The state of a session: its row, the tip of its log, and its readings and counts.

    `view_key` is the key of the compaction in force, 0 for the bare log, as far as this process knows: another process
    may have compacted since the last `refresh`. `listed_window` is the window of the session's model in the provider's
    list of models, if a host knows it.
    """

    def __init__(self, session: Session, row: SessionRow) -> None:
        self.store = session.store
        self.row = row
        self._place(self.store.standing(row.id))
        self.notebook: Notebook = new_notebook(row.model or None, session.settings)
        self.compactors = session_compactors(self.store, row.id)
        self.listed_window: int | None = None
        self._session = session
        self._meter = Meter(self.store, row.model)
        self._counted: CountedView | None = None
        self._logged: _LoggedMessages | None = None
        self._history: SessionHistory | None = None

    @property
    def settings(self) -> Settings:
        """The settings of the session. A host may replace them."""
        return self._session.settings

    @property
    def meter(self) -> Meter:
        """The meter of the session's model, at the host's address for it."""
        self._meter.model, self._meter.endpoint = self.row.model, self._session.endpoint
        return self._meter

    @property
    def window(self) -> Window:
        """The window of the session's model, and the source of that figure."""
        return self.meter.window(self.settings.model.window_of(self.row.model), self.listed_window)

    def refresh(self) -> None:
        """Reads what other processes have written to the conversation."""
        self.go_to(self.store.tip(self.row.id), self.store.standing(self.row.id))

    def go_to(self, row: SessionRow, standing: Standing) -> None:
        """Moves to the state of the conversation that the store was found to have."""
        self.row = row
        self._place(standing)

    def _place(self, standing: Standing) -> None:
        self.tip = standing.tip
        self.view_key = standing.view

    def prepare(self, messages: Sequence[Any], *, keep_results: bool = False) -> PreparedMessages:
        """Prepares messages for `log_prepared`. Writes nothing yet, except large results that go to the store."""
        given = self.keep_results(messages) if keep_results else messages
        return prepare_given(given, dialect_named(self.row.dialect), self.notebook.tokenizer)

    def log_prepared(
        self,
        prepared: PreparedMessages,
        *,
        delivery: Delivery | None = None,
        queued_upto: int | None = None,
    ) -> list[ViewMessage]:
        """Appends prepared messages; returns them as messages of the view.

        Each has its logged bytes and its position, for a host that keeps the view in memory. For `delivery` and
        `queued_upto` see `Store.deliver`.
        """
        raws, wires, first = prepared.raws, prepared.wires, self.tip.length
        given = self.row.id, prepared.new, self.tip.id, time.time()
        if delivery is None and queued_upto is None:
            done = self.store.append(*given)
        else:
            done = self.store.deliver(*given, delivery=delivery, queued_upto=queued_upto)
        if self._counted is not None and not done.again:
            self._logged = _LoggedMessages(self.tip, done.tip, raws)
        self.tip = done.tip
        if done.again:  # another process has logged the same messages there, perhaps in other bytes
            raws = [entry.raw for entry in self.store.read_from(self.row.id, first, len(raws))]
            wires = [parse_json(raw) for raw in raws]
        return [
            ViewMessage(wire, raw, first + n) for n, (wire, raw) in enumerate(zip(wires, raws, strict=True))
        ]

    def keep_results(self, messages: Sequence[Any]) -> list[Any]:
        """Moves large tool results to the store: see `Session.keep_results`."""
        wires = read_given(messages)
        keeper = ResultKeeper(
            store=self.store,
            session=self.row,
            limits=scale_limits(self.settings.tools, self.window.tokens),
            redact=self.notebook.redactor.redact,
            tool_limits=self._session.tool_limits,
            recall_tool=self._session.recall_tool,
        )
        kept = keeper.keep(wires)
        return [one if now is wire else now for one, wire, now in zip(messages, wires, kept, strict=True)]

    def redact(self, text: str) -> str:
        """Returns the text without secrets, as the settings say."""
        return self.notebook.redactor.redact(text)

    def is_behind(self) -> bool:
        """Returns True if another process has written to the conversation's log."""
        return self.store.log_tip(self.row.id) != self.tip

    def read_view_base(self, *, with_pins: bool = False) -> ViewBase:
        """Returns the present view, for a compaction that is made elsewhere and committed later.

        `with_pins` brings back pinned messages that an earlier compaction took out. Such a view is only for making a
        compaction, not for sending.
        """
        return read_view_base(self.store, self.row, with_pins=with_pins)

    def list_demands(self) -> list[NewFact]:
        """Returns people's demands in the messages that are whole in the view, newest first, redacted."""
        return list_demands(
            self.read_view_base().view, dialect_named(self.row.dialect), self.notebook.redactor
        )

    def commit(
        self,
        base: ViewBase,
        result: Compressed,
        decision: Mapping[str, Any] | None = None,
        trigger: Trigger = Trigger.MANUAL,
    ) -> bool:
        """Commits a compaction of that view, whatever was appended since; returns False if there was nothing to do.

        `decision` is the reason for this moment, and is kept with the receipt. Raises StoreConflict if another process has
        compacted the same view meanwhile.
        """
        draft = self.draft(base, result)
        if draft is not None:
            self.commit_draft(draft, decision, trigger)
        return draft is not None

    def draft(self, base: ViewBase, result: Compressed) -> CompactionDraft | None:
        """Returns the record that `commit` would write for a compaction of that view; None if there is nothing to do.

        Reads the store and writes nothing. All work is done here, so that `commit_draft` only writes.
        """
        if result.receipt.outcome == NOTHING_TO_DO:
            return None
        return draft_compaction(base, result, self.notebook.redactor, self.store.facts(self.row.id))

    def complete_draft(
        self, draft: CompactionDraft, missed: Sequence[str], target_tokens: int
    ) -> CompletedDraft | None:
        """Returns a waiting draft with these values of its original view added.

        The resulting view takes at most `target_tokens`. Returns None if nothing can be added.
        """
        book = self.notebook
        limits = CompletionLimits(target_tokens, self.weigh, book.tokenizer.count, book.redactor.redact)
        return complete_draft(draft, missed, limits)

    def commit_draft(
        self,
        draft: CompactionDraft,
        decision: Mapping[str, Any] | None = None,
        trigger: Trigger = Trigger.MANUAL,
    ) -> None:
        """Commits a draft, as `commit` does; logs what was done, and on which occasion."""
        receipt = {**draft.receipt, **({"decision": dict(decision)} if decision else {})}
        self.record(draft.base, draft.compaction, receipt, draft.facts)
        if (made := read_receipt(draft.receipt)) is not None:
            log.info("%s", describe_compaction(trigger, made, draft.compaction.pieces))

    def record(
        self,
        base: ViewBase,
        compaction: Compaction,
        receipt: Mapping[str, Any],
        facts: Sequence[NewFact] = (),
    ) -> None:
        """Writes a record over its original view, and continues in the session that it opens."""
        over = base.newest
        new = NewSession(
            id=new_session_id(),
            at=time.time(),
            dialect=self.row.dialect,
            model=self.row.model,
            title=self.store.tip(self.row.id).title,  # the present one: it may have been renamed
            kind=COMPRESSION,
        )
        row = self.store.commit(
            self.row.id,
            NewCompaction(
                compaction=compaction,
                over=over.key if over is not None else 0,
                receipt=receipt,
                session=new,
                key=new.id,
                facts=facts,
            ),
        )
        self.row = self.store.session(row.session)
        self.view_key = row.key
        self._meter.forget_report()

    def own_history(self) -> SessionHistory:
        """Returns the history without anything that engines have kept of it."""
        if self._history is None or self._history.session_id != self.row.id:
            count, redact = self.notebook.tokenizer.count, self.notebook.redactor.redact
            self._history = SessionHistory(
                self.store,
                self.row.id,
                count,
                redact,
                embedder_for(self.settings),
                others=self.settings.recall.other_conversations,
            )
        return self._history

    def count_reported(self, reported_tokens: int) -> int:
        """Returns our count for a prompt of `reported_tokens`, since windows are in the provider's tokens."""
        return self.meter.count(reported_tokens)

    def weigh(self, messages: Sequence[Any]) -> int:
        """Returns the tokens of messages, by our own count."""
        decoded = decode_all(dialect_named(self.row.dialect), read_given(messages))
        return sum(weigh(decoded, self.notebook.tokenizer))

    def weigh_outside(self, *, tools: Sequence[Any] | None = None, system: Any = None) -> int:
        """Returns the tokens of a request beside its messages, by our own count."""
        return outside_tokens(system, tools, self.notebook.tokenizer)

    def book_summary(self, model: str, usage: Usage) -> None:
        """Books the usage of a request for a summary, whether the summary is used or not."""
        self._session.record_usage(usage, model=model, task=SUMMARY_TASK)

    @property
    def output_cap(self) -> int | None:
        """The provider's limit for the length of answers of the session's model; None until it has stated one."""
        return (
            self.meter.learned.output_cap(self.row.model, self._session.endpoint) if self.row.model else None
        )

    def learn_output_cap(self, failure: ErrorClass) -> bool:
        """Remembers the limit for answers that a provider's error states; returns False if it states none.

        A limit that depends on the prompt only holds for one request, and is not kept.
        """
        if not failure.output_cap_tokens or failure.window_tokens or not self.row.model:
            return False
        self.meter.learned.learn_output_cap(self.row.model, self._session.endpoint, failure.output_cap_tokens)
        return True

    def count_view(self) -> CountedView:
        """Returns the tokens of the present view: the last count, plus what was logged since."""
        standing, dialect = self.store.standing(self.row.id), dialect_named(self.row.dialect)
        counted = self._counted
        if counted is not None and counted.compaction == standing.view and counted.tip != standing.tip:
            wires = [parse_json(raw) for raw in self._read_between(counted.tip, standing.tip)]
            counted = counted.extend(wires, dialect, self.notebook.tokenizer, standing.tip)
        if counted is None or counted.compaction != standing.view:
            now = self.read_view_base()
            key = now.newest.key if now.newest is not None else 0
            sent = [message.wire for message in now.view.mend()]
            tokens = sum(self.notebook.weigh(sent, dialect))
            counted = CountedView.of(now.view.wires, tokens, dialect, compaction=key, tip=now.tip)
        self._counted, self._logged = counted, None
        return counted

    def _read_between(self, start: LogTip, end: LogTip) -> Sequence[bytes]:
        """Returns the bytes of the messages between one end of the log and a later one."""
        logged = self._logged
        if logged is not None and (logged.start, logged.end) == (start, end):
            return logged.raws
        return [
            entry.raw for entry in self.store.read_from(self.row.id, start.length, end.length - start.length)
        ]


def new_session_id() -> str:
    """Returns an id that no session has."""
    return secrets.token_hex(8)
