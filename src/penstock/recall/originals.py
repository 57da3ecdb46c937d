"""A message for reading: all of it as text, and one line that says what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.dialects.wire_kinds import read_words
from penstock.conversation.message import (
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Summary,
    Text,
    ToolCall,
    ToolResult,
)
from penstock.writing.excerpts import redact_readable
from penstock.writing.handoff import header_of
from penstock.writing.stubs import arguments_of, describe, main_argument, shorten, tool_family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["redact_message", "write_original", "write_originals", "write_title"]

_TITLE_CHARACTERS = 120
_BETWEEN = "\n\n"


def write_original(message: Message) -> str:
    """Returns all that the message says, part by part.

    A message of one text or one result is that text, to the character.
    """
    return _BETWEEN.join(text for text in map(_read_part, message.parts) if text)


def write_originals(messages: Iterable[tuple[int, str, str]]) -> str:
    """Returns messages one below the other, each under its number and its role, given with its text."""
    return _BETWEEN.join(f"{header_of(number, role)}\n{text}" for number, role, text in messages)


def write_title(message: Message, calls: Mapping[str, ToolCall], redact: Callable[[str], str] = str) -> str:
    """Returns what the message is, on one line: its first words, or what it calls or returns.

    Redacted before it is cut.
    """
    for part in message.parts:
        match part:
            case Text(text=text) | Reasoning(text=text) | Summary(text=text):
                words = " ".join(redact(text).split())
            case Opaque(kind=kind):
                words = " ".join(redact(read_words(part)).split()) or f"[{kind}]"
            case ToolCall(name=name):
                family = tool_family(name)
                words = f"[{name}] {redact(main_argument(family, arguments_of(part)))}".rstrip()
            case ToolResult(call_id=call_id):
                words = describe(calls.get(call_id), part, redact)
            case Image():
                words = _describe_image(part)
        if words:
            return shorten(words, _TITLE_CHARACTERS)
    return ""


def redact_message(message: Message, redact: Callable[[str], str]) -> Message:
    """Returns the message with every text in it redacted, part by part, as it stands and as it is laid out.

    No piece of it can hold half of a secret.
    """
    return Message(message.role, tuple(_redact_part(part, redact) for part in message.parts))


def _read_part(part: Part) -> str:
    match part:
        case ToolCall(name=name, arguments=arguments):
            return f"[{name}] {arguments}"
        case ToolResult(text=text, images=images):
            return "\n".join([text, *map(_describe_image, images)]) if images else text
        case Image():
            return _describe_image(part)
        case _:
            return part.text


def _describe_image(image: Image) -> str:
    return f"[image, {image.size_bytes:,} bytes]"


def _redact_part(part: Part, redact: Callable[[str], str]) -> Part:
    match part:
        case ToolCall(arguments=arguments):
            return msgspec.structs.replace(part, arguments=redact_readable(arguments, redact))
        case Image():
            return part
        case _:
            return msgspec.structs.replace(part, text=redact_readable(part.text, redact))
