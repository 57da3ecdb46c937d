"""The weight of a message: the tokens of its texts plus a fixed frame.

A message weighs 4 + the tokens of its text parts joined by line breaks (results of tools included) + 8 for each
call with the tokens of its name and arguments. These are counted separately, since they are not text of the message:
reasoning and its seal (as the text on the wire: more than a provider charges, never less), parts that
we do not understand (as their JSON), names and unknown fields (as their JSON), files in base64 (by their size) and pictures
(by the size rules that providers publish). If a message writes its parts in another form, as ShareGPT writes
JSON in JSON, the weight is that of its text.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from penstock.conversation import mark
from penstock.conversation.dialects.wire_kinds import Weight, known_kind
from penstock.conversation.message import (
    Image,
    Message,
    Opaque,
    Reasoning,
    Summary,
    Text,
    ToolCall,
    ToolResult,
)
from penstock.conversation.wire import json_text
from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.measure.tokens import Tokenizer

__all__ = [
    "CALL_FRAME",
    "MESSAGE_FRAME",
    "UNKNOWN_SIZE_TOKENS",
    "count_image_tokens",
    "message_tokens",
    "outside_tokens",
    "system_tokens",
    "tools_tokens",
    "weigh",
]

MESSAGE_FRAME = 4
CALL_FRAME = 8
# What a picture weighs where its size is unknown: the ceiling of the family, so that an estimate is never
# under.
UNKNOWN_SIZE_TOKENS = 1_600

_ANTHROPIC_LONG_EDGE = 1_568
_ANTHROPIC_PIXELS_PER_TOKEN = 750
_ANTHROPIC_CEILING = 1_600

# A page of a PDF is read as its text and as a picture. Providers do not say how many pages a file has before they have
# read it; this is a page of a typical one, and usage that is reported corrects it.
_PAGE_BYTES = 50_000
_PAGE_TOKENS = 3_000
_SOUND_BYTES_PER_TOKEN = 3_200  # a tenth of a second of 16-bit sound at 16 kHz

_TILE_EDGE = 512
_TILED_LONG_EDGE = 2_048
_TILED_SHORT_EDGE = 768
_MOST_TILES = 8  # 768 × 2,048
# (start of the model's name, base, per tile): the first that fits.
_TILE_PRICES: tuple[tuple[str, int, int], ...] = (
    ("gpt-4o-mini", 2_833, 5_667),
    ("gpt-5", 70, 140),
    ("o1", 75, 150),
    ("o3", 75, 150),
    ("gpt-", 85, 170),
    ("chatgpt-", 85, 170),
    ("o4", 85, 170),
)


def message_tokens(message: Message, tokenizer: Tokenizer) -> int:
    """Returns the tokens of one message."""
    return weigh([message], tokenizer)[0]


def weigh(messages: Sequence[Message], tokenizer: Tokenizer) -> list[int]:
    """Returns the tokens of each message, all texts counted in one batch."""
    weights: list[int] = []
    texts: list[str] = []
    owners: list[int] = []
    for index, message in enumerate(messages):
        fixed, own = _split_message(message)
        weights.append(fixed)
        texts.extend(own)
        owners.extend([index] * len(own))
    for owner, tokens in zip(owners, tokenizer.count_many(texts), strict=True):
        weights[owner] += tokens
    return weights


def _split_message(message: Message) -> tuple[int, list[str]]:
    """Returns the fixed tokens of a message and the texts whose tokens come on top."""
    fixed = MESSAGE_FRAME
    joined: list[str] = []
    apart: list[str] = [message.beside, message.written]
    for part in () if message.written else message.parts:
        match part:
            case Text():
                joined.append(part.text)
            case ToolResult():
                joined.append(part.text)
                fixed += sum(count_image_tokens(image) for image in part.images)
            case ToolCall():
                fixed += CALL_FRAME
                apart += (part.name, part.arguments)
            case Summary():
                joined.append(mark.wrap(part.text, part.attributes, part.version))
            case Reasoning():
                apart += (part.text, part.seal)
            case Opaque():
                fixed += _count_media_tokens(part)
                apart.append("" if part.media_bytes else part.text)
            case Image():
                fixed += count_image_tokens(part)
    apart.append("\n".join(joined))
    return fixed, [text for text in apart if text]


def _count_media_tokens(part: Opaque) -> int:
    """Returns the tokens of a file in base64: a picture, pages of a document or seconds of sound, by its size; 0 for none."""
    if not part.media_bytes:
        return 0
    kind = known_kind(part)
    weight = kind.weight if kind is not None else Weight.TEXT
    if weight is Weight.PAGES:
        return max(1, math.ceil(part.media_bytes / _PAGE_BYTES)) * _PAGE_TOKENS
    if weight is Weight.SECONDS:
        return 1 + part.media_bytes // _SOUND_BYTES_PER_TOKEN
    return UNKNOWN_SIZE_TOKENS


def outside_tokens(system: Any, tools: Sequence[Any] | None, tokenizer: Tokenizer) -> int:
    """Returns the tokens of a request beside its messages: those of a separate system prompt and of the tools."""
    return tools_tokens(tools, tokenizer) + system_tokens(system, tokenizer)


def system_tokens(system: Any, tokenizer: Tokenizer) -> int:
    """Returns the tokens of a system prompt beside the messages: a text, or blocks."""
    if not system:
        return 0
    return tokenizer.count(system if isinstance(system, str) else json_text(system)) + MESSAGE_FRAME


def tools_tokens(tools: Sequence[Any] | None, tokenizer: Tokenizer) -> int:
    """Returns the tokens of tool schemas: each as compact JSON, plus a frame.

    Raises InputError for schemas that are not JSON.
    """
    texts = [_compact_json(tool, position) for position, tool in enumerate(tools or (), start=1)]
    return CALL_FRAME * len(texts) + sum(tokenizer.count_many(texts))


def _compact_json(tool: Any, position: int) -> str:
    try:
        return json_text(tool)
    except (InputError, ValueError) as error:
        raise InputError(
            f"a tool schema cannot be written as JSON: {error}",
            position=f"tool {position}",
        ) from error


def count_image_tokens(image: Image, model: str | None = None) -> int:
    """Returns the tokens that `image` takes in a prompt for `model`.

    Claude: pixels / 750 after scaling, at most 1,600. OpenAI: a base and a price per 512-pixel tile. Any
    other model, or none: the larger of the two. A picture of unknown size weighs the most that its rule
    allows.
    """
    name = (model or "").lower().rsplit("/", 1)[-1].removeprefix("ft:")
    if "claude" in name:
        return _count_by_pixels(image.width, image.height)
    for start, base, per_tile in _TILE_PRICES:
        if name.startswith(start):
            return base + per_tile * _count_tiles(image.width, image.height)
    return max(
        _count_by_pixels(image.width, image.height),
        85 + 170 * _count_tiles(image.width, image.height),
    )


def _count_by_pixels(width: int, height: int) -> int:
    if width <= 0 or height <= 0:
        return UNKNOWN_SIZE_TOKENS
    scale = min(1.0, _ANTHROPIC_LONG_EDGE / max(width, height))
    tokens = math.ceil(width * scale * height * scale / _ANTHROPIC_PIXELS_PER_TOKEN)
    return min(tokens, _ANTHROPIC_CEILING)


def _count_tiles(width: int, height: int) -> int:
    if width <= 0 or height <= 0:
        return _MOST_TILES
    scale = min(1.0, _TILED_LONG_EDGE / max(width, height))
    scale = min(scale, _TILED_SHORT_EDGE / min(width, height))
    across = math.ceil(round(width * scale, 6) / _TILE_EDGE)
    down = math.ceil(round(height * scale, 6) / _TILE_EDGE)
    return max(1, across) * max(1, down)
