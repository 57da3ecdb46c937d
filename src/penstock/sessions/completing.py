"""Completes a compaction that was prepared in the background with the values that the agent has used since.

While a draft waits to be put in place, the agent continues with the view that the draft was made of. The values that it
uses from there are the best forecast of what it needs next. Those that the draft lacks are added to its handoff, in
whole lines of their originals, before it replaces that view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.view import Compaction, Handoff, Rewritten
from penstock.sessions.quality import Speech, Utterance, find_uses, hear_messages, hold_values
from penstock.writing.excerpts import excerpts, lay_out_redacted
from penstock.writing.handoff import (
    HandoffEntry,
    HandoffSection,
    join_context,
    parse_handoff,
    render_handoff,
    split_context,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from penstock.conversation.view import Piece, ViewMessage
    from penstock.sessions.drafts import CompactionDraft

__all__ = ["CompletedDraft", "CompletionLimits", "complete_draft", "find_lacking", "find_missed"]

_MOST_VALUES = 40  # those used last: what was used longer ago has mostly been dealt with
_LONGEST_LINE = 300  # characters: of a longer line, a sentence
_MOST_RESTORED = 8  # messages that are tried: each is weighed with the whole view
_GIVES_WAY = 0.1  # of the handoff: older excerpts leave so much room at most
_OF_THE_AGENT = (Speech.AGENT, Speech.LOOKUP)
_PEOPLE = "user"  # the label of what people said, which does not give way


class CompletionLimits(msgspec.Struct, frozen=True):
    """The most tokens that the view of a draft may take, and how messages and texts are counted and redacted."""

    target_tokens: int
    weigh: Callable[[Sequence[Any]], int]
    count: Callable[[str], int]
    redact: Callable[[str], str]


class CompletedDraft(msgspec.Struct, frozen=True, eq=False):
    """A completed draft: what was added, the tokens of its view, and the number of values it was completed with.

    `facts_gained` is the number of values that its view has more than before: fewer if excerpts had to give way.
    """

    draft: CompactionDraft
    view_tokens: int
    facts_added: int
    facts_gained: int


def find_lacking(draft: CompactionDraft) -> frozenset[str]:
    """Returns the values that stood in the view that a draft was made of, and do not stand in the draft's own view."""
    dialect = draft.base.view.dialect
    return _values_of(draft.base.view.messages, dialect) - _values_of(draft.messages, dialect)


def find_missed(later: Sequence[ViewMessage], lacking: frozenset[str], dialect: str) -> list[str]:
    """Returns the values among `lacking` that the agent has used in these messages, the last one used first.

    Values that a tool or a person has mentioned since need no place in the handoff: their messages follow it in full.
    """
    heard = _hear_all(later, dialect)
    told = hold_values(one for spoken in heard for one in spoken if one.speech not in _OF_THE_AGENT)
    uses = [values for spoken in heard for values in find_uses(spoken)]
    found = (next((value for value in values if value in lacking), "") for values in reversed(uses))
    return [value for value in dict.fromkeys(found) if value and value not in told][:_MOST_VALUES]


def complete_draft(
    draft: CompactionDraft, missed: Sequence[str], limits: CompletionLimits
) -> CompletedDraft | None:
    """Returns the draft with these values added, the first ones first.

    Lines of the originals that hold them go into the handoff. If there is no room, some of the oldest excerpts of
    tools and of the agent give way; nodes of an outline do not. A draft without a handoff gets back messages that it had
    shortened. The view keeps its order and its roles, and stays within the target. Returns None if nothing can be added:
    another engine wrote the handoff, redaction removes the values, or there is no room even then.
    """
    handoffs = [at for at, piece in enumerate(draft.compaction.pieces) if isinstance(piece, Handoff)]
    if handoffs:
        changed = _add_lines(draft, handoffs[0], missed, limits)
    else:
        changed = _restore_messages(draft, missed, limits)
    if changed is None:
        return None
    before, after = (_values_of(one.messages, one.base.view.dialect) for one in (draft, changed))
    return CompletedDraft(
        changed,
        limits.weigh(changed.wires),
        facts_added=sum(value in after for value in missed),
        facts_gained=len(after) - len(before),
    )


def _add_lines(
    draft: CompactionDraft,
    at: int,
    missed: Sequence[str],
    limits: CompletionLimits,
) -> CompactionDraft | None:
    """Returns the draft with lines that hold the values in its handoff, which is the piece at this place."""
    handoff = draft.compaction.pieces[at]
    if not isinstance(handoff, Handoff) or handoff.written is not None:
        return None
    before, excerpted = split_context(handoff.summary.text)
    room = limits.target_tokens - limits.weigh(draft.wires)
    taken, standing = _choose(_quote_originals(draft, missed, limits.redact), excerpted, room, limits.count)
    while taken:
        context = sorted([*standing, *taken], key=lambda entry: entry.number)
        summary = msgspec.structs.replace(handoff.summary, text=join_context(before, context))
        changed = _replace_piece(draft, at, msgspec.structs.replace(handoff, summary=summary))
        if limits.weigh(changed.wires) <= limits.target_tokens:
            return changed
        taken.pop()  # texts do not take together what they take one by one
    return None


def _restore_messages(
    draft: CompactionDraft, missed: Sequence[str], limits: CompletionLimits
) -> CompactionDraft | None:
    """Returns the draft with messages that hold the values as they stood in the view it was made of."""
    view = draft.base.view
    stood = {piece.position: piece for piece in view.pieces if not isinstance(piece, Handoff)}
    spoken = dict(zip(view.positions, _hear_all(view.messages, view.dialect), strict=True))
    changed, tries, told = draft, 0, frozenset[str]()
    for value in missed:
        for at, piece in reversed(list(enumerate(changed.compaction.pieces))):
            if value in told or tries == _MOST_RESTORED:
                break
            if not isinstance(piece, Rewritten) or not any(
                value in one.text for one in spoken[piece.position]
            ):
                continue
            tries += 1
            one = _replace_piece(changed, at, stood[piece.position])
            if limits.weigh(one.wires) <= limits.target_tokens:
                changed, told = one, told | hold_values(spoken[piece.position]).values
    return None if changed is draft else changed


def _choose(
    wanted: Iterator[HandoffEntry],
    standing: Sequence[HandoffEntry],
    room: int,
    count: Callable[[str], int],
) -> tuple[list[HandoffEntry], list[HandoffEntry]]:
    """Returns the wanted entries that fit, and the excerpts that remain beside them."""
    listed = list(wanted)
    spare = int(_GIVES_WAY * count(render_handoff(standing)))
    yielding = _YieldingExcerpts(standing, hold_values(map(_say, listed)).values, count)
    taken: list[HandoffEntry] = []
    for entry in listed:
        cost = count(render_handoff([entry])) + 1
        if cost > room + spare:
            continue
        while cost > room and (freed := yielding.drop_line()):
            room, spare = room + freed, spare - freed
        if cost <= room:
            taken.append(entry)
            room -= cost
    return taken, yielding.entries


class _YieldingExcerpts:
    """Excerpts that give way line by line, the oldest first, each from its end.

    Excerpts of people stay, and so does an excerpt with a value that is needed.
    """

    def __init__(
        self, standing: Sequence[HandoffEntry], needed: frozenset[str], count: Callable[[str], int]
    ) -> None:
        self._standing = list(standing)
        self._count = count
        self._may_go = [
            at
            for at, entry in enumerate(standing)
            if entry.label != _PEOPLE and needed.isdisjoint(hold_values([_say(entry)]).values)
        ]
        self._may_go.reverse()  # so that the oldest is the last

    @property
    def entries(self) -> list[HandoffEntry]:
        """The entries that still stand."""
        return [entry for entry in self._standing if entry.text]

    def drop_line(self) -> int:
        """Removes one line; returns the tokens that this frees, 0 if no line is left to remove."""
        if not self._may_go:
            return 0
        at = self._may_go[-1]
        entry = self._standing[at]
        rest, _, line = entry.text.rpartition("\n")
        rest = rest.rstrip("\n")  # a blank line sets places apart: none is left at the end
        self._standing[at] = msgspec.structs.replace(entry, text=rest)
        if rest:
            return self._count(line) + 1
        self._may_go.pop()
        return self._count(render_handoff([entry]))


def _quote_originals(
    draft: CompactionDraft, values: Sequence[str], redact: Callable[[str], str]
) -> Iterator[HandoffEntry]:
    """Yields an entry for each value that no earlier entry holds: its line in the newest original.

    Originals of tools and people come before those of the agent.
    """
    originals = list(_list_originals(draft, redact))
    originals.sort(key=lambda one: (one.speech is Speech.AGENT, -one.number))
    told: set[str] = set()
    for value in values:
        entry = next((entry for one in originals if (entry := one.quote(value)) is not None), None)
        if entry is not None and value not in told:
            told |= hold_values([_say(entry)]).values
            yield entry


class _Original(msgspec.Struct, frozen=True):
    """A text of the view that the draft was made of."""

    number: int
    label: str
    speech: Speech
    raw: str
    redact: Callable[[str], str]

    def quote(self, value: str) -> HandoffEntry | None:
        """Returns the first line that holds the value, or the sentence of a long one, without secrets."""
        if value not in self.raw:
            return None
        laid = lay_out_redacted(self.raw, self.redact).text
        for line in laid.split("\n"):
            if value in line and value in hold_values([Utterance(Speech.OTHER, line)]):
                pieces = [line.strip()] if len(line) <= _LONGEST_LINE else excerpts(line)
                text = next((piece for piece in pieces if value in piece), "")
                return HandoffEntry(HandoffSection.CONTEXT, self.number, text, self.label) if text else None
        return None


def _list_originals(draft: CompactionDraft, redact: Callable[[str], str]) -> Iterator[_Original]:
    view = draft.base.view
    for message, spoken in zip(view.messages, _hear_all(view.messages, view.dialect), strict=True):
        if message.position is None:
            continue
        for one in spoken:
            if (
                one.speech is not Speech.OTHER
            ):  # reasoning is not quoted; a system prompt stands in every view
                yield _Original(message.position + 1, _label(one), one.speech, one.text, redact)
    for piece in view.pieces:
        if isinstance(
            piece, Handoff
        ):  # of an earlier compaction: what it quotes is not in this view any more
            for entry in parse_handoff(piece.summary.text):
                if entry.number:
                    yield _Original(entry.number, entry.label, Speech.OTHER, entry.text, redact)


def _label(spoken: Utterance) -> str:
    """Returns the speaker, as handoffs say it."""
    match spoken.speech:
        case Speech.PERSON:
            return _PEOPLE
        case Speech.AGENT | Speech.LOOKUP:
            return f"{spoken.label} call" if spoken.label else "assistant"
        case Speech.TOOL | Speech.RECALL:
            return spoken.label or "tool"
        case _:
            return ""


def _replace_piece(draft: CompactionDraft, at: int, piece: Piece) -> CompactionDraft:
    """Returns the draft with another piece at this place."""
    old = draft.compaction
    compaction = Compaction(old.base, old.length, (*old.pieces[:at], piece, *old.pieces[at + 1 :]))
    messages = draft.base.view.replace(compaction.pieces).messages
    return msgspec.structs.replace(draft, compaction=compaction, messages=messages)


def _say(entry: HandoffEntry) -> Utterance:
    return Utterance(Speech.OTHER, entry.text)


def _values_of(messages: Sequence[ViewMessage], dialect: str) -> frozenset[str]:
    return hold_values(one for spoken in _hear_all(messages, dialect) for one in spoken).values


def _hear_all(messages: Sequence[ViewMessage], dialect: str) -> list[list[Utterance]]:
    return list(hear_messages(decode_all(dialect_named(dialect), [message.wire for message in messages])))
