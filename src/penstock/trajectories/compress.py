"""One trajectory: plans which turns give way, has their summary written, and puts it in their place.

    turns, metrics = penstock.compress_trajectory(row["conversations"], target_tokens=15_250)

From the start of the middle, as many turns as needed give way, between legal cuts. The first system, human, gpt
and tool turn and the last turns stay, each with the turns it may not be separated from. One of them that stands among
the turns that give way is an island: it stays after the summary, in its order. Turns that stay are the caller's own
objects, including fields that we do not know.
"""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from penstock.config import redactor_of_process
from penstock.conversation.dialects import decode_all
from penstock.conversation.message import Role, Text
from penstock.conversation.rules import Pairs, legal_cuts
from penstock.conversation.wire import to_plain
from penstock.engine.threads import run_sync
from penstock.errors import IllegalResult
from penstock.trajectories.metrics import TrajectoryMetrics, TrajectoryOutcome
from penstock.trajectories.options import MODEL_TIMEOUT_SECONDS, TrajectoryOptions, tokenizer_of
from penstock.trajectories.summary import SummaryWriter
from penstock.trajectories.turns import format_of, shorten_turns, training_fields, turn_tokens, weigh_turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.conversation.dialects import Dialect
    from penstock.conversation.message import Message
    from penstock.measure.tokens import Tokenizer
    from penstock.writing.verify import Checked

__all__ = [
    "CompressedTrajectory",
    "Compressor",
    "Span",
    "Trajectory",
    "TrajectoryDraft",
    "acompress_trajectory",
    "compress_trajectories",
    "compress_trajectory",
]


_LEAST_SUMMARY = 64  # tokens: less says nothing
_TRIES = 4  # to shorten what must stay: a shorter turn may leave another span to give way
_Row = TypeVar("_Row", bound="Mapping[str, Any]")


class CompressedTrajectory(msgspec.Struct, frozen=True, eq=False):
    """The result of one trajectory: the turns before the summary, the summary turn, and those behind it.

    `start` and `end` are the places between which turns gave way and `islands` those between them that stayed; all
    are empty if nothing changed. `system` is the new system turn and its place, if it was to get a note.
    `shortened` are the turns that stay without their middle, by place.
    """

    metrics: TrajectoryMetrics
    start: int = 0
    end: int = 0
    islands: tuple[int, ...] = ()
    summary: dict[str, Any] | None = None
    system: tuple[int, dict[str, Any]] | None = None
    shortened: Mapping[int, dict[str, Any]] = {}

    @property
    def changed(self) -> bool:
        """True if a turn is not as it came."""
        return self.summary is not None or bool(self.shortened)

    @property
    def rewritten(self) -> dict[int, dict[str, Any]]:
        """The turns that stay, but not as they came, by place."""
        return {**self.shortened, **(dict([self.system]) if self.system is not None else {})}

    @property
    def tokens_after(self) -> int:
        """The tokens of the result."""
        return self.metrics.tokens_after

    def apply(self, items: Sequence[Any], summary: Any) -> list[Any]:
        """Returns `items`, one for each turn, with `summary` in place of those whose turns gave way."""
        if self.summary is None:
            return list(items)
        kept = [items[place] for place in self.islands]
        return [*items[: self.start], summary, *kept, *items[self.end :]]

    def turns(self, turns: Sequence[Any]) -> list[Any]:
        """Returns the turns of the compressed trajectory."""
        rewritten = self.rewritten
        return self.apply([rewritten.get(at, turn) for at, turn in enumerate(turns)], self.summary)


class Compressor:
    """Compresses trajectories by the same options. Holds nothing of a trajectory between two of them."""

    def __init__(self, options: TrajectoryOptions, tokenizer: Tokenizer | None = None) -> None:
        self.options = options
        self.tokenizer = tokenizer or tokenizer_of(options.tokenizer)
        self.redactor = redactor_of_process()

    def compress(self, turns: Sequence[Any]) -> CompressedTrajectory:
        """Returns the compressed trajectory, without a model. Raises InputError if `turns` is not a trajectory."""
        started = time.perf_counter()
        planned = self.plan(turns)
        done = planned if isinstance(planned, CompressedTrajectory) else planned.finish()
        seconds = round(time.perf_counter() - started, 6)
        return msgspec.structs.replace(done, metrics=msgspec.structs.replace(done.metrics, seconds=seconds))

    def plan(self, turns: Sequence[Any]) -> CompressedTrajectory | TrajectoryDraft:
        """Returns a draft of the compression, or the result if nothing has to be done. Raises InputError."""
        first = planned = self._plan(turns, {})
        if not self.options.shorten_protected:
            return first
        shortened: dict[int, dict[str, Any]] = {}
        for _ in range(_TRIES):
            excess = planned.tokens_after - self.options.target_tokens
            if excess <= 0:
                return planned
            gone = set(planned.span.gone) if isinstance(planned, TrajectoryDraft) else set()
            now = [shortened.get(at, turn) for at, turn in enumerate(turns)]
            dialect = format_of(now)
            more = shorten_turns(
                decode_all(dialect, now),
                weigh_turns(now, dialect, self.tokenizer),
                [at for at in range(len(now)) if at not in gone],
                excess,
                dialect,
                self.tokenizer,
            )
            if not more:
                break
            shortened |= more
            planned = self._plan(turns, shortened)
        return planned if isinstance(planned, TrajectoryDraft) or planned.shortened else first

    def _plan(
        self, given: Sequence[Any], shortened: Mapping[int, dict[str, Any]]
    ) -> CompressedTrajectory | TrajectoryDraft:
        options = self.options
        turns = [shortened.get(at, turn) for at, turn in enumerate(given)] if shortened else given
        dialect = format_of(turns)
        tokens = weigh_turns(turns, dialect, self.tokenizer)
        total = sum(tokens)
        before = sum(weigh_turns(given, dialect, self.tokenizer)) if shortened else total
        if total <= options.target_tokens:
            if not shortened:
                return CompressedTrajectory(
                    _report_unchanged(TrajectoryOutcome.UNDER_TARGET, total, len(turns))
                )
            found = _report_unchanged(TrajectoryOutcome.COMPRESSED, total, len(turns))
            return CompressedTrajectory(
                msgspec.structs.replace(found, tokens_before=before), shortened=shortened
            )
        messages = decode_all(dialect, turns)
        system = self._add_note(messages, tokens, dialect)
        total_after = total + (system[2] if system is not None else 0)
        legal = legal_cuts(messages, dialect.rules)
        needed = total_after - options.target_tokens + options.summary_tokens
        span: Span | None = None
        used = 0
        for used in range(1, options.passes + 1):
            keep_last = max(1, options.keep_last >> (used - 1))
            span = _find_span(messages, tokens, legal, dialect, (needed, keep_last))
            if span is not None and span.tokens >= needed:
                break
        budget = self._budget(span, total_after)
        if span is None or budget < _LEAST_SUMMARY:
            return CompressedTrajectory(
                _report_unchanged(TrajectoryOutcome.NOT_COMPRESSIBLE, total, len(turns), over=True)
            )
        trajectory = Trajectory(
            dialect, list(turns), messages, tokens, legal, system, before - total, shortened
        )
        return TrajectoryDraft(self, trajectory, span, budget, used)

    def _budget(self, span: Span | None, total: int) -> int:
        """Returns the tokens that the summary may take: fewer than asked for if the turns that stay leave less room."""
        if span is None:
            return 0
        room = self.options.target_tokens - (total - span.tokens)
        wished = min(self.options.summary_tokens, span.tokens // 2)
        return min(wished, room) if room >= _LEAST_SUMMARY else wished

    def _add_note(
        self, messages: Sequence[Message], tokens: Sequence[int], dialect: Dialect
    ) -> tuple[int, dict[str, Any], int] | None:
        """Returns the first system turn with the note in it, its place, and the tokens that the note adds."""
        note = self.options.note
        if not note:
            return None
        place = next((at for at, message in enumerate(messages) if message.role is Role.SYSTEM), None)
        if place is None or any(
            note in part.text for part in messages[place].parts if isinstance(part, Text)
        ):
            return None
        noted = dialect.append_text(messages[place], note)
        return place, noted, turn_tokens(noted, dialect, self.tokenizer) - tokens[place]


class Trajectory(NamedTuple):
    """The turns of a trajectory, read and weighed. `system` is the turn with a note: its place, itself, what it adds.

    `turns` has those of `shortened` as they are now, by `saved_tokens` smaller than they came.
    """

    dialect: Dialect
    turns: list[Any]
    messages: list[Message]
    tokens: list[int]
    legal: Sequence[int]
    system: tuple[int, dict[str, Any], int] | None
    saved_tokens: int = 0
    shortened: Mapping[int, dict[str, Any]] = {}


class TrajectoryDraft:
    """A trajectory that is too large, and what is to give way in it. `writer` writes the summary."""

    def __init__(
        self, compressor: Compressor, trajectory: Trajectory, span: Span, budget: int, used_passes: int
    ) -> None:
        self.messages = trajectory.messages
        self.span = span
        self.budget = budget
        self.tokenizer, self.redactor = compressor.tokenizer, compressor.redactor
        self.writer = SummaryWriter(trajectory, span, self.tokenizer, self.redactor)
        self._trajectory = trajectory
        self._target = compressor.options.target_tokens
        self._passes = used_passes

    @property
    def tokens_after(self) -> int:
        """The most tokens that the result takes: with a summary that fills its budget."""
        given = self._trajectory
        note = given.system[2] if given.system is not None else 0
        return sum(given.tokens) + note - self.span.tokens + self.budget

    def finish(self, prose: Checked | None = None, **changes: Any) -> CompressedTrajectory:
        """Returns the compressed trajectory. `changes` are fields of the metrics. Raises IllegalResult."""
        span, given = self.span, self._trajectory
        text = self.writer.write(self.budget, prose)
        fields = training_fields(given.turns, given.messages, given.dialect)
        summary = given.dialect.text_message(Role.USER, text) | fields
        taken = turn_tokens(summary, given.dialect, self.tokenizer)
        before = sum(given.tokens)
        after = before + (given.system[2] if given.system is not None else 0) - span.tokens + taken
        gone = len(self.writer.gone)
        figures: dict[str, Any] = {
            "outcome": TrajectoryOutcome.COMPRESSED,
            "tokens_before": before + given.saved_tokens,
            "tokens_after": after,
            "turns_before": len(given.turns),
            "turns_after": len(given.turns) - gone + 1,
            "turns_summarised": gone,
            "region_start": span.start,
            "region_end": span.end,
            "summary_tokens": taken,
            "still_over_limit": after > self._target,
            "passes": self._passes,
        }
        done = CompressedTrajectory(
            TrajectoryMetrics(**(figures | changes)),
            span.start,
            span.end,
            span.islands,
            summary,
            given.system[:2] if given.system is not None else None,
            given.shortened,
        )
        self._require_legal(done, summary)
        return done

    def _require_legal(self, done: CompressedTrajectory, summary: dict[str, Any]) -> None:
        """Raises IllegalResult if a call has lost its result, or a result its call, that had it before."""
        dialect = self._trajectory.dialect
        rule = Pairs(dialect.pairing)
        broken = len(rule.violations(done.apply(self.messages, dialect.decode(summary))))
        if broken and broken > len(rule.violations(self.messages)):
            raise IllegalResult(f"the compressed trajectory breaks a rule of {dialect.name}: pairs")


class Span(msgspec.Struct, frozen=True):
    """The turns from `start` up to `end`, except the islands. `tokens` is their size."""

    start: int
    end: int
    islands: tuple[int, ...]
    tokens: int

    @property
    def gone(self) -> list[int]:
        """The places of the turns that give way, in order."""
        islands = set(self.islands)
        return [place for place in range(self.start, self.end) if place not in islands]

    def places_after(self, length: int) -> list[int]:
        """Returns the places of the turns that stand behind the summary."""
        return [*self.islands, *range(self.end, length)]


def _find_span(
    messages: Sequence[Message],
    tokens: Sequence[int],
    legal: Sequence[int],
    dialect: Dialect,
    wanted: tuple[int, int],
) -> Span | None:
    """Returns the span that frees the tokens needed, or as many as it can; None if nothing may give way.

    `wanted` are the tokens that must be freed and how many turns stay at the end. A summary is a human turn: in a
    trajectory without two human turns in a row it never stands beside another one, nor does it bring two together.
    """
    needed, keep_last = wanted
    segments = list(pairwise(legal))
    stays = _find_protected(messages, keep_last)
    free = [stays.isdisjoint(range(start, end)) for start, end in segments]
    best: Span | None = None
    for first in _starts(messages, segments, free, dialect):
        found = _from(first, messages, tokens, (segments, free), dialect, needed)
        if found is not None and (best is None or found.tokens > best.tokens):
            best = found
        if best is not None and best.tokens >= needed:
            break
    return best


def _from(
    first: int,
    messages: Sequence[Message],
    tokens: Sequence[int],
    parts: tuple[Sequence[tuple[int, int]], Sequence[bool]],
    dialect: Dialect,
    needed: int,
) -> Span | None:
    """Returns the span that begins with this segment and goes as far as it must; None if none may begin there."""
    segments, free = parts
    start = end = segments[first][0]
    islands: list[int] = []
    waiting: list[int] = []
    freed = 0
    doubled = _has_two_in_a_row(messages)
    enough: Span | None = None
    largest: Span | None = None
    for (begin, stop), gives_way in zip(segments[first:], free[first:], strict=True):
        if not gives_way:
            waiting += range(begin, stop)
            continue
        islands += waiting
        waiting.clear()
        freed += sum(tokens[begin:stop])
        end = stop
        span = Span(start, end, tuple(islands), freed)
        if doubled or not _brings_two_together(span, messages):
            largest = span
            if freed >= needed:
                follower = messages[islands[0] if islands else end]
                if dialect.can_follow(Role.USER, follower.role):
                    return span
                enough = enough or span
    return enough or largest


def _has_two_in_a_row(messages: Sequence[Message]) -> bool:
    return any(one.role is Role.USER and two.role is Role.USER for one, two in pairwise(messages))


def _brings_two_together(span: Span, messages: Sequence[Message]) -> bool:
    """Returns True if a human turn would follow another one, the summary being one."""
    before = [messages[span.start - 1].role] if span.start else []
    after = [messages[place].role for place in (*span.islands, span.end)]
    return any(one is Role.USER and two is Role.USER for one, two in pairwise([*before, Role.USER, *after]))


def _find_protected(messages: Sequence[Message], keep_last: int) -> set[int]:
    """Returns the places of the first turn of each role and of the last turns."""
    stays = set(range(max(0, len(messages) - keep_last), len(messages)))
    seen: set[Role] = set()
    for place, message in enumerate(messages):
        if message.role not in seen:
            seen.add(message.role)
            stays.add(place)
    return stays


def _starts(
    messages: Sequence[Message], segments: Sequence[tuple[int, int]], free: Sequence[bool], dialect: Dialect
) -> list[int]:
    """Returns the segments at which a span may begin: the first in whose place a human turn may stand, then the first of all."""
    candidates = [at for at, gives_way in enumerate(free) if gives_way]
    for at in candidates:
        start = segments[at][0]
        before = messages[start - 1].role if start else Role.USER
        if before is not Role.USER and dialect.can_follow(before, Role.USER):
            return [at] if at == candidates[0] else [at, candidates[0]]
    return candidates[:1]


def compress_trajectory(  # noqa: PLR0913 - the public signature, all but the first by name
    turns: Sequence[Any],
    *,
    target_tokens: int = 15_250,
    summary_tokens: int = 750,
    keep_last: int = 4,
    passes: int = 1,
    system_note: bool | str = False,
    tokenizer: str = "o200k",
    shorten_protected: bool = False,
    summariser: Any = None,
    timeout_seconds: float = MODEL_TIMEOUT_SECONDS,
) -> tuple[list[Any], TrajectoryMetrics]:
    """Returns a training trajectory (ShareGPT turns or chat messages) within `target_tokens`, and its metrics.

    One at or under the target comes back as it is. Else turns from the start of the middle, as many as needed, are
    replaced by one human turn of at most `summary_tokens`. The first system, human, gpt and tool turn and the last
    `keep_last` turns stay; where they alone are too much, `still_over_limit` says so, or with `shorten_protected` the
    middle of the largest gives way. Every other turn that stays is the object that was given. `system_note` tells the
    reader in the system turn, in a sentence of ours or in the one given.

    `summariser` has a model write the summary: a `Summariser`, a model, or a function from a prompt to a text. Where
    it fails or takes longer than `timeout_seconds`, excerpts stand in its place and the outcome is `degraded`.
    Raises InputError if `turns` is not a trajectory, SettingsError for an option that makes no sense.
    """
    return run_sync(
        acompress_trajectory(
            turns,
            target_tokens=target_tokens,
            summary_tokens=summary_tokens,
            keep_last=keep_last,
            passes=passes,
            system_note=system_note,
            tokenizer=tokenizer,
            shorten_protected=shorten_protected,
            summariser=summariser,
            timeout_seconds=timeout_seconds,
        )
    )


async def acompress_trajectory(  # noqa: PLR0913 - the public signature
    turns: Sequence[Any],
    *,
    target_tokens: int = 15_250,
    summary_tokens: int = 750,
    keep_last: int = 4,
    passes: int = 1,
    system_note: bool | str = False,
    tokenizer: str = "o200k",
    shorten_protected: bool = False,
    summariser: Any = None,
    timeout_seconds: float = MODEL_TIMEOUT_SECONDS,
) -> tuple[list[Any], TrajectoryMetrics]:
    """Does what `compress_trajectory` does, while the event loop goes on. Cancelling it stops a model that is being asked."""
    options = TrajectoryOptions(
        target_tokens=target_tokens,
        summary_tokens=summary_tokens,
        keep_last=keep_last,
        passes=passes,
        system_note=system_note,
        tokenizer=tokenizer,
        shorten_protected=shorten_protected,
    )
    compressor, plain = Compressor(options), to_plain(turns)
    if summariser is None:
        done = await asyncio.to_thread(compressor.compress, plain)
    else:
        from penstock.trajectories.model_summaries import ModelSummaries  # noqa: PLC0415 - only where a model is asked

        done = await ModelSummaries.of(summariser, timeout_seconds).compress(compressor, plain)
    return done.turns(turns), done.metrics


def compress_trajectories(
    rows: Iterable[_Row], *, column: str | None = None, **options: Any
) -> Iterator[dict[str, Any]]:
    """Yields each row with its turns compressed: for pipelines that read, map and write rows themselves.

    `column` is the one with the turns; without it, the first of `conversations` and `messages` that a row has. The
    rows given are not changed. `options` are those of `compress_trajectory` but for `summariser`. A row whose turns
    cannot be read is passed on as it is. The metrics of each row are in its new column `penstock`.
    """
    from penstock.trajectories.rows import compress_row  # noqa: PLC0415 - its readers are for whole files

    compressor = Compressor(TrajectoryOptions(**options))
    for row in rows:
        yield compress_row(row, compressor, column)


def _report_unchanged(
    outcome: TrajectoryOutcome, tokens: int, turns: int, *, over: bool = False
) -> TrajectoryMetrics:
    return TrajectoryMetrics(
        outcome=outcome,
        tokens_before=tokens,
        tokens_after=tokens,
        turns_before=turns,
        turns_after=turns,
        still_over_limit=over,
    )
