"""A conversation as the planner sees it: messages with their weights and numbers, and an index of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.conversation.cuts import Cuts
from penstock.conversation.message import Message, Role
from penstock.writing.ledger import FactKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.conversation.dialects.base import Dialect
    from penstock.redaction import Redactor
    from penstock.writing.ledger import Fact
    from penstock.writing.reading import Index, Reading

__all__ = ["FACTS_OF", "MODEL", "WRITTEN_BY", "Transcript"]

WRITTEN_BY = "by"  # the attribute of a handoff's mark that says who wrote its sections,
MODEL = "model"  # and its value where a model did
FACTS_OF = 400  # messages: what was done longer ago is not among the newest of anything


class Transcript(msgspec.Struct, frozen=True, eq=False):
    """A legal list of messages of one dialect, read and weighed.

    `origins` are what the messages came as: the objects or bytes given this time, None for one that is ours.
    `legal` are the cuts that all rules allow, `handoffs` the positions of handoffs of earlier compactions.
    """

    dialect: Dialect
    messages: tuple[Message, ...]
    origins: tuple[Any, ...]
    tokens: tuple[int, ...]
    numbers: tuple[int, ...]
    readings: tuple[Reading, ...]
    index: Index
    legal: tuple[int, ...]
    handoffs: tuple[int, ...]

    @property
    def total_tokens(self) -> int:
        """Tokens of the whole list."""
        return sum(self.tokens)

    def __getitem__(self, place: int) -> Message:
        """Returns the message with its origin, to be sent on."""
        message = self.messages[place]
        return Message(message.role, message.parts, self.origins[place])

    def cuts(self) -> Cuts:
        """Returns the places where the list may be cut."""
        before = [0, *np.cumsum(self.tokens, dtype=np.int64).tolist()]
        return Cuts(self.legal, tuple(before))

    def tokens_after(self) -> NDArray[np.int64]:
        """Returns for each message the tokens of all that come after it."""
        sizes = np.array(self.tokens, np.int64)
        after: NDArray[np.int64] = sizes.sum() - np.cumsum(sizes)
        return after

    def facts(self, redactor: Redactor, newest: int = FACTS_OF) -> Iterator[Fact]:
        """Yields the facts of the messages with their numbers: all of the user, the rest of the `newest`."""
        recent = len(self.messages) - newest
        for place, message in enumerate(self.messages):
            if place >= recent or message.role is Role.USER:
                for fact in self.readings[place].facts(message, redactor):
                    if place >= recent or fact.kind is FactKind.CONSTRAINT:
                        yield msgspec.structs.replace(fact, number=self.numbers[place])
