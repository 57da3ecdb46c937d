"""The live context of one session: keeps the messages that the model is sent inside its window, for any host.

    context = Context(session, engine, tell)
    context.begin_turn()                   # a person speaks, or a client asks
    context.append(messages)               # log them, and send them from now on
    await context.fit(beside)              # before a request: compact if that is due or pays
    context.take_usage(usage, sent_tokens) # after its answer
    context.prepare()                      # after an answer: prepare a compaction in the background if one is near
    await context.recover(error, …)        # if the provider refused the request as too large

The view grows in memory with the log, so that a turn costs only what it adds. A compaction is made from the view at some
moment and can be committed later, whatever was said in between. So it is prepared in the background, from 85 % of the
threshold on, and put in place only when the threshold is reached. All of this holds for every engine.
"""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.context.compactions import complete_compaction, make_compaction
from penstock.context.engine_adapter import EngineAdapter
from penstock.context.events import Compacted, Compacting, Noticed, Recovering, tell_notice
from penstock.context.live_view import LiveView
from penstock.context.recovery import GiveUp, LowerCap, Shrink, next_step
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Role
from penstock.conversation.speakers import people_in
from penstock.engine.contract import Beside, CompactionWish
from penstock.errors import EngineFailure, PenstockError, ProviderError, StoreConflict, TargetTooSmall
from penstock.measure.usage import Usage
from penstock.planning.economics import Why
from penstock.planning.policy import WAYS_OUT, Compact, Guard, Policy, Trigger, Wait
from penstock.planning.pressure import Pressure
from penstock.sessions.metering import WindowListings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.context.bookkeeping import Bookkeeper
    from penstock.context.compactions import PreparedCompaction
    from penstock.context.drafting import Drafter
    from penstock.context.events import ContextEvent
    from penstock.conversation.view import ViewMessage
    from penstock.engine.contract import ContextEngine
    from penstock.planning.economics import Weighed
    from penstock.planning.policy import Decision
    from penstock.planning.pressure import Notice
    from penstock.planning.receipt import SummaryCall
    from penstock.sessions.appending import PreparedMessages
    from penstock.sessions.drafts import CompactionDraft
    from penstock.sessions.session import Session
    from penstock.sessions.stored_view import ViewBase
    from penstock.stores.values import Delivery, NewFact, SessionRow, Standing, UsageRow

__all__ = ["Beside", "Context", "RefusedRequest"]

_KEPT_TOKENS = 30_000  # by a compaction that pays; keeping less saves more than a better moment does
_FITS = 0.9  # of the threshold: if the prepared view and later messages take more, the whole view is compacted again
_ROOMY = 0.6  # of the threshold: if the target cannot be met, this leaves room for some turns
_REST = 1.1  # an engine that failed or found nothing to do is asked again at this multiple of the size
_LEAST_BY_HAND = 1_000  # tokens: there is no point in making a conversation smaller than this
_TRUNCATED = 0.6  # of the expected prompt: a provider that reports less has silently cut it
_WORTH_A_LOOK = 4_000  # tokens: in a smaller prompt, a small error of ours looks like a cut
_GROWTHS = 5  # requests whose growth tells whether the next one reaches the threshold


class RefusedRequest(msgspec.Struct, frozen=True):
    """A refused request: its estimated size, the maximum length of its answer, and the number of the attempt."""

    tokens: int
    max_output_tokens: int | None
    attempt: int


def _do_nothing(*_told: Any) -> None:
    """Does nothing, for hosts that set no hook."""


class Context:
    """The context of one session, compacted by any engine. Not safe to share between tasks.

    A host may set:

    - `bookkeeper`: lets prices decide on compactions below the threshold.
    - `before_compaction`: called with the facts of the messages that are about to leave the view; and, when the host leaves
      the conversation, with all that people demanded in it.
    - `on_boundary`: called after each compaction, when the beginning of the prompt has changed anyway.
    - `prepares`: False for a host that ends after its answer, so that preparing would be wasted.
    - `drafter`: works out compactions in another process, if the engine is not needed for them.

    `outside_tokens` is the size of a request's other parts, beside the messages; `compactions` counts the compactions of
    this process.
    """

    def __init__(self, session: Session, engine: ContextEngine, tell: Callable[[ContextEvent], None]) -> None:
        self.session = session
        self.engine = engine
        self.outside_tokens = 0
        self.compactions = 0
        self.bookkeeper: Bookkeeper | None = None
        self.prepares = True
        self.drafter: Drafter | None = None
        self.before_compaction: Callable[[Sequence[NewFact]], None] = _do_nothing
        self.on_boundary: Callable[[], None] = _do_nothing
        self._view = LiveView(session)
        self._tell = tell
        self._adapter = EngineAdapter(engine, session.row.dialect)
        self._reserved_output_tokens = 0
        # Models for summaries: the person was told that these fail.
        self._failed_writers: set[str] = set()
        self._tried_end = 0  # messages in the view when the model last asked for a compaction
        # Compactions in this turn after refusals; None if the host does not mark turns.
        self._shrunk: int | None = None
        self._rests_below = 0  # tokens: an engine that failed is not asked again before
        self._beside = Beside()
        self._reported: list[int] = []  # prompts of the last requests
        self._prepared: asyncio.Task[PreparedCompaction] | None = None
        self._dropped: asyncio.Task[PreparedCompaction] | None = None  # unwanted; may still be running
        self._listings = WindowListings(session)
        self._pressure = self._new_pressure()

    def begin_turn(self) -> None:
        """Starts a turn, whose requests share the limit `compression.max_attempts`.

        For a host that never calls it, each request is a turn.
        """
        self._shrunk = 0

    # The messages, and their size.

    @property
    def view(self) -> list[Any]:
        """The messages of the next request."""
        return self._view.wires

    @property
    def messages(self) -> Sequence[ViewMessage]:
        """The messages of the next request, each with its position in the log."""
        return self._view.messages

    @property
    def prefix_end(self) -> int | None:
        """The number of messages at the start of the view that the last compaction made; None without a compaction."""
        return self._view.settled_end

    def append(self, messages: Sequence[Any], *, keep_results: bool = False) -> None:
        """Logs messages, and sends them from now on. With `keep_results`, large tool results go to the store."""
        self.append_prepared(self.session.workings.prepare(messages, keep_results=keep_results))

    def append_prepared(
        self,
        prepared: PreparedMessages,
        *,
        delivery: Delivery | None = None,
        queued_upto: int | None = None,
    ) -> None:
        """Does what `append` does with messages that the host has prepared; for the other arguments see `Store.deliver`."""
        self._view.append(prepared, delivery=delivery, queued_upto=queued_upto)

    def restore_bytes(self, messages: Sequence[Any]) -> list[Any]:
        """Returns a request's messages, as logged bytes wherever they are still the objects of the view."""
        return self._view.restore_bytes(messages)

    def catch_up(self) -> bool:
        """Reads what another process has logged or compacted meanwhile; returns False if there is nothing new."""
        if not self.session.workings.is_behind():
            return False
        self._drop_prepared()
        self.session.refresh()
        self.session.workings.meter.forget_report()
        self._load()
        if self.bookkeeper is not None:
            self.bookkeeper.resume()
        return True

    def follow(self, row: SessionRow, standing: Standing) -> list[Any]:
        """Reads and returns what another process has logged meanwhile, for callers that know it has compacted nothing.

        The caller has read the state of the conversation. Unlike `catch_up`, this only costs the messages that were added.
        """
        length = self.session.workings.tip.length
        self._drop_prepared()
        self.session.workings.go_to(row, standing)
        self.session.workings.meter.forget_report()
        new = self._view.follow(length)
        if self.bookkeeper is not None:
            self.bookkeeper.resume()
        return [message.wire for message in new]

    def read_log(self) -> list[Any]:
        """Returns every message of the log, including those that a compaction took out of the view."""
        return self._view.read_log()

    @property
    def counted(self) -> int:
        """The tokens of a request with the view, by our own count."""
        return self._view.tokens + self.outside_tokens

    def tokens(self) -> int:
        """Returns the tokens that the provider would report: its last report, plus what was added since."""
        return self.session.workings.meter.estimate(self.counted)

    def weigh(self, beside: Beside) -> None:
        """Counts the parts of the next request beside its messages."""
        self._beside = beside
        self.outside_tokens = self.session.workings.weigh_outside(tools=beside.tools, system=beside.system)
        if beside.passing:
            dialect = dialect_named(self.session.row.dialect)
            self.outside_tokens += self.session.workings.weigh(
                [dialect.text_message(Role.USER, text) for text in beside.passing]
            )

    @property
    def policy(self) -> Policy:
        """The policy that decides when to compact, for the window and the threshold of the engine in use."""
        settings, engine = self.session.settings, self.engine
        reserved, emergency = self._reserved_output_tokens, settings.pressure.emergency
        window = engine.context_length or self.session.window.tokens
        policy = Policy.of(settings.compression, window, reserved, emergency=emergency)
        if not engine.threshold_tokens:
            return policy
        budgets = msgspec.structs.replace(policy.budgets, threshold_tokens=engine.threshold_tokens)
        return msgspec.structs.replace(policy, budgets=budgets)

    # The model and its limits.

    def fit_window(self, tokens: int) -> None:
        """Sets the size of the window. Raises EngineFailure."""
        if tokens != self.engine.context_length:
            self.use_model(self.session.row.model, tokens)

    def use_model(self, model: str, window_tokens: int, provider: str = "") -> None:
        """Sets the model and its window. Raises EngineFailure."""
        self._adapter.update_model(model, window_tokens, self.session.endpoint, provider)
        self._follow_limits()

    async def learn_window(self, model: Any) -> None:
        """Asks the provider for the size of the model's window, unless the settings or a refusal have stated it.

        `model` is anything with `window_tokens()`. Does not raise: without an answer, nothing changes.
        """
        if await self._listings.ask(model):
            self._try_to_tell(lambda: self.fit_window(self.session.window.tokens))

    def reserve_output(self, tokens: int) -> None:
        """Reserves room for answers of that length, if the engine can. Raises EngineFailure."""
        self._adapter.reserve_output(tokens)
        self._reserved_output_tokens = tokens
        self._follow_limits()

    def _follow_limits(self) -> None:
        self._pressure = self._new_pressure()
        if self.bookkeeper is not None:
            self.bookkeeper.set_limit(self.engine.threshold_tokens)

    # Before a request, after its answer, and after a refusal.

    async def fit(self, beside: Beside | None = None) -> None:
        """Compacts before a request, if that is due or pays.

        An engine that fails, or finds nothing to compact, is not asked again until the request has grown. Tells the person
        of a failure.
        """
        if beside is not None:
            self.weigh(beside)
        tokens, before = self.tokens(), self.compactions
        weighed = self._weigh_prices(tokens)
        try:
            decision = self._decide(tokens, weighed)
            if isinstance(decision, Compact):
                made = await self._compact_as_decided(decision, tokens, weighed)
                if made is None and not self.engine.hosting.watches_pressure:
                    self._rests_below = int(tokens * _REST)
        except (EngineFailure, TargetTooSmall) as error:
            self._rests_below = int(tokens * _REST)
            self._tell(Noticed("warn", f"{error}; the conversation continues unchanged"))
        if self.bookkeeper is not None:
            self.bookkeeper.book(self.tokens(), compacted=self.compactions > before)

    async def tidy(self) -> PreparedCompaction | None:
        """Compacts, before a new message, a view that has reached `compression.hygiene_threshold` of the window.

        It is the safety net of hosts whose conversations are resumed after hours, and asks no model. It goes by the last
        reported prompt plus what was logged since, or else by our estimate, and leaves fewer than four messages alone.
        Returns None if nothing was due or nothing could be made smaller. Tells the person if the engine fails.
        """
        tokens = self.tokens()
        decision = self.policy.hygiene(tokens, len(self.session), Guard(fires_from_tokens=self._rests_below))
        if not isinstance(decision, Compact):
            return None
        try:
            made = await self._compact_as_decided(decision, tokens, None)
        except (EngineFailure, TargetTooSmall) as error:
            made = None
            self._tell(Noticed("warn", f"{error}; the conversation continues unchanged"))
        if made is None:
            self._rests_below = int(tokens * _REST)
        return made

    def pass_on(self, beside: Beside | None = None) -> None:
        """Books a request that goes out with the present view, for a host that saw with `find_due_size` that nothing is due."""
        if beside is not None:
            self.weigh(beside)
        if self.bookkeeper is not None:
            tokens = self.tokens()
            self._weigh_prices(tokens)
            self.bookkeeper.book(tokens, compacted=False)

    def find_due_size(self, *, warm: bool | None = None) -> int | None:
        """Returns the size at which `fit` begins to compact the next request; None if it never does.

        That is the threshold, or a smaller size at which prices decide. They depend on the provider's cache, which is taken
        as it is now, or as warm or cold if the caller says so. Returns 0 for an engine that does not tell when it is due:
        it must be asked each time.
        """
        hosting = self.engine.hosting
        if not self.session.settings.compression.enabled:
            return None
        if hosting.is_due is None:
            return 0
        due = max(self.policy.budgets.threshold_tokens, self._rests_below)
        kept = self._count_kept_where_it_pays()
        if self.bookkeeper is None or kept is None:
            return due
        tokens = self.tokens()
        pays = self.bookkeeper.find_paying_size(
            tokens, self._count_static(tokens), kept, hosting.summary_tokens, warm=warm
        )
        return due if pays is None else min(due, pays)

    def take_usage(self, usage: Usage, sent_tokens: int, *, names_cache: bool = True) -> UsageRow:
        """Books the usage of an answer, and learns from it. `sent_tokens` is our estimate of the request's size.

        `names_cache` is False if the provider's report has no field for cached tokens.
        """
        row = self.session.record_usage(usage, self.counted)
        reported = usage.prompt_tokens
        if not reported:
            return row
        self._reported = [*self._reported[-_GROWTHS:], reported]
        if self.bookkeeper is not None:
            self.bookkeeper.settle(usage, self.counted, names_cache=names_cache)
        self._try_to_tell(lambda: self._adapter.report(usage))
        if not self.engine.hosting.watches_pressure:
            self._pressure, notices = self._pressure.observe(reported)
            self._say(notices)
        if sent_tokens > _WORTH_A_LOOK and reported < _TRUNCATED * sent_tokens:
            self._tell(
                Noticed(
                    "warn",
                    f"the provider read {reported:,} tokens where about {sent_tokens:,} were sent: it may cut long "
                    "prompts without saying so; set model.context_length to its real window",
                )
            )
        return row

    def lose(self) -> None:
        """Books a request that was broken off. The provider may have billed it, so sums that include it say "at least"."""
        self.session.record_usage(Usage())

    async def recover(
        self, error: ProviderError, refused: RefusedRequest, beside: Callable[[], Beside]
    ) -> int | None:
        """Makes a refused request smaller; returns the maximum length of the answer for the next attempt.

        `beside` returns the other parts of the next attempt: a window that turned out to be small may have room for fewer.
        Raises ProviderError if nothing helps, or if compacting is not allowed; its text says what to do.
        """
        session, kind = self.session, str(error.failure.kind)
        step = next_step(
            error.failure,
            self.policy,
            sent_tokens=refused.tokens,
            max_output_tokens=refused.max_output_tokens,
            attempt=refused.attempt,
            shrunk=self._shrunk or 0,
        )
        if isinstance(step, GiveUp):
            if not step.why:
                raise error
            raise ProviderError(step.why, failure=error.failure, requests=error.requests) from error
        if isinstance(step, LowerCap):
            self._tell(Recovering(kind, f"asking for at most {step.max_output_tokens:,} tokens of answer"))
            session.workings.learn_output_cap(error.failure)
            return step.max_output_tokens
        # Windows and refusals count the provider's tokens, plans count ours.
        scale = step.sent_tokens / max(1, self.counted)
        if session.learn_window(error.failure):
            self.fit_window(session.window.tokens)
            self.weigh(beside())
        if self._shrunk is not None:
            self._shrunk += 1
        await self._shrink(error, step, refused, scale, beside)
        self.weigh(beside())
        return refused.max_output_tokens

    async def _shrink(
        self,
        error: ProviderError,
        step: Shrink,
        refused: RefusedRequest,
        scale: float,
        beside: Callable[[], Beside],
    ) -> None:
        """Compacts a refused request. `scale` is the number of tokens that the provider counts for each of ours.

        Raises ProviderError if it cannot be made smaller.
        """
        kind, outside = str(error.failure.kind), int(self.outside_tokens * scale)
        sizes = step.aim(self.policy.budgets.target_tokens(0) + outside)
        self._tell(Recovering(kind, f"compacting to {sizes[0]:,} tokens, then asking again"))
        most = max(1, int(step.most_tokens / scale))
        done, parts = None, {}
        for size in sizes:
            target = max(1, int(size / scale) - self.outside_tokens)
            wish = CompactionWish(
                target_tokens=target, most_request_tokens=most, trigger=Trigger.OVERFLOW, refused=True
            )
            try:
                done = await self.compact(step.reason, refused.tokens, wish)
                break
            except TargetTooSmall as small:
                parts = small.parts
        if done is None and (parts or self.tokens() >= refused.tokens):  # the provider would refuse it again
            raise self._too_large(error, parts, beside()) from error

    def _too_large(self, error: ProviderError, parts: Mapping[str, int], beside: Beside) -> ProviderError:
        """Returns the error for a request that cannot be made smaller. It lists the tokens of each part."""
        outside = {
            "system prompt": self.session.workings.weigh_outside(system=beside.system),
            "tools": self.session.workings.weigh_outside(tools=beside.tools),
        }
        listed = ", ".join(f"{name} {tokens:,}" for name, tokens in {**outside, **parts}.items() if tokens)
        text = f"{str(error).rstrip('.')}; nothing more can be dropped from the request: it has {listed} tokens; {WAYS_OUT}"
        return ProviderError(text, failure=error.failure, requests=error.requests)

    # Deciding.

    def _decide(self, tokens: int, weighed: Weighed | None) -> Decision:
        """Returns the policy's decision before a request. The engine is asked only if the policy would allow it."""
        policy = self.policy
        due = policy.due(tokens, Guard(fires_from_tokens=self._rests_below))
        if isinstance(due, Compact) and self._adapter.is_due(self.view, tokens):
            return due
        if weighed is not None:
            # At the limit, the engine has the last word.
            pays = weighed.compact and weighed.why is not Why.LIMIT
            return policy.economy(weighed.reason, pays=pays, model_pays=weighed.summary_tokens > 0)
        return Wait(reason="the engine finds nothing to do")

    def _may_prepare(self, tokens: int) -> bool:
        if not self.prepares or self._prepared is not None or not self.engine.hosting.works_in_background:
            return False
        if tokens < self._rests_below or not isinstance(self.policy.background(tokens), Compact):
            return False
        return self._is_worth_preparing(tokens)

    def _is_worth_preparing(self, tokens: int) -> bool:
        """Returns True if a summary will be used soon, or pays for itself: below the threshold, none may raise the bill."""
        if self.bookkeeper is None or self.bookkeeper.can_pay(tokens, self.engine.hosting.summary_tokens):
            return True
        grown = [max(0, now - before) for before, now in pairwise(self._reported)]
        return bool(grown) and tokens + median(grown) >= self.engine.threshold_tokens

    def _wish_for(self, decision: Compact) -> CompactionWish:
        if decision.trigger is Trigger.ECONOMY:
            return CompactionWish(
                target_tokens=self.session.workings.count_reported(self._count_kept_where_it_pays() or 0)
                or None,
                may_call_model=decision.may_call_model,
                trigger=decision.trigger,
            )
        return CompactionWish(
            target_tokens=self._limit_target(),
            may_call_model=decision.may_call_model,
            trigger=decision.trigger,
        )

    def _limit_target(self) -> int | None:
        """Returns the target for the messages at the threshold; None for the engine's own target.

        It is lower if prices are known and no model is asked, since every request pays for all that was kept. It is also
        lower if large tools leave little room below the threshold: half of that room is for later messages.
        """
        hosting, workings = self.engine.hosting, self.session.workings
        if hosting.kept_tokens is None:
            return None
        own = wanted = workings.count_reported(hosting.kept_tokens)
        books = None if self.bookkeeper is None else self.bookkeeper.books
        if books is not None and not hosting.summary_tokens:
            wanted = min(own, workings.count_reported(_KEPT_TOKENS))
        half = (workings.count_reported(self.engine.threshold_tokens) - self.outside_tokens) // 2
        if half >= 1:
            wanted = min(wanted, half)
        return wanted if wanted < own else None

    def _weigh_prices(self, tokens: int) -> Weighed | None:
        kept = self._count_kept_where_it_pays()
        if self.bookkeeper is None or kept is None:
            return None
        return self.bookkeeper.weigh(
            tokens, self._count_static(tokens), kept, self.engine.hosting.summary_tokens
        )

    def _count_static(self, tokens: int) -> int:
        """Returns the provider's count of a request's tokens beside the messages."""
        return tokens * self.outside_tokens // max(1, self.counted)

    def _count_kept_where_it_pays(self) -> int | None:
        """Returns the tokens that a compaction leaves when prices decide: fewer than at the threshold of a large window."""
        kept = self.engine.hosting.kept_tokens
        return None if kept is None else min(_KEPT_TOKENS, kept)

    # Compacting.

    async def _compact_as_decided(
        self, decision: Compact, tokens: int, weighed: Weighed | None
    ) -> PreparedCompaction | None:
        """Compacts as the policy says. If the target cannot be met, tries larger ones that are still below the threshold.

        Pins or the last request may be larger than the target and still leave room in the window.
        """
        wish = self._wish_for(decision)
        try:
            made = await self.compact(decision.reason, tokens, wish, weighed)
        except TargetTooSmall:
            if decision.trigger is Trigger.ECONOMY:
                return None
        else:
            if made is not None or decision.trigger is not Trigger.EMERGENCY:
                return made
        try:
            return await self.compact(decision.reason, tokens, self._widen(wish, _ROOMY), weighed)
        except TargetTooSmall:
            return await self.compact(decision.reason, tokens, self._widen(wish, _FITS), weighed)

    def _widen(self, wish: CompactionWish, share: float) -> CompactionWish:
        """Returns the wish with a target of that share of the threshold."""
        below = (
            self.session.workings.count_reported(int(share * self.engine.threshold_tokens))
            - self.outside_tokens
        )
        return msgspec.structs.replace(wish, target_tokens=max(1, below))

    async def compact(
        self,
        reason: str,
        tokens: int,
        wish: CompactionWish | None = None,
        weighed: Weighed | None = None,
    ) -> PreparedCompaction | None:
        """Compacts now; returns None if there was nothing to do. `tokens` is the present size of the request.

        Raises TargetTooSmall for a target that cannot be met, and EngineFailure if the engine fails; then the view stays
        unchanged.
        """
        wish = wish or CompactionWish()
        started = time.monotonic()
        made = await self._take_prepared(reason, wish, tokens)
        waited = time.monotonic() - started
        if made.draft is None and wish.trigger is Trigger.MANUAL:
            return None  # a look by hand that saves nothing says nothing about the next automatic pass
        self._try_to_tell(lambda: self._adapter.settle(made.receipt, tokens))
        if made.draft is None:
            return None
        old_id = self.session.id
        if self.before_compaction is not _do_nothing:
            # An engine that only returns a list names no facts of the messages that leave.
            self._leave_to_memory(made.draft.facts or self.session.workings.list_demands)
        try:
            why = weighed.to_dict() if weighed is not None else {"reason": reason}
            await self._commit(made.draft, why, wish.trigger)
        except StoreConflict:  # another process was quicker, and its compaction is the view now
            self.session.refresh()
            self._load()
            return None
        self._try_to_tell(lambda: self._adapter.switch(old_id, self.session.id, "compression"))
        self._take(made.draft, made.view_tokens)
        if self.bookkeeper is not None:
            self.bookkeeper.replace_view(tokens, self.tokens())
        self.compactions += 1
        self._rests_below = 0
        if not self.engine.hosting.watches_pressure:
            self._pressure, notices = self._pressure.observe_compaction(self.tokens())
            self._say(notices)
        self.on_boundary()
        self._tell(Compacted(made.receipt, reason, waited))
        self._tell_fallback(made.receipt.summary_call)
        return made

    async def _commit(self, draft: CompactionDraft, why: Mapping[str, Any], trigger: Trigger) -> None:
        """Commits a draft at once, since nothing may be logged meanwhile. A host that ensures this may use a thread."""
        self.session.workings.commit_draft(draft, why, trigger)

    def _tell_fallback(self, call: SummaryCall) -> None:
        """Tells the person, once for each model, that the model for summaries fails and another one replaces it."""
        if call.outcome != "fallback" or call.chosen in self._failed_writers:
            return
        self._failed_writers.add(call.chosen)
        self._tell(
            Noticed(
                "warn",
                f"{call.chosen}, the model for summaries, failed: {call.error}; {call.model} writes them for now. Check "
                "auxiliary.compression and compression.summary_model",
            )
        )

    async def compact_by_hand(
        self, focus: str | None = None, keep_exchanges: int | None = None
    ) -> PreparedCompaction | None:
        """Compacts because a person asked: with a topic in focus, or everything but the last exchanges.

        Returns None if there is nothing to do. Raises EngineFailure if the engine fails.
        """
        reason = self.policy.manual().reason
        wish = CompactionWish(focus=focus or None, pins=self._last_exchanges(keep_exchanges))
        done = await self.compact(reason, self.tokens(), wish)
        half = self._view.tokens // 2
        if done is not None or half < _LEAST_BY_HAND or self.engine.hosting.kept_tokens is None:
            return done
        # A full window would be compacted to more than this conversation has; a person who asks wants it smaller still.
        try:
            return await self.compact(
                reason, self.tokens(), msgspec.structs.replace(wish, target_tokens=half)
            )
        except TargetTooSmall:
            return None

    def judge_wish_of_model(self) -> Decision:
        """Decides on a compaction that the model asks for: there must be something new to compact."""
        settled = max(self.prefix_end or 0, self._tried_end)
        new = self._view.weigh(self.messages[settled:]) if settled else None
        return self.policy.by_model(new)

    async def compact_for_model(self, focus: str) -> None:
        """Compacts because the model asked, with its topic in focus. Does nothing if there is nothing to gain.

        Does not raise: tells the person of a failure, and the conversation goes on.
        """
        decision = self.judge_wish_of_model()
        if not isinstance(decision, Compact):
            return
        self._tried_end = len(self.messages)
        try:
            await self.compact(
                decision.reason,
                self.tokens(),
                CompactionWish(focus=focus or None, trigger=decision.trigger),
            )
        except (EngineFailure, TargetTooSmall) as error:
            self._tell(Noticed("warn", f"{error}; the conversation continues unchanged"))

    def _last_exchanges(self, count: int | None) -> frozenset[int]:
        """Returns the numbers of the messages of the last `count` exchanges."""
        if not count:
            return frozenset()
        view = self.session.workings.read_view_base().view
        messages = decode_all(dialect_named(self.session.row.dialect), view.wires)
        asked = people_in(messages)
        first = asked[-count] if len(asked) >= count else 0
        return frozenset(number for number in view.numbers[first:] if number)

    def undo(self) -> bool:
        """Undoes the last compaction; False if there is none."""
        self._drop_prepared()
        done = self.session.undo()
        if done:
            before = self.tokens()
            self.reload()
            if self.bookkeeper is not None:
                self.bookkeeper.replace_view(before, self.tokens())
        return done

    def reload(self) -> None:
        """Reads the view again after a host has rewound the session or recorded another view."""
        self._drop_prepared()
        self.session.refresh()
        self._try_to_tell(lambda: self._adapter.start(self.session.id))
        self._load()

    def leave(self) -> None:
        """Saves to memory what must outlive the conversation, before the host ends it or goes to another one."""
        if len(self.session) and self.before_compaction is not _do_nothing:
            self._leave_to_memory(self.session.workings.list_demands)

    async def aclose(self) -> None:
        """Stops preparing, and ends the session for its engine."""
        self._drop_prepared()
        if self._dropped is not None:
            await _end(self._dropped)
        self._try_to_tell(lambda: self._adapter.end(self.session.id, self.view))

    # The engine's own tools.

    def engine_tools(self, taken: set[str]) -> list[dict[str, Any]]:
        """Returns the engine's tools for the host to offer, except any whose name is taken. Raises EngineFailure."""
        return self._adapter.tool_schemas(taken)

    def call_engine_tool(self, name: str, arguments: str) -> str:
        """Returns the answer of one of those tools. Raises EngineFailure."""
        return self._adapter.call(name, arguments, self.view)

    # Preparing.

    def prepare(self) -> None:
        """Starts preparing a compaction, after an answer, if one is near. The event loop must be running.

        The request that was just answered is in the provider's cache, so that a request for a summary reads nearly all of
        it from there.
        """
        tokens = self.tokens()
        if self._may_prepare(tokens):
            self._prepare()

    def _prepare(self) -> None:
        wish = CompactionWish(target_tokens=self._limit_target(), trigger=Trigger.BACKGROUND)
        # The view of this moment: an answer may be logged before the thread reads it.
        base = self.session.workings.read_view_base(with_pins=True)
        self._prepared = asyncio.ensure_future(self._make(wish, self.tokens(), base))

    async def wait_prepared(self) -> None:
        """Waits for the compaction that is being prepared, for a host with nothing else to do, as between two turns."""
        if self._prepared is not None:
            await asyncio.wait([self._prepared])

    async def _take_prepared(self, reason: str, wish: CompactionWish, tokens: int) -> PreparedCompaction:
        """Returns the prepared compaction if it meets the present wish; otherwise makes one."""
        prepared = self._prepared
        self._prepared = None
        usable = (
            prepared is not None
            and not prepared.cancelled()
            and (self._is_as_prepared(wish) or self._will_do(prepared, wish))
        )
        # In an emergency, do not wait for a model that may be writing.
        if prepared is not None and usable and (prepared.done() or wish.may_call_model):
            if not prepared.done():
                self._tell(Compacting(reason))
            try:
                made = await prepared
                if self._still_fits(made) and (made.draft is not None or not wish.trigger.forces):
                    return await self._complete(made)
            except PenstockError as error:
                self._tell(Noticed("warn", f"preparing a compaction failed, so it is made again: {error}"))
        elif prepared is not None:
            self._dropped = prepared
        self._tell(Compacting(reason))
        return await self._make(wish, tokens)

    async def _complete(self, made: PreparedCompaction) -> PreparedCompaction:
        """Returns the prepared compaction, completed with what the agent has used since, if that fits."""
        later = self._view.list_logged_since(made.log_length)
        completed = await complete_compaction(self.session, made, later, self.drafter)
        return completed if self._still_fits(completed) else made

    def _is_as_prepared(self, wish: CompactionWish) -> bool:
        """Returns True if a prepared compaction would meet this wish exactly."""
        limited = wish.target_tokens is not None and wish.target_tokens == self._limit_target()
        return wish.is_plain or (limited and not wish.focus and not wish.pins)

    def _will_do(self, prepared: asyncio.Task[PreparedCompaction], wish: CompactionWish) -> bool:
        """Returns True if the prepared compaction is ready and no larger than the wish: it is paid for already."""
        if wish.focus or wish.pins or wish.target_tokens is None or not prepared.done():
            return False
        return prepared.exception() is None and 0 < prepared.result().view_tokens <= wish.target_tokens

    async def _make(
        self, wish: CompactionWish, tokens: int, base: ViewBase | None = None
    ) -> PreparedCompaction:
        """Makes a compaction of the present view or of an earlier one, which waits until it is due."""
        if self._dropped is not None:
            await _end(self._dropped)
            self._dropped = None
        unsent = self.bookkeeper.unsent_messages if self.bookkeeper is not None and base is None else 0
        wish = msgspec.structs.replace(
            wish, beside=self._beside, unsent=unsent, book_summary=self._book_summary
        )
        return await make_compaction(
            self.session, self._adapter, wish, tokens, base, drafter=self.drafter, waits=base is not None
        )

    def _book_summary(self, model: str, usage: Usage) -> None:
        """Books the cost of a summary, even if it was broken off or is never used."""
        self.session.workings.book_summary(model, usage)
        if self.bookkeeper is None:
            return
        if usage.total_tokens:
            self.bookkeeper.spend(model, usage)
        else:
            self.bookkeeper.spend_unreported(self.tokens())

    def _still_fits(self, made: PreparedCompaction) -> bool:
        """Returns True if the prepared compaction still applies: the pins are the same, and what was logged since fits."""
        if made.pins != self.session.store.pins(self.session.id):
            return False
        if made.draft is None:
            return len(self.session) == made.log_length
        later = self._view.list_logged_since(made.log_length)
        counted = made.view_tokens + self._view.weigh(later) + self.outside_tokens
        return counted < _FITS * self.session.workings.count_reported(self.engine.threshold_tokens)

    def _drop_prepared(self) -> None:
        if self._prepared is not None:
            self._prepared.cancel()
            self._dropped, self._prepared = self._prepared, None

    # The view in memory, and telling others.

    def _take(self, draft: CompactionDraft, tokens: int) -> None:
        """Continues with the view of a committed compaction."""
        self._tried_end = 0
        if self.session.workings.is_behind():
            # Another process has logged something: read it, since the request must hold the whole log.
            self.session.refresh()
            self._view.load()
        else:
            self._view.replace(draft, tokens)

    def _load(self) -> None:
        """Reads the view again from the store."""
        self._tried_end = 0
        self._view.load()

    def _leave_to_memory(self, facts: Sequence[NewFact] | Callable[[], Sequence[NewFact]]) -> None:
        """Saves to memory what leaves the view. If that fails, it leaves the view anyway."""
        try:
            self.before_compaction(facts() if callable(facts) else facts)
        except PenstockError as error:
            self._tell(Noticed("warn", f"memory could not take what leaves the view: {error}"))

    def _try_to_tell(self, action: Callable[[], None]) -> None:
        """Calls the engine. Tells the person of a failure instead of raising, so that no answer is lost."""
        try:
            action()
        except PenstockError as error:
            self._tell(Noticed("warn", str(error)))

    def _new_pressure(self) -> Pressure:
        settings = self.session.settings
        automatic = settings.compression.enabled
        return Pressure.of(self.policy.budgets, settings.pressure, automatic=automatic)

    def _say(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            tell_notice(notice, self._tell)


async def _end(prepared: asyncio.Task[PreparedCompaction]) -> None:
    """Ends a preparation that is no longer wanted, and waits for it: the next one uses the same notebook."""
    if prepared.cancel():
        await asyncio.wait([prepared])
    if not prepared.cancelled():
        prepared.exception()  # retrieved, so that asyncio does not report it
