"""Reading each message once, into excerpts and values, and a conversation's readings as arrays.

A `Reader` cuts what a message says into excerpts and gives every value in them a number, so that a `Reading`
is a few slices of arrays. Texts are redacted first, part by part as a whole, so that no excerpt can hold half
of a secret. Many messages are read together: their texts go through the vocabulary in blocks.

The `Index` joins the readings of a conversation: one row per source, one per excerpt, one per value, so that
a long conversation is scored with array operations. It only grows. After k new messages it is brought up to
date at a cost of O(k) reading and a copy of its arrays, and a second compaction of a long conversation does
not read it again.
"""

from __future__ import annotations

import re
from array import array
from enum import IntEnum
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.conversation.dialects.protocol import read_words
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
from penstock.conversation.speakers import (
    Voice,
    find_typed_command,
    part_voices,
    person_words,
    without_reminders,
)
from penstock.writing.excerpts import excerpts, lay_out_call, lay_out_redacted
from penstock.writing.handoff import HandoffEntry, HandoffSection, parse_handoff
from penstock.writing.ledger import Fact, facts_in
from penstock.writing.state import signs_in
from penstock.writing.vocabulary import (
    IS_KEY,
    UNKNOWN,
    FoundValues,
    Postings,
    Vocabulary,
    holds_each,
    sort_distinct,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.redaction import Redactor

__all__ = ["Index", "Reader", "Reading", "Speaker", "SpokenSource"]


_BLOCK = 1_000_000  # characters that go through the vocabulary together
_TYPICAL_EXCERPT = 80
_LONGEST_TEXT = 4_000_000  # characters: of a longer one, the middle is reachable by its handle only
_LONGEST_CALL = 125  # characters of a call that stands in one excerpt with its options
_NEVER = 1 << 30
_INDEXED_AT_ONCE = 4_000  # messages
_SPARE = 16  # a part of its rows that an array has room for when it grows


class Speaker(IntEnum):
    """The voice in a source."""

    USER = 0
    ASSISTANT = 1
    CALL = 2
    RESULT = 3
    SYSTEM = 4
    HANDOFF = 5
    HARNESS = 6  # text that a client put into a user message; its tag is the `Voice`


_VOICES = int(Speaker.SYSTEM) + 1


class _Block(msgspec.Struct, frozen=True, eq=False):
    """The arrays of many sources, one after the other; each source knows its stretch of each of them."""

    # One row per excerpt: its characters, where it would begin if all texts of the block stood in one (with
    # one more row for the end), and how many distinct values it holds.
    lengths: NDArray[np.int32]
    offsets: array[int]
    counts: NDArray[np.int32]
    # The values of excerpt 0, then those of excerpt 1, and so on: `counts[e]` of them for excerpt e.
    ids: NDArray[np.int32]
    labels: NDArray[np.uint8]  # row by row with `ids`
    # The buckets of the plain words of excerpt 0, then those of excerpt 1, and so on: `word_counts[e]` of them.
    words: NDArray[np.uint16]
    word_counts: NDArray[np.int32]
    # The values of source 0, each once, then those of source 1, and so on.
    distinct: NDArray[np.int32]


class SpokenSource(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One voice in one message: a text, a call or a result, cut into excerpts.

    The excerpts stand one after the other in `text`, with a line break between them.
    """

    speaker: Speaker
    text: str
    block: _Block
    first_excerpt: int  # its rows in the block's `lengths`, `offsets` and `counts`
    end_excerpt: int
    first_id: int  # its stretch of the block's `ids`
    end_id: int
    first_distinct: int  # its stretch of the block's `distinct`
    end_distinct: int
    first_word: int  # its stretch of the block's `words`
    end_word: int
    holds_keys: bool  # it is JSON: some of its values are keys

    @property
    def ids(self) -> NDArray[np.int32]:
        """The distinct values of each excerpt, one excerpt after the other."""
        return self.block.ids[self.first_id : self.end_id]

    @property
    def distinct(self) -> NDArray[np.int32]:
        """The distinct values of all excerpts."""
        return self.block.distinct[self.first_distinct : self.end_distinct]

    def excerpt(self, place: int) -> str:
        """Returns the excerpt at this place."""
        offsets, first = self.block.offsets, self.first_excerpt
        start = offsets[first]
        return self.text[offsets[first + place] - start : offsets[first + place + 1] - start - 1]


class Reading(msgspec.Struct, eq=False, gc=False):
    """One message as it was read: its sources, each with a tag, and the entries of an older handoff.

    The tag of a call is the tool's name, that of a result the id of its call, that of harness text its voice, and
    that of a source quoted from a handoff the number and the label of the entry; other sources have none.
    """

    sources: tuple[SpokenSource, ...]
    tags: tuple[str, ...]
    is_handoff: bool = False
    entries: tuple[HandoffEntry, ...] = ()
    _facts: tuple[Fact, ...] | None = None

    def facts(self, message: Message, redactor: Redactor) -> tuple[Fact, ...]:
        """Returns the facts of the message, which is the one that was read. Few messages are ever asked for theirs."""
        if self._facts is None:
            self._facts = (*signs_in(message, redactor), *facts_in(message, redactor))
        return self._facts


class _Draft(msgspec.Struct, eq=False):
    """A source whose values are still to be found."""

    speaker: Speaker
    excerpts: tuple[str, ...]
    keys: frozenset[str]
    source: SpokenSource | None = None


class Reader:
    """Reads messages with one vocabulary and one redactor. A result that was seen before is not read again."""

    def __init__(self, redactor: Redactor) -> None:
        self.vocabulary = Vocabulary()
        self._redactor = redactor
        self._results: dict[str, _Draft] = {}

    def read(self, messages: Sequence[Message]) -> list[Reading]:
        """Returns the reading of each message."""
        readings: list[Reading] = []
        block: list[tuple[Message, list[_Draft], tuple[str, ...], tuple[HandoffEntry, ...]]] = []
        characters = 0
        for message in messages:
            drafts, tags, entries = self._draft(message)
            block.append((message, drafts, tags, entries))
            characters += sum(len(text) for draft in drafts for text in draft.excerpts)
            if characters > _BLOCK:
                readings += self._finish(block)
                block, characters = [], 0
        readings += self._finish(block)
        return readings

    def _finish(
        self, block: list[tuple[Message, list[_Draft], tuple[str, ...], tuple[HandoffEntry, ...]]]
    ) -> Iterator[Reading]:
        """Yields the readings of a block of drafts, whose values are found together."""
        fresh = [draft for _, drafts, _, _ in block for draft in drafts if draft.source is None]
        if fresh:
            self._find_values(list(dict.fromkeys(fresh)))
        for message, drafts, tags, entries in block:
            yield Reading(
                tuple([draft.source for draft in drafts if draft.source is not None]),
                tags,
                any(isinstance(part, Summary) for part in message.parts),
                entries,
            )

    def _draft(self, message: Message) -> tuple[list[_Draft], tuple[str, ...], tuple[HandoffEntry, ...]]:
        drafts: list[_Draft] = []
        tags: list[str] = []
        entries: list[HandoffEntry] = []
        for speaker, tag, text in _voices(message, entries):
            if text and not text.isspace():
                draft = self._cut(speaker, text)
                if draft.excerpts or draft.source is not None:
                    drafts.append(draft)
                    tags.append(tag)
        return drafts, tuple(tags), tuple(entries)

    def _cut(self, speaker: Speaker, text: str) -> _Draft:
        known = self._results.get(text) if speaker is Speaker.RESULT else None
        if known is not None:
            return known
        if speaker is Speaker.CALL:
            return self._cut_call(text)
        keys: frozenset[str] = frozenset()
        if speaker is Speaker.RESULT:
            laid = lay_out_redacted(_readable(text), self._redactor.redact)
            clean, keys = laid.text, laid.keys
        else:
            clean = self._redactor.redact(_readable(text))
        spoken = speaker in {Speaker.USER, Speaker.ASSISTANT}
        draft = _Draft(speaker, tuple(excerpts(clean, items=bool(keys), spoken=spoken)), keys)
        if speaker is Speaker.RESULT:
            self._results[text] = draft
        return draft

    def _cut_call(self, arguments: str) -> _Draft:
        """Returns a call as a draft. The options of a short call stay with it: "timeout 60000" says nothing alone."""
        clean = self._redactor.redact(_readable(arguments))
        said, laid = lay_out_call(clean)
        named = laid.text
        if "\\" in clean or "\x1b" in clean:  # as for results: what was escaped may be a secret now
            said, named = self._redactor.redact(said), self._redactor.redact(named)
        pieces, options = excerpts(said), excerpts(named, items=bool(laid.keys))
        if pieces and options and len(pieces[-1]) + len(options[0]) <= _LONGEST_CALL:
            pieces[-1] += f"\n{options.pop(0)}"
        return _Draft(Speaker.CALL, (*pieces, *options), laid.keys)

    def _find_values(self, block: list[_Draft]) -> None:
        """Turn the drafts into sources of one block."""
        vocabulary = self.vocabulary
        texts = [text for draft in block for text in draft.excerpts]
        found = _find_in_pieces(vocabulary, texts)
        lengths = np.fromiter(map(len, texts), np.int32, len(texts))
        counts = np.diff(found.starts).astype(np.int32)
        sizes = np.array([len(draft.excerpts) for draft in block])
        ends = np.cumsum(sizes)
        # For each value found the source it stands in; source and value in one number, so that one sort gives
        # the distinct values of all sources, source by source.
        source_of = np.repeat(np.repeat(np.arange(len(block)), sizes), counts)
        width = max(1, len(vocabulary))
        values_of_sources = source_of * width + found.ids
        distinct = sort_distinct(values_of_sources)
        labels = found.labels
        named = [place for place, draft in enumerate(block) if draft.keys]
        if named:
            numbers = vocabulary.look_up([key for place in named for key in block[place].keys])
            of_source = np.repeat(named, [len(block[place].keys) for place in named])
            keys_of_sources = np.sort((of_source * width + numbers)[numbers != UNKNOWN])
            labels[holds_each(keys_of_sources, values_of_sources)] |= IS_KEY
        offsets = array("i", [0])
        offsets.frombytes(np.cumsum(lengths + 1, dtype=np.intc).tobytes())
        values = _Block(
            lengths,
            offsets,
            counts,
            found.ids,
            labels,
            found.words,
            found.word_counts,
            (distinct % width).astype(np.int32),
        )
        # Where the stretch of each source begins: in `distinct`, among the excerpts, in `ids`, in `words`.
        edges = np.searchsorted(distinct, np.arange(len(block) + 1) * width).tolist()
        borders = [0, *ends.tolist()]
        spans = found.starts[borders].tolist()
        words = np.concatenate([[0], np.cumsum(found.word_counts)])[borders].tolist()
        keys = np.concatenate([[0], np.cumsum(labels & IS_KEY > 0)])[spans].tolist()
        for place, draft in enumerate(block):
            draft.source = SpokenSource(
                draft.speaker,
                "\n".join(draft.excerpts),
                values,
                borders[place],
                borders[place + 1],
                spans[place],
                spans[place + 1],
                edges[place],
                edges[place + 1],
                words[place],
                words[place + 1],
                keys[place + 1] > keys[place],
            )
            draft.excerpts = ()


def _find_in_pieces(vocabulary: Vocabulary, texts: list[str]) -> FoundValues:
    """Returns the values of the texts, a limited amount of text at a time: one message may be larger than any block."""
    if sum(map(len, texts)) <= 2 * _BLOCK:
        return vocabulary.find(texts)
    step = _BLOCK // _TYPICAL_EXCERPT
    pieces = [vocabulary.find(texts[start : start + step]) for start in range(0, len(texts), step)]
    counts = np.concatenate([np.diff(piece.starts) for piece in pieces])
    return FoundValues(
        np.concatenate([piece.ids for piece in pieces]),
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([piece.labels for piece in pieces]),
        np.concatenate([piece.words for piece in pieces]),
        np.concatenate([piece.word_counts for piece in pieces]),
    )


def _readable(text: str) -> str:
    """Returns the text, or the start and the end of one that is too long to read whole."""
    if len(text) <= _LONGEST_TEXT:
        return text
    head = text.rfind("\n", 0, _LONGEST_TEXT * 3 // 5) + 1 or _LONGEST_TEXT * 3 // 5
    tail = text.find("\n", len(text) - _LONGEST_TEXT * 2 // 5)
    return text[:head] + "\n" + text[tail if tail > 0 else len(text) - _LONGEST_TEXT * 2 // 5 :]


def _voices(message: Message, entries: list[HandoffEntry]) -> Iterator[tuple[Speaker, str, str]]:
    """Yields each voice of a message with its tag and text; adds older handoffs to `entries`."""
    for part in message.parts:
        match part:
            case Text(text=text):
                yield from _texts(message.role, text)
            case Reasoning(text=text):
                yield Speaker.ASSISTANT, "", text
            case ToolCall(name=name, arguments=arguments):
                yield Speaker.CALL, name, arguments
            case ToolResult(call_id=call_id, text=text):
                yield Speaker.RESULT, call_id, _without_envelope(without_reminders(text))
            case Opaque(kind=kind):
                if words := read_words(part):
                    yield Speaker.RESULT, kind, words
            case Summary(text=text):
                yield from _voices_of_handoff(text, entries)
            case _:
                pass


# Lines about a run that stand before its output: "Wall time: 0.2 seconds", and at last "Output:".
_ENVELOPE = re.compile(r"\A(?:[A-Z][\w ]{2,30}(?:: | with )[^\n]{0,80}\n){1,8}Output:\n")
_RUNNING = re.compile(r"^.*\brunning\b.*\n", re.MULTILINE)


def _without_envelope(result: str) -> str:
    """Returns a result without the lines about the run before its output, but for one that names what goes on."""
    head = _ENVELOPE.match(result)
    if head is None:
        return result
    running = _RUNNING.search(head[0])
    return (running[0] if running else "") + result[head.end() :]


def _texts(role: Role, text: str) -> Iterator[tuple[Speaker, str, str]]:
    """Yields a text with its speaker and tag; in a user message each voice for itself."""
    if role is not Role.USER:
        yield _SPEAKERS[role], "", text
        return
    for voice, said in part_voices(text):
        if voice is Voice.PERSON:
            yield Speaker.USER, "", said
        elif not _BARE_TAG.fullmatch(said):
            yield Speaker.HARNESS, voice.value, said


def _voices_of_handoff(text: str, entries: list[HandoffEntry]) -> Iterator[tuple[Speaker, str, str]]:
    """Yields what an older handoff quotes, and adds its entries: those of other sections are taken over as they are."""
    for entry in parse_handoff(text):
        entries.append(entry)
        if entry.section is HandoffSection.CONTEXT:
            for piece in entry.text.split("\n\n"):  # what a gap parts is not read as if it followed
                yield Speaker.HANDOFF, f"{entry.number} {entry.label}", piece


_BARE_TAG = re.compile(r"\s*</?[^<>]*>\s*")  # around what a person typed

_SPEAKERS: dict[Role, Speaker] = {
    Role.USER: Speaker.USER,
    Role.ASSISTANT: Speaker.ASSISTANT,
    Role.TOOL: Speaker.RESULT,
    Role.SYSTEM: Speaker.SYSTEM,
}


def spoken_text(message: Message) -> str:
    """Returns what is said in a message, without calls and results.

    Of a user message that is what a person typed; all of it where only a harness speaks.
    """
    if message.role is Role.USER and (typed := person_words(message) or find_typed_command(message)):
        return typed
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))


def _find_runs(sources: Sequence[SpokenSource]) -> list[tuple[SpokenSource, SpokenSource]]:
    """Returns the first and the last of sources that follow each other in one block, whose rows are one stretch there."""
    runs: list[tuple[SpokenSource, SpokenSource]] = []
    first = last = sources[0]
    for source in islice(sources, 1, None):
        if source.block is not last.block or source.first_excerpt != last.end_excerpt:
            runs.append((first, last))
            first = source
        last = source
    return [*runs, (first, last)]


class Index:
    """The sources, excerpts and values of a list of messages, each known by its number.

    Message m has sources, source s has excerpts, excerpt e has values:

        message_of_source[s]                        the message that source s is of
        first_excerpt[s] : first_excerpt[s + 1]     the excerpts of source s
        source_of[e]                                the source that excerpt e is of
        ids[starts[e] : starts[e + 1]]              the distinct values of excerpt e

    A value has the number that the vocabulary gave it.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.messages = 0
        # One row per source.
        self.sources: list[SpokenSource] = []
        self.tags: list[str] = []
        self.message_of_source = np.zeros(0, np.int32)
        self.speakers = np.zeros(0, np.int8)
        self.first_excerpt: list[int] = [0]
        # One row per excerpt: its source, its characters, where its values begin in `ids`.
        self.source_of = np.zeros(0, np.int32)
        self.lengths = np.zeros(0, np.int32)
        self.ids = np.zeros(0, np.int32)
        self.starts = np.zeros(1, np.int32)
        self.excerpts_by_word = Postings()  # by the buckets of their plain words
        # The characters of all results that hold no keys of JSON, and of all that do.
        self.told_characters = [0, 0]
        # Of the excerpts that were looked at more closely: their tokens, their plain words, and the parts of their paths; of each
        # line that stood above the excerpts of a source, its tokens; of calls, the names of what they brought.
        self.costs: dict[int, int] = {}
        self.plain: dict[int, int] = {}
        self.heading_costs: dict[str, int] = {}
        self.path_parts: dict[int, list[str]] = {}
        self.result_names: dict[ToolCall, str] = {}
        # The sources that were searched for the words of the last request, and those that hold each word.
        self.searched: tuple[frozenset[int], dict[str, list[int]]] = (frozenset(), {})
        # What `importance` has counted of these messages so far.
        self.tellings: Any = None
        # One row per value: in how many sources and excerpts it stands, the last message that mentions it,
        # whether anyone but a tool or a harness said it, and how many values its least crowded source has.
        self.in_sources = np.zeros(0, np.int32)
        self.in_excerpts = np.zeros(0, np.int32)
        self.last_message = np.zeros(0, np.int32)
        self.said = np.zeros(0, np.bool_)
        self.said_by_assistant = np.zeros(0, np.bool_)
        self.crowd = np.zeros(0, np.int32)
        self.labels = np.zeros(0, np.uint8)  # what the words before it say it is, as a `ValueLabel`
        # Its sources by their speaker (`SYSTEM` stands for all from there on), the first result that told it, and the last
        # message in which the assistant said or called it.
        self.by_speaker = np.zeros((0, _VOICES), np.int32)
        self.first_result = np.zeros(0, np.int32)
        self.last_own = np.zeros(0, np.int32)
        # The first and the last source that mention it, and the last messages that do in a call and in a result; the last
        # excerpt in which it stands, and how many values its least crowded excerpt has.
        self.first_source = np.zeros(0, np.int32)
        self.last_source = np.zeros(0, np.int32)
        self.last_call = np.zeros(0, np.int32)
        self.last_result = np.zeros(0, np.int32)
        self.last_excerpt = np.zeros(0, np.int32)
        self.crowd_excerpt = np.zeros(0, np.int32)
        # One row per mention, which is a value of a source: source by source, so in the order of the conversation. Source s
        # has `mentions[s]` of them.
        self.mentioned = np.zeros(0, np.int32)
        self.mentions = np.zeros(0, np.int32)

    def extend(self, readings: Sequence[Reading]) -> None:
        """Add the readings of the next messages, some at a time, so that this takes little memory."""
        for start in range(0, len(readings), _INDEXED_AT_ONCE):
            self._add(readings[start : start + _INDEXED_AT_ONCE])

    def _add(self, readings: Sequence[Reading]) -> None:
        fresh: list[SpokenSource] = []
        at: list[int] = []
        for offset, reading in enumerate(readings):
            fresh.extend(reading.sources)
            self.tags.extend(reading.tags)
            at.extend([self.messages + offset] * len(reading.sources))
        self.messages += len(readings)
        if fresh:
            runs = _find_runs(fresh)
            counts = self._add_excerpts(fresh, runs)
            places = np.array(at, np.int32)
            self._add_values(fresh, runs, counts, self.tags[-len(fresh) :], places)
            self.sources += fresh
            self.message_of_source = _append(self.message_of_source, [places])
            self.speakers = _append(self.speakers, [np.array([source.speaker for source in fresh], np.int8)])
            for source in fresh:
                if source.speaker is Speaker.RESULT:
                    self.told_characters[source.holds_keys] += len(source.text)

    def excerpt(self, number: int) -> str:
        """Returns the text of an excerpt."""
        source = int(self.source_of[number])
        return self.sources[source].excerpt(number - self.first_excerpt[source])

    def _add_excerpts(
        self, fresh: list[SpokenSource], runs: list[tuple[SpokenSource, SpokenSource]]
    ) -> NDArray[np.int32]:
        """Returns how many values each of the new excerpts has."""
        sizes = [source.end_excerpt - source.first_excerpt for source in fresh]
        first = len(self.sources)
        owners = np.repeat(np.arange(first, first + len(fresh), dtype=np.int32), sizes)
        self.source_of = _append(self.source_of, [owners])
        self.first_excerpt.extend(islice(accumulate(sizes, initial=self.first_excerpt[-1]), 1, None))
        excerpts = [(a.block, slice(a.first_excerpt, z.end_excerpt)) for a, z in runs]
        self.lengths = _append(self.lengths, [block.lengths[rows] for block, rows in excerpts])
        counts = np.concatenate([block.counts[rows] for block, rows in excerpts])
        self.ids = _append(self.ids, [a.block.ids[a.first_id : z.end_id] for a, z in runs])
        words = np.concatenate([a.block.words[a.first_word : z.end_word] for a, z in runs])
        word_counts = np.concatenate([block.word_counts[rows] for block, rows in excerpts])
        numbers = np.arange(len(self.source_of) - len(owners), len(self.source_of), dtype=np.int32)
        self.excerpts_by_word.add(words, np.repeat(numbers, word_counts))
        self.starts = _append(self.starts, [self.starts[-1] + np.cumsum(counts, dtype=np.int32)])
        return counts

    def _add_values(
        self,
        fresh: list[SpokenSource],
        runs: list[tuple[SpokenSource, SpokenSource]],
        counts: NDArray[np.int32],
        tags: Sequence[str],
        at: NDArray[np.int32],
    ) -> None:
        self._grow(len(self.vocabulary))
        total = len(self.in_sources)
        sizes = np.array([source.end_distinct - source.first_distinct for source in fresh])
        distinct = np.concatenate([a.block.distinct[a.first_distinct : z.end_distinct] for a, z in runs])
        occurrences = np.concatenate([a.block.ids[a.first_id : z.end_id] for a, z in runs])
        if len(occurrences) > total // 8:
            self.in_sources += np.bincount(distinct, minlength=total).astype(np.int32)
            self.in_excerpts += np.bincount(occurrences, minlength=total).astype(np.int32)
        else:  # few: not worth a look at every value
            np.add.at(self.in_sources, distinct, np.ones(len(distinct), np.int32))
            np.add.at(self.in_excerpts, occurrences, np.ones(len(occurrences), np.int32))
        labels = np.concatenate([a.block.labels[a.first_id : z.end_id] for a, z in runs])
        np.bitwise_or.at(self.labels, occurrences, labels)
        excerpts = np.arange(len(self.lengths) - len(counts), len(self.lengths), dtype=np.int32)
        self.last_excerpt[occurrences] = np.repeat(excerpts, counts)  # in order, so that the latest stays
        np.minimum.at(self.crowd_excerpt, occurrences, np.repeat(counts, counts))
        self.last_message[distinct] = np.repeat(at, sizes)  # in order, so that the latest stays
        np.minimum.at(self.crowd, distinct, np.repeat(sizes.astype(np.int32), sizes))
        self._add_mentions(fresh, distinct, sizes, at)
        said = [
            tag == Voice.SUMMARY  # somebody said it, before it was summed up
            if source.speaker is Speaker.HARNESS
            else source.speaker is not Speaker.RESULT
            for source, tag in zip(fresh, tags, strict=True)
        ]
        self.said[distinct[np.repeat(said, sizes)]] = True
        by_assistant = [source.speaker is Speaker.ASSISTANT for source in fresh]
        self.said_by_assistant[distinct[np.repeat(by_assistant, sizes)]] = True

    def _add_mentions(
        self,
        fresh: list[SpokenSource],
        distinct: NDArray[np.int32],
        sizes: NDArray[Any],
        at: NDArray[np.int32],
    ) -> None:
        first = len(self.sources)
        sources = np.repeat(np.arange(first, first + len(fresh), dtype=np.int32), sizes)
        self.mentioned = _append(self.mentioned, [distinct])
        self.mentions = _append(self.mentions, [sizes.astype(np.int32)])
        messages = np.repeat(at, sizes)
        np.minimum.at(self.first_source, distinct, sources)
        self.last_source[distinct] = sources  # in order, so that the latest stays; and so below
        speakers = np.minimum(np.array([source.speaker for source in fresh], np.int64), Speaker.SYSTEM)
        speaker = np.repeat(speakers, sizes)
        # Counted in one dimension: with two indices a row, this takes eighty times as long.
        np.add.at(self.by_speaker.reshape(-1), distinct * _VOICES + speaker, np.ones(len(distinct), np.int32))
        told = speaker == Speaker.RESULT
        np.minimum.at(self.first_result, distinct[told], sources[told])
        self.last_result[distinct[told]] = messages[told]
        called = speaker == Speaker.CALL
        self.last_call[distinct[called]] = messages[called]
        own = called | (speaker == Speaker.ASSISTANT)
        self.last_own[distinct[own]] = messages[own]

    def _grow(self, total: int) -> None:
        """Make the rows of the values that the vocabulary met since."""
        if total > len(self.in_sources):
            for name, unmentioned in _OF_UNMENTIONED.items():
                setattr(self, name, _lengthen(getattr(self, name), total, unmentioned))


# The rows of a value that no message has mentioned yet.
_OF_UNMENTIONED = {
    "in_sources": 0,
    "in_excerpts": 0,
    "last_message": 0,
    "said": 0,
    "said_by_assistant": 0,
    "crowd": _NEVER,
    "labels": 0,
    "by_speaker": 0,
    "first_result": _NEVER,
    "last_own": -1,
    "first_source": _NEVER,
    "last_source": -1,
    "last_call": -1,
    "last_result": -1,
    "last_excerpt": -1,
    "crowd_excerpt": _NEVER,
}


def _lengthen(rows: NDArray[Any], total: int, fill: int = 0) -> NDArray[Any]:
    """Returns the rows and more of them up to `total`; the new ones are `fill`.

    An array that grows for the second time gets room to spare, so that most growth copies nothing. What `rows` is a view of
    belongs to it alone.
    """
    room = rows.base
    if room is None or len(room) < total:
        spare = total // _SPARE if len(rows) else 0
        room = np.full((total + spare, *rows.shape[1:]), fill, rows.dtype)
        room[: len(rows)] = rows
    longer: NDArray[Any] = room[:total]
    return longer


def _append(rows: NDArray[Any], pieces: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Returns the rows with those of the pieces behind them; see `_lengthen`."""
    first = len(rows)
    longer = _lengthen(rows, first + sum(map(len, pieces)))
    np.concatenate(pieces, out=longer[first:])
    return longer
