"""Keeps tool results that are too large for the context: in the store, with a preview in the log.

A result over its limit is stored. If all results of a turn together are too large, the largest are stored first, until
the rest is within the limit. A stored result is replaced by its beginning, cut at a line, with its size and the
handle by which all of it can be read. Reading one back is never stored again, so that an agent does not go round in
circles. If storing fails, the preview says that the rest could not be kept, and the conversation goes on.
"""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock._log import log
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.handles import HandleKind, parse_handle
from penstock.conversation.message import Message, ToolCall, ToolResult
from penstock.conversation.pairing import calls_by_id
from penstock.conversation.wire import parse_json
from penstock.errors import StoreError
from penstock.recall.tools import TOOL_NAMES
from penstock.stores.values import StoredResult
from penstock.writing.stubs import ToolFamily, arguments_of, tool_family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.conversation.message import Part
    from penstock.settings import ToolsSettings
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow

__all__ = [
    "LEAST_CHARS",
    "READ_FILE",
    "LargeResult",
    "ResultKeeper",
    "ResultLimits",
    "choose_for_store",
    "find_stored_handles",
    "scale_limits",
    "write_preview",
]

READ_FILE = "read_file"
LEAST_CHARS = 60  # of what stands in place of a result, however little room there is
_CHARS_PER_TOKEN = 4
_RESULT_SHARE, _TURN_SHARE = 0.15, 0.30  # of the window
_LEAST_RESULT, _LEAST_TURN = 8_000, 16_000  # characters, however small the window is
_NOTE_CHARS = 160  # what a note about a stored result takes at most, with a tool that reads it
_SHORTER = (1, 4, 16, 0)  # previews, where many results are too much together: whole, a quarter of it …
_READ_AHEAD = 20_000  # characters behind the beginning that are redacted with it: no half of a secret is left
_STORED = re.compile(r"stored as (r[0-9a-f]{12})\b")
_BACK = 64  # messages before a result among which its call, and the other results of its turn, are looked for

_Turn: TypeAlias = list[tuple[int, int, ToolResult]]


class ResultKeeper(msgspec.Struct, frozen=True, kw_only=True):
    """Keeps the results of one session.

    `tool_limits` are the limits of single tools, in characters; None for a tool without one. Previews name `recall_tool`,
    if the agent has one.
    """

    store: Store
    session: SessionRow
    limits: ResultLimits
    redact: Callable[[str], str]
    tool_limits: Mapping[str, int | None]
    recall_tool: str | None = None

    def keep(self, wires: Sequence[Any]) -> list[Any]:
        """Returns the messages as they may be appended, with previews in place of results that are too large.

        Only the text of a result changes; all other messages are the objects that were given. Raises InputError for a
        message that is not one of the dialect.
        """
        dialect = dialect_named(self.session.dialect)
        messages = decode_all(dialect, wires)
        turns = list(_group_turns(messages))
        spent = self._count_open_turn(messages)
        if not any(self._is_too_much(turn, spent) for turn in turns):
            return list(wires)
        earlier = self._read_last(_BACK)
        linked = decode_all(dialect, [*earlier, *wires])
        calls = calls_by_id(linked)
        kept = list(wires)
        for turn in turns:
            found = [(place, at, linked[len(earlier) + place].parts[at]) for place, at, _ in turn]
            results = [(place, at, part) for place, at, part in found if isinstance(part, ToolResult)]
            judged = [self._judge(part, calls.get(part.call_id)) for _, _, part in results]
            chosen = choose_for_store(judged, self.limits, spent if turn[0][0] == 0 else 0)
            changes: dict[int, dict[int, Part]] = {}
            for number, room in chosen.items():
                place, at, part = results[number]
                own = messages[place].parts[at]
                text = self._store(part.text, calls.get(part.call_id), room)
                changes.setdefault(place, {})[at] = msgspec.structs.replace(own, text=text)
            for place, parts in changes.items():
                kept[place] = dialect.rewrite(messages[place], parts)
        return kept

    def _is_too_much(self, turn: _Turn, spent: int) -> bool:
        """Returns True if the results of a turn may have to be stored, so that a closer look is worthwhile."""
        limits = [limit for limit in self.tool_limits.values() if limit is not None]
        sizes = [len(part.text) for _, _, part in turn]
        return (
            max(sizes) > min([self.limits.result_chars, *limits])
            or spent + sum(sizes) > self.limits.turn_chars
        )

    def _read_last(self, count: int) -> list[Any]:
        """Returns the last messages of the log."""
        length = self.store.log_tip(self.session.id).length
        start = max(0, length - count)
        return [parse_json(entry.raw) for entry in self.store.read_from(self.session.id, start)]

    def _count_open_turn(self, messages: Sequence[Message]) -> int:
        """Counts the characters of results at the end of the log, if the new messages begin with more of them."""
        if not messages or not _results_of(messages[0]):
            return 0
        dialect = dialect_named(self.session.dialect)
        for count in (1, _BACK):  # mostly, the call is the last message
            chars = 0
            for wire in reversed(self._read_last(count)):
                results = _results_of(dialect.decode(wire))
                if not results:
                    return chars
                chars += sum(len(part.text) for _, part in results)
        return chars

    def _judge(self, part: ToolResult, call: ToolCall | None) -> LargeResult:
        name = call.name if call is not None else ""
        limit = self.tool_limits.get(name, self.limits.result_chars)
        stays = call is not None and self._reads_back(call)
        return LargeResult(part.text, limit, last=limit is None, stays=stays)

    def _reads_back(self, call: ToolCall) -> bool:
        """Returns True if the call reads a stored result: by a recall tool, or as a file named like its handle."""
        if call.name in TOOL_NAMES:
            return True
        if tool_family(call.name) is not ToolFamily.READ:
            return False
        names = [PurePath(value).stem for value in arguments_of(call).values() if isinstance(value, str)]
        return any(
            self.store.result(handle.text, session_id=self.session.id) is not None
            for handle in map(parse_handle, names)
            if handle.kind is HandleKind.RESULT
        )

    def _store(self, text: str, call: ToolCall | None, room: int) -> str:
        handle = _make_result_handle(self.session.conversation, text)
        tool = call.name if call is not None else ""
        result = StoredResult(id=handle, session=self.session.id, tool=tool, text=text, created=time.time())
        try:
            self.store.put_result(result)
        except StoreError as error:
            log.warning("a tool result of %d characters could not be kept: %s", len(text), error)
            handle = ""
        return write_preview(text, room, handle, self.redact, self.recall_tool)


def _make_result_handle(conversation: str, text: str) -> str:
    """Returns the handle of a result: the same text in the same conversation has the same one."""
    content = f"{conversation}\n{text}".encode("utf-8", "surrogatepass")
    return f"r{hashlib.blake2b(content, digest_size=6).hexdigest()}"


def _group_turns(messages: Sequence[Message]) -> Iterator[_Turn]:
    """Yields the results of messages that follow each other, with the place of each message and of the part in it."""
    turn: _Turn = []
    for place, message in enumerate(messages):
        results = _results_of(message)
        if not results and turn:
            yield turn
            turn = []
        turn += [(place, at, part) for at, part in results]
    if turn:
        yield turn


def _results_of(message: Message) -> list[tuple[int, ToolResult]]:
    return [(at, part) for at, part in enumerate(message.parts) if isinstance(part, ToolResult)]


class ResultLimits(msgspec.Struct, frozen=True):
    """The most characters of one result, of all results of a turn, and of a preview."""

    result_chars: int
    turn_chars: int
    preview_chars: int


class LargeResult(msgspec.Struct, frozen=True):
    """A result as it came, with its tool's own limit, None if it has none.

    One that `stays` is never stored, since it reads back a stored one. One that is `last` is stored only if storing
    all the others is not enough.
    """

    text: str
    limit_chars: int | None
    last: bool = False
    stays: bool = False


def scale_limits(tools: ToolsSettings, window_tokens: int | None) -> ResultLimits:
    """Returns the limits of the settings, scaled down if the window is small."""
    result, turn = tools.result_chars, tools.turn_chars
    if window_tokens is not None:
        window_chars = window_tokens * _CHARS_PER_TOKEN
        result = min(result, max(int(_RESULT_SHARE * window_chars), _LEAST_RESULT))
        turn = min(turn, max(int(_TURN_SHARE * window_chars), _LEAST_TURN))
    return ResultLimits(result, turn, tools.preview_chars)


def choose_for_store(
    results: Sequence[LargeResult], limits: ResultLimits, spent_chars: int = 0
) -> dict[int, int]:
    """Returns the places of the results to store, each with the characters that its preview may have.

    `spent_chars` are those of results of the same turn that are in the log already. After it all results of the turn are
    within the limit, but for what stays and for LEAST_CHARS of each.
    """
    room = limits.preview_chars + _NOTE_CHARS
    stored = {
        place: max(LEAST_CHARS, min(room, one.limit_chars))
        for place, one in enumerate(results)
        if one.limit_chars is not None and len(one.text) > one.limit_chars and not one.stays
    }
    sizes = {place: stored.get(place, len(one.text)) for place, one in enumerate(results)}
    order = sorted(
        (place for place, one in enumerate(results) if not one.stays),
        key=lambda place: (results[place].last, -len(results[place].text)),
    )
    for share in _SHORTER:
        room = limits.preview_chars // share + _NOTE_CHARS if share else LEAST_CHARS
        for place in order:
            if spent_chars + sum(sizes.values()) <= limits.turn_chars:
                return stored
            if room < sizes[place]:
                stored[place] = sizes[place] = room
    return stored


def write_preview(
    text: str, room_chars: int, handle: str, redact: Callable[[str], str], recall_tool: str | None = None
) -> str:
    """Returns the text that stands for another: its beginning, redacted, and a note, in at most `room_chars` characters.

    Without a handle, the note says that the rest could not be kept.
    """
    lines = text.count("\n") + 1
    size = f"{len(text):,} characters in {lines:,} line{'s' if lines > 1 else ''}"
    if not handle:
        note = f"[the result had {size}; the rest could not be kept]"
    else:
        reads = f"; {recall_tool} reads it" if recall_tool else ""
        note = f"[{size}, of which this is the beginning; all of it is stored as {handle}{reads}]"
    if len(note) >= room_chars:
        return (
            f"[{len(text):,} characters stored as {handle}]"
            if handle
            else f"[{len(text):,} characters, not kept]"
        )
    beginning = _cut(redact(text[: room_chars + _READ_AHEAD]), room_chars - len(note) - 1)
    return f"{beginning}\n{note}" if beginning else note


def find_stored_handles(text: str) -> tuple[str, ...]:
    """Returns the handles that previews in a text name."""
    return tuple(dict.fromkeys(_STORED.findall(text))) if "stored as r" in text else ()


def _cut(text: str, most: int) -> str:
    """Returns the beginning of the text, up to a line end if that keeps half of it."""
    if len(text) <= most:
        return text
    head = text[:most]
    at = head.rfind("\n")
    return head[:at] if at > most // 2 else head
