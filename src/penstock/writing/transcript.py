"""A conversation as the planner sees it: messages, what each weighs, its number, and the index of what is said.

Numbers name messages to readers: m1 is the first message ever. A handoff from an earlier compaction stands for
messages that are gone from the list; its mark says which numbers the messages after it have, so that a handle
means the same message for good.
"""

from __future__ import annotations

import re
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.conversation.cuts import Cuts
from penstock.conversation.handles import runs_of, write_runs
from penstock.conversation.message import Message, Role, Summary
from penstock.writing.ledger import FactKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.conversation.dialects.base import Dialect
    from penstock.redaction import Redactor
    from penstock.writing.index import Index
    from penstock.writing.ledger import Fact
    from penstock.writing.reading import Reading

__all__ = ["AFTER", "FACTS_OF", "MODEL", "WRITTEN_BY", "Transcript", "number_messages", "numbers_after"]

AFTER = "after"  # attributes of the mark: the numbers of what follows,
WRITTEN_BY = "by"  # and who wrote the sections, where it was
MODEL = "model"
_RUN = re.compile(r"(\d{1,9})(?:-(\d{1,9})|(\+))?$")
_LONGEST_RUN = 100_000
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
        """The message with its origin, for what is sent on."""
        message = self.messages[place]
        return Message(message.role, message.parts, self.origins[place])

    def cuts(self) -> Cuts:
        """Where the list may be cut."""
        before = [0, *np.cumsum(self.tokens, dtype=np.int64).tolist()]
        return Cuts(self.legal, tuple(before))

    def tokens_after(self) -> NDArray[np.int64]:
        """For each message, the tokens of all that come after it."""
        sizes = np.array(self.tokens, np.int64)
        after: NDArray[np.int64] = sizes.sum() - np.cumsum(sizes)
        return after

    def facts(self, redactor: Redactor, newest: int = FACTS_OF) -> Iterator[Fact]:
        """The facts of the messages, with their numbers: all that the user stated, the rest of the `newest`."""
        recent = len(self.messages) - newest
        for place, message in enumerate(self.messages):
            if place >= recent or message.role is Role.USER:
                for fact in self.readings[place].facts(message, redactor):
                    if place >= recent or fact.kind is FactKind.CONSTRAINT:
                        yield msgspec.structs.replace(fact, number=self.numbers[place])


def number_messages(messages: Sequence[Message], handoffs: Iterable[int] | None = None) -> tuple[int, ...]:
    """A number for each message. A message that is only a handoff has 0.

    `handoffs` are the positions of messages with a handoff, where the caller knows them.
    """
    if handoffs is None:
        handoffs = [
            n for n, one in enumerate(messages) if any(isinstance(part, Summary) for part in one.parts)
        ]
    numbers: list[int] = []
    upcoming: Iterator[int] = count(1)
    for place in handoffs:
        numbers += islice(upcoming, place - len(numbers))
        parts = messages[place].parts
        summary = next(part for part in parts if isinstance(part, Summary))
        upcoming = _expand(summary.attributes.get(AFTER, ""), upcoming)
        numbers.append(0 if len(parts) == 1 else next(upcoming))
    numbers += islice(upcoming, len(messages) - len(numbers))
    return tuple(numbers)


def numbers_after(numbers: Iterable[int], newest: int) -> str:
    """The value of the mark's attribute for messages with these numbers after a handoff; more count on."""
    runs = runs_of(numbers)
    if runs and runs[-1][1] == newest:
        return f"{write_runs(runs[:-1])} {runs[-1][0]}+".lstrip()
    return f"{write_runs(runs)} {newest + 1}+".lstrip()


def _expand(text: str, otherwise: Iterator[int]) -> Iterator[int]:
    """The numbers that an attribute stands for; `otherwise` where it is not one of ours."""
    runs = [_RUN.match(word) for word in text.split()]
    if not runs or any(run is None for run in runs):
        return otherwise
    return _numbers([run for run in runs if run is not None])


def _numbers(runs: list[re.Match[str]]) -> Iterator[int]:
    last = 0
    for run in runs:
        first = int(run[1])
        if run[3]:
            yield from count(first)
        last = min(int(run[2] or first), first + _LONGEST_RUN)
        yield from range(first, last + 1)
    yield from count(last + 1)
