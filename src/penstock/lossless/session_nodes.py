"""The nodes of a stored session that the engine `lossless` compacts: kept beside it, read back with it.

They are read whatever engine compacts the session now: a handle that once stood in a view can always be opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.view import Handoff
from penstock.engine.compress import begin_list, finished
from penstock.engine.threads import in_thread
from penstock.lossless.compaction import write_notes
from penstock.lossless.outline import NodeTexts, parse_outline
from penstock.lossless.shelf import LazyShelf, StoreShelf
from penstock.lossless.tree import NodeHistory, NodeTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.engine.compress import CompressRequest
    from penstock.engine.compressed import Compressed
    from penstock.engine.summariser import Summariser
    from penstock.recall.history import History
    from penstock.stores.values import CompactionRow, Store
    from penstock.writing.notebook import Notebook

__all__ = ["SessionNodes"]


class SessionNodes:
    """The tree of one conversation, on a shelf in its store."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._tree = NodeTree(LazyShelf(lambda: StoreShelf(store, session_id)))

    async def compacted(
        self, wires: Sequence[Any], request: CompressRequest, book: Notebook, summariser: Summariser | None
    ) -> Compressed:
        """A compaction whose handoff is an outline; its nodes are kept."""
        request = msgspec.structs.replace(request, nodes=NodeTexts(self._tree.text))
        begun = await in_thread(begin_list, wires, request, book)
        if summariser is None:
            result = await in_thread(finished, begun)
        else:
            result = await write_notes(begun, request, summariser, self._tree)
        if result.plan is not None:
            self._tree.keep(result.plan.nodes)
        return result

    def history(
        self, history: History, count: Callable[[str], int], newest: CompactionRow | None
    ) -> NodeHistory:
        """The history with the nodes in it; those of the newest compaction stand in the view."""
        pieces = newest.compaction.pieces if newest is not None else ()
        texts = [piece.summary.text for piece in pieces if isinstance(piece, Handoff)]
        told = [node for text in texts for node in parse_outline(text)]
        shown = [handle for node in told for handle in node.handles]
        return NodeHistory(history, self._tree, count, shown=shown, told=told)
