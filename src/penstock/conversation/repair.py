"""Mend what was already broken in the input, so that the result of a compaction can be legal.

Messages that need no mending are the same objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.message import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from penstock.conversation.pairing import (
    Matching,
    Pairing,
    PartPlace,
    has_call,
    has_result,
    match,
    results_end,
    trailing_start,
)
from penstock.conversation.rules import (
    OPENING_TEXT,
    NonEmpty,
    ReasoningStays,
    ServerTools,
    ThinkingFirst,
    UserOpens,
    first_speaker,
    is_blank,
    is_reasoning_item,
    orphan_server_results,
    thinking_late,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.conversation.dialects.base import Dialect

__all__ = ["NO_RESULT", "OPENING_TEXT", "Repaired", "open_calls", "repair"]

NO_RESULT = "[no result was recorded for this call]"


class Repaired(msgspec.Struct, frozen=True):
    """The mended list, and how many parts or messages were removed, stood in for, or given another id."""

    messages: list[Message]
    removed: int = 0
    stubbed: int = 0
    renamed: int = 0


def open_calls(messages: Sequence[Message]) -> set[int]:
    """The messages at the end whose calls have no result yet."""
    start = trailing_start(messages)
    waiting: dict[str, list[int]] = {}
    for index in range(start, len(messages)):
        for part in messages[index].parts:
            if isinstance(part, ToolCall):
                waiting.setdefault(part.call_id, []).append(index)
            elif isinstance(part, ToolResult) and waiting.get(part.call_id):
                waiting[part.call_id].pop(0)
    return {index for indices in waiting.values() for index in indices}


def repair(messages: Sequence[Message], dialect: Dialect) -> Repaired:
    """A list that passes `check` with the dialect's rules.

    Results without a call are removed, calls without a result get a stub directly after their batch, a
    call whose id is taken gets another one together with its result. Calls at the very end may still run
    and are left as they are. Blank text, dangling reasoning and late thinking are mended where the dialect
    has a rule against them.
    """
    mending = _Mending(list(messages), dialect)
    rules = {type(rule) for rule in dialect.rules}
    if NonEmpty in rules:
        mending.drop_blank()
    if ServerTools in rules:
        mending.drop_parts([PartPlace(*place) for place in orphan_server_results(mending.messages)])
    if ThinkingFirst in rules:
        mending.move_thinking_first()
    mending.mend_pairs()
    if ReasoningStays in rules:
        mending.drop_dangling_reasoning()
    if UserOpens in rules:
        mending.open_with_user()
    return Repaired(mending.messages, mending.removed, mending.stubbed, mending.renamed)


class _Mending:
    """The list while it is mended. Lives inside one call of `repair`."""

    def __init__(self, messages: list[Message], dialect: Dialect) -> None:
        self.messages = messages
        self.dialect = dialect
        self.removed = self.stubbed = self.renamed = 0

    def drop_blank(self) -> None:
        blank = [
            PartPlace(index, number)
            for index, message in enumerate(self.messages)
            for number, part in enumerate(message.parts)
            if is_blank(part)
        ]
        self.drop_parts(blank)
        last = len(self.messages) - 1
        kept = [
            message
            for index, message in enumerate(self.messages)
            if message.parts or (index == last and message.role is Role.ASSISTANT)
        ]
        self.removed += len(self.messages) - len(kept)
        self.messages = kept

    def drop_parts(self, places: Sequence[PartPlace]) -> None:
        """Remove these parts, and with them every message that has no other."""
        if not places:
            return
        dropped: dict[int, set[int]] = {}
        for place in places:
            dropped.setdefault(place.message, set()).add(place.part)
        kept: list[Message] = []
        for index, message in enumerate(self.messages):
            left = [number for number in range(len(message.parts)) if number not in dropped.get(index, ())]
            if len(left) == len(message.parts):
                kept.append(message)
            elif left:
                kept.append(self._selected(message, left))
        self.removed += len(places)
        self.messages = kept

    def move_thinking_first(self) -> None:
        for index, message in enumerate(self.messages):
            if thinking_late(message):
                late = {number for number, part in enumerate(message.parts) if type(part) is Reasoning}
                order = [
                    *sorted(late),
                    *(number for number in range(len(message.parts)) if number not in late),
                ]
                self.messages[index] = self._selected(message, order)

    def mend_pairs(self) -> None:
        """Rename, remove and answer, each on the pairs as the step before left them."""
        pairing = self.dialect.pairing
        matching = match(self.messages, pairing)
        if matching.repeated:
            self._rename_repeated(matching)
            matching = match(self.messages, pairing)
        if matching.orphans:
            self.drop_parts(matching.orphans)
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
            self.messages[index] = self._rewritten(self.messages[index], parts)

    def _answer(self, unanswered: Sequence[PartPlace]) -> None:
        """Put a stub result directly after the batch of each of these calls."""
        stubs: dict[int, list[ToolResult]] = {}
        for place in unanswered:
            call = self.messages[place.message].parts[place.part]
            if isinstance(call, ToolCall):
                end = self._batch_end(place.message)
                stubs.setdefault(end, []).append(ToolResult(call.call_id, NO_RESULT))
        self.stubbed += len(unanswered)
        self._insert(stubs)

    def _batch_end(self, index: int) -> int:
        """Where the batch of the message at `index` ends: after its calls, and the results that follow them."""
        end = index + 1
        while end < len(self.messages) and self._continues(end):
            end += 1
        pairing = self.dialect.pairing
        return end if pairing is Pairing.ANYWHERE else results_end(self.messages, end, pairing)

    def _continues(self, index: int) -> bool:
        """Whether the message belongs to the calls of the one before it."""
        if self.dialect.pairing is Pairing.ANYWHERE:
            return has_call(self.messages[index])
        return self.dialect.pairing is Pairing.MERGED and self.messages[index].role is Role.ASSISTANT

    def _insert(self, stubs: Mapping[int, list[ToolResult]]) -> None:
        share = self.dialect.results_share
        mended: list[Message] = []
        for index in range(len(self.messages) + 1):
            message = self.messages[index] if index < len(self.messages) else None
            results = stubs.get(index)
            if results and share is None:
                mended += [Message(Role.TOOL, (result,)) for result in results]
            elif results and mended and has_result(mended[-1]) and not has_call(mended[-1]):
                mended[-1] = self._with_results(mended[-1], results)
            elif results and share is Role.USER and message is not None and message.role is Role.USER:
                message = self._with_results(message, results)
            elif results:
                mended.append(Message(share or Role.TOOL, tuple(results)))
            if message is not None:
                mended.append(message)
        self.messages = mended

    def drop_dangling_reasoning(self) -> None:
        kept: list[Message] = []
        for message in reversed(self.messages):
            dangling = is_reasoning_item(message) and kept and kept[-1].role is not Role.ASSISTANT
            if not dangling:
                kept.append(message)
        self.removed += len(self.messages) - len(kept)
        self.messages = kept[::-1]

    def open_with_user(self) -> None:
        first = first_speaker(self.messages)
        if first < len(self.messages) and self.messages[first].role is not Role.USER:
            self.messages.insert(first, Message(Role.USER, (Text(OPENING_TEXT),)))
            self.stubbed += 1

    def _selected(self, message: Message, order: Sequence[int]) -> Message:
        parts = tuple(message.parts[number] for number in order)
        origin = None if message.origin is None else self.dialect.keep(message, order)
        return Message(message.role, parts, origin)

    def _rewritten(self, message: Message, changes: Mapping[int, Part]) -> Message:
        parts = tuple(changes.get(number, part) for number, part in enumerate(message.parts))
        origin = None if message.origin is None else self.dialect.rewrite(message, changes)
        return Message(message.role, parts, origin)

    def _with_results(self, message: Message, results: Sequence[ToolResult]) -> Message:
        at = (
            max(
                (number for number, part in enumerate(message.parts) if isinstance(part, ToolResult)),
                default=-1,
            )
            + 1
        )
        parts = (*message.parts[:at], *results, *message.parts[at:])
        origin = None if message.origin is None else self.dialect.add_results(message, results)
        return Message(message.role, parts, origin)


def _fresh_id(call_id: str, taken: set[str], counts: dict[str, int]) -> str:
    number = counts.get(call_id, 1) + 1
    while f"{call_id}-{number}" in taken:
        number += 1
    counts[call_id] = number
    fresh = f"{call_id}-{number}"
    taken.add(fresh)
    return fresh
