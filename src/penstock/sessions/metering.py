"""Meters the requests of a session: estimates the next one, books the last one, and learns from it for the next time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import decode_all
from penstock.conversation.message import Message, Role, Text, ToolCall
from penstock.conversation.pairing import Pairing, match
from penstock.conversation.rules import check, legal_cuts
from penstock.engine.learned import Learned
from penstock.errors import PenstockError
from penstock.measure.calibration import RunningEstimate
from penstock.measure.prices import Money, cost_of, price_of
from penstock.measure.weigh import weigh
from penstock.measure.windows import resolve_window
from penstock.providers.address import read_address
from penstock.providers.presets import PRESETS
from penstock.stores.values import LogTip, UsageRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.conversation.dialects import Dialect
    from penstock.measure.tokens import Tokenizer
    from penstock.measure.usage import Usage
    from penstock.measure.windows import Window
    from penstock.sessions.session import Session
    from penstock.stores.store import Store

__all__ = ["SUMMARY_TASK", "TURN_TASK", "CountedView", "Meter", "WindowListings", "price_request"]

_LISTING_SECONDS = 5.0  # to wait for a provider's list of models
_MOST_LISTINGS = 2  # a server that loads a model when it is first used knows no window before
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
        """Returns the model's window and its source; never more than its provider has stated in an error."""
        learned = self.learned.window(self.model, self.endpoint) if self.model else None
        return resolve_window(
            self.model or None, configured=configured, learned=learned, listed=listed, stated_limit=learned
        )

    def estimate(self, counted_tokens: int) -> int:
        """Returns what the provider would report for a prompt that we count as `counted_tokens`.

        That is its last report, plus what was added since.
        """
        running = self._running.recount(counted_tokens)
        return running.tokens(self.learned.calibration(self.model, self.endpoint))

    def count(self, reported_tokens: int) -> int:
        """Returns our count of a prompt that the provider reports as `reported_tokens`."""
        return self.learned.calibration(self.model, self.endpoint).count(reported_tokens)

    def record(self, row: UsageRow, counted_tokens: int) -> None:
        """Books a request; learns from it if this model answered it and our count of its prompt is known."""
        self._store.book(row)
        reported = row.usage.prompt_tokens
        if not self.model or row.model != self.model or reported <= 0:
            return
        self.learned.accept_prompt(self.model, self.endpoint, reported)
        if counted_tokens > 0:
            self.learned.observe(self.model, self.endpoint, counted_tokens, reported)
            self._running = RunningEstimate(counted_tokens).report(reported)

    def restore_report(self, counted_tokens: int, reported_tokens: int) -> None:
        """Takes the last report from an earlier process."""
        self._running = RunningEstimate(counted_tokens).report(reported_tokens)

    def forget_report(self) -> None:
        """Drops the last report, because the prompt is now another one."""
        self._running = RunningEstimate()


class WindowListings:
    """The windows that providers list for the models of one session. Each is asked for twice at most."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._asked: dict[tuple[str, str], int] = {}  # by model and address

    async def ask(self, model: Any) -> bool:
        """Sets the window that the provider lists for the session's model; returns True if it lists one.

        `model` is anything with `window_tokens()`. Does not ask if the settings or a refusal have stated the window already.
        Raises nothing: without an answer, nothing changes.
        """
        session, ask = self._session, getattr(model, "window_tokens", None)
        key = session.row.model, session.endpoint
        asked = self._asked.get(key, 0)
        if ask is None or asked >= _MOST_LISTINGS or not _may_listing_know_more(session):
            return False
        self._asked[key] = asked + 1
        try:
            async with asyncio.timeout(_LISTING_SECONDS):
                found = await ask()
        except (PenstockError, TimeoutError):
            return False
        if found is None or key != (session.row.model, session.endpoint):
            return False
        session.workings.listed_window = found
        return True


def _may_listing_know_more(session: Session) -> bool:
    """Returns True if a provider's list of models may know more than our own table, which covers the large providers."""
    source = session.window.source
    if source in ("config", "learned", "listing"):
        return False
    published = (read_address(preset.base_url) for preset in PRESETS.values() if preset.base_url)
    hosts = {address.hostname for address in published if not address.loopback}
    return source != "table" or read_address(session.endpoint).hostname not in hosts


def price_request(session_id: str, usage: Usage, model: str, *, at: float, task: str = TURN_TASK) -> UsageRow:
    """Returns a request as it is booked, with its cost by the prices of its day; None if that is unknown.

    A request without any usage was broken off, or its provider reports none: its cost is unknown.
    """
    price = price_of(model, on=time.strftime("%Y-%m-%d", time.gmtime(at))) if model else None
    cost = cost_of(usage, price)
    usd = float(cost.usd) if isinstance(cost, Money) and usage.total_tokens else None
    return UsageRow(session=session_id, at=at, model=model, task=task, usage=usage, cost=usd)


class CountedView(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The tokens of a view that can be sent, and the state needed to count on as messages are logged.

    This is the count of `Session.view`, which mends a broken log with every message anew; it holds no more of the view than
    its last round. A host that holds the whole view adds up what it logs (`context.live_view`); the two agree on every log that
    breaks no rule.

    `compaction` is the key of the compaction that the view rests on, 0 for the bare log; `tip` is the end of the log that it
    covers. `last_round` has the messages from the last point at which nothing was under way: it includes a call whose results
    may still come, with the results so far. `opens` is True if the view begins there. `call_ids` and
    `newer_call_ids` are those of all calls, if no id may be used twice; the newer ones are separate so that an append
    copies few of them. `broken` is True if the log breaks a rule, and the view is mended.
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
        """Returns the count with these messages logged after it, at the cost of these messages, not of the view.

        Returns None if the log breaks a rule: the repairs may change with every message, so that the view has
        to be counted anew.
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
    """Returns the ids of all calls, if no later call may have one of them."""
    if dialect.pairing not in _IDS_ARE_UNIQUE:
        return frozenset()
    return frozenset(
        part.call_id for message in messages for part in message.parts if isinstance(part, ToolCall)
    )
