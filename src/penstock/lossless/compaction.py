"""Compacting with the tree: the handoff is an outline, and its nodes are kept so that none is written twice.

`compress_with_tree` needs no model. `summarise_with_tree` makes the same outline first: it says which nodes
are new, and it stands where a model fails. Then a model writes notes on each new node by itself, so that they
can be kept and used again; they are checked against the conversation, as the prose of a handoff is.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.handles import numbers_in
from penstock.engine.attempt import WritingJob
from penstock.engine.compress import begin, deliver
from penstock.engine.summariser import SummaryLimits, Written
from penstock.engine.threads import in_thread
from penstock.lossless.outline import NodeTexts, children_of, header_of_node
from penstock.lossless.writer import OutlineWriter, nodes_of
from penstock.planning.compact import compact
from penstock.planning.policy import refuse_model
from penstock.planning.receipt import ALL_STRUCK, DEGRADED
from penstock.writing.verify import check_prose
from penstock.writing.work import Work, WorkMaker, WorkScope, WorkTurn, source_of
from penstock.writing.writer import PROSE_SHARE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.engine.compress import Compressed, CompressRequest, FirstPass
    from penstock.engine.summariser import Summariser
    from penstock.lossless.outline import Node
    from penstock.lossless.tree import NodeTree
    from penstock.planning.plan import Plan
    from penstock.writing.handoff import HandoffEntry
    from penstock.writing.notebook import Notebook
    from penstock.writing.verify import KnownSource

__all__ = ["compress_with_tree", "summarise_with_tree", "use_tree"]

_LEAST_NOTES = 40  # tokens: shorter notes are not worth a request
_AT_ONCE = 3


def use_tree(
    request: CompressRequest,
    tree: NodeTree,
    notes: Mapping[str, Sequence[HandoffEntry]] | None = None,
    notes_tokens: int = 0,
) -> CompressRequest:
    """Returns the request with the tree's writer, which takes over the texts that the tree has."""
    known = NodeTexts(tree.text, notes or {}, notes_tokens)
    return msgspec.structs.replace(request, make_writer=partial(OutlineWriter, known=known))


def compress_with_tree(
    messages: Sequence[Any], request: CompressRequest, notebook: Notebook, tree: NodeTree
) -> Compressed:
    """Compact the list without a model, and keep the nodes of its outline in the tree."""
    result = deliver(begin(messages, use_tree(request, tree), notebook))
    tree.keep(nodes_of(result.plan))
    return result


async def summarise_with_tree(
    messages: Sequence[Any],
    request: CompressRequest,
    notebook: Notebook,
    tree: NodeTree,
    summariser: Summariser,
) -> Compressed:
    """As `compress_with_tree`, with a model's notes in the new nodes, if it gives any."""
    first = await in_thread(begin, messages, use_tree(request, tree), notebook)
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
    order = use_tree(request, tree, desk.notes, tokens).order(first.notebook)
    result = await in_thread(compact, first.opened, order)
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

    async def ask(self, nodes: Sequence[Node], tokens: int, summariser: Summariser) -> list[Written]:
        """Ask for notes on each node that has none on the shelf. What was written is kept at once."""
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

        return list(await asyncio.gather(*map(one, open_nodes)))

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
        scope = WorkScope(plan.standing.request, plan.kept_verbatim, focus)
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
            smaller = maker.trim(whole, max(0, room - sum(counts)))
            return msgspec.structs.replace(whole, turns=(*told, *smaller.turns))

        return WritingJob(work, trim, memory=self._request.memory)


def _share(limits: SummaryLimits, nodes: int) -> SummaryLimits:
    """Returns the part of a compaction's limits that each of so many nodes may use."""
    return SummaryLimits(
        requests=limits.requests // nodes,
        prompt_tokens=max(1, limits.prompt_tokens // nodes),
        seconds=limits.seconds,
    )


def _join(written: Sequence[Written]) -> Written:
    """Returns all of it as one, for the receipt; what succeeded comes last, since it names the model."""
    ordered = sorted(written, key=lambda one: one.prose is not None)
    attempts = tuple(attempt for one in ordered for attempt in one.attempts)
    return Written(ordered[-1].prose, attempts, ordered[-1].limits)
