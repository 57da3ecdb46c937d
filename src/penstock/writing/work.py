"""The material of a summariser: the raw turns that a handoff will stand for, tool output included.

Texts are redacted. Where even many requests could not hold all of it, tool output gives way first, line by
line: the lines whose values are most likely needed stay, by the same choice that fills an extractive handoff.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.conversation.dialects.wire_kinds import read_words
from penstock.conversation.handles import name_message
from penstock.conversation.message import Image, Opaque, Reasoning, Role, Summary, Text, ToolCall, ToolResult
from penstock.conversation.speakers import Voice, part_voices, voices_of
from penstock.writing.choice import begin_choice, join_excerpts
from penstock.writing.handoff import HandoffSection, header_of
from penstock.writing.reading import Speaker, spoken_text
from penstock.writing.state import State
from penstock.writing.stubs import clip
from penstock.writing.verify import KnownSource

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

    from penstock.conversation.message import Message, Part
    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor
    from penstock.writing.transcript import Transcript

__all__ = ["Work", "WorkMaker", "WorkScope", "WorkTurn", "source_of"]

_FIRST_WORDS = 80  # characters of a user's message in the list of what was asked
_MOST_ASKED = 40
_REQUEST_TOKENS = 800
_PART_TOKENS = (800, 300, 120, 40)  # what a part that is no result is clipped to, tried in turn


class WorkTurn(msgspec.Struct, frozen=True, gc=False):
    """One message as a summariser reads it, under a header with its number."""

    number: int
    text: str
    tokens: int


class Work(msgspec.Struct, frozen=True, eq=False):
    """Everything that a handoff is written from.

    `previous` is the last handoff, which the new one updates. `asked` are the user's messages, by number,
    with their first words. `prose_tokens` is what the model's part of the handoff may take.
    """

    turns: tuple[WorkTurn, ...]
    previous: str
    request: str
    asked: tuple[tuple[int, str], ...]
    focus: str
    prose_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens of all turns."""
        return sum(turn.tokens for turn in self.turns)


class WorkScope(msgspec.Struct, frozen=True, eq=False):
    """The part of a plan that says what is to be summarised, and for what."""

    request: int | None
    """The position of the live request."""
    kept_verbatim: Container[int]
    """Positions of messages that stand in the view as they came."""
    focus: str = ""


class WorkMaker:
    """Makes the work of one handoff. `beside` says what stands in the view: all else is to be summarised.

    With `numbers`, only the messages that have one of them are.
    """

    def __init__(
        self,
        transcript: Transcript,
        beside: WorkScope,
        tokenizer: Tokenizer,
        redactor: Redactor,
        numbers: Container[int] | None = None,
    ) -> None:
        self._transcript = transcript
        self._focus = beside.focus
        self._tokenizer = tokenizer
        self._redactor = redactor
        self._calls = transcript.landmarks.calls
        self._request = beside.request
        handoffs = set(transcript.handoffs)
        self._gone = [
            place
            for place in range(len(transcript.messages))
            if place not in beside.kept_verbatim
            and place not in handoffs
            and (numbers is None or transcript.numbers[place] in numbers)
        ]

    def make(self, prose_tokens: int) -> Work:
        """Returns the work with every turn whole."""
        return Work(
            turns=tuple(self._turns(self._parts)),
            previous=self._previous(),
            request=self._live_request(),
            asked=self._list_asked(),
            focus=self._focus,
            prose_tokens=prose_tokens,
        )

    def trim(self, work: Work, room_tokens: int) -> Work:
        """Returns the work with turns that take at most `room_tokens`, which is less than they take whole."""
        turns: list[WorkTurn] = []
        for limit in _PART_TOKENS:
            turns = list(self._turns(partial(self._clip_parts, limit=limit, lines={})))
            left = room_tokens - sum(turn.tokens for turn in turns)
            if left > 0:
                lines = self._choose_needed_lines(left)
                turns = list(self._turns(partial(self._clip_parts, limit=limit, lines=lines)))
                break
        return msgspec.structs.replace(work, turns=_newest(turns, room_tokens))

    def _turns(self, parts_of: Callable[[int], Iterable[str]]) -> Iterator[WorkTurn]:
        texts = ["\n".join(parts_of(place)) for place in self._gone]
        numbers = [self._transcript.numbers[place] for place in self._gone]
        counts = self._tokenizer.count_many(texts)
        for number, text, tokens in zip(numbers, texts, counts, strict=True):
            yield WorkTurn(number, text, tokens + 2)

    def _parts(self, place: int) -> Iterator[str]:
        message, number = self._transcript.messages[place], self._transcript.numbers[place]
        for part in message.parts:
            for label, text in self._split_speakers(message, part):
                if text.strip():
                    yield f"{header_of(number, label)}\n{self._redactor.redact(text)}"

    def _clip_parts(self, place: int, limit: int, lines: dict[tuple[int, str], str]) -> Iterator[str]:
        message, number = self._transcript.messages[place], self._transcript.numbers[place]
        for part in message.parts:
            for label, text in self._split_speakers(message, part):
                if isinstance(part, (ToolResult, Opaque)):
                    tag = part.call_id if isinstance(part, ToolResult) else part.kind
                    chosen = lines.get((place, tag), "")
                    shown = (
                        f"({len(text):,} characters; the lines that matter most)\n{chosen}" if chosen else ""
                    )
                    yield f"{header_of(number, label)}\n{shown or f'({len(text):,} characters, left out)'}"
                elif text.strip():
                    clean = self._redactor.redact(text)
                    clipped = clip(clean, limit, self._tokenizer.count, f"m{number}")
                    yield f"{header_of(number, label)}\n{clipped}"

    def _split_speakers(self, message: Message, part: Part) -> list[tuple[str, str]]:
        """Returns each speaker of a part, in words, and the text."""
        if isinstance(part, Text) and message.role is Role.USER:
            return [
                (Role.USER.value if voice is Voice.PERSON else f"harness, {voice.value}", text)
                for one, voices in voices_of(message)
                if one is part
                for voice, text in voices
            ]
        return [self._speaker(message, part)]

    def _speaker(self, message: Message, part: Part) -> tuple[str, str]:
        match part:
            case Text(text=text):
                return message.role.value, text
            case Reasoning(text=text):
                return "assistant, thinking", text
            case ToolCall(name=name, arguments=arguments):
                return f"call of {name}", arguments
            case ToolResult(call_id=call_id, text=text):
                call = self._calls.get(call_id)
                return f"result of {call.name if call else 'a tool'}", text
            case Image():
                return message.role.value, "(an image)"
            case Opaque(kind=kind):
                return kind, read_words(part)
            case Summary(text=text):
                return "handoff", text

    def _choose_needed_lines(self, room: int) -> dict[tuple[int, str], str]:
        """Returns the most needed lines of the results, by message and call, within `room` tokens."""
        transcript = self._transcript
        index = transcript.index
        choice = begin_choice(transcript, self._request, self._focus, tokenizer=self._tokenizer)
        gone = np.isin(index.message_of_source, np.array(self._gone, np.int32))
        choice.fill((gone & (index.speakers == Speaker.RESULT))[index.source_of], room)
        lines: dict[tuple[int, str], list[int]] = {}
        for number in sorted(choice.chosen):
            source = int(index.source_of[number])
            key = (int(index.message_of_source[source]), index.tags[source])
            lines.setdefault(key, []).append(number)
        return {key: join_excerpts(index, chosen) for key, chosen in lines.items()}

    def _previous(self) -> str:
        texts = [
            part.text
            for place in self._transcript.handoffs
            for part in self._transcript.messages[place].parts
            if isinstance(part, Summary)
        ]
        texts += self._foreign_summaries()
        return self._redactor.redact("\n\n".join(texts))

    def _foreign_summaries(self) -> list[str]:
        """Returns the summaries by other makers; the newest of them stands for those before it."""
        texts = [
            said
            for message in self._transcript.messages
            if message.role is Role.USER
            for part in message.parts
            if isinstance(part, Text)
            for voice, said in part_voices(part.text)
            if voice is Voice.SUMMARY
        ]
        return texts[-1:]

    def _live_request(self) -> str:
        if self._request is None:
            return ""
        text = self._redactor.redact(spoken_text(self._transcript.messages[self._request]))
        number = self._transcript.numbers[self._request]
        return clip(text, _REQUEST_TOKENS, self._tokenizer.count, name_message(number))

    def _list_asked(self) -> tuple[tuple[int, str], ...]:
        transcript = self._transcript
        asked: list[tuple[int, str]] = []
        for place in reversed(transcript.people):
            text = " ".join(spoken_text(transcript.messages[place]).split())
            if text and transcript.numbers[place]:
                asked.append((transcript.numbers[place], self._redactor.redact(text)[:_FIRST_WORDS]))
            if len(asked) == _MOST_ASKED:
                break
        return tuple(reversed(asked))


def source_of(transcript: Transcript, redactor: Redactor) -> KnownSource:
    """Returns what a model's text is held to: the whole conversation, with the handoffs that stand in it."""
    raw = [
        text
        for message in transcript.messages
        for part in message.parts
        if (text := getattr(part, "text", "") or getattr(part, "arguments", ""))
    ]
    names = {
        part.name for message in transcript.messages for part in message.parts if isinstance(part, ToolCall)
    }
    laid_out = [source.text for source in transcript.index.sources]
    demands = [spoken_text(message) for message in transcript.messages if message.role is Role.USER]
    demands += [
        entry.text
        for place in transcript.handoffs
        for entry in transcript.readings[place].entries
        if entry.section is HandoffSection.CONSTRAINTS
    ]
    secrets = frozenset(text[found.start : found.end] for text in raw for found in redactor.find(text))
    return KnownSource(
        known=transcript.index,
        texts=(*raw, *laid_out, "\n".join(sorted(names))),
        numbers=range(1, max(transcript.numbers, default=0) + 1),
        secrets=secrets,
        demands=demands,
        state=State.of(transcript.facts(redactor)),
    )


def _newest(turns: Sequence[WorkTurn], room: int) -> tuple[WorkTurn, ...]:
    """Returns the newest turns that fit the room."""
    kept: list[WorkTurn] = []
    for turn in reversed(turns):
        room -= turn.tokens
        if room < 0:
            break
        kept.append(turn)
    return tuple(reversed(kept))
