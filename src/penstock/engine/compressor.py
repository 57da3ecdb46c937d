"""The built-in engine: compacts, with a model's prose if there is a model; reads each message once; does not thrash."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

from penstock._log import log
from penstock.conversation.dialects.base import require_list
from penstock.conversation.handles import parse_message_handle
from penstock.engine.attempt import WriterMemory
from penstock.engine.auxiliary import provider_of, summariser_for, writes_summaries
from penstock.engine.compress import (
    CompressRequest,
    compress_list,
    new_notebook,
    read_settings,
    summarise_list,
)
from penstock.engine.contract import CompactionWish, ContextEngine, Hosting
from penstock.engine.learned import Learned, notes_for
from penstock.engine.recollection import Recollection
from penstock.engine.summariser import summariser_of
from penstock.engine.threads import in_thread, run_sync
from penstock.errors import SettingsError, UnknownHandle
from penstock.measure.calibration import Calibration, RunningEstimate
from penstock.measure.tokens import tokenizer_for
from penstock.measure.usage import normalise_usage
from penstock.measure.windows import resolve_window
from penstock.planning.policy import Compact, Decision, Guard, Policy, Thrash, Trigger, is_worth_it
from penstock.planning.pressure import Level, Notice, Pressure
from penstock.planning.receipt import NOTHING_TO_DO, describe_compaction
from penstock.providers.connect import connect
from penstock.providers.presets import PRESETS
from penstock.recall.semantic import embedder_for
from penstock.recall.tools import EXPAND, limit_answer, tool_schemas
from penstock.stores.store import require_store
from penstock.writing.writer import PROSE_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.engine.compress import Compressed
    from penstock.engine.learned import PartNotes
    from penstock.engine.summariser import Summariser
    from penstock.measure.windows import Window
    from penstock.planning.receipt import Receipt
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.writing.notebook import Notebook

__all__ = ["ContextCompressor"]

_LEVELS = {Level.LOG: logging.INFO}
_API_MODES = {
    "chat_completions": "openai",
    "anthropic_messages": "anthropic",
    "responses": "responses",
    "codex_responses": "responses",
}
"""The names that hosts give to APIs, and the provider whose dialect each is."""


class ContextCompressor(ContextEngine):
    """The engine `compressor`.

    `context_length` is the window. Without it, the window of `model` comes from the settings, the store or the bundled
    table; if none of them knows the model, a notice says which window is assumed.

    With a `summariser` (a `Summariser`, a model, or a function from a prompt to a text), a model writes the prose of
    handoffs. Without it, the settings and `update_model` decide; without those, no model is asked. From the emergency
    level on, no model is asked in any case. `on_notice` is called with messages for people (pressure, and why
    compaction pauses); without it they go to the log. With `recall_tools`, the agent gets tools to find and read
    messages that have left its view, and stubs and handoffs name them. One instance serves one conversation at a time
    and is not safe to share between threads; `copy.deepcopy` makes a fresh one with the same settings, model and store.

    With a `store`, knowledge about models outlives the process: how they count and how large their windows are. So do a
    summariser's notes on parts of a session that the store knows.

    `reserved_output_tokens` is the `max_tokens` of requests; budgets are for the rest of the window.
    """

    threshold_percent = 0.50
    protect_first_n = 3
    protect_last_n = 20
    _shared: ClassVar[frozenset[str]] = frozenset(
        {"settings", "_on_notice", "_given_summariser", "_summariser", "_store", "_learned"}
    )
    """The attributes that a deep copy shares with its original."""
    _forgotten: ClassVar[frozenset[str]] = frozenset({"_notebook", "_recollection"})
    """The attributes that `on_session_reset` renews."""

    def __init__(  # noqa: PLR0913  # all but the first by name
        self,
        context_length: int | None = None,
        *,
        model: str | None = None,
        threshold_percent: float | None = None,
        protect_first_n: int | None = None,
        protect_last_n: int | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        summariser: Any = None,
        on_notice: Callable[[Notice], None] | None = None,
        recall_tools: bool = False,
        store: Store | None = None,
        reserved_output_tokens: int = 0,
    ) -> None:
        _require_kinds(model, on_notice, store, reserved_output_tokens)
        base = read_settings(settings)
        wished = {
            "threshold": threshold_percent,
            "protect_first_n": protect_first_n,
            "protect_last_n": protect_last_n,
        }
        compression = msgspec.structs.replace(
            base.compression, **{name: value for name, value in wished.items() if value is not None}
        )
        self.settings = msgspec.structs.replace(base, compression=compression)
        self.threshold_percent = compression.threshold
        self.protect_first_n = compression.protect_first_n
        self.protect_last_n = compression.protect_last_n
        self.pins: set[int] = set()
        self._on_notice = on_notice or _log_notice
        self._given_summariser = None if summariser is None else summariser_of(summariser)
        self._host_chooses_writer = False
        self._summariser = self._given_summariser or summariser_for(self.settings, None)
        self._model = model
        self._notebook = self._new_notebook()
        self._originals: dict[int, Any] = {}
        self._recollection = self._new_recollection() if recall_tools else None
        self._store = store
        self._learned = None if store is None else Learned(store)
        self._own_calibration = Calibration()  # of this model, if no store keeps it
        self._endpoint = ""
        self._notes: PartNotes | None = None
        self._observed = (0, 0)  # for the last response: our count, and the provider's report
        self._reserved_output_tokens = reserved_output_tokens
        self._policy: Policy
        self._thrash: Thrash
        self._pressure: Pressure
        self._compressible = self._passed_at = 0
        self._running = RunningEstimate()
        window = None if context_length is not None else self._find_window()
        self._fit_window(context_length if window is None else window.tokens)
        if window is not None and window.source == "default" and model:
            self._say([_assume_window(model, window)])

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Returns a fresh engine with the same settings, model, store and summariser, but without a conversation."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        apart: dict[str, Any] = {"pins": set(), "_originals": {}, "_notes": None}
        for name, value in vars(self).items():
            same = name in self._shared or name in self._forgotten
            setattr(twin, name, value if same else copy.deepcopy(apart.get(name, value), memo))
        twin.on_session_reset()
        return twin

    @property
    def name(self) -> str:
        """`compressor`."""
        return "compressor"

    @property
    def hosting(self) -> Hosting:
        """All optional steps: plans of compactions, background work, and its own watch on the pressure."""
        return Hosting(
            works_in_background=True,
            watches_pressure=True,
            kept_tokens=self._policy.budgets.target_tokens(0),  # handoff and tail
            summary_tokens=0
            if self._summariser is None
            else int(self._policy.budgets.summary_ceiling_tokens * PROSE_SHARE),
            is_due=self.should_compress,  # by tokens alone, since a host with a log weighs its view itself
            compact_view=self._compact_view,
            describe=self._describe,
            on_compaction=self._on_compaction,
            reserve_output=self._reserve_output,
            use_summariser=self._use_summariser,
        )

    def update_from_response(self, usage: Any) -> None:
        """Records the report of a response. Only prompt tokens decide, never completion or reasoning tokens."""
        reported = normalise_usage(usage)
        self._learn(reported.prompt_tokens)
        self.last_prompt_tokens = reported.prompt_tokens
        self.last_completion_tokens = reported.output_tokens
        self.last_total_tokens = reported.total_tokens
        self._running = self._running.report(self.last_prompt_tokens)
        self._observe(self.last_prompt_tokens)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Asks the policy, as after a response."""
        return isinstance(self._decide(prompt_tokens), Compact)

    def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
        """Does what `should_compress` does; also returns the reason if it pauses although it is over the threshold."""
        tokens = self._prompt_tokens() if prompt_tokens is None else prompt_tokens
        decision = self._decide(prompt_tokens)
        rests = not isinstance(decision, Compact) and tokens >= self.threshold_tokens
        return isinstance(decision, Compact), decision.reason if rests else None

    def should_compress_preflight(self, messages: Sequence[Any]) -> bool:
        """Asks the policy, as before a request, with the estimate for these messages."""
        tokens = self.estimate(messages)
        return isinstance(self._policy.preflight(tokens, self._guard(tokens)), Compact)

    def has_content_to_compress(self, messages: Sequence[Any]) -> bool:
        """Returns True if a compression would save a tenth."""
        request = self._request(None, None)
        return compress_list(messages, request, self._notebook).receipt.outcome != NOTHING_TO_DO

    def compress(
        self,
        messages: Sequence[Any],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",  # noqa: ARG002 - of the contract
    ) -> list[Any]:
        """Returns the messages of `compact`.

        With `force`, the guard against useless compactions starts afresh. `memory_context` is not used, since a handoff
        consists of the conversation's own words.
        """
        if force:
            self._thrash = Thrash(threshold_tokens=self.threshold_tokens)
        return self.compact(messages, current_tokens, focus_topic).messages

    async def acompress(
        self,
        messages: Sequence[Any],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
    ) -> list[Any]:
        """Does what `compress` does without blocking the event loop."""
        return (await self.acompact(messages, current_tokens, focus_topic)).messages

    def compact(
        self,
        messages: Sequence[Any],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        *,
        target_tokens: int | None = None,
    ) -> Compressed:
        """Compresses, and returns the result with its receipt. `current_tokens` is the size of the whole request, if known."""
        trigger = self._find_trigger(focus_topic, target_tokens)
        result = self._prepare(messages, focus_topic, target_tokens=target_tokens, trigger=trigger)
        self._finish(result, trigger, current_tokens)
        return result

    async def acompact(
        self,
        messages: Sequence[Any],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        *,
        target_tokens: int | None = None,
    ) -> Compressed:
        """Does what `compact` does without blocking the event loop. Cancelling it stops a request to a model."""
        trigger = self._find_trigger(focus_topic, target_tokens)
        request = msgspec.structs.replace(self._request(focus_topic, target_tokens), trigger=trigger)
        result = await self._compact_beside(messages, request)
        self._finish(result, trigger, current_tokens)
        return result

    def _finish(self, result: Compressed, trigger: Trigger, current_tokens: int | None) -> None:
        self._on_compaction(result.receipt, current_tokens)
        if result.plan is not None:
            log.info("%s", describe_compaction(trigger, result.receipt, result.plan.pieces))

    def _find_trigger(self, focus: str | None, target: int | None) -> Trigger:
        """Infers the occasion for a host that only has a list, from its wishes and the size of the last request."""
        if self._in_emergency():
            return Trigger.EMERGENCY
        return Trigger.PREFLIGHT if focus is None and target is None else Trigger.MANUAL

    def _prepare(
        self,
        messages: Sequence[Any],
        focus_topic: str | None = None,
        *,
        target_tokens: int | None = None,
        trigger: Trigger = Trigger.PREFLIGHT,
    ) -> Compressed:
        """Compresses ahead of time: nothing counts as done before `_on_compaction`."""
        request = msgspec.structs.replace(self._request(focus_topic, target_tokens), trigger=trigger)
        writer = self._writer(may_call_model=True)
        if writer is None:
            return self._remember(self._extractive(messages, request))
        return self._remember(run_sync(self._write_with_model(messages, request, writer)))

    async def _compact_view(
        self, messages: Sequence[Any], numbers: Sequence[int], wish: CompactionWish
    ) -> Compressed:
        """Prepares a compaction for a host with a log, without blocking the event loop. If cancelled, it leaves nothing
        running.

        Replaces the engine's pins by those of the wish. Without `wish.may_call_model`, the handoff consists of the
        conversation's own words.
        """
        request = msgspec.structs.replace(
            self._request_for(wish),
            numbers=numbers,
            beside=wish.beside,
            unsent=wish.unsent,
            refused=wish.refused,
            memory=WriterMemory(self._notes, self._learned, wish.book_summary),
            most_request_tokens=wish.most_request_tokens,
        )
        return await self._compact_beside(messages, request, may_call_model=wish.may_call_model)

    def _request_for(self, wish: CompactionWish) -> CompressRequest:
        """Returns the request for a wish, and replaces the engine's pins by those of the wish."""
        self.pins = set(wish.pins)
        return msgspec.structs.replace(
            self._request(wish.focus, wish.target_tokens), dialect=wish.dialect, trigger=wish.trigger
        )

    def _describe(self, wish: CompactionWish) -> CompressRequest | None:
        """Returns the request that `_extractive` would get; None if a model writes. `lossless` overrides it."""
        writer = self._writer(may_call_model=wish.may_call_model)
        return self._request_for(wish) if writer is None else None

    async def _compact_beside(
        self, messages: Sequence[Any], request: CompressRequest, *, may_call_model: bool = True
    ) -> Compressed:
        """Compresses ahead of time, as `_prepare` does, without blocking the event loop."""
        writer = self._writer(may_call_model=may_call_model)
        if writer is None:
            return self._remember(await in_thread(self._extractive, messages, request))
        return self._remember(await self._write_with_model(messages, request, writer))

    def _on_compaction(self, receipt: Receipt, current_tokens: int | None = None) -> None:
        """Counts a compaction, and pauses if they save too little. `current_tokens` is the size of the request before."""
        # The receipt has our count, the request the provider's.
        scale = self._calibration().estimate
        before, after = scale(receipt.tokens_before), scale(receipt.tokens_after)
        whole = current_tokens or 0  # hosts that do not know it pass None, 0 or -1
        outside = max(0, whole - before) if whole > 0 else self._outside_tokens()
        effective = receipt.outcome != NOTHING_TO_DO and is_worth_it(
            receipt.tokens_before, receipt.tokens_after, forced=False
        )
        compressible = max(0, before - self._policy.budgets.tail_tokens)
        self.last_summary_call = receipt.summary_call
        self._thrash = self._thrash.after_pass(effective=effective, compressible_tokens=compressible)
        self._passed_at, self._compressible = before + outside, compressible
        if reason := self._thrash.reason(compressible):
            limit = self._policy.budgets.threshold_tokens
            self._on_notice(
                Notice(level=Level.WARN, text=reason, prompt_tokens=self._passed_at, limit_tokens=limit)
            )
        if receipt.outcome != NOTHING_TO_DO:
            self.compression_count += 1
            self.last_prompt_tokens = after + outside
            self._running = RunningEstimate(receipt.tokens_after).report(self.last_prompt_tokens)
            self._observed = (0, 0)
            self._pressure, notices = self._pressure.observe_compaction(self.last_prompt_tokens)
            self._say(notices)

    def original(self, handle: str) -> Any:
        """Returns the original of a message that any compaction of this instance elided or summarised."""
        number = parse_message_handle(handle)
        if number not in self._originals:
            raise UnknownHandle(f"there is no original {handle!r} in this conversation")
        return self._originals[number]

    def estimate(self, messages: Sequence[Any], *, unchanged: int = 0) -> int:
        """Returns the tokens of a request with these messages: the provider's last report, plus what came since.

        Counts only new messages; with a store, in the way that the model was seen to count. A host that only appends may
        say how many messages at the start are `unchanged` since the last estimate. If those were all its messages, they
        are not compared, and only the new ones cost time, however long the list is.
        """
        counted = self._notebook.count(require_list(messages), unchanged)
        self._running = self._running.recount(counted)
        if self._recollection is not None:
            self._recollection.see(messages)
        return self._running.tokens(self._calibration())

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Returns the recall tools, if the engine was made with them."""
        return [] if self._recollection is None else tool_schemas()

    def handle_tool_call(self, name: str, args: Mapping[str, Any] | str, **context: Any) -> str:
        """Returns the answer of a recall tool, as JSON. `args` are the model's arguments, as an object or as JSON.

        `messages` in the context is the list that the model sees; without it, the last list that was passed in counts.
        """
        if self._recollection is None:
            return super().handle_tool_call(name, {}, **context)
        return self._recollection.answer(
            name, args, context.get("messages"), limit_answer(self.context_length)
        )

    def on_session_reset(self) -> None:
        """Forgets the conversation, its originals and its guards."""
        super().on_session_reset()
        self._notebook = self._new_notebook()
        self._originals.clear()
        if self._recollection is not None:
            self._recollection = self._new_recollection()
        self.pins.clear()
        self._fit_window(self.context_length)
        self._running = RunningEstimate()
        self._observed = (0, 0)
        self._notes = None

    def on_session_start(self, session_id: str, **context: Any) -> None:  # noqa: ARG002  # all is in the store
        """Starts a session. A resumed conversation begins with open guards, and with the store's notes on it."""
        self._fit_window(self.context_length)
        self._keep_notes_of(session_id)

    def on_session_switch(self, old_id: str, new_id: str, reason: str) -> None:
        """Continues under another id."""
        super().on_session_switch(old_id, new_id, reason)
        self._keep_notes_of(new_id)

    def _use_summariser(self, summariser: Summariser | None) -> None:
        """Lets another model write from now on; with None, the model that the settings name, if any.

        From then on, `update_model` no longer changes which model writes.
        """
        self._given_summariser, self._host_chooses_writer = summariser, True
        self._summariser = summariser or summariser_for(self.settings, None)

    def _reserve_output(self, tokens: int) -> None:
        """Reserves part of the window for answers of that length from now on, with fresh guards."""
        self._reserved_output_tokens = tokens
        self._fit_window(self.context_length)

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """Switches to another window, with fresh guards. Readings are kept unless the tokenizer changes.

        If the call says how to reach the model (`provider`, `base_url` or `api_key`), it is the session's own model, and
        `auxiliary.mode` may let it write summaries. `api_mode` names the API of a provider that we do not know:
        `chat_completions`, `anthropic_messages` or `responses`.
        """
        if (model, base_url) != (self._model, self._endpoint):
            self._own_calibration = Calibration()
        if tokenizer_for(model).name != self._notebook.tokenizer.name:
            self._model = model
            self._notebook = self._new_notebook()
            if self._recollection is not None:
                self._recollection.notebook = self._notebook
        self._model, self._endpoint, self._observed = model, base_url, (0, 0)
        is_chosen = self._given_summariser is not None or self._host_chooses_writer
        if not is_chosen and (base_url or api_key or provider):
            known = provider if provider in PRESETS else _API_MODES.get(api_mode, provider)
            self._summariser = self._summariser_of(model, context_length, base_url, api_key, known)
        self._fit_window(context_length)

    def _writer(self, *, may_call_model: bool) -> Summariser | None:
        return self._summariser if may_call_model and not self._in_emergency() else None

    def _remember(self, result: Compressed) -> Compressed:
        """Returns the result, after making its originals available to recall."""
        for number, origin in result.list_others(self._originals):
            self._originals.setdefault(number, origin)
        if self._recollection is not None:
            self._recollection.take(result)
        return result

    def _extractive(self, messages: Sequence[Any], request: CompressRequest) -> Compressed:
        """Compacts without a model. `lossless` overrides it."""
        return compress_list(messages, request, self._notebook)

    async def _write_with_model(
        self, messages: Sequence[Any], request: CompressRequest, summariser: Summariser
    ) -> Compressed:
        """Compacts with a model's words. `lossless` overrides it."""
        return await summarise_list(messages, request, summariser, self._notebook)

    def _summariser_of(
        self, model: str, context_length: int, base_url: str, api_key: str, provider: str
    ) -> Summariser | None:
        """Returns the summariser for a session with this model; None if we do not know how to reach it."""
        if not writes_summaries(self.settings, model, provider):
            return summariser_for(self.settings, None)
        try:
            main = connect(
                provider or provider_of(model),
                model,
                base_url=base_url or None,
                api_key=api_key or None,
            )
        except SettingsError as error:
            log.info("handoffs will be written without a model: %s", error)
            return None
        return summariser_for(self.settings, main, context_length, provider)

    def _request(self, focus: str | None, target: int | None) -> CompressRequest:
        return CompressRequest(
            target_tokens=target,
            context_length=max(1, self._calibration().count(self._policy.budgets.window_tokens)),
            model=self._model,
            focus=focus,
            settings=self.settings,
            pins=frozenset(self.pins),
            recall_tool=None if self._recollection is None else EXPAND,
            memory=WriterMemory(self._notes, self._learned),
        )

    def _calibration(self) -> Calibration:
        if self._learned is None or not self._model:
            return self._own_calibration
        return self._learned.calibration(self._model, self._endpoint)

    def _learn(self, reported: int) -> None:
        """Learns how the model counts from the growth of the prompt, since both reports include the rest of the request."""
        counted, before = self._observed
        now = self._running.counted_tokens
        self._observed = (now, reported)
        if not counted or not before:
            return
        if self._learned is not None and self._model:
            self._learned.observe(self._model, self._endpoint, now - counted, reported - before)
        else:
            self._own_calibration = self._own_calibration.observe(now - counted, reported - before)

    def _keep_notes_of(self, session_id: str) -> None:
        if self._store is not None:
            self._notes = notes_for(self._store, session_id, self._notebook.redactor.redact)

    def _in_emergency(self) -> bool:
        """Returns True if there is no time for a model, since the request is close to the end of the window."""
        return self._prompt_tokens() >= self.settings.pressure.emergency * self._policy.budgets.window_tokens

    def _prompt_tokens(self) -> int:
        """Returns the size of the last prompt; our own estimate if the host has set it to -1, unknown."""
        known = self.last_prompt_tokens
        return known if known >= 0 else self._running.tokens(self._calibration())

    def _outside_tokens(self) -> int:
        """Returns the last report less our count of the messages: mostly tools and system prompt."""
        running = self._running
        return max(0, running.reported_tokens - self._calibration().estimate(running.covered_tokens))

    def _decide(self, prompt_tokens: int | None) -> Decision:
        tokens = self._prompt_tokens() if prompt_tokens is None else prompt_tokens
        return self._policy.after_response(tokens, self._guard(tokens))

    def _find_window(self) -> Window:
        """Returns the window of the model with which the engine was made."""
        model = self._model or ""
        return resolve_window(
            self._model,
            configured=self.settings.model.window_of(model),
            learned=self._learned.window(model) if self._learned is not None and model else None,
        )

    def _fit_window(self, context_length: Any) -> None:
        if not isinstance(context_length, int) or isinstance(context_length, bool):
            raise SettingsError(
                f"context_length is {context_length!r}; give a whole number of tokens, at least 1"
            )
        self._policy = Policy.of(
            self.settings.compression,
            context_length,
            self._reserved_output_tokens,
            emergency=self.settings.pressure.emergency,
        )
        self.context_length = context_length
        self.threshold_tokens = self._policy.budgets.threshold_tokens
        self._thrash = Thrash(threshold_tokens=self.threshold_tokens)
        self._pressure = Pressure.of(
            self._policy.budgets, self.settings.pressure, automatic=self.settings.compression.enabled
        )
        self._compressible = self._passed_at = 0

    def _guard(self, tokens: int) -> Guard:
        """Returns the guard against compacting at this size. It counts the growth since the last pass as compressible."""
        grown = max(0, tokens - self._passed_at) if self._passed_at else 0
        return Guard(
            thrash=self._thrash,
            compressible_tokens=self._compressible + grown,
            fires_from_tokens=self._pressure.fires_from_tokens,
        )

    def _observe(self, tokens: int) -> None:
        self._pressure, notices = self._pressure.observe(tokens)
        self._say(notices)

    def _say(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            self._on_notice(notice)

    def _new_notebook(self) -> Notebook:
        return new_notebook(self._model, self.settings)

    def _new_recollection(self) -> Recollection:
        return Recollection(self._notebook, embedder=embedder_for(self.settings))


def _require_kinds(model: Any, on_notice: Any, store: Any, reserved_output_tokens: Any) -> None:
    """Raises SettingsError for an option of the wrong type."""
    if model is not None and not isinstance(model, str):
        raise SettingsError(f"model is {model!r}; give the name of a model as a text")
    if on_notice is not None and not callable(on_notice):
        raise SettingsError(f"on_notice is a {type(on_notice).__name__}; give a function that takes a Notice")
    if store is not None:
        require_store(store)
    if not isinstance(reserved_output_tokens, int) or reserved_output_tokens < 0:
        raise SettingsError(
            f"reserved_output_tokens is {reserved_output_tokens!r}; give a whole number of tokens, at least 0"
        )


def _assume_window(model: str, window: Window) -> Notice:
    text = (
        f"the window of {model!r} is not known, so {window.tokens:,} tokens are assumed: pass context_length, "
        "or set model.context_length"
    )
    return Notice(level=Level.WARN, text=text, prompt_tokens=0, limit_tokens=window.tokens)


def _log_notice(notice: Notice) -> None:
    log.log(_LEVELS.get(notice.level, logging.WARNING), "%s", notice.text)
