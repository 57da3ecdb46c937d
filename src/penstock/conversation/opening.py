"""A handoff that was merged into a message, and the message, parted again.

Where no role of its own could stand, an earlier compaction put its handoff in front of another message's text.
The next compaction writes a new one, so it needs the message as it was before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.conversation import mark
from penstock.conversation.message import Message, Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.conversation.dialects.base import Dialect

__all__ = ["OURS", "Unmerged", "unmerge", "without_handoff"]

OURS = -1  # the place of a message that nobody gave


class Unmerged(NamedTuple):
    """Messages, what each came as, and its place in what was given."""

    messages: list[Message]
    origins: list[Any]
    places: list[int]


def unmerge(
    messages: Sequence[Message], wires: Sequence[Any], origins: Sequence[Any], dialect: Dialect
) -> Unmerged:
    """The messages with each merged handoff as a message of its own, before the one it stood in."""
    parted: list[Message] = []
    given: list[Any] = []
    places: list[int] = []
    for place, (message, wire, origin) in enumerate(zip(messages, wires, origins, strict=True)):
        summary = next((part for part in message.parts if isinstance(part, Summary)), None)
        if summary is not None and len(message.parts) > 1:
            rest = without_handoff(wire)
            parted += [Message(message.role, (summary,)), dialect.decode(rest)]
            given += [None, rest]
            places += [OURS, place]
        else:
            parted.append(message)
            given.append(origin)
            places.append(place)
    return Unmerged(parted, given, places)


def without_handoff(wire: Mapping[str, Any]) -> dict[str, Any]:
    """The wire object without the handoffs in its texts; a block that was only a handoff goes."""
    return {key: _stripped(value) if key in {"content", "value"} else value for key, value in wire.items()}


def _stripped(content: Any) -> Any:
    if isinstance(content, str):
        return _without_mark(content)
    if not isinstance(content, list):
        return content
    blocks = []
    for block in content:
        text = block.get("text") if isinstance(block, dict) else None
        if not isinstance(text, str) or mark.find(text) is None:
            blocks.append(block)
        elif rest := _without_mark(text):
            blocks.append({**block, "text": rest})
    return blocks


def _without_mark(text: str) -> str:
    found = mark.find(text)
    if found is None:
        return text
    return text[: found.start] + text[found.end :].removeprefix("\n\n")
