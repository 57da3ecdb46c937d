"""Measures how good a compaction was by what the agent did next.

    measure_qualities(store, session_id)        # of every compaction, by its key

An agent continues from a view by using values: a path in a call, an order number in an answer. For values that had been
said before the compaction was put in place, each first use is judged once: did the value stand in the view, or did the
agent have to search its history for it, read it again, or ask the person again? All of this is in the log, so nothing is
recorded while an agent works. At some point the turns after a compaction are over; since the log only grows, the
answer cannot change from then on, and it is kept in the store.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock._structs import read_early
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Image, Message, Role, Text, ToolCall, ToolResult
from penstock.conversation.view import Kept, as_message
from penstock.conversation.wire import parse_json
from penstock.errors import StoreError
from penstock.planning.receipt import LiveQuality, Receipt
from penstock.recall.tools import TOOL_NAMES
from penstock.writing.excerpts import lay_out
from penstock.writing.values import PHRASE, tokens_of, values_in_phrase, values_in_token, values_of_each

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.conversation.message import Part
    from penstock.stores.store import Store
    from penstock.stores.values import CompactionRow

__all__ = [
    "HeldValues",
    "Speech",
    "Utterance",
    "find_uses",
    "hear_messages",
    "hold_values",
    "measure_qualities",
    "read_receipt",
]

_ANSWERS = 30  # messages of the agent: what it needs later than that says little about one compaction
read_early(Receipt)
_READ_QUALITY = msgspec.json.Decoder(LiveQuality).decode
# The number changes with what is counted: what was kept under another one is then counted anew.
_NOTE = "quality of a compaction, 1"
_SHORTEST_VALUE = 4  # characters: shorter ones say nothing by themselves
_QUESTION_MARKS = "?？؟"  # also those of Chinese and Arabic


# What was said, by whom, and which values are in it.


class Speech(Enum):
    """The ways in which something comes into a conversation."""

    AGENT = "agent"  # its texts, and the arguments of its calls
    LOOKUP = "lookup"  # its calls of recall tools: a query is not a use
    RECALL = "recall"  # what those tools answered
    TOOL = "tool"  # the result of any other tool
    PERSON = "person"
    OTHER = "other"  # the system prompt, reasoning, handoffs, items that we do not know


class Utterance(NamedTuple):
    """Something that was said: a text, the arguments of a call, or a result."""

    speech: Speech
    text: str
    label: str = ""
    """The tool of a call or a result."""


class HeldValues(msgspec.Struct, frozen=True, eq=False):
    """The values in texts."""

    texts: tuple[str, ...]
    values: frozenset[str]

    def __contains__(self, value: str) -> bool:
        # A quoted phrase is the same words where another wrote it without quotes.
        return value in self.values or (" " in value and any(value in text for text in self.texts))


def hear_messages(messages: Iterable[Message]) -> Iterator[list[Utterance]]:
    """Yields what each message of a conversation says."""
    tools: dict[str, str] = {}
    for message in messages:
        tools.update((part.call_id, part.name) for part in message.parts if isinstance(part, ToolCall))
        yield [_hear(part, message.role, tools) for part in message.parts if not isinstance(part, Image)]


def _hear(part: Part, role: Role, tools: Mapping[str, str]) -> Utterance:
    match part:
        case Text(text=text) if role is Role.ASSISTANT:
            return Utterance(Speech.AGENT, text)
        case Text(text=text) if role is Role.USER:
            return Utterance(Speech.PERSON, text)
        case ToolCall(name=name, arguments=arguments):
            return Utterance(Speech.LOOKUP if name in TOOL_NAMES else Speech.AGENT, arguments, name)
        case ToolResult(call_id=call_id, text=text):
            name = tools.get(call_id, "")
            return Utterance(Speech.RECALL if name in TOOL_NAMES else Speech.TOOL, text, name)
        case Image():
            return Utterance(Speech.OTHER, "")
        case _:
            return Utterance(Speech.OTHER, part.text)


def hold_values(spoken: Iterable[Utterance]) -> HeldValues:
    """Returns the values in all that was said. The keys of JSON name values and are none themselves."""
    texts: list[str] = []
    found: set[str] = set()
    for one in spoken:
        laid = lay_out(one.text)
        values, _ = values_of_each({*tokens_of(laid.text), *PHRASE.findall(laid.text)})
        texts.append(laid.text)
        found.update(value for value in values if len(value) >= _SHORTEST_VALUE and value not in laid.keys)
    return HeldValues(tuple(texts), frozenset(found))


def find_uses(spoken: Iterable[Utterance]) -> Iterator[tuple[str, ...]]:
    """Yields the values that the agent uses in its words, each with shorter values that are a part of it.

    A path is used once: as a whole if it was known, or else by the name at its end.
    """
    for one in spoken:
        if one.speech is not Speech.AGENT:
            continue
        laid = lay_out(one.text)
        groups = [values_in_token(token) for token in tokens_of(laid.text)]
        groups += [
            values_in_phrase(phrase)
            for phrase in PHRASE.findall(laid.text)
            if not any(map(values_in_token, tokens_of(phrase)))  # else its values were used already
        ]
        for group in groups:
            values = tuple(
                value for value in group if len(value) >= _SHORTEST_VALUE and value not in laid.keys
            )
            if values:
                yield values


# Judging compactions by what followed them.


def measure_qualities(store: Store, session_id: str) -> dict[int, LiveQuality]:
    """Returns the quality of each compaction of the conversation, undone ones included, by its key."""
    rows = store.compactions(session_id, undone=True)
    if not rows:
        return {}
    conversation = store.session(session_id).conversation
    found: dict[int, LiveQuality] = {}
    log: _HeardLog | None = None
    for row, after in zip_longest(rows, rows[1:]):
        name = f"{conversation}/{row.key}"
        if row.is_rewind:
            found[row.key] = LiveQuality()
            continue
        if (kept := _read_kept(store, name)) is not None:
            found[row.key] = kept
            continue
        log = log or _HeardLog(store, session_id)
        ends = (row.undone, after.created if after is not None else None)
        quality = _judge(row, log, min((moment for moment in ends if moment is not None), default=None))
        found[row.key] = quality
        if quality.settled:
            _keep(store, name, quality)
    return found


def read_receipt(stored: Mapping[str, Any], quality: LiveQuality | None = None) -> Receipt | None:
    """Returns a stored receipt with the quality of its compaction; None if another version wrote it otherwise."""
    try:
        receipt = msgspec.convert(dict(stored), Receipt)
    except msgspec.ValidationError:
        return None
    return msgspec.structs.replace(receipt, quality=quality)


def _read_kept(store: Store, name: str) -> LiveQuality | None:
    kept = store.note(_NOTE, name)
    return None if kept is None else _READ_QUALITY(kept)


def _keep(store: Store, name: str, quality: LiveQuality) -> None:
    try:
        store.put_note(_NOTE, name, msgspec.json.encode(quality), session_id=name.rpartition("/")[0])
    except StoreError:  # a store that can only be read, or is full: it is counted again the next time
        return


class _HeardLog:
    """The whole log of a conversation, as it was said. A message that a damaged store lacks says nothing."""

    def __init__(self, store: Store, session_id: str) -> None:
        dialect = dialect_named(store.session(session_id).dialect)
        entries = store.read_from(session_id, 0)
        length = store.log_tip(session_id).length
        self.messages = [Message(Role.SYSTEM, ())] * length
        self._created = [0.0] * length
        for entry, message in zip(
            entries, decode_all(dialect, [parse_json(one.raw) for one in entries]), strict=True
        ):
            self.messages[entry.position], self._created[entry.position] = message, entry.created
        self.spoken = list(hear_messages(self.messages))
        self.held = [hold_values(heard) for heard in self.spoken]
        self._first: dict[str, int] = {}
        for place, held in enumerate(self.held):
            for value in held.values:
                self._first.setdefault(value, place)

    def stood_before(self, value: str, position: int) -> bool:
        """Returns True if the value was said before this position."""
        if self._first.get(value, position) < position:
            return True
        return " " in value and any(value in held for held in self.held[:position])

    def position_at(self, moment: float, first: int) -> int:
        """Returns the position from `first` on at which the log stood at that moment."""
        later = (place for place in range(first, len(self._created)) if self._created[place] >= moment)
        return next(later, len(self._created))


class _Way(Enum):
    """The ways in which an agent comes by an earlier value."""

    KEPT = "kept"  # in a message that the view keeps whole
    WRITTEN = "written"  # only in what was written for the view
    RECALLED = "recalled"
    READ = "read"
    ASKED = "asked"
    TOLD = "told"  # by a person, unasked: the agent did not miss it
    ELSEWHERE = "elsewhere"


class _SentView:
    """The view with which the agent went on."""

    def __init__(self, row: CompactionRow, log: _HeardLog, start: int) -> None:
        pieces, length = row.compaction.pieces, row.compaction.length
        whole = [piece.position for piece in pieces if isinstance(piece, Kept)]
        self._whole = [log.held[place] for place in [*whole, *range(length, start)]]
        written = (as_message(piece, log.messages) for piece in pieces if not isinstance(piece, Kept))
        self._written = hold_values(one for heard in hear_messages(written) for one in heard)

    def find(self, value: str) -> _Way | None:
        """Returns where the value stands in the view; None if it does not."""
        if any(value in held for held in self._whole):
            return _Way.KEPT
        return _Way.WRITTEN if value in self._written else None


class _Since:
    """The words said to the agent since it went on."""

    def __init__(self) -> None:
        self._brought: list[tuple[_Way, HeldValues]] = []
        self._has_asked = False  # the agent's last words hold a question

    def find(self, value: str) -> _Way:
        """Returns how the value came back first."""
        return next((way for way, held in self._brought if value in held), _Way.ELSEWHERE)

    def hear(self, spoken: Sequence[Utterance]) -> None:
        """Takes in a message."""
        for one in spoken:
            match one.speech:
                case Speech.RECALL:
                    self._brought.append((_Way.RECALLED, hold_values([one])))
                case Speech.TOOL:
                    self._brought.append((_Way.READ, hold_values([one])))
                case Speech.PERSON:
                    way = _Way.ASKED if self._has_asked else _Way.TOLD
                    self._brought.append((way, hold_values([one])))
                case Speech.AGENT if not one.label:
                    self._has_asked = any(mark in one.text for mark in _QUESTION_MARKS)
                case _:
                    pass


def _judge(row: CompactionRow, log: _HeardLog, end: float | None) -> LiveQuality:
    """Counts the first use of each earlier value by how the agent came by it, until `end`."""
    # It may have been prepared while the agent went on: until it was put in place, the agent had another view.
    start = log.position_at(row.created, row.compaction.length)
    until = len(log.messages) if end is None else log.position_at(end, start)
    view, since = _SentView(row, log, start), _Since()
    ways: Counter[_Way] = Counter()
    judged: set[str] = set()
    answers = 0
    for place in range(start, until):
        if answers == _ANSWERS:
            break
        answers += log.messages[place].role is Role.ASSISTANT
        for value in _earlier_uses(log.spoken[place], log, start):
            if value not in judged:
                judged.add(value)
                ways[view.find(value) or since.find(value)] += 1
        since.hear(log.spoken[place])
    return LiveQuality(
        in_view=ways[_Way.KEPT] + ways[_Way.WRITTEN],
        in_handoff=ways[_Way.WRITTEN],
        recalled=ways[_Way.RECALLED],
        read_again=ways[_Way.READ],
        asked_again=ways[_Way.ASKED],
        otherwise=ways[_Way.ELSEWHERE],
        answers=answers,
        settled=end is not None or answers == _ANSWERS,
    )


def _earlier_uses(spoken: Sequence[Utterance], log: _HeardLog, start: int) -> Iterator[str]:
    """Yields the values that the agent uses here and that stood in the log before `start`."""
    for values in find_uses(spoken):
        found = next((value for value in values if log.stood_before(value, start)), None)
        if found is not None:
            yield found
