"""Remembers messages, so that each is decoded, weighed and read only once.

A message is known by its content, not by the object that holds it: a caller may pass the same list again,
a copy of it, or the same list parsed again from JSON. One notebook serves one conversation at a time and is not
safe to share between threads.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.conversation.dialects import candidates, decode_each, detect
from penstock.conversation.handles import number_messages
from penstock.conversation.message import Message, Summary
from penstock.conversation.opening import OpenedList, count_same, holds_handoff, open_list
from penstock.conversation.wire import to_plain
from penstock.errors import InputError, PenstockError, UnknownDialect
from penstock.measure.weigh import weigh
from penstock.writing.compiled import count_equal
from penstock.writing.reading import Index, Reader, Reading
from penstock.writing.transcript import Landmarks, Transcript, find_landmarks

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from penstock.conversation.dialects.base import Dialect
    from penstock.measure.tokens import Tokenizer
    from penstock.redaction import Redactor

__all__ = ["Notebook", "Opened"]


class _Known(msgspec.Struct, eq=False, gc=False):
    """The weight of one message and, once a transcript contains it, its reading."""

    tokens: int
    reading: Reading | None = None


class _Seen(NamedTuple):
    """The last list: our copies of its wire objects, and the messages.

    `mixed` has the places of messages with more than texts, `merged` of messages with a handoff inside.
    """

    dialect: Dialect | None
    copies: list[Any]
    messages: list[Message]
    mixed: list[int]
    merged: list[int]

    def equal_until(self, wires: Sequence[Any]) -> int:
        """Returns how many wires at the start are equal to the last list's."""
        length = min(len(self.copies), len(wires))
        start = count_equal(self.copies, wires)
        if start == length:
            return length
        try:
            if self.copies[start:length] != list(
                wires[start:length]
            ):  # one quick comparison: mostly, all are equal
                pairs = zip(self.copies[start:length], wires[start:length], strict=True)
                unequal = (
                    place
                    for place, (copy, wire) in enumerate(pairs, start)
                    if copy is not wire and copy != wire  # as lists are compared: a NaN equals itself
                )
                length = next(unequal)
            mixed = (place for place in self.mixed if start <= place < length)
            unlike = (place for place in mixed if not _is_written_alike(self.copies[place], wires[place]))
            return next(unlike, length)
        except RecursionError:
            return 0


class _LastOpened(NamedTuple):
    """The list that was opened last: what is known of its messages, their readings and tokens, and where handoffs stand."""

    known: list[_Known]
    readings: list[Reading]
    tokens: list[int]
    handoffs: list[int]


class _ReadList(NamedTuple):
    """A list as JSON objects: how many of them equal the last list's, and our copies of the others."""

    wires: Sequence[Any]
    same: int
    copies: list[Any]


class Opened(msgspec.Struct, frozen=True, eq=False):
    """A conversation ready for planning, its original messages, and the repairs that it needed."""

    transcript: Transcript
    came: list[Any]
    opened: OpenedList
    removed_tokens: dict[int, int]  # of the messages that repair removed, by their index in the input

    @property
    def sources(self) -> Sequence[int | None]:
        """For each message of the transcript, its index in the input; None for a message that repair added."""
        return self.opened.sources

    @property
    def repairs(self) -> int:
        """The number of repaired calls and results."""
        return self.opened.repairs


class Notebook:
    """Remembers decoded messages, their weights and readings, and the index of the last conversation."""

    def __init__(self, tokenizer: Tokenizer, redactor: Redactor) -> None:
        self.tokenizer = tokenizer
        self.redactor = redactor
        self.forget()

    @contextmanager
    def kept_whole(self) -> Iterator[None]:
        """Makes the notebook forget everything if what is done with it inside is interrupted, by Ctrl-C or for want of memory.

        It may have grown by half then: rows in one array and not in the next. Errors that are told on purpose come between
        two steps, and leave it whole. What reads in it, or chooses excerpts, does so in here.
        """
        try:
            yield
        except PenstockError:
            raise
        except BaseException:  # Ctrl-C too: it may have grown by half
            self.forget()
            raise

    def forget(self) -> None:
        """Starts anew."""
        self._reader = Reader(self.redactor)
        self._seen = _Seen(None, [], [], [], [])
        self._by_content: dict[Hashable, _Known] = {}  # of every message so far
        self._learned: tuple[Sequence[Message], list[_Known]] = ((), [])
        self._last: OpenedList | None = None
        self._landmarks: Landmarks | None = None
        self._counted = (0, 0)  # the messages of the list that was counted last, and their tokens
        self._index = Index(self._reader.vocabulary)
        self._indexed = _LastOpened([], [], [], [])

    def open(
        self,
        given: Sequence[Any],
        dialect: Dialect | None = None,
        origins: Sequence[bytes] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> Opened:
        """Returns the conversation as a transcript.

        Decodes, weighs and reads only the messages that are new. Without a dialect, uses the first that the messages fit.

        `origins` are the exact bytes of the messages, if they came as bytes. `numbers` are the message numbers, 0 for
        a handoff, if the caller knows them; otherwise they are counted, beginning with the number that the mark of a
        handoff gives. Raises InputError with the number of the message that cannot be read.
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
            keep_merged=not self._seen.merged,  # if none is merged, there is nothing to look for
            find_cuts=True,
            earlier=self._last,
        )
        # The notebook keeps no object of the caller's, since the caller may change it later.
        self._last = None if opened.mends else msgspec.structs.replace(opened, origins=())
        known = self._learn(opened.messages)
        opened_now, same = self._read(opened.messages, known)
        self._landmarks = find_landmarks(opened.messages, self._landmarks)
        transcript = Transcript(
            dialect=dialect,
            messages=opened.messages,
            origins=opened.origins,
            tokens=self._weigh_parted(opened, opened_now, messages),
            numbers=number_messages(opened.messages, opened_now.handoffs)
            if numbers is None
            else tuple([0 if source is None else numbers[source] for source in opened.sources]),
            readings=opened_now.readings,
            index=self._index_of(opened_now, same),
            legal=opened.cuts,
            handoffs=tuple(opened_now.handoffs),
            known_landmarks=self._landmarks,
        )
        removed = list(opened.removed)
        weights = weigh([messages[index] for index in removed], self.tokenizer) if removed else ()
        return Opened(transcript, came, opened, dict(zip(removed, weights, strict=True)))

    def weigh(self, given: Sequence[Any], dialect: Dialect | None = None) -> list[int]:
        """Returns the tokens of each message, without reading or planning anything.

        Weighs only the messages that are new.
        """
        read = self._read_objects(given)
        messages = self._decode(read, dialect or detect(read.wires))
        return [known.tokens for known in self._learn(messages)]

    def count(self, given: Sequence[Any], unchanged: int = 0) -> int:
        """Returns the tokens of all messages together.

        With `unchanged`, the caller guarantees that the first messages, that many, are the same as in the last list that
        was counted. If that list had no others, they are not compared, and only the rest costs time.
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
        """Returns the tokens of messages that follow the last list; None if they may be of another dialect."""
        wires = [_copy_message(one, before + place) for place, one in enumerate(given, start=1)]
        dialect = self._seen.dialect
        try:
            if dialect is None or dialect not in candidates(wires):
                return None
        except UnknownDialect:  # the whole list tells which message it is
            return None
        return weigh(decode_each(dialect, wires, number_from=before + 1), self.tokenizer)

    def _read_objects(self, given: Sequence[Any]) -> _ReadList:
        """Returns each message as a JSON object, an SDK's as that SDK would send it.

        Messages that equal the last list's are known to be JSON. The others are checked in the same walk that copies them.
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

        Messages that equal the last list's are not decoded again, if that list had the same dialect.
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
        self, opened: OpenedList, read: _LastOpened, decoded: Sequence[Message]
    ) -> tuple[int, ...]:
        """Returns the tokens of each message. A handoff inside another message weighs what it adds to that message."""
        tokens = read.tokens.copy()
        for place in read.handoffs:
            source = opened.sources[place + 1] if place + 1 < len(tokens) else None
            if opened.sources[place] is None and source is not None:
                whole = weigh([decoded[source]], self.tokenizer)[0]
                tokens[place] = max(0, whole - tokens[place + 1])
        return tuple(tokens)

    def _learn(self, messages: Sequence[Message]) -> list[_Known]:
        """Returns the entry of each message; weighs all new texts in one batch."""
        last, known = self._learned
        same = count_same(last, messages)
        keys = [_content_key(message) for message in messages[same:]]
        self._remember(dict(zip(keys, messages[same:], strict=True)))
        self._learned = (messages, known[:same] + [self._by_content[key] for key in keys])
        return self._learned[1]

    def _remember(self, messages: Mapping[Hashable, Message]) -> None:
        """Weighs those of these messages that are new, all together. The keys are their contents."""
        fresh = {key: message for key, message in messages.items() if key not in self._by_content}
        weights = weigh(list(fresh.values()), self.tokenizer)
        self._by_content.update(zip(fresh, map(_Known, weights), strict=True))

    def _read(self, messages: Sequence[Message], known: list[_Known]) -> tuple[_LastOpened, int]:
        """Returns the list as read, and how many of its messages are those of the last one.

        Reads those that were only weighed so far, all together. A request may be weighed many times before there is anything to plan, and reading costs ten times as much.
        """
        last = self._indexed
        same = count_same(last.known, known)
        fresh = known[same:]
        unread: dict[int, int] = {}  # equal messages share one entry, which is read at its first place
        for place, one in enumerate(fresh, same):
            if one.reading is None:
                unread.setdefault(id(one), place)
        if unread:
            readings = self._reader.read([messages[place] for place in unread.values()])
            for place, reading in zip(unread.values(), readings, strict=True):
                known[place].reading = reading
        readings = [one.reading for one in fresh if one.reading is not None]
        handoffs = last.handoffs[: bisect_left(last.handoffs, same)]
        handoffs += (place for place, reading in enumerate(readings, same) if reading.is_handoff)
        tokens = last.tokens[:same] + [one.tokens for one in fresh]
        return _LastOpened(known, last.readings[:same] + readings, tokens, handoffs), same

    def _index_of(self, read: _LastOpened, same: int) -> Index:
        """Returns the index of this list: the last one, extended, if the list continues it.

        `same` is how many of its messages are those of the last list.
        """
        done = len(self._indexed.known)
        if same < done:
            self._index = Index(self._reader.vocabulary)
            done = 0
        self._index.extend(read.readings[done:])
        self._indexed = read
        return self._index


def _content_key(message: Message) -> Hashable:
    """Returns the content that tokens and reading depend on."""
    parts: tuple[Hashable, ...] = message.parts
    if any(isinstance(part, Summary) for part in parts):  # its attributes cannot be hashed
        parts = tuple(
            (part.text, part.version, tuple(part.attributes.items())) if isinstance(part, Summary) else part
            for part in message.parts
        )
    return message.role, parts, message.beside, message.written


def _is_written_alike(one: Any, other: Any) -> bool:
    """Returns True if equal JSON values are also written alike: to Python, 1, 1.0 and True are equal, and 0.0 and -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return math.copysign(1.0, one) == math.copysign(1.0, other)
    if isinstance(one, dict):
        return all(type(value) is str or _is_written_alike(value, other[key]) for key, value in one.items())
    return not isinstance(one, list) or all(map(_is_written_alike, one, other))


def _holds_only_texts(node: Any) -> bool:
    """Returns True if the JSON holds nothing but text, so that equal values are written alike."""
    if isinstance(node, dict):
        return all(type(value) is str or _holds_only_texts(value) for value in node.values())
    if isinstance(node, list):
        return all(map(_holds_only_texts, node))
    return node is None or type(node) is str


def _copy_message(given: Any, number: int, found: list[Any] | None = None) -> Any:
    """Returns a copy, as `_copy_json` does. Raises InputError with the number of a message that is nested too deeply."""
    try:
        return _copy_json(given, [] if found is None else found)
    except RecursionError:
        raise InputError("the message is nested too deeply", position=f"message {number}") from None


def _copy_json(node: Any, found: list[Any]) -> Any:
    """Returns a copy that the caller cannot change. Turns an SDK's objects into JSON, and adds them to `found`."""
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
