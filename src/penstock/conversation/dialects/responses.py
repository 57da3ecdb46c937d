"""OpenAI Responses: a list of typed items; messages, calls, outputs and reasoning are items of their own."""

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
    opaque,
    read_content,
    read_image,
    read_result,
    rewrite_content,
    rewrite_result,
    text_of,
)
from penstock.conversation.dialects.wire_kinds import RESPONSES_ITEMS, Nature, Stub
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
from penstock.conversation.rules import Batches, Pairs, ReasoningStays, ServerTools
from penstock.conversation.wire import json_text, parse_arguments

__all__ = ["RESPONSES", "ResponsesDialect"]

_ROLES = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
}
_CALL, _OUTPUT = "function_call", "function_call_output"  # the plain ones, which a part need not name
_CALLS = {name: kind for name, kind in RESPONSES_ITEMS.items() if kind.nature is Nature.CALL}
_OUTPUTS = {name: kind for name, kind in RESPONSES_ITEMS.items() if kind.nature is Nature.OUTPUT}
# The smallest picture there is: what a computer that was never looked at again shows.
_BLANK_PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
_FIELDS = frozenset(
    ("role", "content", "type", "id", "call_id", "name", "status", "summary", "encrypted_content", "phase")
).union(*(kind.content for kind in RESPONSES_ITEMS.values()))
_FOREIGN_BLOCKS = frozenset(
    (
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "image_url",
        "image",
        "document",
        "server_tool_use",
    )
)

_LANGCHAIN_TYPES = frozenset(("human", "ai", "system", "tool"))  # its messages have a type, and no role


class ResponsesDialect:
    """The items of a Responses request's `input`."""

    name = "responses"
    pairing = Pairing.ANYWHERE
    results_share: Role | None = None
    rules = (Pairs(Pairing.ANYWHERE), Batches(), ServerTools(RESPONSES_ITEMS), ReasoningStays())

    def recognises(self, wire: Mapping[str, Any]) -> bool:
        """Returns True for a typed item, or a message without a type that only this dialect or several could have sent."""
        if _is_reference(wire):
            # It names what it stands for, and holds nothing: an id beside a list is a row of training data.
            return not any(isinstance(value, list | dict) for value in wire.values())
        kind = wire.get("type")
        if isinstance(kind, str) and kind != "message":
            if "role" in wire:
                return is_one_of(wire["role"], _ROLES)
            return kind not in _LANGCHAIN_TYPES
        if not is_one_of(wire.get("role"), _ROLES) or wire.get("tool_calls") or wire.get("function_call"):
            return False
        return not holds_block(wire.get("content"), _FOREIGN_BLOCKS)

    def decode(self, wire: Any, origin: Any = None) -> Message:
        """See `Dialect.decode`. An item of a type that we do not know is the assistant's and opaque."""
        wire = require_object(wire)
        role, parts = _read(wire)
        beside = "" if type(parts[0] if parts else None) is Opaque else text_beside(wire, _FIELDS)
        return Message(role, parts, wire if origin is None else origin, beside)

    def build(self, message: Message) -> dict[str, Any]:
        """Returns one item: the first of several calls or results."""
        for part in message.parts:
            if isinstance(part, ToolCall):
                call = {"call_id": part.call_id, "name": part.name, "arguments": part.arguments}
                return {"type": _CALL, **call}
            if isinstance(part, ToolResult):
                return _build_output(part)
        texts = [text_of(part) for part in message.parts if isinstance(part, Text | Summary)]
        reasoning = [part for part in message.parts if isinstance(part, Reasoning)]
        if reasoning and not texts:
            return _build_reasoning(reasoning[0])
        kind = _text_type(message.role)
        blocks = [{"type": kind, "text": text} for text in texts]
        return {"type": "message", "role": _role_name(message.role), "content": blocks}

    def rewrite(self, message: Message, parts: Mapping[int, Part]) -> dict[str, Any]:
        """See `Dialect.rewrite`."""
        wire = dict(wire_of(message, self))
        if not parts:
            return wire
        if _is_message(wire):
            read = read_content(wire.get("content"), _read_block)
            changes = {read[index].slot: part for index, part in parts.items()}
            kind = _text_type(message.role)
            wire["content"] = rewrite_content(
                wire.get("content"), changes, lambda _, part: {"type": kind, "text": text_of(part)}
            )
            return wire
        for index, part in parts.items():
            _rewrite_item(wire, message.parts[index], part)
        return wire

    def keep(self, message: Message, parts: Sequence[int]) -> dict[str, Any]:
        """See `Dialect.keep`. Only the blocks of a message can leave; every other item is one part."""
        wire = dict(wire_of(message, self))
        content = wire.get("content")
        if _is_message(wire) and isinstance(content, list):
            read = read_content(content, _read_block)
            blocks = dict.fromkeys(read[index].slot.block for index in parts)
            wire["content"] = [content[block] for block in blocks if block is not None]
        return wire

    def add_results(self, message: Message, results: Sequence[ToolResult]) -> dict[str, Any]:
        """Raises ValueError: each output is an item of its own here."""
        raise ValueError(
            f"an output is an item of its own, so {len(results)} cannot be added to {message.role}"
        )

    def prepend_text(self, message: Message, text: str) -> dict[str, Any]:
        """See `Dialect.prepend_text`. An output takes text too; a call or reasoning does not."""
        return self._with_text(message, text, in_front=True)

    def append_text(self, message: Message, text: str) -> dict[str, Any]:
        """See `Dialect.append_text`."""
        return self._with_text(message, text, in_front=False)

    def text_message(self, role: Role, text: str) -> dict[str, Any]:
        """See `Dialect.text_message`."""
        if role is Role.TOOL:
            raise ValueError("an output needs the call that it answers")
        content = [{"type": _text_type(role), "text": text}]
        return {"type": "message", "role": _role_name(role), "content": content}

    def can_follow(self, previous: Role | None, role: Role) -> bool:
        """Items need not alternate. An assistant does not open."""
        if role is Role.ASSISTANT:
            return previous is not None
        return role in (Role.USER, Role.SYSTEM)

    def _with_text(self, message: Message, text: str, *, in_front: bool) -> dict[str, Any]:
        wire = dict(wire_of(message, self))
        kind = wire.get("type")
        if _is_message(wire):
            field, block = "content", {"type": _text_type(message.role), "text": text}
        elif isinstance(kind, str) and kind in _OUTPUTS and _OUTPUTS[kind].stub is Stub.TEXT:
            field, block = "output", {"type": "input_text", "text": text}
        else:
            raise ValueError(f"an item of type {kind} cannot carry text")
        old = wire.get(field)
        if isinstance(old, list):
            wire[field] = [block, *old] if in_front else [*old, block]
        elif isinstance(old, str) and old:
            wire[field] = f"{text}\n\n{old}" if in_front else f"{old}\n\n{text}"
        else:
            wire[field] = text
        return wire


RESPONSES = ResponsesDialect()


def _is_message(wire: Mapping[str, Any]) -> bool:
    return wire.get("type", "message") in ("message", None) and not _is_reference(wire)


def _is_reference(wire: Mapping[str, Any]) -> bool:
    """Returns True if the item is a reference without a type, which the API allows."""
    return wire.get("type") is None and "role" not in wire and isinstance(wire.get("id"), str)


def _read(wire: Mapping[str, Any]) -> tuple[Role, tuple[Part, ...]]:
    kind = wire.get("type")
    if _is_message(wire):
        role = _ROLES.get(wire["role"]) if isinstance(wire.get("role"), str) else None
        if role is None:
            raise unknown_role("role", wire.get("role"), tuple(_ROLES))
        return role, tuple([part for _, part in read_content(wire.get("content"), _read_block)])
    if _is_reference(wire):
        return Role.ASSISTANT, (opaque(wire, "item_reference"),)
    if not isinstance(kind, str):
        raise unknown_role("type", kind, ("message", "reasoning", *_CALLS, *_OUTPUTS))
    if kind in _CALLS and not _is_searched_by_server(wire):
        return Role.ASSISTANT, (_read_call(wire, kind),)
    if kind in _OUTPUTS and not _is_searched_by_server(wire):
        return Role.TOOL, (_read_output(wire, kind),)
    if kind == "reasoning":
        return Role.ASSISTANT, (_read_reasoning(wire),)
    known = RESPONSES_ITEMS.get(kind)
    if known is not None:
        return (Role.ASSISTANT if known.nature is Nature.OUTPUT else known.role), (opaque(wire),)
    role = _ROLES.get(wire["role"]) if isinstance(wire.get("role"), str) else None
    return role or Role.ASSISTANT, (opaque(wire),)


def _is_searched_by_server(wire: Mapping[str, Any]) -> bool:
    """Returns True if the provider searched for tools itself: then call and output share no id, and nobody answers."""
    return wire["type"] in {"tool_search_call", "tool_search_output"} and not wire.get("call_id")


def _content_field(wire: Mapping[str, Any], kind: str) -> str:
    fields = (_CALLS.get(kind) or _OUTPUTS[kind]).content
    return next((field for field in fields if wire.get(field) is not None), fields[0])


def _read_call(wire: Mapping[str, Any], kind: str) -> ToolCall:
    given = wire.get(_content_field(wire, kind))
    arguments = given if isinstance(given, str) else ("" if given is None else json_text(given))
    name = wire.get("name")
    named = name if isinstance(name, str) else kind.removesuffix("_call")
    return ToolCall(_call_id(wire), named, arguments, "" if kind == _CALL else kind)


def _read_output(wire: Mapping[str, Any], kind: str) -> ToolResult:
    given = wire.get(_content_field(wire, kind))
    call_id, named = _call_id(wire), "" if kind == _OUTPUT else kind
    if kind == "computer_call_output" and isinstance(given, Mapping):
        image = read_image({**given, "type": "input_image"})
        if image is not None:
            return ToolResult(call_id, "", images=(image,), kind=named)
    if kind == "shell_call_output" and (chunks := _read_chunks(given)) is not None:
        return ToolResult(call_id, "\n".join(chunks), _has_failed(given), kind=named)
    text, images = read_result(given)
    return ToolResult(call_id, text, images=images, kind=named)


def _read_chunks(output: Any) -> list[str] | None:
    """Returns what a shell printed; None if the output has another shape."""
    if not isinstance(output, list | tuple) or not all(isinstance(chunk, Mapping) for chunk in output):
        return None
    texts: list[str] = []
    for chunk in output:
        texts += [chunk[name] for name in ("stdout", "stderr") if isinstance(chunk.get(name), str)]
    return [text for text in texts if text]


def _has_failed(chunks: Any) -> bool:
    """Returns True if a command of a shell ended with a code other than 0, or was stopped."""
    outcomes = [chunk["outcome"] for chunk in chunks if isinstance(chunk.get("outcome"), Mapping)]
    return any(outcome.get("exit_code", 0) != 0 or outcome.get("type") == "timeout" for outcome in outcomes)


def _call_id(wire: Mapping[str, Any]) -> str:
    # The output of a local shell names its call by `id`; an output of a function that nobody called names none.
    for name in ("call_id",) if wire["type"] == _OUTPUT else ("call_id", "id"):
        value = wire.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _build_output(part: ToolResult) -> dict[str, Any]:
    """Returns the output in the type that its call needs."""
    kind = part.kind or _OUTPUT
    wire: dict[str, Any] = {"type": kind, "call_id": part.call_id}
    if kind == "local_shell_call_output":
        return {"type": kind, "id": part.call_id, "output": part.text}
    if kind == "computer_call_output":
        return {**wire, "output": {"type": "computer_screenshot", "image_url": _BLANK_PICTURE}}
    if kind == "shell_call_output":
        return {**wire, "output": [_build_chunk(part.text)]}
    if kind == "tool_search_output":
        return {**wire, "execution": "client", "status": "completed", "tools": []}
    if kind == "apply_patch_call_output":
        return {**wire, "status": "failed", "output": part.text}
    return {**wire, "output": part.text}


def _build_chunk(text: str, outcome: Any = None) -> dict[str, Any]:
    return {"stdout": text, "stderr": "", "outcome": outcome or {"type": "exit", "exit_code": 0}}


def _read_reasoning(wire: Mapping[str, Any]) -> Reasoning:
    texts: list[str] = []
    for field in ("summary", "content"):
        blocks = wire.get(field)
        if isinstance(blocks, list):
            texts += [
                block["text"]
                for block in blocks
                if isinstance(block, Mapping) and isinstance(block.get("text"), str)
            ]
    seal = wire.get("encrypted_content")
    seal = seal if isinstance(seal, str) else ""
    return Reasoning("\n".join(texts), bool(seal), seal)


def _build_reasoning(part: Reasoning) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    wire: dict[str, Any] = {"type": "reasoning", "summary": summary}
    if part.sealed:
        wire["encrypted_content"] = part.seal
    return wire


def _read_block(block: Mapping[str, Any]) -> Part:
    return (read_image(block) if block.get("type") == "input_image" else None) or opaque(block)


def _text_type(role: Role) -> str:
    return "output_text" if role is Role.ASSISTANT else "input_text"


def _role_name(role: Role) -> str:
    return "user" if role is Role.TOOL else str(role)


def _rewrite_item(wire: dict[str, Any], old: Part, new: Part) -> None:
    kind = wire.get("type")
    if not isinstance(kind, str) or not isinstance(new, ToolCall | ToolResult):
        return
    if isinstance(old, ToolCall) and isinstance(new, ToolCall):
        field = _content_field(wire, kind)
        if new.arguments != old.arguments:
            was_text = isinstance(wire.get(field), str)
            wire[field] = new.arguments if was_text else parse_arguments(new.arguments)
        if new.name != old.name:
            wire["name"] = new.name
    elif isinstance(old, ToolResult) and isinstance(new, ToolResult):
        _rewrite_output(wire, kind, old, new)
    if isinstance(old, ToolCall | ToolResult) and new.call_id != old.call_id:
        wire["call_id" if isinstance(wire.get("call_id"), str) else "id"] = new.call_id


def _rewrite_output(wire: dict[str, Any], kind: str, old: ToolResult, new: ToolResult) -> None:
    stub, output = _OUTPUTS[kind].stub, wire.get("output")
    if stub is Stub.TEXT:
        wire["output"] = rewrite_result(output, old, new, "input_text")
    elif stub is Stub.CHUNKS and new.text != old.text:
        last = output[-1] if isinstance(output, list) and output else {}
        wire["output"] = [_build_chunk(new.text, last.get("outcome") if isinstance(last, Mapping) else None)]
