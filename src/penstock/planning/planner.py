"""From a transcript and its limits to a plan.

If eliding old results alone gets well below the target, nothing is summarised, and the room that is left goes
to the most needed lines of the results that were elided. Otherwise a handoff takes the place of the middle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.conversation import mark
from penstock.conversation.handles import handle
from penstock.conversation.message import Message, Part, Role, Summary, Text, ToolResult
from penstock.conversation.pairing import calls_by_id
from penstock.conversation.rules import UserOpens
from penstock.conversation.view import Handoff, Kept, Piece, Rewritten, as_message, encode, wire_text
from penstock.errors import TargetTooSmall
from penstock.lossless.outline import NodeTexts
from penstock.lossless.writer import OutlineWriter, segment_size
from penstock.measure.weigh import weigh
from penstock.planning.elide import Elider
from penstock.planning.layout import Layout, LayoutMaker, Sacrifice
from penstock.planning.plan import KeptReasons, NothingToDo, Plan, PlanLimits, Planned, Wishes
from penstock.writing.extractive import ExtractiveWriter, HandoffText, Surroundings, live_of
from penstock.writing.reading import Speaker
from penstock.writing.transcript import AFTER, MODEL, WRITTEN_BY, numbers_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor
    from penstock.writing.choice import ExcerptChoice
    from penstock.writing.transcript import Transcript
    from penstock.writing.verify import Checked

__all__ = ["make_plan"]

SHORT_NOTE = "Earlier turns, for reference. Answer what comes after."
_SHORT_NOTE_BELOW = 1_200  # tokens of handoff
_LEAST_HANDOFF = 60
_HANDOFF = -1  # the key of a handoff among the sizes
_LEAST_ELIDED = 12  # tokens that a longer message keeps at least when it is elided
_ELISION_SHARE = 0.5  # eliding alone must leave half of the target for the lines that are needed


def make_plan(
    transcript: Transcript,
    limits: PlanLimits,
    wishes: Wishes,
    tokenizer: Tokenizer,
    redactor: Redactor,
    told: Checked | NodeTexts | None = None,
) -> Planned:
    """The plan, or why there is nothing to do. Raises TargetTooSmall where what may not be dropped is too much.

    `told` is what a model wrote for the handoff, checked. Where it is the texts of nodes, the handoff is an outline.
    """
    if transcript.total_tokens <= limits.target_tokens:
        return NothingToDo(
            f"the conversation has {transcript.total_tokens:,} tokens and the target is {limits.target_tokens:,}"
        )
    calls = calls_by_id(transcript.messages)
    if isinstance(told, NodeTexts):
        segment_tokens = segment_size(transcript.total_tokens, limits.handoff_tokens)
        extractor: ExtractiveWriter = OutlineWriter(
            transcript, calls, tokenizer, redactor, told, segment_tokens
        )
    else:
        extractor = ExtractiveWriter(transcript, calls, tokenizer, redactor, told)
    elider = Elider(calls, redactor, wishes.recall_tool)
    return _Planner(transcript, limits, wishes, tokenizer, elider, extractor).plan()


class _Planner:
    def __init__(
        self,
        transcript: Transcript,
        limits: PlanLimits,
        wishes: Wishes,
        tokenizer: Tokenizer,
        elider: Elider,
        extractor: ExtractiveWriter,
    ) -> None:
        self.transcript = transcript
        self.limits = limits
        self.wishes = wishes
        self.tokenizer = tokenizer
        self.elider = elider
        self.maker = LayoutMaker(transcript, limits, wishes, elider, tokenizer)
        self.extractor = extractor

    def plan(self) -> Plan:
        target = self.limits.target_tokens
        first = self.maker.layout(Sacrifice.NOTHING)
        elided = self._by_elision(first)
        if elided is not None:
            return self._with_more_tail(first, elided)
        for sacrifice in Sacrifice:
            layout = first if sacrifice is Sacrifice.NOTHING else self.maker.layout(sacrifice)
            least = self._least_handoff(layout, sacrifice)
            if layout.tokens + least <= target:
                plan = self._with_handoff(layout)
                if plan.tokens_after <= target:
                    return plan
        parts = self.maker.parts_of(layout)
        listed = ", ".join(f"{name} {tokens:,}" for name, tokens in parts.items())
        # A clipped request takes more of a larger target, so what surely works is room for all of it.
        enough = min(
            self.maker.layout(Sacrifice.TAIL).tokens + 2 * _LEAST_HANDOFF, self.transcript.total_tokens
        )
        unpin = " or unpin messages" if self.maker.pins else ""
        raise TargetTooSmall(
            f"a target of {target:,} tokens is too small for what may not be dropped: {listed}; "
            f"raise the target to at least {enough:,} tokens{unpin}",
            target_tokens=target,
            parts=parts,
        )

    def _least_handoff(self, layout: Layout, sacrifice: Sacrifice) -> int:
        """The tokens that must be left for a handoff: none in the end, unless the list cannot begin without."""
        if sacrifice < Sacrifice.REQUEST or self._needs_opening(layout):
            return _LEAST_HANDOFF
        return 0

    def _needs_opening(self, layout: Layout) -> bool:
        """Whether what stays begins with a speaker who may not open a conversation of this dialect."""
        if not any(isinstance(rule, UserOpens) for rule in self.transcript.dialect.rules):
            return False
        speakers = (
            self.transcript.messages[place].role for place in layout.positions(len(self.transcript.messages))
        )
        return next((role for role in speakers if role is not Role.SYSTEM), Role.USER) is not Role.USER

    # Eliding alone.

    def _by_elision(self, layout: Layout) -> Plan | None:
        """The plan that summarises nothing, or None when it does not reach the target."""
        messages, numbers = self.transcript.messages, self.transcript.numbers
        least = np.minimum(np.array(self.transcript.tokens), _LEAST_ELIDED).sum()
        if least > _ELISION_SHARE * self.limits.target_tokens:
            return None
        if any(self.transcript.origins[place] is None for place in self.transcript.handoffs):
            return None  # a handoff that was merged into a message cannot stand beside it
        rewritten = dict(layout.rewritten)
        islands = set(layout.islands)
        newest = self._newest_copies()
        for place in range(layout.head_end, layout.tail_start):
            if place in islands:
                continue
            parts = self.elider.results(messages[place], numbers[place])
            parts |= self._copies(place, newest)
            parts |= self.elider.arguments(messages[place], numbers[place])
            if parts:
                rewritten[place] = parts
        sizes = self._sizes(rewritten)
        total = sum(sizes)
        if total > _ELISION_SHARE * self.limits.target_tokens:
            return None
        rewritten = self._restore_lines(rewritten, self.limits.target_tokens - total)
        pieces = tuple(self._piece(place, rewritten) for place in range(len(messages)))
        return self._finish(pieces, layout, HandoffText("", {}))

    def _with_more_tail(self, layout: Layout, elided: Plan) -> Plan:
        """The plan, with a larger tail where the tail had to shrink and much room is left over."""
        spare = int(_ELISION_SHARE * self.limits.target_tokens) - elided.tokens_after
        if not layout.rewritten or spare <= 0:
            return elided
        return self._by_elision(self.maker.layout(Sacrifice.NOTHING, spare)) or elided

    def _newest_copies(self) -> dict[str, int]:
        """For each long result the number of the newest message that holds it."""
        return {
            part.text: number
            for message, number in zip(self.transcript.messages, self.transcript.numbers, strict=True)
            for part in message.parts
            if isinstance(part, ToolResult) and len(part.text) > 200
        }

    def _copies(self, place: int, newest: dict[str, int]) -> dict[int, Part]:
        number = self.transcript.numbers[place]
        parts: dict[int, Part] = {}
        for at, part in enumerate(self.transcript.messages[place].parts):
            if isinstance(part, ToolResult) and newest.get(part.text, number) != number:
                stub = f"{self.elider.stub(part, number)}, the same as {handle(newest[part.text])}"
                parts[at] = msgspec.structs.replace(part, text=stub, images=())
        return parts

    def _restore_lines(self, rewritten: dict[int, dict[int, Part]], room: int) -> dict[int, dict[int, Part]]:
        """Elided results with their most needed lines below the stub, as far as the room allows."""
        index = self.transcript.index
        choice = self.extractor.choice(
            live_of(self.transcript, self.maker.request, self.wishes.focus), headers=False
        )
        elided = np.isin(index.message_of_source, np.array(sorted(rewritten), np.int32))
        for source in np.flatnonzero(~elided).tolist():
            choice.cover(index.sources[source].distinct)
        visible = [
            part.text
            for parts in rewritten.values()
            for part in parts.values()
            if isinstance(part, ToolResult)
        ]
        choice.cover(index.vocabulary.known_in(visible), bare=True)
        results = index.speakers == Speaker.RESULT
        choice.fill((elided & results)[index.source_of], room - 2)
        target = self.limits.target_tokens
        while True:
            restored = self._with_lines(rewritten, choice)
            if sum(self._sizes(restored)) <= target or not choice.drop_last():
                return restored

    def _with_lines(
        self, rewritten: dict[int, dict[int, Part]], choice: ExcerptChoice
    ) -> dict[int, dict[int, Part]]:
        index = self.transcript.index
        lines: dict[tuple[int, str], list[str]] = {}
        for number in sorted(choice.chosen):
            source = int(index.source_of[number])
            key = (int(index.message_of_source[source]), index.tags[source])
            lines.setdefault(key, []).append(index.excerpt(number))
        restored = dict(rewritten)
        for (place, call_id), chosen in lines.items():
            parts = dict(restored[place])
            for at, part in parts.items():
                if isinstance(part, ToolResult) and part.call_id == call_id:
                    parts[at] = msgspec.structs.replace(part, text="\n".join([part.text, *chosen]))
                    break
            restored[place] = parts
        return restored

    # With a handoff.

    def _with_handoff(self, layout: Layout) -> Plan:
        role, layout = self._role(layout)
        stays = layout.positions(len(self.transcript.messages))
        room = self.limits.target_tokens - layout.tokens
        budget = room if self.limits.explicit else min(room, self.limits.handoff_tokens)
        beside = Surroundings(
            request=self.maker.request,
            stays=frozenset(stays),
            whole=frozenset(place for place in stays if place not in layout.rewritten),
            visible=[_spoken(part) for parts in layout.rewritten.values() for part in parts.values()],
            focus=self.wishes.focus,
        )
        gone = [place for place in range(len(self.transcript.messages)) if place not in beside.stays]
        after = [self.transcript.numbers[place] for place in stays[self._place_of_handoff(layout, role) :]]
        attributes = {AFTER: numbers_after([n for n in after if n], max(self.transcript.numbers))}
        if self.extractor.has_prose:
            attributes[WRITTEN_BY] = MODEL
        while True:
            note = self._note(budget)
            extract = self._extract(budget, note, attributes, role, beside)
            pieces = self._pieces(layout, extract, note, attributes, role, gone)
            plan = self._finish(pieces, layout, extract, budget)
            over = plan.tokens_after - self.limits.target_tokens
            if over <= 0 or not extract.text:
                return plan
            budget -= over + 1

    def _note(self, budget: int) -> str:
        """The first line of a handoff of at most so many tokens."""
        tool = self.wishes.recall_tool
        if budget < _SHORT_NOTE_BELOW:
            return f"{SHORT_NOTE} {tool} reads {self.extractor.handles}." if tool else SHORT_NOTE
        note = self.extractor.note
        return f"{note[:-1]}; {tool} reads them." if tool else note

    def _extract(
        self,
        budget: int,
        note: str,
        attributes: dict[str, str],
        role: Role | None,
        beside: Surroundings,
    ) -> HandoffText:
        def measure(text: str) -> int:
            wrapped = mark.wrap(f"{note}\n{text}", attributes, self.extractor.mark_version)
            return 4 + self.tokenizer.count(wrapped if role else wrapped + "\n\n")

        if budget < measure("") + 8:
            return HandoffText("", {})
        return self.extractor.write(budget, measure, beside)

    def _pieces(
        self,
        layout: Layout,
        extract: HandoffText,
        note: str,
        attributes: dict[str, str],
        role: Role | None,
        gone: Sequence[int],
    ) -> tuple[Piece, ...]:
        stays = layout.positions(len(self.transcript.messages))
        pieces = [self._piece(place, layout.rewritten) for place in stays]
        if not extract.text and not self._needs_opening(layout):
            return tuple(pieces)
        summary = Summary(f"{note}\n{extract.text}".rstrip(), self.extractor.mark_version, attributes)
        pieces.insert(self._place_of_handoff(layout, role), Handoff(summary, tuple(gone), role))
        return tuple(pieces)

    def _place_of_handoff(self, layout: Layout, role: Role | None) -> int:
        """Where it stands among what stays: after the head, or in front of the speaker it is merged into."""
        return layout.head_end if role is not None else self._next_speaker(layout)

    def _next_speaker(self, layout: Layout) -> int:
        """The first place after the head, among what stays, where not the system speaks."""
        messages = self.transcript.messages
        stays = layout.positions(len(messages))
        place = layout.head_end
        while place < len(stays) and messages[stays[place]].role is Role.SYSTEM:
            place += 1
        return place

    def _role(self, layout: Layout) -> tuple[Role | None, Layout]:
        """A role under which the handoff may stand, and the layout for it.

        Where neither role alternates with what is beside it, the head gives up its last messages if that
        helps; else the role is None and the handoff is merged into the message that follows.
        """
        legal = self.maker.cuts.legal
        shorter = [cut for cut in legal if self.maker.system_end <= cut < layout.head_end]
        for head_end in (layout.head_end, *reversed(shorter)):
            candidate = layout if head_end == layout.head_end else self.maker.with_head(layout, head_end)
            role = self._role_at(candidate)
            if role is not None:
                return role, candidate
        return None, layout

    def _role_at(self, layout: Layout) -> Role | None:
        messages, dialect = self.transcript.messages, self.transcript.dialect
        stays = layout.positions(len(messages))
        at = self._next_speaker(layout)
        spoken = [messages[place].role for place in stays[:at] if messages[place].role is not Role.SYSTEM]
        before = spoken[-1] if spoken else (Role.SYSTEM if at else None)
        after = messages[stays[at]].role if at < len(stays) else None
        for role in (Role.USER, Role.ASSISTANT):
            if dialect.can_follow(before, role) and (after is None or dialect.can_follow(role, after)):
                return role
        asks = at < len(stays) and stays[at] == self.maker.request
        if dialect.name == "chat" and asks and before in {None, Role.SYSTEM}:
            return Role.ASSISTANT  # the API takes it, and merging would change the bytes of the request
        return None

    # Both ways.

    def _piece(self, place: int, rewritten: dict[int, dict[int, Part]]) -> Piece:
        parts = rewritten.get(place)
        return Rewritten(place, parts) if parts else Kept(place)

    def _sizes(self, rewritten: dict[int, dict[int, Part]]) -> list[int]:
        messages = self.transcript.messages
        sizes = list(self.transcript.tokens)
        places = sorted(rewritten)
        changed = [as_message(Rewritten(place, rewritten[place]), messages) for place in places]
        for place, tokens in zip(places, weigh(changed, self.tokenizer), strict=True):
            sizes[place] = tokens
        return sizes

    def _finish(
        self, pieces: tuple[Piece, ...], layout: Layout, extract: HandoffText, handoff_room: int = 0
    ) -> Plan:
        """The plan with its exact size: what is new is weighed as it will stand on the wire."""
        transcript = self.transcript
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
                merged_tokens = self.tokenizer.count(wire_text(piece.summary))
                continue
            joined: tuple[Piece, ...] = (piece,) if merged is None else (merged, piece)
            merged = None
            wire = encode(joined, transcript, transcript.dialect)[0]
            made.append(transcript.dialect.decode(wire))
            places.append(_HANDOFF if isinstance(piece, Handoff) else piece.position)
        sizes.update(zip(places, weigh(made, self.tokenizer), strict=True))
        total = sum(sizes.values())
        handoff = sizes.pop(_HANDOFF, merged_tokens)
        return Plan(
            pieces=pieces,
            sizes=sizes,
            quoted=extract.quoted,
            standing=self._standing(layout),
            tokens_after=total,
            handoff_tokens=handoff,
            handoff_room=handoff_room,
            struck=extract.struck,
            nodes=extract.nodes,
        )

    def _standing(self, layout: Layout) -> KeptReasons:
        maker = self.maker
        return KeptReasons(
            system_end=maker.system_end,
            head_end=layout.head_end,
            tail_start=layout.tail_start,
            request=maker.request,
            pins=maker.pins,
            open=frozenset(maker.open),
            protect_first_n=self.limits.protect_first_n,
        )


def _spoken(part: Part) -> str:
    return part.text if isinstance(part, (Text, ToolResult)) else ""
