"""Which turns give way: from the start of the middle, as many as needed, between legal cuts.

What stays is the first system, human, gpt and tool turn and the last turns, each with the turns it may not be parted
from. One of them that stands in the middle of what gives way is an island: it stays behind the summary, in its order.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.message import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.dialects import Dialect
    from penstock.conversation.message import Message

__all__ = ["Span", "find_span"]


class Span(msgspec.Struct, frozen=True):
    """The turns from `start` up to `end` but for the islands. `tokens` is what they take."""

    start: int
    end: int
    islands: tuple[int, ...]
    tokens: int

    def gone(self) -> list[int]:
        """The places of the turns that give way, in order."""
        islands = set(self.islands)
        return [place for place in range(self.start, self.end) if place not in islands]

    def after(self, length: int) -> list[int]:
        """The places of the turns that stand behind the summary."""
        return [*self.islands, *range(self.end, length)]


def find_span(
    messages: Sequence[Message],
    tokens: Sequence[int],
    legal: Sequence[int],
    dialect: Dialect,
    wanted: tuple[int, int],
) -> Span | None:
    """The span that frees the tokens that are needed, or all that can; None where nothing may give way.

    `wanted` are the tokens that must be freed and how many turns stay at the end. A summary is a human turn, so a
    span is preferred that has no other human turn beside it, as long as one frees enough.
    """
    needed, keep_last = wanted
    segments = list(pairwise(legal))
    stays = _protected(messages, keep_last)
    free = [stays.isdisjoint(range(start, end)) for start, end in segments]
    found: Span | None = None
    for first in _starts(messages, segments, free, dialect):
        found = _from(first, messages, tokens, (segments, free), dialect, needed)
        if found.tokens >= needed:
            break
    return found


def _from(
    first: int,
    messages: Sequence[Message],
    tokens: Sequence[int],
    parts: tuple[Sequence[tuple[int, int]], Sequence[bool]],
    dialect: Dialect,
    needed: int,
) -> Span:
    """The span that begins with this segment, as far as it must go."""
    segments, free = parts
    start = end = segments[first][0]
    islands: list[int] = []
    waiting: list[int] = []
    freed = 0
    enough: Span | None = None
    for (begin, stop), gives_way in zip(segments[first:], free[first:], strict=True):
        if not gives_way:
            waiting += range(begin, stop)
            continue
        islands += waiting
        waiting.clear()
        freed += sum(tokens[begin:stop])
        end = stop
        if freed >= needed:
            span = Span(start, end, tuple(islands), freed)
            follower = messages[islands[0] if islands else end]
            if dialect.can_follow(Role.USER, follower.role):
                return span
            enough = enough or span
    return enough or Span(start, end, tuple(islands), freed)


def _protected(messages: Sequence[Message], keep_last: int) -> set[int]:
    """The first turn of each role, and the last turns."""
    stays = set(range(max(0, len(messages) - keep_last), len(messages)))
    seen: set[Role] = set()
    for place, message in enumerate(messages):
        if message.role not in seen:
            seen.add(message.role)
            stays.add(place)
    return stays


def _starts(
    messages: Sequence[Message], segments: Sequence[tuple[int, int]], free: Sequence[bool], dialect: Dialect
) -> list[int]:
    """Where a span may begin: the first segment in whose place a human turn may stand, then the first of all."""
    candidates = [at for at, gives_way in enumerate(free) if gives_way]
    for at in candidates:
        start = segments[at][0]
        if start and dialect.can_follow(messages[start - 1].role, Role.USER):
            return [at] if at == candidates[0] else [at, candidates[0]]
    return candidates[:1]
