"""Fields that say how a turn is trained on, for the turn that we add.

A summary is read and never learned to be written. Where turns carry a weight or a loss flag, the summary's says
that; another field that all human turns agree on is taken over, so that every turn has the same shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.conversation.message import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.conversation.dialects import Dialect
    from penstock.conversation.message import Message

__all__ = ["PER_TURN_COLUMNS", "neutral", "training_fields"]

PER_TURN_COLUMNS = frozenset(
    {
        *("loss_mask", "loss_masks", "masks", "train_mask", "weights", "turn_weights", "loss_weights"),
        *("rewards", "turn_rewards", "step_rewards", "advantages", "turn_ids", "timestamps"),
    }
)
"""Columns beside the turns that hold one entry for each turn, where they are as long as the turns."""

_CONTENT = frozenset({"from", "value", "role", "content"})
_LEARNED = frozenset({"weight", "loss", "train", "loss_weight", "train_on", "trainable", "learn"})


def training_fields(
    turns: Sequence[Mapping[str, Any]], messages: Sequence[Message], dialect: Dialect
) -> dict[str, Any]:
    """The further fields of a summary turn, from those of the human turns. `dialect` says what is no further field."""
    own = _CONTENT | dialect.text_message(Role.USER, "").keys()
    human = [turn for turn, message in zip(turns, messages, strict=True) if message.role is Role.USER]
    if not human or all(len(turn) == len(own & turn.keys()) for turn in human):
        return {}
    fields: dict[str, Any] = {}
    for name, value in human[0].items():
        if name in own or not isinstance(value, (bool, int, float, type(None))):
            continue
        if name in _LEARNED:
            fields[name] = neutral(value)
        elif all(name in turn and turn[name] == value for turn in human):
            fields[name] = value
    return fields


def neutral(example: Any) -> Any:
    """What says "nothing" among values like this one: false, 0, or null."""
    if isinstance(example, bool):
        return False
    return type(example)(0) if isinstance(example, (int, float)) else None
