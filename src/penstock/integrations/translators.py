"""Translators: the messages of a framework on the wire of a dialect, and back. Each adapter has one.

A framework whose messages are wire objects needs `WireTranslator` alone. One whose message is a list of parts, with all results
of a batch in one message, says how one part reads and is made; `PartsTranslator` does the rest. `ChatTranslator` is for messages
with their calls beside the content, and a message for each result. Parts that a compaction left alone come back as the same
objects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.conversation.mark import OPENING
from penstock.conversation.wire import json_text, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

__all__ = [
    "ChatMessageParts",
    "ChatTranslator",
    "PartsTranslator",
    "Translator",
    "WireTranslator",
    "read_text",
    "rewrite_parts",
    "write_text",
]

M = TypeVar("M")
P = TypeVar("P")
Block = dict[str, Any]


class Translator(ABC, Generic[M]):
    """Translates the messages of a framework, one to one, to a dialect and back."""

    dialect: str

    @abstractmethod
    def to_wire(self, message: M) -> Any:
        """Returns the message on the wire: JSON that says all that a compaction has to know."""

    @abstractmethod
    def from_wire(self, wire: Any, original: M | None) -> M:
        """Returns a new message that says this. `original` is the one that it was made of, None for a handoff."""

    def is_system(self, message: M) -> bool:  # noqa: ARG002  # for subclasses
        """Returns True for a message of the system prompt, where the framework puts it into the list."""
        return False

    def split_system(self, messages: Sequence[M]) -> tuple[list[M], list[M]]:
        """Returns the system prompt that the list begins with, which is neither logged nor compacted, and the rest."""
        system = list(takewhile(self.is_system, messages))
        return system, list(messages[len(system) :])

    def join_system(self, system: list[M], messages: list[M]) -> list[M]:
        """Returns the messages with the system prompt in front again."""
        return [*system, *messages]


class WireTranslator(Translator[Any]):
    """For frameworks whose messages are wire objects as they are."""

    def __init__(self, dialect: str, system_roles: Collection[str] = ()) -> None:
        self.dialect = dialect
        self._system_roles = system_roles

    def is_system(self, message: Any) -> bool:
        """Returns True for a message of one of the system roles."""
        return message.get("role") in self._system_roles

    def to_wire(self, message: Any) -> Any:
        """Returns the message."""
        return message

    def from_wire(self, wire: Any, original: Any) -> Any:  # noqa: ARG002  # of the base
        """Returns the wire object."""
        return wire


class PartsTranslator(Translator[M], Generic[M, P]):
    """For frameworks whose message is a list of parts, in the dialect of Anthropic's API: a part is any number of blocks."""

    dialect = "anthropic"
    system_parts: tuple[type, ...] = ()
    """The classes of parts that are the system prompt, where the framework puts it into the first message."""

    @abstractmethod
    def read_message(self, message: M) -> tuple[str, Sequence[P]]:
        """Returns the role, `user` or `assistant`, and the parts."""

    @abstractmethod
    def make_message(self, role: str, parts: list[P], original: M | None) -> M:
        """Returns a message of these parts, with all else of the original."""

    @abstractmethod
    def write_part(self, part: P) -> list[Block]:
        """Returns the blocks that say what the part says; the methods below write them."""

    @abstractmethod
    def rewrite_part(self, part: P, blocks: list[Block]) -> P:
        """Returns the part with what its blocks, as many as `write_part` gave, say now."""

    @abstractmethod
    def make_part(self, text: str, role: str, call: str | None) -> P:
        """Returns a new part: a handoff, or the result that a repair put in for a call that has none."""

    def split_system(self, messages: Sequence[M]) -> tuple[list[M], list[M]]:
        """Returns the system prompt that the list begins with, as messages of its own, and the rest."""
        system, rest = super().split_system(messages)
        role, parts = self.read_message(rest[0]) if rest else ("", ())
        if aside := [part for part in parts if isinstance(part, self.system_parts)]:
            said = [part for part in parts if not isinstance(part, self.system_parts)]
            system.append(self.make_message(role, aside, None))
            rest[:1] = [self.make_message(role, said, rest[0])] if said else []
        return system, rest

    def join_system(self, system: list[M], messages: list[M]) -> list[M]:
        """Returns the messages with the system prompt in front again, in the first of them if it was there."""
        if self.system_parts and system and messages:
            role, parts = self.read_message(messages[0])
            own_role, aside = self.read_message(system[0])
            if role == own_role:
                return [self.make_message(role, [*aside, *parts], messages[0]), *messages[1:]]
        return super().join_system(system, messages)

    def to_wire(self, message: M) -> dict[str, Any]:
        """Returns the message on the wire."""
        role, parts = self.read_message(message)
        return {"role": role, "content": self.write_parts(parts)}

    def from_wire(self, wire: Any, original: M | None) -> M:
        """Returns a message that says this; parts that say what they said are those of the original."""
        role, content = wire["role"], wire["content"]
        parts = () if original is None else self.read_message(original)[1]
        return self.make_message(role, self.rewrite_parts(parts, content, role), original)

    def write_parts(self, parts: Iterable[P]) -> list[Block]:
        """Returns the blocks of all parts."""
        return [block for part in parts for block in self.write_part(part)]

    def rewrite_parts(self, parts: Iterable[P], content: Any, role: str) -> list[P]:
        """Returns the parts with what a content says now."""

        def make(block: Block) -> P:
            return self.make_part(read_text(block), role, block.get("tool_use_id"))

        return rewrite_parts(parts, content, self.write_part, make, self.rewrite_part)

    @staticmethod
    def write_text(text: Any) -> list[Block]:
        """Returns a block of text; none for an empty one, which no provider accepts."""
        return [write_text(text)] if text else []

    @staticmethod
    def write_thinking(text: str | None, signature: str | None) -> list[Block]:
        """Returns a block of the model's reasoning."""
        return [{"type": "thinking", "thinking": text or "", "signature": signature or ""}]

    @staticmethod
    def write_call(call: str | None, tool: str | None, arguments: Any, kind: str = "tool_use") -> list[Block]:
        """Returns a call of a tool."""
        return [{"type": kind, "id": call or "", "name": tool or "", "input": arguments}]

    @staticmethod
    def write_result(
        call: str | None, content: Any, *, failed: bool = False, kind: str = "tool_result"
    ) -> list[Block]:
        """Returns the result of a call: a text, or blocks."""
        block: Block = {"type": kind, "tool_use_id": call or "", "content": content}
        return [{**block, "is_error": True} if failed else block]

    @staticmethod
    def write_media(media_type: str, data: bytes | str) -> list[Block]:
        """Returns an image or a document of these bytes, or Base64 characters."""
        kind = "image" if media_type.startswith("image/") else "document"
        characters = data if isinstance(data, str) else b64encode(data).decode()
        return [{"type": kind, "source": {"type": "base64", "media_type": media_type, "data": characters}}]

    @staticmethod
    def write_opaque(kind: str, part: Any) -> list[Block]:
        """Returns a block for a part that is kept with its message, and never read."""
        return [{"type": kind, "value": repr(part)}]


class ChatMessageParts(NamedTuple):
    """A message, read: `calls` are identifiers, tools and arguments, `answers` is the call whose result it is."""

    role: str
    content: Any
    calls: Sequence[tuple[str, str, Any]] = ()
    answers: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """Returns the message on the wire of Chat Completions."""
        wire: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.answers is not None:
            wire["tool_call_id"] = self.answers
        if self.calls:
            wire["tool_calls"] = [_write_function(*call) for call in self.calls]
        return wire


class ChatTranslator(Translator[M]):
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
        return self.read_message(message).to_wire()

    def from_wire(self, wire: Any, original: M | None) -> M:
        """Returns a message that says this; all but the content and the arguments is that of the original."""
        content = wire.get("content") or ""
        functions = [(call["id"], call["function"]) for call in wire.get("tool_calls", ())]
        if original is None:
            calls = [(call, one["name"], parse_arguments(one["arguments"])) for call, one in functions]
            return self.make_message(ChatMessageParts(wire["role"], content, calls, wire.get("tool_call_id")))
        return self.rewrite_message(
            original, content, {call: parse_arguments(one["arguments"]) for call, one in functions}
        )


def _write_function(call: str, tool: str, arguments: Any) -> dict[str, Any]:
    told = arguments if isinstance(arguments, str) else json_text(arguments)
    return {"id": call, "type": "function", "function": {"name": tool, "arguments": told}}


def rewrite_parts(
    parts: Iterable[P],
    content: Any,
    write: Callable[[P], list[Block]],
    make: Callable[[Block], P],
    rewrite: Callable[[P, list[Block]], P] | None = None,
) -> list[P]:
    """Returns the parts with what a content, a text or blocks, says now: those that say what they said as they are.

    A handoff in front, and what comes after the last part, are made; so is a part that says something else, unless there is
    a way to rewrite it.
    """
    blocks = [write_text(content)] if isinstance(content, str) else list(content)
    rewritten: list[P] = []
    for part in parts:
        own = write(part)
        while blocks and own != blocks[: len(own)] and str(blocks[0].get("text", "")).startswith(OPENING):
            rewritten.append(make(blocks.pop(0)))
        now, blocks = blocks[: len(own)], blocks[len(own) :]
        if now == own:
            rewritten.append(part)
        elif now:  # a stub may stand for several blocks
            rewritten.append(rewrite(part, now) if rewrite else make(now[0]))
    return rewritten + [make(block) for block in blocks]


def write_text(text: str) -> Block:
    """Returns a block of text."""
    return {"type": "text", "text": text}


def read_text(block: Block) -> str:
    """Returns the text of a block, or of the result that it is."""
    content: Any = block.get("content", block.get("text", ""))
    if isinstance(content, str):
        return content
    return "\n".join(str(inner.get("text", "")) for inner in content)
