"""Summaries by a model, row by row: each within its time, and none lost if the model fails."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.engine.attempt import WritingJob
from penstock.engine.summariser import Summariser, SummaryLimits, Written, summariser_of
from penstock.measure.prices import Money
from penstock.planning.receipt import ALL_STRUCK
from penstock.trajectories.compress import CompressedTrajectory, Compressor
from penstock.trajectories.metrics import TrajectoryOutcome
from penstock.trajectories.shards import KeptSummary
from penstock.trajectories.summary import PROSE_SHARE
from penstock.writing.verify import check_prose
from penstock.writing.work import WorkMaker, WorkScope, source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.providers.exchange import Model
    from penstock.trajectories.compress import TrajectoryDraft
    from penstock.trajectories.shards import KeptSummaries
    from penstock.writing.prose import Prose
    from penstock.writing.verify import Checked

__all__ = ["ModelSummaries"]

_GRACE_SECONDS = 1.0  # until a row is given up whose model does not even end in its own time


class ModelSummaries:
    """Has a model write summaries. `summariser` gives one for each row, so that no row rests for another's failure."""

    def __init__(self, summariser: Callable[[], Summariser], timeout_seconds: float) -> None:
        self._summariser = summariser
        self._timeout_seconds = timeout_seconds

    @classmethod
    def of(cls, given: Any, timeout_seconds: float) -> ModelSummaries:
        """Returns them for what callers may pass: a summariser, a model, or a function from a prompt to a text."""
        whole = summariser_of(given)
        if isinstance(given, Summariser):
            return cls(lambda: whole, timeout_seconds)
        return cls.of_model(whole.model, None, timeout_seconds)

    @classmethod
    def of_model(cls, model: Model, window_tokens: int | None, timeout_seconds: float) -> ModelSummaries:
        """Returns them for a model and its window, if that is not the known one."""
        limits = SummaryLimits(seconds=timeout_seconds)

        def fresh() -> Summariser:
            return Summariser(
                model, window_tokens=window_tokens, timeout_seconds=timeout_seconds, limits=limits
            )

        return cls(fresh, timeout_seconds)

    async def compress(
        self,
        compressor: Compressor,
        turns: Sequence[Any],
        row: int = 0,
        kept: KeptSummaries | None = None,
    ) -> CompressedTrajectory:
        """Returns the compressed trajectory. If no summary can be had, it is made of excerpts and marked.

        Raises InputError for anything but a trajectory. A model is not asked again for summaries in `kept`.
        """
        started = time.perf_counter()
        planned = compressor.plan(turns)
        if isinstance(planned, CompressedTrajectory):
            return _with_seconds(planned, started)
        known = kept.get(row) if kept is not None else None
        if known is None:
            known = await self._ask(planned, row)
            if kept is not None:
                kept.put(known)
        return _with_seconds(_finish(planned, known), started)

    async def _ask(self, draft: TrajectoryDraft, row: int) -> KeptSummary:
        writer = draft.writer
        kept = set(range(len(writer.transcript.messages))).difference(writer.gone)
        scope = WorkScope(writer.request, kept)
        maker = WorkMaker(writer.transcript, scope, draft.tokenizer, draft.redactor)
        job = WritingJob(maker.make(int(draft.budget * PROSE_SHARE)), maker.trim)
        limit = self._timeout_seconds + _GRACE_SECONDS
        try:
            async with asyncio.timeout(limit):
                written = await self._summariser().write(job)
        except TimeoutError:
            reason = (
                f"the model took longer than {self._timeout_seconds:g} s; the summary has excerpts instead"
            )
            return KeptSummary(row, None, {"reason": reason, "cost": None})
        return KeptSummary(row, written.prose, _figures(written))


def _finish(draft: TrajectoryDraft, known: KeptSummary) -> CompressedTrajectory:
    figures = dict(known.figures)
    checked = _check(draft, known.prose) if known.prose is not None else None
    if checked is not None and checked.entries:
        return draft.finish(checked, **figures)
    figures.setdefault("reason", ALL_STRUCK)
    return draft.finish(None, **{**figures, "outcome": TrajectoryOutcome.DEGRADED, "model": ""})


def _check(draft: TrajectoryDraft, prose: Prose) -> Checked:
    """Returns what the model wrote, without anything that no turn says."""
    return check_prose(prose, source_of(draft.writer.transcript, draft.redactor), draft.redactor)


def _figures(written: Written) -> dict[str, Any]:
    usage, cost = written.usage, written.cost
    figures: dict[str, Any] = {
        "model": written.model,
        "model_calls": written.requests,
        "model_prompt_tokens": usage.prompt_tokens,
        "model_output_tokens": usage.output_tokens,
        "cost": float(cost.usd) if isinstance(cost, Money) else (0.0 if cost is None else None),
    }
    return figures if written.prose is not None else {**figures, "reason": written.reason}


def _with_seconds(done: CompressedTrajectory, started: float) -> CompressedTrajectory:
    seconds = round(time.perf_counter() - started, 6)
    return msgspec.structs.replace(done, metrics=msgspec.structs.replace(done.metrics, seconds=seconds))
