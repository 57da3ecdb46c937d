"""Open a list of messages: make of what a caller gave a list that can be planned, cut and sent.

`open_list` does three things, in this order. A handoff that an earlier compaction merged into a message is
parted from it again. Calls and results without ids of their own are linked. What breaks a rule of the dialect
is mended. The result says for every message where it stood in what was given, and what was mended and why.
`mend_wires` is the same for a list that is only sent on.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.conversation import mark
from penstock.conversation.dialects import decode_all, wire_of
from penstock.conversation.message import Message, Summary, ToolCall, ToolResult
from penstock.conversation.pairing import Pairing, link_calls
from penstock.conversation.repair import Mend, MendAction, repair
from penstock.conversation.rules import legal_cuts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.conversation.dialects.base import Dialect

__all__ = [
    "OpenedList",
    "PartedList",
    "SentMessage",
    "SoundPart",
    "holds_handoff",
    "mend_wires",
    "open_list",
    "part_handoffs",
    "without_handoff",
]


_CUT_FREELY = frozenset({"chat", "responses"})  # dialects without a rule about how a list begins


class SoundPart(msgspec.Struct, frozen=True, eq=False):
    """The beginning of a sound list, which a list that goes on from it need not look at again.

    `given` are the messages before they were linked, `end` is the last legal cut inside the list, `calls` and
    `results` are the ids of those before it.
    """

    given: list[Message]
    end: int
    calls: frozenset[str]
    results: frozenset[str]


class OpenedList(msgspec.Struct, frozen=True, eq=False):
    """A list of messages that breaks no rule of its dialect.

    `messages`, `origins` and `sources` run in parallel. An origin is what the message came as, None for one
    that is ours; a source is its index in what was given, None for one that was not given as a message: a
    handoff that stood inside another, or one that was added. The sources in `mends` are indices in what was
    given too.
    """

    dialect: str
    messages: list[Message]
    origins: Sequence[Any]
    sources: Sequence[int | None]
    cuts: tuple[int, ...] = ()  # where the list may be cut, if that was asked for: see `legal_cuts`
    mends: tuple[Mend, ...] = ()
    repairs: int = 0  # how many calls or results were removed, stood in for, or given another id
    sound: SoundPart | None = None  # for the next list that goes on from this one

    @property
    def removed(self) -> dict[int, str]:
        """The indices in what was given of the messages that were removed, each with the reason."""
        return {
            mend.source: mend.reason for mend in self.mends if mend.place is None and mend.source is not None
        }

    @property
    def changed(self) -> dict[int, str]:
        """The places of the messages that stay but are not as they were given, each with the reason."""
        return {
            mend.place: mend.reason
            for mend in self.mends
            if mend.place is not None and mend.action is MendAction.CHANGED
        }

    @property
    def added(self) -> dict[int, str]:
        """The places of the messages that were added, each with the reason."""
        return {
            mend.place: mend.reason
            for mend in self.mends
            if mend.place is not None and mend.action is MendAction.ADDED
        }


def open_list(  # noqa: PLR0913 - three for the list, the others by name
    messages: list[Message],
    wires: Sequence[Any],
    dialect: Dialect,
    *,
    origins: Sequence[Any] | None = None,
    keep_merged: bool = False,
    find_cuts: bool = False,
    earlier: OpenedList | None = None,
) -> OpenedList:
    """Returns the messages, which were decoded from the wires, as a list that breaks no rule of the dialect.

    `origins` are the exact bytes of the wires, where they came as bytes. With `keep_merged` a handoff stays
    inside the message that it was merged into, as in a list that is sent on. With `find_cuts` the result says
    where the list may be cut. `earlier`, a result with cuts, changes nothing in this one: where the list begins
    with the very messages of that one, what was found sound there is not looked at again.
    """
    given = wires if origins is None else origins
    sources: Sequence[int | None] = range(len(messages))
    if not keep_merged and any(len(one.parts) > 1 and holds_handoff(one) for one in messages):
        messages, given, sources = part_handoffs(messages, wires, given, dialect)
    start = _sound_until(messages, dialect, earlier)
    linked = _link(messages, start, dialect)
    repaired = repair(linked[start:], dialect)
    if repaired.mends:
        return _open_mended(linked, given, sources, dialect, find_cuts=find_cuts)
    if not find_cuts:
        return OpenedList(dialect.name, linked, given, sources)
    cuts = tuple(start + cut for cut in legal_cuts(linked[start:], dialect.rules))
    if earlier is not None and start:
        cuts = (*earlier.cuts[: bisect_left(earlier.cuts, start)], *cuts)
    sound = _settle(messages, cuts, start, earlier)
    return OpenedList(dialect.name, linked, given, sources, cuts, sound=sound)


def _open_mended(
    linked: Sequence[Message],
    given: Sequence[Any],
    sources: Sequence[int | None],
    dialect: Dialect,
    *,
    find_cuts: bool,
) -> OpenedList:
    """Returns the whole list, mended in messages that know what was given.

    The messages of a caller may hold no origin, or one of an earlier list that was equal.
    """
    with_origins = [
        Message(one.role, one.parts, origin, one.beside, one.written)
        for one, origin in zip(linked, given, strict=True)
    ]
    repaired = repair(with_origins, dialect)
    return OpenedList(
        dialect=dialect.name,
        messages=repaired.messages,
        origins=[message.origin for message in repaired.messages],
        sources=[None if index is None else sources[index] for index in repaired.sources],
        cuts=tuple(legal_cuts(repaired.messages, dialect.rules)) if find_cuts else (),
        mends=tuple(
            msgspec.structs.replace(mend, source=None if mend.source is None else sources[mend.source])
            for mend in repaired.mends
        ),
        repairs=repaired.removed + repaired.stubbed + repaired.renamed,
    )


def _link(messages: list[Message], start: int, dialect: Dialect) -> list[Message]:
    """Returns the messages with ids for calls and results that have none.

    Those before `start` all have them.
    """
    if dialect.pairing is Pairing.ANYWHERE:
        return messages
    tail = messages[start:]
    linked = link_calls(tail, messages[:start])
    return messages if all(map(is_, linked, tail)) else messages[:start] + linked


def _sound_until(messages: Sequence[Message], dialect: Dialect, earlier: OpenedList | None) -> int:
    """Returns the end of the sound part of the earlier list where this one begins with it, else 0.

    It is a legal cut, and every call before it is answered.
    """
    if earlier is None or earlier.sound is None or dialect.name != earlier.dialect:
        return 0
    sound = earlier.sound
    if (
        dialect.name not in _CUT_FREELY
        or not 0 < len(sound.given) <= len(messages)
        or not all(map(is_, sound.given, messages))
    ):
        return 0
    calls, results = _ids_in(messages[sound.end :])
    answered = sound.calls == sound.results and sound.calls.isdisjoint(calls | results)
    return sound.end if answered else 0


def _settle(
    messages: list[Message], cuts: Sequence[int], start: int, earlier: OpenedList | None
) -> SoundPart:
    """Returns what the next list may rely on; the ids up to `start` are known from the earlier one."""
    end = cuts[max(0, bisect_left(cuts, len(messages)) - 1)]
    calls, results = _ids_in(messages[start:end])
    before = earlier.sound if earlier is not None and start else None
    if before is not None:
        calls, results = calls | before.calls, results | before.results
    return SoundPart(messages, end, calls, results)


def _ids_in(messages: Sequence[Message]) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the ids of the calls in these messages, and those of the results."""
    calls: set[str] = set()
    results: set[str] = set()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls.add(part.call_id)
            elif isinstance(part, ToolResult):
                results.add(part.call_id)
    return frozenset(calls), frozenset(results)


class SentMessage(NamedTuple):
    """A message to be sent. `place` is where it stands in the view, None where it was put in or changed."""

    wire: Any
    place: int | None


def mend_wires(wires: Sequence[Any], dialect: Dialect) -> list[SentMessage]:
    """Returns the messages of a view as a provider takes them; those that break no rule are the objects that were given.

    A log may be broken, as a killed process leaves it: calls that never got a result. The log stays as it is. What is
    broken is mended in what is sent, the same way every time, so that a provider's cache of it holds: a result without
    a call is left out, a call without a result gets a stub. Calls at the very end are left alone, since they may still
    run.
    """
    opened = open_list(decode_all(dialect, wires, wires), wires, dialect, keep_merged=True)
    if not opened.mends:
        return [SentMessage(wire, place) for place, wire in enumerate(wires)]
    changed = opened.changed
    return [
        SentMessage(
            origin if origin is not None else wire_of(message, dialect), None if place in changed else source
        )
        for place, (message, origin, source) in enumerate(
            zip(opened.messages, opened.origins, opened.sources, strict=True)
        )
    ]


# Merged handoffs. Where no role of its own could stand, an earlier compaction put its handoff in front of another
# message's text. The next compaction writes a new one, so it needs the message as it was before.


class PartedList(NamedTuple):
    """Messages, what each came as, and its index in what was given, None for a handoff that was parted."""

    messages: list[Message]
    origins: list[Any]
    sources: list[int | None]


def holds_handoff(message: Message) -> bool:
    """Returns whether a handoff of an earlier compaction stands in the message, alone or before its text."""
    return any(isinstance(part, Summary) for part in message.parts)


def part_handoffs(
    messages: Sequence[Message], wires: Sequence[Any], origins: Sequence[Any], dialect: Dialect
) -> PartedList:
    """Returns the messages with each merged handoff as a message of its own, before the one it stood in."""
    parted = PartedList([], [], [])
    for index, (message, wire, origin) in enumerate(zip(messages, wires, origins, strict=True)):
        summary = next((part for part in message.parts if isinstance(part, Summary)), None)
        if summary is not None and len(message.parts) > 1:
            rest = without_handoff(wire)
            parted.messages.extend((Message(message.role, (summary,)), dialect.decode(rest)))
            parted.origins.extend((None, rest))
            parted.sources.extend((None, index))
        else:
            parted.messages.append(message)
            parted.origins.append(origin)
            parted.sources.append(index)
    return parted


def without_handoff(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the wire object without the handoffs in its texts; a block that was only a handoff goes."""
    return {key: _strip_marks(value) if key in {"content", "value"} else value for key, value in wire.items()}


def _strip_marks(content: Any) -> Any:
    if isinstance(content, str):
        return _without_mark(content)
    if not isinstance(content, list):
        return content
    blocks = []
    for block in content:
        text = block.get("text") if isinstance(block, dict) else None
        if not isinstance(text, str) or mark.find(text) is None:
            blocks.append(block)
        elif rest := _without_mark(text):
            blocks.append({**block, "text": rest})
    return blocks


def _without_mark(text: str) -> str:
    found = mark.find(text)
    if found is None:
        return text
    return text[: found.start] + text[found.end :].removeprefix("\n\n")
