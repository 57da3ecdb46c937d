"""Ids for calls and results that the wire gives none.

ShareGPT writes calls without ids, old Chat messages pair a function's call and result by their order, and
some local servers leave ids out. Such a call is named after its turn and its place in it; a result without
an id, or with one that only it knows, answers the first call before it that still waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.message import Message, ToolCall, ToolResult
from penstock.conversation.pairing import has_call, has_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.message import Part

__all__ = ["link_calls"]

_PREFIX = "turn-"


def link_calls(messages: Sequence[Message], before: Sequence[Message] = ()) -> list[Message]:
    """The messages with an id for every call and result that can have one; others are the same objects.

    `before` is the whole (already linked) conversation up to them. The cost does not grow with it.
    """
    waiting = _waiting_at_end(before)
    if not any(call_id.startswith(_PREFIX) for call_id in waiting) and _all_named(messages):
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


def _all_named(messages: Sequence[Message]) -> bool:
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


def _waiting_at_end(messages: Sequence[Message]) -> dict[str, None]:
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
