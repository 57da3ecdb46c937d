"""Summaries by a model, row by row: each within its time, and none lost where the model fails."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.message import Image, Opaque, Reasoning, Role, Summary, Text, ToolCall, ToolResult
from penstock.conversation.pairing import calls_by_id
from penstock.engine.attempt import WritingJob
from penstock.engine.summariser import Summariser, SummaryLimits, Written, summariser_of
from penstock.measure.prices import Money
from penstock.trajectories.compress import CompressedTrajectory, Compressor
from penstock.trajectories.kept import KeptSummary
from penstock.trajectories.metrics import TrajectoryOutcome
from penstock.trajectories.needs import texts_of
from penstock.trajectories.summary import PROSE_SHARE
from penstock.writing.handoff import header_of
from penstock.writing.stubs import clip
from penstock.writing.verify import KnownSource, check_prose
from penstock.writing.vocabulary import Vocabulary
from penstock.writing.work import Work, WorkTurn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.conversation.message import Message, Part
    from penstock.providers.exchange import Model
    from penstock.trajectories.compress import TrajectoryDraft
    from penstock.trajectories.kept import KeptSummaries
    from penstock.writing.prose import Prose
    from penstock.writing.verify import Checked

__all__ = ["ModelSummaries"]

_GRACE_SECONDS = 1.0  # until a row is given up whose model does not even end in its own time
_ASKED_WORDS = 80
_REQUEST_TOKENS = 400
_ALL_STRUCK = "all that the model wrote was struck; excerpts and facts stand in its place"


class ModelSummaries:
    """Has a model write summaries. `summariser` gives one for each row, so that no row rests for another's failure."""

    def __init__(self, summariser: Callable[[], Summariser], timeout_seconds: float) -> None:
        self._summariser = summariser
        self._timeout_seconds = timeout_seconds

    @classmethod
    def of(cls, given: Any, timeout_seconds: float) -> ModelSummaries:
        """From what callers may pass: a summariser, a model, or a function from a prompt to a text."""
        whole = summariser_of(given)
        if isinstance(given, Summariser):
            return cls(lambda: whole, timeout_seconds)
        return cls.of_model(whole.model, None, timeout_seconds)

    @classmethod
    def of_model(cls, model: Model, window_tokens: int | None, timeout_seconds: float) -> ModelSummaries:
        """From a model and its window, where that is not the known one."""
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
        """The compressed trajectory. Where there is no summary to be had, it is made of excerpts and marked.

        Raises InputError for what is no trajectory. What was `kept` for the row is not asked for again.
        """
        started = time.perf_counter()
        planned = compressor.plan(turns)
        if isinstance(planned, CompressedTrajectory):
            return _timed(planned, started)
        known = kept.get(row) if kept is not None else None
        if known is None:
            known = await self._asked(planned, row)
            if kept is not None:
                kept.put(known)
        return _timed(_finished(planned, known), started)

    async def _asked(self, draft: TrajectoryDraft, row: int) -> KeptSummary:
        prose_tokens = int(draft.budget * PROSE_SHARE)
        job = WritingJob(_work(draft, prose_tokens), lambda work, room: _trimmed(draft, work, room))
        limit = self._timeout_seconds + _GRACE_SECONDS
        try:
            async with asyncio.timeout(limit):
                written = await self._summariser().write(job)
        except TimeoutError:
            reason = f"the model took longer than {self._timeout_seconds:g} s; excerpts stand in its place"
            return KeptSummary(row, None, {"reason": reason, "cost": None})
        return KeptSummary(row, written.prose, _figures(written))


def _finished(draft: TrajectoryDraft, known: KeptSummary) -> CompressedTrajectory:
    figures = dict(known.figures)
    checked = _checked(draft, known.prose) if known.prose is not None else None
    if checked is not None and checked.entries:
        return draft.finish(checked, **figures)
    figures.setdefault("reason", _ALL_STRUCK)
    return draft.finish(None, **{**figures, "outcome": TrajectoryOutcome.DEGRADED, "model": ""})


def _checked(draft: TrajectoryDraft, prose: Prose) -> Checked:
    """What the model wrote, held to all that gave way and to what stays."""
    messages, redactor = draft.messages, draft.redactor
    texts = [text for message in messages for text in texts_of(message)]
    names = {
        part.name
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall) and part.name
    }
    secrets = frozenset(text[one.start : one.end] for text in texts for one in redactor.find(text))
    source = KnownSource(
        known=Vocabulary(),
        texts=(*texts, "\n".join(sorted(names))),
        numbers=range(1, len(messages) + 1),
        secrets=secrets,
    )
    return check_prose(prose, source, redactor)


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


def _work(draft: TrajectoryDraft, prose_tokens: int) -> Work:
    """What the model is given to read: every turn that gives way, whole and without secrets."""
    writer, redactor = draft.writer, draft.redactor
    calls = calls_by_id(writer.spoken)
    texts = [
        "\n".join(_shown(message, number, calls, redactor.redact))
        for message, number in zip(writer.spoken, writer.numbers, strict=True)
    ]
    counts = draft.tokenizer.count_many(texts)
    turns = [
        WorkTurn(number, text, tokens + 2)
        for number, text, tokens in zip(writer.numbers, texts, counts, strict=True)
    ]
    previous = [part.text for one in writer.spoken for part in one.parts if isinstance(part, Summary)]
    asked = [
        (number, redactor.redact(" ".join(text.split()))[:_ASKED_WORDS])
        for message, number in zip(writer.spoken, writer.numbers, strict=True)
        if message.role is Role.USER and number and (text := "\n".join(texts_of(message)))
    ]
    return Work(
        turns=tuple(turn for turn in turns if turn.text),
        previous=redactor.redact("\n\n".join(previous)),
        request=_live_request(draft),
        asked=tuple(asked[-40:]),
        focus="",
        prose_tokens=prose_tokens,
    )


def _live_request(draft: TrajectoryDraft) -> str:
    """What the turns right after the summary were about, where it stays: the last request before them."""
    places = [place for place in range(draft.span.end) if draft.messages[place].role is Role.USER]
    if not places:
        return ""
    text = draft.redactor.redact("\n".join(texts_of(draft.messages[places[-1]])))
    return clip(text, _REQUEST_TOKENS, draft.tokenizer.count, f"m{places[-1] + 1}")


def _shown(
    message: Message, number: int, calls: dict[str, ToolCall], redact: Callable[[str], str]
) -> Iterator[str]:
    for part in message.parts:
        label, text = _said(message, part, calls)
        if text.strip():
            yield f"{header_of(number, label)}\n{redact(text)}"


def _said(message: Message, part: Part, calls: dict[str, ToolCall]) -> tuple[str, str]:
    """Who or what speaks in a part, and what it says."""
    match part:
        case Text(text=text):
            return message.role.value, text
        case Reasoning(text=text):
            return "assistant, thinking", text
        case ToolCall(name=name, arguments=arguments):
            return f"call of {name}", arguments
        case ToolResult(call_id=call_id, text=text):
            call = calls.get(call_id)
            return f"result of {call.name if call else 'a tool'}", text
        case Image():
            return message.role.value, "(an image)"
        case Opaque(kind=kind, text=text):
            return kind, text
        case Summary():
            return "handoff", ""


def _trimmed(draft: TrajectoryDraft, work: Work, room_tokens: int) -> Work:
    """The work within a room that is too small for it: every turn gives way by the same share."""
    share = room_tokens / max(1, work.tokens)
    turns: list[WorkTurn] = []
    for turn in work.turns:
        text = clip(
            turn.text, max(40, int(turn.tokens * share * 0.9)), draft.tokenizer.count, f"m{turn.number}"
        )
        turns.append(WorkTurn(turn.number, text, draft.tokenizer.count(text) + 2))
    while turns and sum(turn.tokens for turn in turns) > room_tokens:
        turns.pop(0)
    return msgspec.structs.replace(work, turns=tuple(turns))


def _timed(done: CompressedTrajectory, started: float) -> CompressedTrajectory:
    seconds = round(time.perf_counter() - started, 6)
    return msgspec.structs.replace(done, metrics=msgspec.structs.replace(done.metrics, seconds=seconds))
