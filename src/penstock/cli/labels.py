"""How a message is named in a table: its handle, its role and its tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.cli.layout import printable
from penstock.conversation.message import Message, Summary, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Label", "holds_handoff", "labels_of"]


class Label(msgspec.Struct, frozen=True):
    """`handle` is empty for a message that is a handoff and nothing else."""

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


def labels_of(messages: Sequence[Message], numbers: Sequence[int]) -> list[Label]:
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
