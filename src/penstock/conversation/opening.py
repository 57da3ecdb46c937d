"""Opens a caller's list of messages: turns it into one that can be planned, cut and sent.

`open_list` does three things, in this order. It splits handoffs that an earlier compaction merged into a message
from that message. It links calls and results that have no ids of their own. It mends breaches of the dialect's
rules. The result has, for every message, its index in the input, and says what was mended and why. `mend_wires`
does the same for a list that is only sent on.

Messages that need no mending stay the same objects. For the others, `Mend` says what was done and why, and `sources`
has the index of every message in the input, so that nobody must guess these from the two lists.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock._core import HAS_CORE, core
from penstock.conversation import mark
from penstock.conversation.dialects import decode_all, wire_of
from penstock.conversation.dialects.wire_kinds import RESPONSES_ITEMS
from penstock.conversation.message import Message, Part, Reasoning, Role, Summary, Text, ToolCall, ToolResult
from penstock.conversation.pairing import (
    Matching,
    Pairing,
    PartPlace,
    has_call,
    has_result,
    link_calls,
    match,
    results_end,
)
from penstock.conversation.rules import (
    OPENING_TEXT,
    NonEmpty,
    ReasoningStays,
    ServerTools,
    ThinkingFirst,
    UserOpens,
    first_speaker,
    has_late_thinking,
    is_blank,
    is_reasoning_item,
    legal_cuts,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.conversation.dialects.base import Dialect


__all__ = [
    "NO_RESULT",
    "Mend",
    "MendAction",
    "OpenedList",
    "PartedList",
    "Repaired",
    "SentMessage",
    "SoundPart",
    "count_same",
    "holds_handoff",
    "mend_wires",
    "open_list",
    "part_handoffs",
    "repair",
    "without_handoff",
]

_CUT_FREELY = frozenset({"chat", "responses"})  # dialects without a rule about how a list begins


class SoundPart(msgspec.Struct, frozen=True, eq=False):
    """The beginning of a sound list, which need not be checked again in a list that continues it.

    `given` are the messages before they were linked, `end` is the last legal cut inside the list, and `calls`
    and `results` are the ids before that cut.
    """

    given: list[Message]
    end: int
    calls: frozenset[str]
    results: frozenset[str]


class OpenedList(msgspec.Struct, frozen=True, eq=False):
    """A list of messages that breaks no rule of its dialect.

    `messages`, `origins` and `sources` run in parallel. An origin is the caller's object or bytes, None for a
    message of our own. A source is the message's index in the input; None for a handoff that was inside another
    message, and for a message that was added. The sources in `mends` are indices in the input, too.
    """

    dialect: str
    messages: list[Message]
    origins: Sequence[Any]
    sources: Sequence[int | None]
    cuts: tuple[int, ...] = ()  # where the list may be cut, with `find_cuts`: see `legal_cuts`
    mends: tuple[Mend, ...] = ()
    repairs: int = 0  # the number of calls and results that were removed, got a stub, or got another id
    sound: SoundPart | None = None  # for the next list that continues this one

    @property
    def removed(self) -> dict[int, str]:
        """The indices in the input of the removed messages, each with the reason."""
        return {
            mend.source: mend.reason for mend in self.mends if mend.place is None and mend.source is not None
        }

    @property
    def changed(self) -> dict[int, str]:
        """The places of the messages that were changed, each with the reason."""
        return {
            mend.place: mend.reason
            for mend in self.mends
            if mend.place is not None and mend.action is MendAction.CHANGED
        }

    @property
    def added(self) -> dict[int, str]:
        """The places of the added messages, each with the reason."""
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

    `origins` are the exact bytes of the wires, if they came as bytes. With `keep_merged`, a handoff stays inside
    the message that it was merged into, as in a list that is sent on. With `find_cuts`, the result says where the
    list may be cut. `earlier`, a result with cuts, only saves time: if the list begins with the very messages of
    that one, its sound part is not checked again.
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
    """Returns the whole list, mended, with messages that have their own origins.

    A caller's messages may have no origin, or that of an equal message in an earlier list.
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

    All before `start` have ids.
    """
    if dialect.pairing is Pairing.ANYWHERE:
        return messages
    tail = messages[start:]
    linked = link_calls(tail, messages[:start])
    return messages if all(map(is_, linked, tail)) else messages[:start] + linked


def _sound_until(messages: Sequence[Message], dialect: Dialect, earlier: OpenedList | None) -> int:
    """Returns the end of the sound part of the earlier list if this one begins with it, else 0.

    It is a legal cut, and every call before it is answered.
    """
    if earlier is None or earlier.sound is None or dialect.name != earlier.dialect:
        return 0
    sound = earlier.sound
    if (
        dialect.name not in _CUT_FREELY
        or not 0 < len(sound.given) <= len(messages)
        or count_same(sound.given, messages) < len(sound.given)
    ):
        return 0
    calls, results = _ids_in(messages[sound.end :])
    is_answered = sound.calls is sound.results or sound.calls == sound.results
    answered = is_answered and sound.calls.isdisjoint(calls | results)
    return sound.end if answered else 0


def _settle(
    messages: list[Message], cuts: Sequence[int], start: int, earlier: OpenedList | None
) -> SoundPart:
    """Returns the sound part for the next list; the ids up to `start` are known from the earlier one."""
    end = cuts[max(0, bisect_left(cuts, len(messages)) - 1)]
    calls, results = _ids_in(messages[start:end])
    before = earlier.sound if earlier is not None and start else None
    if calls == results and (before is None or before.calls is before.results):
        calls = results = (
            calls if before is None else calls | before.calls
        )  # one set, as long as all is answered
    elif before is not None:
        calls, results = calls | before.calls, results | before.results
    return SoundPart(messages, end, calls, results)


def count_same(one: Sequence[object], other: Sequence[object]) -> int:
    """Returns how many items at the start of both lists are the same objects."""
    if HAS_CORE and isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        same: int = core.count_same(one, other)
        return same
    if all(map(is_, one, other)):
        return min(len(one), len(other))
    return next(place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] is not pair[1])


def _ids_in(messages: Sequence[Message]) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the ids of the calls in these messages, and the ids of the results."""
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
    """A message to send. `place` is its place in the view; None if it was added or changed."""

    wire: Any
    place: int | None


def mend_wires(wires: Sequence[Any], dialect: Dialect) -> list[SentMessage]:
    """Returns the messages of a view as a provider accepts them; those that break no rule are the given objects.

    A killed process may leave a broken log, with calls that never got a result. The log stays as it is, and the list to
    send is mended, in the same way every time, so that a provider's cache of it stays valid: a result without a call is
    left out, a call without a result gets a stub. Calls at the very end are left alone, since they may still be running.
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


# Merged handoffs. If its handoff could have no role of its own, an earlier compaction put it in front of another message's
# text. The next compaction writes a new handoff, so it needs the message as it was before.


class PartedList(NamedTuple):
    """Messages, the origin of each, and its index in the input; None for a handoff that was split off."""

    messages: list[Message]
    origins: list[Any]
    sources: list[int | None]


def holds_handoff(message: Message) -> bool:
    """Returns True if the message holds a handoff of an earlier compaction, alone or before its text."""
    return any(isinstance(part, Summary) for part in message.parts)


def part_handoffs(
    messages: Sequence[Message], wires: Sequence[Any], origins: Sequence[Any], dialect: Dialect
) -> PartedList:
    """Returns the messages with each merged handoff as a message of its own, before the one that held it."""
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
    """Returns the wire object without the handoffs in its texts; removes blocks that were only a handoff."""
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


NO_RESULT = "[no result was recorded for this call]"

# Repair: mends faults of the input, so that the result of a compaction can be legal.

_BLANK = "blank text"
_NO_CONTENT = "a message without content"
_NO_USE = "the result of a server tool without its use"
_THINKING_LATE = "thinking that did not stand first"
_TAKEN_ID = "a call id that was used twice"
_NO_CALL = "a result without its call"
_UNANSWERED = "a call without a result"
_DANGLING = "reasoning without the item that it led to"
_NO_OPENING = "a conversation that the user did not open"


class MendAction(StrEnum):
    """The actions of repair on a message."""

    REMOVED = "removed"
    CHANGED = "changed"
    ADDED = "added"


class Mend(msgspec.Struct, frozen=True):
    """A removed, changed or added message, and the fault that this mends.

    `source` is its index in the original list, None for an added message. `place` is its index in the mended
    list, None for a removed message.
    """

    action: MendAction
    source: int | None
    place: int | None
    reason: str


class Repaired(msgspec.Struct, frozen=True):
    """The mended list, and the number of parts and messages that were removed, got a stub, or got another id.

    `sources` has for each message its index in the original list, None for an added message. `mends` lists the
    messages that differ: first the removed ones, then the others in order.
    """

    messages: list[Message]
    sources: Sequence[int | None] = ()
    mends: tuple[Mend, ...] = ()
    removed: int = 0
    stubbed: int = 0
    renamed: int = 0


def repair(messages: Sequence[Message], dialect: Dialect) -> Repaired:
    """Returns a list that passes `check` with the dialect's rules.

    Results without a call are removed, calls without a result get a stub directly after their batch, and a call
    with a repeated id gets another one together with its result. Calls at the very end may still be running and
    stay as they are. Blank text, dangling reasoning and late thinking are mended if the dialect has a rule
    against them.
    """
    mending = _Mending(list(messages), dialect)
    rules = {type(rule): rule for rule in dialect.rules}
    if NonEmpty in rules:
        mending.drop_blank()
    if isinstance(server_tools := rules.get(ServerTools), ServerTools):
        mending.drop_parts(server_tools.orphans(mending.messages), _NO_USE)
    if ThinkingFirst in rules:
        mending.move_thinking_first()
    mending.mend_pairs()
    if ReasoningStays in rules:
        mending.drop_dangling_reasoning()
    if isinstance(opening := rules.get(UserOpens), UserOpens):
        mending.open_with_user(opening)
    return mending.finish()


class _Mending:
    """The list while it is being mended, inside one call of `repair`.

    `keys` runs parallel to `messages`: the index of a message in the original list, or a number below 0 for an
    added message, so that both can have reasons.
    """

    def __init__(self, messages: list[Message], dialect: Dialect) -> None:
        self.messages = messages
        self.keys = list(range(len(messages)))
        self.dialect = dialect
        self.reasons: dict[int, list[str]] = {}
        self.removed = self.stubbed = self.renamed = 0

    def finish(self) -> Repaired:
        sources = [None if key < 0 else key for key in self.keys]
        return Repaired(self.messages, sources, self._mends(), self.removed, self.stubbed, self.renamed)

    def _mends(self) -> tuple[Mend, ...]:
        if not self.reasons:
            return ()
        place_of = {key: place for place, key in enumerate(self.keys)}
        removed: list[Mend] = []
        standing: list[Mend] = []
        for key, reasons in sorted(self.reasons.items()):
            reason = ", ".join(dict.fromkeys(reasons))
            place = place_of.get(key)
            if place is None:
                removed.append(Mend(MendAction.REMOVED, key, None, reason))
            elif key < 0:
                standing.append(Mend(MendAction.ADDED, None, place, reason))
            else:
                standing.append(Mend(MendAction.CHANGED, key, place, reason))
        return (*removed, *sorted(standing, key=lambda mend: mend.place or 0))

    def _note(self, key: int, reason: str) -> None:
        self.reasons.setdefault(key, []).append(reason)

    def _new_key(self, reason: str) -> int:
        """Returns the key of a message that is added."""
        key = min(-1, min(self.reasons, default=0) - 1)
        self._note(key, reason)
        return key

    def _keep(self, places: Sequence[int]) -> None:
        """Goes on with the messages at these places."""
        self.messages = [self.messages[place] for place in places]
        self.keys = [self.keys[place] for place in places]

    def drop_blank(self) -> None:
        blank = [
            PartPlace(index, number)
            for index, message in enumerate(self.messages)
            for number, part in enumerate(message.parts)
            if is_blank(part)
        ]
        self.drop_parts(blank, _BLANK)
        last = len(self.messages) - 1
        empty = [
            index
            for index, message in enumerate(self.messages)
            if not message.parts and not (index == last and message.role is Role.ASSISTANT)
        ]
        self._drop(empty, _NO_CONTENT)

    def _drop(self, places: Sequence[int], reason: str) -> None:
        """Removes the messages at these places."""
        if not places:
            return
        for place in places:
            self._note(self.keys[place], reason)
        dropped = set(places)
        self._keep([place for place in range(len(self.messages)) if place not in dropped])
        self.removed += len(places)

    def drop_parts(self, places: Sequence[PartPlace], reason: str) -> None:
        """Removes these parts, and every message that has no other parts."""
        if not places:
            return
        dropped: dict[int, set[int]] = {}
        for place in places:
            dropped.setdefault(place.message, set()).add(place.part)
        emptied: set[int] = set()
        for index, parts in dropped.items():
            message = self.messages[index]
            left = [number for number in range(len(message.parts)) if number not in parts]
            self._note(self.keys[index], reason)
            if left:
                self.messages[index] = self._select(message, left)
            else:
                emptied.add(index)
        if emptied:
            self._keep([place for place in range(len(self.messages)) if place not in emptied])
        self.removed += len(places)

    def move_thinking_first(self) -> None:
        for index, message in enumerate(self.messages):
            if has_late_thinking(message):
                late = {number for number, part in enumerate(message.parts) if type(part) is Reasoning}
                order = [
                    *sorted(late),
                    *(number for number in range(len(message.parts)) if number not in late),
                ]
                self.messages[index] = self._select(message, order)
                self._note(self.keys[index], _THINKING_LATE)

    def mend_pairs(self) -> None:
        """Renames ids, removes results and answers calls; each step works on the pairs that the one before left."""
        pairing = self.dialect.pairing
        matching = match(self.messages, pairing)
        if matching.repeated:
            self._rename_repeated(matching)
            matching = match(self.messages, pairing)
        if matching.orphans:
            self.drop_parts(matching.orphans, _NO_CALL)
            matching = match(self.messages, pairing)
        if matching.unanswered:
            self._answer(matching.unanswered)

    def _rename_repeated(self, matching: Matching) -> None:
        """Gives each later call with a repeated id another id, and its result as well."""
        answers = {call: result for call, result in matching.pairs if call.part >= 0}
        taken = {
            part.call_id for message in self.messages for part in message.parts if isinstance(part, ToolCall)
        }
        changes: dict[int, dict[int, Part]] = {}
        counts: dict[str, int] = {}
        for place in matching.repeated:
            call = self.messages[place.message].parts[place.part]
            fresh = _fresh_id(call.call_id if isinstance(call, ToolCall) else "", taken, counts)
            for bearer in filter(None, (place, answers.get(place))):
                part = self.messages[bearer.message].parts[bearer.part]
                if isinstance(part, ToolCall | ToolResult):
                    renamed = msgspec.structs.replace(part, call_id=fresh)
                    changes.setdefault(bearer.message, {})[bearer.part] = renamed
            self.renamed += 1
        for index, parts in changes.items():
            self.messages[index] = self._rewrite(self.messages[index], parts)
            self._note(self.keys[index], _TAKEN_ID)

    def _answer(self, unanswered: Sequence[PartPlace]) -> None:
        """Puts a stub result directly after the batch of each of these calls."""
        stubs: dict[int, list[ToolResult]] = {}
        for place in unanswered:
            call = self.messages[place.message].parts[place.part]
            if isinstance(call, ToolCall):
                end = self._batch_end(place.message)
                stubs.setdefault(end, []).append(ToolResult(call.call_id, NO_RESULT, kind=_answer_kind(call)))
        self.stubbed += len(unanswered)
        self._insert(stubs)

    def _batch_end(self, index: int) -> int:
        """Returns the end of the batch of the message at `index`: after its calls and their results."""
        end = index + 1
        while end < len(self.messages) and self._continues(end):
            end += 1
        pairing = self.dialect.pairing
        return end if pairing is Pairing.ANYWHERE else results_end(self.messages, end, pairing)

    def _continues(self, index: int) -> bool:
        """Returns True if the message belongs to the calls of the one before it."""
        if self.dialect.pairing is Pairing.ANYWHERE:
            return has_call(self.messages[index])
        return self.dialect.pairing is Pairing.MERGED and self.messages[index].role is Role.ASSISTANT

    def _insert(self, stubs: Mapping[int, list[ToolResult]]) -> None:
        """Inserts results before the messages at these places; into a neighbour if results share a message."""
        share = self.dialect.results_share
        messages, keys = self.messages, self.keys
        self.messages, self.keys = [], []
        for index in range(len(messages) + 1):
            message = messages[index] if index < len(messages) else None
            results = stubs.get(index)
            if results and share is None:
                for result in results:
                    self._add(Message(Role.TOOL, (result,)))
            elif (
                results
                and self.messages
                and has_result(self.messages[-1])
                and not has_call(self.messages[-1])
            ):
                self.messages[-1] = self._add_results(self.messages[-1], results)
                self._note(self.keys[-1], _UNANSWERED)
            elif results and share is Role.USER and message is not None and message.role is Role.USER:
                message = self._add_results(message, results)
                self._note(keys[index], _UNANSWERED)
            elif results:
                self._add(Message(share or Role.TOOL, tuple(results)))
            if message is not None:
                self.messages.append(message)
                self.keys.append(keys[index])

    def _add(self, message: Message) -> None:
        self.messages.append(self._remake(message, message.parts, None))
        self.keys.append(self._new_key(_UNANSWERED))

    def drop_dangling_reasoning(self) -> None:
        dangling: list[int] = []
        follower: Message | None = None
        for index in range(len(self.messages) - 1, -1, -1):
            message = self.messages[index]
            if is_reasoning_item(message) and follower is not None and follower.role is not Role.ASSISTANT:
                dangling.append(index)
            else:
                follower = message
        self._drop(dangling, _DANGLING)

    def open_with_user(self, rule: UserOpens) -> None:
        first = first_speaker(self.messages)
        if first < len(self.messages) and not rule.may_open(self.messages[first]):
            self.messages.insert(first, Message(Role.USER, (Text(OPENING_TEXT),)))
            self.keys.insert(first, self._new_key(_NO_OPENING))
            self.stubbed += 1

    def _select(self, message: Message, order: Sequence[int]) -> Message:
        parts = tuple(message.parts[number] for number in order)
        return self._remake(
            message, parts, None if message.origin is None else self.dialect.keep(message, order)
        )

    def _rewrite(self, message: Message, changes: Mapping[int, Part]) -> Message:
        parts = tuple(changes.get(number, part) for number, part in enumerate(message.parts))
        return self._remake(
            message, parts, None if message.origin is None else self.dialect.rewrite(message, changes)
        )

    def _add_results(self, message: Message, results: Sequence[ToolResult]) -> Message:
        at = (
            max(
                (number for number, part in enumerate(message.parts) if isinstance(part, ToolResult)),
                default=-1,
            )
            + 1
        )
        parts = (*message.parts[:at], *results, *message.parts[at:])
        return self._remake(
            message, parts, None if message.origin is None else self.dialect.add_results(message, results)
        )

    def _remake(self, message: Message, parts: tuple[Part, ...], wire: dict[str, Any] | None) -> Message:
        """Returns the message with other parts, as read from the new wire object."""
        made = Message(message.role, parts)
        read = self.dialect.decode(self.dialect.build(made) if wire is None else wire)
        if wire is None and any(isinstance(part, ToolResult) and part.kind for part in parts):
            parts = read.parts  # not every kind of output can hold the text
        return Message(message.role, parts, wire, read.beside, read.written)


def _answer_kind(call: ToolCall) -> str:
    """Returns the type of output that the call needs; empty for the plain type."""
    return RESPONSES_ITEMS[call.kind].pair if call.kind in RESPONSES_ITEMS else ""


def _fresh_id(call_id: str, taken: set[str], counts: dict[str, int]) -> str:
    number = counts.get(call_id, 1) + 1
    while f"{call_id}-{number}" in taken:
        number += 1
    counts[call_id] = number
    fresh = f"{call_id}-{number}"
    taken.add(fresh)
    return fresh
