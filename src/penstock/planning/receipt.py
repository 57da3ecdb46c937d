"""The receipt of a compaction, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.view import Handoff
from penstock.measure.wording import format_share, pluralise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.view import Piece

__all__ = [
    "ALL_STRUCK",
    "COMPACTED",
    "DEGRADED",
    "NOTHING_TO_DO",
    "LiveQuality",
    "Outcome",
    "Receipt",
    "RoomUse",
    "SummaryCall",
    "describe_compaction",
]

Outcome = str
COMPACTED, NOTHING_TO_DO, DEGRADED = "compacted", "nothing_to_do", "degraded"
ALL_STRUCK = "everything the model wrote was struck; the handoff has excerpts and facts instead"


class LiveQuality(msgspec.Struct, frozen=True, kw_only=True):
    """The ways in which the agent came by the earlier values that it used in the turns after a compaction.

    An earlier value is one that was said before the compaction was put in place; each counts once, at its first use.
    """

    in_view: int = 0
    """Values that stood in the view when the agent went on."""
    in_handoff: int = 0
    """Those of them that stood only in what was written for the view: the handoff, stubs, shortened messages."""
    recalled: int = 0
    """Values that a recall tool brought back."""
    read_again: int = 0
    """Values that the result of another tool brought back."""
    asked_again: int = 0
    """Values that the person told again after the agent had asked."""
    otherwise: int = 0
    """Values that nothing since had brought: from the system prompt, or put together by the agent."""
    answers: int = 0
    """Messages of the agent that were looked at."""
    settled: bool = False
    """True if no later turn can change it: the next compaction was made, or enough turns have followed."""

    @property
    def used(self) -> int:
        """The earlier values that the agent used."""
        return self.in_view + self.recalled + self.read_again + self.asked_again + self.otherwise

    def __add__(self, other: LiveQuality) -> LiveQuality:
        names = self.__struct_fields__[:-1]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return LiveQuality(**sums, settled=self.settled and other.settled)

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON."""
        return {"used": self.used, **msgspec.structs.asdict(self)}

    def __str__(self) -> str:
        if not self.answers:
            return "The agent has not answered yet."
        if not self.used:
            return "The agent has used no earlier value so far."
        told = [
            (self.in_view, "stood in the view"),
            (self.recalled, "came back by recall"),
            (self.read_again, "was read again" if self.read_again == 1 else "were read again"),
            (
                self.asked_again,
                f"{'was' if self.asked_again == 1 else 'were'} asked of the person again",
            ),
            (
                self.otherwise,
                f"stood in the system prompt or {'was' if self.otherwise == 1 else 'were'} put together by the agent",
            ),
        ]
        parts = [f"{count:,} {what}" for count, what in told if count]
        if self.in_view:
            only = f", {self.in_handoff:,} only in the handoff" if self.in_handoff else ""
            parts[0] += f" ({100 * self.in_view // self.used}%{only})"
        return f"Of {pluralise(self.used, 'earlier value')} the agent used next, {', '.join(parts)}."


class SummaryCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a model for a handoff, and its outcome."""

    outcome: str = "not asked"
    """`written`, `fallback` (another model stepped in), `failed` (excerpts stand in its place), or `not asked`."""
    chosen: str = ""
    """The model that was asked first."""
    model: str = ""
    """The model that wrote the handoff."""
    error: str = ""
    """The reason why the chosen model did not write it."""


class RoomUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the tokens of a view went to, and how many it might have had."""

    granted_tokens: int
    """The size up to which the view was filled."""
    threshold_tokens: int = 0
    """The size at which the conversation is compacted; 0 if the caller named a target."""
    limit: str = ""
    """The reason for the granted size, in words; empty if the caller named a target."""
    parts: dict[str, int]
    """The tokens of each part, in the order of the view."""

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON; threshold and limit only where they set the size."""
        plain = msgspec.structs.asdict(self)
        return plain if self.threshold_tokens else {name: plain[name] for name in ("granted_tokens", "parts")}

    def lines(self) -> list[str]:
        """Returns it in words: how much might be filled and why, if that was not the caller's wish; what it went to."""
        total = sum(self.parts.values())
        told = ", ".join(f"{_name_part(name)} {tokens:,}" for name, tokens in self.parts.items())
        left = self.granted_tokens - total
        rest = f"; {left:,} left" if left > 0 else ""
        if left < 0:
            rest = f"; {-left:,} more than that, since these parts may not be shorter"
        if not self.threshold_tokens:
            return [f"{told}{rest}"]
        return [
            (
                f"of {self.threshold_tokens:,} tokens at the threshold, {self.granted_tokens:,} may be filled, so that it is "
                f"not compacted again soon ({self.limit})"
            ),
            f"{told}{rest}",
        ]


def _name_part(name: str) -> str:
    return name.replace("peoples", "people's").replace("_", " ")


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Counts before and after, what became of the messages and of the facts in them, and what it cost.

    A fact is a distinct value of the conversation. It is *kept* if it still stands in the view, *reachable* if only
    its original has it, *struck* if a summary invented it, *added* if it was inserted at the end, because the agent had used
    it while the compaction was being prepared in the background. `struck` has the struck words of a model, each cut short.
    `cost`, in US dollars, is None if no model was called, or if it is unknown; then `cost_note` says why. `attempts` are
    the models that were asked for the handoff, in order, with the outcome of each; `summary_limits` is what they might use
    altogether. `room` is what the view's tokens went to. `quality` is what the turns since then show of it: None for a new compaction, and for one outside a store.
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
    struck: tuple[str, ...] = ()
    facts_added: int = 0
    repaired: int = 0
    redacted: int = 0
    handoff_tokens: int = 0
    model: str = ""
    model_calls: int = 0
    model_prompt_tokens: int = 0
    model_cached_tokens: int = 0
    model_output_tokens: int = 0
    cost: float | None = None
    cost_note: str = ""
    attempts: tuple[dict[str, Any], ...] = ()
    summary_limits: dict[str, float] = msgspec.field(default_factory=dict)
    seconds: float = 0.0
    tokenizer: str = ""
    dialect: str = ""
    room: RoomUse | None = None
    quality: LiveQuality | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the receipt as JSON; `struck`, `facts_added`, `room` and `quality` only if they are not empty."""
        plain = {
            **msgspec.structs.asdict(self),
            "attempts": list(self.attempts),
            "ratio": round(self.ratio, 4),
        }
        del plain["quality"]
        if self.room is None:
            del plain["room"]
        else:
            plain["room"] = self.room.to_dict()
        if not self.facts_added:
            del plain["facts_added"]
        plain["struck"] = list(self.struck)
        if not self.struck:
            del plain["struck"]
        return plain if self.quality is None else {**plain, "quality": self.quality.to_dict()}

    @property
    def summary_call(self) -> SummaryCall:
        """The request to a model and its outcome."""
        if not self.attempts:
            return SummaryCall()
        chosen = str(self.attempts[0]["model"])
        if self.model == chosen:
            return SummaryCall(outcome="written", chosen=chosen, model=chosen)
        outcome, error = "fallback" if self.model else "failed", str(self.attempts[0]["outcome"])
        return SummaryCall(outcome=outcome, chosen=chosen, model=self.model, error=error)

    @property
    def ratio(self) -> float:
        """Tokens after for each token before."""
        return self.tokens_after / self.tokens_before if self.tokens_before else 1.0

    def __str__(self) -> str:
        lines = self._counts() if self.outcome != NOTHING_TO_DO else [f"nothing to compress: {self.reason}"]
        if self.repaired:
            lines.append(
                f"  repaired   {pluralise(self.repaired, 'fault')} in the input, such as a call without a result"
            )
        if self.facts_added:
            lines.append(
                f"  added      {pluralise(self.facts_added, 'value')} that the agent used while this was prepared"
            )
        if self.redacted:
            lines.append(f"  redacted   {pluralise(self.redacted, 'secret')} in what was written")
        if self.outcome != NOTHING_TO_DO and self.reason:
            lines.append(f"  {'degraded' if self.outcome == DEGRADED else 'note':10} {self.reason}")
        if self.quality is not None:
            lines.append(f"  since      {self.quality}")
        if self.tokens_after > self.tokens_before:
            lines.append(
                "  note       fewer messages but more tokens: the handoff is longer than what it replaced"
            )
        return "\n".join(lines)

    def _counts(self) -> list[str]:
        return [
            (
                f"compressed {self.messages_before:,} → {pluralise(self.messages_after, 'message')}, "
                f"{self.tokens_before:,} → {self.tokens_after:,} tokens ({format_share(self.ratio)} of before)"
            ),
            f"  messages   {self.kept:,} kept as they were, {self.elided:,} elided, {self.summarised:,} summarised",
            (
                f"  facts      {self.facts_kept:,} in the view, {self.facts_reachable:,} reachable by handle, "
                f"{self.facts_struck:,} struck"
            ),
            f"  target     {self.target_tokens:,} tokens, {self.tokenizer}; handoff {self.handoff_tokens:,}",
            *self._room(),
            *self._model(),
            f"  took       {self.seconds * 1000:,.0f} ms, {_calls(self.model_calls)}, {self._cost()}",
        ]

    def _room(self) -> list[str]:
        if self.room is None:
            return []
        *why, went_to = self.room.lines()
        return [*(f"  {'room':10} {line}" for line in why), f"  {'went to':10} {went_to}"]

    def grow_handoff(self, tokens: int) -> Receipt:
        """Returns the receipt of a view whose handoff has grown by these tokens."""
        room = self.room
        if room is not None:
            parts = room.parts | {"handoff": max(0, room.parts.get("handoff", 0) + tokens)}
            room = msgspec.structs.replace(room, parts=parts)
        return msgspec.structs.replace(
            self,
            tokens_after=self.tokens_after + tokens,
            handoff_tokens=max(0, self.handoff_tokens + tokens),
            room=room,
        )

    def _model(self) -> list[str]:
        if not self.model_prompt_tokens and not self.model_output_tokens:
            return []
        cached = f", {self.model_cached_tokens:,} of them cached" if self.model_cached_tokens else ""
        return [
            (
                f"  model      {self.model or 'none wrote the handoff'}: {self.model_prompt_tokens:,} tokens read{cached}, "
                f"{self.model_output_tokens:,} written"
            )
        ]

    def _cost(self) -> str:
        if self.cost is not None:
            return f"${self.cost:.4f}"
        return f"cost unknown ({self.cost_note})" if self.cost_note else "no cost"


def describe_compaction(trigger: str, receipt: Receipt, pieces: Sequence[Piece]) -> str:
    """Returns one line for a log: the reason, what became of the messages, and what it saved."""
    first = next((at for at, piece in enumerate(pieces) if isinstance(piece, Handoff)), len(pieces))
    handoffs = sum(isinstance(piece, Handoff) for piece in pieces)
    tail = max(0, len(pieces) - first - handoffs)
    by = f" by {receipt.model}" if receipt.model else ""
    why = f"; {receipt.reason}" if receipt.reason else ""
    return (
        f"{receipt.outcome} ({trigger}): {receipt.messages_before:,} -> {pluralise(receipt.messages_after, 'message')}, "
        f"{receipt.summarised:,} summarised{by}, {receipt.elided:,} elided, head {first:,}, tail {tail:,}, "
        f"{receipt.tokens_before:,} -> {receipt.tokens_after:,} tokens in {receipt.seconds:.2f} s{why}"
    )


def _calls(count: int) -> str:
    return pluralise(count, "model call") if count else "no model call"
