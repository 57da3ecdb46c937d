"""Anthropic: the first message is the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.message import Message, Role, Text
from penstock.conversation.rules.base import Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["OPENING_TEXT", "UserOpens", "first_speaker"]

OPENING_TEXT = "[the conversation begins here]"
"""What we let the user say where the first message is lost."""


def first_speaker(messages: Sequence[Message]) -> int:
    """The index of the first message that is not the system's; len(messages) where there is none."""
    for index, message in enumerate(messages):
        if message.role is not Role.SYSTEM:
            return index
    return len(messages)


class UserOpens:
    """The first message beside the system's is the user's.

    A kept head is therefore empty or reaches past that message. Where it is empty, whoever assembles the
    rest must see to it that a user message comes first.
    """

    name = "opening"

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:
        """No cut before the opening message, but for the one at 0; none behind one that we made, which opens nothing alone."""
        first = first_speaker(messages)
        made = first < len(messages) and messages[first].parts == (Text(OPENING_TEXT),)
        return {index for index in range(1, first + 1 + made) if index < len(messages)}

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """A first message that is not the user's."""
        first = first_speaker(messages)
        if first < len(messages) and messages[first].role is not Role.USER:
            return [
                Violation(first, self.name, f"the first message is of {messages[first].role}, not of user")
            ]
        return []

    def __repr__(self) -> str:
        return "UserOpens()"
