"""How many tokens each part of a result may take, for a target or for a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.compaction.cut import leading_system
from penstock.compaction.plan import PlanLimits
from penstock.compaction.policy import budgets, summary_budget

if TYPE_CHECKING:
    from penstock.compaction.transcript import Transcript
    from penstock.settings import CompressionSettings

__all__ = ["limits_for_target", "limits_for_window"]

_HEAD_SHARE = 0.08
_TAIL_LEAST = 0.02
_TAIL_SLOPE = 0.45
_TAIL_MOST = 0.16


def limits_for_target(
    transcript: Transcript, target_tokens: int, settings: CompressionSettings
) -> PlanLimits:
    """Limits for a named target, which bounds the whole list.

    With its ceiling the tail takes up to a quarter of what the system prompt leaves, less where the target is a
    small share of the conversation: there its tokens keep more as excerpts.
    """
    system_end = leading_system(transcript.messages)
    system = sum(transcript.tokens[:system_end])
    room = max(0, target_tokens - system)
    rest = max(1, transcript.total_tokens - system)
    share = min(_TAIL_MOST, _TAIL_LEAST + _TAIL_SLOPE * room / rest)
    return PlanLimits(
        target_tokens=target_tokens,
        tail_tokens=int(room * share),
        tail_ceiling_tokens=int(room * share * 1.5),
        head_tokens=int(room * _HEAD_SHARE),
        handoff_tokens=room,
        protect_first_n=settings.protect_first_n,
        protect_last_n=settings.protect_last_n,
        explicit=True,
    )


def limits_for_window(
    transcript: Transcript, window_tokens: int, settings: CompressionSettings, *, outside_tokens: int = 0
) -> PlanLimits:
    """Limits for a context window: head + summary ceiling + 1.5 × tail.

    `outside_tokens` is what stands in the window beside the list (tool schemas, a separate system prompt).
    """
    allowed = budgets(settings, window_tokens)
    cuts = transcript.cuts()
    system_end = leading_system(transcript.messages)
    length = len(transcript.messages)
    head_end = cuts.head_end(settings.protect_first_n, transcript.total_tokens, system_end, length)
    head = cuts.tokens(0, head_end)
    compacted = max(0, transcript.total_tokens - head - allowed.tail_tokens)
    target = min(allowed.target_tokens(head), max(1, window_tokens - outside_tokens))
    return PlanLimits(
        target_tokens=target,
        tail_tokens=allowed.tail_tokens,
        tail_ceiling_tokens=allowed.tail_ceiling_tokens,
        head_tokens=target,
        handoff_tokens=summary_budget(settings, compacted, window_tokens),
        protect_first_n=settings.protect_first_n,
        protect_last_n=settings.protect_last_n,
        explicit=False,
    )
