"""Decides when to compact and how much room each part gets: one policy for every entry point.

Everything is a value. Hosts ask the policy before a request (`preflight`, `due`, `economy`, `background`), after a
response, as a safety net (`hygiene`), for a person (`manual`) and after a provider's refusal (`overflow`). It answers
`Compact` or `Wait`, each with the reason in words. Nothing else decides. The caller keeps any memory between two
questions, and passes it in as a `Guard`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from penstock.errors import SettingsError
from penstock.settings import CompressionSettings  # noqa: TC001 - a struct's field types are read at run time

__all__ = [
    "BY_HAND",
    "WAYS_OUT",
    "Budgets",
    "Compact",
    "Decision",
    "Guard",
    "Policy",
    "Thrash",
    "Trigger",
    "Wait",
    "budgets",
    "is_worth_it",
    "refuse_model",
    "share",
    "summary_budget",
]

FLOOR_TOKENS = 64_000
"""No threshold is below this (or below 85 % of a smaller window), so that small windows fire less often."""
SUMMARY_FLOOR_TOKENS = 2_000
SUMMARY_CEILING_TOKENS = 12_000
HYGIENE_MESSAGES = 4
LEAST_TAIL = 3
INEFFECTIVE_PASSES = 2
BACKGROUND_SHARE = 0.85
"""Of the threshold: from here on, a compaction is prepared in the background."""
BY_HAND = "asked for by hand"
BY_MODEL = "asked for by the model"
WAYS_OUT = (
    "compact by hand (/compress), start again (/new), or choose a model with a larger window (/model NAME)"
)
_BANDS = ((10_000, 0.20), (30_001, 0.15), (100_001, 0.10))
_LAST_BAND = 0.05


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """Token budgets for one window. `window_tokens` is its size without the reserved output."""

    window_tokens: int
    threshold_tokens: int
    tail_tokens: int
    tail_ceiling_tokens: int
    summary_ceiling_tokens: int
    hygiene_tokens: int
    emergency_tokens: int

    def target_tokens(self, head_tokens: int) -> int:
        """Returns the target if the caller names none: head, summary and tail at their ceilings."""
        return min(self.window_tokens, head_tokens + self.summary_ceiling_tokens + self.tail_ceiling_tokens)


def share(part: float, tokens: int) -> int:
    """Returns a share of the tokens, rounded down, at least 1. 0.29 of 100 is 29, despite binary fractions."""
    return max(1, int(part * tokens + 1e-6))


def budgets(
    settings: CompressionSettings,
    window_tokens: int,
    reserved_output_tokens: int = 0,
    *,
    emergency: float = 0.95,
) -> Budgets:
    """Returns the budgets for a window. `emergency` is the setting `pressure.emergency`.

    Reserved output comes off the window first, but at most three quarters of the window: a larger `max_tokens` is
    a cap that is not meant to be used up, and would leave no room for the prompt. Raises SettingsError for a
    window without room.
    """
    if window_tokens < 1:
        raise SettingsError(f"the context window is {window_tokens} tokens; allowed: 1 or more")
    window = max(window_tokens - max(reserved_output_tokens, 0), window_tokens // 4, 1)
    threshold = max(share(settings.threshold, window), min(FLOOR_TOKENS, share(0.85, window)))
    tail = share(settings.target_ratio, threshold)
    return Budgets(
        window_tokens=window,
        threshold_tokens=threshold,
        tail_tokens=tail,
        tail_ceiling_tokens=share(1.5, tail),
        summary_ceiling_tokens=_summary_ceiling(window),
        hygiene_tokens=share(settings.hygiene_threshold, window),
        emergency_tokens=share(emergency, window),
    )


def summary_budget(settings: CompressionSettings, compacted_tokens: int, window_tokens: int) -> int:
    """Returns the maximum length of the summary of `compacted_tokens` if there is no explicit target.

    `flat` has a floor; `scaled` has none (its first band ends where the floor would begin). The ceiling applies to
    both, and takes precedence over the floor.
    """
    ceiling = _summary_ceiling(window_tokens)
    if settings.summary_budget == "flat":
        return min(max(share(0.20, compacted_tokens), SUMMARY_FLOOR_TOKENS), ceiling)
    rate = next((rate for end, rate in _BANDS if compacted_tokens < end), _LAST_BAND)
    return min(share(rate, compacted_tokens), ceiling)


def is_worth_it(tokens_before: int, predicted_after: int, *, forced: bool) -> bool:
    """Returns True if a plan may run: if it saves at least 10 %, or anything at all when forced."""
    saved = tokens_before - predicted_after
    return saved > 0 and (forced or saved * 10 >= tokens_before)


def refuse_model(trigger: Trigger, settings: CompressionSettings, messages: int) -> str:
    """Returns the reason, in words, why no model summarises so few messages; empty if a model may be asked.

    At the threshold, fewer messages than the head, a tail of three and one between them leave a model nothing to say. A
    caller that asks for a compaction, or cannot continue without one, gets the most for any number of messages.
    """
    least = settings.protect_first_n + LEAST_TAIL + 1
    if not trigger.is_at_threshold or messages >= least:
        return ""
    return f"{messages} messages are too few to summarise (from {least} on a model is asked)"


class Trigger(StrEnum):
    """The occasion of a compaction."""

    PREFLIGHT = "preflight"
    RESPONSE = "response"
    HYGIENE = "hygiene"
    MANUAL = "manual"
    MODEL = "model"
    OVERFLOW = "overflow"
    EMERGENCY = "emergency"
    ECONOMY = "economy"
    BACKGROUND = "background"

    @property
    def forces(self) -> bool:
        """True if a compaction runs even if it saves less than a tenth: without it there is no next request."""
        return self in (Trigger.OVERFLOW, Trigger.EMERGENCY)

    @property
    def is_at_threshold(self) -> bool:
        """True for a compaction that nobody asked for: the conversation has reached its threshold, or soon will."""
        return self in (Trigger.PREFLIGHT, Trigger.RESPONSE, Trigger.BACKGROUND)


class Compact(msgspec.Struct, frozen=True, kw_only=True):
    """Compact now. `model_pays` is True if prices allow for a model's summary."""

    reason: str
    trigger: Trigger
    model_pays: bool = False

    @property
    def may_call_model(self) -> bool:
        """True if a model may write the summary.

        Emergency and hygiene take the deterministic path, since a person is waiting. So does a compaction that is made
        because it pays, unless that takes the price of the summary into account.
        """
        if self.trigger is Trigger.ECONOMY:
            return self.model_pays
        return self.trigger not in (Trigger.EMERGENCY, Trigger.HYGIENE)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Do not compact now."""

    reason: str


Decision: TypeAlias = Compact | Wait


class Thrash(msgspec.Struct, frozen=True, kw_only=True):
    """The guard against compacting again and again for nothing.

    Two ineffective passes in a row close it (a refused plan counts as one). It opens when the compressible part
    has grown, by 10 % of the threshold, beyond its size at the last ineffective pass. After that, an ineffective
    pass closes it again, and an effective one restarts the count. A new window or an undone compaction needs a
    fresh guard.
    """

    threshold_tokens: int
    ineffective: int = 0
    compressible_tokens: int = 0

    def after_pass(self, *, effective: bool, compressible_tokens: int) -> Thrash:
        """Returns the guard after a pass that was allowed to shrink `compressible_tokens`."""
        if effective:
            return Thrash(threshold_tokens=self.threshold_tokens)
        return Thrash(
            threshold_tokens=self.threshold_tokens,
            ineffective=self.ineffective + 1,
            compressible_tokens=compressible_tokens,
        )

    def holds_back(self, compressible_tokens: int) -> bool:
        """Returns True if automatic compaction waits, for the present size of the compressible part."""
        return self.ineffective >= INEFFECTIVE_PASSES and compressible_tokens < self.opens_at_tokens

    @property
    def opens_at_tokens(self) -> int:
        """The compressible tokens at which a closed guard opens."""
        return self.compressible_tokens + share(0.10, self.threshold_tokens)

    def reason(self, compressible_tokens: int) -> str:
        """Returns the reason why it waits, in words; empty if it does not."""
        if not self.holds_back(compressible_tokens):
            return ""
        return (
            f"the last {self.ineffective} compactions saved too little, so automatic compaction rests until "
            f"{self.opens_at_tokens:,} tokens are compressible ({compressible_tokens:,} now)"
        )


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """The reasons against an automatic compaction; the default has none.

    `compressible_tokens` is the size of everything that could shrink now (all but head, tail and pins).
    `fires_from_tokens` comes from `Pressure`: it is above the threshold after a pass that could not get below it.
    """

    thrash: Thrash | None = None
    compressible_tokens: int = 0
    fires_from_tokens: int = 0

    def objection(self, tokens: int) -> str:
        """Returns the reason why a compaction at `tokens` has to wait, in words; empty if it need not."""
        if tokens < self.fires_from_tokens:
            return f"too dense to shrink further; the next attempt is at {self.fires_from_tokens:,} tokens ({tokens:,} now)"
        return self.thrash.reason(self.compressible_tokens) if self.thrash is not None else ""


_OPEN = Guard()


class Policy(msgspec.Struct, frozen=True):
    """Decides when to compact. Off means off, except for a manual command."""

    settings: CompressionSettings
    budgets: Budgets

    @classmethod
    def of(
        cls,
        settings: CompressionSettings,
        window_tokens: int,
        reserved_output_tokens: int = 0,
        *,
        emergency: float = 0.95,
    ) -> Policy:
        """Returns the policy for a window; the parameters are those of `budgets`."""
        return cls(settings, budgets(settings, window_tokens, reserved_output_tokens, emergency=emergency))

    def preflight(self, prompt_tokens: int, guard: Guard = _OPEN) -> Decision:
        """Decides before a request, on the estimate of the whole request."""
        return self._from(Trigger.PREFLIGHT, prompt_tokens, self.budgets.threshold_tokens, guard)

    def after_response(self, prompt_tokens: int, guard: Guard = _OPEN) -> Decision:
        """Decides after a response, on the prompt tokens that the provider reported."""
        return self._from(Trigger.RESPONSE, prompt_tokens, self.budgets.threshold_tokens, guard)

    def hygiene(self, tokens: int, messages: int, guard: Guard = _OPEN) -> Decision:
        """Decides before a resumed conversation is used; one of fewer than 4 messages waits."""
        if messages < HYGIENE_MESSAGES:
            return Wait(reason=f"{messages} messages are too few; hygiene starts at {HYGIENE_MESSAGES}")
        return self._from(Trigger.HYGIENE, tokens, self.budgets.hygiene_tokens, guard)

    def manual(self) -> Decision:
        """Decides for a person: neither the switch nor a guard stands in the way."""
        return Compact(trigger=Trigger.MANUAL, reason=BY_HAND)

    def by_model(self, new_tokens: int | None = None) -> Decision:
        """Decides for the model, which asks with the host's tool: as for a person, but off means off.

        `new_tokens` came since the last compaction, None if there was none. If they fit the tail, nothing would change.
        """
        if not self.settings.enabled:
            return _OFF
        if new_tokens is not None and new_tokens < self.budgets.tail_tokens:
            return Wait(
                reason=f"only {new_tokens:,} tokens came since the last compaction was asked for or made"
            )
        return Compact(trigger=Trigger.MODEL, reason=BY_MODEL)

    def due(self, prompt_tokens: int, guard: Guard = _OPEN) -> Decision:
        """Decides before a request that is due by the engine's own guards and threshold."""
        if not self.settings.enabled:
            return _OFF
        if objection := guard.objection(prompt_tokens):
            return Wait(reason=objection)
        if prompt_tokens >= self.budgets.emergency_tokens:
            return self._emergency(prompt_tokens)
        limit = self.budgets.threshold_tokens
        if prompt_tokens < limit:
            reason = f"the engine asked for it at {prompt_tokens:,} tokens"
        else:
            reason = f"{prompt_tokens:,} tokens have reached the threshold of {limit:,}"
        return Compact(trigger=Trigger.PREFLIGHT, reason=reason)

    def economy(self, reason: str, *, pays: bool, model_pays: bool = False) -> Decision:
        """Decides before a request below the threshold, by prices; `reason` is that of the pricing rule.

        `model_pays` is True if the rule has included the cost of a model's summary.
        """
        if not self.settings.enabled:
            return _OFF
        if not pays:
            return Wait(reason=reason)
        return Compact(trigger=Trigger.ECONOMY, reason=reason, model_pays=model_pays)

    def background(self, prompt_tokens: int) -> Decision:
        """Decides whether the threshold is near enough to prepare a compaction in the background."""
        if not self.settings.enabled:
            return _OFF
        begin = BACKGROUND_SHARE * self.budgets.threshold_tokens
        if prompt_tokens < begin:
            return Wait(
                reason=f"{prompt_tokens:,} tokens are below the {int(begin):,} from which one is prepared"
            )
        return Compact(trigger=Trigger.BACKGROUND, reason=f"{prompt_tokens:,} tokens are near the threshold")

    def overflow(self, attempt: int) -> Decision:
        """Decides after the provider refused the request as too large; `attempt` counts from 1 within a turn."""
        if not self.settings.enabled:
            return Wait(
                reason=f"{_OFF.reason}: compact by hand (/compress), start again (/new), or turn it on"
            )
        most = self.settings.max_attempts
        if attempt > most:
            return Wait(
                reason=f"the request is still too large after {most} attempts in this turn (compression.max_attempts): {WAYS_OUT}"
            )
        reason = f"the provider refused the request as too large (attempt {attempt} of {most})"
        return Compact(trigger=Trigger.OVERFLOW, reason=reason)

    def _from(self, trigger: Trigger, tokens: int, limit: int, guard: Guard) -> Decision:
        """Decides to compact from `limit` on, unless the guard objects; from the emergency level on, in any case."""
        if not self.settings.enabled:
            return _OFF
        if tokens >= self.budgets.emergency_tokens:
            return self._emergency(tokens)
        if tokens < limit:
            return Wait(reason=f"{tokens:,} tokens are below the {trigger} limit of {limit:,}")
        if objection := guard.objection(tokens):
            return Wait(reason=objection)
        return Compact(
            trigger=trigger, reason=f"{tokens:,} tokens have reached the {trigger} limit of {limit:,}"
        )

    def _emergency(self, tokens: int) -> Compact:
        reason = f"{tokens:,} of the {self.budgets.window_tokens:,} tokens of the window are used"
        return Compact(trigger=Trigger.EMERGENCY, reason=reason)


_OFF = Wait(reason="automatic compaction is off (compression.enabled is false)")


def _summary_ceiling(window_tokens: int) -> int:
    return min(share(0.05, window_tokens), SUMMARY_CEILING_TOKENS)
