"""Reads each message once, into excerpts and values, and keeps a conversation's readings as arrays.

A `Reader` cuts the texts of a message into excerpts and gives every value in them a number, so that a `Reading`
is a few slices of arrays. It redacts texts first, each part as a whole, so that no excerpt can hold half of a
secret. It reads many messages together: their texts go through the vocabulary in blocks.

The `Index` joins the readings of a conversation: one row per source, one per excerpt, one per value, so that a
long conversation can be scored with array operations. It only grows. k new messages cost O(k) of reading, and a
copy of its arrays; a second compaction of a long conversation does not read it again.
"""

from __future__ import annotations

import re
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.conversation.dialects.wire_kinds import read_words
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
    person_words,
    voices_of,
    without_reminders,
)
from penstock.writing.compiled import cut_text, find_each
from penstock.writing.excerpts import lay_out_call, lay_out_redacted
from penstock.writing.finder import IS_KEY, UNKNOWN, FoundValues
from penstock.writing.handoff import HandoffEntry, HandoffSection, parse_handoff
from penstock.writing.ledger import Fact, facts_in
from penstock.writing.state import signs_in
from penstock.writing.vocabulary import Postings, Vocabulary, holds_each, sort_distinct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.conversation.speakers import VoicedPart
    from penstock.redaction import Redactor

__all__ = [
    "Index",
    "Reader",
    "Reading",
    "Speaker",
    "SpokenSource",
    "append_rows",
    "split_runs",
    "spoken_text",
]


_BLOCK = 1_000_000  # characters that go through the vocabulary together
_TYPICAL_EXCERPT = 80
_LONGEST_TEXT = 4_000_000  # characters: the middle of a longer text is only reachable by its handle
_FARTHEST = 3_000  # characters after an excerpt, in which the next one is searched
_LONGEST_CALL = 125  # characters of a call that is one excerpt together with its options
_NEVER = 1 << 30
_INDEXED_AT_ONCE = 4_000  # messages
_ROWS_AT_ONCE = 100_000
_SPARE = 32  # a part of its rows that an array has room for when it grows


class Speaker(IntEnum):
    """The speaker of a source."""

    USER = 0
    ASSISTANT = 1
    CALL = 2
    RESULT = 3
    SYSTEM = 4
    HANDOFF = 5
    HARNESS = 6  # text that a client put into a user message; its tag is the `Voice`


class _Rows(msgspec.Struct, eq=False):
    """The arrays of many sources, one source after the other. They only grow.

    A reader makes such rows for each block that it reads. An index copies the rows of its sources into its own and points
    the sources there, so that nothing is held twice.
    """

    # One row per source, and one for the end: the start of its excerpts, of its distinct values, and of its plain words.
    first_excerpt: NDArray[np.int32]
    first_distinct: NDArray[np.int32]
    first_word: NDArray[np.int32]
    # One row per excerpt: its characters, its place for `SpokenSource.quote`, the number of its plain words, and, with one
    # more row for the end, the start of its values in `ids`.
    lengths: NDArray[np.int32]
    places: NDArray[np.int32]
    word_counts: NDArray[np.uint16]  # an excerpt has a few hundred characters
    starts: NDArray[np.int32]
    # The distinct values of excerpt 0, then those of excerpt 1, and so on.
    ids: NDArray[np.int32]
    labels: NDArray[np.uint8]  # row by row with `ids`
    # The buckets of the plain words of excerpt 0, then those of excerpt 1, and so on.
    words: NDArray[np.uint16]
    # The values of source 0, each once, then those of source 1, and so on.
    distinct: NDArray[np.int32]

    @classmethod
    def empty(cls) -> _Rows:
        """Returns empty rows."""
        none, end, words = np.zeros(0, np.int32), np.zeros(1, np.int32), np.zeros(0, np.uint16)
        return cls(end, end, end, none, none, words, end, none, np.zeros(0, np.uint8), words, none)

    def add(self, sources: Sequence[SpokenSource]) -> None:
        """Appends the rows of these sources, and points the sources to them."""
        first = len(self.first_excerpt) - 1
        runs = _find_runs(sources)
        excerpts = [(rows, slice(*rows.first_excerpt[[a, z]].tolist())) for rows, a, z in runs]
        ids = [(rows, slice(*rows.starts[[some.start, some.stop]].tolist())) for rows, some in excerpts]
        words = [(rows, slice(*rows.first_word[[a, z]].tolist())) for rows, a, z in runs]
        distinct = [(rows, slice(*rows.first_distinct[[a, z]].tolist())) for rows, a, z in runs]
        starts = [rows.starts[some.start : some.stop + 1] for rows, some in excerpts]
        self.first_excerpt = _append_edges(
            self.first_excerpt, [rows.first_excerpt[a : z + 1] for rows, a, z in runs]
        )
        self.first_distinct = _append_edges(
            self.first_distinct, [rows.first_distinct[a : z + 1] for rows, a, z in runs]
        )
        self.first_word = _append_edges(self.first_word, [rows.first_word[a : z + 1] for rows, a, z in runs])
        self.lengths = append_rows(self.lengths, [rows.lengths[some] for rows, some in excerpts])
        self.places = append_rows(self.places, [rows.places[some] for rows, some in excerpts])
        self.word_counts = append_rows(self.word_counts, [rows.word_counts[some] for rows, some in excerpts])
        self.starts = _append_edges(self.starts, starts)
        self.labels = append_rows(self.labels, [rows.labels[some] for rows, some in ids])
        self.ids = append_rows(self.ids, [rows.ids[some] for rows, some in ids])
        self.words = append_rows(self.words, [rows.words[some] for rows, some in words])
        self.distinct = append_rows(self.distinct, [rows.distinct[some] for rows, some in distinct])
        for place, source in enumerate(sources, first):
            source.rows, source.place = self, place


class SpokenSource(msgspec.Struct, eq=False, gc=False):
    """One voice in one message: a text, a call or a result, cut into excerpts.

    Its text never changes. The place of its rows does, when an index takes it in.
    """

    speaker: Speaker
    said: str  # the text of the message; empty if it contains no excerpt verbatim
    others: str  # the excerpts that it does not contain verbatim, with a line break between them
    holds_keys: bool  # it is JSON: some of its values are keys
    rows: _Rows
    place: int  # its row among the sources of `rows`

    def quote(self, place: int, length: int) -> str:
        """Returns the excerpt at this place of `said`; a place below 0 counts from -1 down in `others`."""
        return self.said[place : place + length] if place >= 0 else self.others[~place : ~place + length]

    @property
    def excerpts(self) -> list[str]:
        """All excerpts."""
        rows, said = self.rows, self.said
        first, after = rows.first_excerpt[self.place : self.place + 2].tolist()
        places, lengths = rows.places[first:after].tolist(), rows.lengths[first:after].tolist()
        if said and not self.others:
            return [said[place : place + length] for place, length in zip(places, lengths, strict=True)]
        return list(map(self.quote, places, lengths))

    @property
    def text(self) -> str:
        """All excerpts as one text, with a line break between them."""
        return "\n".join(self.excerpts) if self.said else self.others

    @property
    def lowered(self) -> str:
        """The text in lower case. Piece by piece, since few have a character beyond ASCII, with which this is slow."""
        pieces = self.excerpts if self.said else self.others.split("\n")
        if all(map(str.isascii, pieces)):
            return "\n".join(pieces).lower()
        return "\n".join(map(str.lower, pieces))

    @property
    def distinct(self) -> NDArray[np.int32]:
        """The distinct values of all excerpts."""
        first = self.rows.first_distinct
        return self.rows.distinct[first[self.place] : first[self.place + 1]]


class Reading(msgspec.Struct, eq=False, gc=False):
    """The reading of one message: its sources, each with a tag, and the entries of an older handoff.

    The tag of a call is the tool's name, that of a result the id of its call, and that of harness text its voice. A
    source that is quoted from a handoff has the number and the label of the entry; other sources have no tag.
    """

    sources: tuple[SpokenSource, ...]
    tags: tuple[str, ...]
    is_handoff: bool = False
    entries: tuple[HandoffEntry, ...] = ()
    _facts: tuple[Fact, ...] | None = None

    def facts(self, message: Message, redactor: Redactor) -> tuple[Fact, ...]:
        """Returns the facts of the message, which must be the one that was read. Worked out late: few are ever needed."""
        if self._facts is None:
            self._facts = (*signs_in(message, redactor), *facts_in(message, redactor))
        return self._facts


class _Draft(msgspec.Struct, eq=False):
    """A source before its values are found."""

    speaker: Speaker
    excerpts: tuple[str, ...]
    keys: frozenset[str]
    said: str = ""  # the text that may contain the excerpts verbatim
    places: list[int] | None = None  # their places in it, if known; -1 for nowhere
    source: SpokenSource | None = None


class Reader:
    """Reads messages with one vocabulary and one redactor. Does not read a result again that it has read before."""

    def __init__(self, redactor: Redactor) -> None:
        self.vocabulary = Vocabulary()
        self._redactor = redactor
        self._results: dict[str, _Draft] = {}
        self._tags: dict[tuple[str, ...], tuple[str, ...]] = {}  # most are alike: each is held once

    def read(self, messages: Sequence[Message]) -> list[Reading]:
        """Returns the reading of each message."""
        readings: list[Reading] = []
        block: list[tuple[Message, list[_Draft], tuple[str, ...], tuple[HandoffEntry, ...]]] = []
        characters = 0
        for message in messages:
            drafts, tags, entries = self._draft(message)
            block.append((message, drafts, tags, entries))
            characters += sum([sum(map(len, draft.excerpts)) for draft in drafts])
            if characters > _BLOCK:
                readings += self._finish(block)
                block, characters = [], 0
        readings += self._finish(block)
        return readings

    def _finish(
        self, block: list[tuple[Message, list[_Draft], tuple[str, ...], tuple[HandoffEntry, ...]]]
    ) -> Iterator[Reading]:
        """Yields the readings of a block of drafts; finds all their values together."""
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
        of_message = tuple(tags)
        if not any(
            draft.speaker is Speaker.RESULT for draft in drafts
        ):  # whose ids of calls are all different
            of_message = self._tags.setdefault(of_message, of_message)
        return drafts, of_message, tuple(entries)

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
        pieces, places = cut_text(clean, items=bool(keys), spoken=spoken)
        said = "" if keys else text
        draft = _Draft(speaker, tuple(pieces), keys, said, places if clean == said else None)
        if speaker is Speaker.RESULT:
            self._results[text] = draft
        return draft

    def _cut_call(self, arguments: str) -> _Draft:
        """Returns a call as a draft. A short call keeps its options beside it: alone, "timeout 60000" says nothing."""
        clean = self._redactor.redact(_readable(arguments))
        said, laid = lay_out_call(clean)
        named = laid.text
        if "\\" in clean or "\x1b" in clean:  # as for results: unescaped text may be a secret now
            said, named = self._redactor.redact(said), self._redactor.redact(named)
        (pieces, _), (options, _) = cut_text(said), cut_text(named, items=bool(laid.keys))
        if pieces and options and len(pieces[-1]) + len(options[0]) <= _LONGEST_CALL:
            pieces[-1] += f"\n{options.pop(0)}"
        return _Draft(Speaker.CALL, (*pieces, *options), laid.keys)

    def _find_values(self, block: list[_Draft]) -> None:
        """Turns the drafts into sources of one block."""
        vocabulary = self.vocabulary
        texts = [text for draft in block for text in draft.excerpts]
        found = _find_in_pieces(vocabulary, texts)
        counts = np.diff(found.starts).astype(np.int32)
        sizes = np.array([len(draft.excerpts) for draft in block])
        ends = np.cumsum(sizes)
        # Source and value of each find in one number: a single sort gives the distinct values of all sources, source by
        # source.
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
        # The start of each source: in `distinct`, among the excerpts, in `words`.
        edges = np.searchsorted(distinct, np.arange(len(block) + 1) * width)
        borders = np.concatenate([[0], ends])
        words = np.concatenate([[0], np.cumsum(found.word_counts)])[borders]
        keys = np.concatenate([[0], np.cumsum(labels & IS_KEY > 0)])[found.starts[borders]].tolist()
        places: list[int] = []
        others: list[str] = []
        for draft in block:
            of_draft, missing = _find_places(draft)
            places += of_draft
            others.append(missing)
            if max(of_draft) < 0:
                draft.said = ""  # it contains none of them
        rows = _Rows(
            borders.astype(np.int32),
            edges.astype(np.int32),
            words.astype(np.int32),
            np.array(list(map(len, texts)), np.int32),
            np.array(places, np.int32),
            found.word_counts.astype(np.uint16),
            found.starts.astype(np.int32),
            found.ids,
            labels,
            found.words,
            (distinct % width).astype(np.int32),
        )
        for place, draft in enumerate(block):
            draft.source = SpokenSource(
                draft.speaker, draft.said, others[place], keys[place + 1] > keys[place], rows, place
            )
            draft.excerpts, draft.said, draft.places = (), "", None


def _find_places(draft: _Draft) -> tuple[list[int], str]:
    """Returns the place of each excerpt for `SpokenSource.quote`, and one text of those that `said` does not contain."""
    known = _look_for(draft.said, draft.excerpts) if draft.places is None else draft.places
    if min(known) >= 0:
        return known, ""
    places: list[int] = []
    others: list[str] = []
    end = -1  # of the others
    for place, excerpt in zip(known, draft.excerpts, strict=True):
        if place >= 0:
            places.append(place)
        else:
            places.append(end)
            others.append(excerpt)
            end -= len(excerpt) + 1
    return places, "\n".join(others)


def _look_for(text: str, excerpts: tuple[str, ...]) -> list[int]:
    """Returns the place of each excerpt in the text, -1 for nowhere.

    It compares characters. So excerpts are quoted as they were cut, even if the text was laid out or redacted before.
    """
    return find_each(text, excerpts, _FARTHEST) if text else [-1] * len(excerpts)


def _find_in_pieces(vocabulary: Vocabulary, texts: list[str]) -> FoundValues:
    """Finds the values of the texts, a limited amount of text at a time: one message may be larger than any block."""
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
    """Returns the text, or its start and end if it is too long to be read whole."""
    if len(text) <= _LONGEST_TEXT:
        return text
    head = text.rfind("\n", 0, _LONGEST_TEXT * 3 // 5) + 1 or _LONGEST_TEXT * 3 // 5
    tail = text.find("\n", len(text) - _LONGEST_TEXT * 2 // 5)
    return text[:head] + "\n" + text[tail if tail > 0 else len(text) - _LONGEST_TEXT * 2 // 5 :]


def _voices(message: Message, entries: list[HandoffEntry]) -> Iterator[tuple[Speaker, str, str]]:
    """Yields each voice of a message with its tag and text; adds older handoffs to `entries`."""
    spoken = voices_of(message)
    for part in message.parts:
        match part:
            case Text() if message.role is Role.USER:
                yield from _user_voices(next(spoken)[1])
            case Text(text=text):
                yield _SPEAKERS[message.role], "", text
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


# Lines about a run that come before its output: "Wall time: 0.2 seconds", and finally "Output:".
_ENVELOPE = re.compile(r"\A(?:[A-Z][\w ]{2,30}(?:: | with )[^\n]{0,80}\n){1,8}Output:\n")
_OUTPUT = "Output:\n"
_LONGEST_ENVELOPE = 8 * (31 + 6 + 80 + 1) + len(_OUTPUT)  # characters
_RUNNING = re.compile(r"^.*\brunning\b.*\n", re.MULTILINE)


def _without_envelope(result: str) -> str:
    """Returns a result without the lines about the run before its output, except one that names a running process."""
    if result.find(_OUTPUT, 0, _LONGEST_ENVELOPE) < 0 or (head := _ENVELOPE.match(result)) is None:
        return result
    running = _RUNNING.search(head[0])
    return (running[0] if running else "") + result[head.end() :]


def _user_voices(voices: Iterable[VoicedPart]) -> Iterator[tuple[Speaker, str, str]]:
    """Yields each voice of a text of a user message for itself, with its tag."""
    for voice, said in voices:
        if voice is Voice.PERSON:
            yield Speaker.USER, "", said
        elif not _BARE_TAG.fullmatch(said) and not _CAVEAT.match(said):
            yield Speaker.HARNESS, voice.value, said


def _voices_of_handoff(text: str, entries: list[HandoffEntry]) -> Iterator[tuple[Speaker, str, str]]:
    """Yields the quotes of an older handoff; adds the entries of its other sections unchanged."""
    for entry in parse_handoff(text):
        entries.append(entry)
        if entry.section is HandoffSection.CONTEXT:
            for piece in entry.text.split("\n\n"):  # text after a gap does not follow the text before it
                yield Speaker.HANDOFF, f"{entry.number} {entry.label}", piece


_BARE_TAG = re.compile(r"\s*</?[^<>]*>\s*")  # around a person's own text
# A client's note that the messages beside it want no answer. A piece of it, quoted, would forbid answering any.
_CAVEAT = re.compile(r"\s*<local-command-caveat>|\s*caveat: the messages below were generated", re.IGNORECASE)

_SPEAKERS: dict[Role, Speaker] = {
    Role.USER: Speaker.USER,
    Role.ASSISTANT: Speaker.ASSISTANT,
    Role.TOOL: Speaker.RESULT,
    Role.SYSTEM: Speaker.SYSTEM,
}


def spoken_text(message: Message) -> str:
    """Returns the spoken text of a message, without calls and results.

    For a user message, returns what a person typed, or everything if only a harness speaks.
    """
    if message.role is Role.USER and (typed := person_words(message) or find_typed_command(message)):
        return typed
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))


def split_runs(edges: NDArray[np.int32]) -> Iterator[tuple[int, int]]:
    """Yields stretches of runs, as start and end, each with a good number of rows for one pass.

    Run r is the rows from `edges[r]` up to `edges[r + 1]`. A single pass over all rows of a long conversation would take
    several times the memory of the rows, since numpy turns every row that it looks up into a number of 64 bits.
    """
    first, last = 0, len(edges) - 1
    while first < last:
        after = int(np.searchsorted(edges, edges[first] + _ROWS_AT_ONCE, "right")) - 1
        after = max(after, first + 1)
        yield first, after
        first = after


def _find_runs(sources: Sequence[SpokenSource]) -> list[tuple[_Rows, int, int]]:
    """Returns the runs of sources that are neighbours in the same rows, each as the rows, the first place and the end."""
    runs: list[tuple[_Rows, int, int]] = []
    rows, first, after = sources[0].rows, sources[0].place, sources[0].place
    for source in sources:
        if source.rows is not rows or source.place != after:
            runs.append((rows, first, after))
            rows, first = source.rows, source.place
        after = source.place + 1
    return [*runs, (rows, first, after)]


class Index:
    """The sources, excerpts and values of a list of messages, each known by its number.

    Message m has sources, source s has excerpts, excerpt e has values:

        message_of_source[s]                        the message of source s
        first_excerpt[s] : first_excerpt[s + 1]     the excerpts of source s
        source_of[e]                                the source of excerpt e
        ids[starts[e] : starts[e + 1]]              the distinct values of excerpt e

    The number of a value is the vocabulary's.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.messages = 0
        # One row per source.
        self.sources: list[SpokenSource] = []
        self.tags: list[str] = []
        self.message_of_source = np.zeros(0, np.int32)
        self.speakers = np.zeros(0, np.int8)
        # The rows that the sources point to; and, one row per excerpt, its source.
        self._rows = _Rows.empty()
        self.source_of = np.zeros(0, np.int32)
        self.excerpts_by_word = Postings()  # by the buckets of their plain words
        # The characters of all results that hold no keys of JSON, and of all that do.
        self.told_characters = [0, 0]
        # What `choice` has counted of the excerpts that it looked at closely.
        self.counted: Any = None
        # By source: what the line above its excerpts was made of, and its tokens with a line break. By call: the name of what it brought.
        self.headings: dict[int, tuple[Any, int]] = {}
        self.result_names: dict[ToolCall, str] = {}
        # The texts in lower case that were searched for the words of the last request, by source, and the sources that hold each word.
        self.searched: tuple[dict[int, str], dict[str, list[int]]] = ({}, {})
        # What `importance` has counted of these messages so far.
        self.tellings: Any = None
        # How many excerpts were looked at for words that say nothing, and those that have no others.
        self.empty_words: tuple[int, NDArray[np.int64]] = (0, np.zeros(0, np.int64))
        # How many excerpts were looked at for words of people, and, one row per excerpt of theirs that is long enough to be
        # found in a section: its number, and a mark of the characters that it begins with.
        self.openings = (0, np.zeros(0, np.int32), np.zeros(0, np.uint64))
        # By excerpt that was looked at: whether it is a courtesy, a heading or a bare command.
        self.idle_words: dict[int, bool] = {}
        # One row per value: the number of sources and excerpts that hold it, the last message that mentions it,
        # whether anyone but a tool or a harness said it, and the number of values in its least crowded source.
        self.in_sources = np.zeros(0, np.int32)
        self.in_excerpts = np.zeros(0, np.int32)
        self.last_message = np.zeros(0, np.int32)
        self.said = np.zeros(0, np.bool_)
        self.said_by_assistant = np.zeros(0, np.bool_)
        self.crowd = np.zeros(0, np.int32)
        self.labels = np.zeros(0, np.uint8)  # a `ValueLabel`, from the words before it
        # The first result that told it, and the last message in which the assistant said or called it. `importance` finds
        # everything else that it needs of some values in `mentioned` and `ids`.
        self.first_result = np.zeros(0, np.int32)
        self.last_own = np.zeros(0, np.int32)

    @property
    def first_excerpt(self) -> NDArray[np.int32]:
        """The first excerpt of each source, and one more row for the end."""
        return self._rows.first_excerpt

    @property
    def lengths(self) -> NDArray[np.int32]:
        """The characters of each excerpt."""
        return self._rows.lengths

    @property
    def starts(self) -> NDArray[np.int32]:
        """The start of each excerpt's values in `ids`, and one more row for the end."""
        return self._rows.starts

    @property
    def ids(self) -> NDArray[np.int32]:
        """The distinct values of each excerpt, one excerpt after the other."""
        return self._rows.ids

    @property
    def mentioned(self) -> NDArray[np.int32]:
        """One row per mention, which is a value in a source: source by source, so in the order of the conversation."""
        return self._rows.distinct

    @property
    def first_mention(self) -> NDArray[np.int32]:
        """The start of each source's mentions, and one more row for the end."""
        return self._rows.first_distinct

    def __contains__(self, value: object) -> bool:
        """Returns True if a message of this list names the value. The vocabulary knows those of other lists as well."""
        if not isinstance(value, str):
            return False
        number = self.vocabulary.look_up([value]).item(0)
        return 0 <= number < len(self.in_sources) and self.in_sources.item(number) > 0

    def find_named(self, values: Iterable[str]) -> dict[str, int]:
        """Returns those of these values that messages of this list name, with their numbers."""
        some, named = list(values), self.in_sources
        numbers = zip(some, self.vocabulary.look_up(some).tolist(), strict=True)
        return {value: number for value, number in numbers if 0 <= number < len(named) and named[number]}

    def extend(self, readings: Sequence[Reading]) -> None:
        """Adds the readings of the next messages, some at a time, so that this takes little memory."""
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
        if not fresh:
            return
        first, first_excerpt = len(self.sources), len(self.source_of)
        self._rows.add(fresh)
        self.sources += fresh
        places = np.array(at, np.int32)
        self.message_of_source = append_rows(self.message_of_source, [places])
        self.speakers = append_rows(self.speakers, [np.array([source.speaker for source in fresh], np.int8)])
        self._add_excerpts(first, first_excerpt)
        self._add_values(first, first_excerpt)

    def excerpt(self, number: int) -> str:
        """Returns the text of an excerpt."""
        rows = self._rows
        source: SpokenSource = self.sources[self.source_of.item(number)]
        return source.quote(rows.places.item(number), rows.lengths.item(number))

    def quote_each(self, numbers: Sequence[int]) -> list[str]:
        """Returns the texts of these excerpts, three times as fast as one by one."""
        some = np.array(numbers, np.int64)
        sources = map(self.sources.__getitem__, self.source_of[some].tolist())
        rows = self._rows
        quotes = zip(sources, rows.places[some].tolist(), rows.lengths[some].tolist(), strict=True)
        return [
            source.said[place : place + length] if place >= 0 else source.others[~place : ~place + length]
            for source, place, length in quotes  # as `quote` does, without a call for each
        ]

    def texts_of(self, sources: NDArray[np.int64]) -> list[str]:
        """Returns the texts of these sources, sooner than one by one."""
        firsts = self.first_excerpt[sources]
        sizes = self.first_excerpt[sources + 1] - firsts
        ends = np.cumsum(sizes)
        numbers = np.arange(int(sizes.sum())) + np.repeat(firsts - (ends - sizes), sizes)
        said = self.quote_each(numbers.tolist())
        runs = pairwise([0, *ends.tolist()])
        held = map(self.sources.__getitem__, sources.tolist())
        return [
            "\n".join(said[start:end]) if source.said else source.others
            for source, (start, end) in zip(held, runs, strict=True)
        ]

    def _add_excerpts(self, first: int, first_excerpt: int) -> None:
        """Adds the excerpts of the sources from `first` on; `first_excerpt` is the first of them."""
        rows = self._rows
        edges = rows.first_excerpt[first:]
        sizes = np.diff(edges)
        owners = np.repeat(np.arange(first, len(self.sources), dtype=np.int32), sizes)
        self.source_of = append_rows(self.source_of, [owners])
        numbers = np.arange(first_excerpt, len(self.source_of), dtype=np.int32)
        self.excerpts_by_word.add(
            rows.words[rows.first_word[first] :], np.repeat(numbers, rows.word_counts[first_excerpt:])
        )
        # The characters of each source, with a line break between its excerpts.
        before = np.concatenate([[0], np.cumsum(rows.lengths[first_excerpt:] + 1)])
        characters = np.diff(before[edges - first_excerpt]) - 1
        holds_keys = np.array([source.holds_keys for source in self.sources[first:]], np.bool_)
        result = self.speakers[first:] == Speaker.RESULT
        self.told_characters[False] += int(characters[result & ~holds_keys].sum())
        self.told_characters[True] += int(characters[result & holds_keys].sum())

    def _add_values(self, first: int, first_excerpt: int) -> None:
        rows = self._rows
        self._grow(len(self.vocabulary))
        total = len(self.in_sources)
        at = self.message_of_source[first:]
        sizes = np.diff(rows.first_distinct[first:])
        distinct = rows.distinct[rows.first_distinct[first] :]
        occurrences = rows.ids[rows.starts[first_excerpt] :]
        if len(occurrences) > total // 8:
            self.in_sources += np.bincount(distinct, minlength=total).astype(np.int32)
            self.in_excerpts += np.bincount(occurrences, minlength=total).astype(np.int32)
        else:  # too few to be worth a pass over every value
            np.add.at(self.in_sources, distinct, np.ones(len(distinct), np.int32))
            np.add.at(self.in_excerpts, occurrences, np.ones(len(occurrences), np.int32))
        np.bitwise_or.at(self.labels, occurrences, rows.labels[rows.starts[first_excerpt] :])
        self.last_message[distinct] = np.repeat(at, sizes)  # in order, so that the last one stays
        np.minimum.at(self.crowd, distinct, np.repeat(sizes, sizes))
        said = [
            tag == Voice.SUMMARY  # somebody said it before it was summarised
            if source.speaker is Speaker.HARNESS
            else source.speaker is not Speaker.RESULT
            for source, tag in zip(self.sources[first:], self.tags[first:], strict=True)
        ]
        self.said[distinct[np.repeat(said, sizes)]] = True
        speakers = self.speakers[first:]
        by_assistant = speakers == Speaker.ASSISTANT
        self.said_by_assistant[distinct[np.repeat(by_assistant, sizes)]] = True
        results, own = speakers == Speaker.RESULT, by_assistant | (speakers == Speaker.CALL)
        told, its_own = np.repeat(results, sizes), np.repeat(own, sizes)
        numbers = np.arange(first, len(self.sources), dtype=np.int32)
        np.minimum.at(self.first_result, distinct[told], np.repeat(numbers[results], sizes[results]))
        self.last_own[distinct[its_own]] = np.repeat(at[own], sizes[own])

    def _grow(self, total: int) -> None:
        """Makes rows for the new values of the vocabulary."""
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
    "first_result": _NEVER,
    "last_own": -1,
}


def _lengthen(rows: NDArray[Any], total: int, fill: int | None = 0) -> NDArray[Any]:
    """Returns the rows extended to `total`; new ones are `fill`, or uninitialised for None.

    From the second time on, an array that grows gets spare room, so that most growth copies nothing. The array behind
    `rows` must belong to `rows` alone.
    """
    room = rows.base
    if room is None or len(room) < total:
        spare = total // _SPARE if len(rows) else 0
        room = np.empty(total + spare, rows.dtype)
        room[: len(rows)] = rows
        if fill is not None:
            room[len(rows) :] = fill
    longer: NDArray[Any] = room[:total]
    return longer


def append_rows(rows: NDArray[Any], pieces: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Returns the rows with those of the pieces behind them; see `_lengthen`."""
    first = len(rows)
    longer = _lengthen(rows, first + sum(map(len, pieces)), None)
    np.concatenate(pieces, out=longer[first:])
    return longer


def _append_edges(edges: NDArray[np.int32], pieces: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Returns the edges followed by those of the pieces. Each piece begins with the edge before its first run."""
    sizes = np.concatenate([np.diff(piece) for piece in pieces])
    return append_rows(edges, [edges[-1] + np.cumsum(sizes, dtype=np.int32)])
