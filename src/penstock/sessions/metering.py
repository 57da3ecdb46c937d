"""Meters the requests of a session: estimates the next one, books what one has used, and learns from it for the next time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import decode_all
from penstock.conversation.message import Message, Role, Text, ToolCall
from penstock.conversation.pairing import Pairing, match
from penstock.conversation.rules import check, legal_cuts
from penstock.engine.learned import Learned
from penstock.measure.prices import Money, cost_of, price_of
from penstock.measure.running import RunningEstimate
from penstock.measure.weigh import weigh
from penstock.measure.windows import resolve_window
from penstock.stores.values import LogTip, UsageRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.conversation.dialects import Dialect
    from penstock.measure.tokens import Tokenizer
    from penstock.measure.usage import Usage
    from penstock.measure.windows import Window
    from penstock.stores.store import Store

__all__ = ["SUMMARY_TASK", "TURN_TASK", "CountedView", "Meter", "price_request"]

TURN_TASK, SUMMARY_TASK = "turn", "summary"
"""What a request was for: it sent the view to be answered, or it asked for a summary of it."""


class Meter:
    """The meter of one model at one endpoint, which are set before it is used."""

    def __init__(self, store: Store, model: str) -> None:
        self.model = model
        self.endpoint = ""
        self.learned = Learned(store)
        self._store = store
        self._running = RunningEstimate()

    def window(self, configured: int | None, listed: int | None = None) -> Window:
        """Returns the model's window, and how it is known: never more than its provider has stated in an error."""
        learned = self.learned.window(self.model, self.endpoint) if self.model else None
        return resolve_window(
            self.model or None, configured=configured, learned=learned, listed=listed, stated_limit=learned
        )

    def estimate(self, counted_tokens: int) -> int:
        """Returns what the provider would report for a prompt of so many tokens as we count: its last report, and what came since."""
        running = self._running.recount(counted_tokens)
        return running.tokens(self.learned.calibration(self.model, self.endpoint))

    def count(self, reported_tokens: int) -> int:
        """Returns what we count in a prompt that the provider reports as so many tokens."""
        return self.learned.calibration(self.model, self.endpoint).count(reported_tokens)

    def record(self, row: UsageRow, counted_tokens: int) -> None:
        """Books a request; learns from it where this model answered it and what we counted for it is known."""
        self._store.book(row)
        reported = row.usage.prompt_tokens
        if not self.model or row.model != self.model or reported <= 0:
            return
        self.learned.accept_prompt(self.model, self.endpoint, reported)
        if counted_tokens > 0:
            self.learned.observe(self.model, self.endpoint, counted_tokens, reported)
            self._running = RunningEstimate(counted_tokens).report(reported)

    def restore_report(self, counted_tokens: int, reported_tokens: int) -> None:
        """Takes a report that an earlier process got for the last one."""
        self._running = RunningEstimate(counted_tokens).report(reported_tokens)

    def forget_report(self) -> None:
        """Drops the last report: the prompt has become another one."""
        self._running = RunningEstimate()


def price_request(session_id: str, usage: Usage, model: str, *, at: float, task: str = TURN_TASK) -> UsageRow:
    """Returns a request as it is booked, with its cost by the prices of its day, None where that is not known.

    What used nothing was broken off, or its provider reports nothing.
    """
    price = price_of(model, on=time.strftime("%Y-%m-%d", time.gmtime(at))) if model else None
    cost = cost_of(usage, price)
    usd = float(cost.usd) if isinstance(cost, Money) and usage.total_tokens else None
    return UsageRow(session=session_id, at=at, model=model, task=task, usage=usage, cost=usd)


class CountedView(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The tokens of a view that can be sent, and what it takes to count on as messages are logged.

    `compaction` is the key of the compaction that the view rests on, 0 for the bare log; `tip` the end of the log that it
    reaches to. `last_round` are its messages from the last place on at which nothing is under way: a call whose results may
    still come is in it, with the results that have come. `opens` says that the view begins there. `call_ids` and
    `newer_call_ids` are those of all calls, where no id may be used twice; the newer ones stand apart so that an append
    copies few of them. `broken` says that the log breaks a rule, and the view is mended.
    """

    compaction: int
    tip: LogTip
    tokens: int
    last_round: Sequence[Any]
    opens: bool
    call_ids: frozenset[str]
    newer_call_ids: frozenset[str] = frozenset()
    broken: bool

    @classmethod
    def of(
        cls, wires: Sequence[Any], tokens: int, dialect: Dialect, *, compaction: int, tip: LogTip
    ) -> CountedView:
        """Returns the count of a view that was counted whole: `wires` as the log gives it, `tokens` as it is sent."""
        messages = decode_all(dialect, wires)
        start = _last_round(messages, dialect)
        return cls(
            compaction=compaction,
            tip=tip,
            tokens=tokens,
            last_round=wires[start:],
            opens=start == 0,
            call_ids=_find_unique_ids(messages, dialect),
            broken=bool(check(messages, dialect.rules)),
        )

    def extend(
        self, wires: Sequence[Any], dialect: Dialect, tokenizer: Tokenizer, tip: LogTip
    ) -> CountedView | None:
        """Returns the count with these messages logged after it. Costs what they cost, not what the view does.

        None where the log breaks a rule: what is mended, and how, may change with every message, so that the view has
        to be counted whole.
        """
        if self.broken:
            return None
        tail = [*self.last_round, *wires]
        messages = decode_all(dialect, tail)
        later = messages[len(self.last_round) :]
        ids = _find_unique_ids(later, dialect)
        # Whatever stands before the last round is whole: for the rules, a word of the user does as well.
        before = [] if self.opens else [_ANY_REQUEST]
        reused = not (self.call_ids.isdisjoint(ids) and self.newer_call_ids.isdisjoint(ids))
        if reused or check([*before, *messages], dialect.rules):
            return None
        start = _last_round(messages, dialect)
        known, newer = self.call_ids, self.newer_call_ids | ids
        if len(newer) > _MOST_NEWER_IDS:
            known, newer = known | newer, frozenset()
        return msgspec.structs.replace(
            self,
            tip=tip,
            tokens=self.tokens + sum(weigh(later, tokenizer)),
            last_round=tail[start:],
            opens=self.opens and start == 0,
            call_ids=known,
            newer_call_ids=newer,
        )


_ANY_REQUEST = Message(Role.USER, (Text("-"),), origin={})
_IDS_ARE_UNIQUE = (Pairing.MERGED, Pairing.ANYWHERE)  # a call may not have the id of any call before it
_MOST_NEWER_IDS = 500  # that are copied with each append, before all are put together


def _last_round(messages: Sequence[Message], dialect: Dialect) -> int:
    """Returns the last place but the end at which the list may be cut and no call before it waits for a result."""
    waiting = min((place.message for place in match(messages, dialect.pairing).open), default=len(messages))
    cuts = legal_cuts(messages, dialect.rules)
    return max((cut for cut in cuts if cut <= waiting and cut < len(messages)), default=0)


def _find_unique_ids(messages: Iterable[Message], dialect: Dialect) -> frozenset[str]:
    """Returns the ids of all calls, where no later call may have one of them."""
    if dialect.pairing not in _IDS_ARE_UNIQUE:
        return frozenset()
    return frozenset(
        part.call_id for message in messages for part in message.parts if isinstance(part, ToolCall)
    )
