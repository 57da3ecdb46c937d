"""Lays out a view: decides which messages stay beside the handoff, and in which form.

The model reads the results that it has not answered yet next. They stay whole as far as their share goes; beyond it,
their most telling lines stay. If not everything fits, parts give way in a fixed order: first the head, then the tail
down to its last segment, then those results, then the whole tail, then the middle of the user's last request.

A compaction by the provider is a barrier: messages before it no longer count. It stays unchanged, and so does every
item that the provider needs to read the others.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from penstock.conversation.dialects import wire_of
from penstock.conversation.dialects.content import read_attachment
from penstock.conversation.dialects.wire_kinds import find_barrier, is_attachment, is_standing
from penstock.conversation.message import Opaque, Part, Role, Text, ToolResult, count_leading_system
from penstock.conversation.pairing import PartPlace, find_unanswered, has_result, match
from penstock.conversation.rules import Alternation, ServerTools, UserOpens
from penstock.conversation.speakers import last_request
from penstock.conversation.view import Rewritten, as_message
from penstock.measure.weigh import message_tokens
from penstock.writing.importance import answers_in_data
from penstock.writing.reading import spoken_text
from penstock.writing.replies import is_courtesy
from penstock.writing.telling import Teller, share_out
from penstock.writing.transcript import Cuts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.conversation.message import Message
    from penstock.measure.tokens import Tokenizer
    from penstock.planning.elide import Elider
    from penstock.writing.transcript import Transcript
    from penstock.writing.writer import Importance

__all__ = ["Layout", "LayoutMaker", "PlanLimits", "Rewrites", "Sacrifice", "Wishes"]

_LEAST_HARNESS = 40  # tokens of one harness text in a user message that stays,
_HARNESS_SHARE = 0.02  # or this share of the size to fill, where that is more
_DATA_SHARE = 0.735  # of the room for fresh results, where they are data: a table says it in less
_SHORT_TEXT = 60  # tokens: an assistant's text in the tail is not clipped below this
_LONG_LINE = 24  # characters: a shorter line may mean something else in another result
_LEAST_REQUEST = 24
_LEAST_FOR_HANDOFF = 60  # tokens, once everything but the request has given way
_ROOM_FOR_HANDOFF = 150  # tokens that a clipped request leaves for constraints and the mark


Rewrites: TypeAlias = "dict[int, dict[int, Part]]"
"""Replaced parts: by the position of the message, then by the index of the part in it."""


class PlanLimits(msgspec.Struct, frozen=True):
    """The tokens that each part of the result may take."""

    target_tokens: int
    tail_tokens: int
    tail_ceiling_tokens: int
    head_tokens: int
    fresh_tokens: int
    """For results that the model has not answered yet, apart from the tail."""
    handoff_tokens: int
    protect_first_n: int
    protect_last_n: int
    explicit: bool
    """True if the caller named the target."""
    spend_tokens: int
    """The size up to which leftover room is filled; never more than the target."""


class Wishes(msgspec.Struct, frozen=True):
    """The caller's wishes, apart from the size of the list."""

    focus: str = ""
    """A topic to keep in more detail."""
    pins: frozenset[int] = frozenset()
    """Numbers of messages to keep unchanged."""
    recall_tool: str | None = None
    """The name of the tool with which the agent reads originals, if it has one."""


class Sacrifice(IntEnum):
    """The last part of the view that was given up to make the rest fit."""

    NOTHING = 0
    HEAD = 1
    TAIL = 2
    FRESH = 3
    END = 4  # of the tail too, all but the request, pins, open calls and what the provider needs
    REQUEST = 5
    REQUEST_AND_END = 6


class Layout(msgspec.Struct, frozen=True):
    """Head, islands and tail, and the parts that are rewritten in them. `tokens` is the size of them all."""

    head_end: int
    islands: tuple[int, ...]
    tail_start: int
    rewritten: Rewrites
    tokens: int
    brought: frozenset[int] = frozenset()
    """Messages that stay because there is room for them: unanswered results, and messages that came back."""

    def positions(self, length: int) -> tuple[int, ...]:
        """Returns all positions that stay, in order."""
        return (*range(self.head_end), *self.islands, *range(self.tail_start, length))


class _LongText(NamedTuple):
    """A text in a message: its tokens, the index of its part, and the text itself."""

    tokens: int
    at: int
    text: str


class LayoutMaker:
    """Lays out one transcript. `importance` scores how likely each value is to be needed."""

    def __init__(
        self,
        transcript: Transcript,
        limits: PlanLimits,
        wishes: Wishes,
        elider: Elider,
        tokenizer: Tokenizer,
        importance: Importance | None,
    ) -> None:
        self._transcript = transcript
        self._limits = limits
        self._elider = elider
        self._tokenizer = tokenizer
        self.request = last_request(transcript.messages)
        self._teller = Teller(transcript, self.request, wishes.focus, tokenizer, importance)
        self.system_end = count_leading_system(transcript.messages)
        self.open = _find_open(transcript)
        self.pins = _places_of(wishes.pins, transcript)
        self.barrier = find_barrier(transcript.messages, transcript.landmarks.opaque)
        self.standing = find_standing(transcript, self.barrier)
        if self.barrier is not None and self.barrier in self.open:
            # A handoff comes after the barrier, and nothing of ours may come after an open call: its turn stays whole.
            self.standing |= frozenset(range(self.barrier + 1, len(transcript.messages)))
        fixed = {*self.pins, self.request}
        self.fresh = tuple(place for place in find_unanswered(transcript.messages) if place not in fixed)
        self._fresh_tokens = limits.fresh_tokens
        if self.fresh and answers_in_data(transcript.index):
            self._fresh_tokens = int(limits.fresh_tokens * _DATA_SHARE)
        # Harness text gives way before anything else: everything below plans with the rest of it.
        self._trimmed = self._trim_harness(max(_LEAST_HARNESS, int(limits.spend_tokens * _HARNESS_SHARE)))
        self._sizes = list(transcript.tokens)
        for place in self._trimmed:
            self._sizes[place] = self.size(place, self._trimmed)
        before = [0, *accumulate(self._sizes)]
        self.cuts = Cuts(transcript.legal, tuple(before))
        # A barrier stands for everything before this position, so that it no longer counts.
        self.floor = self.system_end if self.barrier is None else self.cuts.segment(self.barrier)[0]

    def lay_out(self, sacrifice: Sacrifice) -> Layout:
        """Returns the layout after this sacrifice."""
        limits = self._limits
        if sacrifice < Sacrifice.FRESH:
            return self._arrange(sacrifice, self._fresh_tokens)
        if sacrifice is Sacrifice.FRESH:  # the room that remains when all the rest has given way
            others = self._arrange(Sacrifice.TAIL, 0).tokens
            left = limits.target_tokens - others - min(_LEAST_FOR_HANDOFF, limits.target_tokens // 5)
            return self._arrange(sacrifice, min(self._fresh_tokens, max(0, left)))
        if sacrifice in {Sacrifice.END, Sacrifice.REQUEST_AND_END}:
            return self._arrange(sacrifice, 0)
        some = self._arrange(sacrifice, self._fresh_tokens // 2)
        return some if some.tokens <= limits.target_tokens else self._arrange(sacrifice, 0)

    def _arrange(self, sacrifice: Sacrifice, fresh_tokens: int) -> Layout:
        """Returns the layout after this sacrifice, with `fresh_tokens` for fresh results."""
        limits = self._limits
        length = len(self._transcript.messages)
        hard = sacrifice >= Sacrifice.TAIL
        given = _merge(self._trimmed, self.tell_results(self.fresh, fresh_tokens))
        # Fresh results have a share of their own, so only the rest of the tail counts against its limit.
        whole = sum(self._sizes[place] for place in self.fresh)
        now = self._tokens(self.fresh, given)
        tail_limit = 0 if hard else limits.tail_ceiling_tokens
        start = self.cuts.tail_start(
            0 if hard else limits.tail_tokens + whole,
            0 if hard else tail_limit + whole,
            1 if hard else limits.protect_last_n,
            self.system_end,
        )
        start, rewritten = self._fit_tail(max(start, self.floor), tail_limit + now, given)
        if sacrifice in {Sacrifice.END, Sacrifice.REQUEST_AND_END}:
            start, rewritten = length, given
        head_end = self.system_end
        if sacrifice < Sacrifice.HEAD and self.barrier is None:
            system = self.cuts.tokens(0, self.system_end)
            ceiling = min(start, self._first_handoff())
            head_end = self.cuts.head_end(
                limits.protect_first_n,
                system + limits.head_tokens,
                self.system_end,
                max(ceiling, self.system_end),
            )
            if not any(map(self._says_something, range(self.system_end, head_end))):
                head_end = (
                    self.system_end
                )  # a harness or a greeting says nothing there that has to stand first
        # What was not answered stays also where other messages follow it, as long as there is room.
        fresh = frozenset(self.fresh if sacrifice < Sacrifice.FRESH else ())
        islands = self._islands(head_end, start, fresh)
        rewritten = self._squeeze(islands, rewritten)
        if sacrifice >= Sacrifice.REQUEST and self.request is not None:
            stays = (*range(head_end), *islands, *range(start, length))
            others = self._tokens([place for place in stays if place != self.request], rewritten)
            room = limits.target_tokens - others
            for_handoff = min(_ROOM_FOR_HANDOFF, limits.target_tokens // 5)
            rewritten = {
                **rewritten,
                **self._clip_request(max(room - for_handoff, min(room, 2 * _LEAST_REQUEST))),
            }
        places = (*range(head_end), *islands, *range(start, length))
        rewritten = {place: parts for place, parts in rewritten.items() if place in places}
        return Layout(head_end, islands, start, rewritten, self._tokens(places, rewritten), fresh)

    def _says_something(self, place: int) -> bool:
        """Returns whether a person speaks in this message, and says more than is polite."""
        text = spoken_text(self._transcript.messages[place])
        return place in self._transcript.people and not is_courtesy(text.strip())

    def start_at(self, tail_start: int) -> Layout:
        """Returns the layout without a head and with all messages from this position on, unchanged."""
        islands = self._islands(self.system_end, tail_start, frozenset())
        places = (*range(self.system_end), *islands, *range(tail_start, len(self._transcript.messages)))
        return Layout(self.system_end, islands, tail_start, {}, self._tokens(places, {}))

    def count_front(self, layout: Layout) -> int:
        """Returns how many messages stay before the handoff: the head, and everything up to a barrier."""
        if self.barrier is None or self.barrier >= layout.tail_start:
            return layout.head_end
        end = self.cuts.segment(self.barrier)[1]
        return layout.head_end + sum(place < end for place in layout.islands)

    def shorten_head(self, layout: Layout, head_end: int) -> Layout:
        """Returns the layout with a shorter head."""
        return self._relay(layout, head_end, layout.brought, layout.rewritten)

    def widen(self, layout: Layout, brought: frozenset[int], rewritten: Rewrites) -> Layout:
        """Returns the layout with these messages brought back, and with only these parts rewritten."""
        return self._relay(layout, layout.head_end, brought, rewritten)

    def part_neighbours(self, layout: Layout, brought: set[int]) -> set[int]:
        """Returns the messages to bring back, except any that would put two turns of one role next to each other.

        Many servers refuse such a list (`Alternation`). Neighbours of one role that the caller sent may stay, and so may
        the messages that the layout has brought back already.
        """
        messages = self._transcript.messages
        if not any(isinstance(rule, Alternation) for rule in self._transcript.dialect.rules):
            return brought
        while True:  # a few rounds: removing a message may make others neighbours
            islands = self._islands(layout.head_end, layout.tail_start, frozenset(brought))
            wider = msgspec.structs.replace(layout, islands=islands)
            stays, front = wider.positions(len(messages)), self.count_front(wider)
            late = brought - layout.brought
            clashing: set[int] = set()
            for at, (one, other) in enumerate(pairwise(stays), 1):
                role = messages[one].role
                apart = other == one + 1 or at == front or role not in {Role.USER, Role.ASSISTANT}
                if apart or messages[other].role is not role or one in clashing:
                    continue
                place = other if other in late else one
                if place in late:
                    clashing.update(range(*self.cuts.segment(place)))
            if not clashing:
                return brought
            brought = brought - clashing

    def _relay(self, layout: Layout, head_end: int, brought: frozenset[int], rewritten: Rewrites) -> Layout:
        islands = self._islands(head_end, layout.tail_start, brought)
        places = (*range(head_end), *islands, *range(layout.tail_start, len(self._transcript.messages)))
        return Layout(
            head_end, islands, layout.tail_start, rewritten, self._tokens(places, rewritten), brought
        )

    def tokens_by_part(self, layout: Layout) -> dict[str, int]:
        """Returns the tokens of each part of the layout that is not empty, for the error that lists them."""
        parts: dict[str, int] = {}
        for place in layout.positions(len(self._transcript.messages)):
            if place < self.system_end:
                name = "system prompt"
            elif place in self.pins:
                name = "pinned messages"
            elif place in self.open:
                name = "open calls"
            elif place == self.request:
                name = "last user message"
            elif place in self.standing:
                name = "items that the provider needs"
            else:
                name = (
                    "messages that belong to these" if place in layout.islands else "end of the conversation"
                )
            parts[name] = parts.get(name, 0) + self.size(place, layout.rewritten)
        return {name: tokens for name, tokens in parts.items() if tokens}

    def _first_handoff(self) -> int:
        """Returns the position of the first earlier handoff. The head ends before it; the new handoff replaces it."""
        return next(iter(self._transcript.handoffs), len(self._transcript.messages))

    def _islands(self, head_end: int, tail_start: int, brought: frozenset[int]) -> tuple[int, ...]:
        """Returns the messages that stay between head and tail, each with those that it may not be separated from."""
        wanted = {*self.pins, *self.open, *self.standing, *brought}
        if self.request is not None:
            wanted.add(self.request)
        islands: set[int] = set()
        for place in wanted:
            if head_end <= place < tail_start:
                islands.update(range(*self.cuts.segment(place)))
        islands = {place for place in islands if head_end <= place < tail_start}
        return tuple(sorted(islands | self._opener(min(islands, default=tail_start))))

    def _opener(self, first: int) -> set[int]:
        """Returns the user's shortest message before the first that stays, if that one may not open the list.

        Without a barrier a handoff opens the list. With one it cannot, since it comes after the barrier.
        """
        messages = self._transcript.messages
        rule = next((one for one in self._transcript.dialect.rules if isinstance(one, UserOpens)), None)
        if rule is None or self.barrier is None or first == len(messages) or rule.may_open(messages[first]):
            return set()
        segments = {self.cuts.segment(place) for place in range(self.system_end, first)}
        opening = [one for one in segments if one[1] <= first and rule.may_open(messages[one[0]])]
        return set(range(*min(opening, key=lambda one: (self.cuts.tokens(*one), one)))) if opening else set()

    def _squeeze(self, islands: Iterable[int], rewritten: Rewrites) -> Rewrites:
        """Adds the neighbours of standing items, in the same message or segment, as small as they can be made."""
        if not self.standing:
            return rewritten
        fixed = {*self.pins, *self.open, *self.fresh, self.request}
        beside = {one for place in self.standing for one in range(*self.cuts.segment(place))}
        squeezed = dict(rewritten)
        for place in islands:
            if (place in beside or place < self.floor) and place not in fixed:
                message, number = self._transcript.messages[place], self._transcript.numbers[place]
                parts = self._elide_results(place, 0) | self._shorten_arguments(place, 0)
                for at, part in enumerate(message.parts):
                    if isinstance(part, Text):
                        long = _LongText(self._tokenizer.count(part.text), at, part.text)
                        if long.tokens > _SHORT_TEXT:
                            parts[at] = self._clip(long, _SHORT_TEXT, number)
                if parts:
                    squeezed[place] = squeezed.get(place, {}) | parts
        return squeezed

    def tell_results(self, places: Iterable[int], allowed: int) -> Rewrites:
        """Shortens those results of these messages that exceed an equal part of `allowed` tokens; returns them.

        Their most telling lines stay. Tokens that shorter results do not need go to the longer ones, and tokens that one result
        leaves because no further line fits go to the next.
        """
        messages = self._transcript.messages
        results = [
            (place, at, self._tokenizer.count(part.text))
            for place in places
            for at, part in enumerate(messages[place].parts)
            if isinstance(part, ToolResult)
        ]
        shares = share_out([size for _, _, size in results], allowed)
        rewritten: Rewrites = {}
        told: set[str] = (
            set()
        )  # what several results say alike is told once: an address in each of six orders
        left = 0
        for (place, at, size), share in zip(results, shares, strict=True):
            if share < size:
                number = self._transcript.numbers[place]
                part = self._elider.tell_result(messages[place], at, number, share + left, self._teller, told)
                if part is not None:
                    left += share - self._tokenizer.count(part.text)
                    rewritten.setdefault(place, {})[at] = part
                    told.update(line for line in part.text.split("\n") if len(line) >= _LONG_LINE)
        return rewritten

    def _fit_tail(self, start: int, limit: int, given: Rewrites) -> tuple[int, Rewrites]:
        """Returns a tail from `start` on that keeps to the limit: results give way, then arguments, texts, its start.

        `given` holds the parts that are rewritten already.
        """
        while True:
            rewritten = self._shrink(start, limit, given)
            if self._tokens(range(start, len(self._transcript.messages)), rewritten) <= limit:
                return start, rewritten
            shorter = self.cuts.shorter_tail(start)
            if shorter is None:
                return start, rewritten
            start = shorter

    def _shrink(self, start: int, limit: int, given: Rewrites) -> Rewrites:
        sizes = self._sizes
        places = range(start, len(sizes))
        rewritten: Rewrites = dict(given)
        excess = self._tokens(places, rewritten) - limit
        if excess <= 0:
            return rewritten
        fixed = {*self.pins, *self.open, *self.fresh, self.request}
        free = [place for place in places if place not in fixed]
        for step in (self._elide_results, self._shorten_arguments, self._clip_texts):
            for place in sorted(free, key=lambda place: -sizes[place]):
                if excess <= 0:
                    return rewritten
                if parts := step(place, excess):
                    before = self.size(place, rewritten)
                    rewritten[place] = {**rewritten.get(place, {}), **parts}
                    excess -= before - self.size(place, rewritten)
        return rewritten

    def _elide_results(self, place: int, _excess: int) -> dict[int, Part]:
        return self._elider.elide_results(self._transcript.messages[place], self._transcript.numbers[place])

    def _shorten_arguments(self, place: int, _excess: int) -> dict[int, Part]:
        return self._elider.shorten_arguments(
            self._transcript.messages[place], self._transcript.numbers[place]
        )

    def _clip_texts(self, place: int, excess: int) -> dict[int, Part]:
        """Returns the assistant's longest text without the excess."""
        message, number = self._transcript.messages[place], self._transcript.numbers[place]
        if message.role is not Role.ASSISTANT:
            return {}
        longest = self._longest_text(message)
        if longest is None or longest.tokens <= _SHORT_TEXT:
            return {}
        return {longest.at: self._clip(longest, max(_SHORT_TEXT, longest.tokens - excess - 2), number)}

    def _clip_request(self, room: int) -> Rewrites:
        """Returns the last request with its longest text clipped, or all long ones, to fit `room` tokens."""
        place = self.request
        if place is None or place in self.pins or self._sizes[place] <= room:
            return {}
        message, number = self._transcript.messages[place], self._transcript.numbers[place]
        parts = {**self._trimmed.get(place, {}), **self._elider.elide_results(message, number)}
        parts |= self._clip_attachment(message, number, room - self.size(place, {place: parts}))
        texts = self._texts_of(as_message(Rewritten(place, parts), self._transcript))
        size = self.size(place, {place: parts})
        if texts and size > room:
            longest = max(texts)
            limit = room - 2 - (size - longest.tokens)
            if limit >= _LEAST_REQUEST or len(texts) == 1:
                parts[longest.at] = self._clip(longest, max(_LEAST_REQUEST, limit), number)
            else:
                parts |= self._level_texts(texts, room - (size - sum(one.tokens for one in texts)), number)
        return {place: parts} if parts else {}

    def _level_texts(self, texts: list[_LongText], room: int, number: int) -> dict[int, Part]:
        """Cuts the longest texts to a common length, so that all together fit `room` tokens; returns those it cut."""
        left, length = room, room
        for rank, tokens in enumerate(sorted(one.tokens for one in texts)):
            length = left // (len(texts) - rank)
            if tokens > length:
                break
            left -= tokens
        length = max(_LEAST_REQUEST, length - 2)
        return {one.at: self._clip(one, length, number) for one in texts if one.tokens > length}

    def _clip_attachment(self, message: Message, number: int, room: int) -> dict[int, Part]:
        """Returns the longest plain-text attachment as a text part: its name, then its start and end, within the room."""
        texts = [
            (len(text), at, part, text)
            for at, part in enumerate(message.parts)
            if isinstance(part, Opaque) and is_attachment(part) and (text := read_attachment(part)[1])
        ]
        if not texts:
            return {}
        _, at, part, text = max(texts)
        name = self._elider.name_attachment(part, number)
        clipped = self._elider.clip(text, room - 4, number, self._tokenizer.count)
        return {at: Text(f"{name}\n{clipped}")} if room > _LEAST_REQUEST else {}

    def _trim_harness(self, limit: int) -> Rewrites:
        """Returns the user messages with much text from a harness, each such text cut to `limit` tokens."""
        transcript = self._transcript
        newest: dict[str, int] = {}
        trimmed: Rewrites = {}
        for place in reversed(transcript.landmarks.users):
            if place in self.pins or transcript.tokens[place] <= limit:
                continue
            message = transcript.messages[place]
            number = transcript.numbers[place]
            if parts := self._elider.trim_harness(message, number, limit, self._tokenizer.count, newest):
                trimmed[place] = parts
        return trimmed

    def trim_less(self, place: int, rewritten: Rewrites, room: int) -> dict[int, Part]:
        """Returns a trimmed message with more of its harness text, as far as it fits the room; empty if it is not trimmed."""
        trimmed = self._trimmed.get(place)
        if not trimmed or rewritten.get(place) != trimmed:
            return {}
        message, number = self._transcript.messages[place], self._transcript.numbers[place]
        now = self.size(place, rewritten)
        # Several texts in one message share the room, and cutting them is not exact to the token.
        for share in (0.99, 0.95, 0.8, 0.6):
            limit = int((now + room) * share / len(trimmed))
            parts = self._elider.trim_harness(message, number, limit, self._tokenizer.count, {})
            if 0 < self.size(place, {place: parts}) - now <= room:
                return parts
        return {}

    def clip_less(self, place: int, rewritten: Rewrites, room: int) -> dict[int, Part]:
        """Returns a message whose longest text was clipped with as much more of it as fits the room; empty if it was not clipped."""
        message, number = self._transcript.messages[place], self._transcript.numbers[place]
        parts, long = rewritten.get(place, {}), self._longest_text(message)
        if long is None or long.at not in parts or place in self._trimmed:
            return {}
        now = self.size(place, rewritten)
        clipped = parts[long.at]
        tokens = self._tokenizer.count(clipped.text) if isinstance(clipped, Text) else 0
        for share in (0.99, 0.9, 0.7):
            longer = parts | {long.at: self._clip(long, tokens + int(room * share), number)}
            if 0 < self.size(place, {place: longer}) - now <= room:
                return longer
        return {}

    def _longest_text(self, message: Message) -> _LongText | None:
        """Returns the longest text of the message by tokens; of several, the last."""
        return max(self._texts_of(message), default=None)

    def _texts_of(self, message: Message) -> list[_LongText]:
        count = self._tokenizer.count
        return [
            _LongText(count(part.text), at, part.text)
            for at, part in enumerate(message.parts)
            if isinstance(part, Text)
        ]

    def _clip(self, long: _LongText, limit: int, number: int) -> Text:
        return Text(self._elider.clip(long.text, limit, number, self._tokenizer.count))

    def size(self, place: int, rewritten: Rewrites) -> int:
        """Returns the tokens of the message at this position with these rewritten parts."""
        parts = rewritten.get(place)
        if not parts:
            return self._transcript.tokens[place]
        piece = Rewritten(place, parts)
        return message_tokens(as_message(piece, self._transcript, self._transcript.dialect), self._tokenizer)

    def _tokens(self, places: range | tuple[int, ...] | list[int], rewritten: Rewrites) -> int:
        return sum(self.size(place, rewritten) for place in places)


def find_standing(transcript: Transcript, barrier: int | None) -> frozenset[int]:
    """Returns the positions of the newest barrier, of items that a request fails without, and of the items they refer to.

    A reference may stand for a call that only the provider has. So if there are references, outputs without a call stay.
    """
    messages = transcript.messages
    standing = {
        place for place in transcript.landmarks.opaque if any(map(is_standing, messages[place].parts))
    }
    references = {
        wire_of(transcript[place], transcript.dialect).get("id")
        for place in standing
        if any(isinstance(part, Opaque) and part.kind == "item_reference" for part in messages[place].parts)
    }
    if references:
        standing.update(
            place
            for place in range(len(messages))
            if wire_of(transcript[place], transcript.dialect).get("id") in references
        )
        answered = {result for _, result in match(messages, transcript.dialect.pairing).pairs}
        standing.update(
            place
            for place, message in enumerate(messages)
            for at, part in enumerate(message.parts)
            if isinstance(part, ToolResult) and PartPlace(place, at) not in answered
        )
    return frozenset(standing if barrier is None else {*standing, barrier})


def _find_open(transcript: Transcript) -> set[int]:
    """Returns the positions of calls that have no result yet, the provider's own included.

    Only the last turn can have them: opening the list gave every older call without a result a stub.
    """
    messages = transcript.messages
    rules = (rule for rule in transcript.dialect.rules if isinstance(rule, ServerTools))
    start = len(messages) - 1
    while start > 0 and (messages[start].role is not Role.USER or has_result(messages[start])):
        start -= 1
    found = match(messages[start:], transcript.dialect.pairing).open
    return {start + place.message for place in found}.union(*(rule.open_uses(messages) for rule in rules))


def _merge(some: Rewrites, others: Rewrites) -> Rewrites:
    return {place: some.get(place, {}) | others.get(place, {}) for place in some.keys() | others.keys()}


def _places_of(numbers: frozenset[int], transcript: Transcript) -> frozenset[int]:
    """Returns the positions of the messages with these numbers; never a handoff's, whose number is 0."""
    if not numbers:
        return frozenset()
    return frozenset(place for place, number in enumerate(transcript.numbers) if number and number in numbers)
