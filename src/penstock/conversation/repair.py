"""Mend what was already broken in the input, so that the result of a compaction can be legal.

Messages that need no mending are the same objects. For the others `Repaired.mends` says what was done and
why, and `Repaired.sources` says for every message where it stood before: neither has to be guessed from the
two lists.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects.protocol import RESPONSES_ITEMS
from penstock.conversation.message import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from penstock.conversation.pairing import (
    Matching,
    Pairing,
    PartPlace,
    has_call,
    has_result,
    match,
    results_end,
)
from penstock.conversation.rules import (
    OPENING_TEXT,
    NonEmpty,
    ReasoningStays,
    ServerTools,
    ThinkingFirst,
    UserOpens,
    first_speaker,
    has_late_thinking,
    is_blank,
    is_reasoning_item,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.conversation.dialects.base import Dialect

__all__ = ["NO_RESULT", "OPENING_TEXT", "Mend", "MendAction", "Repaired", "repair"]

NO_RESULT = "[no result was recorded for this call]"

_BLANK = "blank text"
_NO_CONTENT = "a message without content"
_NO_USE = "the result of a server tool without its use"
_THINKING_LATE = "thinking that did not stand first"
_TAKEN_ID = "a call id that was used twice"
_NO_CALL = "a result without its call"
_UNANSWERED = "a call without a result"
_DANGLING = "reasoning without the item that it led to"
_NO_OPENING = "a conversation that the user did not open"


class MendAction(StrEnum):
    """The ways in which repair deals with a message."""

    REMOVED = "removed"
    CHANGED = "changed"
    ADDED = "added"


class Mend(msgspec.Struct, frozen=True):
    """One message that was removed, changed or added, and the fault that this mends.

    `source` is its index in the list as it was, None for one that was added. `place` is its index in the
    mended list, None for one that was removed.
    """

    action: MendAction
    source: int | None
    place: int | None
    reason: str


class Repaired(msgspec.Struct, frozen=True):
    """The mended list, and how many parts or messages were removed, stood in for, or given another id.

    `sources` has for each message its index in the list as it was, None for one that was added. `mends` tells
    of those that are not as they were: the removed ones first, then the others in their order.
    """

    messages: list[Message]
    sources: Sequence[int | None] = ()
    mends: tuple[Mend, ...] = ()
    removed: int = 0
    stubbed: int = 0
    renamed: int = 0


def repair(messages: Sequence[Message], dialect: Dialect) -> Repaired:
    """Returns a list that passes `check` with the dialect's rules.

    Results without a call are removed, calls without a result get a stub directly after their batch, a
    call whose id is taken gets another one together with its result. Calls at the very end may still run
    and are left as they are. Blank text, dangling reasoning and late thinking are mended where the dialect
    has a rule against them.
    """
    mending = _Mending(list(messages), dialect)
    rules = {type(rule): rule for rule in dialect.rules}
    if NonEmpty in rules:
        mending.drop_blank()
    if isinstance(server_tools := rules.get(ServerTools), ServerTools):
        mending.drop_parts(server_tools.orphans(mending.messages), _NO_USE)
    if ThinkingFirst in rules:
        mending.move_thinking_first()
    mending.mend_pairs()
    if ReasoningStays in rules:
        mending.drop_dangling_reasoning()
    if isinstance(opening := rules.get(UserOpens), UserOpens):
        mending.open_with_user(opening)
    return mending.finish()


class _Mending:
    """The list while it is mended. Lives inside one call of `repair`.

    `keys` runs beside `messages`: the index of a message in the list as it was, or a number under 0 for one
    that was added, so that reasons can be noted for both.
    """

    def __init__(self, messages: list[Message], dialect: Dialect) -> None:
        self.messages = messages
        self.keys = list(range(len(messages)))
        self.dialect = dialect
        self.reasons: dict[int, list[str]] = {}
        self.removed = self.stubbed = self.renamed = 0

    def finish(self) -> Repaired:
        sources = [None if key < 0 else key for key in self.keys]
        return Repaired(self.messages, sources, self._mends(), self.removed, self.stubbed, self.renamed)

    def _mends(self) -> tuple[Mend, ...]:
        if not self.reasons:
            return ()
        place_of = {key: place for place, key in enumerate(self.keys)}
        removed: list[Mend] = []
        standing: list[Mend] = []
        for key, reasons in sorted(self.reasons.items()):
            reason = ", ".join(dict.fromkeys(reasons))
            place = place_of.get(key)
            if place is None:
                removed.append(Mend(MendAction.REMOVED, key, None, reason))
            elif key < 0:
                standing.append(Mend(MendAction.ADDED, None, place, reason))
            else:
                standing.append(Mend(MendAction.CHANGED, key, place, reason))
        return (*removed, *sorted(standing, key=lambda mend: mend.place or 0))

    def _note(self, key: int, reason: str) -> None:
        self.reasons.setdefault(key, []).append(reason)

    def _new_key(self, reason: str) -> int:
        """Returns the key of a message that is added."""
        key = min(-1, min(self.reasons, default=0) - 1)
        self._note(key, reason)
        return key

    def _keep(self, places: Sequence[int]) -> None:
        """Go on with the messages at these places."""
        self.messages = [self.messages[place] for place in places]
        self.keys = [self.keys[place] for place in places]

    def drop_blank(self) -> None:
        blank = [
            PartPlace(index, number)
            for index, message in enumerate(self.messages)
            for number, part in enumerate(message.parts)
            if is_blank(part)
        ]
        self.drop_parts(blank, _BLANK)
        last = len(self.messages) - 1
        empty = [
            index
            for index, message in enumerate(self.messages)
            if not message.parts and not (index == last and message.role is Role.ASSISTANT)
        ]
        self._drop(empty, _NO_CONTENT)

    def _drop(self, places: Sequence[int], reason: str) -> None:
        """Remove the messages at these places."""
        if not places:
            return
        for place in places:
            self._note(self.keys[place], reason)
        dropped = set(places)
        self._keep([place for place in range(len(self.messages)) if place not in dropped])
        self.removed += len(places)

    def drop_parts(self, places: Sequence[PartPlace], reason: str) -> None:
        """Remove these parts, and with them every message that has no other."""
        if not places:
            return
        dropped: dict[int, set[int]] = {}
        for place in places:
            dropped.setdefault(place.message, set()).add(place.part)
        emptied: set[int] = set()
        for index, parts in dropped.items():
            message = self.messages[index]
            left = [number for number in range(len(message.parts)) if number not in parts]
            self._note(self.keys[index], reason)
            if left:
                self.messages[index] = self._select(message, left)
            else:
                emptied.add(index)
        if emptied:
            self._keep([place for place in range(len(self.messages)) if place not in emptied])
        self.removed += len(places)

    def move_thinking_first(self) -> None:
        for index, message in enumerate(self.messages):
            if has_late_thinking(message):
                late = {number for number, part in enumerate(message.parts) if type(part) is Reasoning}
                order = [
                    *sorted(late),
                    *(number for number in range(len(message.parts)) if number not in late),
                ]
                self.messages[index] = self._select(message, order)
                self._note(self.keys[index], _THINKING_LATE)

    def mend_pairs(self) -> None:
        """Rename, remove and answer, each on the pairs as the step before left them."""
        pairing = self.dialect.pairing
        matching = match(self.messages, pairing)
        if matching.repeated:
            self._rename_repeated(matching)
            matching = match(self.messages, pairing)
        if matching.orphans:
            self.drop_parts(matching.orphans, _NO_CALL)
            matching = match(self.messages, pairing)
        if matching.unanswered:
            self._answer(matching.unanswered)

    def _rename_repeated(self, matching: Matching) -> None:
        """Give each later bearer of an id another one, its result too."""
        answers = {call: result for call, result in matching.pairs if call.part >= 0}
        taken = {
            part.call_id for message in self.messages for part in message.parts if isinstance(part, ToolCall)
        }
        changes: dict[int, dict[int, Part]] = {}
        counts: dict[str, int] = {}
        for place in matching.repeated:
            call = self.messages[place.message].parts[place.part]
            fresh = _fresh_id(call.call_id if isinstance(call, ToolCall) else "", taken, counts)
            for bearer in filter(None, (place, answers.get(place))):
                part = self.messages[bearer.message].parts[bearer.part]
                if isinstance(part, ToolCall | ToolResult):
                    renamed = msgspec.structs.replace(part, call_id=fresh)
                    changes.setdefault(bearer.message, {})[bearer.part] = renamed
            self.renamed += 1
        for index, parts in changes.items():
            self.messages[index] = self._rewrite(self.messages[index], parts)
            self._note(self.keys[index], _TAKEN_ID)

    def _answer(self, unanswered: Sequence[PartPlace]) -> None:
        """Put a stub result directly after the batch of each of these calls."""
        stubs: dict[int, list[ToolResult]] = {}
        for place in unanswered:
            call = self.messages[place.message].parts[place.part]
            if isinstance(call, ToolCall):
                end = self._batch_end(place.message)
                stubs.setdefault(end, []).append(ToolResult(call.call_id, NO_RESULT, kind=_answer_kind(call)))
        self.stubbed += len(unanswered)
        self._insert(stubs)

    def _batch_end(self, index: int) -> int:
        """Returns the end of the batch of the message at `index`: after its calls and their results."""
        end = index + 1
        while end < len(self.messages) and self._continues(end):
            end += 1
        pairing = self.dialect.pairing
        return end if pairing is Pairing.ANYWHERE else results_end(self.messages, end, pairing)

    def _continues(self, index: int) -> bool:
        """Returns whether the message belongs to the calls of the one before it."""
        if self.dialect.pairing is Pairing.ANYWHERE:
            return has_call(self.messages[index])
        return self.dialect.pairing is Pairing.MERGED and self.messages[index].role is Role.ASSISTANT

    def _insert(self, stubs: Mapping[int, list[ToolResult]]) -> None:
        """Put results before the messages at these places, into a neighbour where results share a message."""
        share = self.dialect.results_share
        messages, keys = self.messages, self.keys
        self.messages, self.keys = [], []
        for index in range(len(messages) + 1):
            message = messages[index] if index < len(messages) else None
            results = stubs.get(index)
            if results and share is None:
                for result in results:
                    self._add(Message(Role.TOOL, (result,)))
            elif (
                results
                and self.messages
                and has_result(self.messages[-1])
                and not has_call(self.messages[-1])
            ):
                self.messages[-1] = self._add_results(self.messages[-1], results)
                self._note(self.keys[-1], _UNANSWERED)
            elif results and share is Role.USER and message is not None and message.role is Role.USER:
                message = self._add_results(message, results)
                self._note(keys[index], _UNANSWERED)
            elif results:
                self._add(Message(share or Role.TOOL, tuple(results)))
            if message is not None:
                self.messages.append(message)
                self.keys.append(keys[index])

    def _add(self, message: Message) -> None:
        self.messages.append(self._remake(message, message.parts, None))
        self.keys.append(self._new_key(_UNANSWERED))

    def drop_dangling_reasoning(self) -> None:
        dangling: list[int] = []
        follower: Message | None = None
        for index in range(len(self.messages) - 1, -1, -1):
            message = self.messages[index]
            if is_reasoning_item(message) and follower is not None and follower.role is not Role.ASSISTANT:
                dangling.append(index)
            else:
                follower = message
        self._drop(dangling, _DANGLING)

    def open_with_user(self, rule: UserOpens) -> None:
        first = first_speaker(self.messages)
        if first < len(self.messages) and not rule.may_open(self.messages[first]):
            self.messages.insert(first, Message(Role.USER, (Text(OPENING_TEXT),)))
            self.keys.insert(first, self._new_key(_NO_OPENING))
            self.stubbed += 1

    def _select(self, message: Message, order: Sequence[int]) -> Message:
        parts = tuple(message.parts[number] for number in order)
        return self._remake(
            message, parts, None if message.origin is None else self.dialect.keep(message, order)
        )

    def _rewrite(self, message: Message, changes: Mapping[int, Part]) -> Message:
        parts = tuple(changes.get(number, part) for number, part in enumerate(message.parts))
        return self._remake(
            message, parts, None if message.origin is None else self.dialect.rewrite(message, changes)
        )

    def _add_results(self, message: Message, results: Sequence[ToolResult]) -> Message:
        at = (
            max(
                (number for number, part in enumerate(message.parts) if isinstance(part, ToolResult)),
                default=-1,
            )
            + 1
        )
        parts = (*message.parts[:at], *results, *message.parts[at:])
        return self._remake(
            message, parts, None if message.origin is None else self.dialect.add_results(message, results)
        )

    def _remake(self, message: Message, parts: tuple[Part, ...], wire: dict[str, Any] | None) -> Message:
        """Returns the message with other parts, as the wire object now says them."""
        made = Message(message.role, parts)
        read = self.dialect.decode(self.dialect.build(made) if wire is None else wire)
        if wire is None and any(isinstance(part, ToolResult) and part.kind for part in parts):
            parts = read.parts  # not every kind of output holds the text
        return Message(message.role, parts, wire, read.beside, read.written)


def _answer_kind(call: ToolCall) -> str:
    """Returns the type of the output that the call wants, empty for the plain one."""
    return RESPONSES_ITEMS[call.kind].pair if call.kind in RESPONSES_ITEMS else ""


def _fresh_id(call_id: str, taken: set[str], counts: dict[str, int]) -> str:
    number = counts.get(call_id, 1) + 1
    while f"{call_id}-{number}" in taken:
        number += 1
    counts[call_id] = number
    fresh = f"{call_id}-{number}"
    taken.add(fresh)
    return fresh
