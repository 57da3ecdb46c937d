"""Fits requests: finds the conversation of each, sends its compacted view, and has a worker log and compact beside.

A request of a known conversation costs a scan of its body and a look-up. It waits for a worker only where a compaction may
be due or pay, by what the worker said after the last answer (`ViewStanding`). Else its new messages are logged while the
provider already works on it, and `settle` waits until they are durable.

`tracking` knows conversations and their workers, `sending` writes what goes out, `asked_compactions` answers clients that
ask for a compaction by a provider's protocol or by a call of their own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import xxhash

from penstock._log import log
from penstock.errors import ErrorKind, PenstockError
from penstock.gateway.asked_compactions import AskedCompactions, pass_through
from penstock.gateway.client_compactions import recognise
from penstock.gateway.compactions import concerns_compaction
from penstock.gateway.exchange import Outgoing
from penstock.gateway.recalling import Recaller
from penstock.gateway.sending import write_sent_body
from penstock.gateway.splicing import read_body
from penstock.gateway.tracking import LostConversation, Ticket, Tracker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.errors import ErrorClass
    from penstock.gateway.client_compactions import ClientCompaction
    from penstock.gateway.exchange import AnswerReport, Incoming
    from penstock.gateway.matching import KnownConversation, Match
    from penstock.gateway.splicing import RequestBody
    from penstock.gateway.tracking import ReadRequest
    from penstock.gateway.workers import Workers
    from penstock.settings import GatewaySettings

__all__ = ["ConversationFitter"]

_NOTICE_CHARS = 500


class ConversationFitter:
    """A `Fitter` over worker processes. One for a process; it belongs to the event loop.

    `clock` tells the seconds by which a provider's cache goes cold.
    """

    def __init__(
        self, settings: GatewaySettings, workers: Workers, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._workers = workers
        self._tracker = Tracker(
            workers,
            most_bytes=settings.memory_mb << 20,
            recalls=settings.recall,
            on_forgotten=self._forget,
            clock=clock,
        )
        self._asked = AskedCompactions(settings, self._tracker, workers, self._fit_body)
        self._refused: dict[str, tuple[bytes, ErrorClass]] = {}
        """By conversation: the digest of the body that the provider refused last as too large, and its refusal."""

    @property
    def conversations(self) -> int:
        """The number of conversations in memory."""
        return self._tracker.conversations

    @property
    def memory_bytes(self) -> int:
        """About how much memory they take."""
        return self._tracker.memory_bytes

    # Before a request.

    async def fit(self, incoming: Incoming) -> Outgoing:
        """Returns the request as it should go upstream; as it came where anything fails, and a header says so."""
        body = read_body(incoming.body, incoming.dialect)
        if body is None:
            return Outgoing(body=incoming.body)
        try:
            if incoming.compacts_only or incoming.opens_only or concerns_compaction(body):
                return await self._asked.answer(incoming, body)
            summary = recognise(body, told=incoming.summarises)
            if summary is not None and not incoming.counts_only:
                return await self._serve_summary(incoming, body, summary)
            return await self._fit_body(incoming, body)
        except PenstockError as error:
            log.warning("a request is passed on unchanged: %s", error)
            return pass_through(incoming, error)

    async def _serve_summary(
        self, incoming: Incoming, body: RequestBody, summary: ClientCompaction
    ) -> Outgoing:
        """Answers a client that wants a summary with a handoff, or has the provider summarise what was really said."""
        answered = await self._asked.answer_summary(incoming, body, summary)
        if answered is not None:
            return answered
        outgoing = await self._fit_body(incoming, body)
        ticket = outgoing.ticket
        if not isinstance(ticket, Ticket) or not ticket.known.prefix.covers:
            return outgoing
        return _send_originals(outgoing, ticket)

    async def _fit_body(self, incoming: Incoming, body: RequestBody) -> Outgoing:
        found = self._tracker.read(incoming, body)
        if found is None:
            return Outgoing(body=incoming.body)
        request, match = found
        if incoming.counts_only:
            return await self._fit_for_count(request, match)
        return await self._fit_request(request, match)

    async def _fit_request(self, request: ReadRequest, match: Match | None) -> Outgoing:
        tracker = self._tracker
        known = await tracker.find(request, match)
        compacted, notice = False, ""
        for _ in range(2):
            known = known or await tracker.open(request)
            if not tracker.must_ask(request, known):
                tracker.log_beside(request, known)
                break
            if (asked := await tracker.ask(request, known)) is not None:
                compacted, notice = asked.compacted, asked.notice
                break
            known = None  # its worker was started again: open it anew, once
        if known is None:
            raise LostConversation("its worker ended twice")
        tracker.take_request(request, known)
        outgoing = self._send(request, known, compacted=compacted)
        if not notice:
            return outgoing
        return msgspec.structs.replace(
            outgoing, headers={**outgoing.headers, "x-penstock-notice": _as_header(notice)}
        )

    async def _fit_for_count(self, request: ReadRequest, match: Match | None) -> Outgoing:
        """Returns a request that is only counted with the view that would be sent; nothing of it is logged."""
        known = await self._tracker.find(request, match) or await self._tracker.look(request)
        return Outgoing(body=request.incoming.body if known is None else _write(request, known))

    def _send(
        self, request: ReadRequest, known: KnownConversation, *, compacted: bool, attempt: int = 1
    ) -> Outgoing:
        body = _write(request, known)
        digest = xxhash.xxh3_128_digest(body)
        standing = known.standing
        waiting = int(known.unsized_bytes / standing.bytes_per_token)
        tokens = standing.tokens + waiting
        refused = self._refused.get(known.id)
        ticket = Ticket(request=request, known=known, sent_tokens=tokens, digest=digest)
        return Outgoing(
            body=body,
            model=request.outside.model,
            headers={
                "x-penstock-session": known.id,
                "x-penstock-tokens-before": str(max(tokens, standing.tokens_before + waiting)),
                "x-penstock-tokens-after": str(tokens),
                "x-penstock-compacted": "now" if compacted else "before" if known.prefix.covers else "no",
            },
            attempt=attempt,
            refusal=refused[1] if refused is not None and refused[0] == digest else None,
            recalling=Recaller(self._tracker, self._workers, ticket) if request.recalls else None,
            ticket=ticket,
        )

    # After a request.

    async def recover(self, outgoing: Outgoing, failure: ErrorClass) -> Outgoing | None:
        """Returns a smaller request after the provider refused this one; None where there is none."""
        ticket = outgoing.ticket
        if not isinstance(ticket, Ticket):
            return None
        request, known = ticket.request, ticket.known
        if failure.kind is not ErrorKind.OUTPUT_CAP_TOO_LARGE:
            self._refused[known.id] = (ticket.digest, failure)
        try:
            if len(request.seen) < known.length:
                # An earlier request: a compaction of the conversation may cover more than it has.
                known = await self._tracker.open(request)
                ticket = msgspec.structs.replace(ticket, known=known)
            answer = await self._tracker.recover(ticket, failure, outgoing.attempt)
        except PenstockError as error:
            log.warning("a refused request could not be made smaller: %s", error)
            return None
        if answer is None:
            return None
        again = self._send(request, known, compacted=answer.compacted, attempt=outgoing.attempt + 1)
        if answer.max_output_tokens is not None:
            return msgspec.structs.replace(again, body=_write(request, known, answer.max_output_tokens))
        if xxhash.xxh3_128_digest(again.body) == ticket.digest:
            return None  # it would be refused again
        return again

    async def wait_until_durable(self, outgoing: Outgoing) -> bool:
        """Waits until the messages of the request are logged; False where its worker has lost them."""
        ticket = outgoing.ticket
        return not isinstance(ticket, Ticket) or await self._tracker.wait_for_log(ticket)

    def settle(self, outgoing: Outgoing, report: AnswerReport) -> Awaitable[None] | None:
        """Records the outcome of the request; returns what to await until its messages are durable, None if they are."""
        ticket = outgoing.ticket
        if not isinstance(ticket, Ticket):
            return None
        self._tracker.note_usage(ticket, report)
        return None if self._tracker.is_durable(ticket) else self._tracker.wait_until_durable(ticket)

    def _forget(self, conversation: str) -> None:
        self._refused.pop(conversation, None)

    async def finish_beside(self) -> None:
        """Waits for all that was ordered beside requests."""
        await self._tracker.finish_beside()

    async def aclose(self) -> None:
        """Waits for what was ordered, and ends the workers."""
        await self.finish_beside()
        await self._workers.aclose()


def _as_header(notice: str) -> str:
    """Returns a notice as a header can say it."""
    return "".join(char if " " <= char <= "~" else "?" for char in notice)[:_NOTICE_CHARS]


def _send_originals(outgoing: Outgoing, ticket: Ticket) -> Outgoing:
    """Returns the request as it came, where that fits; where it is refused after all, its view is sent."""
    body, standing = ticket.request.incoming.body, ticket.known.standing
    tokens = standing.tokens_before
    if standing.window_tokens and tokens >= standing.window_tokens:
        return outgoing
    told = {"x-penstock-tokens-after": str(tokens), "x-penstock-compacted": "no"}
    sent = msgspec.structs.replace(
        ticket, sent_tokens=tokens, digest=xxhash.xxh3_128_digest(body), originals=True
    )
    return msgspec.structs.replace(
        outgoing, body=body, headers={**outgoing.headers, **told}, refusal=None, ticket=sent
    )


def _write(request: ReadRequest, known: KnownConversation, max_output_tokens: int | None = None) -> bytes:
    return write_sent_body(
        request.incoming.body,
        request.body,
        request.seen,
        known,
        max_output_tokens,
        changed=request.recalls,
    )
