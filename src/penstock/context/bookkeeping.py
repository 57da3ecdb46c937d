"""The bill of a session as it grows: says when a compaction would pay, what each has cost, and what it has saved.

If the model's price is unknown there are no books, and only the threshold decides. The books are kept in the store with
the time of the last request, so a resumed conversation goes on as if it had never been left: its cache is cold only if
that much time has passed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from penstock.measure.prices import Money, Unknown, cost_of, price_of
from penstock.planning.economics import (
    Books,
    Caching,
    PricedRequest,
    book,
    settle,
    spend,
    terms_of,
    weigh_costs,
)
from penstock.sessions.metering import TURN_TASK

if TYPE_CHECKING:
    from penstock.measure.usage import Usage
    from penstock.planning.economics import Weighed
    from penstock.providers.cache_marks import CachePlan
    from penstock.sessions.session import Session

__all__ = ["Bookkeeper"]

_NOTES = "books"  # the name of the notes that hold books
_CLOSE_TOKENS = 256  # a size from which a compaction pays need not be known better


class _LastRequest(msgspec.Struct, frozen=True):
    """The last request that was answered: when, its tokens by our count and by the provider's, and of which view.

    `compaction` is the key of the compaction that its view rested on, 0 for the bare log, `length` that of the log.
    """

    at: float
    counted_tokens: int
    reported_tokens: int
    compaction: int
    length: int


class _KeptBooks(msgspec.Struct, frozen=True):
    """The books as the store keeps them, for the model and the caching that they are about."""

    model: str
    caching: Caching
    cache_known: bool
    last: _LastRequest
    carried: float
    bill: float
    twin_bill: float
    twin_tokens: int
    compactions: int
    grown_tokens: int


_READ_BOOKS = msgspec.json.Decoder(_KeptBooks).decode


class _BookedRequest(msgspec.Struct, frozen=True):
    """A request that is under way: the books before it, so that its report can correct it."""

    before: Books
    request: PricedRequest
    after_tokens: int | None


class Bookkeeper:
    """The books of one conversation with its present model; they continue those of an earlier process.

    `plan` says how prompts are cached: by our marks, or by the provider itself; not at all if `model.cache_ttl` is
    `off`, until a report names cached tokens. From `limit_tokens` on, a compaction always runs. `books` is None if the
    price of the model is unknown.
    """

    def __init__(self, session: Session, plan: CachePlan, limit_tokens: int) -> None:
        self._session = session
        self._model = session.row.model
        self._limit_tokens = limit_tokens
        self._asked: float | None = None  # the second at which the last request was answered or went out
        self._sent_length = 0  # of the log, when the last request was sent
        self._sent_tokens = 0  # of the last request, or of the view that took its place since
        self._new_tokens = 0  # came after the last request, and before another view took its place
        self._replaced = (
            False  # the view is not that of the last request: only what stands beside it is cached
        )
        self._pending: PricedRequest | None = None
        self._under_way: _BookedRequest | None = None
        off = session.settings.model.cache_ttl == "off"
        self._caching: Caching = (
            "none" if off else "1h" if plan.ttl == "1h" else "5m" if plan.on else "automatic"
        )
        self.books: Books | None = None
        self.resume()

    @staticmethod
    def now() -> float:
        """Returns the seconds since the epoch: a clock that the next process shares."""
        return time.time()

    def _open(self) -> Books | None:
        price = price_of(self._model)
        terms = Unknown("no price") if price is None else terms_of(price, self._caching)
        if isinstance(terms, Unknown):
            return None
        mode = self._session.settings.context.economics
        return Books(terms, self._limit_tokens, mode, cache_known=self._caching == "none")

    # Before a request, and after its answer.

    def weigh(
        self, view_tokens: int, static_tokens: int, kept_tokens: int, summary_tokens: int = 0
    ) -> Weighed | None:
        """Weighs the price of a compaction before the next request; None if prices cannot tell.

        `summary_tokens` is what a model would write for it, 0 if none would be asked.
        """
        books = self.books
        if books is None:
            return None
        self._pending = self._price(
            view_tokens, static_tokens, kept_tokens, summary_tokens, warm=self.is_warm
        )
        return None if self._replaced else weigh_costs(books, self._pending)

    def find_paying_size(
        self,
        view_tokens: int,
        static_tokens: int,
        kept_tokens: int,
        summary_tokens: int = 0,
        *,
        warm: bool | None = None,
    ) -> int | None:
        """Returns the approximate size of the next request from which on a compaction before it pays; None if none would.

        The view takes `view_tokens` now, and only grows. `warm` says how the cache is then; None for as it is now. It is
        never more than the true size, and less by a few hundred at most.
        """
        books, cached = self.books, self.is_warm if warm is None else warm
        if books is None or self._replaced:
            return None

        def compacts(tokens: int) -> bool:
            request = self._price(tokens, static_tokens, kept_tokens, summary_tokens, warm=cached)
            return weigh_costs(books, request).compact

        low, high = view_tokens, self._limit_tokens
        if low >= high or not compacts(high - 1):
            return None
        if compacts(low):
            return low
        # What comes is written to the cache anyway: the more of it, the sooner a compaction pays.
        while high - low > _CLOSE_TOKENS:
            middle = (low + high) // 2
            low, high = (low, middle) if compacts(middle) else (middle, high)
        return low

    @property
    def is_warm(self) -> bool:
        """True if the provider still has the last request in its cache."""
        return (
            self.books is not None
            and self._asked is not None
            and self.books.terms.warm(self.now() - self._asked)
        )

    def _price(
        self, view_tokens: int, static_tokens: int, kept_tokens: int, summary_tokens: int, *, warm: bool
    ) -> PricedRequest:
        came = view_tokens if self._asked is None else max(0, view_tokens - self._sent_tokens)
        appended = min(self._new_tokens + came, view_tokens)
        return PricedRequest(view_tokens, appended, static_tokens, kept_tokens, warm, summary_tokens)

    def book(self, tokens: int, *, compacted: bool) -> None:
        """Books a request of `tokens` tokens, after a compaction or unchanged."""
        if self.books is not None and self._pending is not None:
            after = tokens if compacted or self._replaced else None
            self._book(_BookedRequest(self.books, self._pending, after))
        self._pending, self._replaced = None, False
        self._asked, self._sent_tokens, self._new_tokens = self.now(), tokens, 0

    def replace_view(self, before_tokens: int, after_tokens: int) -> None:
        """Records that another view has replaced the last one.

        Between `weigh` and `book` it does nothing: `book` gets the new size.
        """
        if self._pending is not None:
            return
        under_way = self._under_way
        if under_way is not None:  # it was refused, and goes out again with that view
            self._book(msgspec.structs.replace(under_way, after_tokens=after_tokens))
        else:
            self._new_tokens += max(0, before_tokens - self._sent_tokens)
            self._replaced = True
        self._sent_tokens = after_tokens

    def settle(self, usage: Usage, counted_tokens: int, *, names_cache: bool = True) -> None:
        """Corrects the request that was booked by what the provider reports: its size, and whether its cache was warm.

        A report without a field for cached tokens says nothing about the cache, nor does a 0 before any tokens were cached.
        """
        self._learn_caching(usage)
        done, self._under_way = self._under_way, None
        books = self.books
        if books is not None and done is not None:
            self._book(_correct_size(done, usage.prompt_tokens))
            self._under_way = None
            # After a compaction with a warm cache, what stands beside the messages may be too short to be cached.
            says = done.after_tokens is None or not done.request.warm or usage.cache_read_tokens > 0
            if names_cache and books.cache_known and says and self.books is not None:
                self.books = settle(self.books, usage)
            if names_cache and done.after_tokens is not None and self.books is not None:
                self.books = _pay_for_prefix(self.books, usage)
        self._asked, self._sent_tokens = self.now(), usage.prompt_tokens
        self._sent_length = len(self._session)
        self._keep(counted_tokens, usage.prompt_tokens)

    def spend(self, model: str, usage: Usage) -> None:
        """Books the price of a summary, whether it is used or not."""
        if self.books is None:
            return
        terms, cost = self.books.terms, cost_of(usage, model)
        units = terms.bill(usage)
        if model != self._model and isinstance(cost, Money) and terms.unit_usd:
            units = float(cost.usd) / terms.unit_usd
        self._spend(units)

    def spend_unreported(self, view_tokens: int) -> None:
        """Books the prompt of a summary that was broken off: about the view, read from the cache."""
        if self.books is not None:
            self._spend(self.books.terms.read * view_tokens)

    def _spend(self, units: float) -> None:
        if self.books is None:
            return
        self.books = spend(self.books, units)
        if self._under_way is not None:
            before = spend(self._under_way.before, units)
            self._under_way = msgspec.structs.replace(self._under_way, before=before)

    @property
    def unsent_messages(self) -> int:
        """The number of messages logged since the last request; 0 if unknown, or if another view has replaced it."""
        known = self._sent_length > 0 and not self._replaced
        return max(0, len(self._session) - self._sent_length) if known else 0

    def can_pay(self, view_tokens: int, summary_tokens: int) -> bool:
        """Returns True if a summary of the cached view costs no more than compacting has saved so far.

        Always True unless `context.economics` is `gated`: only that promises never to cost more.
        """
        books = self.books
        if books is None or books.mode != "gated":
            return True
        return books.terms.summary(view_tokens, summary_tokens, warm=True) <= books.saved

    def set_limit(self, tokens: int) -> None:
        """Sets the size from which on a compaction always runs, after the window has changed."""
        self._limit_tokens = tokens
        if self.books is not None:
            self.books = msgspec.structs.replace(self.books, limit_tokens=tokens)

    def _book(self, booked: _BookedRequest) -> None:
        self._under_way = booked
        known = self.books is not None and self.books.cache_known
        before = msgspec.structs.replace(booked.before, cache_known=known)
        self.books = book(before, booked.request, booked.after_tokens)

    def _learn_caching(self, usage: Usage) -> None:
        """Learns from the first report that names cached tokens that prices are those of a cache."""
        if self.books is None or not (usage.cache_read_tokens or usage.cache_write_tokens):
            return
        if self._caching == "none":  # the settings say so, and the provider knows better
            self._caching = "automatic"
            self.books, self._under_way = self._open(), None
        if self.books is not None and not self.books.cache_known:
            self.books = msgspec.structs.replace(self.books, cache_known=True)

    # Between processes.

    def _keep(self, counted_tokens: int, reported_tokens: int) -> None:
        books, session = self.books, self._session
        if books is None:
            return
        last = _LastRequest(
            self.now(), counted_tokens, reported_tokens, session.workings.view_key, self._sent_length
        )
        kept = _KeptBooks(
            self._model,
            self._caching,
            books.cache_known,
            last,
            books.carried,
            books.bill,
            books.twin_bill,
            books.twin_tokens,
            books.compactions,
            books.grown_tokens,
        )
        name = session.row.conversation
        session.store.put_note(_NOTES, name, msgspec.json.encode(kept), session_id=name)

    def resume(self) -> None:
        """Continues with what the store has: the books, the last request, and whether cached tokens were ever reported."""
        session, kept = self._session, self._read_kept()
        self._caching = self._caching if kept is None else kept.caching
        self.books, self._pending, self._under_way = self._open(), None, None
        if self.books is None:
            return
        if kept is None:
            self._resume_from_requests()
            return
        last = kept.last
        self.books = msgspec.structs.replace(
            self.books,
            carried=kept.carried,
            bill=kept.bill,
            twin_bill=kept.twin_bill,
            twin_tokens=kept.twin_tokens,
            compactions=kept.compactions,
            grown_tokens=kept.grown_tokens,
            cache_known=kept.cache_known,
        )
        self._asked, self._sent_tokens, self._new_tokens = last.at, last.reported_tokens, 0
        self._sent_length = last.length
        self._replaced = last.compaction != session.workings.view_key
        if not self._replaced:
            session.workings.meter.restore_report(last.counted_tokens, last.reported_tokens)

    def _read_kept(self) -> _KeptBooks | None:
        """Returns the stored books; None if there are none, or if they are about another model or caching."""
        data = self._session.store.note(_NOTES, self._session.row.conversation)
        try:
            kept = _READ_BOOKS(data) if data else None
        except msgspec.DecodeError:  # written by another version
            return None
        if kept is None or kept.model != self._model:
            return None
        corrected = self._caching == "none" and kept.caching == "automatic"  # as a report has told
        return kept if corrected or kept.caching == self._caching else None

    def _resume_from_requests(self) -> None:
        """Takes the last request from the usage on record: another program may have sent it."""
        session = self._session
        rows = session.store.usage(session_id=session.id)
        turns = [
            row
            for row in rows
            if row.task == TURN_TASK and row.model == self._model and row.usage.prompt_tokens
        ]
        if self.books is None or not turns:
            return
        for row in turns:
            self._learn_caching(row.usage)
        newest = session.store.newest_compaction(session.id)
        self._asked, self._sent_tokens = turns[-1].at, turns[-1].usage.prompt_tokens
        self._replaced = newest is not None and newest.created > turns[-1].at


def _pay_for_prefix(books: Books, usage: Usage) -> Books:
    """Returns the books with all that a compacted request cost: memory may have changed its system prompt, too."""
    if books.last is None:
        return books
    paid = books.terms.bill(usage) - books.terms.output * usage.output_tokens
    return spend(books, max(0.0, paid - books.last.own))


def _correct_size(booked: _BookedRequest, reported_tokens: int) -> _BookedRequest:
    """Returns the request with the size that the provider reports: what we estimated of it is what came last."""
    if booked.after_tokens is not None:
        return msgspec.structs.replace(booked, after_tokens=reported_tokens)
    request = booked.request
    appended = request.appended_tokens + reported_tokens - request.view_tokens
    appended = min(max(0, appended), reported_tokens)
    request = msgspec.structs.replace(request, view_tokens=reported_tokens, appended_tokens=appended)
    return msgspec.structs.replace(booked, request=request)
