"""The turn that stands for others: a handoff of a few hundred tokens, with or without a model's words.

It is written as every other handoff is, mark included, so that a model meets in training what it will meet at work.
Only importance is judged differently: a trajectory has its future beside it. A summary must hold the values that the
assistant uses later without having been told them again. Trained on a trajectory without them, a model
learns to invent.

A summary quotes some twenty lines, so most of the turns that give way are skimmed: only the lines that
hold a value that is needed later, people's words, and the beginnings of the assistant's turns are read.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from penstock._core import HAS_CORE
from penstock.conversation import mark
from penstock.conversation.handles import AFTER, number_messages, numbers_after
from penstock.conversation.message import Message, Reasoning, Role, Summary, Text, ToolCall, ToolResult
from penstock.conversation.pairing import calls_by_id
from penstock.measure.weigh import MESSAGE_FRAME
from penstock.redaction.anchors import open_anchors, replace_surrogates
from penstock.writing.excerpts import lay_out_redacted
from penstock.writing.extractive import ExtractiveWriter
from penstock.writing.importance import Live, score_by_rule
from penstock.writing.reading import Index, Reader, Reading
from penstock.writing.token_values import read_tokens
from penstock.writing.transcript import MODEL, WRITTEN_BY, Transcript
from penstock.writing.values import PHRASE, tokens_of
from penstock.writing.writer import HandoffAims, HandoffMaterial, Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.conversation.message import Part
    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor
    from penstock.trajectories.compress import Span, Trajectory
    from penstock.writing.verify import Checked
    from penstock.writing.vocabulary import Vocabulary

__all__ = ["PROSE_SHARE", "LiteralFinder", "SummaryWriter", "texts_of"]


NOTE = "Earlier turns, for reference. Answer what comes after."
PROSE_SHARE = 0.6  # of a summary: what a model may write; the rest is facts, in the words of the turns
_REQUEST_SHARE = 0.25  # of a summary may quote the request that the turns after it serve
_NEEDED = 0.7  # of a value's weight is whether it is needed later
_LIVE_CHARACTERS = 400
_HISTORY_TURNS = 24  # the newest turns that give way: what was done in them is told
_MOST_LOOKED_AHEAD = 40_000  # of what comes after: the nearest turns use most of what was
_LONGEST_VALUE = 120
_SURROGATE = re.compile("[\ud800-\udfff]")
_LINES_PER_VALUE = 3  # the newest
_MOST_CHARACTERS = 24_000  # of all lines together
_SPOKEN = 1_200  # characters of the beginning of what a person said,
_BEGUN = 180  # and of what the assistant did
_MOST_BEGINNINGS = 8_000
_LONG_LINE = 260
_BEFORE, _AFTER = 90, 140  # characters around a value in a long line
_OPENS_JSON = re.compile(r"\s*[{\[]").match
_UNREAD = Reading((), (), _facts=())


class SummaryWriter:
    """Writes the summary of one span of a trajectory."""

    def __init__(self, trajectory: Trajectory, span: Span, tokenizer: Tokenizer, redactor: Redactor) -> None:
        self._given = trajectory
        self._span = span
        self._tokenizer = tokenizer
        self._redactor = redactor
        self.gone = span.gone
        self.request = _last_request(trajectory.messages, span.end)

    @cached_property
    def needed(self) -> list[str]:
        """The values that later turns use and that only turns of the span tell."""
        messages = self._given.messages
        after = [messages[place] for place in self._span.places_after(len(messages))]
        return _find_needed_values(messages[: self._span.start], after)

    @cached_property
    def transcript(self) -> Transcript:
        """The trajectory as a writer of handoffs reads it: of the turns that give way what is worth reading, and nothing
        of those that stay.
        """
        given = self._given
        reader = Reader(self._redactor)
        gone = [given.messages[place] for place in self.gone]
        readings = [_UNREAD] * len(given.messages)
        for place, reading in zip(
            self.gone, reader.read(_sift_lines(gone, self.needed, self._redactor)), strict=True
        ):
            readings[place] = reading
        index = Index(reader.vocabulary)
        index.extend(readings)
        return Transcript(
            dialect=given.dialect,
            messages=tuple(given.messages),
            origins=tuple(given.turns),
            tokens=tuple(given.tokens),
            numbers=number_messages(given.messages),
            readings=tuple(readings),
            index=index,
            legal=tuple(given.legal),
            handoffs=tuple(place for place in self.gone if readings[place].is_handoff),
        )

    def write(self, budget: int, prose: Checked | None = None) -> str:
        """Returns the text of the turn, in its mark, of at most `budget` tokens with the frame of a turn.

        `prose` is what a model wrote, checked.
        """
        transcript = self.transcript
        writer = ExtractiveWriter(
            HandoffMaterial(
                transcript,
                calls_by_id(transcript.messages),
                self._tokenizer,
                self._redactor,
                handoff_tokens=budget,
                prose=prose,
                aims=self._aims(),
            )
        )
        behind = [transcript.numbers[place] for place in self._span.places_after(len(transcript.messages))]
        newest = max(transcript.numbers, default=0)
        attributes = {AFTER: numbers_after([number for number in behind if number], newest)}
        if writer.has_prose:
            attributes[WRITTEN_BY] = MODEL

        def wrap(text: str) -> str:
            return mark.wrap(f"{NOTE}\n{text}".rstrip(), attributes)

        def measure(text: str) -> int:
            return MESSAGE_FRAME + self._tokenizer.count(wrap(text))

        kept = frozenset(range(len(transcript.messages))).difference(self.gone)
        beside = Surroundings(request=self.request, kept=kept, kept_verbatim=kept, shown_texts=())
        return wrap(writer.write(budget, measure, beside).text)

    def _aims(self) -> HandoffAims:
        messages = self.transcript.messages
        return HandoffAims(
            importance=self._weigh_values,
            people_share=0.0,
            own_share=0.0,
            request_share=_REQUEST_SHARE,
            prose_share=PROSE_SHARE,
            sections_from_tokens=0,
            facts_of_newest=len(messages) - self.gone[-_HISTORY_TURNS:][0],
            known=_ValuesTold(self.transcript.index.vocabulary, [messages[place] for place in self.gone]),
        )

    def _weigh_values(
        self, index: Index, live: Live, _tokens_after: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Weighs a value by whether it is needed later and, for the rest, as in any conversation.

        What later turns are about is known by the values that they use, so of `live` the request is enough. What gives
        way is near or far alike: recency is left out by giving every turn the same place.
        """
        request = Live(request=live.request[:_LIVE_CHARACTERS], work="")
        weights = score_by_rule(index, request, np.zeros(max(1, index.messages), np.int64))
        weights *= np.float32(1.0 - _NEEDED)
        weights[index.vocabulary.numbers_of(self.needed)] += np.float32(_NEEDED)
        return weights


class _ValuesTold:
    """The values of the turns that give way. Most of these were not read closely, so their texts are looked through for
    a value that the vocabulary does not have, the newest first: entries of sections are mostly from those.
    """

    def __init__(self, vocabulary: Vocabulary, messages: Sequence[Message]) -> None:
        self._vocabulary = vocabulary
        self._messages = messages

    @cached_property
    def _texts(self) -> list[str]:
        return [text for message in reversed(self._messages) for text in texts_of(message)]

    def __contains__(self, value: object) -> bool:
        return value in self._vocabulary or any(str(value) in text for text in self._texts)


def _last_request(messages: Sequence[Message], end: int) -> int | None:
    """Returns the place of the last request before `end`; None if there is none, or a handoff stands there."""
    for place in range(end - 1, -1, -1):
        parts = messages[place].parts
        if messages[place].role is Role.USER and any(isinstance(part, Text) for part in parts):
            return None if any(isinstance(part, Summary) for part in parts) else place
    return None


def _open_scan(values: Sequence[str]) -> Callable[[str], list[tuple[int, int, int]]]:
    """Returns a function that finds these values in a text, apart from each other: the first one, and where several begin, the
    longest.
    """
    if (
        HAS_CORE and min(map(len, values), default=0) > 1
    ):  # the core is ready sooner, and quicker; it knows none of one byte
        find_all = open_anchors(values)

        def scan(text: str) -> list[tuple[int, int, int]]:
            apart: list[tuple[int, int, int]] = []
            last = 0
            for hit in sorted(find_all(text), key=_by_start):
                if hit[1] >= last:
                    apart.append(hit)
                    last = hit[2]
            return apart

        return scan
    import ahocorasick_rs  # noqa: PLC0415 - not needed where the core is

    find = ahocorasick_rs.AhoCorasick(
        values, matchkind=ahocorasick_rs.MatchKind.LeftmostLongest, store_patterns=False
    ).find_matches_as_indexes

    def scan_without_core(text: str) -> list[tuple[int, int, int]]:
        try:
            return find(text)
        except UnicodeEncodeError:
            return find(replace_surrogates(text))

    return scan_without_core


def _by_start(hit: tuple[int, int, int]) -> tuple[int, int]:
    return hit[1], -hit[2]


class LiteralFinder:
    """Finds whole occurrences of many values in a text, in one pass."""

    def __init__(self, values: Sequence[str]) -> None:
        self._scan = _open_scan(values)

    def find(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Yields which value stands from where up to where. One inside a longer word does not count."""
        return self.sift(text, self.scan(text))

    def scan(self, text: str) -> list[tuple[int, int, int]]:
        """Returns the same, with those inside of longer words."""
        return self._scan(text)

    @staticmethod
    def sift(text: str, hits: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
        """Yields what `scan` found in the text, without those inside of longer words."""
        last = len(text)
        for which, start, end in hits:
            if (start and text[start - 1].isalnum() and text[start].isalnum()) or (
                end < last and text[end].isalnum() and text[end - 1].isalnum()
            ):
                continue
            yield which, start, end


def _find_needed_values(before: Sequence[Message], after: Sequence[Message]) -> list[str]:
    """Returns the values that the assistant uses in `after` and that neither `before` nor an earlier turn of `after` tells."""
    first_use = _first_uses(after)
    if not first_use:
        return []
    values = list(first_use)
    finder = LiteralFinder(values)
    told = {which for message in before for text in texts_of(message) for which, _, _ in finder.find(text)}
    for place, message in enumerate(after):
        if message.role is not Role.ASSISTANT:
            told.update(
                which
                for text in texts_of(message)
                for which, _, _ in finder.find(text)
                if first_use[values[which]] > place
            )
    return [value for which, value in enumerate(values) if which not in told]


def _first_uses(messages: Sequence[Message]) -> dict[str, int]:
    """Returns the values that the assistant uses, each with the place of the first message that does."""
    uses: dict[str, int] = {}
    room = _MOST_LOOKED_AHEAD
    for place, message in enumerate(messages):
        for text in texts_of(message) if message.role is Role.ASSISTANT else ():
            for value in _values(text[:room]):
                uses.setdefault(value, place)
            room -= len(text)
            if room <= 0:
                return uses
    return uses


def texts_of(message: Message) -> Iterator[str]:
    """Yields every text in a message: words, thoughts, arguments, results."""
    for part in message.parts:
        if isinstance(part, (Text, Reasoning, ToolResult)):
            yield part.text
        elif isinstance(part, ToolCall):
            yield part.arguments


def _values(text: str) -> Iterable[str]:
    distinct = dict.fromkeys([*tokens_of(text), *PHRASE.findall(text)])
    values, _ = read_tokens(list(distinct))
    return [value for value in values if len(value) <= _LONGEST_VALUE and not _SURROGATE.search(value)]


def _sift_lines(messages: Sequence[Message], needed: Sequence[str], redactor: Redactor) -> list[Message]:
    """Returns the messages with only the lines worth reading, free of secrets; the newest lines are the first to fit."""
    sieve = _Sieve(needed, redactor)
    return [sieve.message(message) for message in reversed(messages)][::-1]


class _Sieve:
    def __init__(self, needed: Sequence[str], redactor: Redactor) -> None:
        self._finder = LiteralFinder(needed) if needed else None
        self._left = [_LINES_PER_VALUE] * len(needed)
        self._room = _MOST_CHARACTERS
        self._beginnings = _MOST_BEGINNINGS
        self._redactor = redactor

    def message(self, message: Message) -> Message:
        """Returns the message as the writer reads it."""
        parts = [new for part in message.parts if (new := self._part(message.role, part)) is not None]
        return Message(message.role, tuple(parts))

    def _part(self, role: Role, part: Part) -> Part | None:
        match part:
            case Text(text=text):
                beginning = _SPOKEN if role is Role.USER else min(_BEGUN, self._beginnings)
                self._beginnings -= 0 if role is Role.USER else beginning
                lines = self._lines(text, beginning)
                return Text(lines) if lines else None
            case Reasoning(text=text):
                lines = self._lines(text, 0)
                return Text(lines) if lines else None
            case ToolCall(call_id=call_id, name=name, arguments=arguments):
                lines = self._lines(arguments, 0)
                return ToolCall(call_id, name, lines) if lines else None
            case ToolResult(call_id=call_id, text=text):
                lines = self._lines(text, 0)
                return ToolResult(call_id, lines) if lines else None
            case Summary():
                return part
            case _:
                return None

    def _lines(self, text: str, beginning: int) -> str:
        """Returns the first characters, and the lines with values that are needed; all of it without secrets.

        Most texts have nothing new to say: those are looked through and not read.
        """
        hits = self._finder.scan(text) if self._finder is not None and self._room > 0 else []
        wanted = self._is_wanted(text, hits)
        if not wanted and not beginning:
            return ""
        # The whole text first: half of a secret could not be told from a word.
        if not beginning and _OPENS_JSON(text):
            clean = lay_out_redacted(text, self._redactor.redact).text
        else:
            clean = self._redactor.redact(text)
        start = clean if len(clean) <= beginning else clean[:beginning].rsplit("\n", 1)[0]
        if not beginning:
            start = ""
        if not wanted:
            return start
        if clean != text and self._finder is not None:
            hits = self._finder.scan(clean)
        found = [line for line in self._lines_around(clean, len(start), hits) if line]
        return "\n".join([start, *found] if start else found)

    def _is_wanted(self, text: str, hits: Sequence[tuple[int, int, int]]) -> bool:
        """Tells whether one of these hits in the text is a value of which more lines are wanted."""
        left = self._left
        return bool(hits) and any(left[which] for which, _, _ in LiteralFinder.sift(text, hits))

    def _lines_around(self, text: str, done: int, hits: Iterable[tuple[int, int, int]]) -> Iterator[str]:
        """Yields the lines, or windows of long lines, with values that are needed, behind the first `done` characters."""
        left = self._left
        for which, start, end in LiteralFinder.sift(text, hits):
            if not left[which]:
                continue
            left[which] -= 1
            if start < done:
                continue
            begin, stop = _line(text, start, end)
            begin = max(done, begin)
            done = stop
            self._room -= stop - begin
            yield text[begin:stop]
            if self._room <= 0:
                return


def _line(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the line around a value; of a long one a part, cut at spaces if there are some."""
    begin = text.rfind("\n", max(0, start - _LONG_LINE), start) + 1
    stop = text.find("\n", end, end + _LONG_LINE)
    if not begin and start > _LONG_LINE:
        begin = start - _LONG_LINE
    if stop < 0:
        stop = min(len(text), end + _LONG_LINE)
    if stop - begin <= _LONG_LINE:
        return begin, stop
    first, last = max(begin, start - _BEFORE), min(stop, end + _AFTER)
    if first > begin and (space := text.find(" ", first, start)) >= 0:
        first = space + 1
    if last < stop and (space := text.rfind(" ", end, last)) >= 0:
        last = space
    return first, last
