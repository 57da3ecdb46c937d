"""Anthropic: no message without content, no blank text block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.message import Message, Part, Role, Text
from penstock.conversation.rules.base import Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NonEmpty", "is_blank"]


def is_blank(part: Part) -> bool:
    """Whether the part is text without a visible character."""
    return type(part) is Text and (not part.text or part.text.isspace())


class NonEmpty:
    """Every message but a last one of the assistant has content, and every text says something."""

    name = "nonempty"

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:  # noqa: ARG002  # the rule binds no two messages
        """None."""
        return set()

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Messages with nothing in them, or with a blank text."""
        last = len(messages) - 1
        found: list[Violation] = []
        for index, message in enumerate(messages):
            if any(is_blank(part) for part in message.parts):
                found.append(Violation(index, self.name, "a text block is blank"))
            elif not message.parts and not (index == last and message.role is Role.ASSISTANT):
                found.append(Violation(index, self.name, "the message has no content"))
        return found

    def __repr__(self) -> str:
        return "NonEmpty()"
