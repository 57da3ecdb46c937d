"""What a picture weighs, by the size rules that providers publish."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.conversation.message import Image

__all__ = ["UNKNOWN_SIZE_TOKENS", "image_tokens"]

# Where the size is unknown: the ceiling of the family, so that an estimate is never under.
UNKNOWN_SIZE_TOKENS = 1_600

_ANTHROPIC_LONG_EDGE = 1_568
_ANTHROPIC_PIXELS_PER_TOKEN = 750
_ANTHROPIC_CEILING = 1_600

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


def image_tokens(image: Image, model: str | None = None) -> int:
    """Tokens that `image` takes in a prompt for `model`.

    Claude: pixels / 750 after scaling, at most 1,600. OpenAI: a base and a price per 512-pixel tile. Any other
    model, or none: the larger of the two. A picture of unknown size weighs the most that its rule allows.
    """
    name = (model or "").lower().rsplit("/", 1)[-1].removeprefix("ft:")
    if "claude" in name:
        return _by_pixels(image.width, image.height)
    for start, base, per_tile in _TILE_PRICES:
        if name.startswith(start):
            return base + per_tile * _tiles(image.width, image.height)
    return max(
        _by_pixels(image.width, image.height),
        85 + 170 * _tiles(image.width, image.height),
    )


def _by_pixels(width: int, height: int) -> int:
    if width <= 0 or height <= 0:
        return UNKNOWN_SIZE_TOKENS
    scale = min(1.0, _ANTHROPIC_LONG_EDGE / max(width, height))
    tokens = math.ceil(width * scale * height * scale / _ANTHROPIC_PIXELS_PER_TOKEN)
    return min(tokens, _ANTHROPIC_CEILING)


def _tiles(width: int, height: int) -> int:
    if width <= 0 or height <= 0:
        return _MOST_TILES
    scale = min(1.0, _TILED_LONG_EDGE / max(width, height))
    scale = min(scale, _TILED_SHORT_EDGE / min(width, height))
    across = math.ceil(round(width * scale, 6) / _TILE_EDGE)
    down = math.ceil(round(height * scale, 6) / _TILE_EDGE)
    return max(1, across) * max(1, down)
