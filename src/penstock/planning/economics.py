"""Decides whether a compaction pays: compares the price of a broken cache with that of carrying old tokens.

A rewritten prompt must be written to the cache again, but later requests no longer read the dropped tokens. The
rule needs no forecast: it compacts once carrying the droppable tokens has cost as much as dropping them would.
With its gate, it also keeps the bill of a twin, which gets the same tokens at the same times and compacts only
when it must. It then allows a compaction only while our own bill does not exceed the twin's.

Amounts are in *units*, the price of one uncached input token. Everything is a value, and a request costs O(1).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from penstock.measure.prices import Unknown

if TYPE_CHECKING:
    from penstock.measure.prices import ModelPrice
    from penstock.measure.usage import Usage

__all__ = [
    "Books",
    "Caching",
    "PriceTerms",
    "PricedRequest",
    "Weighed",
    "Why",
    "book",
    "settle",
    "spend",
    "step",
    "terms_of",
    "weigh_costs",
]

_LEAST_DROPPED_TOKENS = 5_000
"""A compaction that drops less is not worth the change to the conversation."""
_LEAST_NEW_TOKENS = 5_000
"""New tokens since the last compaction, below which prices alone do not cause another one."""

Caching: TypeAlias = Literal["5m", "1h", "automatic", "none"]
"""The ways to cache a prompt: by marks, for 5 minutes or an hour; by the provider itself; not at all.
"""
Mode: TypeAlias = Literal["off", "gated", "on"]

_TTL_SECONDS = {"5m": 300.0, "1h": 3_600.0, "automatic": 300.0, "none": 0.0}


class PriceTerms(msgspec.Struct, frozen=True):
    """The prices of tokens, in units, and the seconds for which a prefix stays cached."""

    read: float
    """For a token that is read from the cache."""
    write: float
    """For a token that was not in the cache."""
    output: float
    """For a token that the model writes."""
    ttl_seconds: float
    unit_usd: float | None = None
    """The worth of a unit; None if unknown."""

    def warm(self, gap_seconds: float) -> bool:
        """Returns True if the last prompt is still cached after that time."""
        return gap_seconds <= self.ttl_seconds

    def prompt(self, view_tokens: float, appended_tokens: float, *, warm: bool) -> float:
        """Returns the price of a prompt; all but the appended tokens were sent before."""
        if not warm:
            return self.write * view_tokens
        return self.read * (view_tokens - appended_tokens) + self.write * appended_tokens

    def summary(self, view_tokens: float, summary_tokens: int, *, warm: bool) -> float:
        """Returns the price of a model's summary of that many tokens; 0 if no model is asked."""
        if not summary_tokens:
            return 0.0
        return (self.read if warm else 1.0) * view_tokens + self.output * summary_tokens

    def bill(self, usage: Usage) -> float:
        """Returns the price of a request and its answer, as the provider reported them."""
        return (
            usage.input_tokens
            + self.read * usage.cache_read_tokens
            + self.write * usage.cache_write_tokens
            + self.output * usage.output_tokens
        )


def terms_of(price: ModelPrice, caching: Caching, *, prompt_tokens: int = 0) -> PriceTerms | Unknown:
    """Returns the terms of a model's price; `prompt_tokens` matters if prices depend on the size of the prompt."""
    if price.input is None or price.output is None:
        return Unknown(f"no price for {price.model!r}")
    unit = price.input.at(prompt_tokens)
    if not unit:
        return Unknown(f"{price.model!r} costs nothing, so nothing can be saved")
    read = price.cache_read or price.input
    write = price.input
    if caching == "5m":
        write = price.cache_write or price.input
    elif caching == "1h":
        if price.cache_write and not price.cache_write_1h:
            return Unknown(f"no price for 1-hour cache writes of {price.model!r}")
        write = price.cache_write_1h or price.input
    elif caching == "none":
        read = price.input
    return PriceTerms(
        read=float(read.at(prompt_tokens) / unit),
        write=float(write.at(prompt_tokens) / unit),
        output=float(price.output.at(prompt_tokens) / unit),
        ttl_seconds=_TTL_SECONDS[caching],
        unit_usd=float(unit) / 1_000_000,
    )


class PricedRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that is about to be sent.

    `view_tokens` is its whole size; `appended_tokens` the part that was not in the request before; `static_tokens`
    the system prompt and the tools, which a compaction leaves alone; `kept_tokens` the part of the rest that a
    compaction would keep: handoff and tail. `summary_tokens` is the part of the handoff that a model would write,
    0 for an extractive handoff.
    """

    view_tokens: int
    appended_tokens: int
    static_tokens: int
    kept_tokens: int
    warm: bool
    summary_tokens: int = 0

    @property
    def droppable_tokens(self) -> int:
        """The tokens that a compaction would drop; negative if there are fewer than it keeps."""
        return self.view_tokens - self.static_tokens - self.kept_tokens


class Why(StrEnum):
    """The reason for a decision of the rule."""

    LIMIT = "limit"  # compact: the threshold is reached
    PAYS = "pays"  # compact: carrying on has cost as much as compacting will
    FREE = "free"  # compact: this very request becomes cheaper
    OFF = "off"
    UNKNOWN = "unknown"  # no report yet says whether the provider caches
    LITTLE = "little"  # too few tokens to drop, or too few new ones
    EARLY = "early"  # carrying on has cost too little yet
    GATE = "gate"  # our bill would pass the twin's

    @property
    def compacts(self) -> bool:
        """True for a reason to compact."""
        return self in _COMPACTING


_COMPACTING = frozenset((Why.LIMIT, Why.PAYS, Why.FREE))


class Weighed(msgspec.Struct, frozen=True, gc=False):
    """A decision and its basis, in units: for the receipt, and, in `reason`, for people.

    `cost` is the effect of compacting now on the bill of this request (below 0: a saving). `carried` is the cost of
    carrying droppable tokens since the last compaction, and `room` the distance of our bill to the twin's.
    `summary_tokens` is the maximum that a model may write, 0 if none may be asked.
    """

    why: Why
    droppable_tokens: int
    cost: float
    carried: float
    room: float
    warm: bool
    summary_tokens: int = 0

    @property
    def compact(self) -> bool:
        """True if the conversation should be compacted before this request."""
        return self.why.compacts

    @property
    def reason(self) -> str:  # noqa: PLR0911  # one for each word
        """The reason, in a sentence for people."""
        dropped, cost, carried = f"{self.droppable_tokens:,} tokens", _units(self.cost), _units(self.carried)
        match self.why:
            case Why.LIMIT:
                return "the threshold is reached"
            case Why.PAYS:
                return f"carrying {dropped} that could go has cost {carried} by now, as much as compacting ({cost})"
            case Why.FREE:
                expired = "" if self.warm else "the provider's cache has expired, so "
                return f"{expired}sending {dropped} less makes this request cheaper at once, by {_units(-self.cost)}"
            case Why.UNKNOWN:
                return (
                    "no report has named cached tokens yet, so what compacting would cost is not known "
                    "(without any cache, set model.cache_ttl to off)"
                )
            case Why.LITTLE if self.droppable_tokens >= _LEAST_DROPPED_TOKENS:
                return f"fewer than {_LEAST_NEW_TOKENS:,} tokens have come since the last compaction"
            case Why.LITTLE:
                return f"only {max(0, self.droppable_tokens):,} tokens could go; from {_LEAST_DROPPED_TOKENS:,} on it is weighed"
            case Why.EARLY:
                return f"carrying {dropped} that could go has cost {carried} so far, compacting would cost {cost}"
            case Why.GATE:
                return (
                    f"compacting would cost {cost}, and only {_units(self.room)} are saved so far: "
                    "the bill could end above that of not compacting"
                )
            case _:
                return "prices do not decide (context.economics is off)"

    def to_dict(self) -> dict[str, Any]:
        """Returns the decision as JSON, for the receipt."""
        return {
            "why": self.why.value,
            "reason": self.reason,
            "droppable_tokens": self.droppable_tokens,
            "cost_units": round(self.cost, 1),
            "carried_units": round(self.carried, 1),
            "room_units": round(self.room, 1),
            "warm": self.warm,
        }


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """The booking of the last request, so that a report can correct it."""

    request: PricedRequest
    own: float
    twin: float
    carried: float
    twin_before_tokens: int
    grown_before_tokens: int
    after_tokens: int | None
    summary_tokens: int


class Books(msgspec.Struct, frozen=True, gc=False):
    """The accounts of one conversation with one model; a new model opens new books.

    From `limit_tokens` on (the threshold), a compaction always runs. `carried` is the cost of carrying droppable
    tokens since the last compaction, `grown_tokens` the growth since then. `bill` and `twin_bill` add up all prompts
    and summaries so far, ours and the twin's. Without `cache_known` the cost of a broken cache is unknown, and only
    the limit decides.
    """

    terms: PriceTerms
    limit_tokens: int
    mode: Mode = "gated"
    carried: float = 0.0
    bill: float = 0.0
    twin_bill: float = 0.0
    twin_tokens: int = 0
    compactions: int = 0
    last: _Entry | None = None
    grown_tokens: int = 0
    cache_known: bool = True

    @property
    def saved(self) -> float:
        """The units that compacting has saved so far; below 0 if it has not paid yet."""
        return self.twin_bill - self.bill

    @property
    def saved_usd(self) -> float | None:
        """The same in dollars; None if unknown."""
        return None if self.terms.unit_usd is None else self.saved * self.terms.unit_usd


def step(books: Books, request: PricedRequest) -> tuple[Books, Weighed]:
    """Decides before a request, and books it as decided: `weigh_costs`, then `book`."""
    weighed = weigh_costs(books, request)
    after = request.static_tokens + request.kept_tokens if weighed.compact else None
    return book(books, request, after, summary_tokens=weighed.summary_tokens), weighed


def weigh_costs(books: Books, request: PricedRequest) -> Weighed:
    """Decides whether to compact before this request. Below the limit, `gated` asks no model."""
    terms, warm, dropped = books.terms, request.warm, request.droppable_tokens
    at_limit = request.view_tokens >= books.limit_tokens
    own = terms.prompt(request.view_tokens, request.appended_tokens, warm=warm)
    kept = request.static_tokens + request.kept_tokens
    asked = 0 if books.mode == "gated" and not at_limit else request.summary_tokens
    cost = _price_compacted(terms, kept, request) + terms.summary(request.view_tokens, asked, warm=warm) - own
    twin, _ = _twin(books, request)
    room = books.twin_bill + twin - books.bill - own
    if at_limit and dropped > 0:
        why = Why.LIMIT
    elif books.mode == "off":
        why = Why.OFF
    elif not books.cache_known:
        why = Why.UNKNOWN
    elif dropped < _LEAST_DROPPED_TOKENS or _is_too_soon(books, request):
        why = Why.LITTLE
    elif books.carried < cost:
        why = Why.EARLY
    elif books.mode == "gated" and cost > room:
        why = Why.GATE
    else:
        why = Why.FREE if cost <= 0 else Why.PAYS
    return Weighed(why, dropped, cost, books.carried, room, warm, asked)


def _is_too_soon(books: Books, request: PricedRequest) -> bool:
    """Returns True if too little is new since the last compaction for prices to cause another one."""
    return books.compactions > 0 and books.grown_tokens + request.appended_tokens < _LEAST_NEW_TOKENS


def spend(books: Books, units: float) -> Books:
    """Returns the books after another expense, such as a summary, whether it is used or not."""
    return msgspec.structs.replace(books, bill=books.bill + units)


def book(
    books: Books, request: PricedRequest, after_tokens: int | None = None, *, summary_tokens: int = 0
) -> Books:
    """Returns the books after a request was sent: unchanged, or compacted to a view of `after_tokens`.

    `summary_tokens` is the length of a model's text for that compaction, 0 if none was asked.
    """
    terms, warm = books.terms, request.warm
    twin, twin_tokens = _twin(books, request)
    if after_tokens is None:
        own = terms.prompt(request.view_tokens, request.appended_tokens, warm=warm)
        carried = (terms.read if warm else terms.write) * max(0, request.droppable_tokens)
        total = books.carried + carried
        grown = books.grown_tokens + request.appended_tokens
    else:
        own = _price_compacted(terms, after_tokens, request)
        own += terms.summary(request.view_tokens, summary_tokens, warm=warm)
        carried = total = 0.0
        grown = 0
    entry = _Entry(
        request, own, twin, carried, books.twin_tokens, books.grown_tokens, after_tokens, summary_tokens
    )
    return Books(
        terms,
        books.limit_tokens,
        books.mode,
        total,
        books.bill + own,
        books.twin_bill + twin,
        twin_tokens,
        books.compactions + (after_tokens is not None),
        entry,
        grown,
        books.cache_known,
    )


def settle(books: Books, usage: Usage) -> Books:
    """Returns the books after the response: the provider's report shows whether the cache was warm.

    If that was assumed correctly, nothing changes. Otherwise the last request is booked again, for us and for the
    twin.
    """
    entry = books.last
    if entry is None:
        return books
    request = entry.request
    expected = (
        request.view_tokens - request.appended_tokens if entry.after_tokens is None else request.static_tokens
    )
    warm = expected > 0 and usage.cache_read_tokens * 2 >= expected
    if warm == request.warm:
        return books
    undone = msgspec.structs.replace(
        books,
        carried=books.carried - entry.carried,
        bill=books.bill - entry.own,
        twin_bill=books.twin_bill - entry.twin,
        twin_tokens=entry.twin_before_tokens,
        grown_tokens=entry.grown_before_tokens,
        compactions=books.compactions - (entry.after_tokens is not None),
    )
    again = msgspec.structs.replace(request, warm=warm)
    return book(undone, again, entry.after_tokens, summary_tokens=entry.summary_tokens)


def _price_compacted(terms: PriceTerms, after_tokens: int, request: PricedRequest) -> float:
    """Returns the price of the compacted prompt: its static prefix is still cached, the rest is new."""
    fresh = after_tokens - request.static_tokens
    return terms.prompt(after_tokens, fresh, warm=request.warm)


def _twin(books: Books, request: PricedRequest) -> tuple[float, int]:
    """Returns the price and the tokens of this request for the twin, which compacts only at the limit."""
    terms, warm = books.terms, request.warm
    begins = not books.twin_tokens  # the twin begins as we are
    view = request.view_tokens if begins else books.twin_tokens + request.appended_tokens
    kept = request.static_tokens + request.kept_tokens
    if view < books.limit_tokens or view <= kept:
        return terms.prompt(view, request.appended_tokens, warm=warm), view
    summary = terms.summary(view, request.summary_tokens, warm=warm)
    return _price_compacted(terms, kept, request) + summary, kept


def _units(amount: float) -> str:
    return f"{amount:,.0f} units"
