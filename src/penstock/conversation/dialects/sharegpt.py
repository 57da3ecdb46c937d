"""ShareGPT: turns of `from` and `value`, with calls, results and thoughts as tagged blocks in the text.

<tool_call>
{"name": …, "arguments": {…}}
</tool_call>
<tool_response>
{"tool_call_id": …, "name": …, "content": …}
</tool_response>
<think>…</think>
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from penstock.conversation import mark
from penstock.conversation.dialects.base import require_object, text_beside, unknown_role, wire_of
from penstock.conversation.dialects.content import (
    Segment,
    opaque,
    replace_segments,
    split_marked,
    text_of,
    text_segment,
)
from penstock.conversation.message import (
    Message,
    Opaque,
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
from penstock.conversation.wire import json_text, parse_json, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SHAREGPT", "ShareGPTDialect"]

_ROLES = {
    "human": Role.USER,
    "user": Role.USER,
    "gpt": Role.ASSISTANT,
    "assistant": Role.ASSISTANT,
    "chatgpt": Role.ASSISTANT,
    "model": Role.ASSISTANT,
    "bot": Role.ASSISTANT,
    "function_call": Role.ASSISTANT,
    "tool_call": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "tool": Role.TOOL,
    "observation": Role.TOOL,
    "tool_response": Role.TOOL,
    "function_response": Role.TOOL,
}
_NAMES = {Role.USER: "human", Role.ASSISTANT: "gpt", Role.SYSTEM: "system", Role.TOOL: "tool"}
_FIELDS = frozenset(("from", "value"))
_BARE_CALLS = ("function_call", "tool_call")
_CALL, _RESPONSE, _THINK = "tool_call", "tool_response", "think"
_NAME_IN_BROKEN_CALL = re.compile(r'"name"\s*:\s*"([^"\\]{1,200})"')
_JSON = json.JSONDecoder()


class ShareGPTDialect:
    """Turns of training data. There is no API behind it; the rules are those of the data."""

    name = "sharegpt"
    pairing = Pairing.TURNS
    results_share: Role | None = Role.TOOL
    rules = (Pairs(Pairing.TURNS), Batches(), Alternation())

    def recognises(self, wire: Mapping[str, Any]) -> bool:
        """Returns True for a turn with `from` and `value`."""
        return isinstance(wire.get("from"), str) and "value" in wire

    def decode(self, wire: Any, origin: Any = None) -> Message:
        """See `Dialect.decode`."""
        wire = require_object(wire)
        role = _ROLES.get(wire["from"]) if isinstance(wire.get("from"), str) else None
        if role is None:
            raise unknown_role("from", wire.get("from"), tuple(_ROLES))
        parts = tuple([segment.part for segment in _read(wire, role)])
        value = wire.get("value")
        plain = all(type(part) is Text for part in parts) or not isinstance(value, str)
        return Message(
            role,
            parts,
            wire if origin is None else origin,
            text_beside(wire, _FIELDS),
            "" if plain else str(value),
        )

    def build(self, message: Message) -> dict[str, Any]:
        """Returns one turn. Pictures have no place in it."""
        blocks = [block for part in message.parts if (block := _build_block(part))]
        return {"from": _NAMES[message.role], "value": "\n".join(blocks)}

    def rewrite(self, message: Message, parts: Mapping[int, Part]) -> dict[str, Any]:
        """See `Dialect.rewrite`."""
        wire = dict(wire_of(message, self))
        value = wire.get("value")
        segments = _read(wire, message.role)
        if not isinstance(value, str):
            wire["value"] = text_of(next(iter(parts.values())))
            return wire
        written: dict[int, str] = {}
        for index, part in parts.items():
            segment = segments[index]
            written[index] = _rewrite_block(value[segment.start : segment.end], message.parts[index], part)
        wire["value"] = replace_segments(value, segments, written)
        return wire

    def keep(self, message: Message, parts: Sequence[int]) -> dict[str, Any]:
        """See `Dialect.keep`. The remaining pieces are separated by a line end."""
        wire = dict(wire_of(message, self))
        value = wire.get("value")
        if isinstance(value, str):
            segments = _read(wire, message.role)
            kept = (segments[index] for index in parts)
            wire["value"] = "\n".join(value[segment.start : segment.end] for segment in kept)
        return wire

    def add_results(self, message: Message, results: Sequence[ToolResult]) -> dict[str, Any]:
        """Returns the responses after those of the turn. A turn that is one bare result gets tags first."""
        wire = dict(wire_of(message, self))
        value = wire.get("value")
        old = value if isinstance(value, str) else ""
        if f"<{_RESPONSE}>" not in old:
            old = "\n".join(_build_block(part) for part in message.parts)
        wire["value"] = "\n".join([old, *(_build_block(result) for result in results)])
        return wire

    def prepend_text(self, message: Message, text: str) -> dict[str, Any]:
        """See `Dialect.prepend_text`."""
        wire = dict(wire_of(message, self))
        value = wire.get("value")
        wire["value"] = f"{text}\n\n{value}" if isinstance(value, str) and value else text
        return wire

    def append_text(self, message: Message, text: str) -> dict[str, Any]:
        """See `Dialect.append_text`."""
        wire = dict(wire_of(message, self))
        value = wire.get("value")
        wire["value"] = f"{value}\n\n{text}" if isinstance(value, str) and value else text
        return wire

    def text_message(self, role: Role, text: str) -> dict[str, Any]:
        """See `Dialect.text_message`."""
        if role is Role.TOOL:
            raise ValueError("a tool turn needs the call that it answers")
        return {"from": _NAMES[role], "value": text}

    def can_follow(self, previous: Role | None, role: Role) -> bool:
        """Returns True if human and gpt take turns; after a system turn the human begins."""
        if role is Role.SYSTEM:
            return previous is None
        if role is Role.ASSISTANT:
            return previous in (Role.USER, Role.TOOL)
        return role is Role.USER and previous is not Role.USER


SHAREGPT = ShareGPTDialect()


def _read(wire: Mapping[str, Any], role: Role) -> list[Segment]:
    value = wire.get("value")
    if not isinstance(value, str):
        return [] if value is None else [Segment(opaque(value, "value"), 0, 0)]
    if role is Role.TOOL:
        tagged = _find_tagged(value, (_RESPONSE,), 0, len(value))
        return tagged or [Segment(_read_response("", value), 0, len(value))]
    if role is not Role.ASSISTANT:
        return split_marked(value)
    if wire["from"] in _BARE_CALLS and f"<{_CALL}>" not in value:
        return [Segment(_read_call(value), 0, len(value))]
    if "<" not in value:
        return [Segment(Text(value), 0, len(value))]
    return _read_assistant(value)


def _read_assistant(value: str) -> list[Segment]:
    """Reads handoffs first, since the text inside one may quote tags."""
    found: list[Segment] = []
    at = 0
    for segment in split_marked(value) if mark.OPENING in value else ():
        if isinstance(segment.part, Summary):
            found += [*_read_between(value, at, segment.start), segment]
            at = segment.end
    return found + _read_between(value, at, len(value))


def _read_between(value: str, start: int, end: int) -> list[Segment]:
    found: list[Segment] = []
    for segment in _find_tagged(value, (_THINK, _CALL), start, end):
        found += [*text_segment(value, start, segment.start), segment]
        start = segment.end
    return found + text_segment(value, start, end)


def _find_tagged(value: str, tags: Sequence[str], start: int, end: int) -> list[Segment]:
    """Returns the blocks with one of these tags, in order. A tag that is not closed is part of the words."""
    found: list[Segment] = []
    at = start
    opened = {tag: value.find(f"<{tag}>", at, end) for tag in tags}
    while True:
        tag = min((tag for tag in tags if opened[tag] >= 0), key=opened.__getitem__, default=None)
        if tag is None:
            return found
        body_start = opened[tag] + len(tag) + 2
        body_end = _find_closing(value, tag, body_start, end)
        if body_end < 0:
            opened[tag] = -1
            continue
        at = body_end + len(tag) + 3
        found.append(Segment(_read_tag(tag, value[body_start:body_end]), opened[tag], at))
        opened = {
            name: value.find(f"<{name}>", at, end) if 0 <= was < at else was for name, was in opened.items()
        }


def _find_closing(value: str, tag: str, start: int, limit: int) -> int:
    """Returns the start of the closing tag of a block, or -1. One inside a JSON string does not close it."""
    closing = f"</{tag}>"
    first = value.find(closing, start, limit)
    if first < 0 or tag == _THINK or value.find(closing, first + 1, limit) < 0:
        return first
    body = start
    while body < first and value[body].isspace():
        body += 1
    if value[body : body + 1] != "{":
        return first
    try:
        _, end = _JSON.raw_decode(value, body)
    except (ValueError, RecursionError):
        return first
    while end < len(value) and value[end].isspace():
        end += 1
    return end if value.startswith(closing, end, limit) else first


def _read_tag(tag: str, body: str) -> Part:
    if tag == _THINK:
        return Reasoning(body.strip("\n"))
    return _read_call(body) if tag == _CALL else _read_response("", body)


def _object(text: str) -> dict[str, Any]:
    stripped = text.strip()
    if not stripped.startswith("{"):
        return {}
    try:
        value = parse_json(stripped)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _read_call(body: str) -> ToolCall:
    call = _object(body)
    if not call:
        named = _NAME_IN_BROKEN_CALL.search(body, 0, 2_000)
        return ToolCall("", named[1] if named else "unknown", body.strip())
    given = call.get("arguments", call.get("parameters"))
    arguments = given if isinstance(given, str) else ("" if given is None else json_text(given))
    return ToolCall(read_text(call.get("id")), read_text(call.get("name")), arguments)


def _read_response(call_id: str, body: str) -> ToolResult:
    response = _object(body)
    if "content" not in response:
        return ToolResult(call_id, body.strip("\n"))
    content = response["content"]
    text = content if isinstance(content, str) else ("" if content is None else json_text(content))
    return ToolResult(read_text(response.get("tool_call_id")), text)


def _build_block(part: Part) -> str:
    if isinstance(part, ToolCall):
        return _tag(_CALL, _dump(_call_object(part)))
    if isinstance(part, ToolResult):
        response = {"tool_call_id": part.call_id} if part.call_id else {}
        return _tag(_RESPONSE, _dump({**response, "content": part.text}))
    if isinstance(part, Reasoning):
        return _tag(_THINK, part.text)
    if isinstance(part, Text | Summary):
        return text_of(part)
    return part.text if isinstance(part, Opaque) else ""


def _call_object(call: ToolCall) -> dict[str, Any]:
    named = {"id": call.call_id} if call.call_id else {}
    return {**named, "name": call.name, "arguments": _arguments(call.arguments)}


def _arguments(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


def _tag(tag: str, body: str) -> str:
    return f"<{tag}>\n{body}\n</{tag}>"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _rewrite_block(written: str, old: Part, new: Part) -> str:
    """Returns the slice of a segment with the new part in it: same tags, same other fields."""
    if isinstance(old, Text | Summary | Opaque):
        return text_of(new)
    tag = _CALL if isinstance(old, ToolCall) else _RESPONSE
    opening, closing = f"<{tag}>", f"</{tag}>"
    tagged = written.startswith(opening)
    body = written[len(opening) : -len(closing)] if tagged else written
    fields = _object(body)
    if isinstance(old, ToolCall) and isinstance(new, ToolCall):
        changed = _dump(_rewrite_call(fields, old, new)) if fields else new.arguments
    elif isinstance(old, ToolResult) and isinstance(new, ToolResult):
        changed = _dump(_rewrite_response(fields, old, new)) if "content" in fields else new.text
    else:
        return written
    return _tag(tag, changed) if tagged else changed


def _rewrite_call(fields: dict[str, Any], old: ToolCall, new: ToolCall) -> dict[str, Any]:
    changed = {**fields, "name": new.name}
    if new.arguments != old.arguments:
        field = "parameters" if "parameters" in fields and "arguments" not in fields else "arguments"
        was_text = isinstance(fields.get(field), str)
        changed[field] = new.arguments if was_text else _arguments(new.arguments)
    if new.call_id != old.call_id:
        changed["id"] = new.call_id
    return changed


def _rewrite_response(fields: dict[str, Any], old: ToolResult, new: ToolResult) -> dict[str, Any]:
    changed = {**fields, "content": new.text} if new.text != old.text else dict(fields)
    if new.call_id != old.call_id:
        changed["tool_call_id"] = new.call_id
    return changed
