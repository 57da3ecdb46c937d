"""The outline of a handoff: what became of the conversation, segment by segment, oldest first.

    ## Outline
    [n5 m3-61]
    [m14 read_file]
    DATABASE_PORT = 5433
    [n6 m62-80]
    - m71 the port was wrong

A header names the node and the messages below it; nodes without a text share one. What stands below a header
is written once: the next handoff takes it over letter for letter, until the node gives way to its parent.

The nodes form a tree. What gives way to a handoff is cut into segments of about the same size, and each is a
leaf. Every two nodes of a level, as they come, have a parent on the next, so that the tree of a long
conversation is low, and its shape follows from the number of leaves alone. Nodes are numbered as they become
whole: n1 and n2 are leaves, n3 is their parent, n4 is the next leaf. So a handle means the same node for
good, and the nodes inside it follow from its number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.conversation.handles import Runs, join_runs, read_runs, write_runs
from penstock.conversation.identity import chain_ids
from penstock.conversation.speakers import is_request
from penstock.writing.handoff import NODE_HEADER, OUTLINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.writing.handoff import HandoffEntry
    from penstock.writing.transcript import Transcript

__all__ = [
    "FAN",
    "Node",
    "NodeTexts",
    "Spot",
    "children_of",
    "collapse_handles",
    "cut_segments",
    "handle_of",
    "header_of_node",
    "parse_outline",
    "render_outline",
    "segment_key",
    "spot_of",
]

FAN = 2
"""The number of nodes that have one parent."""
_EARLY = 0.6  # of a segment's size: from there on it ends where the user speaks
_LATE = 1.5  # times its size: what would make it longer begins the next one
_REMAINDER = 0.25  # of its size: less at the end belongs to the segment before


class Spot(NamedTuple):
    """The place of a node in the tree: its level, from 0 for leaves, and its ordinal on that level, from 0."""

    level: int
    ordinal: int

    @property
    def leaves(self) -> int:
        """The number of leaves up to the last one below this node."""
        return int((self.ordinal + 1) * FAN**self.level)


def handle_of(spot: Spot) -> int:
    """Returns the number of a node."""
    return _handle_of_leaf(spot.leaves) + spot.level


def spot_of(handle: int) -> Spot:
    """Returns the place of the node with this number, from 1."""
    low, high = 1, handle
    while low < high:  # the last leaf that has no larger number
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _handle_of_leaf(middle) <= handle else (low, middle - 1)
    level = handle - _handle_of_leaf(low)
    return Spot(level, low // FAN**level - 1)


def children_of(handle: int) -> tuple[int, ...]:
    """Returns the nodes directly below a node, oldest first; none below a leaf."""
    level, ordinal = spot_of(handle)
    if level == 0:
        return ()
    return tuple(handle_of(Spot(level - 1, FAN * ordinal + place)) for place in range(FAN))


def collapse_handles(handles: Iterable[int]) -> tuple[int, ...]:
    """Returns the handles with a parent in place of its children wherever all of them are there."""
    found: list[int] = []
    for handle in handles:
        found.append(handle)
        while children_of(parent := _parent_of(found[-1])) == tuple(found[-FAN:]):
            found[-FAN:] = [parent]
    return tuple(found)


def cut_segments(transcript: Transcript, places: Sequence[int], segment_tokens: int) -> list[tuple[int, ...]]:
    """Cuts the places into segments of about this size. Messages that may not be separated stay together.

    Where a segment ends depends on its own messages and on nothing after it, except for a short remainder. So
    segments are the same when the conversation has grown.
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
    """Returns a digest of the messages in a segment, which identifies it wherever it stands."""
    return chain_ids(transcript.messages[place] for place in places)[-1]


def _units(transcript: Transcript, places: Sequence[int]) -> Iterable[list[int]]:
    """Yields the places in runs that no legal cut parts."""
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
    """Returns the number of the leaf: before it come all leaves up to it, and all parents that were whole by then."""
    before = handle = leaf - 1
    while before:
        before //= FAN
        handle += before
    return handle + 1


def _parent_of(handle: int) -> int:
    level, ordinal = spot_of(handle)
    return handle_of(Spot(level + 1, ordinal // FAN))


_TITLE = f"## {OUTLINE}"


class Node(msgspec.Struct, frozen=True):
    """A node as an outline shows it: the messages below it, by number, and its text, already escaped.

    It has more than one handle if it stands for several nodes without a text. `key` identifies its
    text; empty if that was read from a handoff. `fresh` is True if the text was made now.
    """

    handles: tuple[int, ...]
    runs: Runs
    text: str = ""
    key: str = ""
    fresh: bool = False


class NodeTexts(msgspec.Struct, frozen=True, eq=False):
    """The texts of nodes that exist before an outline is written."""

    find_text: Callable[[str], str | None]
    """Returns the text that was made for a key, or None."""
    notes: Mapping[str, Sequence[HandoffEntry]] = {}
    """Notes that a model wrote for nodes without a text, already checked, by key."""
    notes_tokens: int = 0
    """The most tokens that the notes of one node take."""


def header_of_node(node: Node) -> str:
    """Returns the line above the text of a node."""
    return f"[{' '.join(f'n{handle}' for handle in node.handles)} m{write_runs(node.runs)}]"


def render_outline(nodes: Iterable[Node]) -> str:
    """Returns the nodes as text; neighbours without a text share a header. Empty without nodes."""
    lines: list[str] = []
    for node in _join_empty(nodes):
        lines.append(header_of_node(node))
        if node.text:
            lines.append(node.text)
    return "\n".join([_TITLE, *lines]) if lines else ""


def parse_outline(text: str) -> tuple[Node, ...]:
    """Returns the nodes of the outline in a handoff's text."""
    nodes: list[Node] = []
    inside = False
    held: list[str] = []
    for line in text.split("\n"):
        if line.startswith("## "):
            inside = line == _TITLE
            continue
        if not inside:
            continue
        header = NODE_HEADER.match(line)
        if header is not None:
            held = []
            handles = tuple(int(handle[1:]) for handle in header[1].split())
            nodes.append(Node(handles, read_runs(header[2])))
        elif nodes:
            held.append(line)
            nodes[-1] = msgspec.structs.replace(nodes[-1], text="\n".join(held))
    return tuple(node for node in nodes if node.runs and all(node.handles))


def _join_empty(nodes: Iterable[Node]) -> list[Node]:
    """Returns the nodes, with neighbours that have no text joined into one."""
    found: list[Node] = []
    for node in nodes:
        if found and not node.text and not found[-1].text:
            before = found.pop()
            handles = collapse_handles((*before.handles, *node.handles))
            found.append(Node(handles, join_runs((before.runs, node.runs))))
        else:
            found.append(node)
    return found
