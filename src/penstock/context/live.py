"""What the model is sent, kept inside its window: the view of a session, and when and how it is compacted.

The view grows in memory with the log, so that a turn costs what it adds. A compaction is made of the view as it stood
and committed over it, whatever was said meanwhile; so it can be prepared beside the work, from 85 % of the threshold
on, and only be put in place when the threshold is reached.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.context.compactions import CompactionWish, ListCompacted, Made, ended, list_receipt
from penstock.context.events import Compacted, Compacting, Noticed
from penstock.context.list_engine import ListEngine
from penstock.context.list_view import (
    ListView,
    drop_list_view,
    keep_list_view,
    kept_list_view,
    positions_after,
)
from penstock.conversation.dialects import dialect_named
from penstock.conversation.wire import parse_json
from penstock.engine.compressed import Compressed  # noqa: TC001 - as above
from penstock.engine.compressor import ContextCompressor
from penstock.engine.threads import in_thread
from penstock.errors import EngineFailure, PenstockError, StoreConflict
from penstock.planning.economics import Weighed  # noqa: TC001 - a struct's field types are read at run time
from penstock.sessions.drafts import CompactionDraft  # noqa: TC001 - as above
from penstock.sessions.sendable import sendable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.context.bookkeeping import Bookkeeper
    from penstock.context.events import ContextEvent
    from penstock.engine.contract import ContextEngine
    from penstock.measure.usage import Usage
    from penstock.sessions.session import Session
    from penstock.stores.values import NewFact

__all__ = ["Context"]

_PREPARE_FROM = 0.85  # of the threshold
_KEPT_TOKENS = (
    30_000  # handoff and tail of a compaction that pays; keeping less saves more than a better moment does
)
_FITS = 0.9  # of the threshold: where what was prepared and what came since take more, all of it is compacted anew
_REST = 1.1  # times the size at which an engine for lists could do nothing: then it is asked again


def _nothing(*_told: Any) -> None:
    """For hosts that have nothing to do then."""


class Context:
    """The context of one session. `outside_tokens` is what stands beside the messages: system prompt and tools.

    An engine that knows lists only has `listed`. Its view is kept beside the log (`list_view`), and the log keeps everything.
    """

    def __init__(self, session: Session, engine: ContextEngine, tell: Callable[[ContextEvent], None]) -> None:
        self.session = session
        self.engine = engine
        self.listed = (
            None if isinstance(engine, ContextCompressor) else ListEngine(engine, session.row.dialect)
        )
        self.outside_tokens = 0
        self.compactions = 0
        self.listed_compactions = 0
        self.bookkeeper: Bookkeeper | None = None
        self.before_compaction: Callable[[Sequence[NewFact]], None] = _nothing
        self.on_boundary: Callable[[], None] = (
            _nothing  # after a compaction: the prompt's beginning changed anyway
        )
        self._tell = tell
        self._prepared: asyncio.Task[Made] | None = None
        self._dropped: asyncio.Task[Made] | None = None  # one that is not wanted any more, and may still run
        self.view: list[Any] = []
        self.prefix_end: int | None = None  # how many messages of it the last compaction has settled
        self._positions: list[
            int | None
        ] = []  # where in the log the messages of the view stand, for such an engine
        self._counted = 0
        self._rests_below = 0
        self._load()

    def append(self, messages: Sequence[Any], *, keep_results: bool = False) -> list[str]:
        """Log messages, and send them from now on; their handles. Results that are too large are kept in the store."""
        given = self.session.keep_results(messages) if keep_results else list(messages)
        first = len(self.session)
        handles = self.session.append(given)
        self.view += given
        self._positions += range(first, len(self.session))
        self._counted += self.session.weigh(given)
        return handles

    def catch_up(self) -> bool:
        """Take in what another process has logged or compacted meanwhile; whether it has."""
        if not self.session.is_behind():
            return False
        self._drop_prepared()
        self.session.refresh()
        self.session.forget_report()
        self._load()
        return True

    def logged(self) -> list[Any]:
        """Every message of the log, those too that a compaction took out of the view."""
        if self.prefix_end is None and not self.listed_compactions:
            return self.view
        entries = self.session.store.read_from(self.session.id, 0)
        return [parse_json(entry.raw) for entry in entries]

    @property
    def counted(self) -> int:
        """Tokens of a request with the view, as we count them."""
        return self._counted + self.outside_tokens

    def tokens(self) -> int:
        """What the provider would report for it: what it reported last, and what came since; before, as counted."""
        return self.session.expected(self.counted)

    async def fit(self) -> None:
        """Before a request: compact where the threshold is reached or it pays, and begin to prepare where that is near."""
        tokens = self.tokens()
        limit = self.engine.threshold_tokens
        weighed = self._weighed(tokens)
        before = self.compactions
        if self.listed is not None:
            await self._fit_list(self.listed, tokens)
        elif self.engine.should_compress(tokens):
            reason = f"{tokens:,} tokens have reached the threshold of {limit:,}"
            await self.compact(reason, tokens, CompactionWish(decision=weighed))
        elif weighed is not None and weighed.compact and self._can_prepare():
            # Below the threshold no model is asked: the promise is that it never costs more than it saves.
            wish = CompactionWish(target_tokens=self._kept_tokens(), decision=weighed, may_call_model=False)
            await self.compact(weighed.reason, tokens, wish)
        elif self._prepared is None and tokens >= _PREPARE_FROM * limit:
            self._prepare()
        if self.bookkeeper is not None:
            self.bookkeeper.sent(self.tokens(), compacted=self.compactions > before)

    def _weighed(self, tokens: int) -> Weighed | None:
        if self.bookkeeper is None or not isinstance(self.engine, ContextCompressor):
            return None
        return self.bookkeeper.weighed(tokens, self.outside_tokens, self._kept_tokens())

    def _kept_tokens(self) -> int:
        """What a compaction leaves that is made because it pays: less than at the threshold of a large window."""
        engine = self.engine
        most = engine.kept_tokens if isinstance(engine, ContextCompressor) else _KEPT_TOKENS
        return min(_KEPT_TOKENS, most)

    async def compact(
        self, reason: str, tokens: int, wish: CompactionWish | None = None
    ) -> Compressed | ListCompacted | None:
        """Compact now; None where there was nothing to do. Raises TargetTooSmall for a target that cannot be.

        An engine for lists knows neither targets nor pins. Where it fails, EngineFailure is raised and the view stays.
        """
        wish = wish or CompactionWish()
        if not isinstance(self.engine, ContextCompressor):
            return await self._compact_list(reason, tokens, wish.focus)
        started = time.monotonic()
        made = await self._result(reason, wish)
        waited = time.monotonic() - started
        result = made.result
        self.engine.on_compaction(result.receipt, tokens)
        if made.draft is None:
            return None
        old_id = self.session.id
        self._leave_to_memory(made.draft.facts)
        try:
            decision = wish.decision.to_dict() if wish.decision is not None else {"reason": reason}
            self.session.commit_draft(made.draft, decision)
        except StoreConflict:  # another process was quicker: its compaction is the view now
            self.session.refresh()
            self._load()
            return None
        self.engine.on_session_switch(old_id, self.session.id, "compression")
        self._take(made.draft, made.tokens)
        self.compactions += 1
        self.on_boundary()
        self._tell(Compacted(result.receipt, reason, waited))
        return result

    def _leave_to_memory(self, facts: Sequence[NewFact]) -> None:
        """What leaves the view may be kept in memory before it does; that this fails is no reason to keep it in the view."""
        try:
            self.before_compaction(facts)
        except PenstockError as error:
            self._tell(Noticed("warn", f"memory did not take what leaves the view: {error}"))

    def used(self, usage: Usage) -> None:
        """Tell the engine what a provider reported for the last request."""
        if self.listed is None:
            self.engine.update_from_response(msgspec.structs.asdict(usage))
        else:
            self._or_tell(lambda listed: listed.used(usage))

    def undo(self) -> bool:
        """Take the last compaction back; False where there is none. Of an engine for lists, all of them."""
        self._drop_prepared()
        if self.listed_compactions:
            drop_list_view(self.session)
            self.session.forget_report()
            self._load()
            return True
        done = self.session.undo()
        if done:
            self.session.refresh()
            self.engine.on_session_start(self.session.id)
            self._load()
        return done

    async def aclose(self) -> None:
        """End what is being prepared, and the session for its engine."""
        self._drop_prepared()
        if self._dropped is not None:
            await ended(self._dropped)
        self._or_tell(lambda listed: listed.end(self.session.id, self.view))

    async def _result(self, reason: str, wish: CompactionWish) -> Made:
        """The compaction that was prepared, where it is what is wanted now; else one that is made now."""
        prepared = self._prepared
        self._prepared = None
        if prepared is not None and wish.is_plain and not prepared.cancelled():
            if not prepared.done():
                self._tell(Compacting(reason))
            try:
                made = await prepared
                if self._still_does(made):
                    return made
            except PenstockError as error:
                self._tell(Noticed("warn", f"what was being prepared failed and is made anew: {error}"))
        elif prepared is not None:
            self._dropped = prepared
        self._tell(Compacting(reason))
        return await self._made(wish)

    def _still_does(self, made: Made) -> bool:
        """Whether what was prepared is what would be made now: the same pins, and room enough for what came since."""
        if made.pins != self.session.store.pins(self.session.id):
            return False
        if made.draft is None:
            return len(self.session) == made.length
        later = self.view[len(self.view) - (len(self.session) - made.length) :]
        counted = made.tokens + self.session.weigh(later) + self.outside_tokens
        return counted < _FITS * self.engine.threshold_tokens

    async def _made(self, wish: CompactionWish) -> Made:
        """A compaction of the view as it stands now, beside the event loop: all of it but what the store is told."""
        engine, session = self.engine, self.session
        assert isinstance(engine, ContextCompressor)  # noqa: S101 - the only callers have looked
        if self._dropped is not None:
            await ended(self._dropped)
            self._dropped = None

        pins = session.store.pins(session.id)
        engine.pins = {position + 1 for position in pins}.union(wish.pins)
        standing = await in_thread(session.standing, with_pins=True)
        result = await engine.aprepare(
            standing.view.wires,
            wish.focus,
            target_tokens=wish.target_tokens,
            numbers=standing.view.numbers,
            may_call_model=wish.may_call_model,
        )

        def drafted() -> Made:
            draft = session.draft(standing, result)
            tokens = 0 if draft is None else session.weigh(draft.wires)
            return Made(result, draft, tokens, standing.tip.length, pins)

        return await in_thread(drafted)

    def _or_tell(self, action: Callable[[ListEngine], None]) -> None:
        """What an engine for lists is told; that it fails at it is no reason to lose an answer."""
        if self.listed is not None:
            try:
                action(self.listed)
            except EngineFailure as error:
                self._tell(Noticed("warn", str(error)))

    async def _fit_list(self, listed: ListEngine, tokens: int) -> None:
        """Compact where the engine wants to. One that fails, or has nothing to give, rests until there is more."""
        if tokens < self._rests_below or not self.session.settings.compression.enabled:
            return
        try:
            if not listed.is_due(self.view, tokens):
                return
            done = await self._compact_list(f"asked for at {tokens:,} tokens", tokens, None)
        except EngineFailure as error:
            done = None
            self._tell(Noticed("warn", f"{error}; the conversation goes on as it is"))
        self._rests_below = 0 if done is not None else int(tokens * _REST)

    async def _compact_list(self, reason: str, tokens: int, focus: str | None) -> ListCompacted | None:
        assert self.listed is not None  # noqa: S101 - the only callers have looked
        self._tell(Compacting(reason))
        started, before = time.monotonic(), self.view
        view = await asyncio.to_thread(self.listed.compress, before, tokens, focus)
        counted = self.session.weigh(view)
        if view == before or counted >= self._counted:
            return None
        receipt = list_receipt(self.engine, before, view, (self._counted, counted))
        receipt = msgspec.structs.replace(
            receipt, seconds=time.monotonic() - started, dialect=self.session.row.dialect
        )
        self._positions = positions_after(view, before, self._positions)
        self.view, self._counted, self.prefix_end = view, counted, None
        self.session.forget_report()
        self.compactions += 1
        self.listed_compactions += 1
        keep_list_view(
            self.session, self.engine.name, ListView(view, self._positions, self.listed_compactions)
        )
        self.on_boundary()
        self._tell(Compacted(receipt, reason, receipt.seconds))
        return ListCompacted(view, receipt)

    def _can_prepare(self) -> bool:
        engine = self.engine
        return isinstance(engine, ContextCompressor) and engine.settings.compression.enabled

    def _prepare(self) -> None:
        if not self._can_prepare():
            return
        self._prepared = asyncio.ensure_future(self._made(CompactionWish()))

    def _drop_prepared(self) -> None:
        if self._prepared is not None:
            self._prepared.cancel()
            self._dropped, self._prepared = self._prepared, None

    def _take(self, draft: CompactionDraft, tokens: int) -> None:
        """The view of a compaction that was committed, and behind it what was said since it was begun."""
        since = len(self.session) - draft.base.tip.length
        if self.session.is_behind():  # another process has said something: what is sent is what is logged
            self.session.refresh()
            self._load()
            return
        later = self.view[len(self.view) - since :]
        self.view = [*draft.wires, *later]
        self._counted = tokens + self.session.weigh(later)
        self.prefix_end = len(draft.wires)

    def _load(self) -> None:
        kept = None if self.listed is None else kept_list_view(self.session, self.engine.name)
        if kept is None:
            standing = self.session.standing()
            self.prefix_end = standing.prefix_end or None
            # What a killed process left broken in the middle of the log is mended in the view, as in `Session.view`.
            sent = sendable(standing.view.wires, dialect_named(self.session.row.dialect))
            positions = standing.view.positions
            kept = ListView(
                [one.wire for one in sent],
                [None if one.place is None else positions[one.place] for one in sent],
            )
        self.view, self._positions, self.listed_compactions = kept.wires, kept.positions, kept.compactions
        self._counted = self.session.weigh(self.view)
