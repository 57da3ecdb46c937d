"""The engine `lossless`: handoffs are outlines of a tree, and every node of it can be opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from penstock._log import log
from penstock.conversation.handles import HandleKind, parse_handle
from penstock.engine.compressor import ContextCompressor
from penstock.engine.recollection import Recollection
from penstock.engine.threads import in_thread
from penstock.errors import UnknownHandle, UnknownSession
from penstock.lossless.compaction import compress_with_tree, summarise_with_tree, use_tree
from penstock.lossless.outline import spot_of
from penstock.lossless.tree import NodeHistory, NodeTree, nodes_in_view
from penstock.recall.semantic import embedder_for
from penstock.sessions.history import SessionHistory
from penstock.stores.shelf import MemoryShelf, open_shelf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.engine.compress import Compressed, CompressRequest
    from penstock.engine.summariser import Summariser
    from penstock.errors import StoreError
    from penstock.lossless.outline import Node
    from penstock.recall.history import History
    from penstock.stores.shelf import Shelf
    from penstock.stores.store import Store
    from penstock.stores.values import CompactionRow
    from penstock.writing.notebook import Notebook

__all__ = ["LosslessEngine", "SessionNodes"]


class LosslessEngine(ContextCompressor):
    """The engine `lossless`.

    It fires and cuts as `compressor` does, and takes the same options. What gives way is told in an outline
    of nodes that are written once; the agent has the recall tools, and opens a node `n3` as it does a message
    `m12`.

    With a `store` the nodes of a session are kept beside it from `on_session_start` on: a process that was
    killed finds them again, and asks no model twice. `shelf` keeps them anywhere else; without either they go
    with the process.
    """

    _forgotten: ClassVar[frozenset[str]] = frozenset(
        {"_notebook", "_recollection", "_tree", "_stored", "_shown"}
    )

    def __init__(
        self,
        context_length: int | None = None,
        *,
        store: Store | None = None,
        shelf: Shelf | None = None,
        recall_tools: bool = True,
        **options: Any,
    ) -> None:
        self._tree = NodeTree(shelf or MemoryShelf())
        self._stored: History | None = None
        self._shown: tuple[Node, ...] = ()
        super().__init__(context_length, recall_tools=recall_tools, store=store, **options)

    @property
    def name(self) -> str:
        """`lossless`."""
        return "lossless"

    def original(self, handle: str) -> Any:
        """Returns the original of a message; for a node, the list of those below it that this instance has seen."""
        node = parse_handle(handle)
        if node.kind is not HandleKind.NODE:
            return super().original(handle)
        numbers = self._tree.numbers(node.number)
        if not numbers:
            raise UnknownHandle(f"there is no node {handle!r} in this conversation")
        return [self._originals[one] for one in numbers if one in self._originals]

    def get_status(self) -> dict[str, Any]:
        """Returns what a status line shows, with how many nodes stand in the outline, on how many levels."""
        handles = [handle for node in self._shown for handle in node.handles]
        levels = 1 + max((spot_of(handle).level for handle in handles), default=-1)
        return {**super().get_status(), "nodes": len(handles), "levels": levels}

    def on_session_start(self, session_id: str, **context: Any) -> None:
        """A session begins or is resumed; where the store knows it, its nodes are kept and found there."""
        super().on_session_start(session_id, **context)
        self._bind(session_id)

    def on_session_switch(self, old_id: str, new_id: str, reason: str) -> None:
        """A session goes on under another id: a branch keeps its nodes for itself."""
        super().on_session_switch(old_id, new_id, reason)
        self._bind(new_id)

    def on_session_reset(self) -> None:
        """Forget the conversation and its nodes; what is kept in a store stays there."""
        self._tree = NodeTree(MemoryShelf())
        self._stored, self._shown = None, ()
        super().on_session_reset()

    def _bind(self, session_id: str) -> None:
        if self._store is None:
            return
        try:
            self._store.session(session_id)
        except UnknownSession:  # the host keeps this one elsewhere
            return
        self._tree = NodeTree(open_shelf(self._store, session_id, _say_failure))
        book = self._notebook
        self._stored = SessionHistory(
            self._store,
            session_id,
            book.tokenizer.count,
            book.redactor.redact,
            embedder_for(self.settings),
            others=self.settings.recall.other_conversations,
        )

    def _request(self, focus: str | None, target: int | None) -> CompressRequest:
        return use_tree(super()._request(focus, target), self._tree)

    def _extractive(self, messages: Sequence[Any], request: CompressRequest) -> Compressed:
        return self._take_note(compress_with_tree(messages, request, self._notebook, self._tree))

    async def _write_with_model(
        self, messages: Sequence[Any], request: CompressRequest, summariser: Summariser
    ) -> Compressed:
        result = await summarise_with_tree(messages, request, self._notebook, self._tree, summariser)
        return self._take_note(result)

    def _take_note(self, result: Compressed) -> Compressed:
        """Returns the result; the engine knows which nodes stand in it."""
        if result.plan is not None:
            self._shown = nodes_in_view(result.plan.pieces)
        return result

    def _new_recollection(self) -> Recollection:
        return Recollection(self._notebook, self._with_nodes, embedder_for(self.settings))

    def _with_nodes(self, history: History) -> NodeHistory:
        count = self._notebook.tokenizer.count
        return NodeHistory(history, self._tree, count, behind=self._stored, shown=self._shown)


def _say_failure(error: StoreError) -> None:
    log.warning("nodes of the outline are not kept: %s", error)


class SessionNodes:
    """The tree of one stored conversation, on a shelf in its store.

    It is read whatever engine compacts the session now: a handle that once stood in a view can always be opened.
    """

    def __init__(self, store: Store, session_id: str) -> None:
        self._tree = NodeTree(open_shelf(store, session_id))

    async def compact(
        self,
        wires: Sequence[Any],
        request: CompressRequest,
        notebook: Notebook,
        summariser: Summariser | None,
    ) -> Compressed:
        """Compact the list; the handoff is an outline, and its nodes are kept."""
        if summariser is None:
            return await in_thread(compress_with_tree, wires, request, notebook, self._tree)
        return await summarise_with_tree(wires, request, notebook, self._tree, summariser)

    def history(
        self, history: History, count: Callable[[str], int], newest: CompactionRow | None
    ) -> NodeHistory:
        """Returns the history with the nodes in it; those of the newest compaction stand in the view."""
        shown = nodes_in_view(newest.compaction.pieces if newest is not None else ())
        return NodeHistory(history, self._tree, count, shown=shown)
