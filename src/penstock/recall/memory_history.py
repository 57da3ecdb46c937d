"""A history over messages that are held in memory: for engines without a store."""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.handles import HandleKind, name_message, parse_handle
from penstock.conversation.message import Message, Role, ToolCall, ToolResult
from penstock.errors import UnknownHandle
from penstock.measure.tokens import tokenizer_for
from penstock.recall.history import Finding, HistoryPlace, PlaceKind
from penstock.recall.memory_index import MemoryIndex
from penstock.recall.originals import redact_message, write_original, write_originals, write_title
from penstock.recall.passages import cut_passages
from penstock.recall.query import find_subject, find_values
from penstock.recall.tools import TOOL_NAMES
from penstock.writing.entities import fold_entities
from penstock.writing.sightings import sightings_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from penstock.recall.embedding import Embedder
    from penstock.recall.ranking import Wish
    from penstock.writing.entities import EntityState
    from penstock.writing.sightings import Sighting

__all__ = ["MemoryHistory"]

_COUNT = tokenizer_for(None).count


class _Summary(msgspec.Struct, frozen=True):
    text: str
    inside: tuple[str, ...]
    kind: PlaceKind
    at: float | None


class MemoryHistory:
    """Messages by their numbers, and summaries of them. Searches leave out what stands in the view.

    Messages are added in the order of their numbers; a known number keeps its first message, since a
    later one under it was made from it by a compaction. `in_view` are the numbers of the messages that stand
    whole in the view, until `see` sets another view. Quotes go through `redact` first, message
    by message. A message costs its share when it is first searched, and nothing after that. Answers of the recall tools
    are not found: they would be found beside the messages that they quote. With an embedder, messages near in
    meaning are found as well.
    """

    def __init__(
        self,
        messages: Iterable[Message] = (),
        numbers: Iterable[int] = (),
        *,
        in_view: Collection[int] = (),
        count: Callable[[str], int] = _COUNT,
        redact: Callable[[str], str] = str,
        embedder: Embedder | None = None,
    ) -> None:
        self._count = count
        self._redact = redact
        self._messages: dict[int, Message] = {}
        self._times: dict[int, float] = {}
        self._tokens: dict[str, int] = {}  # by handle: a page of a long original must not cost all of it
        self._summaries: dict[str, _Summary] = {}
        self._calls: dict[str, ToolCall] = {}
        self._sightings: dict[
            int, tuple[Message, Sequence[Sighting]]
        ] = {}  # by number, of what was looked at
        self._index = MemoryIndex(embedder)
        self._waiting: list[tuple[int, Message]] = []
        self._view: dict[int, Message] = {}
        self._written: list[Message] = []
        self._standing: frozenset[str] = frozenset()
        self._topic = ""
        self._values: dict[int, tuple[Message, frozenset[str]]] = {}  # by identity; the message is held
        for number, message in zip(numbers, messages, strict=True):
            self.add(number, message)
        self._view = {number: self._messages[number] for number in in_view if number in self._messages}

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, number: int, message: Message, at: float | None = None) -> None:
        """Adds the next message under its number, from 1. Does nothing if the number is known."""
        if number in self._messages or number < 1:
            return
        self._messages[number] = message
        if at is not None:
            self._times[number] = at
        self._calls.update(_find_calls(message))  # of an id that was used twice, the later call from here on
        self._waiting.append((number, self._drop_recall(message)))

    def add_summary(
        self,
        handle: str,
        text: str,
        inside: Iterable[str],
        *,
        kind: PlaceKind = "summary",
        at: float | None = None,
    ) -> None:
        """Adds a text that stands for others, with their handles. It can be described and read; searches find the originals."""
        self._summaries[parse_handle(handle).text] = _Summary(text, tuple(inside), kind, at)

    def see(
        self, messages: Sequence[Message], numbers: Sequence[int], summaries: Collection[str] = ()
    ) -> None:
        """Takes these messages for the view.

        Those that are as they were said stand in it, the others are stubs or handoffs.
        `summaries` are the handles of those that stand in it too.
        """
        self._view, self._written, self._standing = {}, [], frozenset(summaries)
        self._topic = find_subject(reversed(messages))
        for number, message in zip(numbers, messages, strict=True):
            known = self._messages.get(number)
            if number and (known is None or known is message or known.parts == message.parts):
                self._view[number] = message
            else:
                self._written.append(message)

    def search(self, query: str, wish: Wish) -> list[Finding]:
        """Returns the best findings, without messages in the view and without values that stand in it.

        The present subject in the view decides what the query leaves open.
        """
        self._index_waiting()
        wish = msgspec.structs.replace(
            wish,
            known=wish.known | self._find_values_in_view(),
            surroundings=wish.surroundings or self._topic,
            now=wish.now or max(self._times.values(), default=None),
        )
        hits = self._index.search(query, wish, self._view.keys())
        return [
            Finding(
                handles=tuple(map(name_message, hit.messages)),
                turn=hit.turn,
                excerpt=hit.excerpt,
                score=hit.score,
                at=self._times.get(hit.messages[0]),
            )
            for hit in hits
        ]

    def count_unsearched(self) -> int:
        """Returns 0: a search indexes everything first."""
        return 0

    def describe(self, handle: str) -> HistoryPlace:
        """Describes what the handle names."""
        handle = parse_handle(handle).text
        text = self.text(handle)
        if handle in self._summaries:
            return self._describe_summary(handle, text)
        if handle == HandleKind.HANDOFF:
            return self._describe_handoff(handle, text)
        number = self._require_number(handle)
        message = self._find_message(number)
        return HistoryPlace(
            handle=handle,
            kind="message",
            turn=self._find_turn(number),
            role=str(message.role),
            title=write_title(message, self._find_calls_of(number), self._redact),
            characters=len(text),
            tokens=self._count_once(handle, text),
            at=self._times.get(number),
            in_view=number in self._view,
        )

    def text(self, handle: str) -> str:
        """Returns the full text, as it was said."""
        handle = parse_handle(handle).text
        if handle in self._summaries:
            return self._summaries[handle].text
        if handle == HandleKind.HANDOFF:
            return write_originals(
                (number, str(message.role), write_original(message))
                for number, message in self._read_covered().items()
            )
        return write_original(self._find_message(self._require_number(handle)))

    def entities(self) -> list[EntityState]:
        """Returns the present state of each file, command, record and person, the newest first.

        Messages that only stand in the view count as well. A message is read once.
        """
        messages = self._view | self._messages
        looked_at = self._sightings
        self._sightings = {}
        for number in sorted(messages):
            message = messages[number]
            known = looked_at.get(number)
            if known is None or known[0] is not message:
                known = message, sightings_in(message, self._redact)
            self._sightings[number] = known
        return fold_entities(
            msgspec.structs.replace(one, number=number, at=self._times.get(number))
            for number, (_, found) in self._sightings.items()
            for one in found
        )

    def _describe_summary(self, handle: str, text: str) -> HistoryPlace:
        summary = self._summaries[handle]
        first = handle
        while first in self._summaries and self._summaries[first].inside:
            first = self._summaries[first].inside[0]
        began = parse_handle(first)
        return HistoryPlace(
            handle=handle,
            kind=summary.kind,
            turn=began.number if began.kind is HandleKind.MESSAGE else 0,
            role="",
            title=f"{summary.kind} of {_name_range(summary.inside)}",
            characters=len(text),
            tokens=self._count_once(handle, text),
            at=summary.at,
            in_view=handle in self._standing,
            inside=summary.inside,
        )

    def _describe_handoff(self, handle: str, text: str) -> HistoryPlace:
        covered = list(self._read_covered())
        return HistoryPlace(
            handle=handle,
            kind="summary",
            turn=covered[0],
            role="",
            title=f"the {len(covered):,} messages that the handoff stands for",
            characters=len(text),
            tokens=self._count(text),
            inside=tuple(map(name_message, covered)),
        )

    def _read_covered(self) -> dict[int, Message]:
        """Returns the messages that the summaries in the view stand for, by number. Raises UnknownHandle for none."""
        numbers: set[int] = set()
        handles = [handle for handle in self._standing if handle in self._summaries]
        while handles:
            for inside in self._summaries[handles.pop()].inside:
                if inside in self._summaries:
                    handles.append(inside)
                else:
                    numbers.add(parse_handle(inside).number)
        found = {number: self._messages[number] for number in sorted(numbers) if number in self._messages}
        if not found:
            raise UnknownHandle(f"there is no original {HandleKind.HANDOFF.value!r} in this conversation")
        return found

    def _count_once(self, handle: str, text: str) -> int:
        if handle not in self._tokens:
            self._tokens[handle] = self._count(text)
        return self._tokens[handle]

    def _require_number(self, handle: str) -> int:
        asked = parse_handle(handle)
        number = asked.number if asked.kind is HandleKind.MESSAGE else 0
        if number not in self._messages and number not in self._view:
            raise UnknownHandle(f"there is no original {handle!r} in this conversation")
        return number

    def _find_message(self, number: int) -> Message:
        return self._messages[number] if number in self._messages else self._view[number]

    def _find_turn(self, number: int) -> int:
        """Returns the number of the message that begins the turn: the call, for a result."""
        while self._find_message(number).role is Role.TOOL and (
            number - 1 in self._messages or number - 1 in self._view
        ):
            number -= 1
        return number

    def _find_calls_of(self, number: int) -> Mapping[str, ToolCall]:
        """Returns the calls by their ids, those of the message's own turn first."""
        return ChainMap(_find_calls(self._find_message(self._find_turn(number))), self._calls)

    def _index_waiting(self) -> None:
        for number, message in self._waiting:
            self._index.add(number, redact_message(message, self._redact), self._times.get(number))
        self._waiting.clear()

    def _drop_recall(self, message: Message) -> Message:
        """Returns the message without calls of the recall tools and their results."""
        parts = tuple(part for part in message.parts if self._find_tool(part) not in TOOL_NAMES)
        return message if len(parts) == len(message.parts) else Message(message.role, parts)

    def _find_tool(self, part: object) -> str:
        call = self._calls.get(part.call_id) if isinstance(part, (ToolCall, ToolResult)) else None
        return call.name if call is not None else ""

    def _find_values_in_view(self) -> frozenset[str]:
        """Returns every value in the view. Only messages that are new in it are looked at."""
        values: dict[int, tuple[Message, frozenset[str]]] = {}
        for message in (*self._view.values(), *self._written):
            held = self._values.get(id(message))
            if held is None:
                held = message, find_values(passage.text for passage in cut_passages(message))
            values[id(message)] = held
        self._values = values
        return frozenset().union(*(held for _, held in values.values()))


def _find_calls(message: Message) -> dict[str, ToolCall]:
    return {part.call_id: part for part in message.parts if isinstance(part, ToolCall)}


def _name_range(inside: tuple[str, ...]) -> str:
    return f"{inside[0]} to {inside[-1]}" if len(inside) > 1 else "".join(inside) or "nothing"
