"""What a compaction will do, decided before anything is done.

`make_plan` is pure and complete. It decides for every message whether it is kept, elided or summarised, and
why; it writes the handoff; and it knows the tokens of the result. Whatever the content, the plan fits the
target, or one error says which parts take how many tokens.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from penstock.conversation.view import Piece

__all__ = ["Fate", "Limits", "NothingToDo", "Plan", "Verdict", "Wishes"]


class Fate(StrEnum):
    """What becomes of a message in the view."""

    KEPT = "kept"
    ELIDED = "elided"
    SUMMARISED = "summarised"


class Verdict(msgspec.Struct, frozen=True):
    """The fate of one message and the reason for it."""

    position: int
    number: int
    fate: Fate
    reason: str
    tokens_before: int
    tokens_after: int


class Limits(msgspec.Struct, frozen=True):
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


class Plan(msgspec.Struct, frozen=True, eq=False):
    """The pieces of the new view, and the verdict on each message of the old one."""

    pieces: tuple[Piece, ...]
    verdicts: tuple[Verdict, ...]
    tokens_after: int
    handoff_tokens: int = 0


class NothingToDo(msgspec.Struct, frozen=True):
    """No compaction is called for, and why."""

    reason: str


Planned: TypeAlias = Plan | NothingToDo
