"""Decides what a compaction will do, before anything is done.

`make_plan` is pure and complete. It decides for every message whether to keep, elide or summarise it, and says
why; it has the handoff written; and it knows the tokens of the result. Whatever the content, the plan fits
the target, or one error says how many tokens each part takes.

If eliding old results alone gets well below the target, nothing is summarised, and the remaining room goes
to the most needed lines of the elided results. Otherwise a handoff takes the place of the middle. Either way
the target is used up: as long as much of it is left, messages come back whole.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np

from penstock.conversation import mark
from penstock.conversation.dialects.chat import CHAT
from penstock.conversation.dialects.wire_kinds import is_fixed
from penstock.conversation.handles import AFTER, name_message, numbers_after
from penstock.conversation.message import (
    Image,
    Message,
    Opaque,
    Part,
    Role,
    Summary,
    Text,
    ToolCall,
    ToolResult,
)
from penstock.conversation.rules import Alternation, UserOpens, first_speaker
from penstock.conversation.speakers import is_request
from penstock.conversation.view import (
    Handoff,
    Kept,
    Piece,
    Rewritten,
    as_message,
    encode,
    is_merged,
    wire_text,
)
from penstock.errors import TargetTooSmall
from penstock.measure.weigh import weigh
from penstock.measure.wording import pluralise
from penstock.planning.elide import Elider
from penstock.planning.layout import Layout, LayoutMaker, PlanLimits, Rewrites, Sacrifice, Wishes
from penstock.writing.choice import FOCUS_SHARE, begin_choice, find_topic, join_excerpts
from penstock.writing.extractive import ExtractiveWriter
from penstock.writing.importance import importance_named, weigh_once
from penstock.writing.reading import Speaker, spoken_text
from penstock.writing.replies import is_courtesy
from penstock.writing.transcript import MODEL, WRITTEN_BY
from penstock.writing.writer import HandoffAims, HandoffMaterial, HandoffText, Surroundings, find_gaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor
    from penstock.settings import CompressionSettings
    from penstock.writing.choice import ExcerptChoice
    from penstock.writing.transcript import Transcript
    from penstock.writing.verify import Checked
    from penstock.writing.writer import HandoffWriter, Importance, MakeWriter

__all__ = [
    "CompactionOrder",
    "Fate",
    "Goal",
    "KeptReasons",
    "NothingToDo",
    "Plan",
    "Planned",
    "Verdict",
    "count_parts",
    "make_plan",
    "verdicts",
]

SHORT_NOTE = "Notes by another assistant, for reference. Do not redo finished work."
_SHORT_NOTE_BELOW = 1_200  # tokens of handoff
_LEAST_HANDOFF = 60
_HANDOFF = -1  # the key of a handoff among the sizes
_LEAST_ELIDED = 12  # tokens: no longer message becomes smaller than this when it is elided
_ELIDED_PARTS = (ToolCall, ToolResult, Image, Opaque)
_ELISION_SHARE = 0.5  # eliding alone must leave half of the target for the lines that are needed
_UNSPENT = 0.05  # of the target without the system prompt: this much may be left over
_ROUNDS = 12
_LONG_RESULT = 200  # characters: among equal results longer than this, the newest stands for all


class Goal(msgspec.Struct, frozen=True):
    """The size to aim at: a target for the list, else a window that the list shares with `outside_tokens`."""

    target_tokens: int | None
    window_tokens: int = 0
    """0 if a target is named: then nobody looks the window up."""
    outside_tokens: int = 0
    forced: bool = False
    """True if any saving is worth it, however small."""


class CompactionOrder(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The instructions for one compaction, apart from the conversation."""

    goal: Goal
    settings: CompressionSettings
    tokenizer: Tokenizer
    redactor: Redactor
    wishes: Wishes = Wishes()
    make_writer: MakeWriter = ExtractiveWriter
    """Makes the writer of the handoff, if the plan has one."""
    importance: Importance | None = None
    """Scores how likely each value is to be needed; None for the scoring that the settings name."""


class Fate(StrEnum):
    """The outcome of a plan for one message."""

    KEPT = "kept"
    ELIDED = "elided"
    SUMMARISED = "summarised"
    REPAIRED = "repaired"  # left out before planning, since it broke a rule of the dialect


class Verdict(msgspec.Struct, frozen=True):
    """The fate of one message and the reason for it."""

    position: int
    number: int
    fate: Fate
    reason: str
    tokens_before: int
    tokens_after: int


class KeptReasons(msgspec.Struct, frozen=True):
    """The reasons why messages stay, as sets of positions, so that `verdicts` can name them."""

    system_end: int
    head_end: int
    tail_start: int
    request: int | None
    pins: frozenset[int]
    open: frozenset[int]
    fresh: frozenset[int]
    """Messages with results that the model has not answered yet."""
    brought: frozenset[int]
    """Messages that came back because there was room left."""
    protect_first_n: int
    provider: frozenset[int] = frozenset()
    """The provider's own compaction, and the items that it needs to read the others."""
    counts_from: int = 0
    """The provider's own compaction replaces everything before this position."""


class Plan(msgspec.Struct, frozen=True, eq=False):
    """The pieces of the new view, and their sizes."""

    pieces: tuple[Piece, ...]
    sizes: dict[int, int]
    """The tokens of every message that stays, by position."""
    kept_for: KeptReasons
    tokens_after: int
    """The tokens of all pieces."""
    handoff: HandoffText = HandoffText()
    """The handoff as its writer gave it; empty if nothing is summarised."""
    handoff_tokens: int = 0
    """The handoff's part of `tokens_after`."""
    handoff_room: int = 0
    """The most that the handoff could have taken."""

    @property
    def rewritten(self) -> frozenset[int]:
        """Positions of messages that stay in a changed form: shortened, or with the handoff in front."""
        places: set[int] = set()
        merged = False
        for piece in self.pieces:
            if isinstance(piece, Handoff):
                merged = piece.role is None
                continue
            if merged or isinstance(piece, Rewritten):
                places.add(piece.position)
            merged = False
        return frozenset(places)

    @property
    def kept_verbatim(self) -> frozenset[int]:
        """Positions of messages that stay unchanged."""
        return frozenset(self.sizes.keys() - self.rewritten)


class NothingToDo(msgspec.Struct, frozen=True):
    """The reason why no compaction is called for."""

    reason: str


Planned: TypeAlias = Plan | NothingToDo


def verdicts(plan: Plan, numbers: Sequence[int], tokens: Sequence[int]) -> tuple[Verdict, ...]:
    """Returns the fate of each message and the reason, in the order of the messages."""
    rewritten = plan.rewritten
    return tuple(
        _verdict(place, number, before, plan, rewritten)
        for place, (number, before) in enumerate(zip(numbers, tokens, strict=True))
    )


def _verdict(place: int, number: int, before: int, plan: Plan, rewritten: frozenset[int]) -> Verdict:
    after = plan.sizes.get(place)
    if after is None:
        lines = plan.handoff.quoted.get(place, 0)
        kept = f"{pluralise(lines, 'excerpt')} in the handoff" if lines else "reachable by its handle"
        older = (
            "before the provider's own compaction"
            if place < plan.kept_for.counts_from
            else "older than the tail"
        )
        return Verdict(place, number, Fate.SUMMARISED, f"{older}: {kept}", before, 0)
    fate = Fate.ELIDED if place in rewritten else Fate.KEPT
    return Verdict(place, number, fate, _reason(place, plan.kept_for, fate, before < after), before, after)


def _reason(place: int, kept_for: KeptReasons, fate: Fate, grown: bool) -> str:
    if fate is Fate.ELIDED:
        if grown:
            noted = place < kept_for.system_end
            return (
                "system prompt, with a note on compaction" if noted else "the handoff stands in front of it"
            )
        if place == kept_for.request:
            return "the user's last request, shortened to fit"
        if place < kept_for.head_end:
            return "head: a client's text in it, shortened"
        if place in kept_for.fresh:
            return "not answered yet, too large to stay whole"
        return "too large for the tail" if place >= kept_for.tail_start else "old result or long argument"
    reasons = (
        ("system prompt", place < kept_for.system_end),
        ("pinned", place in kept_for.pins),
        ("the user's last request", place == kept_for.request),
        ("open call", place in kept_for.open),
        ("the provider needs it", place in kept_for.provider),
        (f"head: one of the first {kept_for.protect_first_n}", place < kept_for.head_end),
        ("not answered yet", place in kept_for.fresh),
        ("room was left for it", place in kept_for.brought),
        ("tail: recent", place >= kept_for.tail_start),
    )
    return next((reason for reason, holds in reasons if holds), "small enough to stay")


def count_parts(plan: Plan, messages: Sequence[Message]) -> dict[str, int]:
    """Returns the tokens of each part of the view that is not empty, in the order in which they stand there."""
    parts = dict.fromkeys(_PARTS, 0)
    parts["handoff"] = plan.handoff_tokens
    for place, tokens in plan.sizes.items():
        parts[_part(place, plan.kept_for, messages[place])] += tokens
    merged = next((at for at, piece in enumerate(plan.pieces) if is_merged(piece)), None)
    if merged is not None:  # the message after it was measured together with it
        beside = plan.pieces[merged + 1]
        if not isinstance(beside, Handoff):
            parts[_part(beside.position, plan.kept_for, messages[beside.position])] -= plan.handoff_tokens
    return {name: tokens for name, tokens in parts.items() if tokens}


_PARTS = (
    "system_prompt",
    "head",
    "handoff",
    "peoples_messages",
    "older_messages",
    "pinned_messages",
    "open_calls",
    "items_of_the_provider",
    "tail",
    "last_request",
    "unanswered_results",
)


def _part(place: int, kept_for: KeptReasons, message: Message) -> str:
    parts = (
        ("system_prompt", place < kept_for.system_end),
        ("pinned_messages", place in kept_for.pins),
        ("last_request", place == kept_for.request),
        ("open_calls", place in kept_for.open),
        ("items_of_the_provider", place in kept_for.provider),
        ("head", place < kept_for.head_end),
        ("unanswered_results", place in kept_for.fresh),
        ("tail", place >= kept_for.tail_start),
        ("peoples_messages", is_request(message)),
    )
    return next((name for name, holds in parts if holds), "older_messages")


def make_plan(
    transcript: Transcript, limits: PlanLimits, order: CompactionOrder, prose: Checked | None = None
) -> Planned:
    """Returns the plan, or the reason why there is nothing to do. Raises TargetTooSmall if too much must stay.

    `prose` is a model's part of the handoff, already checked against the conversation.
    """
    target = limits.target_tokens
    if transcript.total_tokens <= target:
        return NothingToDo(
            f"the conversation has {transcript.total_tokens:,} tokens and the target is {target:,}"
        )
    planner = _Planner(transcript, limits, order, prose)
    layouts = planner.layouts
    first = layouts.lay_out(Sacrifice.NOTHING)
    lighter = planner.drop_before_barrier() if layouts.barrier is not None else planner.elide_only(first)
    if lighter is not None:
        return lighter
    writer = order.make_writer(planner.material)
    for sacrifice in Sacrifice:  # the head gives way first, the middle of the request last
        layout = first if sacrifice is Sacrifice.NOTHING else layouts.lay_out(sacrifice)
        if layout.tokens + planner.least_handoff(layout, sacrifice) <= target:
            plan = planner.summarise(layout, writer)
            if plan.tokens_after <= target:
                return planner.spend(plan, layout, writer)
    raise planner.too_small(layout)


class _Planner:
    """The steps of `make_plan` for one conversation."""

    def __init__(
        self, transcript: Transcript, limits: PlanLimits, order: CompactionOrder, prose: Checked | None
    ) -> None:
        self._transcript = transcript
        self._limits = limits
        self._wishes = order.wishes
        self._tokenizer = order.tokenizer
        self.material = HandoffMaterial(
            transcript,
            transcript.landmarks.calls,
            order.tokenizer,
            order.redactor,
            limits.handoff_tokens,
            prose,
            HandoffAims(
                importance=weigh_once(order.importance or importance_named(order.settings.importance))
            ),
        )
        self._elider = Elider(self.material.calls, order.tokenizer, order.redactor, order.wishes.recall_tool)
        self._needs: list[tuple[bool, int, int]] | None = None
        self.layouts = LayoutMaker(
            transcript, limits, order.wishes, self._elider, order.tokenizer, self.material.aims.importance
        )
        prompt = sum(transcript.tokens[: self.layouts.system_end])
        self._unspent = _UNSPENT * max(0, limits.spend_tokens - prompt)

    def least_handoff(self, layout: Layout, sacrifice: Sacrifice) -> int:
        """Returns the tokens to leave for a handoff: in the end none, unless the list cannot begin without one."""
        if sacrifice < Sacrifice.END or self._needs_opening(layout):
            return _LEAST_HANDOFF
        return 0

    def _needs_opening(self, layout: Layout) -> bool:
        """Returns True if the first message that stays is by a speaker who may not open this conversation.

        Many servers behind the chat dialect want the user first, as Anthropic does. So if the user began the list, the
        user still begins it.
        """
        messages, rules = self._transcript.messages, self._transcript.dialect.rules
        first = first_speaker(messages)
        strict = any(isinstance(rule, UserOpens) for rule in rules)
        by_user = first < len(messages) and messages[first].role is Role.USER
        if not strict and not (by_user and any(isinstance(rule, Alternation) for rule in rules)):
            return False
        speakers = (
            place for place in layout.positions(len(messages)) if messages[place].role is not Role.SYSTEM
        )
        place = next(speakers, None)
        return place is not None and messages[place].role is not Role.USER and place != self.layouts.barrier

    def _meet(self, beside: tuple[int, ...]) -> bool:
        """Returns True if the messages before and after a handoff are by one speaker, and were not neighbours before.

        Then the handoff stays even if it has nothing to say, since it keeps the two apart (`Alternation`).
        """
        if not any(isinstance(rule, Alternation) for rule in self._transcript.dialect.rules):
            return False
        roles = {self._transcript.messages[place].role for place in beside}
        return len(beside) == 2 and beside[1] > beside[0] + 1 and roles in ({Role.USER}, {Role.ASSISTANT})

    def too_small(self, layout: Layout) -> TargetTooSmall:
        """Returns the error for a target that even the last layout exceeds. It lists the tokens of each part."""
        target = self._limits.target_tokens
        parts = self.layouts.tokens_by_part(layout)
        listed = ", ".join(f"{name} {tokens:,}" for name, tokens in parts.items())
        return TargetTooSmall(
            f"a target of {pluralise(target, 'token')} is too small for what may not be dropped: {listed}",
            target_tokens=target,
            parts=parts,
        )

    def drop_before_barrier(self) -> Plan | None:
        """Returns the plan that only drops the messages before a barrier; None if that does not reach the target.

        The barrier stands for those messages already, so such a plan needs no handoff.
        """
        layouts, length = self.layouts, len(self._transcript.messages)
        layout = layouts.start_at(layouts.floor)
        if layout.tokens > self._limits.target_tokens or layouts.floor <= layouts.system_end:
            return None
        plan = self._weigh(
            tuple(_piece(place, layout.rewritten) for place in layout.positions(length)), layout
        )
        return plan if plan.tokens_after <= self._limits.target_tokens else None

    # Eliding alone.

    def elide_only(self, layout: Layout) -> Plan | None:
        """Returns the plan that summarises nothing; None if it does not reach the target."""
        transcript, target = self._transcript, self._limits.target_tokens
        messages, numbers = transcript.messages, transcript.numbers
        least = np.minimum(transcript.token_row, _LEAST_ELIDED).sum()
        most = _ELISION_SHARE * self._limits.spend_tokens
        if least > most or self._least_elided(layout) > most:
            return None
        if any(transcript.origins[place] is None for place in transcript.handoffs):
            return None  # an earlier handoff was merged into its message and cannot stand apart from it again
        rewritten = dict(layout.rewritten)
        islands = set(layout.islands)
        newest = self._newest_copies()
        for place in range(layout.head_end, layout.tail_start):
            if place in islands:
                continue
            parts = self._elider.elide_results(messages[place], numbers[place])
            parts |= self._elide_copies(place, newest)
            parts |= self._elider.shorten_arguments(messages[place], numbers[place])
            if parts:
                rewritten[place] = parts
        total = sum(self._sizes(rewritten))
        if total > most:
            return None
        room = self._limits.spend_tokens - total
        topic = self._find_topic()
        if topic is not None:
            rewritten = self._restore_topic(rewritten, topic, int(room * FOCUS_SHARE))
        rewritten = self._restore_lines(rewritten, room, topic)
        rewritten = self._restore_messages(rewritten, newest)
        pieces = tuple(_piece(place, rewritten) for place in range(len(messages)))
        plan = self._weigh(pieces, layout)
        return plan if plan.tokens_after <= target else None

    def _least_elided(self, layout: Layout) -> int:
        """Returns a lower bound for the result of eliding: messages that it may not touch keep their size."""
        messages = self._transcript.messages
        may_shrink = {
            place
            for place in range(layout.head_end, layout.tail_start)
            if any(isinstance(part, _ELIDED_PARTS) for part in messages[place].parts)
        }
        may_shrink -= set(layout.islands)
        may_shrink |= layout.rewritten.keys()
        return sum(
            min(tokens, _LEAST_ELIDED) if place in may_shrink else tokens
            for place, tokens in enumerate(self._transcript.tokens)
        )

    def _newest_copies(self) -> dict[str, int]:
        """Returns for each long result the number of the newest message that holds it."""
        return {
            part.text: number
            for message, number in zip(self._transcript.messages, self._transcript.numbers, strict=True)
            for part in message.parts
            if isinstance(part, ToolResult) and len(part.text) > _LONG_RESULT
        }

    def _elide_copies(self, place: int, newest: dict[str, int]) -> dict[int, Part]:
        number = self._transcript.numbers[place]
        parts: dict[int, Part] = {}
        for at, part in enumerate(self._transcript.messages[place].parts):
            if is_fixed(part):
                continue
            if isinstance(part, ToolResult) and newest.get(part.text, number) != number:
                stub = f"{self._elider.stub(part, number)}, the same as {name_message(newest[part.text])}"
                parts[at] = msgspec.structs.replace(part, text=stub, images=())
        return parts

    def _find_topic(self) -> NDArray[np.bool_] | None:
        """Returns, for each source, True if it is about the caller's topic; None without a topic."""
        focus = self._wishes.focus
        return find_topic(self._transcript.index, self.material.calls, focus) if focus else None

    def _restore_topic(self, rewritten: Rewrites, topic: NDArray[np.bool_], room: int) -> Rewrites:
        """Restores elided messages about the topic that fit the room whole, newest first; returns the others."""
        about = set(self._transcript.index.message_of_source[topic].tolist())
        sizes, whole = self._sizes(rewritten), self._transcript.tokens
        restored = dict(rewritten)
        for place in sorted(about & rewritten.keys(), reverse=True):
            more = whole[place] - sizes[place]
            if more <= room:
                del restored[place]
                room -= more
        return restored

    def _restore_lines(
        self, rewritten: Rewrites, granted: int, topic: NDArray[np.bool_] | None = None
    ) -> Rewrites:
        """Returns the elided results with their most needed lines below the stub, as far as the room allows.

        Messages about the topic may have used some of the granted room; lines about it get the rest of its share first.
        """
        index = self._transcript.index
        room = self._limits.spend_tokens - sum(self._sizes(rewritten))
        choice = begin_choice(
            self._transcript,
            self.layouts.request,
            self._wishes.focus,
            tokenizer=self._tokenizer,
            importance=self.material.aims.importance,
        )
        elided = np.isin(index.message_of_source, np.array(sorted(rewritten), np.int32))
        for source in np.flatnonzero(~elided).tolist():
            choice.cover(index.sources[source].distinct)
        stubs = [
            part.text
            for parts in rewritten.values()
            for part in parts.values()
            if isinstance(part, ToolResult)
        ]
        choice.cover(index.vocabulary.find_known(stubs))
        results = index.speakers == Speaker.RESULT
        allowed = (elided & results)[index.source_of]
        if topic is not None:
            share = int(granted * FOCUS_SHARE) - (granted - room)  # less the room of messages restored whole
            choice.fill(allowed & topic[index.source_of], min(share, room - 2))
            choice.fill(allowed & ~topic[index.source_of], room - 2)
        choice.fill(allowed, room - 2)
        while True:
            restored = self._add_lines(rewritten, choice)
            if sum(self._sizes(restored)) <= self._limits.target_tokens or not choice.drop_last():
                return restored

    def _restore_messages(self, rewritten: Rewrites, newest: dict[str, int]) -> Rewrites:
        """Restores elided messages that still fit whole, people's first and then the newest; returns the others.

        Results with a newer copy come last. If much room is left in the end, the results and long texts that are
        too large to be restored get more of their lines.
        """
        sizes = self._sizes(rewritten)
        left = self._limits.spend_tokens - sum(sizes)
        whole = self._transcript.tokens
        restored = dict(rewritten)
        copies = {place for place in rewritten if self._elide_copies(place, newest)}
        for place in sorted(self._by_need(rewritten), key=copies.__contains__):
            more = whole[place] - sizes[place]
            if more <= left:
                del restored[place]
                left -= more
        for place in self._by_need(restored):
            if left <= self._unspent:
                break
            told = self.layouts.tell_results([place], sizes[place] + left - _LEAST_ELIDED).get(place, {})
            longer = told or self.layouts.trim_less(place, restored, left)
            wider = restored[place] | (longer or self.layouts.clip_less(place, restored, left))
            more = self.layouts.size(place, {place: wider}) - sizes[place]
            if 0 < more <= left:
                restored[place] = wider
                left -= more
        return restored

    def _by_need(self, places: Iterable[int]) -> list[int]:
        """Returns the positions in the order of their need for room: people's messages first, then the newest."""
        if self._needs is None:
            self._needs = self._rank_needs()
        return sorted(places, key=self._needs.__getitem__)

    def _rank_needs(self) -> list[tuple[bool, int, int]]:
        """Returns a rank for each message. A question that was answered tells less than a statement, a repeat or courtesy nothing."""
        said: set[str] = set()
        ranks: list[tuple[bool, int, int]] = []
        for place in range(len(self._transcript.messages) - 1, -1, -1):
            message = self._transcript.messages[place]
            text = spoken_text(message).strip()
            rank = 2
            if is_request(message):
                rank = 1 if text.endswith(("?", "？", "؟")) else 0
            ranks.append((bool(text) and (text in said or is_courtesy(text)), rank, -place))
            said.add(text)
        return ranks[::-1]

    def _add_lines(self, rewritten: Rewrites, choice: ExcerptChoice) -> Rewrites:
        index = self._transcript.index
        lines: dict[tuple[int, str], list[int]] = {}
        for number in sorted(choice.chosen):
            source = int(index.source_of[number])
            key = (int(index.message_of_source[source]), index.tags[source])
            lines.setdefault(key, []).append(number)
        restored = dict(rewritten)
        for (place, call_id), chosen in lines.items():
            parts = dict(restored[place])
            for at, part in parts.items():
                if isinstance(part, ToolResult) and part.call_id == call_id:
                    parts[at] = msgspec.structs.replace(
                        part, text=f"{part.text}\n{join_excerpts(index, chosen)}"
                    )
                    break
            restored[place] = parts
        return restored

    def _sizes(self, rewritten: Rewrites) -> list[int]:
        sizes = list(self._transcript.tokens)
        places = sorted(rewritten)
        shorter = [
            as_message(Rewritten(place, rewritten[place]), self._transcript, self._transcript.dialect)
            for place in places
        ]
        for place, tokens in zip(places, weigh(shorter, self._tokenizer), strict=True):
            sizes[place] = tokens
        return sizes

    # With a handoff.

    def summarise(self, layout: Layout, writer: HandoffWriter, *, fill: bool = False) -> Plan:
        """Returns the plan in which a handoff replaces all that the layout leaves out; with `fill`, it takes all the room."""
        transcript, limits = self._transcript, self._limits
        role, layout = self._role(layout)
        stays = layout.positions(len(transcript.messages))
        at = self.layouts.count_front(layout) if role is not None else self._next_speaker(layout)
        room = limits.target_tokens - layout.tokens
        budget = min(room, max(limits.handoff_tokens, limits.spend_tokens - layout.tokens))
        beside = Surroundings(
            request=self.layouts.request,
            kept=frozenset(stays),
            kept_verbatim=frozenset(place for place in stays if place not in layout.rewritten),
            shown_texts=[
                _text_of_part(part) for parts in layout.rewritten.values() for part in parts.values()
            ],
            focus=self._wishes.focus,
            fill=fill,
        )
        gone = tuple(chain.from_iterable(find_gaps(beside.kept, len(transcript.messages))))
        after = [transcript.numbers[place] for place in stays[at:]]
        attributes = {AFTER: numbers_after([n for n in after if n], max(transcript.numbers))}
        if writer.has_prose:
            attributes[WRITTEN_BY] = MODEL
        kept = [_piece(place, layout.rewritten) for place in stays]
        while True:  # the handoff is measured as it will be on the wire; if it is too long, it is written again, shorter
            note = self._note(budget, writer)

            def measure(text: str, note: str = note) -> int:
                wrapped = mark.wrap(f"{note}\n{text}", attributes, writer.mark_version)
                return 4 + self._tokenizer.count(wrapped if role else wrapped + "\n\n")

            fits = budget >= measure("") + 8 and (not gone or gone[-1] >= self.layouts.floor)
            written = writer.write(budget, measure, beside) if fits else HandoffText()
            pieces = kept
            if written.text or self._needs_opening(layout) or (role and self._meet(stays[at - 1 : at + 1])):
                summary = Summary(f"{note}\n{written.text}".rstrip(), writer.mark_version, attributes)
                pieces = [*kept[:at], Handoff(summary, gone, role), *kept[at:]]
            plan = self._weigh(tuple(pieces), layout, written, min(budget, limits.handoff_tokens))
            over = plan.tokens_after - limits.target_tokens
            if over <= 0 or not written.text:
                return plan
            budget -= over + 1

    def spend(self, plan: Plan, layout: Layout, writer: HandoffWriter) -> Plan:
        """Brings messages back whole as long as much of the target is unused and one would fit; returns the new plan.

        For each message that comes back, the handoff needs no excerpts any more, so this takes a few rounds. The room
        that is left in the end goes to plain sentences of the messages that do not fit.
        """
        granted = self._limits.spend_tokens
        refused: set[int] = set()
        for _ in range(_ROUNDS):
            left = granted - plan.tokens_after
            if left <= self._unspent:
                break
            wider = self._bring_back(layout, left, refused, in_a_row=writer.names_runs)
            if wider is None:
                break
            fuller = self.summarise(wider, writer)
            if fuller.tokens_after <= self._limits.target_tokens:
                plan, layout = fuller, wider
                continue
            # Perhaps the first of them may not open the list, so that a handoff had to come before it.
            added = wider.brought - layout.brought
            if not added:
                break
            refused.update(range(*self.layouts.cuts.segment(min(added))))
        if granted - plan.tokens_after > self._unspent:
            fuller = self.summarise(layout, writer, fill=True)
            if plan.tokens_after < fuller.tokens_after <= self._limits.target_tokens:
                plan = fuller
        return plan

    def _bring_back(self, layout: Layout, room: int, barred: set[int], *, in_a_row: bool) -> Layout | None:
        """Returns the layout with as much brought back as fits: shortened messages become whole, left-out ones return.

        A message returns with those that it may not be separated from. With `in_a_row`, only messages right before the
        ones that stay return, newest first. Returns None if nothing fits. Messages in `barred` stay out.
        """
        _, layout = self._role(layout)  # the head may have given up messages to make a place for the handoff
        refused = set(barred)
        for _ in range(_ROUNDS):  # a message that may not come back leaves its room to others
            chosen, rewritten = self._choose_to_bring(layout, room, refused, in_a_row=in_a_row)
            brought = self.layouts.part_neighbours(layout, chosen)
            if brought == chosen:
                break
            refused |= chosen - brought
        wider = self.layouts.widen(layout, frozenset(brought), rewritten)
        left = room - (wider.tokens - layout.tokens)
        if not in_a_row and left > self._unspent:
            brought = self._choose_exchanges(wider, left, barred)
            wider = self.layouts.widen(wider, frozenset(brought), rewritten)
        return None if wider.brought == layout.brought and rewritten == layout.rewritten else wider

    def _choose_to_bring(
        self, layout: Layout, room: int, refused: set[int], *, in_a_row: bool
    ) -> tuple[set[int], Rewrites]:
        """Returns the messages to bring back within the room, most needed first, and those that stay shortened."""
        layouts, whole = self.layouts, self._transcript.tokens
        stays = set(layout.positions(len(whole)))
        barred = refused.union(self._transcript.handoffs)
        rewritten = dict(layout.rewritten)
        brought = set(layout.brought)
        places = range(layouts.floor, len(whole))
        for place in reversed(places) if in_a_row else self._by_need(places):
            if place in stays:
                more = whole[place] - layouts.size(place, rewritten)
                if place in rewritten and more <= room:
                    del rewritten[place]
                    room -= more
                continue
            segment = range(*layouts.cuts.segment(place))
            tokens = sum(whole[one] for one in segment if one not in stays)
            if tokens <= room and barred.isdisjoint(segment):
                stays.update(segment)
                brought.update(segment)
                room -= tokens
            elif in_a_row:
                break
        if room > self._unspent:
            self._bring_in_part(stays, brought, rewritten, room)
        return brought, rewritten

    def _choose_exchanges(self, layout: Layout, room: int, barred: set[int]) -> set[int]:
        """Returns the messages that the layout brought back, and whole exchanges that fit the room, newest first.

        A question or an answer alone often may not come back: its neighbour would have the same role.
        """
        layouts, messages = self.layouts, self._transcript.messages
        stays = set(layout.positions(len(messages)))
        never = barred.union(self._transcript.handoffs)
        brought = set(layout.brought)
        end = len(messages)
        for place in range(len(messages) - 1, layouts.floor - 1, -1):
            begins = messages[place].role is Role.USER and messages[place - 1].role is not Role.USER
            if place > layouts.floor and not begins:
                continue
            missing = {
                one
                for at in range(place, end)
                if at not in stays
                for one in range(*layouts.cuts.segment(at))
                if one not in stays
            }
            end = place
            tokens = sum(self._transcript.tokens[one] for one in missing)
            if 0 < tokens <= room and never.isdisjoint(missing):
                brought |= missing
                room -= tokens
        return layouts.part_neighbours(layout, brought)

    def _bring_in_part(self, stays: set[int], brought: set[int], rewritten: Rewrites, room: int) -> None:
        """Adds the newest message whose results are too large to come back whole, with the lines that fit the room.

        A message that stays with only a little of a long text gets more of it.
        """
        layouts, messages = self.layouts, self._transcript.messages
        handoffs = set(self._transcript.handoffs)
        tried: set[int] = set()  # a batch of many results is one segment: trying it once is enough
        for place in self._by_need(range(layouts.floor, len(messages))):
            if place in tried or (place in stays and place not in rewritten):
                continue
            if not any(isinstance(part, ToolResult) for part in messages[place].parts):
                if place in stays and (
                    longer := layouts.trim_less(place, rewritten, room)
                    or layouts.clip_less(place, rewritten, room)
                ):
                    rewritten[place] = longer
                    return
                continue
            segment = [place] if place in stays else [*range(*layouts.cuts.segment(place))]
            if handoffs.intersection(segment):
                continue
            tried.update(segment)
            now = sum(layouts.size(one, rewritten) for one in segment if one in stays)
            bare = layouts.tell_results(segment, 0)
            least = sum(layouts.size(one, rewritten | bare) for one in segment)
            if least - now > room:
                continue
            told = layouts.tell_results(segment, max(0, room + now - least))
            more = sum(layouts.size(one, rewritten | told) for one in segment) - now
            if 0 < more <= room:
                stays.update(segment)
                brought.update(segment)
                rewritten.update(told)
                return

    def _note(self, budget: int, writer: HandoffWriter) -> str:
        """Returns the first line of a handoff that may take up to `budget` tokens."""
        tool = self._wishes.recall_tool
        if budget < _SHORT_NOTE_BELOW:
            return f"{SHORT_NOTE} {tool} reads {writer.handles}." if tool else SHORT_NOTE
        return f"{writer.note[:-1]}; {tool} reads them." if tool else writer.note

    def _next_speaker(self, layout: Layout) -> int:
        """Returns the position of the first message after the head that stays and is not a system message."""
        messages = self._transcript.messages
        stays = layout.positions(len(messages))
        place = self.layouts.count_front(layout)
        while place < len(stays) and messages[stays[place]].role is Role.SYSTEM:
            place += 1
        return place

    def _role(self, layout: Layout) -> tuple[Role | None, Layout]:
        """Returns a role that the handoff may have, and the layout for it.

        If neither role alternates with the neighbours, the head gives up its last messages, if that helps, or the
        message before the live request stays. Otherwise the role is None and the handoff is merged into the message
        that follows. In the chat dialect it is merged into the request at once: the tokens of an answer or a head
        keep more when they are spent on excerpts.
        """
        layouts = self.layouts
        legal = layouts.cuts.legal
        shorter = legal[bisect_left(legal, layouts.system_end) : bisect_left(legal, layout.head_end)]
        for head_end in (layout.head_end, *reversed(shorter)):
            candidate = layout if head_end == layout.head_end else layouts.shorten_head(layout, head_end)
            role = self._role_at(candidate)
            if role is not None:
                return role, candidate
        bare = layouts.shorten_head(layout, layouts.system_end)
        follower = bare.positions(len(self._transcript.messages))[self._next_speaker(bare) :][:1]
        if (
            self._transcript.dialect is CHAT
            and follower == (layouts.request,)
            and not layouts.pins.issuperset(follower)
        ):
            return None, bare
        wider = self._with_answer_before_request(layout)
        role = self._role_at(wider) if wider is not None else None
        return (role, wider) if role is not None and wider is not None else (None, layout)

    def _with_answer_before_request(self, layout: Layout) -> Layout | None:
        """Returns the layout with the message just before the live request, so that the request can stay unchanged."""
        layouts, request = self.layouts, self.layouts.request
        if request is None or request <= layouts.system_end:
            return None
        segment = frozenset(range(*layouts.cuts.segment(request - 1)))
        if segment.intersection(self._transcript.handoffs):
            return None
        wider = layouts.widen(layout, layout.brought | segment, layout.rewritten)
        return wider if wider.tokens + _LEAST_HANDOFF <= self._limits.target_tokens else None

    def _role_at(self, layout: Layout) -> Role | None:
        messages, dialect = self._transcript.messages, self._transcript.dialect
        stays = layout.positions(len(messages))
        at = self._next_speaker(layout)
        spoken = [messages[place].role for place in stays[:at] if messages[place].role is not Role.SYSTEM]
        before = spoken[-1] if spoken else (Role.SYSTEM if at else None)
        after = messages[stays[at]].role if at < len(stays) else None
        for role in (Role.USER, Role.ASSISTANT):
            if dialect.can_follow(before, role) and (after is None or dialect.can_follow(role, after)):
                return role
        return None

    # Both kinds of plan.

    def _weigh(
        self,
        pieces: tuple[Piece, ...],
        layout: Layout,
        written: HandoffText = HandoffText(),  # noqa: B008 - frozen
        handoff_room: int = 0,
    ) -> Plan:
        """Returns the plan with its exact size: new messages are measured as they will be on the wire."""
        transcript = self._transcript
        sizes: dict[int, int] = {}
        made: list[Message] = []
        places: list[int] = []
        merged: Handoff | None = None
        merged_tokens = 0
        for piece in pieces:
            if isinstance(piece, Kept) and merged is None:
                sizes[piece.position] = transcript.tokens[piece.position]
                continue
            if isinstance(piece, Handoff) and piece.role is None:
                merged = piece
                merged_tokens = self._tokenizer.count(wire_text(piece.summary))
                continue
            joined: tuple[Piece, ...] = (piece,) if merged is None else (merged, piece)
            merged = None
            wire = encode(joined, transcript, transcript.dialect)[0]
            made.append(transcript.dialect.decode(wire))
            places.append(_HANDOFF if isinstance(piece, Handoff) else piece.position)
        sizes.update(zip(places, weigh(made, self._tokenizer), strict=True))
        total = sum(sizes.values())
        handoff_tokens = sizes.pop(_HANDOFF, merged_tokens)
        layouts = self.layouts
        return Plan(
            pieces=pieces,
            sizes=sizes,
            kept_for=KeptReasons(
                system_end=layouts.system_end,
                head_end=layout.head_end,
                tail_start=layout.tail_start,
                request=layouts.request,
                pins=layouts.pins,
                open=frozenset(layouts.open),
                fresh=frozenset(layouts.fresh),
                brought=layout.brought,
                protect_first_n=self._limits.protect_first_n,
                provider=layouts.standing,
                counts_from=layouts.floor if layouts.barrier is not None else 0,
            ),
            tokens_after=total,
            handoff=written,
            handoff_tokens=handoff_tokens,
            handoff_room=handoff_room,
        )


def _piece(place: int, rewritten: Rewrites) -> Piece:
    parts = rewritten.get(place)
    return Rewritten(place, parts) if parts else Kept(place)


def _text_of_part(part: Part) -> str:
    return part.text if isinstance(part, (Text, ToolResult)) else ""
