"""The nodes of a conversation's outlines, by handle and by what they were made of, on a shelf."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.handles import Runs, join_runs, numbers_in
from penstock.lossless.outline import Node
from penstock.lossless.segments import children_of
from penstock.writing.handoff import HandoffEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.stores.shelf import Shelf

__all__ = ["NodeTree"]

_MOST_NUMBERS = 100_000
_NODE = msgspec.msgpack.Decoder(Node)
_NOTES = msgspec.msgpack.Decoder(tuple[HandoffEntry, ...])
_encode = msgspec.msgpack.Encoder().encode


class NodeTree:
    """Every node that was made. A text that was made for some messages is the one that they keep."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._nodes: dict[int, Node] = {}

    def text(self, key: str) -> str | None:
        """Returns the text that was made for a key, or None."""
        kept = self._shelf.get(key)
        return kept.decode(errors="surrogatepass") if kept is not None else None

    def notes(self, key: str) -> Sequence[HandoffEntry] | None:
        """Returns what a model wrote for a key, or None."""
        kept = self._shelf.get(f"notes-{key}")
        return _NOTES.decode(kept) if kept is not None else None

    def keep_notes(self, key: str, notes: Iterable[HandoffEntry]) -> None:
        """Keeps what a model wrote, before anything else can go wrong."""
        self._shelf.put(f"notes-{key}", _encode(tuple(notes)))

    def keep(self, nodes: Iterable[Node]) -> None:
        """Keeps the nodes of an outline.

        One that stands there without its text keeps the text that it had.
        """
        for node in nodes:
            if len(node.handles) != 1:
                continue
            if node.fresh and node.text:
                self._shelf.put(node.key, node.text.encode(errors="surrogatepass"))
            known = self.node(node.handles[0])
            if known is None or (node.text and node.text != known.text):
                plain = Node(node.handles, node.runs, node.text, node.key)
                self._nodes[node.handles[0]] = plain
                self._shelf.put(f"n{node.handles[0]}", _encode(plain))

    def node(self, handle: int) -> Node | None:
        """Returns the node with this handle, or None."""
        if handle not in self._nodes:
            kept = self._shelf.get(f"n{handle}")
            if kept is None:
                return None
            self._nodes[handle] = _NODE.decode(kept)
        return self._nodes[handle]

    def children(self, handle: int) -> tuple[Node, ...]:
        """Returns the nodes directly below a node; none where they are not known."""
        found = tuple(self.node(child) for child in children_of(handle))
        known = tuple(child for child in found if child is not None)
        return known if len(known) == len(found) else ()

    def runs(self, handle: int) -> Runs:
        """Returns the numbers of all messages below a node, also of one that was never told.

        There are none where the node is not known.
        """
        node = self.node(handle)
        if node is not None:
            return node.runs
        below = [self.runs(child) for child in children_of(handle)]
        return join_runs(below) if all(below) else ()

    def numbers(self, handle: int) -> tuple[int, ...]:
        """Returns the same as `runs`, number by number.

        A handoff may come from anywhere, so that there is a limit.
        """
        return tuple(islice(numbers_in(self.runs(handle)), _MOST_NUMBERS))
