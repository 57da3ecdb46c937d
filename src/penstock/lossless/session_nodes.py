"""The nodes of a stored session that the engine `lossless` compacts: kept beside it, read back with it.

They are read whatever engine compacts the session now: a handle that once stood in a view can always be
opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engine.threads import in_thread
from penstock.lossless.compaction import compress_with_tree, summarise_with_tree
from penstock.lossless.tree import NodeHistory, NodeTree, nodes_in_view
from penstock.stores.shelf import open_shelf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.engine.compress import CompressRequest
    from penstock.engine.compressed import Compressed
    from penstock.engine.summariser import Summariser
    from penstock.recall.history import History
    from penstock.stores.store import Store
    from penstock.stores.values import CompactionRow
    from penstock.writing.notebook import Notebook

__all__ = ["SessionNodes"]


class SessionNodes:
    """The tree of one conversation, on a shelf in its store."""

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
