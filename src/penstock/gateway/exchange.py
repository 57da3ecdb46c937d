"""The seam between serving and fitting: the request that comes in, the one that goes out, and the report on its answer.

The server reads requests and relays answers; it knows nothing about conversations. A `Fitter` knows conversations but no
HTTP: it gets each request whose messages may be compacted, and returns the body to send upstream.

    outgoing = await fitter.fit(incoming)            # before the request goes upstream
    outgoing = await fitter.recover(outgoing, failure)   # after a refusal as too large; None: tell the caller
    if await fitter.wait_until_durable(outgoing): …  # before the last byte of the answer; then it is settled behind it
    waiting = fitter.settle(outgoing, report)        # else before; after `await waiting` the log is durable, or at once
                                                     # if that is None
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
    """The owner of its conversation: a digest of the caller's credential, or the id of one of our own keys."""
    endpoint: str
    """The address of the upstream that it goes to: what the gateway learns of a model is kept by model and address."""
    credential: str = msgspec.field(default="")
    """The caller's own key, for summaries by the same model; empty if it may not be used. Never logged or stored."""
    session_hint: str = ""
    """The conversation that the client names in a header. Only a hint: the messages decide."""
    agent_hint: str = ""
    """The sub-agent that the client names along with it."""
    target_tokens: int | None = None
    """From `x-penstock-target-tokens`: compact this request's messages to that size."""
    focus: str | None = None
    """From `x-penstock-focus`: the topic that gets more room in a compaction of this request."""
    store: StoreMode = "full"
    """How much of it may be kept, according to the settings, the key, or `x-penstock-store: off`."""
    counts_only: bool = False
    """True for `count_tokens`: nothing is logged, and no answer is reported."""
    compacts_only: bool = False
    """True for `POST /responses/compact`: its answer is a compaction of its messages."""
    summarises: bool = False
    """True if the client's headers say that it wants a summary for a compaction of its own."""
    opens_only: bool = False
    """From `x-penstock-open`: answer with this request, our sealed handoffs opened to plain messages; send nothing."""

    def __repr__(self) -> str:
        return f"Incoming({self.dialect}, {len(self.body):,} bytes)"  # the rest is a person's


class OwnAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of our own, without asking a provider."""

    status: int
    body: bytes
    content_type: str


class Recalling(Protocol):
    """Answers the calls of recall tools in the answer to one request."""

    async def look_up(self, calls: Sequence[Called], *, rounds: int) -> list[str]:
        """Returns the result of each call, in the round after that many others. Does not raise."""

    def write_next(self, body: bytes, woven: WovenRound, results: Sequence[str]) -> bytes:
        """Returns the body that lets the model continue from these results, after the body of the last round."""

    def refuse_room(self, calls: Sequence[Called]) -> list[str]:
        """Returns results that take almost no room, for a round that was refused for its size."""

    async def keep(self, rounds: Sequence[tuple[WovenRound, Sequence[str]]]) -> None:
        """Keeps the part of the answer that the caller did not see, for its later requests. Does not raise."""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it goes upstream."""

    body: bytes
    headers: dict[str, str] = {}
    """For the answer to the caller: `x-penstock-tokens-before`, `-tokens-after`, `-compacted`, `-session` …"""
    model: str = ""
    """The model that the request names, if the fitter has read it, for metrics and logs."""
    attempt: int = 1
    refusal: ErrorClass | None = None
    """Set if the provider has refused this very body before and it cannot be made smaller: the server does not send it
    again, and tells the caller so."""
    answer: OwnAnswer | None = None
    """Set if the request does not go upstream at all: the caller gets this answer."""
    first_item: dict[str, Any] | None = None
    """Set if the answer begins with an item or block of ours, before everything that the provider says."""
    recalling: Recalling | None = None
    """Set if the model may look things up: this answers its calls, in rounds that the caller does not see."""
    ticket: Any = None
    """The fitter's own note on the request."""


class AnswerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a request. `usage` is None if the provider reported none, or did not answer."""

    status: int
    usage: Usage | None = None
    inner_usages: tuple[Usage, ...] = ()
    """The usage of further rounds, which the caller did not see."""
    names_cache: bool = False
    """True if the report has a field for cached tokens."""
    broken_off: bool = False
    """True if the caller or the upstream left before the answer ended: the bill may be higher than the report."""
    failure: ErrorClass | None = None


class Fitter(Protocol):
    """Keeps the conversations of requests inside their window."""

    async def fit(self, incoming: Incoming) -> Outgoing:
        """Returns the request to send upstream. Does not raise: after a failure, that is the request as it came."""

    async def recover(self, outgoing: Outgoing, failure: ErrorClass) -> Outgoing | None:
        """Returns a smaller request after the provider refused this one as too large; None if there is none."""

    async def wait_until_durable(self, outgoing: Outgoing) -> bool:
        """Waits until the messages of the request are on disk; False where that failed, and settling tries again."""

    def settle(self, outgoing: Outgoing, report: AnswerReport) -> Awaitable[None] | None:
        """Records the outcome of the request; returns what to await until its messages are durable, or None if they are."""

    async def aclose(self) -> None:
        """Stops background work."""


class PassThrough:
    """Sends every request as it came, for `gateway` settings that only relay, and for tests of the server alone."""

    async def fit(self, incoming: Incoming) -> Outgoing:
        """Returns the request unchanged."""
        return Outgoing(body=incoming.body)

    async def recover(self, outgoing: Outgoing, failure: ErrorClass) -> Outgoing | None:
        """Returns None: nothing can be made smaller."""

    async def wait_until_durable(self, outgoing: Outgoing) -> bool:  # noqa: ARG002 - the protocol's
        """Returns True: nothing is kept."""
        return True

    def settle(self, outgoing: Outgoing, report: AnswerReport) -> Awaitable[None] | None:
        """Does nothing."""

    async def aclose(self) -> None:
        """Does nothing."""
