"""Responses: a reasoning item stays with the item it led to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.message import Message, Reasoning, Role
from penstock.conversation.rules.base import Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ReasoningStays", "is_reasoning_item"]


def is_reasoning_item(message: Message) -> bool:
    """Whether the message is reasoning and nothing else."""
    return bool(message.parts) and all(type(part) is Reasoning for part in message.parts)


class ReasoningStays:
    """A reasoning item is followed by an item of the assistant, and no cut comes between them."""

    name = "reasoning"

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:
        """No cut right after a reasoning item."""
        return {index for index in range(1, len(messages)) if is_reasoning_item(messages[index - 1])}

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Reasoning that somebody else's item follows. At the end of the list more may still come."""
        return [
            Violation(index, self.name, "a reasoning item is not followed by the item it belongs to")
            for index in range(len(messages) - 1)
            if is_reasoning_item(messages[index]) and messages[index + 1].role is not Role.ASSISTANT
        ]

    def __repr__(self) -> str:
        return "ReasoningStays()"
