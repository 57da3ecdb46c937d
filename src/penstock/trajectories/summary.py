"""The turn that stands for others: a handoff of a few hundred tokens, with or without a model's words.

It has the sections and the mark of every other handoff, so that a model meets in training what it will meet at work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.conversation import mark
from penstock.conversation.handles import AFTER, number_messages, numbers_after
from penstock.conversation.message import Message, Role, Summary, Text, ToolCall
from penstock.conversation.pairing import calls_by_id
from penstock.measure.weigh import MESSAGE_FRAME
from penstock.trajectories.needs import needed_values, texts_of
from penstock.trajectories.sieve import sifted
from penstock.writing.choice import ExcerptChoice, Live, score_values
from penstock.writing.handoff import HandoffEntry, HandoffSection, header_of, render_handoff
from penstock.writing.ledger import Ledger, facts_in
from penstock.writing.reading import Index, Reader, Speaker
from penstock.writing.stubs import clip
from penstock.writing.transcript import MODEL, WRITTEN_BY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor
    from penstock.trajectories.span import Span
    from penstock.writing.ledger import Fact
    from penstock.writing.reading import Reading
    from penstock.writing.verify import Checked

__all__ = ["PROSE_SHARE", "SummaryWriter"]

NOTE = "Earlier turns, for reference. Answer what comes after."
PROSE_SHARE = 0.6  # of a summary: what a model may write; the rest is facts, in the words of the turns
_REQUEST_SHARE = 0.25  # of a summary may quote the request that the turns after it serve
_CONSTRAINTS_SHARE = 0.12
_HISTORY_SHARE = 0.15
_HISTORY_TURNS = 24  # the newest turns whose calls are listed
_ACTIONS = 6
_NEEDED = 0.7  # of a value's weight is whether it is needed later
_LIVE_CHARACTERS = 400
_LEAST_ROOM = 10
_REFILLS = 2
_IN_USERS_WORDS = frozenset({HandoffSection.ACTIVE_TASK, HandoffSection.CONSTRAINTS})


class SummaryWriter:
    """Writes the summary of one span. `messages` are all turns of the trajectory."""

    def __init__(
        self, messages: Sequence[Message], span: Span, tokenizer: Tokenizer, redactor: Redactor
    ) -> None:
        self._tokenizer = tokenizer
        self._redactor = redactor
        self._numbers = number_messages(messages)
        self._gone = span.gone()
        self._after = [messages[place] for place in span.after(len(messages))]
        self.spoken = [messages[place] for place in self._gone]
        self.numbers = [self._numbers[place] for place in self._gone]
        newest = max(self._numbers, default=0)
        behind = [self._numbers[place] for place in span.after(len(messages))]
        self._attributes = {AFTER: numbers_after([number for number in behind if number], newest)}
        self._request = _request_of(messages, span.end, set(self._gone))
        self.needed = needed_values(messages[: span.start], self._after)
        self._read: _Read | None = None

    def write(self, budget: int, prose: Checked | None = None) -> str:
        """The text of the turn, in its mark, of at most `budget` tokens with the frame of a turn.

        `prose` is what a model wrote, checked.
        """
        attributes = self._attributes | ({WRITTEN_BY: MODEL} if prose is not None else {})

        def wrapped(text: str) -> str:
            return mark.wrap(f"{NOTE}\n{text}".rstrip(), attributes)

        def spare(text: str) -> int:
            return budget - MESSAGE_FRAME - self._tokenizer.count(wrapped(text))

        read = self._reading()
        entries = self._entries(budget, read, prose)
        choice = self._choice(read)
        choice.cover(read.index.vocabulary.known_in([entry.text for entry in entries]), bare=True)
        allowed = np.ones(len(read.index.lengths), np.bool_)
        choice.fill(allowed, spare(render_handoff(entries)) - 5)
        text = self._rendered(entries, choice, read)
        for _ in range(_REFILLS):
            if (left := spare(text)) < _LEAST_ROOM:
                break
            choice.refill(choice.tokens + left)
            text = self._rendered(entries, choice, read)
        while spare(text) < 0 and (choice.drop_last() or entries):
            if not choice.order:
                entries = entries[:-1]
            text = self._rendered(entries, choice, read)
        return wrapped(text)

    def _reading(self) -> _Read:
        """What gave way, read once, however often it is written of."""
        if self._read is None:
            reader = Reader(self._redactor)
            readings = reader.read(sifted(self.spoken, self.needed, self._redactor))
            index = Index(reader.vocabulary)
            index.extend(readings)
            self._read = _Read(readings, index)
        return self._read

    def _choice(self, read: _Read) -> ExcerptChoice:
        index = read.index
        # What the turns after it are about is known by the values that they use: the request is enough here.
        live = Live(request=self._request_text()[:_LIVE_CHARACTERS], work="")
        # What gave way is near or far alike: recency is left out by giving every turn the same place.
        weights = score_values(index, live, np.zeros(max(1, len(self._gone)), np.int64))
        weights *= np.float32(1.0 - _NEEDED)
        weights[index.vocabulary.numbers_of(self.needed)] += np.float32(_NEEDED)
        headings = self._headings(read)
        return ExcerptChoice(index, weights, self._tokenizer, lambda source: header_of(*headings[source]))

    def _headings(self, read: _Read) -> list[tuple[int, str]]:
        """The number and label of each source."""
        if not read.headings:
            calls = calls_by_id(self.spoken)
            index = read.index
            for source, tag, place in zip(index.sources, index.tags, index.message_of_source, strict=True):
                read.headings.append(_heading(source.speaker, tag, self.numbers[int(place)], calls))
        return read.headings

    def _entries(self, budget: int, read: _Read, prose: Checked | None) -> list[HandoffEntry]:
        """The entries of all sections but the last, those that give way last first."""
        older = [entry for reading in read.readings for entry in reading.entries]
        entries = self._task(budget)
        ledger = Ledger.of(self._facts())
        constraints = [entry for entry in older if entry.section is HandoffSection.CONSTRAINTS]
        constraints += [
            HandoffEntry(HandoffSection.CONSTRAINTS, fact.number, fact.text) for fact in ledger.constraints
        ]
        asked = "".join(entry.text for entry in entries)
        unsaid = [entry for entry in constraints if entry.text not in asked]
        entries += self._within(unsaid, int(budget * _CONSTRAINTS_SHARE))
        if prose is not None:
            said = {(entry.section, entry.text) for entry in entries}
            fresh = [entry for entry in prose.entries if (entry.section, entry.text) not in said]
            entries += self._within(fresh, int(budget * PROSE_SHARE))
        told = {entry.section for entry in entries} - _IN_USERS_WORDS
        history = [
            *(
                HandoffEntry(HandoffSection.BLOCKED, fact.number, fact.text)
                for fact in ledger.open_errors[-1:]
            ),
            *(
                HandoffEntry(HandoffSection.COMPLETED, f.number, f.text)
                for f in reversed(ledger.actions[-_ACTIONS:])
            ),
            *(
                HandoffEntry(HandoffSection.DECISIONS, fact.number, fact.text)
                for fact in ledger.decisions[-1:]
            ),
            *(
                e
                for e in reversed(older)
                if e.section not in (HandoffSection.CONTEXT, HandoffSection.CONSTRAINTS)
            ),
        ]
        fitting = [entry for entry in history if entry.section not in told]
        return entries + self._within(fitting, int(budget * _HISTORY_SHARE))

    def _task(self, budget: int) -> list[HandoffEntry]:
        """The request that the turns after the summary serve, where it gave way."""
        text = " ".join(self._redactor.redact(self._request_text()).split())
        if self._request is None or not text:
            return []
        number = self._numbers[self._request[0]]
        quoted = clip(text, int(budget * _REQUEST_SHARE), self._tokenizer.count, f"m{number}")
        return [HandoffEntry(HandoffSection.ACTIVE_TASK, number, quoted.replace("\n", " "))]

    def _request_text(self) -> str:
        return "\n".join(texts_of(self._request[1])) if self._request is not None else ""

    def _facts(self) -> Iterable[Fact]:
        """What people demanded in any turn, and what was done in the newest."""
        newest = len(self.spoken) - _HISTORY_TURNS
        for place, (message, number) in enumerate(zip(self.spoken, self.numbers, strict=True)):
            if message.role is Role.USER or place >= newest:
                for fact in facts_in(message, self._redactor):
                    yield msgspec.structs.replace(fact, number=number)

    def _within(self, entries: Sequence[HandoffEntry], share: int) -> list[HandoffEntry]:
        """The first entries that fit the share, no text twice, in the order of their turns."""
        costs = self._tokenizer.count_many([f"- m{entry.number} {entry.text}\n" for entry in entries])
        taken: dict[tuple[HandoffSection, str], HandoffEntry] = {}
        for entry, cost in zip(entries, costs, strict=True):
            if cost <= share and (entry.section, entry.text) not in taken:
                taken[entry.section, entry.text] = entry
                share -= cost
        return sorted(taken.values(), key=lambda entry: entry.number)

    def _rendered(self, entries: Sequence[HandoffEntry], choice: ExcerptChoice, read: _Read) -> str:
        headings = self._headings(read)
        by_heading: dict[tuple[int, str], list[str]] = {}
        for number in sorted(choice.chosen):
            heading = headings[int(read.index.source_of[number])]
            by_heading.setdefault(heading, []).append(read.index.excerpt(number))
        context = [
            HandoffEntry(HandoffSection.CONTEXT, number, "\n".join(lines), label)
            for (number, label), lines in by_heading.items()
        ]
        return render_handoff([*entries, *sorted(context, key=lambda entry: entry.number)])


class _Read(msgspec.Struct, frozen=True, eq=False):
    """What gave way, as it was read."""

    readings: list[Reading]
    index: Index
    headings: list[tuple[int, str]] = []


def _heading(speaker: Speaker, tag: str, number: int, calls: dict[str, ToolCall]) -> tuple[int, str]:
    match speaker:
        case Speaker.CALL:
            label = f"{tag} call"
        case Speaker.RESULT:
            call = calls.get(tag)
            label = call.name if call else "tool"
        case Speaker.HANDOFF:
            earlier, _, label = tag.partition(" ")
            number = int(earlier)
        case _:
            label = speaker.name.lower()
    return number, label.replace("]", "").replace("\n", " ").replace("\r", "")[:60]


def _request_of(messages: Sequence[Message], end: int, gone: set[int]) -> tuple[int, Message] | None:
    """The last request before `end`, where it is among those that give way; None where it stays."""
    for place in range(end - 1, -1, -1):
        message = messages[place]
        if message.role is Role.USER and any(isinstance(part, Text) for part in message.parts):
            is_handoff = any(isinstance(part, Summary) for part in message.parts)
            return (place, message) if place in gone and not is_handoff else None
    return None
