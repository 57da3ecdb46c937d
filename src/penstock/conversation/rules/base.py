"""What a rule of a provider's API is, and how a breach of one reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.message import Message

__all__ = ["Rule", "Violation"]


class Violation(msgspec.Struct, frozen=True, order=True):
    """A breach: at which message, of which rule, in words."""

    index: int
    rule: str
    text: str


class Rule(Protocol):
    """One rule. Both readings of it are linear in the number of messages."""

    @property
    def name(self) -> str:
        """The rule in one word."""

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:
        """Every i from 1 to len - 1 where no cut may go between messages i - 1 and i."""

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Where the messages break the rule as they stand."""
