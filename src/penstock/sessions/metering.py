"""What the requests of a session take: estimated before, booked after, and learned from for the next time."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.engine.compress import CompressRequest, new_notebook
from penstock.engine.learned import Learned
from penstock.measure.prices import Money, cost_of, price_of
from penstock.measure.running import RunningEstimate
from penstock.measure.usage import Usage, normalise_usage
from penstock.measure.weigh import weigh
from penstock.measure.windows import resolve_window
from penstock.stores.values import UsageRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.errors import ErrorClass
    from penstock.measure.windows import Window
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow
    from penstock.writing.notebook import Notebook

__all__ = ["Meter", "MeteredSession", "booked"]


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
        self.learned.accept_prompt(self.model, self.endpoint, reported)
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


# What the requests of a session take: counted, estimated, booked, and what is learned of its model.


class MeteredSession(ABC):
    """The side of a session that is about tokens and money.

    `endpoint` is the address that the session's model is at: what is learned of a model is kept by both. `listed_window` is
    the window that the provider's list of models states for it, where a host has asked.
    """

    def __init__(self, store: Store, row: SessionRow, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.endpoint = ""
        self.listed_window: int | None = None
        self._row = row
        self._notebook: Notebook = new_notebook(row.model or None, settings)
        self._meter = Meter(store, row.model)

    @abstractmethod
    def view(self) -> list[Any]:
        """What the model is to be sent."""

    @property
    def window(self) -> Window:
        """The window of the session's model, and how it is known."""
        configured = self.settings.model.window_of(self._row.model)
        return self._metered().window(configured, self.listed_window)

    def estimate(self, *, tools: Sequence[Any] | None = None, system: Any = None) -> int:
        """Tokens that the provider would report for a request with the present view, and with these tools beside it.

        What it reported last counts, with what came since; before that, our own count, as far as it was seen to be off.
        """
        return self._metered().estimate(self.count(tools=tools, system=system))

    def count(self, *, tools: Sequence[Any] | None = None, system: Any = None) -> int:
        """Tokens of that request as we count them."""
        outside = self.weigh_outside(tools=tools, system=system)
        return outside + sum(self._notebook.weigh(self.view(), dialect_named(self._row.dialect)))

    def weigh(self, messages: Sequence[Any]) -> int:
        """Tokens of messages as we count them."""
        decoded = decode_all(dialect_named(self._row.dialect), messages)
        return sum(weigh(decoded, self._notebook.tokenizer))

    def weigh_outside(self, *, tools: Sequence[Any] | None = None, system: Any = None) -> int:
        """Tokens of what stands beside the messages of a request, as we count them."""
        request = CompressRequest(tools=tools, system=system, settings=self.settings)
        return request.goal(self._notebook.tokenizer).outside_tokens

    def expected(self, counted_tokens: int) -> int:
        """Tokens that the provider would report for a request of the view that we count so many in."""
        return self._metered().estimate(counted_tokens)

    def record_usage(
        self,
        usage: Usage | Mapping[str, Any],
        counted_tokens: int = 0,
        *,
        model: str = "",
        task: str = "turn",
    ) -> UsageRow:
        """Book what a request used and cost, and learn from it how the provider counts; what was booked.

        `usage` is what the provider reported, in any shape. `counted_tokens` is what `count` gave for that request, where
        it was one of the present view. `model` is the one that answered, where it is not the session's.
        """
        reported = usage if isinstance(usage, Usage) else normalise_usage(usage)
        row = booked(self._row.id, reported, model or self._row.model, at=time.time(), task=task)
        self._metered().record(row, counted_tokens)
        return row

    def forget_report(self) -> None:
        """The view was replaced beside the store: what a provider reported last says nothing about the next request."""
        self._meter.forget_report()

    def learn_window(self, failure: ErrorClass) -> bool:
        """Keep the window that a provider's error states for the session's model; whether it stated one.

        `penstock.classify_error` reads errors.
        """
        if not failure.window_tokens or not self._row.model:
            return False
        self._metered().learned.learn_window(self._row.model, self.endpoint, failure.window_tokens)
        return True

    @property
    def output_cap(self) -> int | None:
        """The most tokens of an answer that the provider lets the session's model be asked for, as far as it has said so."""
        return self._metered().learned.output_cap(self._row.model, self.endpoint) if self._row.model else None

    def learn_output_cap(self, failure: ErrorClass) -> bool:
        """Keep the most tokens of an answer that a provider's error states for the session's model; whether it stated any.

        What an error leaves after the prompt is that of one request, and is not kept.
        """
        if not failure.output_cap_tokens or failure.window_tokens or not self._row.model:
            return False
        self._metered().learned.learn_output_cap(self._row.model, self.endpoint, failure.output_cap_tokens)
        return True

    def _metered(self) -> Meter:
        self._meter.model, self._meter.endpoint = self._row.model, self.endpoint
        return self._meter
