"""One conversation that the gateway attends to: its session, its live context, and the state that the gateway needs.

With `gateway.store: digests` nothing that was said reaches the disk. A compaction without a model depends on the messages
and its target alone, so that what was sent can be made again, byte for byte, from the next request's own messages:
`CompactionRecords` keeps where each was made, and for which size.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.context.bookkeeping import Bookkeeper
from penstock.context.events import Noticed, tell_notice
from penstock.context.live import Beside, Context, RefusedRequest
from penstock.conversation.dialects import dialect_named
from penstock.conversation.view import Kept, is_merged
from penstock.conversation.wire import parse_json
from penstock.engine.contract import CompactionWish
from penstock.engine.registry import blame_engine, engine_named
from penstock.engine.summariser import Summariser
from penstock.engine.threads import in_thread
from penstock.errors import EngineFailure, ProviderError, SettingsError, StoreConflict, TargetTooSmall
from penstock.gateway.orders import Outside, ViewPrefix, ViewStanding
from penstock.gateway.write_behind import WriteBehindStore
from penstock.planning.policy import Trigger
from penstock.providers.cache_marks import CachePlan, strip_marks
from penstock.providers.connect import connect
from penstock.sessions.stored_view import read_view
from penstock.settings import AuxiliarySettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.context.compactions import PreparedCompaction
    from penstock.context.events import ContextEvent
    from penstock.conversation.view import Compaction
    from penstock.engine.contract import ContextEngine
    from penstock.gateway.conversations import ReadMessages
    from penstock.gateway.exchange import StoreMode
    from penstock.gateway.orders import Fit, Open, Recover, TakeUsage
    from penstock.planning.economics import Weighed
    from penstock.providers.model import ProviderModel
    from penstock.sessions.appending import PreparedMessages
    from penstock.sessions.drafts import CompactionDraft
    from penstock.sessions.session import Session
    from penstock.settings import Settings
    from penstock.stores.store import Store

__all__ = ["Attended", "CompactionRecord", "CompactionRecords", "Line", "restrict_writers"]

NEVER = 1 << 40
"""More tokens than any request has."""

_SURE = 0.8  # of the way to where a compaction is due: the gateway only estimates what is new
_OFF_BY = 0.01  # of a request: what we expect of it may be wrong by as much
_DEFAULT_TTL_SECONDS = 300.0
_BYTES_PER_TOKEN = 3.5
_TARGET = "asked for by the request"
_NOT_KNOWN = "-"
_LEAST_HANDOFF = 1_000
_AGAIN = "made again after a restart"
_UNKEPT = "the conversation is not kept: no recall, no undo"
_PROVIDERS = {"chat": "openai", "responses": "responses", "anthropic": "anthropic"}
_OWN_BYTES = 100_000  # that a conversation takes in memory beside its messages
_RECORDS = "compactions by digest"
_MOST_RECORDS = 64  # of conversations that begin alike
_GROWTH = 6  # times the bytes of its messages: they are held as bytes, as objects, and in notebooks
_LOGGED_AT_ONCE = 1_000  # messages, in one transaction
_GROWTH_BESIDE = 4  # times the bytes of what stands beside them: it is held as bytes and as objects


def restrict_writers(settings: Settings) -> Settings:
    """Returns the settings of the conversations of a gateway: only `gateway.summarise` says which model writes."""
    return msgspec.structs.replace(settings, auxiliary=AuxiliarySettings())


class Line:
    """The orders on one conversation, one after the other.

        async with line.join():
            ...

    Unlike a lock, a place in it is taken by the call of `join`, not when it is awaited: an order that needs several
    conversations joins all of their lines at once, and nothing can come in between.
    """

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    @property
    def busy(self) -> bool:
        """True while an order is in it."""
        return self._last is not None and not self._last.done()

    def join(self) -> _PlaceInLine:
        """Returns the last place."""
        place = _PlaceInLine(self._last)
        self._last = place.left
        return place


class _PlaceInLine:
    """A place in a line: entered when all before it have left. One that is never entered must be left, too."""

    def __init__(self, before: asyncio.Future[None] | None) -> None:
        self._before = before
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Waits until it is this order's turn."""
        if self._before is not None and not self._before.done():
            await asyncio.wait([self._before])

    async def __aenter__(self) -> None:
        try:
            await self.wait()
        except asyncio.CancelledError:
            self.leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Lets the next order go on, once those before have left."""
        if self.left.done():
            return
        if self._before is None or self._before.done():
            self.left.set_result(None)
        else:
            self._before.add_done_callback(lambda _: self.leave())


class Attended:
    """One conversation. Orders on it wait in `line`.

    `digests` are those of all messages of its log. `prefix` is what is sent in place of the first of them, `mode` says
    what may be kept of it.
    """

    def __init__(
        self, session: Session, order: Open, *, digests: Sequence[bytes], raws: Sequence[bytes]
    ) -> None:
        self.session = session
        self.id = session.row.conversation
        self.owner = order.owner
        self.mode: StoreMode = order.store
        self.dialect = dialect_named(session.row.dialect)
        self.line = Line()
        self.awaited_until = 0.0  # by the monotonic clock: the order that comes next is on its way
        self.digests = list(digests)
        self._summarise = session.settings.gateway.summarise
        self._writer = session.settings.auxiliary.compression
        session.settings = restrict_writers(session.settings)
        self._notices: list[str] = []
        self._outside = Outside(model=session.row.model)
        self._passed = False
        self._log_bytes = sum(map(len, raws))
        self._log_tokens = session.store.log_tokens(session.id) if len(session) else 0
        self.records: CompactionRecords | None = None
        self._told_compactions = 0
        kind = _HeldContext if self.mode == "full" else _UnkeptContext
        self.context = kind(session, self._new_engine(), self._hear)
        self.context.prepares = self._summarise == "extractive" and self.mode == "full"
        self._use_writer(None)
        self._open_books()
        self.prefix = ViewPrefix()
        self._renew_prefix()

    # Putting together.

    def _new_engine(self) -> ContextEngine:
        session, settings = self.session, self.session.settings
        engine = engine_named(
            settings.context.engine,
            settings,
            context_length=session.window.tokens,
            model=session.row.model or None,
            on_notice=lambda notice: tell_notice(notice, self._hear),
            recall_tools=False,
            store=session.store,
        )
        with blame_engine(engine.name):
            engine.update_model(session.row.model, session.window.tokens, base_url=session.endpoint)
            engine.on_session_start(session.id, model=session.row.model)
        return engine

    def _use_writer(self, credential: str | None) -> ProviderModel | None:
        """Sets the model that may write summaries according to the settings, and returns it; None if there is none."""
        model = self._connect_writer(credential)
        self.context.engine.hosting.use_summariser(None if model is None else Summariser(model, main=model))
        return model

    def _connect_writer(self, credential: str | None) -> ProviderModel | None:
        how, session, named = self._summarise, self.session, self._writer
        provider, model = _PROVIDERS[session.row.dialect], session.row.model
        if how == "extractive" or not model or (how == "same" and not credential):
            return None
        try:
            if how == "same":
                return connect(provider, model, base_url=session.endpoint, api_key=credential)
            return connect(
                named.provider or provider,
                named.model or model,
                base_url=how,
                api_key_env=named.api_key_env,
                timeout_seconds=named.timeout,
            )
        except SettingsError as error:
            self._notices.append(f"no model writes summaries: {error}")
            return None

    def _open_books(self) -> None:
        """Opens the books for the model, and for the cache marks that the caller sets."""
        ttl = self._outside.marked_ttl
        plan = CachePlan(
            model=self.session.row.model,
            route="the gateway",
            dialect=self.dialect.name,
            ttl="1h" if ttl == "1h" else "5m" if ttl else "off",
        )
        self.context.bookkeeper = Bookkeeper(self.session, plan, self.context.engine.threshold_tokens)

    def move(self, endpoint: str) -> None:
        """Goes on at another address, where what is known of the model may be something else."""
        if endpoint != self.session.endpoint:
            self.session.endpoint = endpoint
            self.context.use_model(self.session.row.model, self.session.window.tokens)
            self._use_writer(None)

    def use(self, outside: Outside | None) -> None:
        """Takes in what stands beside the messages of the next request, where it has changed."""
        before, context, session = self._outside, self.context, self.session
        if outside is None or outside == before:
            return
        self._outside = outside
        if outside.model and outside.model != session.row.model:
            session.store.update(session.id, model=outside.model)
            session.refresh()
            context.use_model(outside.model, session.window.tokens)
            self._use_writer(None)
        if outside.max_output_tokens != before.max_output_tokens:
            context.reserve_output(outside.max_output_tokens or 0)
        if (outside.model, outside.marked_ttl) != (before.model, before.marked_ttl):
            self._open_books()
        if (outside.system, outside.tools) != (before.system, before.tools):
            context.weigh(self._beside())

    def _beside(self) -> Beside:
        tools = _parse(self._outside.tools)
        return Beside(_parse(self._outside.system), tools if isinstance(tools, list) else ())

    def _hear(self, event: ContextEvent) -> None:
        if isinstance(event, Noticed) and event.level == "warn":
            self._notices.append(event.text)

    # The log.

    def require_standing(self, read: ReadMessages) -> None:
        """Raises StoreConflict where the log has become another one than the messages begin with."""
        have = len(self.digests)
        if self.session.workings.is_behind() or read.digests[:have] != self.digests:
            raise StoreConflict("the conversation went on elsewhere")

    def log(self, read: ReadMessages) -> None:
        """Logs messages; durable when it returns. Raises StoreConflict where another process has logged others."""
        self.log_prepared(read, self.prepare(read))

    def prepare(self, read: ReadMessages) -> PreparedMessages:
        """Returns messages ready to be logged. Raises StoreConflict where another process has logged others."""
        self.require_alone()
        return read.prepare(self.dialect, self.session.workings.notebook.tokenizer)

    def announce(self, prepared: PreparedMessages) -> None:
        """Has messages that are about to be logged share a transaction with those of other conversations."""
        session = self.session
        if 0 < len(prepared.new) <= _LOGGED_AT_ONCE and isinstance(session.store, WriteBehindStore):
            session.store.announce(session.id, prepared.new, session.workings.tip.id)

    def log_prepared(self, read: ReadMessages, prepared: PreparedMessages) -> None:
        """Logs messages that were prepared; durable when it returns. Raises StoreConflict as above.

        Many are logged in several transactions, since others wait for each.
        """
        while len(read.raws) > _LOGGED_AT_ONCE:
            self._log_some(read.take(_LOGGED_AT_ONCE), prepared.take(_LOGGED_AT_ONCE))
            read, prepared = read.drop(_LOGGED_AT_ONCE), prepared.drop(_LOGGED_AT_ONCE)
        if read.raws:
            self._log_some(read, prepared)

    def _log_some(self, read: ReadMessages, prepared: PreparedMessages) -> None:
        self.context.append_prepared(prepared)
        self.digests += read.digests
        self._log_bytes += sum(map(len, read.raws))
        self._log_tokens += prepared.tokens
        self.require_alone()

    def require_alone(self) -> None:
        """Raises StoreConflict where the session has met what another process has logged: a compaction may have shown it."""
        have = len(self.digests)
        if len(self.session) != have or self.prefix.covers > have:
            raise StoreConflict("another process has logged more than that")

    def weigh(self, read: ReadMessages) -> int:
        """Returns the tokens of messages that are not logged, as we count them."""
        return read.prepare(self.dialect, self.session.workings.notebook.tokenizer).tokens

    # Requests.

    def expect_request(self) -> None:
        """Takes note that a request was opened of which is not known yet how it goes out: `Fit` or its report books it."""
        self._passed = False

    def pass_on(self) -> None:
        """Books a request that goes out as it is."""
        self.context.pass_on()
        self._passed = True

    async def fit(self, order: Fit) -> str:
        """Compacts where it is due or pays, or as the request asks; returns what its caller should know."""
        self._notices.clear()
        writer = self._use_writer(order.credential)
        try:
            if order.target_tokens is None and order.focus is None:
                await self.context.fit()
            else:
                await self._compact_as_asked(order)
        finally:
            await self._dismiss(writer)
        self._passed = True
        await in_thread(self._renew_prefix)
        return "; ".join(self._notices)

    async def compact_again(self, read: ReadMessages, ids: Sequence[str]) -> None:
        """Makes the compactions again that were made of these messages before the process was started."""
        for record in [] if self.records is None else self.records.find(ids):
            await in_thread(self.log, read.take(record.covers).drop(len(self.digests)))
            wish = CompactionWish(
                target_tokens=record.target_tokens, may_call_model=False, trigger=record.trigger
            )
            try:
                await self.context.compact(_AGAIN, self.context.tokens(), wish)
            except (EngineFailure, TargetTooSmall):
                break  # made by other settings: the next request is compacted anew
        await in_thread(self._renew_prefix)

    async def _compact_as_asked(self, order: Fit) -> None:
        """Compacts the messages to the target that the request names, for good."""
        context, workings = self.context, self.session.workings
        tokens = context.tokens()
        target = None if order.target_tokens is None else max(1, workings.count_reported(order.target_tokens))
        if target is None or context.counted - context.outside_tokens > target:
            wish = CompactionWish(target_tokens=target, focus=order.focus, trigger=Trigger.MANUAL)
            try:
                if await context.compact(_TARGET, tokens, wish) is None:
                    self._notices.append("there is nothing to compact")
            except (EngineFailure, TargetTooSmall) as error:
                self._notices.append(str(error))
        self.context.pass_on()

    async def recover(self, order: Recover) -> int | None:
        """Makes a refused request smaller; returns the answer's cap where that is what helps. Raises ProviderError."""
        self._notices.clear()
        asked = self._outside.max_output_tokens
        error = ProviderError(order.failure.message or str(order.failure.kind), failure=order.failure)
        writer = self._use_writer(order.credential)
        try:
            cap = await self.context.recover(
                error, RefusedRequest(order.sent_tokens, asked, order.attempt), self._beside
            )
        finally:
            await self._dismiss(writer)
        await in_thread(self._renew_prefix)
        return cap if cap != asked else None

    async def _dismiss(self, writer: ProviderModel | None) -> None:
        """Forgets the model that wrote, and its key."""
        if writer is not None:
            self._use_writer(None)
            await writer.aclose()

    def take_usage(self, order: TakeUsage) -> None:
        """Takes in what the provider reported for requests."""
        for _ in range(order.lost):
            self.context.lose()
        if not order.usages:
            return
        *earlier, last = order.usages
        for usage in earlier:
            self.session.record_usage(usage)
        if order.length and order.length != len(self.session):
            self.session.record_usage(last)
            return
        if not self._passed:
            self.context.pass_on()
        self._passed = False
        self.context.take_usage(last, order.sent_tokens, names_cache=order.names_cache)

    def find_handoff_size(self) -> int:
        """Returns the tokens of a handoff with nothing beside it: what a compaction would keep, in our own counting.

        Half of the room below the threshold is left for what comes next. A client may compact long before that: then a third
        of what there is will do, or it would soon be full again.
        """
        context, workings = self.context, self.session.workings
        messages = context.counted - context.outside_tokens
        half = (workings.count_reported(context.engine.threshold_tokens) - context.outside_tokens) // 2
        target = workings.count_reported(context.policy.budgets.target_tokens(0))
        return max(_LEAST_HANDOFF, min(target, half, messages // 3))

    # What the gateway knows of it.

    def _renew_prefix(self) -> None:
        """Takes the compacted beginning from the store: the same bytes whenever it is read."""
        newest = self.session.store.newest_compaction(self.session.id)
        if newest is None:
            self.prefix = ViewPrefix()
            return
        covers = newest.compaction.length
        if isinstance(self.context, _UnkeptContext):
            self._keep_record(self.context)
        view = read_view(self.session.store, self.session.row, newest.compaction, covers)
        whole, sent = _find_whole(newest.compaction), view.mend()
        self.prefix = ViewPrefix(
            covers,
            tuple(strip_marks(message.raw, self.dialect.name) for message in sent),
            tuple(
                -1 if message.position is None or message.position not in whole else message.position
                for message in sent
            ),
        )

    def _keep_record(self, context: _UnkeptContext) -> None:
        """Keeps how the view was made, where that alone may be kept."""
        if context.compactions > self._told_compactions:
            self._told_compactions = context.compactions
            self._notices.append(_UNKEPT)
        if context.made is not None and self.records is not None:
            self.records.add(context.made)

    def report(self, more: int = 0) -> ViewStanding:
        """Returns how it stands, with so many tokens more than are logged."""
        context, workings = self.context, self.session.workings
        counted = context.counted + more
        tokens = workings.meter.estimate(counted)
        outside = context.outside_tokens
        books = None if context.bookkeeper is None else context.bookkeeper.books
        asks, cold = context.find_due_size(), context.find_due_size(warm=False)
        scale = tokens / max(1, counted)
        return ViewStanding(
            tokens=tokens,
            tokens_before=max(tokens, round(scale * (self._log_tokens + more + outside))),
            window_tokens=context.engine.context_length,
            ask_from_tokens=_leave_margin(tokens, asks),
            cold_seconds=_DEFAULT_TTL_SECONDS if books is None else books.terms.ttl_seconds,
            cold_from_tokens=_leave_margin(tokens, cold),
            bytes_per_token=self._log_bytes / (scale * self._log_tokens)
            if self._log_tokens
            else _BYTES_PER_TOKEN,
        )

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        outside = self._outside
        beside_bytes = len(outside.model) + len(outside.system) + len(outside.tools)
        return _OWN_BYTES + _GROWTH * self._log_bytes + _GROWTH_BESIDE * beside_bytes

    async def aclose(self) -> None:
        """Ends what is being prepared."""
        await self.context.aclose()


class _HeldContext(Context):
    """The context of a conversation on which one order works at a time: what it commits is committed in a thread.

    A worker that waits for the disk in its event loop would keep all other conversations waiting.
    """

    async def _commit(self, draft: CompactionDraft, why: Mapping[str, Any], trigger: Trigger) -> None:
        await in_thread(self.session.workings.commit_draft, draft, why, trigger)


class _UnkeptContext(_HeldContext):
    """The context of a conversation that is not kept: each compaction depends on the messages and its target alone.

    `made` is the record of the last one; None where it cannot be made again.
    """

    def __init__(self, session: Session, engine: ContextEngine, tell: Callable[[ContextEvent], None]) -> None:
        super().__init__(session, engine, tell)
        self.made: CompactionRecord | None = None

    async def compact(
        self,
        reason: str,
        tokens: int,
        wish: CompactionWish | None = None,
        weighed: Weighed | None = None,
    ) -> PreparedCompaction | None:
        """As any context does, with a target that does not depend on the window."""
        wish = wish or CompactionWish()
        if wish.target_tokens is None:
            target = self.session.workings.count_reported(self.policy.budgets.target_tokens(0))
            wish = msgspec.structs.replace(wish, target_tokens=max(1, target))
        made = await super().compact(f"{reason} ({_UNKEPT})", tokens, wish, weighed)
        if made is None or made.draft is None:
            return made
        over, tip = "", made.draft.base.tip
        if made.draft.base.newest is not None:
            over = _NOT_KNOWN if self.made is None else self.made.base
        self.made = None
        # A focus is words of the caller, which may not be kept.
        if not wish.focus and wish.target_tokens is not None and over != _NOT_KNOWN:
            self.made = CompactionRecord(
                base=tip.id,
                covers=tip.length,
                target_tokens=wish.target_tokens,
                trigger=wish.trigger,
                over=over,
            )
        return made


def _find_whole(compaction: Compaction) -> set[int]:
    """Returns the positions of the messages that stand in its view as they came."""
    pieces = compaction.pieces
    before = (None, *pieces)
    return {
        piece.position
        for piece, last in zip(pieces, before, strict=False)
        if isinstance(piece, Kept) and not (last is not None and is_merged(last))
    }


def _leave_margin(tokens: int, asks: int | None) -> int:
    """Returns from where on the gateway should ask, where a compaction is due from `asks` on and `tokens` stand now."""
    if asks is None:
        return NEVER
    return max(0, int(min(asks, tokens + _SURE * (asks - tokens)) - _OFF_BY * asks))


def _parse(raw: bytes) -> Any:
    """Returns the parts of a request beside its messages; one that is not JSON counts as text."""
    if not raw:
        return None
    try:
        return parse_json(raw)
    except ValueError:
        return raw.decode("utf-8", "replace")


class CompactionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One compaction: made of the first `covers` messages, the last of which has the chained id `base`."""

    base: str
    covers: int
    target_tokens: int
    trigger: Trigger
    over: str = ""
    """The `base` of the compaction before it; empty for the first."""


_READ_RECORDS = msgspec.msgpack.Decoder(list[CompactionRecord]).decode


class CompactionRecords:
    """The records of an owner's conversations that begin with the same message, which has the chained id `beginning`."""

    def __init__(self, store: Store, owner: str, beginning: str) -> None:
        self._store = store
        self._key = f"{owner}/{beginning}"

    def add(self, record: CompactionRecord) -> None:
        """Keeps a record; the oldest goes where there are too many."""
        kept = [one for one in self._read() if one.base != record.base]
        self._store.put_note(_RECORDS, self._key, msgspec.msgpack.encode([*kept, record][-_MOST_RECORDS:]))

    def find(self, ids: Sequence[str]) -> list[CompactionRecord]:
        """Returns the compactions that led to the newest one of a conversation whose messages have these ids, oldest first.

        None of them where one between is not known.
        """
        fitting = {
            record.base: record
            for record in self._read()
            if record.covers <= len(ids) and ids[record.covers - 1] == record.base
        }
        newest = max(fitting.values(), key=lambda record: record.covers, default=None)
        chain: list[CompactionRecord] = []
        while newest is not None:
            chain.append(newest)
            if not newest.over:
                return chain[::-1]
            newest = fitting.get(newest.over)
        return []

    def _read(self) -> list[CompactionRecord]:
        note = self._store.note(_RECORDS, self._key)
        try:
            return [] if note is None else _READ_RECORDS(note)
        except msgspec.DecodeError:  # of another version
            return []
