"""Streams of events on their way through: where one begins and ends, a refusal in its first events, and an item put in front.

The events themselves pass unread, but where an answer begins with an item of ours (`ItemInserter`): a compaction that was
made in passing, as the provider sends its own. What follows it is counted up by one place; else nothing is changed. An answer
that is not understood goes on as it came.

    inserting = ItemInserter(item, "responses")
    body = inserting.insert_whole(body)                     # an answer in one piece
    for chunk in stream: send(inserting.feed(chunk))        # or as it comes; then inserting.end()
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from penstock.conversation.wire import encode_wire, parse_json
from penstock.gateway.compactions import write_block_events, write_event
from penstock.gateway.refusals import SIZE_KINDS
from penstock.providers.classify import classify_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.errors import ErrorClass
    from penstock.gateway.exchange import WireDialect
    from penstock.gateway.upstream_client import ArrivingAnswer

__all__ = ["ItemInserter", "find_last_event", "hold_error", "hold_opening", "is_stream", "read_whole"]

_HOLD_SECONDS: Final = 10.0
_HOLD_BYTES: Final = 1 << 20
_HOLD_EVENTS: Final = 100
_GAPS: Final = (b"\n\n", b"\r\n\r\n")  # between two events
_GAP: Final = re.compile(b"|".join(_GAPS))
_LONGEST_GAP: Final = max(map(len, _GAPS))
_MOST_EVENT_BYTES: Final = 32 << 20
_ERROR_START: Final = re.compile(rb'\s*\{\s*"(?:error"|type"\s*:\s*"error")')
_ERROR_CHARS: Final = 40  # by then an answer that is an error has said so
_OPENINGS: Final = ("response.created", "response.in_progress", "response.queued")  # they say nothing yet
_ENDS: Final = ("response.completed", "response.incomplete")


def is_stream(answer: ArrivingAnswer) -> bool:
    """Returns True for an answer that is a stream of events."""
    return answer.headers.get("content-type", "").startswith("text/event-stream")


async def read_whole(answer: ArrivingAnswer, most_bytes: int, held: bytes = b"") -> bytes:
    """Returns the body of an answer behind `held`; of one that is larger than `most_bytes`, a beginning that is, too."""
    pieces, size = [held], len(held)
    while size <= most_bytes and (chunk := await answer.content.readany()):
        pieces.append(chunk)
        size += len(chunk)
    return b"".join(pieces)


async def hold_error(answer: ArrivingAnswer) -> tuple[bytes, ErrorClass | None]:
    """Returns the first bytes of an answer in one piece, or all of it if it is an error, and the refusal where it is one.

    Relays of others' models answer so, under a status that says that all is well; some send spaces before, to keep the
    connection alive.
    """
    held = b""
    try:
        held = answer.content.read_nowait()  # mostly it has come with the head
        if _is_no_error(held):
            return held, None
        async with asyncio.timeout(_HOLD_SECONDS):
            while len(held) < _HOLD_BYTES and (chunk := await answer.content.readany()):
                held += chunk
                if _is_no_error(held):
                    return held, None
    except TimeoutError:
        return held, None
    except (aiohttp.ClientPayloadError, aiohttp.ClientOSError):
        return held, None  # the next read meets it again
    if not _ERROR_START.match(held):
        return held, None
    failure = classify_error(200, held)
    return held, failure if failure.kind in SIZE_KINDS else None


def _is_no_error(held: bytes) -> bool:
    """Returns True once the first bytes of an answer tell that it is no error."""
    said = held.lstrip()
    is_told = len(said) >= _ERROR_CHARS or (said and not said.startswith(b"{"))
    return bool(is_told) and not _ERROR_START.match(said)


async def hold_opening(answer: ArrivingAnswer, dialect: str) -> tuple[bytes, ErrorClass | None]:
    """Returns the first events of a stream, read until one says something, and the refusal where it is one.

    An overflow may come as an event in a stream that began well, and then it can still be answered with a smaller request.
    """
    opening = _Opening(dialect)
    try:
        if opening.feed(answer.content.read_nowait()):  # mostly it has come with the head
            return opening.held, opening.refusal
        async with asyncio.timeout(_HOLD_SECONDS):
            while chunk := await answer.content.readany():
                if opening.feed(chunk):
                    break
    except TimeoutError:
        pass  # it takes its time: what has come goes out
    except (aiohttp.ClientPayloadError, aiohttp.ClientOSError):
        pass  # the next read meets it again, and ends the caller's stream
    return opening.held, opening.refusal


class _Opening:
    """The first events of a stream, and the refusal where they are one."""

    def __init__(self, dialect: str) -> None:
        self.held = b""
        self.refusal: ErrorClass | None = None
        self._dialect = dialect
        self._events = self._looked_at = 0

    def feed(self, chunk: bytes) -> bool:
        """Takes in what comes next; returns True once an event has said something, or there is too much that does not."""
        self.held += chunk
        while self._events < _HOLD_EVENTS and (end := _end_of_event(self.held, self._looked_at)):
            event, self._looked_at = self.held[self._looked_at : end], end
            self._events += 1
            if not _is_preamble(event, self._dialect):
                self.refusal = _read_stream_refusal(event, self._dialect)
                return True
        return len(self.held) >= _HOLD_BYTES or self._events >= _HOLD_EVENTS


def _end_of_event(held: bytes | bytearray, start: int) -> int:
    """Returns where the first event ends that ends behind `start`, or 0 where none is complete."""
    gap = _GAP.search(held, start)
    return gap.end() if gap is not None else 0


def _is_preamble(event: bytes, dialect: str) -> bool:
    """Returns True for an event that says nothing yet: a comment, or the announcement of an answer."""
    if b"data:" not in event:
        return True
    if dialect != "responses":
        return False
    head = event[:200]  # the name stands first, be it in the event's line or in its data
    return any(name.encode() in head for name in _OPENINGS)


def _read_stream_refusal(event: bytes, dialect: str) -> ErrorClass | None:
    head = event[:200]
    if dialect == "responses":
        if b"response.failed" not in head and b"error" not in head:
            return None
    elif b'"error"' not in event:
        return None
    failure = classify_error(200, event)
    return failure if failure.kind in SIZE_KINDS else None


def find_last_event(chunk: bytes) -> int:
    """Returns where the last event of a piece of a stream begins; 0 where it is the only one."""
    body = chunk.rstrip(b"\r\n")
    return max(body.rfind(gap) + len(gap) if gap in body else 0 for gap in _GAPS)


class ItemInserter:
    """One answer, as it passes."""

    def __init__(self, item: Mapping[str, Any], dialect: WireDialect) -> None:
        self._item = item
        self._responses = dialect == "responses"
        self._held = bytearray()
        self._gave_up = False
        self._inserted = False
        self._number = 0

    def insert_whole(self, body: bytes) -> bytes:
        """Returns the answer with the item in front."""
        try:
            answer = parse_json(body)
        except ValueError:
            return body
        name = "output" if self._responses else "content"
        if not isinstance(answer, dict) or not isinstance(answer.get(name), list):
            return body
        return encode_wire({**answer, name: [self._item, *answer[name]]})

    def feed(self, chunk: bytes) -> bytes:
        """Returns those events of a stream that are complete now; all that has come where one of them does not end."""
        if self._gave_up:
            return chunk
        held, done = self._held, 0
        look_from = max(0, len(held) - _LONGEST_GAP)  # what was held before has no whole gap
        held += chunk
        out: list[bytes] = []
        while end := _end_of_event(held, look_from):
            out.append(self._pass(bytes(held[done:end])))
            done = look_from = end
        del held[:done]
        if len(held) > _MOST_EVENT_BYTES:
            self._gave_up = True
            out.append(self.end())
        return b"".join(out)

    def end(self) -> bytes:
        """Returns the rest when the stream has ended."""
        left = bytes(self._held)
        self._held.clear()
        return left

    def _pass(self, raw: bytes) -> bytes:
        lines = [line[5:].strip() for line in raw.splitlines() if line.startswith(b"data:")]
        try:
            event = parse_json(b"\n".join(lines)) if lines else None
        except ValueError:
            return raw  # `[DONE]`, or nothing of ours
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            return raw
        return self._pass_responses(event) if self._responses else self._pass_anthropic(event, raw)

    def _pass_responses(self, event: dict[str, Any]) -> bytes:
        before = b""
        if event["type"] not in _OPENINGS and not self._inserted and event["type"] != "error":
            self._inserted = True
            before = b"".join(
                self._write({"type": f"response.output_item.{step}", "output_index": 0, "item": self._item})
                for step in ("added", "done")
            )
        if isinstance(event.get("output_index"), int):
            event["output_index"] += 1
        response = event.get("response")
        if event["type"] in _ENDS and isinstance(response, dict) and isinstance(response.get("output"), list):
            event["response"] = {**response, "output": [self._item, *response["output"]]}
        return before + self._write(event)

    def _write(self, event: dict[str, Any]) -> bytes:
        number = self._number
        self._number += 1
        return write_event({**event, "sequence_number": number})

    def _pass_anthropic(self, event: dict[str, Any], raw: bytes) -> bytes:
        if isinstance(event.get("index"), int):
            return write_event({**event, "index": event["index"] + 1})
        if event["type"] == "message_start" and not self._inserted:
            self._inserted = True
            return raw + b"".join(map(write_event, write_block_events(self._item)))
        return raw
