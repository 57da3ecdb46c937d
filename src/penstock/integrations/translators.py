"""Translators: the messages of a framework on the wire of a dialect, and back. Each adapter has one.

A framework whose messages are wire objects needs `WireTranslator` alone. One whose message is a list of parts, with all results
of a batch in one, says how a part reads and is made, and `PartsTranslator` does the rest: parts that a compaction left alone come
back as the same objects. `ChatTranslator` is for messages with their calls beside the content, and a message for each result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from penstock.conversation.mark import OPENING
from penstock.conversation.wire import json_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ChatMessageParts",
    "ChatTranslator",
    "PartsTranslator",
    "Translator",
    "WireTranslator",
    "read_text",
    "write_call",
    "write_media",
    "write_result",
    "write_text",
    "write_thinking",
]

M = TypeVar("M")
P = TypeVar("P")
Block = dict[str, Any]


class Translator(Protocol[M]):
    """Translates the messages of a framework, one to one, to a dialect and back."""

    dialect: str

    def to_wire(self, message: M) -> Any:
        """Returns the message on the wire: JSON that says all that a compaction has to know."""

    def from_wire(self, wire: Any, original: M | None) -> M:
        """Returns a new message that says this. `original` is the one that it was made of, None for a handoff."""


class WireTranslator:
    """For frameworks whose messages are wire objects as they are."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def to_wire(self, message: Any) -> Any:
        """Returns the message."""
        return message

    def from_wire(self, wire: Any, original: Any) -> Any:  # noqa: ARG002  # of the protocol
        """Returns the wire object."""
        return wire


class PartsTranslator(ABC, Generic[M, P]):
    """For frameworks whose message is a list of parts, in the dialect of Anthropic's API: a part is any number of blocks."""

    dialect = "anthropic"

    @abstractmethod
    def read_message(self, message: M) -> tuple[str, Sequence[P]]:
        """Returns the role, `user` or `assistant`, and the parts."""

    @abstractmethod
    def make_message(self, role: str, parts: list[P], original: M | None) -> M:
        """Returns a message of these parts, with all else of the original."""

    @abstractmethod
    def write_part(self, part: P) -> list[Block]:
        """Returns the blocks that say what the part says."""

    @abstractmethod
    def rewrite_part(self, part: P, blocks: list[Block]) -> P:
        """Returns the part with what its blocks, as many as `write_part` gave, say now."""

    @abstractmethod
    def make_part(self, block: Block, role: str) -> P:
        """Returns a new part: a handoff, or the result that a repair put in for a call that has none."""

    def to_wire(self, message: M) -> dict[str, Any]:
        """Returns the message on the wire."""
        role, parts = self.read_message(message)
        return {"role": role, "content": [block for part in parts for block in self.write_part(part)]}

    def from_wire(self, wire: Any, original: M | None) -> M:
        """Returns a message that says this; parts that say what they said are those of the original."""
        role, content = wire["role"], wire["content"]
        blocks = [write_text(content)] if isinstance(content, str) else list(content)
        parts: list[P] = []
        for part in () if original is None else self.read_message(original)[1]:
            own = self.write_part(part)
            while blocks and str(blocks[0].get("text", "")).startswith(OPENING):  # a handoff in front
                parts.append(self.make_part(blocks.pop(0), role))
            now, blocks = blocks[: len(own)], blocks[len(own) :]
            parts.append(part if now == own else self.rewrite_part(part, now))
        parts += [self.make_part(block, role) for block in blocks]
        return self.make_message(role, parts, original)


class ChatMessageParts(NamedTuple):
    """A message, read: `calls` are identifiers, tools and arguments, `answers` is the call whose result it is."""

    role: str
    content: Any
    calls: Sequence[tuple[str, str, Any]] = ()
    answers: str | None = None


class ChatTranslator(ABC, Generic[M]):
    """For frameworks whose messages are those of Chat Completions in other clothes."""

    dialect = "chat"

    @abstractmethod
    def read_message(self, message: M) -> ChatMessageParts:
        """Returns what the message says."""

    @abstractmethod
    def make_message(self, told: ChatMessageParts) -> M:
        """Returns a new message: a handoff, the result that a repair put in for a call, or one that only the store holds."""

    @abstractmethod
    def rewrite_message(self, original: M, content: Any, arguments: dict[str, Any]) -> M:
        """Returns the original with the content, and the arguments of its calls by identifier, that it has now."""

    def to_wire(self, message: M) -> dict[str, Any]:
        """Returns the message on the wire."""
        read = self.read_message(message)
        wire: dict[str, Any] = {"role": read.role, "content": read.content}
        if read.answers is not None:
            wire["tool_call_id"] = read.answers
        if read.calls:
            wire["tool_calls"] = [_write_function(*call) for call in read.calls]
        return wire

    def from_wire(self, wire: Any, original: M | None) -> M:
        """Returns a message that says this; all but the content and the arguments is that of the original."""
        content = wire.get("content") or ""
        functions = [(call["id"], call["function"]) for call in wire.get("tool_calls", ())]
        if original is None:
            calls = [(call, function["name"], function["arguments"]) for call, function in functions]
            return self.make_message(ChatMessageParts(wire["role"], content, calls, wire.get("tool_call_id")))
        return self.rewrite_message(
            original, content, {call: function["arguments"] for call, function in functions}
        )


def _write_function(call: str, tool: str, arguments: Any) -> dict[str, Any]:
    told = arguments if isinstance(arguments, str) else json_text(arguments)
    return {"id": call, "type": "function", "function": {"name": tool, "arguments": told}}


# Blocks of Anthropic's API.


def write_text(text: str) -> Block:
    """Returns a block of text."""
    return {"type": "text", "text": text}


def write_thinking(text: str, signature: str | None) -> Block:
    """Returns a block of the model's reasoning."""
    return {"type": "thinking", "thinking": text, "signature": signature or ""}


def write_call(call: str, tool: str, arguments: Any) -> Block:
    """Returns a call of a tool."""
    return {"type": "tool_use", "id": call, "name": tool, "input": arguments}


def write_result(call: str, content: Any, *, failed: bool = False) -> Block:
    """Returns the result of a call: a text, or blocks."""
    block: Block = {"type": "tool_result", "tool_use_id": call, "content": content}
    return {**block, "is_error": True} if failed else block


def write_media(media_type: str, data: str) -> Block:
    """Returns an image or a document of these Base64 characters."""
    kind = "image" if media_type.startswith("image/") else "document"
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def read_text(block: Block) -> str:
    """Returns the text of a block, or of the result that it is."""
    content: Any = block.get("content", block.get("text", ""))
    if isinstance(content, str):
        return content
    return "\n".join(str(inner.get("text", "")) for inner in content)
