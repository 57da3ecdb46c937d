"""How a message of the input is named: its handle, its role and its tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.cli.screen import printable
from penstock.conversation.dialects import link_calls
from penstock.conversation.message import Message, Summary, ToolCall, ToolResult
from penstock.conversation.opening import OURS, unmerge
from penstock.conversation.pairing import Pairing
from penstock.conversation.repair import repair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.document import Document

__all__ = ["Label", "Mending", "holds_handoff", "labels_of", "mending_of"]


class Label(msgspec.Struct, frozen=True):
    """`handle` is empty for a message that has none: a handoff and nothing else, or one that repair left out."""

    handle: str
    role: str
    tools: tuple[str, ...]

    @property
    def tools_text(self) -> str:
        """The tools in a few words: `read_file ×2, terminal`."""
        counts: dict[str, int] = {}
        for tool in self.tools:
            counts[tool] = counts.get(tool, 0) + 1
        return printable(", ".join(f"{name} ×{n}" if n > 1 else name for name, n in counts.items()))


class Mending(msgspec.Struct, frozen=True, eq=False):
    """What a compaction makes of the input before it plans anything.

    `numbers` has the number of each message of the input, 0 for a handoff, None for one that was left out.
    `changed` are the places of messages that stay but were mended, `added` the numbers of those put in, with their roles.
    """

    numbers: list[int | None]
    changed: frozenset[int]
    added: dict[int, str]


def mending_of(document: Document) -> Mending:
    """The numbers that a compaction of this document gives its messages, without the cost of one."""
    from penstock.writing.transcript import number_messages  # noqa: PLC0415 - slow to load, and last

    dialect = document.dialect
    messages, places = document.messages, list(range(len(document.messages)))
    if any(len(one.parts) > 1 and holds_handoff(one) for one in messages):
        messages, _, places = unmerge(messages, document.wires, document.raws, dialect)
    if dialect.pairing is not Pairing.ANYWHERE:
        messages = link_calls(messages)
    mended = repair(messages, dialect).messages
    sources = _sources(mended, messages)
    numbers: list[int | None] = [None] * len(document.messages)
    changed: set[int] = set()
    added: dict[int, str] = {}
    for message, number, source in zip(mended, number_messages(mended), sources, strict=True):
        place = OURS if source is None else places[source]
        if place != OURS:
            numbers[place] = number
            if source is not None and messages[source] is not message:
                changed.add(place)
        elif source is None:
            added[number] = message.role.value
    return Mending(numbers, frozenset(changed), added)


def labels_of(messages: Sequence[Message], numbers: Sequence[int | None]) -> list[Label]:
    """A label for each message; a result is named after the newest call before it that has its id."""
    names: dict[str, str] = {}
    labels: list[Label] = []
    for message, number in zip(messages, numbers, strict=True):
        tools: list[str] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.call_id] = part.name
                tools.append(part.name)
            elif isinstance(part, ToolResult):
                tools.append(names.get(part.call_id, ""))
        role = "handoff" if len(message.parts) == 1 and holds_handoff(message) else message.role.value
        labels.append(Label(f"m{number}" if number else "", role, tuple(filter(None, tools))))
    return labels


def holds_handoff(message: Message) -> bool:
    """Whether an earlier compaction's handoff stands in the message, alone or before its own text."""
    return any(isinstance(part, Summary) for part in message.parts)


def _sources(mended: Sequence[Message], before: Sequence[Message]) -> list[int | None]:
    """Where in the list each mended message stood; None for one that was put in.

    Repair returns untouched messages as the same objects and keeps their order. One that it changed still has
    an origin and stood where a message of its role is missing now.
    """
    stayed = {id(message) for message in mended}
    at = {id(message): index for index, message in enumerate(before)}
    upcoming = 0
    found: list[int | None] = []
    for message in mended:
        index = at.get(id(message))
        if index is None and upcoming < len(before):
            candidate = before[upcoming]
            ours = message.origin is None and candidate.origin is not None
            if id(candidate) not in stayed and candidate.role is message.role and not ours:
                index = upcoming
        found.append(index)
        upcoming = upcoming if index is None else index + 1
    return found
