"""Pairs results with the calls that they answer.

The dialects differ in where the results of a batch of calls may stand; `Pairing` names the ways, `match`
finds the pairs and what is left over. `link_calls` gives ids to calls and results that came without.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.conversation.message import Message, Opaque, Reasoning, Role, Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.message import Part

__all__ = [
    "Matching",
    "Pairing",
    "PartPlace",
    "calls_by_id",
    "find_trailing_start",
    "find_unanswered",
    "has_call",
    "has_result",
    "link_calls",
    "match",
    "results_end",
]


class Pairing(StrEnum):
    """The places where the results of a batch of calls stand."""

    ADJACENT = "adjacent"  # in the messages directly after the one message with the calls
    MERGED = "merged"  # as above, but neighbouring assistant messages count as one; ids are never used twice
    TURNS = "turns"  # as ADJACENT, but a result may also follow an assistant turn whose calls we cannot read
    ANYWHERE = "anywhere"  # anywhere after their call


class PartPlace(NamedTuple):
    """A part: the index of its message, and its own within it."""

    message: int
    part: int


class Matching(NamedTuple):
    """The pairs of a conversation, and what has no partner.

    `pairs` holds call and result; a result that belongs to a whole turn has part -1 for its call.
    `unanswered` calls have no result and are followed by something else; `open` ones have none yet, at the
    end of the list. `repeated` calls bear an id that a call they could be confused with bears already.
    """

    pairs: list[tuple[PartPlace, PartPlace]]
    orphans: list[PartPlace]
    unanswered: list[PartPlace]
    open: list[PartPlace]
    repeated: list[PartPlace]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First and last message of each pair."""
        return [(call.message, result.message) for call, result in self.pairs]


def has_call(message: Message) -> bool:
    """Returns True if the message makes a call."""
    for part in message.parts:  # noqa: SIM110  # asked of every message: `any` with a generator costs thrice as much
        if type(part) is ToolCall:
            return True
    return False


def has_result(message: Message) -> bool:
    """Returns True if the message holds a result."""
    for part in message.parts:  # noqa: SIM110  # as above
        if type(part) is ToolResult:
            return True
    return False


# A provider's compaction stands for the calls before it: they are no longer under way, and a handoff may follow.
_COMPACTIONS = frozenset({"compaction", "compaction_summary"})


def find_trailing_start(messages: Sequence[Message]) -> int:
    """Returns the start of the run of calls, results and bare reasoning at the end, which may still go on."""
    start = len(messages)
    while start and _under_way(messages[start - 1]):
        start -= 1
    return start


def _under_way(message: Message) -> bool:
    if has_call(message) or has_result(message):
        return True
    return message.role is Role.ASSISTANT and all(
        type(part) is Reasoning or (type(part) is Opaque and part.kind not in _COMPACTIONS)
        for part in message.parts
    )


def match(messages: Sequence[Message], pairing: Pairing) -> Matching:
    """Returns every result with its call, and what has no partner, found in one pass."""
    if pairing is Pairing.ANYWHERE:
        return _match_anywhere(messages)
    return _match_batches(messages, pairing)


def results_end(messages: Sequence[Message], index: int, pairing: Pairing) -> int:
    """Returns the end of the run of results that begins at `index`.

    If messages of one role merge, a system message may stand inside the run, since it is not a turn of its own.
    """
    end = at = index
    while at < len(messages):
        message = messages[at]
        if has_result(message) and not has_call(message):
            at = end = at + 1
        elif pairing is Pairing.MERGED and message.role is Role.SYSTEM:
            at += 1
        else:
            break
    return end


def _match_anywhere(messages: Sequence[Message]) -> Matching:
    found = Matching([], [], [], [], [])
    waiting: dict[str, list[PartPlace]] = {}
    referenced = False  # an item_reference may stand for a call that the provider keeps
    for index, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            kind = type(part)
            if kind is Text:
                continue
            place = PartPlace(index, number)
            if isinstance(part, ToolCall):
                if waiting.get(part.call_id):
                    found.repeated.append(place)
                waiting.setdefault(part.call_id, []).append(place)
            elif isinstance(part, ToolResult):
                calls = waiting.get(part.call_id)
                if calls:
                    found.pairs.append((calls.pop(0), place))
                elif (
                    part.call_id and not referenced
                ):  # without an id it answers no call: a tool spoke unasked
                    found.orphans.append(place)
            referenced = referenced or (isinstance(part, Opaque) and part.kind == "item_reference")
    start = find_trailing_start(messages)
    for place in sorted(place for calls in waiting.values() for place in calls):
        (found.open if place.message >= start else found.unanswered).append(place)
    return found


def _match_batches(messages: Sequence[Message], pairing: Pairing) -> Matching:
    found = Matching([], [], [], [], [])
    seen: set[str] | None = set() if pairing is Pairing.MERGED else None
    index = 0
    while index < len(messages):
        message = messages[index]
        if has_call(message):
            start = index
            index = _batch_end(messages, index, pairing)
            end = results_end(messages, index, pairing)
            _match_run(
                messages, range(start, index), range(index, end), found, set() if seen is None else seen
            )
            index = end
        elif has_result(message):
            end = results_end(messages, index, pairing)
            loose = pairing is Pairing.TURNS and index > 0 and messages[index - 1].role is Role.ASSISTANT
            for place in _places_of_results(messages, range(index, end)):
                if loose:
                    found.pairs.append((PartPlace(index - 1, -1), place))
                else:
                    found.orphans.append(place)
            index = end
        else:
            index += 1
    return found


def _batch_end(messages: Sequence[Message], index: int, pairing: Pairing) -> int:
    """Returns the end of the calls that begin at `index`: neighbours of the assistant may count as one."""
    end = index + 1
    if pairing is Pairing.MERGED and messages[index].role is Role.ASSISTANT:
        while end < len(messages) and messages[end].role is Role.ASSISTANT:
            end += 1
    return end


def _places_of_results(messages: Sequence[Message], span: range) -> list[PartPlace]:
    return [
        PartPlace(index, number)
        for index in span
        for number, part in enumerate(messages[index].parts)
        if isinstance(part, ToolResult)
    ]


def _match_run(
    messages: Sequence[Message], batch: range, run: range, found: Matching, taken: set[str]
) -> None:
    """Matches the calls of a batch with the run of results after it."""
    waiting: dict[str, list[PartPlace]] = {}
    for index in batch:
        for number, part in enumerate(messages[index].parts):
            if isinstance(part, ToolCall):
                call_id, place = part.call_id, PartPlace(index, number)
                if call_id in taken:
                    found.repeated.append(place)
                taken.add(call_id)
                waiting.setdefault(call_id, []).append(place)
    for index in run:
        for number, part in enumerate(messages[index].parts):
            if isinstance(part, ToolResult):
                place, partners = PartPlace(index, number), waiting.get(part.call_id)
                if partners:
                    found.pairs.append((partners.pop(0), place))
                else:
                    found.orphans.append(place)
    found.orphans.extend(_places_of_results(messages, batch))  # no dialect has these beside calls
    left = sorted([place for partners in waiting.values() for place in partners])
    if left:
        (found.open if run.stop == len(messages) else found.unanswered).extend(left)


def find_unanswered(messages: Sequence[Message]) -> tuple[int, ...]:
    """Returns the positions of the messages with results that the model has not answered yet."""
    places: list[int] = []
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role is Role.ASSISTANT:
            break
        if any(isinstance(part, ToolResult) for part in messages[place].parts):
            places.append(place)
    return tuple(reversed(places))


def calls_by_id(messages: Sequence[Message]) -> dict[str, ToolCall]:
    """Returns every call by its id; the later call if an id was used twice."""
    return {
        part.call_id: part for message in messages for part in message.parts if isinstance(part, ToolCall)
    }


# Ids for calls and results that the wire gives none. ShareGPT writes calls without ids, old Chat messages
# pair a function's call and result by their order, and some local servers leave ids out. Such a call is named
# after its turn and its place in it; a result without an id, or with one that only it knows, answers the
# first call before it that still waits.

_PREFIX = "turn-"


def link_calls(messages: Sequence[Message], before: Sequence[Message] = ()) -> list[Message]:
    """Returns the messages with an id for every call and result that can have one; others are the same.

    `before` is the whole (already linked) conversation up to them. The cost does not grow with it.
    """
    waiting = _find_waiting_at_end(before)
    if not any(call_id.startswith(_PREFIX) for call_id in waiting) and _are_all_named(messages):
        return list(messages)
    linked: list[Message] = []
    for index, message in enumerate(messages, start=len(before) + 1):
        parts = message.parts
        if has_call(message):
            parts = _name_calls(parts, index)
            waiting = {part.call_id: None for part in parts if isinstance(part, ToolCall)}
        elif has_result(message):
            parts = tuple(
                _link_result(part, waiting) if isinstance(part, ToolResult) else part for part in parts
            )
        else:
            waiting = {}
        linked.append(message if parts is message.parts else _with_parts(message, parts))
    return linked


def _are_all_named(messages: Sequence[Message]) -> bool:
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall | ToolResult) and not part.call_id:
                return False
    return True


def _with_parts(message: Message, parts: tuple[Part, ...]) -> Message:
    return message if parts == message.parts else msgspec.structs.replace(message, parts=parts)


def _name_calls(parts: tuple[Part, ...], turn: int) -> tuple[Part, ...]:
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if all(part.call_id for part in calls):
        return parts
    named: list[Part] = []
    number = 0
    for part in parts:
        if isinstance(part, ToolCall):
            number += 1
            named.append(
                part if part.call_id else ToolCall(f"{_PREFIX}{turn}-{number}", part.name, part.arguments)
            )
        else:
            named.append(part)
    return tuple(named)


def _link_result(result: ToolResult, waiting: dict[str, None]) -> ToolResult:
    if result.call_id in waiting:
        del waiting[result.call_id]
        return result
    first = next(iter(waiting), "")
    if not first or (result.call_id and not first.startswith(_PREFIX)):
        return result
    del waiting[first]
    return msgspec.structs.replace(result, call_id=first)


def _find_waiting_at_end(messages: Sequence[Message]) -> dict[str, None]:
    start = len(messages)
    while start and has_result(messages[start - 1]) and not has_call(messages[start - 1]):
        start -= 1
    if not start or not has_call(messages[start - 1]):
        return {}
    waiting = {part.call_id: None for part in messages[start - 1].parts if isinstance(part, ToolCall)}
    for message in messages[start:]:
        for part in message.parts:
            if isinstance(part, ToolResult):
                waiting.pop(part.call_id, None)
    return waiting
