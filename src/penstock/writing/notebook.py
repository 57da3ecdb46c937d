"""What has been learned about messages, so that each is decoded, weighed and read once.

A message is known by its content, not by the object that holds it: a caller may pass the same list again,
a copy of it, or one parsed anew from JSON. One notebook serves one conversation at a time and is not safe to
share between threads.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import is_, is_not
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.conversation.dialects import link_calls
from penstock.conversation.message import Message, Summary, ToolCall, ToolResult
from penstock.conversation.opening import OURS, unmerge
from penstock.conversation.pairing import Pairing
from penstock.conversation.repair import Repaired, repair
from penstock.conversation.rules import legal_cuts
from penstock.errors import InputError
from penstock.measure.weigh import weigh
from penstock.writing.reading import Index, Reader, Reading
from penstock.writing.transcript import Transcript, number_messages

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from penstock.conversation.dialects.base import Dialect
    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor

__all__ = ["Notebook", "Opened"]

_CUT_FREELY = frozenset({"chat", "responses"})  # dialects without a rule about how a list begins


class _Known(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What is known of one message."""

    tokens: int
    reading: Reading


class _Seen(NamedTuple):
    """The last list: our copies of its wire objects, and the messages.

    `mixed` are the places of those with more than texts, `merged` of those with a handoff inside.
    """

    dialect: Dialect | None
    copies: list[Any]
    messages: list[Message]
    mixed: list[int]
    merged: list[int]

    def equal_until(self, wires: Sequence[Any]) -> int:
        """How many wires at the start are equal to those that were seen."""
        length = min(len(self.copies), len(wires))
        try:
            if self.copies[:length] != list(wires[:length]):  # one quick look: mostly, all are equal
                pairs = zip(self.copies, wires, strict=False)
                length = next(place for place, (copy, wire) in enumerate(pairs) if copy != wire)
            mixed = (place for place in self.mixed if place < length)
            unlike = (place for place in mixed if not _typed_alike(self.copies[place], wires[place]))
            return next(unlike, length)
        except RecursionError:
            return 0


class _Mended(msgspec.Struct, frozen=True, eq=False):
    """A list of messages as it was decoded, mended, and where it may be cut.

    `settled` is the last legal cut inside a list that needed no mending, with the ids of the calls and of the
    results before it.
    """

    dialect: str
    messages: list[Message]
    linked: list[Message]
    repaired: Repaired
    legal: tuple[int, ...] = ()
    settled: int = 0
    calls: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()


class Opened(msgspec.Struct, frozen=True, eq=False):
    """A conversation ready for planning, what had to be mended in it, and what it came as."""

    transcript: Transcript
    repaired: Repaired
    came: list[Any]
    places: Sequence[int]  # for each message of the transcript, where it stood in what came

    @property
    def repairs(self) -> int:
        """How many calls or results had to be mended."""
        return self.repaired.removed + self.repaired.stubbed + self.repaired.renamed


class Notebook:
    """Remembers decoded messages, their weights and readings, and the index of the last conversation."""

    def __init__(self, tokenizer: Tokenizer, redactor: Redactor) -> None:
        self.tokenizer = tokenizer
        self.redactor = redactor
        self._reader = Reader(redactor)
        self._seen = _Seen(None, [], [], [], [])
        self._by_object: dict[
            int, tuple[Message, _Known]
        ] = {}  # by identity; the message is held, and compared
        self._by_content: dict[Hashable, _Known] = {}  # of all messages ever
        self._learned: tuple[Sequence[Message], list[_Known]] = ((), [])
        self._last = _Mended("", [], [], Repaired([]))
        self._index = Index(self._reader.vocabulary)
        self._indexed: list[Reading] = []

    def open(
        self,
        wires: Sequence[Any],
        dialect: Dialect,
        origins: Sequence[bytes] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> Opened:
        """The conversation as a transcript. Only what was not seen before is decoded, weighed and read.

        `origins` are the exact bytes of the wires, where they came as bytes. `numbers` are those of the messages, 0 for a
        handoff, where the caller knows them; else they are counted, from what the marks of handoffs say. Raises
        InputError with the number of the message that cannot be read.
        """
        messages = self._decode(wires, dialect)
        given = list(wires) if origins is None else [msgspec.Raw(origin) for origin in origins]
        came = given
        places: Sequence[int] = range(len(given))
        if self._seen.merged:
            messages, given, places = unmerge(messages, wires, given, dialect)
        mended = self._mend(messages, dialect, given)
        final = mended.repaired.messages
        known = self._learn(final, messages)
        readings = [one.reading for one in known]
        handoffs = tuple([place for place, one in enumerate(readings) if one.is_handoff])
        if final is not mended.linked:
            places = _places_after_repair(final, mended.linked, places)
        counted = (
            number_messages(final, handoffs)
            if numbers is None
            else tuple([0 if place == OURS else numbers[place] for place in places])
        )
        transcript = Transcript(
            dialect=dialect,
            messages=tuple(final),
            origins=tuple(given) if mended.linked is final else tuple([message.origin for message in final]),
            tokens=tuple([one.tokens for one in known]),
            numbers=counted,
            readings=tuple(readings),
            index=self._index_of(readings),
            legal=mended.legal,
            handoffs=handoffs,
        )
        return Opened(transcript, mended.repaired, came, places)

    def _mend(self, messages: list[Message], dialect: Dialect, given: Sequence[Any]) -> _Mended:
        """The list with its faults mended and its legal cuts; what was sound before is not looked at again.

        What is remembered of messages holds no object of a caller, who may change it later. So where
        something must be mended, it is mended in messages that know what was given now.
        """
        start = self._sound_until(messages, dialect)
        linked = _linked(messages, start, dialect)
        repaired = repair(linked[start:], dialect)
        if (
            any(map(is_not, repaired.messages, linked[start:]))
            or len(repaired.messages) != len(linked) - start
        ):
            start = 0
            linked = [Message(one.role, one.parts, wire) for one, wire in zip(linked, given, strict=True)]
            repaired = repair(linked, dialect)
        else:
            repaired = msgspec.structs.replace(repaired, messages=linked)
        legal = legal_cuts(repaired.messages[start:], dialect.rules)
        before = self._last.legal[: bisect_left(self._last.legal, start)] if start else ()
        cuts = (*before, *(start + cut for cut in legal))
        mended = _Mended(dialect.name, messages, linked, repaired, cuts)
        self._last = self._settled(mended, start) if repaired.messages is linked else mended
        return self._last

    def _settled(self, mended: _Mended, start: int) -> _Mended:
        """With the ids up to the last legal cut inside the list; those up to `start` are known from the last one."""
        settled = mended.legal[max(0, bisect_left(mended.legal, len(mended.messages)) - 1)]
        calls, results = _ids_in(mended.messages[start:settled])
        if start:
            calls, results = calls | self._last.calls, results | self._last.results
        return msgspec.structs.replace(mended, settled=settled, calls=calls, results=results)

    def _sound_until(self, messages: list[Message], dialect: Dialect) -> int:
        """Up to where the list is the last one, sound and whole there: a legal cut with every call before it answered."""
        last = self._last
        count = len(last.messages)
        if (
            dialect.name != last.dialect
            or dialect.name not in _CUT_FREELY
            or not 0 < count <= len(messages)
            or last.repaired.messages is not last.linked
            or not all(map(is_, last.messages, messages))
        ):
            return 0
        calls, results = _ids_in(messages[last.settled :])
        sound = last.calls == last.results and last.calls.isdisjoint(calls | results)
        return last.settled if sound else 0

    def weigh(self, wires: Sequence[Any], dialect: Dialect) -> list[int]:
        """Tokens of each message, without planning anything. Only what was not seen before is weighed."""
        messages = self._decode(wires, dialect)
        return [known.tokens for known in self._learn(messages, messages)]

    def _decode(self, wires: Sequence[Any], dialect: Dialect) -> list[Message]:
        """Each wire object as a message that does not hold it. What is equal to the last list is not decoded."""
        seen = self._seen if self._seen.dialect is dialect else _Seen(dialect, [], [], [], [])
        same = seen.equal_until(wires)
        copies, messages = seen.copies[:same], seen.messages[:same]
        mixed = [place for place in seen.mixed if place < same]
        merged = [place for place in seen.merged if place < same]
        for place in range(same, len(wires)):
            try:
                read = dialect.decode(wires[place])
                copy = _copied(wires[place])
            except InputError as error:
                raise type(error)(str(error), position=f"message {place + 1}") from None
            except RecursionError:
                raise InputError(
                    "the message is nested too deeply", position=f"message {place + 1}"
                ) from None
            copies.append(copy)
            messages.append(Message(read.role, read.parts))
            if not _only_texts(copy):
                mixed.append(place)
            if _is_merged(read):
                merged.append(place)
        self._seen = _Seen(dialect, copies, messages, mixed, merged)
        return messages

    def _learn(self, messages: Sequence[Message], decoded: Sequence[Message]) -> list[_Known]:
        """Tokens and reading of each message; all texts that are new are weighed in one batch."""
        held, (last, known) = self._by_object, self._learned
        same = _same_until(last, messages)
        found = known[:same] + [
            one[1] if (one := held.get(id(message))) is not None and one[0] is message else None
            for message in messages[same:]
        ]
        unknown = [place for place in range(same, len(messages)) if found[place] is None]
        self._remember([messages[place] for place in unknown])
        for place in unknown:
            found[place] = self._by_content[_content_key(messages[place])]
        if len(held) > 2 * len(decoded):
            held.clear()
        for message in decoded[same if messages is decoded else 0 :]:
            if id(message) not in held and (read := self._by_content.get(_content_key(message))) is not None:
                held[id(message)] = (message, read)
        self._learned = (messages, [one for one in found if one is not None])
        return self._learned[1]

    def _remember(self, messages: Sequence[Message]) -> None:
        """Weigh and read what is new, all of it together."""
        fresh = {
            key: message for message in messages if (key := _content_key(message)) not in self._by_content
        }
        texts = list(fresh.values())
        read = zip(fresh, weigh(texts, self.tokenizer), self._reader.read(texts), strict=True)
        self._by_content.update((key, _Known(tokens, reading)) for key, tokens, reading in read)

    def _index_of(self, readings: list[Reading]) -> Index:
        """The index of these readings: the last one extended where they continue it."""
        done = len(self._indexed)
        if len(readings) < done or not all(map(is_, self._indexed, readings)):
            self._index = Index(self._reader.vocabulary)
            done = 0
        self._index.extend(readings[done:])
        self._indexed = readings
        return self._index


def _places_after_repair(mended: list[Message], before: list[Message], places: Sequence[int]) -> list[int]:
    """Where the messages of a mended list stood.

    One that was changed stood where a message of its role is missing now; one that was added stood nowhere.
    """
    stayed = {id(message) for message in mended}
    at = {id(message): index for index, message in enumerate(before)}
    upcoming = 0
    found: list[int] = []
    for message in mended:
        index = at.get(id(message))
        if index is None and upcoming < len(before):
            candidate = before[upcoming]
            index = upcoming if id(candidate) not in stayed and candidate.role is message.role else None
        found.append(OURS if index is None else places[index])
        upcoming = upcoming if index is None else index + 1
    return found


def _same_until(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages at the start are the same objects."""
    if all(map(is_, one, other)):
        return min(len(one), len(other))
    return next(place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] is not pair[1])


def _is_merged(message: Message) -> bool:
    return len(message.parts) > 1 and any(isinstance(part, Summary) for part in message.parts)


def _ids_in(messages: Sequence[Message]) -> tuple[frozenset[str], frozenset[str]]:
    """The ids of the calls in these messages, and those of the results."""
    calls: set[str] = set()
    results: set[str] = set()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls.add(part.call_id)
            elif isinstance(part, ToolResult):
                results.add(part.call_id)
    return frozenset(calls), frozenset(results)


def _content_key(message: Message) -> Hashable:
    """The content that tokens and reading depend on."""
    return message.role, tuple(
        (part.text, part.version, tuple(part.attributes.items())) if isinstance(part, Summary) else part
        for part in message.parts
    )


def _linked(messages: list[Message], start: int, dialect: Dialect) -> list[Message]:
    """The messages with ids for calls and results that have none."""
    if dialect.pairing is Pairing.ANYWHERE:
        return messages
    tail = messages[start:]
    linked = link_calls(tail, messages[:start])
    return messages if all(map(is_, linked, tail)) else messages[:start] + linked


def _typed_alike(one: Any, other: Any) -> bool:
    """Whether equal JSON is also equal as it is written: 1, 1.0 and True are equal to Python."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return all(type(value) is str or _typed_alike(value, other[key]) for key, value in one.items())
    return not isinstance(one, list) or all(map(_typed_alike, one, other))


def _only_texts(node: Any) -> bool:
    """Whether all that stands in the JSON is text: then equal is equal."""
    if isinstance(node, dict):
        return all(type(value) is str or _only_texts(value) for value in node.values())
    if isinstance(node, list):
        return all(map(_only_texts, node))
    return node is None or type(node) is str


def _copied(node: Any) -> Any:
    """A copy that its owner cannot change."""
    if isinstance(node, dict):
        return {key: value if type(value) is str else _copied(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_copied(value) for value in node]
    return node
