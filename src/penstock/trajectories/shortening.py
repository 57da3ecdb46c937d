"""Shortens turns that must stay and are too large by themselves: the middle of their longest text gives way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.message import Text, ToolResult
from penstock.trajectories.turns import turn_tokens
from penstock.writing.stubs import clip

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.conversation.dialects import Dialect
    from penstock.conversation.message import Message
    from penstock.measure.tokens import Tokenizer

__all__ = ["shorten_turns"]

_LEAST_TURN = 64  # tokens that a turn keeps at least
_LEAST_TEXT = 24
_TRIES = 4  # a text in JSON has other tokens than the text alone
_NOTE = "shortened: the middle is left out"


def shorten_turns(
    messages: Sequence[Message],
    tokens: Sequence[int],
    places: Collection[int],
    excess: int,
    dialect: Dialect,
    tokenizer: Tokenizer,
) -> dict[int, dict[str, Any]]:
    """Returns the largest of these turns, shortened so that together they take so many tokens less, or as many as can be.

    Calls stay as they are. What is returned is by place; a turn that cannot be shortened is not in it.
    """
    cap = _find_cap([tokens[place] for place in places], excess)
    shortened: dict[int, dict[str, Any]] = {}
    for place in places:
        if tokens[place] > cap:
            turn = _shorten(messages[place], cap, dialect, tokenizer)
            if turn is not None and turn_tokens(turn, dialect, tokenizer) < tokens[place]:
                shortened[place] = turn
    return shortened


def _find_cap(sizes: Sequence[int], excess: int) -> int:
    """Returns the size to which the larger ones have to be cut so that all together lose the excess."""
    low, high = _LEAST_TURN, max(sizes, default=_LEAST_TURN)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(max(0, size - middle) for size in sizes) >= excess:
            low = middle
        else:
            high = middle - 1
    return low


def _shorten(message: Message, cap: int, dialect: Dialect, tokenizer: Tokenizer) -> dict[str, Any] | None:
    texts = {at: part for at, part in enumerate(message.parts) if isinstance(part, Text | ToolResult)}
    replaced: dict[int, Any] = {}
    turn: dict[str, Any] | None = None
    for at in sorted(texts, key=lambda at: -len(texts[at].text)):
        limit = tokenizer.count(texts[at].text)
        for _ in range(_TRIES):
            now = turn_tokens(turn, dialect, tokenizer) if turn is not None else None
            over = (
                now if now is not None else turn_tokens(dialect.rewrite(message, {}), dialect, tokenizer)
            ) - cap
            if over <= 0:
                return turn
            limit = max(_LEAST_TEXT, limit - over)
            text = clip(texts[at].text, limit, tokenizer.count, _NOTE)
            replaced[at] = msgspec.structs.replace(texts[at], text=text)
            turn = dialect.rewrite(message, replaced)
            if limit == _LEAST_TEXT:
                break
    return turn
