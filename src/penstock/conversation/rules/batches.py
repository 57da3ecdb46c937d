"""Parallel calls are one batch: no cut goes through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.rules.pairing import has_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.message import Message
    from penstock.conversation.rules.base import Violation

__all__ = ["Batches"]


class Batches:
    """Neighbouring messages that make calls belong to one batch, answered or still open."""

    name = "batches"

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:
        """No cut between two calls that were made together."""
        calling = [has_call(message) for message in messages]
        return {index for index in range(1, len(messages)) if calling[index] and calling[index - 1]}

    def violations(self, messages: Sequence[Message]) -> list[Violation]:  # noqa: ARG002  # what a batch must have after it is said in `pairs`
        """None."""
        return []

    def __repr__(self) -> str:
        return "Batches()"
