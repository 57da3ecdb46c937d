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


# old opening
from typing import Any, NamedTuple

from penstock.conversation import mark
from penstock.conversation.message import Summary

OURS = -1  # the place of a message that nobody gave


class Unmerged(NamedTuple):
    """Messages, what each came as, and its place in what was given."""

    messages: list[Message]
    origins: list[Any]
    places: list[int]


def unmerge(
    messages: Sequence[Message], wires: Sequence[Any], origins: Sequence[Any], dialect: Dialect
) -> Unmerged:
    """The messages with each merged handoff as a message of its own, before the one it stood in."""
    parted: list[Message] = []
    given: list[Any] = []
    places: list[int] = []
    for place, (message, wire, origin) in enumerate(zip(messages, wires, origins, strict=True)):
        summary = next((part for part in message.parts if isinstance(part, Summary)), None)
        if summary is not None and len(message.parts) > 1:
            rest = without_handoff(wire)
            parted += [Message(message.role, (summary,)), dialect.decode(rest)]
            given += [None, rest]
            places += [OURS, place]
        else:
            parted.append(message)
            given.append(origin)
            places.append(place)
    return Unmerged(parted, given, places)


def without_handoff(wire: Mapping[str, Any]) -> dict[str, Any]:
    """The wire object without the handoffs in its texts; a block that was only a handoff goes."""
    return {key: _stripped(value) if key in {"content", "value"} else value for key, value in wire.items()}


def _stripped(content: Any) -> Any:
    if isinstance(content, str):
        return _without_mark(content)
    if not isinstance(content, list):
        return content
    blocks = []
    for block in content:
        text = block.get("text") if isinstance(block, dict) else None
        if not isinstance(text, str) or mark.find(text) is None:
            blocks.append(block)
        elif rest := _without_mark(text):
            blocks.append({**block, "text": rest})
    return blocks


def _without_mark(text: str) -> str:
    found = mark.find(text)
    if found is None:
        return text
    return text[: found.start] + text[found.end :].removeprefix("\n\n")


# old notebook
def _places_after_repair(mended: list[Message], before: list[Message], places: Sequence[int]) -> list[int]:
    """Where the messages of a mended list stood.

    One that was changed stood where a message of its role is missing now; one that was added stood nowhere.
    """
    stayed = {id(message) for message in mended}
    at = {id(message): index for index, message in enumerate(before)}
    upcoming = 0
    found: list[int] = []
    for message in mended:
        index = at.get(id(message))
        if index is None and upcoming < len(before):
            candidate = before[upcoming]
            index = upcoming if id(candidate) not in stayed and candidate.role is message.role else None
        found.append(OURS if index is None else places[index])
        upcoming = upcoming if index is None else index + 1
    return found


# old labels
from penstock.conversation.pairing import link_calls


class Mending(msgspec.Struct, frozen=True, eq=False):
    """What a compaction makes of the input before it plans anything.

    `numbers` has the number of each message of the input, 0 for a handoff, None for one that was left out.
    `changed` are the places of messages that stay but were mended, `added` the numbers of those put in, with their roles.
    """

    numbers: list[int | None]
    changed: frozenset[int]
    added: dict[int, str]


def mending_of(document: Document) -> Mending:
    """The numbers that a compaction of this document gives its messages, without the cost of one."""
    from penstock.conversation.handles import number_messages  # noqa: PLC0415 - slow to load, and last

    dialect = document.dialect
    messages, places = document.messages, list(range(len(document.messages)))
    if any(len(one.parts) > 1 and holds_handoff(one) for one in messages):
        messages, _, places = unmerge(messages, document.wires, document.raws, dialect)
    if dialect.pairing is not Pairing.ANYWHERE:
        messages = link_calls(messages)
    mended = repair(messages, dialect).messages
    sources = _sources(mended, messages)
    numbers: list[int | None] = [None] * len(document.messages)
    changed: set[int] = set()
    added: dict[int, str] = {}
    for message, number, source in zip(mended, number_messages(mended), sources, strict=True):
        place = OURS if source is None else places[source]
        if place != OURS:
            numbers[place] = number
            if source is not None and messages[source] is not message:
                changed.add(place)
        elif source is None:
            added[number] = message.role.value
    return Mending(numbers, frozenset(changed), added)


def holds_handoff(message: Message) -> bool:
    """Whether an earlier compaction's handoff stands in the message, alone or before its own text."""
    return any(isinstance(part, Summary) for part in message.parts)


def _sources(mended: Sequence[Message], before: Sequence[Message]) -> list[int | None]:
    """Where in the list each mended message stood; None for one that was put in.

    Repair returns untouched messages as the same objects and keeps their order. One that it changed still has
    an origin and stood where a message of its role is missing now.
    """
    stayed = {id(message) for message in mended}
    at = {id(message): index for index, message in enumerate(before)}
    upcoming = 0
    found: list[int | None] = []
    for message in mended:
        index = at.get(id(message))
        if index is None and upcoming < len(before):
            candidate = before[upcoming]
            ours = message.origin is None and candidate.origin is not None
            if id(candidate) not in stayed and candidate.role is message.role and not ours:
                index = upcoming
        found.append(index)
        upcoming = upcoming if index is None else index + 1
    return found


# old sendable
from penstock.conversation.dialects import decode_all, wire_of
from penstock.conversation.rules import check


class Sent(NamedTuple):
    wire: Any
    place: int | None


def sendable(wires: Sequence[Any], dialect: Dialect) -> list[Sent]:
    """The messages as they can be sent; those that break no rule are the objects that were given."""
    messages = decode_all(dialect, wires, wires)
    if not check(messages, dialect.rules):
        return [Sent(wire, place) for place, wire in enumerate(wires)]
    places = {id(wire): place for place, wire in enumerate(wires)}
    return [
        Sent(wire_of(message, dialect), places.get(id(message.origin)))
        for message in repair(messages, dialect).messages
    ]


# old notebook's way, without its memory


def notebook_way(wires, dialect, origins):
    messages = [Message(one.role, one.parts) for one in map(dialect.decode, wires)]
    given = list(origins)
    places = range(len(given))
    if any(len(one.parts) > 1 and holds_handoff(one) for one in messages):
        messages, given, places = unmerge(messages, wires, given, dialect)
    linked = messages if dialect.pairing is Pairing.ANYWHERE else link_calls(messages)
    linked = [Message(one.role, one.parts, wire) for one, wire in zip(linked, given, strict=True)]
    repaired = repair(linked, dialect)
    final = repaired.messages
    return (
        final,
        _places_after_repair(final, linked, places),
        repaired.removed + repaired.stubbed + repaired.renamed,
    )
