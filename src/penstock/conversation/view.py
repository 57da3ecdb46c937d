"""The view: what the model is sent, as a fold over the log and its compactions.

A compaction is a record. It names the last message it knew and says, in order, which messages of the log are
kept as they are, which are rewritten in some parts, and where a handoff stands for the others. The view is
the newest record followed by all that was logged after it; without a record it is the log itself. Leaving a
record out undoes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from penstock.conversation import mark
from penstock.conversation.identity import chain_ids
from penstock.conversation.message import Message, Part, Role, Summary, Text
from penstock.conversation.wire import parse_json
from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.dialects.base import Dialect

__all__ = [
    "Compaction",
    "Handoff",
    "Kept",
    "Log",
    "Messages",
    "Piece",
    "Rewritten",
    "as_message",
    "encode",
    "fold",
    "wire_text",
]


class Kept(msgspec.Struct, frozen=True, tag=True):
    """The message at this position of the log, exactly as it came."""

    position: int


class Rewritten(msgspec.Struct, frozen=True, tag=True):
    """The message at this position with some of its parts replaced."""

    position: int
    parts: dict[int, Part]


class Handoff(msgspec.Struct, frozen=True, tag=True):
    """A summary in place of messages. `role` is None where it stands inside the piece that follows it.

    `written` is the JSON of a whole message that an engine of a third party wrote: it is sent as it stands, and `summary`
    only holds its text.
    """

    summary: Summary
    covers: tuple[int, ...]
    role: Role | None = Role.USER
    written: str | None = None


Piece: TypeAlias = Kept | Rewritten | Handoff


class Messages(Protocol):
    """Messages by their position in the log."""

    def __getitem__(self, position: int, /) -> Message:
        """The message at this position."""


class Compaction(msgspec.Struct, frozen=True):
    """One compaction: `base` is the id of the last message it knew, `length` how many there were."""

    base: str
    length: int
    pieces: tuple[Piece, ...]


def fold(log: Log, compactions: Sequence[Compaction]) -> tuple[Piece, ...]:
    """The pieces of the view. Raises InputError where the newest compaction is not of this log."""
    if not compactions:
        return tuple(Kept(position) for position in range(len(log)))
    newest = compactions[-1]
    if newest.length > len(log) or (newest.length and log.ids[newest.length - 1] != newest.base):
        raise InputError("this compaction was made of another conversation: its base is not in the log")
    return (*newest.pieces, *(Kept(position) for position in range(newest.length, len(log))))


def encode(pieces: Sequence[Piece], messages: Messages, dialect: Dialect) -> list[Any]:
    """The view on the wire: the origin of what is kept, a new object for what is not."""
    encoded: list[Any] = []
    waiting: Handoff | None = None
    for piece in pieces:
        match piece:
            case Handoff(written=str() as written):
                encoded.append(parse_json(written))
            case Handoff(role=None):
                waiting = piece
            case Handoff(summary=summary, role=Role() as role):
                encoded.append(dialect.text_message(role, wire_text(summary)))
            case Kept(position=position):
                message = messages[position]
                encoded.append(
                    _encoded(message, dialect) if waiting is None else _merged(waiting, message, dialect)
                )
                waiting = None
            case Rewritten(position=position, parts=parts):
                wire = dialect.rewrite(messages[position], parts)
                encoded.append(wire if waiting is None else _merged(waiting, dialect.decode(wire), dialect))
                waiting = None
    return encoded


def as_message(piece: Piece, messages: Messages) -> Message:
    """The piece as a message, for measuring: a handoff with a role is a message of its own."""
    match piece:
        case Kept(position=position):
            return messages[position]
        case Rewritten(position=position, parts=parts):
            message = messages[position]
            changed = tuple(parts.get(place, part) for place, part in enumerate(message.parts))
            return Message(message.role, changed, message.origin)
        case Handoff(summary=summary, role=role):
            return Message(role or Role.USER, (Text(wire_text(summary)),))


def wire_text(summary: Summary) -> str:
    """A summary as it stands on the wire."""
    return mark.wrap(summary.text, summary.attributes, summary.version)


def _encoded(message: Message, dialect: Dialect) -> Any:
    return dialect.build(message) if message.origin is None else message.origin


def _merged(handoff: Handoff, message: Message, dialect: Dialect) -> dict[str, Any]:
    return dialect.prepend_text(message, wire_text(handoff.summary))


# The log: every message of a conversation, in order, never edited and never deleted.
#
# Each message has an id that is a hash of its content chained to the id before it, so that two logs with the
# same beginning share the ids of that beginning.


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
