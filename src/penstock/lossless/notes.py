"""Notes on the nodes of an outline by a model: each node's by itself, so that they can be kept and used again.

The outline without a model is made first. It says which nodes are new, and it is what stands where a model fails. What
a model writes is checked against the conversation, as the prose of a handoff is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.handles import numbers_in
from penstock.engine.attempt import WritingJob
from penstock.engine.compress import compacted, finished, noted, wishes_of
from penstock.engine.summariser import SummaryLimits, Written
from penstock.engine.threads import in_thread
from penstock.lossless.outline import NodeTexts, header_of_node
from penstock.lossless.segments import children_of
from penstock.planning.receipt import ALL_STRUCK, DEGRADED
from penstock.writing.sections import PROSE_SHARE
from penstock.writing.verify import check_prose
from penstock.writing.work import Work, WorkMaker, WorkTurn, source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.engine.compress import Begun, CompressRequest
    from penstock.engine.compressed import Compressed
    from penstock.engine.summariser import Summariser
    from penstock.lossless.outline import Node
    from penstock.lossless.tree import NodeTree
    from penstock.planning.plan import Plan
    from penstock.writing.handoff import HandoffEntry
    from penstock.writing.verify import KnownSource

__all__ = ["with_notes"]

_LEAST_NOTES = 40  # tokens: shorter notes are not worth a request
_AT_ONCE = 3


async def with_notes(
    begun: Begun,
    request: CompressRequest,
    summariser: Summariser,
    tree: NodeTree,
    on_step: Callable[[str], None] | None = None,
) -> Compressed:
    """The compaction with a model's notes in its new nodes, or the one without where there are none to be had."""
    plan = begun.result.plan
    fresh = [node for node in plan.nodes if node.fresh] if plan is not None else []
    if plan is None or not fresh:
        return finished(begun)
    count = begun.book.tokenizer.count_many([node.text for node in fresh])
    tokens = int(PROSE_SHARE * sum(count) / len(fresh))
    if tokens < _LEAST_NOTES:
        said = f"nodes of about {sum(count) // len(fresh):,} tokens have no room for a model's words"
        return finished(noted(begun, begun.result, reason=said))
    desk = _Desk(begun, request, plan, tree)
    written = await desk.ask(fresh, tokens, summariser, on_step)
    if not desk.notes:
        told = _told(written)
        reason = told.reason if told.prose is None else ALL_STRUCK
        return finished(noted(begun, begun.result, told, outcome=DEGRADED, reason=reason))
    again = msgspec.structs.replace(request, nodes=NodeTexts(tree.text, desk.notes, tokens))
    result = await in_thread(compacted, begun.opened, again, begun.book)
    missing = len([node for node in fresh if node.key not in desk.notes])
    changes: dict[str, Any] = {"facts_struck": result.receipt.facts_struck + desk.struck}
    if missing:
        changes["reason"] = f"{missing} of {len(fresh)} new nodes have excerpts alone: no model wrote on them"
    return finished(noted(begun, result, _told(written) if written else None, **changes))


class _Desk:
    """Where the notes on the nodes of one plan are gathered."""

    def __init__(self, begun: Begun, request: CompressRequest, plan: Plan, tree: NodeTree) -> None:
        self._begun = begun
        self._request = request
        self._plan = plan
        self._tree = tree
        self._told: Mapping[tuple[int, ...], Node] = {node.handles: node for node in plan.nodes}
        self.notes: dict[str, Sequence[HandoffEntry]] = {}
        self.struck = 0

    async def ask(
        self,
        nodes: Sequence[Node],
        tokens: int,
        summariser: Summariser,
        on_step: Callable[[str], None] | None,
    ) -> list[Written]:
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
        source = await in_thread(source_of, self._begun.opened.transcript, self._begun.book.redactor)
        limits = _share(summariser.limits, len(open_nodes))
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(node: Node) -> Written:
            async with gate:
                written = await summariser.write(self._job(node, tokens), on_step, limits)
            self._take(node, written, source)
            return written

        return list(await asyncio.gather(*map(one, open_nodes)))

    def _take(self, node: Node, written: Written, source: KnownSource) -> None:
        if written.prose is None:
            return
        checked = check_prose(written.prose, source, self._begun.book.redactor)
        self.struck += checked.struck
        if checked.entries:
            self.notes[node.key] = checked.entries
            self._tree.keep_notes(node.key, checked.entries)

    def _job(self, node: Node, tokens: int) -> WritingJob:
        """What is asked for one node: notes on its messages, or on the texts of its children where those are gone.

        Nothing else of the conversation is in it, so that the same messages always make the same request.
        """
        transcript, book = self._begun.opened.transcript, self._begun.book
        numbers = frozenset(numbers_in(node.runs))
        maker = WorkMaker.of_plan(
            transcript, self._plan, wishes_of(self._request), book.tokenizer, book.redactor, numbers
        )
        turns = maker.work(tokens).turns
        below = [self._told[(child,)] for child in children_of(node.handles[0]) if (child,) in self._told]
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
            focus=self._request.focus or "",
            prose_tokens=tokens,
        )

        def trimmed(whole: Work, room: int) -> Work:
            smaller = maker.trimmed(whole, max(0, room - sum(counts)))
            return msgspec.structs.replace(whole, turns=(*told, *smaller.turns))

        return WritingJob(work, trimmed, memory=self._request.memory)


def _share(limits: SummaryLimits, nodes: int) -> SummaryLimits:
    """What each of so many nodes may use of what a compaction may."""
    return SummaryLimits(
        requests=limits.requests // nodes,
        prompt_tokens=max(1, limits.prompt_tokens // nodes),
        seconds=limits.seconds,
    )


def _told(written: Sequence[Written]) -> Written:
    """All of it as one, for the receipt; what succeeded comes last, since it names the model."""
    ordered = sorted(written, key=lambda one: one.prose is not None)
    attempts = tuple(attempt for one in ordered for attempt in one.attempts)
    return Written(ordered[-1].prose, attempts, ordered[-1].limits)
