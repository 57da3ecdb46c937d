"""Messages made ready for a log: their bytes, what they are known by, and what they weigh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.compaction.previews import stored_handles
from penstock.conversation.dialects import decode_all
from penstock.conversation.identity import content_digest
from penstock.conversation.message import ToolResult
from penstock.measure.weigh import weigh
from penstock.stores.base import NewMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.conversation.dialects.base import Dialect
    from penstock.conversation.message import Message
    from penstock.measure.tokens import Tokenizer

__all__ = ["new_messages"]


def new_messages(
    raws: Sequence[bytes], wires: Sequence[Any], dialect: Dialect, tokenizer: Tokenizer
) -> list[NewMessage]:
    """The messages with these bytes. Raises InputError with the number of one that cannot be read.

    A message is known by itself alone: ids that a list makes up for calls without one depend on what stands before
    them, and would make the same message another one when it is handed over otherwise.
    """
    messages = decode_all(dialect, wires)
    return [
        NewMessage(
            raw,
            content_digest(dialect.decode(wire)),
            message.role.value,
            tokens,
            results=_stands_for(message),
        )
        for raw, wire, message, tokens in zip(raws, wires, messages, weigh(messages, tokenizer), strict=True)
    ]


def _stands_for(message: Message) -> tuple[str, ...]:
    """The stored results whose previews are in the message."""
    texts = [part.text for part in message.parts if isinstance(part, ToolResult)]
    return tuple(handle for text in texts for handle in stored_handles(text))
