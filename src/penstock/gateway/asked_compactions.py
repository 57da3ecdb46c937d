"""Answers clients that have their provider or their model compact, and opens the handoffs that they carry.

`compactions` and `client_compactions` read and write the forms; here a request is led through them: what it brings is
unsealed, what it asks for is written by a worker, and what is left of it goes on to be fitted as any other.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from penstock._log import log
from penstock.conversation.wire import encode_wire
from penstock.errors import ErrorKind, PenstockError
from penstock.gateway.client_compactions import answer_in_form
from penstock.gateway.compactions import (
    answer_compact,
    answer_pause,
    answer_trigger,
    drop_request,
    find_tokens,
    open_items,
    read_asked,
    write_item,
)
from penstock.gateway.exchange import Outgoing, OwnAnswer
from penstock.gateway.orders import Failed, NotOpen, Unseal, Unsealed, Write, WrittenHandoff
from penstock.gateway.splicing import put_messages, slice_messages, write_body
from penstock.gateway.tracking import LostConversation, Ticket, explain_failure
from penstock.providers.error_answers import ErrorCase, write_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.gateway.client_compactions import ClientCompaction
    from penstock.gateway.compactions import CompactionAsked
    from penstock.gateway.exchange import Incoming
    from penstock.gateway.matching import KnownConversation
    from penstock.gateway.sealing import Sealed
    from penstock.gateway.splicing import RequestBody
    from penstock.gateway.tracking import ReadRequest, Tracker
    from penstock.gateway.workers import Workers
    from penstock.settings import GatewaySettings

__all__ = ["AskedCompactions", "pass_through"]

_MOST_OPENED = 256  # handoffs that clients carry and whose text is in memory
_CANNOT_OPEN = (
    "a compaction in this request was made by a Penstock gateway and cannot be opened here: it was changed, belongs to "
    "another key, or its seal's key is gone; leave it out to go on without it"
)


class _Followed(msgspec.Struct, frozen=True):
    """A handoff that a client has carried: the first `behind` messages of the request are it, and what stays beside it."""

    sealed: Sealed
    behind: int


class AskedCompactions:
    """The providers' compaction protocols for one gateway.

    `fit` is called with what is left of a request once its handoffs were opened: it is fitted as any other.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        tracker: Tracker,
        workers: Workers,
        fit: Callable[[Incoming, RequestBody], Awaitable[Outgoing]],
    ) -> None:
        self._tracker = tracker
        self._workers = workers
        self._fit = fit
        self._answers_itself = settings.compaction != "provider"
        self._answers_clients = settings.answer_client_compactions
        self._asks_provider = settings.compaction == "ours-then-provider"
        self._opened: OrderedDict[tuple[str, str], Sealed] = OrderedDict()

    async def answer(self, incoming: Incoming, body: RequestBody) -> Outgoing:
        """Opens the handoffs that a client has carried, and answers where it asks for a compaction; fits what is left."""
        messages = slice_messages(body.listed)
        if messages is None:
            return Outgoing(body=incoming.body)
        followed = None
        tokens = find_tokens(messages, body.dialect)
        if tokens:
            try:
                opened = await self._unseal(incoming.owner, max(tokens.items())[1])
            except PenstockError as error:  # the provider would refuse it, and the client forget it
                return _refuse_compaction(incoming, error)
            if opened is None:
                return _refuse(incoming, _CANNOT_OPEN, status=400, kind=ErrorKind.BAD_REQUEST)
            messages, behind = open_items(messages, body.dialect, opened.text, max(tokens), set(tokens))
            incoming, body = _replace_messages(incoming, body, messages)
            followed = _Followed(opened, behind)
        if incoming.opens_only:
            return Outgoing(
                body=b"", answer=OwnAnswer(status=200, body=incoming.body, content_type="application/json")
            )
        try:
            return await self._answer_or_fit(incoming, body, messages, followed)
        except PenstockError as error:
            log.warning("a request goes through with its handoffs opened: %s", error)
            return pass_through(incoming, error)

    async def _unseal(self, owner: str, token: str) -> Sealed | None:
        """Returns what is in a token; None where it is none of this owner's."""
        found = self._opened.get((owner, token))
        if found is None:
            answer = await self._workers.give(Unseal(owner=owner, tokens=(token,)))
            if not isinstance(answer, Unsealed):
                raise LostConversation(explain_failure(answer))
            found = answer.found[0]
            if found is None:
                return None
            self._opened[owner, token] = found
            while len(self._opened) > _MOST_OPENED:
                self._opened.popitem(last=False)
        self._opened.move_to_end((owner, token))
        return found

    async def _answer_or_fit(
        self, incoming: Incoming, body: RequestBody, messages: Sequence[bytes], followed: _Followed | None
    ) -> Outgoing:
        """Answers a request for a compaction where that is ours; fits any other."""
        asked = None
        if self._answers_itself and not incoming.counts_only:
            asked = read_asked(body, messages, endpoint=incoming.compacts_only)
        if asked is None:
            if incoming.compacts_only:
                return Outgoing(body=incoming.body)
            return await self._fit(incoming, body)
        rest = drop_request(body, messages, asked)
        incoming = msgspec.structs.replace(incoming, body=write_body(rest))
        try:
            if asked.form == "passing":
                return await self._compact_in_passing(incoming, rest, asked, followed)
            return await self._compact_now(incoming, rest, asked, followed)
        except PenstockError as error:
            if self._asks_provider or asked.form == "passing":
                raise
            return _refuse_compaction(incoming, error)

    async def _compact_now(
        self, incoming: Incoming, body: RequestBody, asked: CompactionAsked, followed: _Followed | None
    ) -> Outgoing:
        """Answers with a compaction of all that the request has."""
        found = self._tracker.read(incoming, body)
        if found is None:
            return Outgoing(body=incoming.body)
        request, match = found
        known = await self._tracker.find(request, match) or await self._tracker.open(request)
        self._tracker.log_beside(request, known)
        written = await self._write(request, known, _order(request, known, asked, followed))
        number = secrets.token_hex(12)
        item = write_item(written.token, written.text, body.dialect, number)
        if asked.form == "trigger":
            answer = answer_trigger(item, body, number, int(time.time()), written.tokens)
        else:
            messages = list(request.seen.slice_all())
            answer = answer_compact(item, messages, number, int(time.time()), written.tokens)
        return _own_answer(answer, body, known, written)

    async def _compact_in_passing(
        self, incoming: Incoming, body: RequestBody, asked: CompactionAsked, followed: _Followed | None
    ) -> Outgoing:
        """Puts a compaction before the answer, where the request has become as large as its caller says."""
        outgoing = await self._fit(incoming, body)
        ticket = outgoing.ticket
        if not isinstance(ticket, Ticket) or ticket.sent_tokens < asked.from_tokens:
            return outgoing
        request, known = ticket.request, ticket.known
        written = await self._write(request, known, _order(request, known, asked, followed))
        number = secrets.token_hex(12)
        item = write_item(written.token, written.text, body.dialect, number)
        if asked.pauses:
            return _own_answer(answer_pause(item, body, number), body, known, written)
        messages = list(request.seen.slice_all())
        shorter, _ = open_items(messages, body.dialect, written.text, len(messages))
        outgoing = await self._fit(*_replace_messages(incoming, body, shorter))
        headers = {**outgoing.headers, "x-penstock-compacted": "now"}
        return msgspec.structs.replace(outgoing, first_item=item, headers=headers)

    # Clients that ask a model for a summary.

    async def answer_summary(
        self, incoming: Incoming, body: RequestBody, summary: ClientCompaction
    ) -> Outgoing | None:
        """Answers a client's call for a summary with a handoff; None where the settings or a failure leave it to the model."""
        if not self._answers_clients:
            return None
        try:
            return await self._answer_summary(incoming, body, summary)
        except PenstockError as error:
            log.warning("a client's summary is left to the model: %s", error)
            return None

    async def _answer_summary(
        self, incoming: Incoming, body: RequestBody, summary: ClientCompaction
    ) -> Outgoing:
        request = None
        known = self._tracker.find_hinted(incoming)
        if summary.messages:
            found = self._tracker.read(*_replace_messages(incoming, body, summary.messages))
            if found is None:
                raise LostConversation("its messages cannot be read")
            request, match = found
            known = await self._tracker.find(request, match) or await self._tracker.open(request)
            self._tracker.log_beside(request, known)
        if known is None:
            raise LostConversation("the conversation that it names is not known here")
        order = Write(
            conversation=known.id,
            length=0 if request is None else len(request.seen),
            transcript=summary.transcript,
            client=summary.client,
            target_tokens=incoming.target_tokens,
            focus=summary.focus or incoming.focus,
        )
        written = await self._write(request, known, order)
        number = secrets.token_hex(12)
        answer = answer_in_form(written.text, summary, body, number, int(time.time()), written.tokens)
        return _own_answer(answer, body, known, written)

    async def _write(
        self, request: ReadRequest | None, known: KnownConversation, order: Write
    ) -> WrittenHandoff:
        """Has a worker write the conversation as one handoff. Without a request it cannot be reopened."""
        for _ in range(2):
            if known.writing is not None:
                await asyncio.wait([known.writing])
            order = msgspec.structs.replace(order, conversation=known.id)
            answer = NotOpen() if known.stale else await self._workers.give(order)
            if isinstance(answer, WrittenHandoff):
                return answer
            if isinstance(answer, Failed) or request is None:
                break
            self._tracker.drop(known)  # its worker was started again: open it anew, once
            known = await self._tracker.open(request)
        raise LostConversation(explain_failure(answer))


def _order(
    request: ReadRequest, known: KnownConversation, asked: CompactionAsked, followed: _Followed | None
) -> Write:
    return Write(
        conversation=known.id,
        follows=None if followed is None else followed.sealed,
        behind=0 if followed is None else followed.behind,
        target_tokens=request.incoming.target_tokens,
        focus=asked.focus or request.incoming.focus,
    )


def _own_answer(
    answer: OwnAnswer, body: RequestBody, known: KnownConversation, written: WrittenHandoff
) -> Outgoing:
    headers = {
        "x-penstock-session": known.id,
        "x-penstock-tokens-before": str(written.tokens_before),
        "x-penstock-tokens-after": str(written.tokens),
        "x-penstock-compacted": "now",
    }
    return Outgoing(body=b"", model=body.model, headers=headers, answer=answer)


def pass_through(incoming: Incoming, error: Exception) -> Outgoing:
    """Returns the request as it came, with a header that says so."""
    return Outgoing(body=incoming.body, headers={"x-penstock-passed-through": type(error).__name__})


def _replace_messages(
    incoming: Incoming, body: RequestBody, messages: Sequence[bytes]
) -> tuple[Incoming, RequestBody]:
    """Returns a request with other messages."""
    body = put_messages(body, messages)
    return msgspec.structs.replace(incoming, body=write_body(body)), body


def _refuse_compaction(incoming: Incoming, error: PenstockError) -> Outgoing:
    log.warning("a compaction that a client asked for, or brought, failed: %s", error)
    told = "the gateway could not compact the conversation, or open its compaction; try again"
    return _refuse(incoming, told, status=503, kind=ErrorKind.OVERLOAD)


def _refuse(incoming: Incoming, message: str, *, status: int, kind: ErrorKind) -> Outgoing:
    """Returns an error in the caller's dialect in place of a request."""
    written = write_error(
        ErrorCase(kind=kind, message=message),
        incoming.dialect,
        request_id=secrets.token_hex(12),
        status=status,
    )
    answer = OwnAnswer(status=written.status, body=encode_wire(written.body), content_type="application/json")
    return Outgoing(body=b"", answer=answer)
