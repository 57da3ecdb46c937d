"""Traces of sessions: for each request the tokens appended, the tokens of output, and the seconds since the last."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import InputError, MalformedJSON
from penstock.sessions.metering import TURN_TASK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.stores.store import Store
    from penstock.stores.values import UsageRow

__all__ = ["STATIC_TOKENS", "Trace", "read_stored_trace", "read_traces", "turns_of"]

STATIC_TOKENS = 18_000
"""System prompt and tools of a coding agent, where a trace does not say."""

_GZIP = b"\x1f\x8b"
_MOST_TOKENS = 10**9
_OPENING_MESSAGES = 50
_SIDE_CALLS = 3  # in a row, at most


class Trace(msgspec.Struct, frozen=True):
    """A session as its requests, oldest first.

    `appended` are the tokens that each request adds to the one before, without the static prefix; `output` what came
    back; `gaps` the seconds since the previous request.
    """

    id: str
    static_tokens: int
    appended: tuple[int, ...]
    output: tuple[int, ...]
    gaps: tuple[float, ...]

    @property
    def requests(self) -> int:
        """The number of requests."""
        return len(self.appended)


class _Line(msgspec.Struct):
    requests: list[tuple[int, int, int, float, int]]
    id: str = ""


def read_traces(data: bytes, static_tokens: int = STATIC_TOKENS) -> list[Trace]:
    """Returns the traces of a file, plain or gzipped: a JSON object a line, with `id` and `requests`.

    A request is `[tokens of tool results appended, other tokens appended, output tokens, seconds since the previous
    request, 1 if a user message came in]`. InputError for a line that is none.
    """
    if data.startswith(_GZIP):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise InputError("this gzip file is damaged: download or write it again") from None
    traces = []
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            read = msgspec.json.decode(line, type=_Line)
        except msgspec.ValidationError as error:
            raise InputError(f"this is not a trace of requests: {error}", position=f"line {number}") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise MalformedJSON("this is not JSON", position=f"line {number}") from None
        traces.append(_check(read, number, static_tokens))
    if not any(trace.requests for trace in traces):
        raise InputError("there are no requests in it: give a file with one trace per line")
    return [trace for trace in traces if trace.requests]


def _check(read: _Line, number: int, static_tokens: int) -> Trace:
    for row in read.requests:
        if not all(0 <= value <= _MOST_TOKENS for value in row):
            raise InputError(
                f"the request {list(row)} has a number below 0 or above {_MOST_TOKENS:,}",
                position=f"line {number}",
            )
    return Trace(
        id=read.id or f"line {number}",
        static_tokens=static_tokens,
        appended=tuple(row[0] + row[1] for row in read.requests),
        output=tuple(row[2] for row in read.requests),
        gaps=tuple(row[3] for row in read.requests),
    )


def read_stored_trace(store: Store, session_id: str) -> Trace | None:
    """Returns the trace of a stored conversation, by the usage of its requests; None if there are fewer than two on record.

    A request is taken to have appended the tokens by which its prompt was larger than the one before. If it was smaller, the
    program that made it had compacted: then the answer before is taken as appended, which is the minimum.
    """
    rows = turns_of(store, session_id)
    if len(rows) < 2:
        return None
    prompts = [row.usage.prompt_tokens for row in rows]
    static = max(0, prompts[0] - _count_opening_tokens(store, session_id))
    appended = [prompts[0] - static]
    for before, now, row in zip(prompts, prompts[1:], rows, strict=False):
        appended.append(now - before if now >= before else row.usage.output_tokens)
    return Trace(
        id=session_id,
        static_tokens=static,
        appended=tuple(appended),
        output=tuple(row.usage.output_tokens for row in rows),
        gaps=_gaps(rows),
    )


def turns_of(store: Store, session_id: str) -> list[UsageRow]:
    """Returns the requests of a conversation that answered, oldest first.

    Those that wrote summaries are left out, and calls on the side, such as for a title: their prompts are less than
    half of the one before, which is back soon after them.
    """
    rows = [
        row for row in store.usage(session_id=session_id) if row.usage.prompt_tokens and row.task == TURN_TASK
    ]
    turns: list[UsageRow] = []
    for at, row in enumerate(rows):
        level = turns[-1].usage.prompt_tokens if turns else 0
        soon = rows[at + 1 : at + 1 + _SIDE_CALLS]
        aside = row.usage.prompt_tokens * 2 < level and any(one.usage.prompt_tokens >= level for one in soon)
        if not aside:
            turns.append(row)
    return turns


def _count_opening_tokens(store: Store, session_id: str) -> int:
    """Returns the tokens of the messages before the first answer: what the first request held beside its static prefix."""
    tokens = 0
    for entry in store.read_from(session_id, 0, _OPENING_MESSAGES):
        if entry.role == "assistant":
            break
        tokens += entry.tokens if entry.role != "system" else 0
    return tokens


def _gaps(rows: Sequence[UsageRow]) -> tuple[float, ...]:
    times = [row.at for row in rows]
    return (0.0, *(max(0.0, now - before) for before, now in pairwise(times)))
