"""Anthropic: thinking stays first in its assistant message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.message import Message, Reasoning
from penstock.conversation.rules.base import Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ThinkingFirst", "thinking_late"]


def thinking_late(message: Message) -> bool:
    """Whether the message thinks, but begins with something else."""
    parts = message.parts
    return bool(parts) and type(parts[0]) is not Reasoning and any(type(part) is Reasoning for part in parts)


class ThinkingFirst:
    """A message that holds thinking begins with it. Says nothing about cuts: thinking is inside a message."""

    name = "thinking"

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:  # noqa: ARG002  # the rule binds no two messages
        """None."""
        return set()

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Messages in which something stands before the thinking."""
        return [
            Violation(index, self.name, "thinking does not stand first in its message")
            for index, message in enumerate(messages)
            if thinking_late(message)
        ]

    def __repr__(self) -> str:
        return "ThinkingFirst()"
