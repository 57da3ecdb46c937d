"""Context pressure, as people are told of it: four levels, each reported once per crossing.

A `Pressure` is a value; observing a number of prompt tokens gives the next one, and a notice if there is one.
Notices go to the person at the screen or into a log, never into a prompt.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from penstock.planning.policy import Budgets, share
from penstock.settings import PressureSettings  # noqa: TC001 - a struct's field types are read at run time

__all__ = ["Level", "Notice", "Pressure"]


class Level(StrEnum):
    """The levels of pressure, from the mildest to the gravest."""

    LOG = "log"
    WARN = "warn"
    AUTOMATIC = "automatic"
    EMERGENCY = "emergency"


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to say to a person. The text sets `prompt_tokens` against `limit_tokens`."""

    level: Level
    text: str
    prompt_tokens: int
    limit_tokens: int


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """The levels that have been said and not yet cleared, and the size from which automatic compaction fires.

    A level is said when the prompt reaches its limit and cleared when the prompt falls below it. A
    conversation too dense to shrink (still at or over the threshold after a compaction) keeps its warning,
    and `fires_from_tokens` lies 10 % of the threshold above it, until the prompt has been below the
    threshold.
    """

    budgets: Budgets
    settings: PressureSettings
    automatic: bool = True
    said: frozenset[Level] = frozenset()
    fires_from_tokens: int

    @classmethod
    def of(cls, budgets: Budgets, settings: PressureSettings, *, automatic: bool = True) -> Pressure:
        """Returns the state before any pressure. `automatic` is `compression.enabled`: without it notices promise nothing."""
        return cls(
            budgets=budgets,
            settings=settings,
            automatic=automatic,
            fires_from_tokens=budgets.threshold_tokens,
        )

    def observe(self, prompt_tokens: int) -> tuple[Pressure, tuple[Notice, ...]]:
        """Returns the pressure at `prompt_tokens`, and a notice for each level newly reached, the mildest first."""
        reached = frozenset(level for level in Level if prompt_tokens >= self.limit_tokens(level))
        notices = tuple(self._notice(level, prompt_tokens) for level in Level if level in reached - self.said)
        threshold = self.budgets.threshold_tokens
        fires_from = self.fires_from_tokens if prompt_tokens >= threshold else threshold
        return msgspec.structs.replace(self, said=reached, fires_from_tokens=fires_from), notices

    def observe_compaction(self, prompt_tokens: int) -> tuple[Pressure, tuple[Notice, ...]]:
        """As `observe`, for the prompt that a compaction left; a dense one does not fire again at once."""
        after, notices = self.observe(prompt_tokens)
        threshold = self.budgets.threshold_tokens
        if prompt_tokens < threshold:
            return after, notices
        return msgspec.structs.replace(
            after, fires_from_tokens=prompt_tokens + share(0.10, threshold)
        ), notices

    @property
    def level(self) -> Level | None:
        """The gravest level that stands now."""
        return max(self.said, key=list(Level).index, default=None)

    def limit_tokens(self, level: Level) -> int:
        """Returns the prompt tokens at which a level begins."""
        match level:
            case Level.LOG:
                return share(self.settings.log, self.budgets.threshold_tokens)
            case Level.WARN:
                return share(self.settings.warn, self.budgets.threshold_tokens)
            case Level.AUTOMATIC:
                return self.budgets.threshold_tokens
            case Level.EMERGENCY:
                return self.budgets.emergency_tokens

    def _notice(self, level: Level, prompt_tokens: int) -> Notice:
        budgets = self.budgets
        against = budgets.window_tokens if level is Level.EMERGENCY else budgets.threshold_tokens
        outlook = _OUTLOOK[level] if self.automatic else "automatic compaction is off"
        text = f"{_OPENING[level]}: {prompt_tokens:,} of {against:,} tokens; {outlook}."
        return Notice(level=level, text=text, prompt_tokens=prompt_tokens, limit_tokens=against)


_OPENING = {
    Level.LOG: "The context is growing",
    Level.WARN: "The context is filling up",
    Level.AUTOMATIC: "The context has reached its threshold",
    Level.EMERGENCY: "The context window is almost full",
}
_OUTLOOK = {
    Level.LOG: "nothing to do yet",
    Level.WARN: "older turns will be compacted at the threshold",
    Level.AUTOMATIC: "older turns are due for compaction",
    Level.EMERGENCY: "an emergency compaction, without a model, is due",
}
