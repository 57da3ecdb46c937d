"""The view: the messages that the model is sent, as a fold over the log and its compactions.

A compaction is a record. It names the last message it knew and says, in order, which messages of the log are
kept unchanged, which have parts rewritten, and where a handoff replaces the others. The view is the newest
record followed by everything that was logged after it; without a record it is the log itself. Leaving a
record out undoes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from penstock.conversation import mark
from penstock.conversation.message import Message, Part, Role, Summary, Text, ToolCall, ToolResult
from penstock.conversation.wire import encode_wire, parse_json
from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.conversation.dialects.base import Dialect

__all__ = [
    "Compaction",
    "Handoff",
    "Kept",
    "Messages",
    "Piece",
    "Rewritten",
    "ViewMessage",
    "as_message",
    "encode",
    "fold",
    "is_merged",
    "positions_in",
    "wire_text",
    "write_view",
]


class Kept(msgspec.Struct, frozen=True, tag=True):
    """The message at this position of the log, exactly as it came."""

    position: int


class Rewritten(msgspec.Struct, frozen=True, tag=True):
    """The message at this position with some of its parts replaced."""

    position: int
    parts: dict[int, Part]


class Handoff(msgspec.Struct, frozen=True, tag=True):
    """A summary in place of messages. `role` is None if it stands inside the piece after it.

    `written` is the JSON of a whole message from a third-party engine: it is sent unchanged, and `summary` only holds
    its text.
    """

    summary: Summary
    covers: tuple[int, ...]
    role: Role | None = Role.USER
    written: str | None = None


Piece: TypeAlias = Kept | Rewritten | Handoff


class Messages(Protocol):
    """Messages by their position in the log."""

    def __getitem__(self, position: int, /) -> Message:
        """Returns the message at this position."""


class Compaction(msgspec.Struct, frozen=True):
    """One compaction. `base` is the id of the last message it knew, `length` the number of messages at that time."""

    base: str
    length: int
    pieces: tuple[Piece, ...]

    @property
    def told(self) -> set[int]:
        """The positions of all messages that its view holds, shortens or replaces."""
        return {
            position
            for piece in self.pieces
            for position in (piece.covers if isinstance(piece, Handoff) else (piece.position,))
        }


class ViewMessage(msgspec.Struct, frozen=True, gc=False):
    """One message of a view.

    `wire` is its object and `raw` its JSON: the logged bytes if the view keeps it, otherwise our own encoding of
    `wire`. `position` is its position in the log; None for a handoff that is a message of its own, and for messages
    that mend a broken log.
    """

    wire: Any
    raw: bytes
    position: int | None = None


def is_merged(piece: Piece) -> bool:
    """Returns True for a handoff that stands inside the piece that follows it instead of being a message itself."""
    return isinstance(piece, Handoff) and piece.role is None


def fold(length: int, compaction: Compaction | None) -> tuple[Piece, ...]:
    """Returns the pieces of the view of a log: those of its newest compaction, then everything logged since.

    `length` is the number of messages in the log. Raises InputError if the compaction knew more than that.
    """
    if compaction is None:
        return tuple(Kept(position) for position in range(length))
    if compaction.length > length:
        raise InputError(
            f"this compaction was made of {compaction.length:,} messages, and the log has {length:,}: "
            "it belongs to another conversation"
        )
    return (*compaction.pieces, *(Kept(position) for position in range(compaction.length, length)))


def positions_in(pieces: Sequence[Piece]) -> list[int]:
    """Returns the log positions that the pieces come from, in the order of the view."""
    return [piece.position for piece in pieces if not isinstance(piece, Handoff)]


def write_view(pieces: Sequence[Piece], raws: Mapping[int, bytes], dialect: Dialect) -> list[ViewMessage]:
    """Returns the messages of a view. `raws` has the bytes of every message that `positions_in` names."""
    log = _LoggedMessages(raws, dialect)
    return [
        ViewMessage(wire, raws[position] if kept and position is not None else encode_wire(wire), position)
        for wire, position, kept in _write(pieces, log, dialect)
    ]


def encode(pieces: Sequence[Piece], messages: Messages, dialect: Dialect) -> list[Any]:
    """Returns the view on the wire: the origin of each message that is kept, and a new object for any other."""
    return [wire for wire, _, _ in _write(pieces, messages, dialect)]


def _write(
    pieces: Sequence[Piece], messages: Messages, dialect: Dialect
) -> Iterator[tuple[Any, int | None, bool]]:
    """Yields each message on the wire, its position in the log, and whether it is exactly the logged message."""
    waiting: Handoff | None = None  # a handoff without a role stands inside the piece that follows it
    for piece in pieces:
        match piece:
            case Handoff(written=str() as written):
                yield parse_json(written), None, False
            case Handoff(role=None):
                waiting = piece
            case Handoff(summary=summary, role=Role() as role):
                yield dialect.text_message(role, wire_text(summary)), None, False
            case Kept(position=position):
                message = messages[position]
                if waiting is None:
                    wire = dialect.build(message) if message.origin is None else message.origin
                    yield wire, position, message.origin is not None
                else:
                    yield dialect.prepend_text(message, wire_text(waiting.summary)), position, False
                waiting = None
            case Rewritten(position=position, parts=parts):
                message = messages[position]
                wire = dialect.rewrite(message, _with_own_ids(parts, message))
                if waiting is not None:
                    wire = dialect.prepend_text(dialect.decode(wire), wire_text(waiting.summary))
                yield wire, position, False
                waiting = None


def _with_own_ids(parts: Mapping[int, Part], message: Message) -> Mapping[int, Part]:
    """Returns the parts with the ids that the message itself gives its calls and results.

    If a dialect has no ids, `link_calls` made some up for the list that was compacted; another list gets others.
    """
    return {
        at: msgspec.structs.replace(part, call_id=own.call_id)
        if isinstance(part, (ToolCall, ToolResult))
        and isinstance(own := message.parts[at], (ToolCall, ToolResult))
        and part.call_id != own.call_id
        else part
        for at, part in parts.items()
    }


class _LoggedMessages:
    """The messages of a log by position, each decoded when it is needed."""

    def __init__(self, raws: Mapping[int, bytes], dialect: Dialect) -> None:
        self._raws = raws
        self._dialect = dialect

    def __getitem__(self, position: int, /) -> Message:
        wire = parse_json(self._raws[position])
        return self._dialect.decode(wire, wire)


def as_message(piece: Piece, messages: Messages, dialect: Dialect | None = None) -> Message:
    """Returns the piece as a message, for measuring. A handoff with a role is a message of its own.

    The dialect is needed to measure rewritten messages.
    """
    match piece:
        case Kept(position=position):
            return messages[position]
        case Rewritten(position=position, parts=parts):
            message = messages[position]
            changed = tuple(parts.get(place, part) for place, part in enumerate(message.parts))
            written = message.written
            if written and dialect is not None:  # measured as it is on the wire
                written = dialect.decode(dialect.rewrite(message, _with_own_ids(parts, message))).written
            return Message(message.role, changed, message.origin, message.beside, written)
        case Handoff(summary=summary, role=role):
            return Message(role or Role.USER, (Text(wire_text(summary)),))


def wire_text(summary: Summary) -> str:
    """Returns the text that the summary has on the wire."""
    return mark.wrap(summary.text, summary.attributes, summary.version)
