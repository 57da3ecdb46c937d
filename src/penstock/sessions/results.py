"""Keeping tool results that are too large for the context: in the store, with a preview in the log.

All of a result can be read by its handle. Reading one back is never stored again, so that an agent does not go round in
circles. Where storing fails, the preview says that the rest could not be kept, and the conversation goes on.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Message, ToolCall, ToolResult
from penstock.conversation.wire import parse_json
from penstock.errors import StoreError
from penstock.recall.tools import TOOL_NAMES
from penstock.stores.values import StoredResult
from penstock.writing.stubs import ToolFamily, arguments_of, tool_family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.conversation.message import Part
    from penstock.settings import ToolsSettings
    from penstock.stores.values import SessionRow, Store

__all__ = [
    "LEAST_CHARS",
    "READ_FILE",
    "LargeResult",
    "ResultKeeper",
    "ResultLimits",
    "choose_for_store",
    "find_stored_handles",
    "make_result_handle",
    "scale_limits",
    "write_preview",
]


READ_FILE = "read_file"
_BACK = 64  # messages before a result among which its call, and the other results of its turn, are looked for
_HANDLE = re.compile(r"r[0-9a-f]{12}")
_log = logging.getLogger("penstock")

_Turn: TypeAlias = list[tuple[int, int, ToolResult]]


class ResultKeeper(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed to keep results of a session.

    `tool_limits` are the limits of single tools, in characters; None for a tool without one. `recall_tool` is named in
    previews where the agent has one.
    """

    store: Store
    session: SessionRow
    limits: ResultLimits
    redact: Callable[[str], str]
    tool_limits: Mapping[str, int | None]
    recall_tool: str | None = None

    def keep(self, wires: Sequence[Any]) -> list[Any]:
        """The messages as they may be appended: in place of results that are too large, their previews.

        Only the text of a result changes; messages that stay as they are, are the objects that were given. Raises
        InputError for what is no message of the dialect.
        """
        dialect = dialect_named(self.session.dialect)
        messages = decode_all(dialect, wires)
        turns = list(_turns(messages))
        spent = self._open_turn(messages)
        if not any(self._is_too_much(turn, spent) for turn in turns):
            return list(wires)
        earlier = self._last_wires(_BACK)
        linked = decode_all(dialect, [*earlier, *wires])
        calls = _calls(linked)
        kept = list(wires)
        for turn in turns:
            found = [(place, at, linked[len(earlier) + place].parts[at]) for place, at, _ in turn]
            results = [(place, at, part) for place, at, part in found if isinstance(part, ToolResult)]
            judged = [self._judged(part, calls.get(part.call_id)) for _, _, part in results]
            chosen = choose_for_store(judged, self.limits, spent if turn[0][0] == 0 else 0)
            changes: dict[int, dict[int, Part]] = {}
            for number, room in chosen.items():
                place, at, part = results[number]
                own = messages[place].parts[at]
                text = self._stored(part.text, calls.get(part.call_id), room)
                changes.setdefault(place, {})[at] = msgspec.structs.replace(own, text=text)
            for place, parts in changes.items():
                kept[place] = dialect.rewrite(messages[place], parts)
        return kept

    def _is_too_much(self, turn: _Turn, spent: int) -> bool:
        """Whether the results of a turn are worth a closer look."""
        limits = [limit for limit in self.tool_limits.values() if limit is not None]
        sizes = [len(part.text) for _, _, part in turn]
        return (
            max(sizes) > min([self.limits.result_chars, *limits])
            or spent + sum(sizes) > self.limits.turn_chars
        )

    def _last_wires(self, count: int) -> list[Any]:
        """The last messages of the log."""
        length = self.store.log_tip(self.session.id).length
        start = max(0, length - count)
        return [parse_json(entry.raw) for entry in self.store.read_from(self.session.id, start)]

    def _open_turn(self, messages: Sequence[Message]) -> int:
        """Characters of results at the end of the log, where the first of the new messages are more of them."""
        if not messages or not _results_of(messages[0]):
            return 0
        dialect = dialect_named(self.session.dialect)
        for count in (1, _BACK):  # mostly, the call is the last message
            chars = 0
            for wire in reversed(self._last_wires(count)):
                results = _results_of(dialect.decode(wire))
                if not results:
                    return chars
                chars += sum(len(part.text) for _, part in results)
        return chars

    def _judged(self, part: ToolResult, call: ToolCall | None) -> LargeResult:
        name = call.name if call is not None else ""
        limit = self.tool_limits.get(name, self.limits.result_chars)
        stays = call is not None and self._reads_back(call)
        return LargeResult(part.text, limit, last=limit is None, stays=stays)

    def _reads_back(self, call: ToolCall) -> bool:
        """Whether the call reads what was stored: by a recall tool, or as a file that has a result's handle for its name."""
        if call.name in TOOL_NAMES:
            return True
        if tool_family(call.name) is not ToolFamily.READ:
            return False
        names = [PurePath(value).stem for value in arguments_of(call).values() if isinstance(value, str)]
        return any(
            self.store.result(name, session_id=self.session.id) is not None
            for name in names
            if _HANDLE.fullmatch(name)
        )

    def _stored(self, text: str, call: ToolCall | None, room: int) -> str:
        handle = make_result_handle(self.session.conversation, text)
        tool = call.name if call is not None else ""
        result = StoredResult(id=handle, session=self.session.id, tool=tool, text=text, created=time.time())
        try:
            self.store.put_result(result)
        except StoreError as error:
            _log.warning("a tool result of %d characters could not be kept: %s", len(text), error)
            handle = ""
        return write_preview(text, room, handle, self.redact, self.recall_tool)


def make_result_handle(conversation: str, text: str) -> str:
    """The handle of a result: the same text in the same conversation has the same one."""
    content = f"{conversation}\n{text}".encode("utf-8", "surrogatepass")
    return f"r{hashlib.blake2b(content, digest_size=6).hexdigest()}"


def _turns(messages: Sequence[Message]) -> Iterator[_Turn]:
    """The results of messages that follow each other, with the place of each message and of the part in it."""
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


def _calls(messages: Sequence[Message]) -> dict[str, ToolCall]:
    return {
        part.call_id: part for message in messages for part in message.parts if isinstance(part, ToolCall)
    }


# Tool results that are too large for the context: which of them are to be stored, and what stands in their place.
#
# A result over its limit is stored. Where all results of a turn are too much together, the largest are stored first until
# they are not. In place of a stored result stands its beginning, cut at a line, with its size and the handle by which all
# of it can be read.

LEAST_CHARS = 60  # of what stands in place of a result, however little room there is
_CHARS_PER_TOKEN = 4
_RESULT_SHARE, _TURN_SHARE = 0.15, 0.30  # of the window
_LEAST_RESULT, _LEAST_TURN = 8_000, 16_000  # characters, however small the window is
_NOTE_CHARS = 160  # what a note about a stored result takes at most, with a tool that reads it
_SHORTER = (1, 4, 16, 0)  # previews, where many results are too much together: whole, a quarter of it …
_READ_AHEAD = 20_000  # characters behind the beginning that are redacted with it: no half of a secret is left
_STORED = re.compile(r"stored as (r[0-9a-f]{12})\b")


class ResultLimits(msgspec.Struct, frozen=True):
    """How many characters one result, all results of a turn, and a preview may have."""

    result_chars: int
    turn_chars: int
    preview_chars: int


class LargeResult(msgspec.Struct, frozen=True):
    """A result as it came, with its tool's own limit, None where it has none.

    One that `stays` is never stored: it reads back what was stored before. One that is `last` is stored only where that
    of all others is not enough.
    """

    text: str
    limit_chars: int | None
    last: bool = False
    stays: bool = False


def scale_limits(tools: ToolsSettings, window_tokens: int | None) -> ResultLimits:
    """The limits of the settings, scaled down where the window is small."""
    result, turn = tools.result_chars, tools.turn_chars
    if window_tokens is not None:
        window_chars = window_tokens * _CHARS_PER_TOKEN
        result = min(result, max(int(_RESULT_SHARE * window_chars), _LEAST_RESULT))
        turn = min(turn, max(int(_TURN_SHARE * window_chars), _LEAST_TURN))
    return ResultLimits(result, turn, tools.preview_chars)


def choose_for_store(
    results: Sequence[LargeResult], limits: ResultLimits, spent_chars: int = 0
) -> dict[int, int]:
    """The places of results that are to be stored, each with the characters that its preview may have.

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
    """What stands in place of the text: its beginning, redacted, and a note, in at most `room_chars` characters.

    Without a handle the note says that the rest could not be kept.
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
    """The handles that previews in a text name."""
    return tuple(dict.fromkeys(_STORED.findall(text))) if "stored as r" in text else ()


def _cut(text: str, most: int) -> str:
    """The beginning of the text, up to a line end where that keeps half of it."""
    if len(text) <= most:
        return text
    head = text[:most]
    at = head.rfind("\n")
    return head[:at] if at > most // 2 else head
