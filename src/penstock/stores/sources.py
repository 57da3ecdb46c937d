"""What passages come from, read as messages: a message of a log, the summary of a compaction, a stored tool result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Message, Role, ToolCall, ToolResult
from penstock.conversation.view import Handoff
from penstock.conversation.wire import parse_json
from penstock.errors import PenstockError
from penstock.recall.tools import TOOL_NAMES
from penstock.stores.compactions import read_pieces
from penstock.stores.encoding import unpack
from penstock.stores.rows import batches
from penstock.stores.schema import MESSAGE, RESULT, SUMMARY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.stores.database import Transaction

__all__ = ["PassageSource", "read_sources", "recall_calls"]


class PassageSource(msgspec.Struct, frozen=True, gc=False):
    """By its kind and key, with the key of a conversation that it belongs to."""

    kind: int
    key: int
    conversation: int


def read_sources(do: Transaction, sources: Sequence[PassageSource]) -> dict[PassageSource, Message]:
    """Each source that is there and can be read, as a message. `doctor` says why one cannot."""
    found: dict[PassageSource, Message] = {}
    for kind, read in ((MESSAGE, _messages), (SUMMARY, _summaries), (RESULT, _results)):
        wanted = {source.key: source for source in sources if source.kind == kind}
        for some in batches(list(wanted)):
            found.update((wanted[key], message) for key, message in read(do, some, wanted))
    return found


def recall_calls(do: Transaction, messages: Mapping[PassageSource, Message]) -> frozenset[str]:
    """The calls of the recall tools that the messages make or answer: what these gave would be found beside what it quotes."""
    made = {
        part.call_id for message in messages.values() for part in message.parts if isinstance(part, ToolCall)
    }
    answers = {
        source
        for source, message in messages.items()
        if source.kind == MESSAGE
        and any(isinstance(part, ToolResult) and part.call_id not in made for part in message.parts)
    }
    before = read_sources(do, _calling(do, answers))
    return frozenset(
        part.call_id
        for message in (*messages.values(), *before.values())
        for part in message.parts
        if isinstance(part, ToolCall) and part.name in TOOL_NAMES
    )


def _calling(do: Transaction, answers: Iterable[PassageSource]) -> list[PassageSource]:
    """The messages that these may answer: of each, the last before it that holds no results."""
    found: set[PassageSource] = set()
    for answer in answers:
        row = do.one(
            "SELECT max(position) FROM entries WHERE message = ? AND conversation = ?",
            answer.key,
            answer.conversation,
        )
        if row is None or row[0] is None:
            continue
        row = do.one(
            "SELECT e.message FROM entries e JOIN messages m ON m.key = e.message "
            "WHERE e.conversation = ? AND e.position < ? AND m.role <> 'tool' ORDER BY e.position DESC LIMIT 1",
            *(answer.conversation, row[0]),
        )
        if row is not None:
            found.add(PassageSource(MESSAGE, row[0], answer.conversation))
    return list(found)


def _messages(
    do: Transaction, keys: Sequence[int], sources: Mapping[int, PassageSource]
) -> Iterator[tuple[int, Message]]:
    conversations = sorted({sources[key].conversation for key in keys})
    rows = do.rows(
        f"SELECT key, dialect FROM conversations WHERE key IN ({_marks(conversations)})", *conversations
    )
    dialects: dict[int, str] = {row[0]: row[1] for row in rows}
    for key, raw, packed in do.rows(
        f"SELECT key, raw, packed FROM messages WHERE key IN ({_marks(keys)})", *keys
    ):
        dialect = dialects.get(sources[key].conversation)
        if dialect is None:
            continue
        try:
            yield key, dialect_named(dialect).decode(parse_json(unpack(raw, packed)))
        except (PenstockError, ValueError):
            continue


def _summaries(
    do: Transaction, keys: Sequence[int], _: Mapping[int, PassageSource]
) -> Iterator[tuple[int, Message]]:
    """Those of compactions that hold: one that was taken back says nothing any more."""
    for key, pieces in do.rows(
        f"SELECT key, pieces FROM compactions WHERE undone IS NULL AND key IN ({_marks(keys)})", *keys
    ):
        try:
            read = read_pieces(bytes(pieces))
        except ValueError:
            continue
        yield key, Message(Role.USER, tuple(piece.summary for piece in read if isinstance(piece, Handoff)))


def _results(
    do: Transaction, keys: Sequence[int], _: Mapping[int, PassageSource]
) -> Iterator[tuple[int, Message]]:
    for key, raw, packed in do.rows(
        f"SELECT key, raw, packed FROM results WHERE key IN ({_marks(keys)})", *keys
    ):
        try:
            text = unpack(raw, packed).decode("utf-8", "surrogatepass")
        except (PenstockError, ValueError):
            continue
        yield key, Message(Role.TOOL, (ToolResult("", text),))


def _marks(values: Sequence[int]) -> str:
    return ", ".join("?" * len(values))
