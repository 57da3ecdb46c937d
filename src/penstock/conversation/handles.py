"""Numbers of messages, and the handles by which readers name them.

Numbers name messages to readers: m1 is the first message ever. A handoff from an earlier compaction stands
for messages that are gone from the list; its mark says which numbers the messages after it have, so that a
handle means the same message for good. Many numbers are written as runs: `3-17 21`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.conversation.message import Message, Summary
from penstock.errors import UnknownHandle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "AFTER",
    "Handle",
    "HandleKind",
    "Runs",
    "explain_range",
    "gaps_between",
    "join_runs",
    "name_message",
    "number_messages",
    "numbers_after",
    "numbers_in",
    "parse_handle",
    "parse_message_handle",
    "read_runs",
    "runs_of",
    "write_runs",
]

Runs: TypeAlias = tuple[tuple[int, int], ...]
"""Runs of numbers, each from its first to its last."""

AFTER = "after"
"""The attribute of a handoff's mark with the numbers of the messages after it."""

_AROUND = " \t\r\n()[]{}<>\"'`*.,:;#"
_NUMBERED = re.compile(r"([msn])0*([1-9]\d{0,8})", re.ASCII | re.IGNORECASE)
_RESULT = re.compile(r"r[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_SEVERAL = re.compile(r"[msn]\d+(?:\W+[msn]?\d+)+", re.IGNORECASE)

_RUN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_RUN_AFTER = re.compile(r"(\d{1,9})(?:-(\d{1,9})|(\+))?$")
_LONGEST_RUN = 100_000


class HandleKind(StrEnum):
    """The kinds of things that a handle names."""

    MESSAGE = "m"
    NODE = "n"  # of the outline of a lossless handoff
    SUMMARY = "s"  # of the first compaction, of the second …
    RESULT = "r"  # a tool's result that was too large for the log
    HANDOFF = "handoff"  # all that the handoff of a compaction stands for
    SEVERAL = "several"  # more than one at a time
    OTHER = "other"  # a name that is none of ours; a host's own history may know it


class Handle(NamedTuple):
    """A handle as it was meant.

    `number` is that of a message, node or summary, else 0; `text` is how we write it.
    """

    kind: HandleKind
    number: int
    text: str


def parse_handle(written: str) -> Handle:
    """Returns the handle that a person or a model means: `M12`, `[m12]`, `(m012)` and `"m12"` are all m12.

    Ignores case, leading zeros, and blanks, brackets, quotes and punctuation around the handle. Never fails: anything that
    is not one of our handles, such as a bare number, becomes `OTHER` with its text.
    """
    text = str(written).strip(_AROUND)
    if numbered := _NUMBERED.fullmatch(text):
        kind, number = HandleKind(numbered[1].lower()), int(numbered[2])
        return Handle(kind, number, f"{kind}{number}")
    if _RESULT.fullmatch(text):
        return Handle(HandleKind.RESULT, 0, text.lower())
    if text.lower() == HandleKind.HANDOFF:
        return Handle(HandleKind.HANDOFF, 0, HandleKind.HANDOFF.value)
    return Handle(HandleKind.SEVERAL if _SEVERAL.fullmatch(text) else HandleKind.OTHER, 0, text)


def parse_message_handle(written: str) -> int:
    """Returns the number of the message that a handle names. Raises UnknownHandle if it does not name a message."""
    found = parse_handle(written)
    if found.kind is not HandleKind.MESSAGE:
        raise UnknownHandle(f"{written!r} is not the handle of a message: these are m1, m2 and so on")
    return found.number


def name_message(number: int) -> str:
    """Returns the name by which the original of a message can be asked for."""
    return f"m{number}"


def explain_range(length: int) -> str:
    """Returns which messages a conversation of that length has, for an error about a handle."""
    return f"its messages are m1 to {name_message(length)}" if length else "it has no messages"


def runs_of(numbers: Iterable[int]) -> Runs:
    """Returns the numbers, in the order given, as runs of neighbours."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return tuple(runs)


def join_runs(several: Iterable[Runs]) -> Runs:
    """Returns all numbers of several runs, in order."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(run for runs in several for run in runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def gaps_between(runs: Runs, newest: int) -> Runs:
    """Returns the numbers from 1 up to `newest` that are missing in the runs, which are in order."""
    gaps: list[tuple[int, int]] = []
    upcoming = 1
    for first, last in (*runs, (newest + 1, newest + 1)):
        if first > upcoming:
            gaps.append((upcoming, min(first - 1, newest)))
        upcoming = max(upcoming, last + 1)
        if upcoming > newest:
            break
    return tuple(gaps)


def numbers_in(runs: Runs) -> Iterator[int]:
    """Yields every number, in order."""
    for first, last in runs:
        yield from range(first, last + 1)


def write_runs(runs: Runs) -> str:
    """Returns the runs as text."""
    return " ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def read_runs(text: str) -> Runs:
    """Returns the runs in a text that we wrote; ignores other words."""
    found = (_RUN.fullmatch(word) for word in text.split())
    runs = ((int(run[1]), int(run[2] or run[1])) for run in found if run is not None)
    return tuple((first, last) for first, last in runs if first <= last)


def number_messages(messages: Sequence[Message], handoffs: Sequence[int] | None = None) -> tuple[int, ...]:
    """Returns a number for each message. A message that is only a handoff has 0.

    `handoffs` are the positions of messages with a handoff, if the caller knows them.
    """
    if handoffs is None:
        handoffs = [
            n for n, one in enumerate(messages) if any(isinstance(part, Summary) for part in one.parts)
        ]
    if not handoffs:
        return tuple(range(1, len(messages) + 1))
    numbers: list[int] = []
    upcoming: Iterator[int] = count(1)
    for place in handoffs:
        numbers += islice(upcoming, place - len(numbers))
        parts = messages[place].parts
        summary = next(part for part in parts if isinstance(part, Summary))
        upcoming = _expand(summary.attributes.get(AFTER, ""), upcoming)
        numbers.append(0 if len(parts) == 1 else next(upcoming))
    numbers += islice(upcoming, len(messages) - len(numbers))
    return tuple(numbers)


def numbers_after(numbers: Iterable[int], newest: int) -> str:
    """Returns the value of `AFTER` for messages with these numbers after a handoff; later messages count on."""
    runs = runs_of(numbers)
    if runs and runs[-1][1] == newest:
        return f"{write_runs(runs[:-1])} {runs[-1][0]}+".lstrip()
    return f"{write_runs(runs)} {newest + 1}+".lstrip()


def _expand(text: str, otherwise: Iterator[int]) -> Iterator[int]:
    """Returns the numbers in an attribute; `otherwise` if we did not write it."""
    runs = [_RUN_AFTER.match(word) for word in text.split()]
    if not runs or any(run is None for run in runs):
        return otherwise
    return _numbers([run for run in runs if run is not None])


def _numbers(runs: list[re.Match[str]]) -> Iterator[int]:
    last = 0
    for run in runs:
        first = int(run[1])
        if run[3]:
            yield from count(first)
        last = min(int(run[2] or first), first + _LONGEST_RUN)
        yield from range(first, last + 1)
    yield from count(last + 1)
