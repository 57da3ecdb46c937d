"""The turns of a trajectory: their format, what they weigh, their fields for training, and how long ones are shortened.

A ShareGPT turn is trained on as its text stands, tags and JSON of calls included, so that text is what is counted. A
chat message goes through a template that is not known here; it weighs what it weighs in a request.

A summary is read and never learned to be written. If turns carry a weight or a loss flag, the summary's says that;
another field that all human turns agree on is taken over, so that every turn has the same shape.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects.chat import CHAT
from penstock.conversation.dialects.sharegpt import SHAREGPT
from penstock.conversation.message import Role, Text, ToolResult
from penstock.conversation.wire import json_text
from penstock.errors import InputError, UnknownDialect
from penstock.measure.tokens import BpeTokenizer
from penstock.measure.weigh import MESSAGE_FRAME, weigh
from penstock.writing.stubs import clip

if TYPE_CHECKING:
    from penstock.conversation.dialects import Dialect
    from penstock.conversation.message import Message
    from penstock.measure.tokens import Tokenizer

__all__ = [
    "PER_TURN_COLUMNS",
    "format_of",
    "make_neutral",
    "shorten_turns",
    "training_fields",
    "turn_tokens",
    "weigh_turns",
]


PER_TURN_COLUMNS = frozenset(
    {
        *("loss_mask", "loss_masks", "masks", "train_mask", "weights", "turn_weights", "loss_weights"),
        *("rewards", "turn_rewards", "step_rewards", "advantages", "turn_ids", "timestamps"),
    }
)
"""Columns beside the turns that hold one entry for each turn, where they are as long as the turns."""

_CONTENT = frozenset({"from", "value", "role", "content"})
_LEARNED = frozenset({"weight", "loss", "train", "loss_weight", "train_on", "trainable", "learn"})
_THOUGHTS = ("reasoning", "reasoning_content", "thinking")


def format_of(turns: Any) -> Dialect:
    """Tells ShareGPT from chat. Raises InputError if `turns` is not a list of turns of either."""
    if isinstance(turns, (str, bytes, Mapping)) or not isinstance(turns, Sequence):
        raise InputError("the turns of a trajectory are a list of objects")
    if not turns:
        return SHAREGPT
    first = turns[0]
    if isinstance(first, Mapping):
        if isinstance(first.get("from"), str) and "value" in first:
            return SHAREGPT
        if isinstance(first.get("role"), str):
            return CHAT
    raise UnknownDialect("a turn has `from` and `value`, or `role` and `content`", position="turn 1")


def weigh_turns(turns: Sequence[Any], dialect: Dialect, tokenizer: Tokenizer) -> list[int]:
    """Returns the tokens of each turn. Raises InputError, with its number, for one that is not a turn."""
    if dialect is SHAREGPT and isinstance(tokenizer, BpeTokenizer):
        count = tokenizer.count
        try:
            # One by one: a batch would start threads, and every core has a process of its own.
            return [
                count(value) + MESSAGE_FRAME
                if len(turn) == 2 and type(value := turn["value"]) is str
                else turn_tokens(turn, dialect, tokenizer)
                for turn in turns
            ]
        except (KeyError, TypeError, AttributeError):
            return [_weigh_or_refuse(turn, at, dialect, tokenizer) for at, turn in enumerate(turns, start=1)]
    if dialect is SHAREGPT and all(isinstance(turn, dict) and _is_plain(turn) for turn in turns):
        counts = tokenizer.count_many([turn["value"] for turn in turns])
        return [tokens + MESSAGE_FRAME for tokens in counts]
    return [_weigh_or_refuse(turn, at, dialect, tokenizer) for at, turn in enumerate(turns, start=1)]


def _is_plain(turn: Mapping[str, Any]) -> bool:
    return len(turn) == 2 and isinstance(turn.get("value"), str)


def turn_tokens(turn: Mapping[str, Any], dialect: Dialect, tokenizer: Tokenizer) -> int:
    """Returns the tokens of one turn."""
    if dialect is not SHAREGPT:
        return weigh([dialect.decode(turn)], tokenizer)[0]
    texts = [turn["value"], *(turn[name] for name in _THOUGHTS if name in turn)]
    written = [text if isinstance(text, str) else json_text(text) for text in texts if text is not None]
    return sum(map(tokenizer.count, written)) + MESSAGE_FRAME


def _weigh_or_refuse(turn: Any, at: int, dialect: Dialect, tokenizer: Tokenizer) -> int:
    if not isinstance(turn, Mapping) or (dialect is SHAREGPT and "value" not in turn):
        wanted = "`from` and `value`" if dialect is SHAREGPT else "`role` and `content`"
        raise InputError(f"a turn is an object with {wanted}, as the first one", position=f"turn {at}")
    try:
        return turn_tokens(turn, dialect, tokenizer)
    except InputError as error:
        raise InputError(str(error), position=f"turn {at}") from None
    except RecursionError:
        raise InputError("the turn is nested too deeply", position=f"turn {at}") from None


def training_fields(
    turns: Sequence[Mapping[str, Any]], messages: Sequence[Message], dialect: Dialect
) -> dict[str, Any]:
    """Returns the further fields of a summary turn, from those of the human turns. `dialect` says which fields are its own."""
    own = _CONTENT | dialect.text_message(Role.USER, "").keys()
    human = [turn for turn, message in zip(turns, messages, strict=True) if message.role is Role.USER]
    if not human or all(len(turn) == len(own & turn.keys()) for turn in human):
        return {}
    fields: dict[str, Any] = {}
    for name, value in human[0].items():
        if name in own or not isinstance(value, (bool, int, float, type(None))):
            continue
        if name in _LEARNED:
            fields[name] = make_neutral(value)
        elif all(name in turn and turn[name] == value for turn in human):
            fields[name] = value
    return fields


def make_neutral(example: Any) -> Any:
    """Returns the value that says "nothing" among values like this one: false, 0, or null."""
    if isinstance(example, bool):
        return False
    return type(example)(0) if isinstance(example, (int, float)) else None


# A turn that must stay and is too large by itself: the middle of its longest text gives way.

_LEAST_TURN = 64  # tokens that a shortened turn keeps at least
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
    """Returns the largest of these turns, shortened so that together they take this many tokens less, or as many as possible.

    Calls stay as they are. The result is by place; a turn that cannot be shortened is not in it.
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
