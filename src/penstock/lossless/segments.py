"""Segments of a conversation, and the tree that stands on them.

What gives way to a handoff is cut into segments of about the same size. Each is a leaf. Every two nodes of a level,
as they come, have a parent on the next, so that the tree of a long conversation is low, and its shape follows from the
number of leaves alone. Nodes are numbered as they become whole: n1 and n2 are leaves, n3 is their parent, n4 is the
next leaf. A handle means the same node for good, and which nodes are inside it can be told without asking anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.conversation.identity import chain_ids
from penstock.conversation.message import is_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.writing.transcript import Transcript

__all__ = ["FAN", "Spot", "children_of", "collapsed", "cut_segments", "handle_of", "segment_key", "spot_of"]

FAN = 2
"""How many nodes have one parent."""
_EARLY = 0.6  # of a segment's size: from there on it ends where the user speaks
_LATE = 1.5  # times its size: what would make it longer begins the next one
_REMAINDER = 0.25  # of its size: less at the end belongs to the segment before


class Spot(NamedTuple):
    """Where a node stands in the tree: on which level, leaves being 0, and as the how manieth of it, from 0."""

    level: int
    ordinal: int

    @property
    def leaves(self) -> int:
        """How many leaves there are up to the last one below this node."""
        return int((self.ordinal + 1) * FAN**self.level)


def handle_of(spot: Spot) -> int:
    """The number of a node."""
    return _handle_of_leaf(spot.leaves) + spot.level


def spot_of(handle: int) -> Spot:
    """The node with this number, from 1."""
    low, high = 1, handle
    while low < high:  # the last leaf that has no larger number
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _handle_of_leaf(middle) <= handle else (low, middle - 1)
    level = handle - _handle_of_leaf(low)
    return Spot(level, low // FAN**level - 1)


def children_of(handle: int) -> tuple[int, ...]:
    """The nodes directly below a node, oldest first; none below a leaf."""
    level, ordinal = spot_of(handle)
    if level == 0:
        return ()
    return tuple(handle_of(Spot(level - 1, FAN * ordinal + place)) for place in range(FAN))


def collapsed(handles: Iterable[int]) -> tuple[int, ...]:
    """The handles with a parent in place of its children wherever all of them are there."""
    found: list[int] = []
    for handle in handles:
        found.append(handle)
        while children_of(parent := _parent_of(found[-1])) == tuple(found[-FAN:]):
            found[-FAN:] = [parent]
    return tuple(found)


def cut_segments(transcript: Transcript, places: Sequence[int], segment_tokens: int) -> list[tuple[int, ...]]:
    """The places in segments of about this size. What may not be parted stays together, whatever its size.

    Where a segment ends depends on what is in it and on nothing behind it, but for a short remainder. So segments are
    the same when the conversation has gone on.
    """
    segments: list[tuple[int, ...]] = []
    held: list[int] = []
    size = 0
    for unit in _units(transcript, places):
        tokens = sum(transcript.tokens[place] for place in unit)
        asks = is_request(transcript.messages[unit[0]])
        if held and (
            size >= segment_tokens
            or (asks and size >= _EARLY * segment_tokens)
            or (size + tokens > _LATE * segment_tokens and size >= _REMAINDER * segment_tokens)
        ):
            segments.append(tuple(held))
            held, size = [], 0
        held += unit
        size += tokens
    if held and segments and size < _REMAINDER * segment_tokens:
        held = [*segments.pop(), *held]
    return [*segments, tuple(held)] if held else segments


def segment_key(transcript: Transcript, places: Iterable[int]) -> str:
    """What a segment is known by: a digest of the messages in it, whatever stands around them."""
    return chain_ids(transcript.messages[place] for place in places)[-1]


def _units(transcript: Transcript, places: Sequence[int]) -> Iterable[list[int]]:
    """The places in runs that no legal cut parts."""
    legal = frozenset(transcript.legal)
    unit: list[int] = []
    for place in places:
        if unit and (place in legal or place != unit[-1] + 1):
            yield unit
            unit = []
        unit.append(place)
    if unit:
        yield unit


def _handle_of_leaf(leaf: int) -> int:
    """The number of the leaf: before it come all leaves up to it, and all parents that were whole by then."""
    before = handle = leaf - 1
    while before:
        before //= FAN
        handle += before
    return handle + 1


def _parent_of(handle: int) -> int:
    level, ordinal = spot_of(handle)
    return handle_of(Spot(level + 1, ordinal // FAN))
