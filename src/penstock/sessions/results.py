"""Keeps tool results that are too large for the context: in the store, with a preview in the log.

All of a result can be read by its handle. Reading one back is never stored again, so that an agent does not go round in
circles. Where storing fails, the preview says that the rest could not be kept, and the conversation goes on.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock._log import log
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.handles import HandleKind, parse_handle
from penstock.conversation.message import Message, ToolCall, ToolResult
from penstock.conversation.wire import parse_json
from penstock.errors import StoreError
from penstock.recall.tools import TOOL_NAMES
from penstock.sessions.previews import LargeResult, choose_for_store, write_preview
from penstock.stores.values import StoredResult
from penstock.writing.stubs import ToolFamily, arguments_of, tool_family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.conversation.message import Part
    from penstock.sessions.previews import ResultLimits
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow

__all__ = ["READ_FILE", "ResultKeeper"]


READ_FILE = "read_file"
_BACK = 64  # messages before a result among which its call, and the other results of its turn, are looked for

_Turn: TypeAlias = list[tuple[int, int, ToolResult]]


class ResultKeeper(msgspec.Struct, frozen=True, kw_only=True):
    """Keeps the results of one session.

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
        calls = _index_calls(linked)
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
        """Returns True where the results of a turn may have to be stored: they are worth a closer look."""
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
        """Characters of results at the end of the log, where the first of the new messages are more of them."""
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
        """Returns True where the call reads what was stored: by a recall tool, or as a file that has a result's handle for its name."""
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


def _index_calls(messages: Sequence[Message]) -> dict[str, ToolCall]:
    return {
        part.call_id: part for message in messages for part in message.parts if isinstance(part, ToolCall)
    }
