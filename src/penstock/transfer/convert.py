"""A conversation in another dialect, through the parts that all dialects share.

Text, calls, results, handoffs and pictures are converted. A part knows a picture only by its digest, so the data
comes from the wire. Parts that the other dialect cannot express are left out and counted by kind, so that nobody
is surprised: `Conversion.lost` is empty only if nothing was lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import wire_of
from penstock.conversation.dialects.content import read_image, text_of
from penstock.conversation.dialects.sharegpt import SHAREGPT
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
from penstock.conversation.wire import parse_arguments
from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.conversation.dialects import Dialect

__all__ = ["Conversion", "Picture", "convert", "find_pictures"]

# Fields of messages, items and blocks that the parts stand for, or that say nothing.
_UNDERSTOOD = frozenset(
    (
        *("role", "content", "type", "text", "from", "value", "id", "status"),
        *("tool_calls", "tool_call_id", "function_call", "function", "custom", "index", "refusal"),
        *("call_id", "name", "arguments", "input", "output", "action", "operation", "tools"),
        *("tool_use_id", "is_error", "source", "image_url", "detail", "file_id"),
        *("thinking", "signature", "data", "reasoning", "reasoning_content", "reasoning_details"),
        *("summary", "encrypted_content"),
    )
)
_NAME_CHARS = 80


class Conversion(msgspec.Struct, frozen=True):
    """The messages in the other dialect, and what it could not say, with how often that was so."""

    wires: list[dict[str, Any]]
    lost: dict[str, int]


class _Turn(msgspec.Struct):
    """Parts that become one message, as far as the dialect allows."""

    role: Role
    message: int
    parts: list[Part]


class _Lost:
    """Counts what is left out."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, what: str) -> None:
        if len(what) > _NAME_CHARS:  # the wire may name things at any length
            what = f"{what[:_NAME_CHARS]}…"
        self.counts[what] = self.counts.get(what, 0) + 1


class Picture(msgspec.Struct, frozen=True):
    """A picture: its base64 data with its type, or the URL that it is at.

    Neither where only its provider has it.
    """

    media_type: str = ""
    data: str = ""
    url: str = ""

    @property
    def address(self) -> str:
        """Its URL, or its data as a URL; "" if it has neither."""
        if self.data:
            return f"data:{self.media_type or 'image/png'};base64,{self.data}"
        return self.url


def convert(messages: Sequence[Message], source: Dialect, target: Dialect) -> Conversion:
    """Returns the messages of `source` as those of `target`. Raises InputError if that is not one of our own dialects."""
    if target.name not in _WRITERS:
        raise InputError(
            f"conversations cannot be converted to the dialect {target.name}: use one of {', '.join(_WRITERS)}"
        )
    lost = _Lost()
    pictures: dict[str, Picture] = {}
    turns: list[_Turn] = []
    for number, message in enumerate(messages):
        wire = wire_of(message, source)
        if any(
            isinstance(part, Image) or (isinstance(part, ToolResult) and part.images)
            for part in message.parts
        ):
            pictures |= find_pictures(wire)
        _count_fields(wire, lost)
        for role, part in _split_roles(message):
            _place(turns, role, number, part, source.name, target.name)
    writer = _WRITERS[target.name](pictures, lost)
    return Conversion(
        [wire for turn in turns for wire in writer.write(turn)], dict(sorted(lost.counts.items()))
    )


def _split_roles(message: Message) -> Iterator[tuple[Role, Part]]:
    for part in message.parts:
        role = Role.TOOL if isinstance(part, ToolResult) else message.role
        yield role, part


def _count_fields(wire: Mapping[str, Any], lost: _Lost) -> None:
    """Counts fields that no part stands for: of the message and of its blocks."""
    content = wire.get("content")
    for value in (wire, *(content if isinstance(content, list) else ())):
        if isinstance(value, Mapping):
            for key in value.keys() - _UNDERSTOOD:
                lost.add(f"field {key!r}")


def _place(turns: list[_Turn], role: Role, number: int, part: Part, source: str, target: str) -> None:
    """Puts the part into the turn before it, or into one of its own."""
    last = turns[-1] if turns else None
    if last is not None and _belongs_to(last, role, number, source, target):
        if isinstance(part, ToolResult):  # results come first in a message that holds more
            at = sum(isinstance(one, ToolResult) for one in last.parts)
            last.parts.insert(at, part)
        else:
            last.parts.append(part)
        return
    turns.append(_Turn(role, number, [part]))


def _belongs_to(last: _Turn, role: Role, number: int, source: str, target: str) -> bool:
    if target == "anthropic":
        spoken = {Role.TOOL: Role.USER}
        return role is not Role.SYSTEM and spoken.get(last.role, last.role) is spoken.get(role, role)
    if last.role is not role:
        return False
    if last.message == number or target == "sharegpt":
        return True
    # Items of one answer stand on their own in Responses and in one message in Chat.
    return target == "chat" and source == "responses" and role is Role.ASSISTANT


def find_pictures(wire: Any) -> dict[str, Picture]:
    """Returns every picture of a wire object, by its digest."""
    found: dict[str, Picture] = {}
    waiting = [wire]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            image = read_image(value) or _read_screenshot(value)
            if image is not None:
                found[image.digest] = _read_picture(value)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


def _read_screenshot(block: Mapping[str, Any]) -> Any:
    """Reads a computer's screenshot, which is a picture of another type."""
    return (
        read_image({**block, "type": "input_image"}) if block.get("type") == "computer_screenshot" else None
    )


def _read_picture(block: Mapping[str, Any]) -> Picture:
    source = block.get("source") or block.get("image_url")
    if isinstance(source, Mapping):
        if isinstance(source.get("data"), str):
            return Picture(str(source.get("media_type") or ""), source["data"])
        source = source.get("url")
    if not isinstance(source, str):
        return Picture()
    head, comma, data = source.partition(",")
    if source[:5].lower() == "data:" and comma and head.endswith(";base64"):
        return Picture(head[5:].split(";", 1)[0], data)
    return Picture(url=source) if ":" in source[:12] else Picture()


class _Writer(ABC):
    """Writes a turn as messages of one dialect."""

    def __init__(self, pictures: Mapping[str, Picture], lost: _Lost) -> None:
        self.pictures = pictures
        self.lost = lost

    @abstractmethod
    def write(self, turn: _Turn) -> Iterator[dict[str, Any]]:
        """Returns the messages of the turn."""

    def find_picture(self, image: Image) -> Picture | None:
        """Returns the picture if it can be sent to another provider."""
        found = self.pictures.get(image.digest, Picture())
        if found.address:
            return found
        self.lost.add("picture that only its provider has")
        return None

    def count_unsaid(self, part: Part) -> None:
        """Counts what has no place here."""
        if isinstance(part, Reasoning):
            self.lost.add("reasoning")
        elif isinstance(part, Opaque):
            self.lost.add(f"content of type {part.kind!r}")
        elif isinstance(part, Image):
            self.lost.add("picture")

    def count_flag(self, result: ToolResult) -> None:
        """Counts the mark of a failed call where only Anthropic's dialect has one."""
        if result.is_error:
            self.lost.add("mark of a failed call (its text stays)")


class _Chat(_Writer):
    def write(self, turn: _Turn) -> Iterator[dict[str, Any]]:
        for part in turn.parts:
            if isinstance(part, ToolResult):
                self.count_flag(part)
                for _ in part.images:
                    self.lost.add("picture in a tool result")
                yield {"role": "tool", "tool_call_id": part.call_id, "content": part.text}
        if turn.role is not Role.TOOL:
            yield self._build_message(turn)

    def _build_message(self, turn: _Turn) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        reasoning: list[str] = []
        for part in turn.parts:
            match part:
                case Text() | Summary():
                    blocks.append({"type": "text", "text": text_of(part)})
                case Image() if turn.role is Role.USER:
                    picture = self.find_picture(part)
                    if picture is not None:
                        blocks.append({"type": "image_url", "image_url": {"url": picture.address}})
                case ToolCall(call_id=call_id, name=name, arguments=arguments):
                    function = {"name": name, "arguments": arguments}
                    calls.append({"id": call_id, "type": "function", "function": function})
                case Reasoning(text=text) if text:
                    reasoning.append(text)
                    if part.sealed:
                        self.lost.add("signature of reasoning (its text stays)")
                case _:
                    self.count_unsaid(part)
        wire: dict[str, Any] = {"role": str(turn.role), "content": _simplify(blocks, None if calls else "")}
        if reasoning:
            wire["reasoning_content"] = "\n".join(reasoning)
        if calls:
            wire["tool_calls"] = calls
        return wire


class _Responses(_Writer):
    def write(self, turn: _Turn) -> Iterator[dict[str, Any]]:
        spoken = "output_text" if turn.role is Role.ASSISTANT else "input_text"
        blocks: list[dict[str, Any]] = []
        for part in turn.parts:
            match part:
                case Text() | Summary():
                    blocks.append({"type": spoken, "text": text_of(part)})
                case Image() if turn.role is Role.USER:
                    blocks += self._build_image(part)
                case ToolCall() | ToolResult():
                    yield from _write_message(turn.role, blocks)
                    blocks = []
                    yield self._build_item(part)
                case _:
                    self.count_unsaid(part)
        yield from _write_message(turn.role, blocks)

    def _build_item(self, part: ToolCall | ToolResult) -> dict[str, Any]:
        if isinstance(part, ToolCall):
            call = {"call_id": part.call_id, "name": part.name, "arguments": part.arguments}
            return {"type": "function_call", **call}
        self.count_flag(part)
        pictures = [block for image in part.images for block in self._build_image(image)]
        output = [{"type": "input_text", "text": part.text}, *pictures] if pictures else part.text
        return {"type": "function_call_output", "call_id": part.call_id, "output": output}

    def _build_image(self, image: Image) -> list[dict[str, Any]]:
        picture = self.find_picture(image)
        return [{"type": "input_image", "image_url": picture.address}] if picture is not None else []


def _write_message(role: Role, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "message", "role": str(role), "content": blocks}] if blocks else []


class _Anthropic(_Writer):
    def write(self, turn: _Turn) -> Iterator[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        for part in turn.parts:
            blocks += self._build_block(part, turn.role)
        if not blocks:  # an empty message is refused
            self.lost.add("empty message")
            return
        if turn.role is Role.SYSTEM:
            self.lost.add("place of a system message: put it into the field `system` of a request")
        role = Role.USER if turn.role is Role.TOOL else turn.role
        yield {"role": str(role), "content": _simplify(blocks, "")}

    def _build_block(self, part: Part, role: Role) -> list[dict[str, Any]]:
        match part:
            case Text() | Summary():
                words = text_of(part)
                return [{"type": "text", "text": words}] if words.strip() else []
            case Image() if role is not Role.ASSISTANT:
                return self._build_image(part)
            case ToolCall(call_id=call_id, name=name, arguments=arguments):
                return [
                    {"type": "tool_use", "id": call_id, "name": name, "input": parse_arguments(arguments)}
                ]
            case ToolResult():
                return [self._build_result(part)]
            case _:
                self.count_unsaid(part)
                return []

    def _build_result(self, result: ToolResult) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.call_id, "content": result.text}
        pictures = [block for image in result.images for block in self._build_image(image)]
        if pictures:
            words = [{"type": "text", "text": result.text}] if result.text else []
            block["content"] = [*words, *pictures]
        return {**block, "is_error": True} if result.is_error else block

    def _build_image(self, image: Image) -> list[dict[str, Any]]:
        picture = self.find_picture(image)
        if picture is None:
            return []
        if picture.data:
            source = {"type": "base64", "media_type": picture.media_type, "data": picture.data}
        else:
            source = {"type": "url", "url": picture.url}
        return [{"type": "image", "source": source}]


class _ShareGPT(_Writer):
    def write(self, turn: _Turn) -> Iterator[dict[str, Any]]:
        parts: list[Part] = []
        for part in turn.parts:
            match part:
                case Reasoning(text=text) if text:
                    parts.append(Reasoning(text))
                    if part.sealed:
                        self.lost.add("signature of reasoning (its text stays)")
                case Image() | Opaque() | Reasoning():
                    self.count_unsaid(part)
                case ToolResult():
                    self.count_flag(part)
                    for _ in part.images:
                        self.lost.add("picture in a tool result")
                    parts.append(part)
                case _:
                    parts.append(part)
        yield SHAREGPT.build(Message(turn.role, tuple(parts)))


_WRITERS: dict[str, type[_Writer]] = {
    "chat": _Chat,
    "responses": _Responses,
    "anthropic": _Anthropic,
    "sharegpt": _ShareGPT,
}


def _simplify(blocks: list[dict[str, Any]], empty: str | None) -> Any:
    """Returns a string if the content is a single text."""
    if not blocks:
        return empty
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks
