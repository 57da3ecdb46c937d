"""A message, and the closed union of its parts.

A `Message` stands for exactly one message (or item, or turn) on the wire. It keeps what it was decoded
from in `origin`, so that a message that nobody rewrites is sent on exactly as it came. The parts only serve
measuring and planning; nothing is rebuilt from them unless a plan says so.

Content that we do not understand becomes an `Opaque` part: kept, counted, never dropped.

None of these values can be part of a reference cycle, so the garbage collector can ignore them: a long
conversation has a great many.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Image",
    "Message",
    "Opaque",
    "Part",
    "Reasoning",
    "Role",
    "Summary",
    "Text",
    "ToolCall",
    "ToolResult",
    "count_leading_system",
]


class Role(StrEnum):
    """The speaker of a message.

    `developer` is read as SYSTEM, ShareGPT's `human` as USER and `gpt` as ASSISTANT.
    """

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Text(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A text."""

    text: str


class Reasoning(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A model's reasoning. `sealed` when it carries a signature or encrypted content that must stay whole."""

    text: str
    sealed: bool = False
    seal: str = ""


class ToolCall(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A call. `arguments` is the model's own text, normally JSON.

    `kind` is the type of its item, if a dialect has several and this is not the plain one.
    """

    call_id: str
    name: str
    arguments: str
    kind: str = ""


class Image(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A picture. `digest` tells two pictures apart; width and height are 0 if the data does not give them."""

    media_type: str
    size_bytes: int
    digest: str
    width: int = 0
    height: int = 0


class ToolResult(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The result of a call: its text and its pictures. `kind` is like that of a call."""

    call_id: str
    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    kind: str = ""


class Summary(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A handoff that Penstock wrote earlier, recognised on the wire by its mark.

    `text` is the text inside the mark, `attributes` are the mark's own (see `conversation.mark`).
    """

    text: str
    version: int
    attributes: dict[str, str] = {}


class Opaque(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Anything else on the wire, as JSON in `text`.

    `media_bytes` is the size of a file in it, in base64, which is weighed by size and not as text.
    """

    kind: str
    text: str
    media_bytes: int = 0


Part: TypeAlias = Text | Reasoning | ToolCall | ToolResult | Image | Summary | Opaque


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message, item or turn of a conversation.

    `origin` is its source: the exact JSON bytes (`msgspec.Raw`) or the caller's own object. It is None for a
    message of our own.

    Two fields are only for weighing. `beside` is the JSON of the wire's other fields: a name, and unknown fields. `written`
    is the whole text of a message that holds its parts in another form, such as JSON in JSON: it is weighed instead of
    the parts.
    """

    role: Role
    parts: tuple[Part, ...]
    origin: Any = None
    beside: str = ""
    written: str = ""


def count_leading_system(messages: Sequence[Message]) -> int:
    """Returns the number of system messages at the beginning of the list."""
    return next((n for n, message in enumerate(messages) if message.role is not Role.SYSTEM), len(messages))
