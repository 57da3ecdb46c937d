"""Each message read once: what it says, in excerpts, with the values in each.

A `Reader` gives every value it meets a number, so that a reading is a few small arrays and a long
conversation can be scored with array operations. What is read is redacted first, on the whole text of a
part, so that no excerpt can hold half of a secret.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.compaction.excerpts import excerpts, lay_out
from penstock.compaction.handoff import Entry, parse_handoff
from penstock.compaction.ledger import Fact, facts_in
from penstock.compaction.values import kind_of, sub_words, values_in
from penstock.conversation.message import (
    Message,
    Opaque,
    Reasoning,
    Role,
    Summary,
    Text,
    ToolCall,
    ToolResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.redaction import Redactor

__all__ = ["Reader", "Reading", "Source", "Speaker", "Vocabulary"]


class Speaker(IntEnum):
    """Whose words a source holds."""

    USER = 0
    ASSISTANT = 1
    CALL = 2
    RESULT = 3
    SYSTEM = 4
    HANDOFF = 5


class Source(msgspec.Struct, frozen=True, eq=False):
    """One voice in one message: a text, a call or a result, cut into excerpts.

    `ids` are the distinct values of each excerpt, one excerpt after the other; `counts` says how many
    belong to each.
    """

    speaker: Speaker
    excerpts: tuple[str, ...]
    ids: NDArray[np.int32]
    counts: NDArray[np.int32]
    distinct: NDArray[np.int32]


class Reading(msgspec.Struct, frozen=True, eq=False):
    """What one message says: its sources, each with a tag, its facts, and the entries of an older handoff.

    The tag of a call is the tool's name, that of a result the id of its call, and that of a source quoted
    from a handoff the number of the entry; other sources have none.
    """

    sources: tuple[Source, ...]
    tags: tuple[str, ...]
    facts: tuple[Fact, ...]
    entries: tuple[Entry, ...] = ()


class Vocabulary:
    """A number for every value, what it looks like, and which values hold a given word."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.values: list[str] = []
        self.kinds: list[int] = []
        self.words: list[int] = []
        self.holders: dict[str, list[int]] = {}
        self.keys: set[int] = set()

    def __len__(self) -> int:
        return len(self.values)

    def add(self, value: str) -> int:
        """The number of a value that was not known before."""
        number = len(self.values)
        self.ids[value] = number
        self.values.append(value)
        self.kinds.append(kind_of(value))
        words = sub_words(value)
        self.words.append(len(words))
        for word in words:
            self.holders.setdefault(word, []).append(number)
        return number


class Reader:
    """Reads messages with one vocabulary and one redactor."""

    def __init__(self, redactor: Redactor) -> None:
        self.vocabulary = Vocabulary()
        self._redactor = redactor
        self._known: dict[str, Source] = {}

    def read(self, message: Message) -> Reading:
        """What the message says."""
        sources: list[Source] = []
        tags: list[str] = []
        entries: list[Entry] = []
        for speaker, tag, text in _voices(message, entries):
            source = self._source(speaker, text)
            if source is not None and source.excerpts:
                sources.append(source)
                tags.append(tag)
        return Reading(tuple(sources), tuple(tags), facts_in(message, self._redactor), tuple(entries))

    def _source(self, speaker: Speaker, text: str) -> Source | None:
        """The text as a source; None where it says nothing. A result that was seen before is not read again."""
        if not text or text.isspace():
            return None
        if speaker is not Speaker.RESULT:
            return self._read_text(speaker, text)
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._read_text(speaker, text)
        return known

    def _read_text(self, speaker: Speaker, text: str) -> Source:
        clean = self._redactor.redact(text)
        laid = lay_out(clean) if speaker in {Speaker.RESULT, Speaker.CALL} else None
        pieces = excerpts(laid.text if laid else clean)
        vocabulary = self.vocabulary
        ids = vocabulary.ids
        add = vocabulary.add
        flat: list[int] = []
        counts: list[int] = []
        for piece in pieces:
            found = dict.fromkeys(values_in(piece))
            flat += [ids[value] if value in ids else add(value) for value in found]
            counts.append(len(found))
        if laid:
            vocabulary.keys.update(ids[key] for key in laid.keys if key in ids)
        return Source(
            speaker=speaker,
            excerpts=tuple(pieces),
            ids=np.array(flat, dtype=np.int32),
            counts=np.array(counts, dtype=np.int32),
            distinct=np.array(list(dict.fromkeys(flat)), dtype=np.int32),
        )


def _voices(message: Message, entries: list[Entry]) -> Iterator[tuple[Speaker, str, str]]:
    """Who says what in a message, with the tag. Entries of an older handoff are added to `entries`."""
    for part in message.parts:
        match part:
            case Text(text=text):
                yield _SPEAKERS[message.role], "", text
            case Reasoning(text=text):
                yield Speaker.ASSISTANT, "", text
            case ToolCall(name=name, arguments=arguments):
                yield Speaker.CALL, name, arguments
            case ToolResult(call_id=call_id, text=text):
                yield Speaker.RESULT, call_id, text
            case Opaque(kind=kind, text=text):
                yield Speaker.RESULT, kind, text
            case Summary(text=text):
                for entry in parse_handoff(text):
                    entries.append(entry)
                    yield Speaker.HANDOFF, str(entry.number), entry.text
            case _:
                pass


_SPEAKERS: dict[Role, Speaker] = {
    Role.USER: Speaker.USER,
    Role.ASSISTANT: Speaker.ASSISTANT,
    Role.TOOL: Speaker.RESULT,
    Role.SYSTEM: Speaker.SYSTEM,
}
