"""Anthropic: the first message is the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.message import Message, Role
from penstock.conversation.rules.base import Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["UserOpens", "first_speaker"]


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
        """No cut before the opening message, but for the one at 0."""
        return {index for index in range(1, first_speaker(messages) + 1) if index < len(messages)}

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
