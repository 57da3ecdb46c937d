"""Measures what fills the window: the tokens of a request by kind of content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

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
from penstock.measure.weigh import MESSAGE_FRAME, weigh

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.measure.tokens import Tokenizer

__all__ = ["KINDS", "Fill", "measure_fill"]

KINDS = (
    "system prompt",
    "tool schemas",
    "user",
    "assistant text",
    "tool calls",
    "tool results",
    "images",
    "reasoning",
    "handoff",
    "other",
)
_TEXTS = {
    Role.SYSTEM: "system prompt",
    Role.USER: "user",
    Role.ASSISTANT: "assistant text",
    Role.TOOL: "tool results",
}


class Fill(msgspec.Struct, frozen=True):
    """The tokens of a request, by kind of content and by message."""

    kinds: dict[str, int]
    """Tokens of each kind that there is, in the order of KINDS; they add up to the whole request."""
    messages: tuple[int, ...]
    """Tokens of each message."""

    @property
    def total_tokens(self) -> int:
        """Returns the tokens of the whole request."""
        return sum(self.kinds.values())


def measure_fill(
    messages: Sequence[Message], tokenizer: Tokenizer, *, system_tokens: int = 0, tools_tokens: int = 0
) -> Fill:
    """Returns what fills a request of these messages, and of a system prompt and tool schemas beside them."""
    kinds = dict.fromkeys(KINDS, 0)
    kinds["system prompt"] += system_tokens
    kinds["tool schemas"] += tools_tokens
    weights = weigh(messages, tokenizer)
    shares = [list(_shares(message)) for message in messages]
    # A part's own weight is asked for only where a message has several kinds of them.
    mixed = [part for share in shares if len({kind for kind, _ in share}) > 1 for _, part in share]
    parts = iter(weigh([Message(Role.USER, (part,)) for part in mixed], tokenizer))
    for message, weight, share in zip(messages, weights, shares, strict=True):
        found = {kind for kind, _ in share} or {_TEXTS[message.role]}
        if len(found) == 1:
            kinds[found.pop()] += weight
            continue
        left = weight
        for kind, _ in share:
            tokens = next(parts) - MESSAGE_FRAME
            kinds[kind] += tokens
            left -= tokens
        kinds[share[0][0]] += left  # the frame, and the line breaks between texts
    return Fill({kind: tokens for kind, tokens in kinds.items() if tokens}, tuple(weights))


def _shares(message: Message) -> Iterator[tuple[str, Part]]:
    """Yields the parts of a message with their kinds; the pictures in a result apart from its text."""
    for part in message.parts:
        match part:
            case ToolResult(images=images) if images:
                yield "tool results", msgspec.structs.replace(part, images=())
                yield from (("images", image) for image in images)
            case ToolResult():
                yield "tool results", part
            case ToolCall():
                yield "tool calls", part
            case Image():
                yield "images", part
            case Reasoning():
                yield "reasoning", part
            case Summary():
                yield "handoff", part
            case Opaque():
                yield "other", part
            case Text():
                yield _TEXTS[message.role], part
