"""What a compaction will do, decided before anything is done.

`make_plan` is pure and complete. It decides for every message whether it is kept, elided or summarised, and
why; it writes the handoff; and it knows the tokens of the result. Whatever the content, the plan fits the
target, or one error says which parts take how many tokens.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from penstock.conversation.view import Handoff, Piece, Rewritten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.lossless.outline import Node

__all__ = [
    "Fate",
    "KeptReasons",
    "NothingToDo",
    "Plan",
    "PlanLimits",
    "Planned",
    "Verdict",
    "Wishes",
    "verdicts",
]


class Fate(StrEnum):
    """What becomes of a message in the view."""

    KEPT = "kept"
    ELIDED = "elided"
    SUMMARISED = "summarised"
    REPAIRED = "repaired"  # left out before planning, since it broke a rule of the dialect


class Verdict(msgspec.Struct, frozen=True):
    """The fate of one message and the reason for it."""

    position: int
    number: int
    fate: Fate
    reason: str
    tokens_before: int
    tokens_after: int


class PlanLimits(msgspec.Struct, frozen=True):
    """How many tokens each part of the result may take. `explicit` when the caller named the target."""

    target_tokens: int
    tail_tokens: int
    tail_ceiling_tokens: int
    head_tokens: int
    handoff_tokens: int
    protect_first_n: int
    protect_last_n: int
    explicit: bool


class Wishes(msgspec.Struct, frozen=True):
    """What the caller wants beside a smaller list."""

    focus: str = ""
    pins: frozenset[int] = frozenset()
    recall_tool: str | None = None


class KeptReasons(msgspec.Struct, frozen=True):
    """Why messages stay: what `verdicts` needs to say so."""

    system_end: int
    head_end: int
    tail_start: int
    request: int | None
    pins: frozenset[int]
    open: frozenset[int]
    protect_first_n: int


class Plan(msgspec.Struct, frozen=True, eq=False):
    """The pieces of the new view and what they weigh.

    `sizes` are the tokens of every message that stays, by position; `quoted` how many excerpts of a message
    stand in the handoff. `tokens_after` is the whole of it, `handoff_tokens` the handoff's part, `handoff_room` what
    the handoff might have taken. `nodes` are those of its outline, where it has one, and those they took the place of.
    """

    pieces: tuple[Piece, ...]
    sizes: dict[int, int]
    quoted: dict[int, int]
    standing: KeptReasons
    tokens_after: int
    handoff_tokens: int = 0
    handoff_room: int = 0
    struck: int = 0
    nodes: tuple[Node, ...] = ()

    def changed(self) -> frozenset[int]:
        """The positions of messages that stay but are not as they came: rewritten, or with the handoff in front."""
        places: set[int] = set()
        merged = False
        for piece in self.pieces:
            if isinstance(piece, Handoff):
                merged = piece.role is None
                continue
            if merged or isinstance(piece, Rewritten):
                places.add(piece.position)
            merged = False
        return frozenset(places)


def verdicts(plan: Plan, numbers: Sequence[int], tokens: Sequence[int]) -> tuple[Verdict, ...]:
    """What becomes of each message, and why."""
    changed = plan.changed()
    return tuple(
        _verdict(place, number, before, plan, changed)
        for place, (number, before) in enumerate(zip(numbers, tokens, strict=True))
    )


def _verdict(place: int, number: int, before: int, plan: Plan, changed: frozenset[int]) -> Verdict:
    after = plan.sizes.get(place)
    if after is None:
        lines = plan.quoted.get(place, 0)
        kept = (
            f"{lines} excerpt{'' if lines == 1 else 's'} in the handoff"
            if lines
            else "reachable by its handle"
        )
        return Verdict(place, number, Fate.SUMMARISED, f"older than the tail: {kept}", before, 0)
    fate = Fate.ELIDED if place in changed else Fate.KEPT
    return Verdict(place, number, fate, _reason(place, plan.standing, fate, before < after), before, after)


def _reason(place: int, standing: KeptReasons, fate: Fate, grown: bool) -> str:
    if fate is Fate.ELIDED:
        if grown:
            return "the handoff stands in front of it"
        if place == standing.request:
            return "the user's last request, too large to stay whole"
        return "too large for the tail" if place >= standing.tail_start else "old result or long argument"
    if place < standing.system_end:
        return "system prompt"
    for reason, places in (
        ("pinned", standing.pins),
        ("the user's last request", {standing.request}),
        ("open call", standing.open),
    ):
        if place in places:
            return reason
    if place < standing.head_end:
        return f"head: one of the first {standing.protect_first_n}"
    return "tail: recent" if place >= standing.tail_start else "small enough to stay"


class NothingToDo(msgspec.Struct, frozen=True):
    """No compaction is called for, and why."""

    reason: str


Planned: TypeAlias = Plan | NothingToDo
