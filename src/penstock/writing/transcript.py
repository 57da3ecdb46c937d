"""A conversation as the planner sees it: messages with weights and numbers, an index of them, and the legal cuts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from operator import is_
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.conversation.message import Message, Opaque, Role
from penstock.conversation.pairing import calls_by_id
from penstock.conversation.speakers import people_in
from penstock.writing.ledger import FactKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.conversation.dialects.base import Dialect
    from penstock.conversation.message import ToolCall
    from penstock.redaction import Redactor
    from penstock.writing.ledger import Fact
    from penstock.writing.reading import Index, Reading

__all__ = [
    "FACTS_OF",
    "MODEL",
    "WRITTEN_BY",
    "Cuts",
    "Landmarks",
    "Transcript",
    "count_same",
    "find_landmarks",
]

WRITTEN_BY = "by"  # the attribute of a handoff's mark that says who wrote its sections,
MODEL = "model"  # and its value where a model did
FACTS_OF = 400  # messages: what was done longer ago is not among the newest of anything
_LASTING = frozenset({FactKind.CONSTRAINT, FactKind.HOUSE_RULE, FactKind.SKILL})
_SHORTEST_TAIL = 3  # messages


class Landmarks(msgspec.Struct, frozen=True, eq=False):
    """The positions in a list of messages that planning asks for again and again, and the calls by their ids."""

    messages: Sequence[Message]
    people: list[int]
    """Where a person speaks."""
    users: list[int]
    """All messages of the user's role, be it a harness that speaks."""
    opaque: list[int]
    """Where a part stands that only its provider reads."""
    calls: dict[str, ToolCall]
    """Every call by its id; where an id was used twice, the later call."""


def find_landmarks(messages: Sequence[Message], earlier: Landmarks | None = None) -> Landmarks:
    """Returns the landmarks of a list. Where it begins with the very messages of an earlier one, only the rest is looked at."""
    same = 0 if earlier is None else count_same(earlier.messages, messages)
    if earlier is None or not same:
        earlier, same = Landmarks((), [], [], [], {}), 0
    fresh = messages[same:]
    # Who speaks in a message may depend on the one after it, which the last of the earlier ones did not have.
    settled = max(0, same - 1)
    people = earlier.people[: bisect_left(earlier.people, settled)]
    people += people_in(messages, settled)
    users = earlier.users[: bisect_left(earlier.users, same)]
    users += (place for place, one in enumerate(fresh, same) if one.role is Role.USER)
    opaque = earlier.opaque[: bisect_left(earlier.opaque, same)]
    opaque += (
        place for place, one in enumerate(fresh, same) if any(type(part) is Opaque for part in one.parts)
    )
    # In a list that was cut short, of two calls with one id the earlier one may be the last that is left.
    grown = same == len(earlier.messages)
    calls = earlier.calls | calls_by_id(fresh) if grown else calls_by_id(messages)
    return Landmarks(messages, people, users, opaque, calls)


def count_same(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Returns the number of messages at the start of both lists that are the same objects."""
    if all(map(is_, one, other)):
        return min(len(one), len(other))
    return next(place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] is not pair[1])


class Transcript(msgspec.Struct, frozen=True, eq=False, dict=True):
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
    known_landmarks: Landmarks | None = None
    """Where the caller knows them."""

    @cached_property
    def landmarks(self) -> Landmarks:
        """The positions that planning asks for."""
        return self.known_landmarks or find_landmarks(self.messages)

    @property
    def people(self) -> list[int]:
        """The positions of the messages in which a person speaks, in order."""
        return self.landmarks.people

    @cached_property
    def place_of(self) -> dict[int, int]:
        """The position of each message by its number; of handoffs, which all have 0, the last one's."""
        return {number: place for place, number in enumerate(self.numbers)}

    @property
    def total_tokens(self) -> int:
        """Tokens of the whole list."""
        return sum(self.tokens)

    def __getitem__(self, place: int) -> Message:
        """Returns the message with its origin, to be sent on."""
        message = self.messages[place]
        return Message(message.role, message.parts, self.origins[place], message.beside, message.written)

    def cuts(self) -> Cuts:
        """Returns the places where the list may be cut."""
        before = [0, *np.cumsum(self.tokens, dtype=np.int64).tolist()]
        return Cuts(self.legal, tuple(before))

    def tokens_after(self) -> NDArray[np.int64]:
        """Returns for each message the tokens of all that come after it."""
        sizes = np.array(self.tokens, np.int64)
        after: NDArray[np.int64] = sizes.sum() - np.cumsum(sizes)
        return after

    def facts(self, redactor: Redactor, newest: int = FACTS_OF) -> list[Fact]:
        """Returns the facts of the messages with their numbers: all of the user, the rest of the `newest`."""
        recent = len(self.messages) - newest
        people = set(self.people)
        found: list[Fact] = []
        users = self.landmarks.users
        older = users[: bisect_left(users, recent)]
        for place in (*older, *range(max(0, recent), len(self.messages))):
            found += (
                msgspec.structs.replace(fact, number=self.numbers[place])
                for fact in self.readings[place].facts(self.messages[place], redactor)
                if (place >= recent or fact.kind in _LASTING)
                and (fact.kind is not FactKind.CONSTRAINT or place in people)
            )
        return found


class Cuts(msgspec.Struct, frozen=True):
    """The places where a list may be cut into a head that stays, a middle that gives way and a tail that stays.

    `legal` are the cuts that every rule of the dialect allows, `before` the tokens before each message, and one more for
    the end.
    """

    legal: tuple[int, ...]
    before: tuple[int, ...]

    def tokens(self, start: int, end: int) -> int:
        """Returns the tokens of the messages from `start` up to `end`."""
        return self.before[end] - self.before[start]

    def segment(self, position: int) -> tuple[int, int]:
        """Returns the messages that may not be parted from the one at this position: from, up to."""
        after = bisect_right(self.legal, position)
        return self.legal[after - 1], self.legal[after]

    def head_end(self, wished: int, limit: int, floor: int, ceiling: int) -> int:
        """Returns the end of a head of about `wished` messages in `limit` tokens, at least `floor` of them."""
        best = floor
        for cut in self.legal:
            if cut > ceiling or cut < floor:
                continue
            if self.tokens(0, cut) > limit and cut > floor:
                break
            best = cut
            if cut >= wished:
                break
        return best

    def tail_start(self, budget: int, ceiling: int, wished: int, floor: int) -> int:
        """Returns the start of a tail: within the budget, up to the ceiling for `wished` messages, at least three."""
        end = len(self.before) - 1
        start = end
        for cut in reversed(self.legal[bisect_left(self.legal, floor) : -1]):
            size = self.tokens(cut, end)
            if end - start < _SHORTEST_TAIL or size <= budget or (end - start < wished and size <= ceiling):
                start = cut
            else:
                break
        return start

    def shorter_tail(self, start: int) -> int | None:
        """Returns the next later start that still leaves a tail, or None."""
        after = bisect_right(self.legal, start)
        return self.legal[after] if after < len(self.legal) - 1 else None
