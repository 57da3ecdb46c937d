"""Anthropic Messages: `role` and `content`, a string or a list of blocks; calls and results are blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.conversation.dialects.base import (
    holds_block,
    is_one_of,
    require_object,
    text_beside,
    unknown_role,
    wire_of,
)
from penstock.conversation.dialects.content import (
    Slotted,
    opaque,
    read_content,
    read_image,
    read_result,
    rewrite_content,
    rewrite_result,
    text_of,
)
from penstock.conversation.dialects.wire_kinds import ANTHROPIC_BLOCKS, is_barrier
from penstock.conversation.message import (
    Image,
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
from penstock.conversation.rules import (
    Alternation,
    Batches,
    NonEmpty,
    Pairs,
    ServerTools,
    ThinkingFirst,
    UserOpens,
)
from penstock.conversation.wire import json_text, parse_arguments, parse_json, read_text

__all__ = ["ANTHROPIC", "AnthropicDialect"]

# "system" inside the list is a beta that real clients use; it stays where it is.
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
# What an answer of the API says beside its content is not charged when it is sent back.
_FIELDS = frozenset(
    (
        "role",
        "content",
        "model",
        "stop_reason",
        "stop_sequence",
        "stop_details",
        "usage",
        "container",
        "clear_at",
    )
)
_FOREIGN_BLOCKS = frozenset(
    ("image_url", "input_audio", "file", "refusal", "input_text", "output_text", "input_image", "input_file")
)
_THINKING = ("thinking", "redacted_thinking")


class AnthropicDialect:
    """The Messages API."""

    name = "anthropic"
    pairing = Pairing.MERGED
    results_share: Role | None = Role.USER
    rules = (
        Pairs(Pairing.MERGED),
        Batches(),
        ServerTools(ANTHROPIC_BLOCKS),
        ThinkingFirst(),
        NonEmpty(),
        UserOpens(is_barrier),
        Alternation(),
    )

    def recognises(self, wire: Mapping[str, Any]) -> bool:
        """Returns True for one of the three roles without anything that only another dialect has."""
        if not is_one_of(wire.get("role"), _ROLES) or wire.get("tool_calls") or wire.get("function_call"):
            return False
        if wire.get("type", "message") != "message":
            return False
        return not holds_block(wire.get("content"), _FOREIGN_BLOCKS)

    def decode(self, wire: Any, origin: Any = None) -> Message:
        """See `Dialect.decode`."""
        wire = require_object(wire)
        role = _ROLES.get(wire["role"]) if isinstance(wire.get("role"), str) else None
        if role is None:
            raise unknown_role("role", wire.get("role"), tuple(_ROLES))
        parts = tuple([part for _, part in read_content(wire.get("content"), _read_block)])
        return Message(role, parts, wire if origin is None else origin, text_beside(wire, _FIELDS))

    def build(self, message: Message) -> dict[str, Any]:
        """Returns one message. Pictures and what we do not understand cannot be built: only their origin has them."""
        role = "user" if message.role is Role.TOOL else str(message.role)
        parts = message.parts
        if len(parts) == 1 and isinstance(parts[0], Text | Summary):
            return {"role": role, "content": text_of(parts[0])}
        blocks = [block for part in parts if (block := _build_block(part)) is not None]
        return {"role": role, "content": blocks}

    def rewrite(self, message: Message, parts: Mapping[int, Part]) -> dict[str, Any]:
        """See `Dialect.rewrite`."""
        wire = dict(wire_of(message, self))
        read = read_content(wire.get("content"), _read_block)
        changes = {read[index].slot: part for index, part in parts.items()}
        if changes:
            wire["content"] = rewrite_content(wire.get("content"), changes, _write_block)
        return wire

    def keep(self, message: Message, parts: Sequence[int]) -> dict[str, Any]:
        """See `Dialect.keep`. A string stays whole or becomes an empty list."""
        wire = dict(wire_of(message, self))
        content = wire.get("content")
        if isinstance(content, list):
            wire["content"] = [content[block] for block in _kept_blocks(content, parts)]
        elif not parts:
            wire["content"] = []
        return wire

    def add_results(self, message: Message, results: Sequence[ToolResult]) -> dict[str, Any]:
        """Results come first in a message; these follow the ones it has."""
        wire, blocks = self._as_blocks(message)
        at = _after_results(blocks)
        blocks[at:at] = [_build_result(result) for result in results]
        wire["content"] = blocks
        return wire

    def prepend_text(self, message: Message, text: str) -> dict[str, Any]:
        """Puts the text behind results and thinking, which the API wants first."""
        wire = dict(wire_of(message, self))
        content = wire.get("content")
        if isinstance(content, str) and content:
            wire["content"] = f"{text}\n\n{content}"
            return wire
        wire, blocks = self._as_blocks(message)
        at = _after_results(blocks)
        while at < len(blocks) and _type(blocks[at]) in _THINKING:
            at += 1
        blocks.insert(at, {"type": "text", "text": text})
        wire["content"] = blocks
        return wire

    def append_text(self, message: Message, text: str) -> dict[str, Any]:
        """Puts the text before calls, which end their message."""
        wire = dict(wire_of(message, self))
        content = wire.get("content")
        if isinstance(content, str) and content:
            wire["content"] = f"{content}\n\n{text}"
            return wire
        wire, blocks = self._as_blocks(message)
        calls = [index for index, block in enumerate(blocks) if _type(block) == "tool_use"]
        blocks.insert(calls[0] if calls else len(blocks), {"type": "text", "text": text})
        wire["content"] = blocks
        return wire

    def text_message(self, role: Role, text: str) -> dict[str, Any]:
        """See `Dialect.text_message`."""
        if role is Role.TOOL:
            raise ValueError("a tool result needs the call that it answers")
        return {"role": str(role), "content": text}

    def can_follow(self, previous: Role | None, role: Role) -> bool:
        """Returns True if user and assistant take turns, the user first."""
        if role is Role.ASSISTANT:
            return previous is Role.USER
        return role is Role.USER and previous is not Role.USER

    def _as_blocks(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        wire = dict(wire_of(message, self))
        content = wire.get("content")
        if isinstance(content, list):
            return wire, list(content)
        return wire, [{"type": "text", "text": content}] if isinstance(content, str) and content else []


ANTHROPIC = AnthropicDialect()


def _type(block: Any) -> Any:
    return block.get("type") if isinstance(block, Mapping) else None


def _after_results(blocks: Sequence[Any]) -> int:
    results = [index for index, block in enumerate(blocks) if _type(block) == "tool_result"]
    return results[-1] + 1 if results else 0


def _kept_blocks(content: list[Any], parts: Sequence[int]) -> list[int]:
    slots: list[Slotted] = read_content(content, _read_block)
    blocks = dict.fromkeys(slots[index].slot.block for index in parts)
    return [block for block in blocks if block is not None]


def _read_block(block: Mapping[str, Any]) -> Part:
    read = _READERS.get(block.get("type") or "") if isinstance(block.get("type"), str) else None
    return read(block) if read else opaque(block)


def _read_call(block: Mapping[str, Any]) -> Part:
    return ToolCall(
        read_text(block.get("id")), read_text(block.get("name")), json_text(block.get("input", {}))
    )


def _read_tool_result(block: Mapping[str, Any]) -> Part:
    text, images = read_result(block.get("content"))
    return ToolResult(read_text(block.get("tool_use_id")), text, block.get("is_error") is True, images)


def _read_thinking(block: Mapping[str, Any]) -> Part:
    seal = read_text(block.get("signature"))
    return Reasoning(read_text(block.get("thinking")), bool(seal), seal)


def _read_redacted(block: Mapping[str, Any]) -> Part:
    return Reasoning("", sealed=True, seal=read_text(block.get("data")))


def _read_picture(block: Mapping[str, Any]) -> Part:
    return read_image(block) or opaque(block)


_READERS = {
    "tool_use": _read_call,
    "tool_result": _read_tool_result,
    "thinking": _read_thinking,
    "redacted_thinking": _read_redacted,
    "image": _read_picture,
}


def _build_block(part: Part) -> dict[str, Any] | None:
    if isinstance(part, Text | Summary):
        return {"type": "text", "text": text_of(part)}
    if isinstance(part, ToolCall):
        return {
            "type": "tool_use",
            "id": part.call_id,
            "name": part.name,
            "input": parse_arguments(part.arguments),
        }
    if isinstance(part, ToolResult):
        return _build_result(part)
    if isinstance(part, Reasoning):
        return _build_reasoning(part)
    return _build_opaque(part)


def _build_reasoning(part: Reasoning) -> dict[str, Any]:
    if part.sealed and not part.text:
        return {"type": "redacted_thinking", "data": part.seal}
    return {"type": "thinking", "thinking": part.text, "signature": part.seal}


def _build_opaque(part: Image | Opaque) -> dict[str, Any] | None:
    block = parse_json(part.text) if isinstance(part, Opaque) else None
    return block if isinstance(block, dict) else None


def _build_result(result: ToolResult) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.call_id, "content": result.text}
    if result.is_error:
        block["is_error"] = True
    return block


def _write_block(block: Any, part: Part) -> Any:
    old = _read_block(block) if isinstance(block, Mapping) else None
    if isinstance(old, ToolResult) and isinstance(part, ToolResult):
        changed = {**block, "content": rewrite_result(block.get("content"), old, part, "text")}
        if part.call_id != old.call_id:
            changed["tool_use_id"] = part.call_id
        if part.is_error != old.is_error:
            changed["is_error"] = part.is_error
        if "content" not in block and not changed["content"]:
            del changed["content"]
        return changed
    if isinstance(old, ToolCall) and isinstance(part, ToolCall):
        kept = block.get("input") if part.arguments == old.arguments else parse_arguments(part.arguments)
        return {**block, "id": part.call_id, "name": part.name, "input": kept}
    if isinstance(old, Reasoning):
        return block
    return {"type": "text", "text": text_of(part)}
