"""OpenAI Chat Completions: `role`, `content`, `tool_calls`, and role `tool` for results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from penstock.conversation import mark
from penstock.conversation.dialects.base import require_object, text_beside, unknown_role, wire_of
from penstock.conversation.dialects.content import (
    Slot,
    opaque,
    read_content,
    read_image,
    read_result,
    rewrite_content,
    rewrite_result,
    text_of,
)
from penstock.conversation.message import (
    Message,
    Part,
    Reasoning,
    Role,
    Summary,
    Text,
    ToolCall,
    ToolResult,
)
from penstock.conversation.pairing import Pairing
from penstock.conversation.rules import Alternation, Batches, Pairs
from penstock.conversation.wire import json_text, parse_arguments, read_text

__all__ = ["CHAT", "ChatDialect"]

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_FIELDS = frozenset(
    (
        "role",
        "content",
        "tool_calls",
        "function_call",
        "tool_call_id",
        "refusal",
        "audio",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
    )
)
_RESULT_FIELDS = _FIELDS | {
    "name"
}  # of the function that was called: the call says it, and its frame is counted
_LONGEST_NAME = 64  # characters that the API allows
_FOREIGN_BLOCKS = frozenset(
    (
        "tool_use",
        "tool_result",
        "redacted_thinking",
        "server_tool_use",
        "input_text",
        "output_text",
        "input_image",
    )
)
# An Anthropic picture or document says its source in its own way.
_SOURCED_BLOCKS = frozenset(("image", "document"))


class _Place(NamedTuple):
    """The place of a part: the field of the message, and the slot or index in it."""

    field: str
    slot: Slot = Slot(None, 0)


class ChatDialect:
    """Chat Completions, with what OpenAI-compatible servers add to it."""

    name = "chat"
    pairing = Pairing.ADJACENT
    results_share: Role | None = None
    rules = (Pairs(Pairing.ADJACENT), Batches(), Alternation())

    def recognises(self, wire: Mapping[str, Any]) -> bool:
        """Returns True for a role, and nothing that only another dialect has."""
        if not isinstance(wire.get("role"), str) or "type" in wire:
            return False
        return _has_own_marks(wire) or not any(map(_is_foreign, _blocks(wire.get("content"))))

    def is_alone_with(self, wire: Mapping[str, Any]) -> bool:
        """Returns True for an object of this dialect that no other dialect recognises."""
        return _has_own_marks(wire) and "from" not in wire

    def decode(self, wire: Any, origin: Any = None) -> Message:
        """See `Dialect.decode`."""
        wire = require_object(wire)
        role = _ROLES.get(wire["role"]) if isinstance(wire.get("role"), str) else None
        if role is None:
            raise unknown_role("role", wire.get("role"), tuple(_ROLES))
        content = wire.get("content")
        parts: tuple[Part, ...]
        if role is not Role.ASSISTANT and role is not Role.TOOL and _is_plain(content):
            parts = (Text(content),)
        else:
            parts = tuple([part for _, part in _read(wire, role)])
        known = (
            _FIELDS
            if role is not Role.TOOL or len(wire.get("name") or "") > _LONGEST_NAME
            else _RESULT_FIELDS
        )
        return Message(role, parts, wire if origin is None else origin, text_beside(wire, known))

    def build(self, message: Message) -> dict[str, Any]:
        """Returns one message. A result's message holds the first result alone."""
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if results:
            return {"role": "tool", "tool_call_id": results[0].call_id, "content": results[0].text}
        wire: dict[str, Any] = {"role": str(message.role)}
        texts = [text_of(part) for part in message.parts if isinstance(part, Text | Summary)]
        calls = [_build_call(part) for part in message.parts if isinstance(part, ToolCall)]
        if len(texts) > 1:
            wire["content"] = [{"type": "text", "text": text} for text in texts]
        else:
            wire["content"] = texts[0] if texts else (None if calls else "")
        reasoning = [part.text for part in message.parts if isinstance(part, Reasoning)]
        if reasoning:
            wire["reasoning_content"] = "\n".join(reasoning)
        if calls:
            wire["tool_calls"] = calls
        return wire

    def rewrite(self, message: Message, parts: Mapping[int, Part]) -> dict[str, Any]:
        """See `Dialect.rewrite`."""
        wire = dict(wire_of(message, self))
        read = _read(wire, message.role)
        in_content: dict[Slot, Part] = {}
        for index, part in parts.items():
            place = read[index][0]
            if place.field == "content":
                in_content[place.slot] = part
            else:
                _rewrite_field(wire, place, message.parts[index], part)
        if in_content:
            wire["content"] = rewrite_content(wire["content"], in_content, _write_block)
        return wire

    def keep(self, message: Message, parts: Sequence[int]) -> dict[str, Any]:
        """See `Dialect.keep`. Only calls and blocks can leave; a result is a whole message."""
        wire = dict(wire_of(message, self))
        places = [place for place, _ in _read(wire, message.role)]
        kept = [places[index] for index in parts]
        if wire.get("tool_calls"):
            calls = [wire["tool_calls"][place.slot.segment] for place in kept if place.field == "tool_calls"]
            wire["tool_calls"] = calls
            if not calls:
                del wire["tool_calls"]
        if isinstance(wire.get("content"), list):
            blocks = dict.fromkeys(place.slot.block for place in kept if place.field == "content")
            wire["content"] = [wire["content"][block] for block in blocks if block is not None]
        return wire

    def add_results(self, message: Message, results: Sequence[ToolResult]) -> dict[str, Any]:
        """Raises ValueError: each result has its own message here."""
        raise ValueError(
            f"a chat message holds one result, so {len(results)} cannot be added to {message.role}"
        )

    def prepend_text(self, message: Message, text: str) -> dict[str, Any]:
        """See `Dialect.prepend_text`."""
        wire = dict(wire_of(message, self))
        content = wire.get("content")
        if isinstance(content, list):
            wire["content"] = [{"type": "text", "text": text}, *content]
        else:
            wire["content"] = f"{text}\n\n{content}" if content else text
        return wire

    def append_text(self, message: Message, text: str) -> dict[str, Any]:
        """See `Dialect.append_text`."""
        wire = dict(wire_of(message, self))
        content = wire.get("content")
        if isinstance(content, list):
            wire["content"] = [*content, {"type": "text", "text": text}]
        else:
            wire["content"] = f"{content}\n\n{text}" if content else text
        return wire

    def text_message(self, role: Role, text: str) -> dict[str, Any]:
        """See `Dialect.text_message`."""
        if role is Role.TOOL:
            raise ValueError("a tool message needs the call that it answers")
        return {"role": str(role), "content": text}

    def can_follow(self, previous: Role | None, role: Role) -> bool:
        """Roles alternate: the API takes more, but the templates of many open models do not."""
        if role is Role.SYSTEM:
            return previous in (None, Role.SYSTEM)
        if role is Role.ASSISTANT:
            return previous in (Role.USER, Role.TOOL)
        return role is Role.USER and previous is not Role.USER


CHAT = ChatDialect()


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _has_own_marks(wire: Mapping[str, Any]) -> bool:
    """Returns True for an object with a role or a field that only chat has."""
    return bool(wire["role"] in ("tool", "function") or wire.get("tool_calls") or wire.get("function_call"))


def _is_foreign(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    if not isinstance(kind, str):
        return False
    return (
        kind in _FOREIGN_BLOCKS
        or (kind in _SOURCED_BLOCKS and "source" in block)
        or (kind == "thinking" and isinstance(block.get("signature"), str))
    )


def _is_plain(content: Any) -> TypeGuard[str]:
    return type(content) is str and mark.OPENING not in content


def _read(wire: Mapping[str, Any], role: Role) -> list[tuple[_Place, Part]]:
    content = wire.get("content")
    if role is Role.TOOL:
        call_id = wire.get("tool_call_id")
        text, images = read_result(content)
        result = ToolResult(call_id if isinstance(call_id, str) else "", text, images=images)
        return [(_RESULT, result)]
    found: list[tuple[_Place, Part]] = []
    if role is Role.ASSISTANT:
        found += _read_reasoning(wire)
    if _is_plain(content):
        found.append((_CONTENT, Text(content)))
    elif content is not None:
        found += [(_Place("content", slot), part) for slot, part in read_content(content, _read_block)]
    if role is Role.ASSISTANT:
        found += _read_assistant(wire)
    return found


_CONTENT, _RESULT = _Place("content"), _Place("result")


def _read_assistant(wire: Mapping[str, Any]) -> list[tuple[_Place, Part]]:
    found: list[tuple[_Place, Part]] = []
    if isinstance(wire.get("refusal"), str):
        found.append((_Place("refusal"), Text(wire["refusal"])))
    if wire.get("audio"):
        found.append((_Place("audio"), opaque(wire["audio"], "audio")))
    calls = wire.get("tool_calls")
    if isinstance(calls, list):
        found += [
            (_Place("tool_calls", Slot(None, index)), _read_call(call)) for index, call in enumerate(calls)
        ]
    legacy = wire.get("function_call")
    if isinstance(legacy, Mapping):
        call = ToolCall("", read_text(legacy.get("name")), _arguments(legacy.get("arguments")))
        found.append((_Place("function_call"), call))
    return found


def _read_reasoning(wire: Mapping[str, Any]) -> list[tuple[_Place, Part]]:
    plain = wire.get("reasoning_content") or wire.get("reasoning")
    details = wire.get("reasoning_details")
    if not plain and not details:
        return []
    texts: list[str] = []
    seals: list[str] = []
    for detail in _blocks(details):
        texts.append(read_text(detail.get("text") or detail.get("summary")))
        seals.append(read_text(detail.get("signature") or detail.get("data")))
    text = plain if isinstance(plain, str) and plain else "\n".join(filter(None, texts))
    seal = "".join(seals)
    return [(_Place("reasoning"), Reasoning(text, bool(seal), seal))] if text or seal else []


def _read_call(call: Any) -> Part:
    if not isinstance(call, Mapping):
        return opaque(call, "tool_call")
    call_id = read_text(call.get("id"))
    function, custom = call.get("function"), call.get("custom")
    if isinstance(function, Mapping):
        return ToolCall(call_id, read_text(function.get("name")), _arguments(function.get("arguments")))
    if isinstance(custom, Mapping):
        return ToolCall(call_id, read_text(custom.get("name")), _arguments(custom.get("input")))
    return opaque(call, "tool_call")


def _read_block(block: Mapping[str, Any]) -> Part:
    return (read_image(block) if block.get("type") == "image_url" else None) or opaque(block)


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else ("" if value is None else json_text(value))


def _build_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _write_block(block: Any, part: Part) -> Any:  # noqa: ARG001  # other dialects keep fields of the block
    return {"type": "text", "text": text_of(part)}


def _rewrite_field(wire: dict[str, Any], place: _Place, old: Part, new: Part) -> None:
    if isinstance(old, ToolResult) and isinstance(new, ToolResult):
        wire["content"] = rewrite_result(wire.get("content"), old, new, "text")
        if new.call_id != old.call_id:
            wire["tool_call_id"] = new.call_id
    elif isinstance(old, ToolCall) and isinstance(new, ToolCall):
        if place.field == "function_call":
            wire["function_call"] = _rewrite_arguments(wire["function_call"], "arguments", old, new)
        else:
            calls = list(wire["tool_calls"])
            calls[place.slot.segment] = _rewrite_call(calls[place.slot.segment], old, new)
            wire["tool_calls"] = calls
    elif place.field == "refusal":
        wire["refusal"] = text_of(new)


def _rewrite_call(call: Mapping[str, Any], old: ToolCall, new: ToolCall) -> dict[str, Any]:
    changed = dict(call)
    if new.call_id != old.call_id:
        changed["id"] = new.call_id
    if isinstance(changed.get("function"), Mapping):
        changed["function"] = _rewrite_arguments(changed["function"], "arguments", old, new)
    else:
        changed["custom"] = _rewrite_arguments(changed["custom"], "input", old, new)
    return changed


def _rewrite_arguments(call: Mapping[str, Any], field: str, old: ToolCall, new: ToolCall) -> dict[str, Any]:
    changed = dict(call)
    if new.arguments != old.arguments:
        was_text = isinstance(call.get(field), str)
        changed[field] = new.arguments if was_text else parse_arguments(new.arguments)
    if new.name != old.name:
        changed["name"] = new.name
    return changed
