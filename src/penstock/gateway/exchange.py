"""The seam between serving and fitting: a request as it came, as it goes out, and what is told of its answer.

The server reads requests and relays answers; it knows nothing of conversations. A `Fitter` knows conversations and no
HTTP: it is handed each request whose messages may be compacted, and gives the body to send upstream.

    outgoing = await fitter.fit(incoming)            # before the request goes upstream
    outgoing = await fitter.recover(outgoing, failure)   # where it was refused as too large; None: tell the caller
    waiting = fitter.settle(outgoing, report)        # before the last byte of the answer; after `await waiting` the log
                                                     # is durable, at once where there is nothing to wait for
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from penstock.errors import ErrorClass  # noqa: TC001 - a struct's field types are read at run time
from penstock.measure.usage import Usage  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from penstock.gateway.weaving import WovenRound
    from penstock.providers.exchange import Called

__all__ = [
    "AnswerReport",
    "Fitter",
    "Incoming",
    "Outgoing",
    "OwnAnswer",
    "PassThrough",
    "Recalling",
    "StoreMode",
    "WireDialect",
]

WireDialect: TypeAlias = Literal["chat", "responses", "anthropic"]
StoreMode: TypeAlias = Literal["full", "digests", "off"]


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """One request with messages, as its caller sent it."""

    dialect: WireDialect
    body: bytes
    owner: str
    """The owner who finds its conversation again: a digest of the caller's credential, or the id of one of our own keys."""
    endpoint: str
    """The address of the upstream that it goes to: what is learned of a model is kept by both."""
    credential: str = msgspec.field(default="")
    """The caller's own key, for summaries by the same model; empty where it may not be used. Never logged or stored."""
    session_hint: str = ""
    """The conversation that the client names by a header; only a hint, the messages decide."""
    agent_hint: str = ""
    """The sub-agent that the client names beside it."""
    target_tokens: int | None = None
    """From `x-penstock-target-tokens`: compact this request's messages to so many."""
    focus: str | None = None
    """From `x-penstock-focus`: the topic that a compaction of this request gives more room."""
    store: StoreMode = "full"
    """How much of it may be kept: by the settings, the key, or `x-penstock-store: off`."""
    counts_only: bool = False
    """True for `count_tokens`: nothing is logged, and no answer is reported."""
    compacts_only: bool = False
    """True for `POST /responses/compact`: its answer is a compaction of its messages."""
    summarises: bool = False
    """True where the client's headers say that it wants a summary for a compaction of its own."""
    opens_only: bool = False
    """From `x-penstock-open`: the answer is this request with our sealed handoffs as plain messages; nothing is sent."""

    def __repr__(self) -> str:
        return f"Incoming({self.dialect}, {len(self.body):,} bytes)"  # the rest is a person's


class OwnAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of our own, for which no provider is asked."""

    status: int
    body: bytes
    content_type: str


class Recalling(Protocol):
    """Answers the calls of recall tools in the answer to one request."""

    async def look_up(self, calls: Sequence[Called], *, rounds: int) -> list[str]:
        """Returns what each call gives, in the round behind so many others. Raises nothing."""

    def write_next(self, body: bytes, woven: WovenRound, results: Sequence[str]) -> bytes:
        """Returns the body with which the model goes on from these results, behind the body of the last round."""

    def refuse_room(self, calls: Sequence[Called]) -> list[str]:
        """Returns results that take next to no room, for a round that was refused for its size."""

    async def keep(self, rounds: Sequence[tuple[WovenRound, Sequence[str]]]) -> None:
        """Keeps what the caller did not see of the answer, for its later requests. Raises nothing."""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it goes upstream."""

    body: bytes
    headers: dict[str, str] = {}
    """For the answer to the caller: `x-penstock-tokens-before`, `-tokens-after`, `-compacted`, `-session` …"""
    model: str = ""
    """The model that the request names, where the fitter has read it: for metrics and logs."""
    attempt: int = 1
    refusal: ErrorClass | None = None
    """Set where the provider has refused this very body before and it cannot be made smaller: it is not sent again, and
    the caller is told so."""
    answer: OwnAnswer | None = None
    """Set where it does not go upstream at all: the caller gets this."""
    first_item: dict[str, Any] | None = None
    """Set where the answer begins with an item or block of ours, before all that the provider says."""
    recalling: Recalling | None = None
    """Set where the model may look things up: this answers its calls, in rounds of which the caller sees nothing."""
    ticket: Any = None
    """The fitter's own note of it."""


class AnswerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a request. `usage` is None where the provider reported none, or did not answer."""

    status: int
    usage: Usage | None = None
    inner_usages: tuple[Usage, ...] = ()
    """Of further rounds, which the caller did not see."""
    names_cache: bool = False
    """True where the report has a field for cached tokens."""
    broken_off: bool = False
    """True where the caller or the upstream left before the answer had ended: more may be billed than was reported."""
    failure: ErrorClass | None = None


class Fitter(Protocol):
    """Keeps the conversations of requests inside their window."""

    async def fit(self, incoming: Incoming) -> Outgoing:
        """Returns the request as it should go upstream. Raises nothing: what fails goes out as it came, and a header says so."""

    async def recover(self, outgoing: Outgoing, failure: ErrorClass) -> Outgoing | None:
        """Returns a smaller request after the provider refused this one as too large; None where there is none."""

    def settle(self, outgoing: Outgoing, report: AnswerReport) -> Awaitable[None] | None:
        """Takes in what became of the request; returns what to wait for until its messages are durable, None if they are."""

    async def aclose(self) -> None:
        """Ends what runs beside."""


class PassThrough:
    """Sends every request as it came: for `gateway` settings that only relay, and for tests of the server alone."""

    async def fit(self, incoming: Incoming) -> Outgoing:
        """Returns the request unchanged."""
        return Outgoing(body=incoming.body)

    async def recover(self, outgoing: Outgoing, failure: ErrorClass) -> Outgoing | None:
        """Returns None: nothing can be made smaller."""

    def settle(self, outgoing: Outgoing, report: AnswerReport) -> Awaitable[None] | None:
        """Has nothing to take in."""

    async def aclose(self) -> None:
        """Has nothing to end."""
