"""The engine `lossless`: handoffs are outlines of a tree, and every node of it can be opened.

Nodes are kept, so that none is written twice. An outline is made without a model first: it says which nodes are new, and
it is the result if a model fails. Then a model writes notes on each new node by itself, so that they can be kept and used
again; they are checked against the conversation, as the prose of a handoff is.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from penstock._log import log
from penstock.conversation.handles import HandleKind, numbers_in, parse_handle
from penstock.engine.attempt import WritingJob
from penstock.engine.compress import begin, deliver
from penstock.engine.compressor import ContextCompressor
from penstock.engine.recollection import Recollection
from penstock.engine.summariser import SummaryLimits, Written
from penstock.engine.threads import gather_all, in_thread
from penstock.errors import UnknownHandle, UnknownSession
from penstock.lossless.outline import NodeTexts, children_of, header_of_node, spot_of
from penstock.lossless.tree import NodeHistory, NodeTree, nodes_in_view
from penstock.lossless.writer import OutlineWriter, nodes_of
from penstock.planning.policy import refuse_model
from penstock.planning.receipt import ALL_STRUCK, DEGRADED
from penstock.recall.semantic import embedder_for
from penstock.sessions.history import SessionHistory
from penstock.stores.shelf import MemoryShelf, open_shelf
from penstock.writing.verify import check_prose
from penstock.writing.work import Work, WorkMaker, WorkScope, WorkTurn, source_of
from penstock.writing.writer import PROSE_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.engine.compress import Compressed, CompressRequest, FirstPass
    from penstock.engine.contract import CompactionWish
    from penstock.engine.summariser import Summariser
    from penstock.errors import StoreError
    from penstock.lossless.outline import Node
    from penstock.planning.plan import Plan
    from penstock.recall.history import History
    from penstock.stores.shelf import Shelf
    from penstock.stores.store import Store
    from penstock.stores.values import CompactionRow
    from penstock.writing.handoff import HandoffEntry
    from penstock.writing.notebook import Notebook
    from penstock.writing.verify import KnownSource

__all__ = ["LosslessEngine", "SessionNodes"]

_LEAST_NOTES = 40  # tokens: shorter notes are not worth a request
_AT_ONCE = 3


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
        """Returns what a status line shows, with the numbers of nodes and of levels in the outline."""
        handles = [handle for node in self._shown for handle in node.handles]
        levels = 1 + max((spot_of(handle).level for handle in handles), default=-1)
        return {**super().get_status(), "nodes": len(handles), "levels": levels}

    def on_session_start(self, session_id: str, **context: Any) -> None:
        """Starts or resumes a session; if the store knows it, its nodes are kept and found there."""
        super().on_session_start(session_id, **context)
        self._bind(session_id)

    def on_session_switch(self, old_id: str, new_id: str, reason: str) -> None:
        """Goes on under another id: a branch keeps its nodes for itself."""
        super().on_session_switch(old_id, new_id, reason)
        self._bind(new_id)

    def on_session_reset(self) -> None:
        """Forgets the conversation and its nodes; those in a store stay there."""
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
        return _use_tree(super()._request(focus, target), self._tree)

    def _describe(self, wish: CompactionWish) -> None:
        """Always None: only this engine has its tree."""

    def _extractive(self, messages: Sequence[Any], request: CompressRequest) -> Compressed:
        return self._take_note(_compress_with_tree(messages, request, self._notebook, self._tree))

    async def _write_with_model(
        self, messages: Sequence[Any], request: CompressRequest, summariser: Summariser
    ) -> Compressed:
        result = await _summarise_with_tree(messages, request, self._notebook, self._tree, summariser)
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

    It is read whichever engine compacts the session now: a handle that once stood in a view can always be opened.
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
        """Compacts the list; the handoff is an outline, and its nodes are kept."""
        if summariser is None:
            return await in_thread(_compress_with_tree, wires, request, notebook, self._tree)
        return await _summarise_with_tree(wires, request, notebook, self._tree, summariser)

    def history(
        self, history: History, count: Callable[[str], int], newest: CompactionRow | None
    ) -> NodeHistory:
        """Returns the history with the nodes in it; those of the newest compaction stand in the view."""
        shown = nodes_in_view(newest.compaction.pieces if newest is not None else ())
        return NodeHistory(history, self._tree, count, shown=shown)


def _use_tree(
    request: CompressRequest,
    tree: NodeTree,
    notes: Mapping[str, Sequence[HandoffEntry]] | None = None,
    notes_tokens: int = 0,
) -> CompressRequest:
    """Returns the request with the tree's writer, which takes over the texts that the tree has."""
    known = NodeTexts(tree.text, notes or {}, notes_tokens)
    return msgspec.structs.replace(request, make_writer=partial(OutlineWriter, known=known))


def _compress_with_tree(
    messages: Sequence[Any], request: CompressRequest, notebook: Notebook, tree: NodeTree
) -> Compressed:
    """Compacts the list without a model, and keeps the nodes of its outline in the tree."""
    result = deliver(begin(messages, _use_tree(request, tree), notebook))
    tree.keep(nodes_of(result.plan))
    return result


async def _summarise_with_tree(
    messages: Sequence[Any],
    request: CompressRequest,
    notebook: Notebook,
    tree: NodeTree,
    summariser: Summariser,
) -> Compressed:
    """As `_compress_with_tree`, with a model's notes in the new nodes, if it gives any."""
    first = await in_thread(begin, messages, _use_tree(request, tree), notebook)
    result = await _write_notes(first, request, summariser, tree)
    tree.keep(nodes_of(result.plan))
    return result


async def _write_notes(
    first: FirstPass, request: CompressRequest, summariser: Summariser, tree: NodeTree
) -> Compressed:
    plan = first.result.plan
    fresh = [node for node in nodes_of(plan) if node.fresh]
    if plan is None or not fresh:
        return deliver(first)
    if said := refuse_model(request.trigger, request.settings.compression, len(first.opened.came)):
        return deliver(first, reason=said)
    count = first.notebook.tokenizer.count_many([node.text for node in fresh])
    tokens = int(PROSE_SHARE * sum(count) / len(fresh))
    if tokens < _LEAST_NOTES:
        said = f"nodes of about {sum(count) // len(fresh):,} tokens have no room for a model's words"
        return deliver(first, reason=said)
    desk = _Desk(first, request, plan, tree)
    written = await desk.ask(fresh, tokens, summariser)
    if not desk.notes:
        joined = _join(written)
        reason = joined.reason if joined.prose is None else ALL_STRUCK
        return deliver(first, written=joined, outcome=DEGRADED, reason=reason)
    order = _use_tree(request, tree, desk.notes, tokens).order(first.notebook)
    result = await in_thread(first.compact, order)
    missing = len([node for node in fresh if node.key not in desk.notes])
    changes: dict[str, Any] = {"facts_struck": result.receipt.facts_struck + desk.struck}
    if missing:
        changes["reason"] = f"{missing} of {len(fresh)} new nodes have excerpts alone: no model wrote on them"
    return deliver(first, result, _join(written) if written else None, **changes)


class _Desk:
    """Gathers the notes on the nodes of one plan."""

    def __init__(self, first: FirstPass, request: CompressRequest, plan: Plan, tree: NodeTree) -> None:
        self._first = first
        self._request = request
        self._plan = plan
        self._tree = tree
        self._by_handles: Mapping[tuple[int, ...], Node] = {node.handles: node for node in nodes_of(plan)}
        self.notes: dict[str, Sequence[HandoffEntry]] = {}
        self.struck = 0
        # Several nodes are written on at once, and lines for them are chosen in threads: one at a time, since all of these
        # read and count in the same notebook.
        self._choosing = threading.Lock()

    async def ask(self, nodes: Sequence[Node], tokens: int, summariser: Summariser) -> list[Written]:
        """Asks for notes on each node that has none on the shelf, and keeps them at once."""
        open_nodes = []
        for node in nodes:
            known = self._tree.notes(node.key)
            if known is None:
                open_nodes.append(node)
            else:
                self.notes[node.key] = known
        open_nodes = open_nodes[-summariser.limits.requests :]  # each takes one at least: the newest first
        if not open_nodes:
            return []
        opened, redactor = self._first.opened, self._first.notebook.redactor
        source = await in_thread(source_of, opened.transcript, redactor)
        limits = _share(summariser.limits, len(open_nodes))
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(node: Node) -> Written:
            async with gate:
                written = await summariser.write(self._make_job(node, tokens), None, limits)
            self._take(node, written, source)
            return written

        return await gather_all(map(one, open_nodes))

    def _take(self, node: Node, written: Written, source: KnownSource) -> None:
        if written.prose is None:
            return
        checked = check_prose(written.prose, source, self._first.notebook.redactor)
        self.struck += checked.struck
        if checked.entries:
            self.notes[node.key] = checked.entries
            self._tree.keep_notes(node.key, checked.entries)

    def _make_job(self, node: Node, tokens: int) -> WritingJob:
        """Returns the job for one node: notes on its messages, or on the texts of its children where those are gone.

        Nothing else of the conversation is in it, so that the same messages always make the same request.
        """
        transcript, book = self._first.opened.transcript, self._first.notebook
        numbers = frozenset(numbers_in(node.runs))
        plan, known, focus = self._plan, self._by_handles, self._request.focus or ""
        scope = WorkScope(plan.kept_for.request, plan.kept_verbatim, focus)
        maker = WorkMaker(transcript, scope, book.tokenizer, book.redactor, numbers)
        turns = maker.make(tokens).turns
        below = [known[(child,)] for child in children_of(node.handles[0]) if (child,) in known]
        texts = [f"{header_of_node(child)}\n{child.text}" for child in below if child.text]
        counts = book.tokenizer.count_many(texts)
        told = tuple(
            WorkTurn(child.runs[0][0], text, count)
            for child, text, count in zip([one for one in below if one.text], texts, counts, strict=True)
        )
        work = Work(
            turns=(*told, *turns),
            previous="",
            request="",
            asked=(),
            focus=focus,
            prose_tokens=tokens,
        )

        def trim(whole: Work, room: int) -> Work:
            with self._choosing:
                smaller = self._first.trim(maker, whole, max(0, room - sum(counts)))
            return msgspec.structs.replace(whole, turns=(*told, *smaller.turns))

        return WritingJob(work, trim, memory=self._request.memory)


def _share(limits: SummaryLimits, nodes: int) -> SummaryLimits:
    """Returns the part of a compaction's limits that each of this many nodes may use."""
    return SummaryLimits(
        requests=limits.requests // nodes,
        prompt_tokens=max(1, limits.prompt_tokens // nodes),
        seconds=limits.seconds,
    )


def _join(written: Sequence[Written]) -> Written:
    """Returns everything as one, for the receipt; the last is one that succeeded, since it names the model."""
    ordered = sorted(written, key=lambda one: one.prose is not None)
    attempts = tuple(attempt for one in ordered for attempt in one.attempts)
    return Written(ordered[-1].prose, attempts, ordered[-1].limits)
