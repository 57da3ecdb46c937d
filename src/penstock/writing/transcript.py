"""The planner's view of a conversation: messages with weights and numbers, an index of them, and the legal cuts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import compress, count
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.conversation.message import Message, Opaque, Role
from penstock.conversation.opening import count_same
from penstock.conversation.pairing import calls_by_id
from penstock.conversation.speakers import people_in
from penstock.writing.ledger import FactKind

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

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
    "find_landmarks",
]

WRITTEN_BY = "by"  # the attribute of a handoff's mark that names the author of its sections,
MODEL = "model"  # and its value if that was a model
FACTS_OF = 400  # messages: actions before these are not among the newest of any kind
_LASTING = frozenset({FactKind.CONSTRAINT, FactKind.HOUSE_RULE, FactKind.SKILL})
_SHORTEST_TAIL = 3  # messages


class Landmarks(msgspec.Struct, frozen=True, eq=False):
    """The positions in a list of messages that planning needs again and again, and the calls by id."""

    messages: Sequence[Message]
    people: list[int]
    """Messages in which a person speaks."""
    users: list[int]
    """All messages with the user's role, even if a harness speaks in them."""
    opaque: list[int]
    """Messages with a part that only the provider can read."""
    calls: dict[str, ToolCall]
    """Every call by its id; if an id was used twice, the later call."""


def find_landmarks(messages: Sequence[Message], earlier: Landmarks | None = None) -> Landmarks:
    """Returns the landmarks of a list. If it begins with the very messages of an earlier one, reads only the rest."""
    same = 0 if earlier is None else count_same(earlier.messages, messages)
    if earlier is None or not same:
        earlier, same = Landmarks((), [], [], [], {}), 0
    fresh = messages[same:]
    # The speaker of a message may depend on the message after it, and the last of the earlier messages had none.
    settled = max(0, same - 1)
    people = earlier.people[: bisect_left(earlier.people, settled)]
    people += people_in(messages, settled)
    users = earlier.users[: bisect_left(earlier.users, same)]
    users += (place for place, one in enumerate(fresh, same) if one.role is Role.USER)
    opaque = earlier.opaque[: bisect_left(earlier.opaque, same)]
    opaque += (
        place for place, one in enumerate(fresh, same) if any(type(part) is Opaque for part in one.parts)
    )
    # If the list was cut short, the earlier of two calls with one id may be the only one left.
    grown = same == len(earlier.messages)
    calls = earlier.calls | calls_by_id(fresh) if grown else calls_by_id(messages)
    return Landmarks(messages, people, users, opaque, calls)


class Transcript(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A legal list of messages of one dialect, read and weighed.

    `origins` are the objects or bytes that the caller gave this time; None for a message of our own. `legal` are the
    cuts that all rules allow, `handoffs` the positions of handoffs from earlier compactions.
    """

    dialect: Dialect
    messages: Sequence[Message]
    origins: Sequence[Any]
    tokens: tuple[int, ...]
    numbers: tuple[int, ...]
    readings: Sequence[Reading]
    index: Index
    legal: tuple[int, ...]
    handoffs: tuple[int, ...]
    known_landmarks: Landmarks | None = None
    """The landmarks, if the caller knows them already."""

    @cached_property
    def landmarks(self) -> Landmarks:
        """The positions that planning needs."""
        return self.known_landmarks or find_landmarks(self.messages)

    @property
    def people(self) -> list[int]:
        """The positions of the messages in which a person speaks, in order."""
        return self.landmarks.people

    @cached_property
    def _counts_on(self) -> bool:
        """True if the messages have the numbers 1, 2, 3 and so on: then a number tells its place."""
        return self.numbers == tuple(range(1, len(self.numbers) + 1))

    def list_places(self, numbers: Collection[int]) -> list[int]:
        """Returns the positions of the messages with these numbers, in order; 0 stands for every handoff."""
        if self._counts_on:
            return sorted(number - 1 for number in {*numbers} if 0 < number <= len(self.numbers))
        return [*compress(count(), map(frozenset(numbers).__contains__, self.numbers))]

    def find_places(self, numbers: Collection[int]) -> dict[int, int]:
        """Returns the position of each of these messages by its number; of handoffs, which all have 0, the last one's."""
        return {self.numbers[place]: place for place in self.list_places(numbers)}

    @cached_property
    def total_tokens(self) -> int:
        """The tokens of the whole list."""
        return sum(self.tokens)

    @cached_property
    def token_row(self) -> NDArray[np.int64]:
        """The tokens of each message, as an array."""
        return np.array(self.tokens, np.int64)

    def __getitem__(self, place: int) -> Message:
        """Returns the message with its origin, to be sent on."""
        message = self.messages[place]
        return Message(message.role, message.parts, self.origins[place], message.beside, message.written)

    def cuts(self) -> Cuts:
        """The places where the list may be cut."""
        return Cuts(self.legal, (0, *self._tokens_until.tolist()))

    def tokens_after(self) -> NDArray[np.int64]:
        """For each message, the tokens of all messages after it."""
        return self.total_tokens - self._tokens_until

    @cached_property
    def _tokens_until(self) -> NDArray[np.int64]:
        """For each message, its tokens and those of all messages before it."""
        return np.cumsum(self.token_row)

    def facts(self, redactor: Redactor, newest: int = FACTS_OF) -> list[Fact]:
        """Returns the facts of the messages, with their numbers: all facts of the user, and the rest of the `newest`."""
        recent = len(self.messages) - newest
        people = set(self.people)
        found: list[Fact] = []
        users = self.landmarks.users
        older = users[: bisect_left(users, recent)]
        for place in (*older, *range(max(0, recent), len(self.messages))):
            found += [
                msgspec.structs.replace(fact, number=self.numbers[place])
                for fact in self.readings[place].facts(self.messages[place], redactor)
                if (place >= recent or fact.kind in _LASTING)
                and (fact.kind is not FactKind.CONSTRAINT or place in people)
            ]
        return found


class Cuts(msgspec.Struct, frozen=True):
    """The places where a list may be cut into a head that stays, a middle that gives way and a tail that stays.

    `legal` are the cuts that every rule of the dialect allows. `before` has the tokens before each message, and one more
    entry for the end.
    """

    legal: tuple[int, ...]
    before: tuple[int, ...]

    def tokens(self, start: int, end: int) -> int:
        """Returns the tokens of the messages from `start` up to `end`."""
        return self.before[end] - self.before[start]

    def segment(self, position: int) -> tuple[int, int]:
        """Returns the range of messages that may not be separated from the one at this position, as start and end."""
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
        """Returns the start of a tail within the budget; up to the ceiling for `wished` messages. At least three stay."""
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
