"""Labels of the messages of an input: handle, role and tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.cli.screen import printable
from penstock.conversation.handles import name_message, number_messages
from penstock.conversation.message import Message, ToolCall, ToolResult
from penstock.conversation.opening import holds_handoff, open_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.document import Document

__all__ = ["Label", "NumberedInput", "label_messages", "number_input"]


class Label(msgspec.Struct, frozen=True):
    """A message by name. `handle` is empty for a handoff and for a message that repair left out."""

    handle: str
    role: str
    tools: tuple[str, ...]

    @property
    def tools_text(self) -> str:
        """The tools, with counts: `read_file ×2, terminal`."""
        counts: dict[str, int] = {}
        for tool in self.tools:
            counts[tool] = counts.get(tool, 0) + 1
        return printable(", ".join(f"{name} ×{n}" if n > 1 else name for name, n in counts.items()))


class NumberedInput(msgspec.Struct, frozen=True, eq=False):
    """The numbers that a compaction gives the messages of its input.

    `numbers` has that of each message of the input, 0 for a handoff, None for one that repair leaves out.
    `added` are the numbers of the messages that repair puts in.
    """

    numbers: list[int | None]
    added: frozenset[int]


def number_input(document: Document) -> NumberedInput:
    """Returns the numbers that a compaction of this document gives its messages, without the cost of one."""
    opened = open_list(document.messages, document.wires, document.dialect, origins=document.raws)
    numbers: list[int | None] = [None] * len(document.messages)
    numbered = number_messages(opened.messages)
    for number, source in zip(numbered, opened.sources, strict=True):
        if source is not None:
            numbers[source] = number
    return NumberedInput(numbers, frozenset(numbered[place] for place in opened.added))


def label_messages(messages: Sequence[Message], numbers: Sequence[int | None]) -> list[Label]:
    """Returns a label for each message; a result is named after the newest call before it that has its id."""
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
        labels.append(Label(name_message(number) if number else "", role, tuple(filter(None, tools))))
    return labels
