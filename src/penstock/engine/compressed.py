"""A compacted conversation as callers get it: the new list, the receipt, and every original by its handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.conversation.handles import HandleKind, parse_handle
from penstock.errors import UnknownHandle
from penstock.planning.plan import Fate, Verdict, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.conversation.message import Message
    from penstock.planning.compact import CompactionResult
    from penstock.planning.plan import Plan
    from penstock.planning.receipt import Receipt
    from penstock.writing.notebook import Opened
    from penstock.writing.transcript import Transcript

__all__ = ["AddedMessage", "Compressed"]


class AddedMessage(NamedTuple):
    """A message that repair added to the input: a stub for a lost result, or an opening.

    Its number is 0 in a log.
    """

    number: int
    role: str
    reason: str


class Compressed:
    """A compacted conversation.

    `messages` has the dialect and shape of the input; what was kept is the caller's own objects. `receipt`
    says what was done, `verdicts` what became of each message and why.
    """

    __slots__ = (
        "_numbers",
        "_opened",
        "_origins",
        "_plan",
        "_read",
        "_removed_tokens",
        "_tokens",
        "_transcript",
        "messages",
        "receipt",
    )

    def __init__(
        self, opened: Opened, result: CompactionResult, seconds: float, *, logged: bool = False
    ) -> None:
        self.messages: list[Any] = result.encoded
        self.receipt: Receipt = msgspec.structs.replace(result.receipt, seconds=round(seconds, 6))
        self._plan = result.plan
        self._numbers = opened.transcript.numbers
        self._read = opened.transcript.messages
        self._tokens = opened.transcript.tokens
        self._origins = opened.transcript.origins
        self._transcript = opened.transcript if logged else None  # large: only a log has a use for it
        self._opened = opened.opened
        self._removed_tokens = opened.removed_tokens

    def __repr__(self) -> str:
        return f"<Compressed {self.receipt.outcome}: {len(self.messages)} messages, {self.receipt.tokens_after} tokens>"

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The fate of each message of the input and the reason for it, in the order of the input."""
        if self._plan is not None:
            judged = verdicts(self._plan, self._numbers, self._tokens)
        else:
            judged = tuple(
                Verdict(place, number, Fate.KEPT, "nothing to do", tokens, tokens)
                for place, (number, tokens) in enumerate(zip(self._numbers, self._tokens, strict=True))
            )
        changed = self._opened.changed
        told = [
            Verdict(index, 0, Fate.REPAIRED, f"left out by repair: {reason}", self._removed_tokens[index], 0)
            for index, reason in self._opened.removed.items()
        ]
        for place, (one, source) in enumerate(zip(judged, self.sources, strict=True)):
            if source is not None:
                reason = f"{one.reason}; repaired first" if place in changed else one.reason
                told.append(msgspec.structs.replace(one, position=source, reason=reason))
        return tuple(sorted(told, key=_position_of))

    @property
    def added(self) -> tuple[AddedMessage, ...]:
        """The messages that repair put into the input, in order; no verdict speaks of them."""
        return tuple(
            AddedMessage(self._numbers[place], self._read[place].role.value, reason)
            for place, reason in self._opened.added.items()
        )

    @property
    def plan(self) -> Plan | None:
        """The plan that was carried out, by positions of the opened list; None where nothing was done."""
        return self._plan

    @property
    def transcript(self) -> Transcript | None:
        """The input as it was read and mended; None unless the caller gave numbers, as for a log."""
        return self._transcript

    @property
    def sources(self) -> Sequence[int | None]:
        """The index in what was given of each message of the opened list; None for one that was not given."""
        return self._opened.sources

    @property
    def originals(self) -> Iterable[tuple[int, Any]]:
        """Every message of the input with its number."""
        return zip(self._numbers, self._origins, strict=True)

    @property
    def read(self) -> Sequence[tuple[int, Message]]:
        """Every message of the input as it was read, with its number; 0 for a handoff."""
        return tuple(zip(self._numbers, self._read, strict=True))

    @property
    def handles(self) -> tuple[str, ...]:
        """Every handle by which an original can be asked for."""
        names = tuple(f"m{number}" for number, origin in self.originals if number and origin is not None)
        return (*names, HandleKind.HANDOFF.value) if self.receipt.summarised else names

    def original(self, handle: str) -> Any:
        """Returns the message that a stub stands for, as it was given.

        For "handoff" it is the list of all messages that the handoff stands for. Raises UnknownHandle for a
        handle that names nothing here.
        """
        asked = parse_handle(handle)
        if asked.kind is HandleKind.HANDOFF and self._plan is not None and self.receipt.summarised:
            return [origin for place, origin in enumerate(self._origins) if place not in self._plan.sizes]
        if asked.kind is HandleKind.MESSAGE:
            for known, origin in self.originals:
                if known == asked.number and origin is not None:
                    return origin
        raise UnknownHandle(
            f"there is no original {handle!r} here; handles are m1, m2 and so on, or 'handoff'"
        )


def _position_of(verdict: Verdict) -> int:
    return verdict.position
