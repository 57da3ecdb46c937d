"""Each message read once: what it says, in excerpts, with the values in each.

A `Reader` gives every value it meets a number, so that a reading is a few slices of arrays and a long
conversation can be scored with array operations. What is read is redacted first, on the whole text of a part,
so that no excerpt can hold half of a secret. Many messages are read together: their texts go through the
vocabulary in blocks.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.compaction.excerpts import excerpts, lay_out
from penstock.compaction.handoff import Entry, parse_handoff
from penstock.compaction.ledger import Fact, facts_in
from penstock.compaction.vocabulary import Vocabulary
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
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.redaction import Redactor

__all__ = ["Reader", "Reading", "Source", "Speaker"]

_BLOCK = 1_000_000  # characters that go through the vocabulary together


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
    belong to each; `distinct` are those of all excerpts.
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
    is_handoff: bool = False
    entries: tuple[Entry, ...] = ()


class _Draft(msgspec.Struct, eq=False):
    """A source whose values are still to be found."""

    speaker: Speaker
    excerpts: tuple[str, ...]
    keys: frozenset[str]
    characters: int
    source: Source | None = None


class Reader:
    """Reads messages with one vocabulary and one redactor. A result that was seen before is not read again."""

    def __init__(self, redactor: Redactor) -> None:
        self.vocabulary = Vocabulary()
        self._redactor = redactor
        self._results: dict[str, _Draft] = {}

    def read(self, messages: Sequence[Message]) -> list[Reading]:
        """What each message says."""
        drafted = [self._draft(message) for message in messages]
        self._find_values([draft for drafts, _, _ in drafted for draft in drafts])
        return [
            Reading(
                tuple([draft.source for draft in drafts if draft.source is not None]),
                tags,
                facts_in(message, self._redactor),
                any(isinstance(part, Summary) for part in message.parts),
                entries,
            )
            for message, (drafts, tags, entries) in zip(messages, drafted, strict=True)
        ]

    def _draft(self, message: Message) -> tuple[list[_Draft], tuple[str, ...], tuple[Entry, ...]]:
        drafts: list[_Draft] = []
        tags: list[str] = []
        entries: list[Entry] = []
        for speaker, tag, text in _voices(message, entries):
            if text and not text.isspace():
                draft = self._cut(speaker, text)
                if draft.excerpts:
                    drafts.append(draft)
                    tags.append(tag)
        return drafts, tuple(tags), tuple(entries)

    def _cut(self, speaker: Speaker, text: str) -> _Draft:
        known = self._results.get(text) if speaker is Speaker.RESULT else None
        if known is not None:
            return known
        clean = self._redactor.redact(text)
        keys: frozenset[str] = frozenset()
        if speaker in {Speaker.RESULT, Speaker.CALL}:
            laid = lay_out(clean)
            clean, keys = laid.text, laid.keys
        draft = _Draft(speaker, tuple(excerpts(clean)), keys, len(clean))
        if speaker is Speaker.RESULT:
            self._results[text] = draft
        return draft

    def _find_values(self, drafts: list[_Draft]) -> None:
        """Turn the drafts into sources, a block of them at a time."""
        block: list[_Draft] = []
        characters = 0
        for draft in dict.fromkeys(draft for draft in drafts if draft.source is None):
            block.append(draft)
            characters += draft.characters
            if characters > _BLOCK:
                self._find_block(block)
                block, characters = [], 0
        if block:
            self._find_block(block)

    def _find_block(self, block: list[_Draft]) -> None:
        vocabulary = self.vocabulary
        found = vocabulary.find([text for draft in block for text in draft.excerpts])
        counts = np.diff(found.starts).astype(np.int32)
        sizes = np.array([len(draft.excerpts) for draft in block])
        ends = np.cumsum(sizes)
        source_of = np.repeat(np.repeat(np.arange(len(block)), sizes), counts)
        width = max(1, len(vocabulary))
        distinct = np.unique(source_of * width + found.ids)
        values = (distinct % width).astype(np.int32)
        edges = np.searchsorted(distinct, np.arange(len(block) + 1) * width).tolist()
        spans = found.starts[np.concatenate([[0], ends])].tolist()
        for place, draft in enumerate(block):
            last = int(ends[place])
            draft.source = Source(
                speaker=draft.speaker,
                excerpts=draft.excerpts,
                ids=found.ids[spans[place] : spans[place + 1]],
                counts=counts[last - len(draft.excerpts) : last],
                distinct=values[edges[place] : edges[place + 1]],
            )
            if draft.keys:
                vocabulary.keys.update(vocabulary.ids[key] for key in draft.keys if key in vocabulary.ids)


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
