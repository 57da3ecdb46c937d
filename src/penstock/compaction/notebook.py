"""What has been learned about messages, so that each is decoded, weighed and read once.

A message is known by its content, not by the object that holds it: a caller may pass the same list again,
a copy of it, or one parsed anew from JSON. One notebook serves one conversation at a time and is not safe to
share between threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.compaction.index import Index
from penstock.compaction.reading import Reader, Reading
from penstock.compaction.transcript import Transcript, number_messages
from penstock.conversation.dialects import link_calls
from penstock.conversation.message import Message, Summary
from penstock.conversation.rules import Repaired, repair
from penstock.conversation.rules.pairing import Pairing
from penstock.errors import InputError
from penstock.measure.weigh import weigh

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from penstock.conversation.dialects.base import Dialect
    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor

__all__ = ["Notebook", "Opened"]


class _Known(msgspec.Struct, frozen=True, eq=False):
    """What is known of one message."""

    tokens: int
    reading: Reading


class Opened(msgspec.Struct, frozen=True, eq=False):
    """A conversation ready for planning, and what had to be mended in it."""

    transcript: Transcript
    repaired: Repaired


class Notebook:
    """Remembers decoded messages, their weights and readings, and the index of the last conversation."""

    def __init__(self, tokenizer: Tokenizer, redactor: Redactor) -> None:
        self.tokenizer = tokenizer
        self._reader = Reader(redactor)
        self._decoded: dict[Hashable, Message] = {}
        self._by_object: dict[int, _Known] = {}  # of the messages in _decoded, which are held there
        self._by_content: dict[Hashable, _Known] = {}  # of messages that were linked or mended
        self._index = Index(self._reader.vocabulary)
        self._indexed: list[Reading] = []

    def open(self, wires: Sequence[Any], dialect: Dialect, origins: Sequence[bytes] | None = None) -> Opened:
        """The conversation as a transcript. Only what was not seen before is decoded, weighed and read.

        `origins` are the exact bytes of the wires, where they came as bytes. Raises InputError with the
        number of the message that cannot be read.
        """
        messages = self._decode(wires, dialect, origins)
        linked = messages if dialect.pairing is Pairing.ANYWHERE else link_calls(messages)
        repaired = repair(linked, dialect)
        known = self._learn(repaired.messages, messages)
        readings = [one.reading for one in known]
        transcript = Transcript(
            dialect=dialect,
            messages=tuple(repaired.messages),
            tokens=tuple(one.tokens for one in known),
            numbers=number_messages(repaired.messages),
            readings=tuple(readings),
            index=self._index_of(readings),
        )
        return Opened(transcript, repaired)

    def weigh(self, wires: Sequence[Any], dialect: Dialect) -> list[int]:
        """Tokens of each message, without planning anything. Only what was not seen before is weighed."""
        messages = self._decode(wires, dialect, None)
        return [known.tokens for known in self._learn(messages, messages)]

    def _decode(
        self, wires: Sequence[Any], dialect: Dialect, origins: Sequence[bytes] | None
    ) -> list[Message]:
        messages: list[Message] = []
        for place, wire in enumerate(wires):
            key = (dialect.name, _freeze(wire) if origins is None else origins[place])
            message = self._decoded.get(key)
            if message is None:
                try:
                    message = dialect.decode(wire, None if origins is None else msgspec.Raw(origins[place]))
                except InputError as error:
                    raise type(error)(str(error), position=f"message {place + 1}") from None
                self._decoded[key] = message
            messages.append(message)
        return messages

    def _learn(self, messages: Sequence[Message], decoded: Sequence[Message]) -> list[_Known]:
        """Tokens and reading of each message; all texts that are new are weighed in one batch."""
        found = [self._recall(message) for message in messages]
        fresh = [place for place, known in enumerate(found) if known is None]
        for place, tokens in zip(fresh, weigh([messages[p] for p in fresh], self.tokenizer), strict=True):
            found[place] = self._remember(messages[place], tokens)
        for message in decoded:
            known = (
                self._by_content.get(_content_key(message)) if id(message) not in self._by_object else None
            )
            if known is not None:
                self._by_object[id(message)] = known
        return [known for known in found if known is not None]

    def _recall(self, message: Message) -> _Known | None:
        known = self._by_object.get(id(message))
        return known if known is not None else self._by_content.get(_content_key(message))

    def _remember(self, message: Message, tokens: int) -> _Known:
        known = _Known(tokens, self._reader.read(message))
        self._by_content[_content_key(message)] = known
        return known

    def _index_of(self, readings: list[Reading]) -> Index:
        """The index of these readings: the last one extended where they continue it."""
        done = len(self._indexed)
        if len(readings) < done or any(a is not b for a, b in zip(self._indexed, readings, strict=False)):
            self._index = Index(self._reader.vocabulary)
            done = 0
        self._index.extend(readings[done:])
        self._indexed = readings
        return self._index


def _content_key(message: Message) -> Hashable:
    """The content that tokens and reading depend on. A handoff's attributes are no part of it."""
    return message.role, tuple(
        (part.text, part.version) if isinstance(part, Summary) else part for part in message.parts
    )


def _freeze(node: Any) -> Hashable:
    """JSON as a value that can be a key: equal content, equal key, whatever object holds it."""
    if isinstance(node, dict):
        return tuple(
            [(key, value if isinstance(value, str) else _freeze(value)) for key, value in node.items()]
        )
    if isinstance(node, (list, tuple)):
        return (list, *map(_freeze, node))
    # 1, 1.0 and True are equal as keys but not as JSON.
    return node if isinstance(node, str) or node is None else (type(node), node)
