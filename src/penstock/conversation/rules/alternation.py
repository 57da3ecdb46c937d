"""Roles alternate around every message that we make.

Clients do send two messages of one role in a row, and the APIs take them, so what came in is left alone.
We do not add to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.message import Message, Role
from penstock.conversation.rules.base import Violation
from penstock.conversation.rules.pairing import has_call, has_result

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Alternation"]

_ALTERNATING = (Role.USER, Role.ASSISTANT)


class Alternation:
    """A plain message without origin, ours, has no neighbour of its own role."""

    name = "alternation"

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:  # noqa: ARG002  # what stands at a cut is the assembler's choice
        """None."""
        return set()

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Messages of ours beside one of the same role."""
        return [
            Violation(
                index, self.name, f"a message that we made follows or precedes another of {message.role}"
            )
            for index, message in enumerate(messages)
            if message.origin is None
            and message.role in _ALTERNATING
            and not has_result(message)
            and not has_call(message)
            and any(neighbour.role is message.role for neighbour in _neighbours(messages, index))
        ]

    def __repr__(self) -> str:
        return "Alternation()"


def _neighbours(messages: Sequence[Message], index: int) -> list[Message]:
    return [messages[at] for at in (index - 1, index + 1) if 0 <= at < len(messages)]
