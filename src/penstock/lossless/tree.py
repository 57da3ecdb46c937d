"""The nodes of a conversation's outlines: kept on a shelf by handle and by key, and read again as a history.

A history with nodes lets a handle such as `n3` be described and read: down to its children, then to the
originals.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import msgspec

from penstock.conversation.handles import HandleKind, Runs, join_runs, name_message, numbers_in, parse_handle
from penstock.conversation.view import Handoff
from penstock.errors import UnknownHandle
from penstock.lossless.outline import Node, children_of, header_of_node, parse_outline
from penstock.recall.history import HistoryPlace
from penstock.recall.originals import write_originals
from penstock.writing.handoff import HandoffEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.conversation.view import Piece
    from penstock.recall.history import Finding, History
    from penstock.recall.ranking import Wish
    from penstock.stores.shelf import Shelf
    from penstock.writing.entities import EntityState

__all__ = ["NodeHistory", "NodeTree", "nodes_in_view"]

_T = TypeVar("_T")
_BETWEEN = "\n\n"
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
        """Returns the notes of a model for a key, or None."""
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

    def list_children(self, handle: int) -> tuple[Node, ...]:
        """Returns the nodes directly below a node; none if they are unknown."""
        found = tuple(self.node(child) for child in children_of(handle))
        known = tuple(child for child in found if child is not None)
        return known if len(known) == len(found) else ()

    def runs(self, handle: int) -> Runs:
        """Returns the numbers of all messages below a node, even one without a text; none if it is unknown."""
        node = self.node(handle)
        if node is not None:
            return node.runs
        below = [self.runs(child) for child in children_of(handle)]
        return join_runs(below) if all(below) else ()

    def numbers(self, handle: int) -> tuple[int, ...]:
        """As `runs`, number by number; a handoff may come from anywhere, so there is an end to it."""
        return _first_numbers(self.runs(handle))


def nodes_in_view(pieces: Iterable[Piece]) -> tuple[Node, ...]:
    """Returns the nodes of the outlines in a view, as the view shows them."""
    texts = [piece.summary.text for piece in pieces if isinstance(piece, Handoff)]
    return tuple(node for text in texts for node in parse_outline(text))


class NodeHistory:
    """A history with nodes. `behind` is a second one, which is asked for what the first does not know.

    `shown` are the nodes in the view. Their headers name the messages below them even if the
    tree lacks the node, as in a branch whose conversation was deleted.
    """

    def __init__(
        self,
        history: History,
        tree: NodeTree,
        count: Callable[[str], int],
        *,
        behind: History | None = None,
        shown: Sequence[Node] = (),
    ) -> None:
        self._histories: list[History] = [history] if behind is None else [history, behind]
        self._tree = tree
        self._count = count
        self._shown = shown

    def search(self, query: str, wish: Wish) -> Sequence[Finding]:
        """Returns the best findings: messages, since nodes say only what messages say."""
        found: list[Finding] = []
        seen: set[str] = set()
        for history in self._histories:
            for finding in history.search(query, wish):
                if not seen.intersection(finding.handles):
                    found.append(finding)
                    seen.update(finding.handles)
        return found[: wish.hits]

    def describe(self, handle: str) -> HistoryPlace:
        """Describes what the handle names; inside a node are its children, inside a leaf its messages."""
        node = parse_handle(handle)
        if node.kind is not HandleKind.NODE:
            return self._first(lambda history: history.describe(handle))
        numbers = self._numbers(node.number)
        text = self.text(handle)
        children = self._tree.list_children(node.number)
        inside = (
            tuple(f"n{child.handles[0]}" for child in children)
            if children
            else tuple(map(name_message, numbers))
        )
        return HistoryPlace(
            handle=node.text,
            kind="segment",
            turn=numbers[0],
            role="",
            title=f"segment of {name_message(numbers[0])} to {name_message(numbers[-1])}",
            characters=len(text),
            tokens=self._count(text),
            in_view=any(node.number in shown.handles for shown in self._shown),
            inside=inside,
        )

    def count_unsearched(self) -> int:
        """Returns how many messages a search misses so far, because they are still to be indexed."""
        return sum(history.count_unsearched() for history in self._histories)

    def entities(self) -> Sequence[EntityState]:
        """Returns the state of each entity, from the later of its messages, the newest first."""
        newest: dict[tuple[str, str], EntityState] = {}
        for history in self._histories:
            for one in history.entities():
                known = newest.get((one.kind, one.name))
                if known is None or one.number > known.number:
                    newest[one.kind, one.name] = one
        return sorted(newest.values(), key=lambda one: one.number, reverse=True)

    def text(self, handle: str) -> str:
        """Returns the contents: the texts of a node's children, the originals of a leaf's messages."""
        asked = parse_handle(handle)
        if asked.kind is not HandleKind.NODE:
            return self._first(lambda history: history.text(handle))
        children = self._tree.list_children(asked.number)
        if any(child.text for child in children):
            return _BETWEEN.join(map(_with_header, children))
        originals = write_originals(self._originals(self._numbers(asked.number)))
        if originals:
            return originals
        node = self._tree.node(asked.number)
        return node.text if node is not None else ""

    def _originals(self, numbers: Sequence[int]) -> Iterator[tuple[int, str, str]]:
        for number in numbers:
            handle = name_message(number)
            try:
                place, text = self.describe(handle), self.text(handle)
            except UnknownHandle:
                continue  # it was gone before this history began
            yield number, place.role, text

    def _numbers(self, number: int) -> tuple[int, ...]:
        numbers = self._tree.numbers(number) or next(
            (_first_numbers(node.runs) for node in self._shown if number in node.handles), ()
        )
        if not numbers:
            raise UnknownHandle(f"there is no node 'n{number}' in this conversation")
        return numbers

    def _first(self, ask: Callable[[History], _T]) -> _T:
        for history in self._histories[:-1]:
            try:
                return ask(history)
            except UnknownHandle:
                continue
        return ask(self._histories[-1])


def _first_numbers(runs: Runs) -> tuple[int, ...]:
    """Returns the numbers of the runs, as many as a conversation may have: a handoff from anywhere may name far more."""
    return tuple(islice(numbers_in(runs), _MOST_NUMBERS))


def _with_header(node: Node) -> str:
    header = header_of_node(node)
    return f"{header}\n{node.text}" if node.text else header
