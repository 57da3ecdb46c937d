"""Chooses the step after a provider refused a request. Pure: one refusal in, one step out.

The policy decides whether to compact; this module says how far. All tokens here are the provider's: if it says how many
it read, that counts, not our estimate.

A prompt that is too long is compacted, strictly smaller each time; an answer cap that is too large is lowered for this
call only, and nothing is compacted. Everything else is for the person: the transport has repeated what is worth
repeating.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from penstock.errors import ErrorKind
from penstock.planning.policy import Compact

if TYPE_CHECKING:
    from penstock.errors import ErrorClass
    from penstock.planning.policy import Policy

__all__ = ["GiveUp", "LowerCap", "Shrink", "Step", "next_step"]

_LESS = 0.75  # of what was refused, where nobody says how much would fit
_MUCH_LESS = 0.5  # the limit of a body's bytes is not told in tokens
_MARGIN = 0.95  # of a window that was told: what we expect may be a little off
_LEAST_CAP = 256  # tokens of an answer: with less, the prompt is what is too long


class Shrink(msgspec.Struct, frozen=True):
    """Compact, prompt and all, and ask again. `reason` is the policy's."""

    sent_tokens: int
    """The request that was refused."""
    most_tokens: int
    """The most that may be sent now; always less than what was refused."""
    reason: str

    def aim(self, target_tokens: int) -> tuple[int, ...]:
        """Returns the sizes to compact to, in the order to try them. `target_tokens` is the policy's target.

        The policy's target leaves room for the turns to come. What cannot be made so small may still fit the window.
        """
        first = min(target_tokens, int(self.sent_tokens * _LESS), self.most_tokens)
        return (first,) if first == self.most_tokens else (first, self.most_tokens)


class LowerCap(msgspec.Struct, frozen=True):
    """Ask again, for at most this many tokens of answer."""

    max_output_tokens: int


class GiveUp(msgspec.Struct, frozen=True):
    """Tell the person. `why` adds to what the provider says; empty if a smaller request would not help."""

    why: str = ""


Step: TypeAlias = Shrink | LowerCap | GiveUp


def next_step(
    failure: ErrorClass,
    policy: Policy,
    *,
    sent_tokens: int,
    max_output_tokens: int | None,
    attempt: int,
    shrunk: int = 0,
) -> Step:
    """Returns the step after the `attempt`-th refusal (from 1) of a request with an expected size of `sent_tokens`.

    `shrunk` counts the compactions after refusals in this turn, for this request and those before it.
    """
    if failure.kind not in _TOO_LARGE:
        return GiveUp()
    if failure.kind is ErrorKind.OUTPUT_CAP_TOO_LARGE and attempt <= policy.settings.max_attempts:
        cap = _cap(failure, sent_tokens, max_output_tokens)
        if cap >= _LEAST_CAP:
            return LowerCap(cap)
    decision = policy.overflow(max(attempt, shrunk + 1))
    if isinstance(decision, Compact):
        sent = max(sent_tokens, failure.prompt_tokens or 0)
        return Shrink(sent, _find_most(failure, sent, max_output_tokens), decision.reason)
    said = failure.message or str(failure.kind)
    return GiveUp(f"{said.rstrip('.')}; {decision.reason}")


_TOO_LARGE = (ErrorKind.PROMPT_TOO_LONG, ErrorKind.OUTPUT_CAP_TOO_LARGE, ErrorKind.PAYLOAD_TOO_LARGE)


def _cap(failure: ErrorClass, sent_tokens: int, asked: int | None) -> int:
    """Returns the length of answer that may be asked for: as stated, else what the window leaves, else half."""
    if failure.output_cap_tokens:
        told = failure.output_cap_tokens
    elif failure.window_tokens:
        told = failure.window_tokens - (failure.prompt_tokens or sent_tokens)
    else:
        told = (asked or 0) // 2
    return min(told, asked - 1) if asked else told


def _find_most(failure: ErrorClass, sent_tokens: int, reserved: int | None) -> int:
    """Returns the most tokens that may be sent now: as the provider states it, or else a share of what it refused."""
    if failure.kind is ErrorKind.PAYLOAD_TOO_LARGE:
        return int(sent_tokens * _MUCH_LESS)
    told = failure.window_tokens
    if told is None:
        return int(sent_tokens * _LESS)
    room = (told - min(reserved or 0, told // 2)) * _MARGIN
    return int(min(room, max(0, sent_tokens - 1)))
