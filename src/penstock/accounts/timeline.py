"""A conversation over its whole length: what became of each message, and what its requests took over time."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.view import Handoff, Kept, Rewritten
from penstock.sessions.metering import TURN_TASK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.view import Compaction
    from penstock.stores.values import CompactionRow, LogShape, UsageRow

__all__ = ["FateRun", "TimePoint", "ViewFate", "find_cuts", "find_runs", "trace_fates", "trace_requests"]

_MOST_POINTS = 400  # of a series: a screen is not much wider


class ViewFate(Enum):
    """The part of a message of the log that stands in the view."""

    VERBATIM = "verbatim"  # as it came
    ELIDED = "elided"  # shortened: a stub stands for some of it
    HANDED_ON = "in the handoff"
    GONE = "taken back"  # by a rewind or a clearing


class FateRun(msgspec.Struct, frozen=True):
    """Neighbouring messages with the same fate, from position `start` to before `end`, and what they weigh."""

    fate: ViewFate
    start: int
    end: int
    tokens: int


class TimePoint(msgspec.Struct, frozen=True):
    """A moment of a conversation: the tokens of its prompt, and what all its requests had cost by then."""

    at: float
    tokens: int
    cost: float


def trace_fates(length: int, compaction: Compaction | None) -> list[ViewFate]:
    """Returns what became of each message of a log of that length, by its newest compaction."""
    if compaction is None:
        return [ViewFate.VERBATIM] * length
    fates = [ViewFate.GONE] * compaction.length + [ViewFate.VERBATIM] * (length - compaction.length)
    # What stands in the view itself counts, also where a handoff covers it, too.
    for piece in compaction.pieces:
        if isinstance(piece, Handoff):
            for position in piece.covers:
                fates[position] = ViewFate.HANDED_ON
    for piece in compaction.pieces:
        match piece:
            case Kept(position=position):
                fates[position] = ViewFate.VERBATIM
            case Rewritten(position=position):
                fates[position] = ViewFate.ELIDED
            case _:
                pass
    return fates


def find_runs(fates: Sequence[ViewFate], shape: LogShape) -> list[FateRun]:
    """Returns the fates as runs of neighbours."""
    runs: list[FateRun] = []
    start = 0
    for place in range(1, len(fates) + 1):
        if place == len(fates) or fates[place] is not fates[start]:
            runs.append(FateRun(fates[start], start, place, sum(shape.tokens[start:place])))
            start = place
    return runs


def find_cuts(compactions: Sequence[CompactionRow]) -> list[tuple[int, int]]:
    """Returns where each compaction that holds cut the log: its number among all, from 1 on, and the length it had."""
    return [
        (number, row.compaction.length)
        for number, row in enumerate(compactions, start=1)
        if row.undone is None and not row.is_rewind
    ]


def trace_requests(requests: Sequence[UsageRow], shape: LogShape) -> list[TimePoint]:
    """Returns the prompts of a conversation over time, and the cost of all its requests up to each.

    Without requests on record, what its log weighed over time. Of many moments, some are left out: never the first, the
    last, or those on both sides of a sudden change.
    """
    points: list[TimePoint] = []
    spent = 0.0
    for row in requests:
        spent += row.cost or 0.0
        if row.task == TURN_TASK and row.usage.prompt_tokens:
            points.append(TimePoint(row.at, row.usage.prompt_tokens, spent))
    if not points:
        weight = 0
        for at, tokens in zip(shape.created, shape.tokens, strict=True):
            weight += tokens
            points.append(TimePoint(at, weight, 0.0))
    return _thin_out(points)


def _thin_out(points: list[TimePoint]) -> list[TimePoint]:
    if len(points) <= _MOST_POINTS:
        return points
    largest = max(point.tokens for point in points)
    kept = {0, len(points) - 1}
    kept |= {round(step * (len(points) - 1) / (_MOST_POINTS // 2)) for step in range(_MOST_POINTS // 2)}
    jumps = sorted(
        range(1, len(points)),
        key=lambda at: abs(points[at].tokens - points[at - 1].tokens),
        reverse=True,
    )[: _MOST_POINTS // 4]
    for at in jumps:
        if abs(points[at].tokens - points[at - 1].tokens) > largest / 20:
            kept |= {at - 1, at}
    return [points[at] for at in sorted(kept)]
