"""The log: every message of a conversation, in order, never edited and never deleted.

Each message has an id that is a hash of its content chained to the id before it, so that two logs with the
same beginning share the ids of that beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.identity import chain_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.message import Message

__all__ = ["Log"]


class Log:
    """An append-only list of messages and their ids. Appending gives a new log that shares the old one."""

    __slots__ = ("ids", "messages")

    def __init__(self, messages: Sequence[Message] = (), *, ids: Sequence[str] | None = None) -> None:
        self.messages: tuple[Message, ...] = tuple(messages)
        self.ids: tuple[str, ...] = tuple(chain_ids(self.messages) if ids is None else ids)

    def __len__(self) -> int:
        return len(self.messages)

    def append(self, messages: Sequence[Message]) -> Log:
        """A log with these messages after the present ones."""
        more = chain_ids(messages, self.ids[-1] if self.ids else "")
        return Log((*self.messages, *messages), ids=(*self.ids, *more))

    def shared_with(self, other: Log) -> int:
        """How many messages at the beginning both logs share. Ids are chained, so one look-up decides each."""
        low, high = 0, min(len(self), len(other))
        while low < high:
            middle = (low + high + 1) // 2
            if self.ids[middle - 1] == other.ids[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low
