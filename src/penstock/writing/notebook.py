"""A memory of messages, so that each is decoded, weighed and read once.

A message is known by its content, not by the object that holds it: a caller may pass the same list again,
a copy of it, or one parsed anew from JSON. One notebook serves one conversation at a time and is not safe to
share between threads.
"""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.conversation.dialects import candidates, decode_each, detect
from penstock.conversation.handles import number_messages
from penstock.conversation.message import Message, Summary
from penstock.conversation.opening import OpenedList, holds_handoff, open_list
from penstock.conversation.wire import to_plain
from penstock.errors import InputError, UnknownDialect
from penstock.measure.weigh import weigh
from penstock.writing.reading import Index, Reader, Reading
from penstock.writing.transcript import Landmarks, Transcript, count_same, find_landmarks

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from penstock.conversation.dialects.base import Dialect
    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor

__all__ = ["Notebook", "Opened"]


class _Known(msgspec.Struct, eq=False, gc=False):
    """The weight of one message and, once a transcript was made with it, its reading."""

    tokens: int
    reading: Reading | None = None


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
        """Returns the number of wires at the start that are equal to those that were seen."""
        length = min(len(self.copies), len(wires))
        try:
            if self.copies[:length] != list(wires[:length]):  # one quick look: mostly, all are equal
                pairs = zip(self.copies, wires, strict=False)
                length = next(place for place, (copy, wire) in enumerate(pairs) if copy != wire)
            mixed = (place for place in self.mixed if place < length)
            unlike = (place for place in mixed if not _is_written_alike(self.copies[place], wires[place]))
            return next(unlike, length)
        except RecursionError:
            return 0


class _ReadList(NamedTuple):
    """A list as JSON objects: how many of them are as in the last one, and our copies of the others."""

    wires: Sequence[Any]
    same: int
    copies: list[Any]


class Opened(msgspec.Struct, frozen=True, eq=False):
    """A conversation ready for planning, what it came as, and what had to be mended in it."""

    transcript: Transcript
    came: list[Any]
    opened: OpenedList
    removed_tokens: dict[int, int]  # of the messages that repair removed, by their index in what came

    @property
    def sources(self) -> Sequence[int | None]:
        """For each message of the transcript, its index in what came; None for one that did not come so."""
        return self.opened.sources

    @property
    def repairs(self) -> int:
        """The number of calls or results that had to be mended."""
        return self.opened.repairs


class Notebook:
    """Remembers decoded messages, their weights and readings, and the index of the last conversation."""

    def __init__(self, tokenizer: Tokenizer, redactor: Redactor) -> None:
        self.tokenizer = tokenizer
        self.redactor = redactor
        self._reader = Reader(redactor)
        self._seen = _Seen(None, [], [], [], [])
        # By the identity of a message, which is held and compared: ids of objects are used again.
        self._by_object: dict[int, tuple[Message, _Known]] = {}
        self._by_content: dict[Hashable, _Known] = {}  # of all messages ever
        self._learned: tuple[Sequence[Message], list[_Known]] = ((), [])
        self._last: OpenedList | None = None
        self._landmarks: Landmarks | None = None
        self._counted = (0, 0)  # of the list that was counted last: its messages, and their tokens
        self._index = Index(self._reader.vocabulary)
        self._indexed: list[Reading] = []

    def open(
        self,
        given: Sequence[Any],
        dialect: Dialect | None = None,
        origins: Sequence[bytes] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> Opened:
        """Returns the conversation as a transcript.

        Only what was not seen before is decoded, weighed and read. Without a dialect it is the one that the messages fit.

        `origins` are the exact bytes of the messages, where they came as bytes. `numbers` are those of the
        messages, 0 for a handoff, where the caller knows them; else they are counted, from what the marks of
        handoffs say. Raises InputError with the number of the message that cannot be read.
        """
        read = self._read_objects(given)
        wires = read.wires
        dialect = dialect or detect(wires)
        messages = self._decode(read, dialect)
        came = list(given) if origins is None else [msgspec.Raw(origin) for origin in origins]
        opened = open_list(
            messages,
            wires,
            dialect,
            origins=came,
            keep_merged=not self._seen.merged,  # where none is merged, there is nothing to look for
            find_cuts=True,
            earlier=self._last,
        )
        # What is remembered holds no object of the caller, who may change it later.
        self._last = None if opened.mends else msgspec.structs.replace(opened, origins=())
        known = self._learn(opened.messages, messages)
        readings = self._read(opened.messages, known)
        handoffs = tuple([place for place, one in enumerate(readings) if one.is_handoff])
        self._landmarks = find_landmarks(opened.messages, self._landmarks)
        transcript = Transcript(
            dialect=dialect,
            messages=tuple(opened.messages),
            origins=tuple(opened.origins),
            tokens=self._weigh_parted(opened, known, messages, handoffs),
            numbers=number_messages(opened.messages, handoffs)
            if numbers is None
            else tuple([0 if source is None else numbers[source] for source in opened.sources]),
            readings=tuple(readings),
            index=self._index_of(readings),
            legal=opened.cuts,
            handoffs=handoffs,
            known_landmarks=self._landmarks,
        )
        removed = list(opened.removed)
        weights = weigh([messages[index] for index in removed], self.tokenizer) if removed else ()
        return Opened(transcript, came, opened, dict(zip(removed, weights, strict=True)))

    def weigh(self, given: Sequence[Any], dialect: Dialect | None = None) -> list[int]:
        """Returns the tokens of each message, without reading or planning anything.

        Only what was not seen before is weighed.
        """
        read = self._read_objects(given)
        messages = self._decode(read, dialect or detect(read.wires))
        return [known.tokens for known in self._learn(messages, messages)]

    def count(self, given: Sequence[Any], unchanged: int = 0) -> int:
        """Returns the tokens of all messages together.

        The first `unchanged` are, by the caller's word, those of the list that was counted last, as they were: where that
        list had no more, they are not looked at, and the cost is that of the others.
        """
        length, tokens = self._counted
        if (
            unchanged
            and unchanged == length
            and (more := self._weigh_more(given[unchanged:], length)) is not None
        ):
            tokens += sum(more)
        else:
            tokens = sum(self.weigh(list(given)))
        self._counted = (len(given), tokens)
        return tokens

    def _weigh_more(self, given: Sequence[Any], before: int) -> list[int] | None:
        """Returns the tokens of messages that follow the last list; None where they may be of another dialect."""
        wires = [_copy_message(one, before + place) for place, one in enumerate(given, start=1)]
        dialect = self._seen.dialect
        try:
            if dialect is None or dialect not in candidates(wires):
                return None
        except UnknownDialect:  # which message it is, the whole list says
            return None
        return weigh(decode_each(dialect, wires, number_from=before + 1), self.tokenizer)

    def _read_objects(self, given: Sequence[Any]) -> _ReadList:
        """Returns each message as a JSON object, an SDK's as that SDK would send it.

        What is equal to the last list is JSON: only the rest is looked through, in the one walk that copies it.
        """
        start = self._seen.equal_until(given)
        copies: list[Any] = []
        read: dict[int, Any] = {}
        for place in range(start, len(given)):
            found: list[Any] = []
            copies.append(_copy_message(given[place], place + 1, found))
            if found:
                read[place] = copies[-1]
        if not read:
            return _ReadList(given, start, copies)
        wires = [read.get(place, one) for place, one in enumerate(given)]
        same = self._seen.equal_until(wires)
        return _ReadList(wires, same, copies[same - start :])

    def _decode(self, read_list: _ReadList, dialect: Dialect) -> list[Message]:
        """Returns each wire object as a message that does not hold it.

        Those that are equal to the last list's are not decoded again, where that was of the same dialect.
        """
        seen, (wires, same, fresh) = self._seen, read_list
        if seen.dialect is not dialect:
            fresh = [*seen.copies[:same], *fresh]
            seen, same = _Seen(dialect, [], [], [], []), 0
        copies, messages = seen.copies[:same], seen.messages[:same]
        mixed = [place for place in seen.mixed if place < same]
        merged = [place for place in seen.merged if place < same]
        for place, copy in enumerate(fresh, start=same):
            try:
                read = dialect.decode(wires[place])
            except InputError as error:
                raise type(error)(str(error), position=f"message {place + 1}") from None
            except RecursionError:
                raise InputError(
                    "the message is nested too deeply", position=f"message {place + 1}"
                ) from None
            copies.append(copy)
            messages.append(Message(read.role, read.parts, None, read.beside, read.written))
            if not _holds_only_texts(copy):
                mixed.append(place)
            if len(read.parts) > 1 and holds_handoff(read):
                merged.append(place)
        self._seen = _Seen(dialect, copies, messages, mixed, merged)
        return messages

    def _weigh_parted(
        self,
        opened: OpenedList,
        known: Sequence[_Known],
        decoded: Sequence[Message],
        handoffs: Sequence[int],
    ) -> tuple[int, ...]:
        """Returns the tokens of each message. A handoff that stood inside another weighs what it adds to that one."""
        tokens = [one.tokens for one in known]
        for place in handoffs:
            source = opened.sources[place + 1] if place + 1 < len(known) else None
            if opened.sources[place] is None and source is not None:
                whole = weigh([decoded[source]], self.tokenizer)[0]
                tokens[place] = max(0, whole - tokens[place + 1])
        return tuple(tokens)

    def _learn(self, messages: Sequence[Message], decoded: Sequence[Message]) -> list[_Known]:
        """Returns what is known of each message; all texts that are new are weighed in one batch."""
        held, (last, known) = self._by_object, self._learned
        same = count_same(last, messages)
        found = known[:same] + [
            one[1] if (one := held.get(id(message))) is not None and one[0] is message else None
            for message in messages[same:]
        ]
        unknown = [place for place in range(same, len(messages)) if found[place] is None]
        by_key = {place: _content_key(messages[place]) for place in unknown}
        self._remember({key: messages[place] for place, key in by_key.items()})
        for place, key in by_key.items():
            found[place] = self._by_content[key]
        if len(held) > 2 * len(decoded):
            held.clear()
        learned = {id(messages[place]): found[place] for place in unknown}
        for message in decoded[same if messages is decoded else 0 :]:
            if id(message) in held:
                continue
            read = learned.get(id(message)) or self._by_content.get(_content_key(message))
            if read is not None:
                held[id(message)] = (message, read)
        self._learned = (messages, [one for one in found if one is not None])
        return self._learned[1]

    def _remember(self, messages: Mapping[Hashable, Message]) -> None:
        """Weighs what is new of these messages, which are given by their content, all of it together."""
        fresh = {key: message for key, message in messages.items() if key not in self._by_content}
        weights = weigh(list(fresh.values()), self.tokenizer)
        self._by_content.update(zip(fresh, map(_Known, weights), strict=True))

    def _read(self, messages: Sequence[Message], known: Sequence[_Known]) -> list[Reading]:
        """Returns the reading of each message; what was only weighed until now is read, all of it together.

        A request may be weighed many times before anything is to be planned, and reading costs ten times as much.
        """
        unread: dict[int, int] = {}  # equal messages share one entry, which is read where it first stands
        for place, one in enumerate(known):
            if one.reading is None:
                unread.setdefault(id(one), place)
        if unread:
            fresh = self._reader.read([messages[place] for place in unread.values()])
            for place, reading in zip(unread.values(), fresh, strict=True):
                known[place].reading = reading
        return [one.reading for one in known if one.reading is not None]

    def _index_of(self, readings: list[Reading]) -> Index:
        """Returns the index of these readings: the last one extended where they continue it."""
        done = len(self._indexed)
        if len(readings) < done or not all(map(is_, self._indexed, readings)):
            self._index = Index(self._reader.vocabulary)
            done = 0
        self._index.extend(readings[done:])
        self._indexed = readings
        return self._index


def _content_key(message: Message) -> Hashable:
    """Returns the content that tokens and reading depend on."""
    parts = tuple(
        (part.text, part.version, tuple(part.attributes.items())) if isinstance(part, Summary) else part
        for part in message.parts
    )
    return message.role, parts, message.beside, message.written


def _is_written_alike(one: Any, other: Any) -> bool:
    """Returns whether equal JSON is also equal as it is written: 1, 1.0 and True are equal to Python."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return all(type(value) is str or _is_written_alike(value, other[key]) for key, value in one.items())
    return not isinstance(one, list) or all(map(_is_written_alike, one, other))


def _holds_only_texts(node: Any) -> bool:
    """Returns whether the JSON holds nothing but text: then equal values are written alike."""
    if isinstance(node, dict):
        return all(type(value) is str or _holds_only_texts(value) for value in node.values())
    if isinstance(node, list):
        return all(map(_holds_only_texts, node))
    return node is None or type(node) is str


def _copy_message(given: Any, number: int, found: list[Any] | None = None) -> Any:
    """Returns a copy as `_copy_json` does. Raises InputError with the number of a message that is nested too deeply."""
    try:
        return _copy_json(given, [] if found is None else found)
    except RecursionError:
        raise InputError("the message is nested too deeply", position=f"message {number}") from None


def _copy_json(node: Any, found: list[Any]) -> Any:
    """Returns a copy that the caller cannot change. Objects of an SDK in it become JSON, and are put into `found`."""
    if isinstance(node, dict):
        return {key: value if type(value) is str else _copy_json(value, found) for key, value in node.items()}
    if isinstance(node, list):
        return [_copy_json(value, found) for value in node]
    if node is None or isinstance(node, (str, int, float)):
        return node
    plain = to_plain(node)
    if plain is not node:
        found.append(node)
    return plain
