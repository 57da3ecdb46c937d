"""What a compaction did, for people and for programs."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Outcome", "Receipt"]

Outcome = str
COMPACTED, NOTHING_TO_DO, DEGRADED = "compacted", "nothing_to_do", "degraded"


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Counts before and after, what became of the messages and of the facts in them, and what it cost.

    A fact is a distinct value of the conversation: kept when it still stands in the view, reachable when
    only its original holds it, struck when a summary invented it. `cost` is None where no model was called.
    """

    outcome: Outcome
    reason: str = ""
    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int
    target_tokens: int
    kept: int
    elided: int = 0
    summarised: int = 0
    facts_kept: int = 0
    facts_reachable: int = 0
    facts_struck: int = 0
    repaired: int = 0
    redacted: int = 0
    handoff_tokens: int = 0
    model_calls: int = 0
    cost: float | None = None
    seconds: float = 0.0
    tokenizer: str = ""
    dialect: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The receipt as JSON."""
        return {**msgspec.structs.asdict(self), "ratio": round(self.ratio, 4)}

    @property
    def ratio(self) -> float:
        """Tokens after for each token before."""
        return self.tokens_after / self.tokens_before if self.tokens_before else 1.0

    def __str__(self) -> str:
        lines = self._counts() if self.outcome != NOTHING_TO_DO else [f"nothing to compress: {self.reason}"]
        if self.repaired:
            lines.append(f"  repaired   {self.repaired:,} calls or results that had no partner")
        if self.redacted:
            lines.append(
                f"  redacted   {self.redacted:,} secret{'' if self.redacted == 1 else 's'} in what was written"
            )
        if self.outcome == DEGRADED:
            lines.append(f"  degraded   {self.reason}")
        elif self.tokens_after > self.tokens_before:
            lines.append(
                "  note       fewer messages but more tokens: the handoff is longer than what it replaced"
            )
        return "\n".join(lines)

    def _counts(self) -> list[str]:
        return [
            (
                f"compressed {self.messages_before:,} → {self.messages_after:,} messages, "
                f"{self.tokens_before:,} → {self.tokens_after:,} tokens ({self.ratio:.0%} of before)"
            ),
            f"  messages   {self.kept:,} kept as they were, {self.elided:,} elided, {self.summarised:,} summarised",
            (
                f"  facts      {self.facts_kept:,} in the view, {self.facts_reachable:,} reachable by handle, "
                f"{self.facts_struck:,} struck"
            ),
            f"  target     {self.target_tokens:,} tokens, {self.tokenizer}; handoff {self.handoff_tokens:,}",
            (
                f"  took       {self.seconds * 1000:,.0f} ms, {_calls(self.model_calls)}, "
                f"{'no cost' if self.cost is None else f'${self.cost:.4f}'}"
            ),
        ]


def _calls(count: int) -> str:
    return "no model call" if count == 0 else f"{count} model call{'s' if count > 1 else ''}"
