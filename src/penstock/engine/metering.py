"""What the requests of a session take: estimated before, booked after, and learned from for the next time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from penstock.engine.learned import Learned
from penstock.measure.prices import Money, cost_of, price_of
from penstock.measure.running import RunningEstimate
from penstock.measure.windows import resolve_window
from penstock.stores.base import UsageRow

if TYPE_CHECKING:
    from penstock.measure.usage import Usage
    from penstock.measure.windows import Window
    from penstock.stores.base import Store

__all__ = ["Meter", "booked"]


class Meter:
    """The meter of one model at one endpoint, which are set before it is used."""

    def __init__(self, store: Store, model: str) -> None:
        self.model = model
        self.endpoint = ""
        self.learned = Learned(store)
        self._store = store
        self._running = RunningEstimate()

    def window(self, configured: int | None, listed: int | None = None) -> Window:
        """The model's window, and how it is known."""
        learned = self.learned.window(self.model, self.endpoint) if self.model else None
        return resolve_window(self.model or None, configured=configured, learned=learned, listed=listed)

    def estimate(self, counted_tokens: int) -> int:
        """What the provider would report for a prompt of so many tokens as we count: the last report, and what came since."""
        running = msgspec.structs.replace(self._running, counted_tokens=counted_tokens)
        return running.tokens(self.learned.calibration(self.model, self.endpoint))

    def record(self, row: UsageRow, counted_tokens: int) -> None:
        """Book a request; learn from it where this model answered it, and where it is known what was counted for it."""
        self._store.book(row)
        reported = row.usage.prompt_tokens
        if not self.model or row.model != self.model or reported <= 0:
            return
        self.learned.took_prompt(self.model, self.endpoint, reported)
        if counted_tokens > 0:
            self.learned.observe(self.model, self.endpoint, counted_tokens, reported)
            self._running = RunningEstimate(counted_tokens, reported, counted_tokens)

    def forget_report(self) -> None:
        """The prompt is another one than that of the last report."""
        self._running = RunningEstimate()


def booked(session_id: str, usage: Usage, model: str, *, at: float, task: str = "turn") -> UsageRow:
    """A request as it is booked, with what it cost by the prices of its day, None where that is not known."""
    price = price_of(model, on=time.strftime("%Y-%m-%d", time.gmtime(at))) if model else None
    cost = cost_of(usage, price)
    usd = float(cost.usd) if isinstance(cost, Money) else None
    return UsageRow(session=session_id, at=at, model=model, task=task, usage=usage, cost=usd)
