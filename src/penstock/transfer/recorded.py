"""A conversation as another program recorded it, ready to be put into a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from penstock.measure.usage import Usage

__all__ = ["LineFault", "RecordedConversation", "RecordedFile", "RecordedMessage", "RecordedUsage"]


class RecordedMessage(msgspec.Struct, frozen=True):
    """A message: its JSON, and when it was said (seconds since 1970), if the file says so."""

    raw: bytes
    at: float | None = None


class RecordedUsage(msgspec.Struct, frozen=True):
    """The usage of one request. `after` is how many messages the log has when its answer is in."""

    after: int
    at: float | None
    model: str
    usage: Usage


class RecordedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation.

    `source` is the id that the other program gave it, "" if it gave none. `works_for` is the source of the
    conversation that a sub-agent worked for. `left_out` counts the lines that were not taken over, by kind.
    `may_go_on` is True if more of the last message may follow, because the file is still being written.
    """

    format: str
    dialect: str
    messages: tuple[RecordedMessage, ...]
    source: str = ""
    works_for: str = ""
    model: str = ""
    title: str = ""
    requests: tuple[RecordedUsage, ...] = ()
    left_out: dict[str, int] = {}
    may_go_on: bool = False


class LineFault(msgspec.Struct, frozen=True):
    """A line that cannot be read: its number from 1, and why."""

    line: int
    what: str


class RecordedFile(msgspec.Struct, frozen=True):
    """The conversations of a file and the lines that could not be read.

    Sub-agents follow the conversation that they worked for.
    """

    conversations: tuple[RecordedConversation, ...]
    faults: tuple[LineFault, ...] = ()
