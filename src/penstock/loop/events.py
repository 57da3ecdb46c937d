"""Events of a turn, for a host to show: plain values, in the order in which they happen.

The events of a live context are in `context.events`, and named here too, since a turn reports both.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from penstock.context.events import Compacted, Compacting, ContextEvent, Noticed, Recovering
from penstock.measure.usage import Usage  # noqa: TC001 - a struct's field types are read at run time

__all__ = [
    "AgentEvent",
    "ApprovalAsked",
    "Asked",
    "Compacted",
    "Compacting",
    "Noticed",
    "Recovering",
    "Said",
    "Thought",
    "ToolEnded",
    "ToolLine",
    "ToolStarted",
    "TurnEnded",
    "Used",
]


class Asked(msgspec.Struct, frozen=True):
    """A request goes out: its number within the turn, its estimated size, and the window."""

    step: int
    prompt_tokens: int
    window_tokens: int


class Said(msgspec.Struct, frozen=True):
    """More of the answer's text."""

    text: str


class Thought(msgspec.Struct, frozen=True):
    """More of the model's reasoning."""

    text: str


class ToolStarted(msgspec.Struct, frozen=True):
    """A tool runs. `about` is its main argument, in a few words."""

    call_id: str
    name: str
    about: str


class ToolLine(msgspec.Struct, frozen=True):
    """A line that a running command printed."""

    call_id: str
    text: str


class ToolEnded(msgspec.Struct, frozen=True):
    """A tool gave its result: one line for people, and how long it took."""

    call_id: str
    name: str
    summary: str
    is_error: bool
    seconds: float


class ApprovalAsked(msgspec.Struct, frozen=True):
    """A call waits for a person's yes or no; the host hands in the answer by `id`. The rest as in `Permission`."""

    id: str
    tool: str
    access: str
    subject: str
    detail: str = ""
    why: str = ""


class Used(msgspec.Struct, frozen=True):
    """Usage and cost of a request (None if the price is unknown), and how full the window is now."""

    usage: Usage
    cost: float | None
    prompt_tokens: int
    window_tokens: int


class TurnEnded(msgspec.Struct, frozen=True):
    """The turn is over: "done", "steps" (the limit was reached), "interrupted" or "failed", for which `what` says why."""

    reason: str
    steps: int
    seconds: float
    what: str = ""
    may_pass: bool = False
    """True of a failure that may be over in a moment, such as an overloaded server."""


AgentEvent: TypeAlias = (
    ApprovalAsked
    | Asked
    | Said
    | Thought
    | ToolStarted
    | ToolLine
    | ToolEnded
    | Used
    | TurnEnded
    | ContextEvent
)
