"""A result belongs to its call: neither stands without the other, no cut parts them, and ids tell which is whose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.conversation.message import ToolCall, ToolResult
from penstock.conversation.rules.base import Violation
from penstock.conversation.rules.pairing import Matching, Pairing, PartPlace, match

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.conversation.message import Message

__all__ = ["Pairs", "inside_spans"]


class Pairs:
    """Every result has its call where the dialect wants it, every call its result unless it still runs."""

    name = "pairs"

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing

    def illegal_cuts(self, messages: Sequence[Message]) -> set[int]:
        """No cut between a call and its result."""
        return inside_spans(match(messages, self.pairing).spans, len(messages))

    def violations(self, messages: Sequence[Message]) -> list[Violation]:
        """Results without a call, calls without a result, ids used twice; a call at the end may still run."""
        found = match(messages, self.pairing)
        return sorted(_described(messages, found))

    def __repr__(self) -> str:
        return f"Pairs({self.pairing})"


def inside_spans(spans: Iterable[tuple[int, int]], length: int) -> set[int]:
    """Every i with start < i <= end for some span. Linear, however much the spans overlap."""
    steps = [0] * (length + 2)
    for start, end in spans:
        steps[start + 1] += 1
        steps[end + 1] -= 1
    inside: set[int] = set()
    depth = 0
    for index in range(length):
        depth += steps[index]
        if depth:
            inside.add(index)
    return inside


def _described(messages: Sequence[Message], found: Matching) -> Iterable[Violation]:
    for place in found.orphans:
        yield Violation(
            place.message, "pairs", f"a result for {_name(messages, place)} has no such call before it"
        )
    for place in found.repeated:
        yield Violation(place.message, "pairs", f"the call id {_name(messages, place)} is used twice")
    for place in found.unanswered:
        yield Violation(place.message, "pairs", f"the call {_name(messages, place)} has no result after it")


def _name(messages: Sequence[Message], place: PartPlace) -> str:
    part = messages[place.message].parts[place.part]
    return repr(part.call_id[:80]) if isinstance(part, ToolCall | ToolResult) else ""
