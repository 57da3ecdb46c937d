"""A history in which the nodes of an outline can be described and read: down to their children, then to the originals."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from penstock.conversation.handles import HandleKind, numbers_in, parse_handle
from penstock.errors import UnknownHandle
from penstock.lossless.outline import header_of_node
from penstock.recall.history import HistoryPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from penstock.lossless.outline import Node
    from penstock.lossless.tree import NodeTree
    from penstock.recall.history import Finding, History
    from penstock.recall.ranking import Wish

__all__ = ["NodeHistory"]

_T = TypeVar("_T")
_BETWEEN = "\n\n"


class NodeHistory:
    """A history with nodes. `behind` is a second one, that is asked for what the first does not know.

    `shown` are the handles of the nodes that stand in the view, `told` those nodes as the view tells them: what is below
    one is known by that even where the tree lacks it, as that of a branch does whose conversation was deleted.
    """

    def __init__(
        self,
        history: History,
        tree: NodeTree,
        count: Callable[[str], int],
        *,
        behind: History | None = None,
        shown: Collection[int] = (),
        told: Sequence[Node] = (),
    ) -> None:
        self._histories: list[History] = [history] if behind is None else [history, behind]
        self._tree = tree
        self._count = count
        self._shown = shown
        self._told = told

    def search(self, query: str, wish: Wish) -> Sequence[Finding]:
        """The best findings: messages, since nodes say only what messages say."""
        found: list[Finding] = []
        seen: set[str] = set()
        for history in self._histories:
            for finding in history.search(query, wish):
                if not seen.intersection(finding.handles):
                    found.append(finding)
                    seen.update(finding.handles)
        return found[: wish.hits]

    def describe(self, handle: str) -> HistoryPlace:
        """What the handle stands for; inside a node are its children, inside a leaf its messages."""
        node = parse_handle(handle)
        if node.kind is not HandleKind.NODE:
            return self._first(lambda history: history.describe(handle))
        numbers = self._numbers(node.number)
        text = self.text(handle)
        children = self._tree.children(node.number)
        inside = (
            tuple(f"n{child.handles[0]}" for child in children)
            if children
            else tuple(f"m{message}" for message in numbers)
        )
        return HistoryPlace(
            handle=node.text,
            kind="segment",
            turn=numbers[0],
            role="",
            title=f"segment of m{numbers[0]} to m{numbers[-1]}",
            characters=len(text),
            tokens=self._count(text),
            in_view=node.number in self._shown,
            inside=inside,
        )

    def text(self, handle: str) -> str:
        """What is inside: the texts of a node's children, the originals of a leaf's messages."""
        asked = parse_handle(handle)
        if asked.kind is not HandleKind.NODE:
            return self._first(lambda history: history.text(handle))
        children = self._tree.children(asked.number)
        if any(child.text for child in children):
            return _BETWEEN.join(map(_with_header, children))
        originals = list(self._originals(self._numbers(asked.number)))
        if originals:
            return _BETWEEN.join(originals)
        node = self._tree.node(asked.number)
        return node.text if node is not None else ""

    def _originals(self, numbers: Sequence[int]) -> Iterator[str]:
        for number in numbers:
            try:
                place, text = self.describe(f"m{number}"), self.text(f"m{number}")
            except UnknownHandle:
                continue  # it was gone before this history began
            yield f"[m{number} {place.role}]\n{text}"

    def _numbers(self, number: int) -> tuple[int, ...]:
        numbers = self._tree.numbers(number) or next(
            (tuple(numbers_in(node.runs)) for node in self._told if number in node.handles), ()
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


def _with_header(node: Node) -> str:
    header = header_of_node(node)
    return f"{header}\n{node.text}" if node.text else header
