"""A history that can be searched and read: the interface between the recall tools and any store of messages.

Handles name its contents: `m12` is the twelfth message of the log, `s2` the summary of the second compaction,
`n7` a segment's summary, `handoff` all messages that the handoff in the view stands for. Any other handle is a stored
tool result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.recall.ranking import Wish
    from penstock.writing.entities import EntityState

__all__ = ["Finding", "History", "HistoryPlace", "PlaceKind"]

PlaceKind = Literal["message", "summary", "segment", "result"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A result of a search. `handles` name everything that the excerpt quotes, the most telling first.

    `turn` is the number of the message that begins the turn; `at` is when it was logged, if known;
    `session` names the conversation, if more than one was searched.
    """

    handles: tuple[str, ...]
    turn: int
    excerpt: str
    score: float
    at: float | None = None
    session: str = ""
    title: str = ""


class HistoryPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The thing that a handle stands for: its kind, its role, its length, and the handles inside it."""

    handle: str
    kind: PlaceKind
    turn: int
    role: str
    title: str
    characters: int
    tokens: int
    at: float | None = None
    in_view: bool = False
    inside: tuple[str, ...] = ()


class History(Protocol):
    """A history that can be searched and read. Raises UnknownHandle for a handle that names nothing here."""

    def search(self, query: str, wish: Wish) -> Sequence[Finding]:
        """Returns the best findings; text in the view is never one."""

    def count_unsearched(self) -> int:
        """Returns how many messages a search misses so far, because they are still to be indexed."""

    def describe(self, handle: str) -> HistoryPlace:
        """Describes what the handle names."""

    def text(self, handle: str) -> str:
        """Returns the full text: of a message, with its calls and results."""

    def entities(self) -> Sequence[EntityState]:
        """Returns the present state of each file, command, record and person, redacted, the newest first."""
