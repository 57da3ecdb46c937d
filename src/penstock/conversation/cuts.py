"""The cuts of a conversation: a head that stays, a middle that gives way, a tail that stays.

Cuts are made only where every rule of the dialect allows one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import msgspec

__all__ = ["Cuts"]

_SHORTEST_TAIL = 3


class Cuts(msgspec.Struct, frozen=True):
    """The legal cuts of a list of messages and the tokens before each message."""

    legal: tuple[int, ...]
    before: tuple[int, ...]

    def tokens(self, start: int, end: int) -> int:
        """Tokens of the messages from `start` up to `end`."""
        return self.before[end] - self.before[start]

    def segment(self, position: int) -> tuple[int, int]:
        """The messages that may not be parted from the one at this position: from, up to."""
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
        """The start of a tail: within the budget, up to the ceiling for `wished` messages, at least three."""
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
        """The next later start that still leaves a tail, or None."""
        after = bisect_right(self.legal, start)
        return self.legal[after] if after < len(self.legal) - 1 else None
