"""Finds the conversation of each request in memory, and orders its worker to log, count and compact.

A conversation belongs to one worker. One that the worker has lost is opened anew, from the request at hand.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import xxhash

from penstock._log import log
from penstock.errors import PenstockError
from penstock.gateway.client_compactions import offers_tools
from penstock.gateway.exchange import Incoming  # noqa: TC001 - a struct's field types are read at run time
from penstock.gateway.inner_turns import list_hidden
from penstock.gateway.matching import (
    DIGEST_BYTES,
    KnownConversation,
    KnownConversations,
    Match,
    Scope,
    SeenMessages,
)
from penstock.gateway.orders import (
    Append,
    Appended,
    Failed,
    Fit,
    Fitted,
    Forget,
    NotOpen,
    Open,
    OpenedConversation,
    Outside,
    Recover,
    TakeUsage,
)
from penstock.gateway.recalling import may_recall, offer_tools
from penstock.gateway.sending import find_longest_mark
from penstock.gateway.splicing import RequestBody  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from penstock.errors import ErrorClass
    from penstock.gateway.exchange import AnswerReport
    from penstock.gateway.orders import Answer
    from penstock.gateway.workers import Workers
    from penstock.measure.usage import Usage

__all__ = ["LostConversation", "ReadRequest", "Ticket", "Tracker", "explain_failure"]

_T = TypeVar("_T")

_TOLD_TOGETHER_SECONDS = 0.2  # so that a report goes with the next request, where that comes soon
_LINKED_FROM = 8  # messages: a client does not compact what is shorter by itself


class LostConversation(PenstockError):
    """The worker lost a conversation, and could not open it again."""


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is being fitted: as it came, read, and known by its digests."""

    incoming: Incoming
    body: RequestBody
    seen: SeenMessages
    outside: Outside
    recalls: bool = False
    """True where the recall tools are among the body's."""


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """The note of a request that went upstream."""

    request: ReadRequest
    known: KnownConversation
    sent_tokens: int
    digest: bytes
    """Of the body as it was sent."""
    originals: bool = False
    """True where it went out with nothing compacted, for a client that has it summarised."""


class _Reports(msgspec.Struct):
    """The provider's reports on a conversation that its worker does not have yet."""

    known: KnownConversation
    telling: asyncio.TimerHandle
    """Tells the worker of them, unless an order takes them along before."""
    usages: list[Usage] = []
    sent_tokens: int = 0
    """The tokens that were expected for the newest of them."""
    length: int = 0
    """The number of messages of the newest of them; -1 where what was sent was not the view."""
    names_cache: bool = False
    lost: int = 0
    """Requests that were broken off, or answered without a report."""


class Tracker:
    """The conversations that a gateway knows, and its orders to their workers. It belongs to the event loop.

    `clock` tells the seconds by which a provider's cache goes cold. `on_forgotten` hears the id of each conversation that
    leaves the memory.
    """

    def __init__(
        self,
        workers: Workers,
        *,
        most_bytes: int,
        recalls: bool = False,
        on_forgotten: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workers = workers
        self._clock = clock
        self._recalls = recalls
        self._on_forgotten = on_forgotten
        self._known = KnownConversations(most_bytes, self._forget)
        self._opening: dict[bytes, asyncio.Future[None]] = {}
        self._by_hint: dict[tuple[str, str, str], str] = {}
        self._reports: dict[str, _Reports] = {}
        self._beside: set[asyncio.Task[Any]] = set()

    @property
    def conversations(self) -> int:
        """The number of conversations in memory."""
        return len(self._known)

    @property
    def memory_bytes(self) -> int:
        """About how much memory they take."""
        return self._known.memory_bytes

    # Finding.

    def read(self, incoming: Incoming, body: RequestBody) -> tuple[ReadRequest, Match | None] | None:
        """Reads a request, and looks its conversation up; None where it has no list of messages."""
        scope = Scope(incoming.owner, incoming.dialect, incoming.store)
        hinted = self._by_hint.get(_name_hint(incoming), "") if incoming.session_hint else ""
        read = self._known.read(scope, body.listed, hinted)
        if read is None:
            return None
        seen, match = read
        recalls = self._recalls and incoming.store == "full" and _wants_recall(body, match)
        if recalls:
            body = offer_tools(body)
        cap = body.output_cap
        outside = Outside(
            model=body.model,
            system=body.system,
            tools=body.tools,
            max_output_tokens=None if cap is None else cap[1],
            marked_ttl=find_longest_mark(body, seen) if incoming.dialect != "responses" else "",
        )
        request = ReadRequest(incoming=incoming, body=body, seen=seen, outside=outside, recalls=recalls)
        return request, match

    async def find(self, request: ReadRequest, match: Match | None) -> KnownConversation | None:
        """Returns the conversation that the request goes on or repeats; None where this memory does not have all of it."""
        seen = request.seen
        opening = self._opening.get(_name_opening(seen))
        if match is None and opening is not None:
            await asyncio.wait([opening])  # the same request, sent twice
            match = self._known.find(seen)
        # What was just logged has no digests before; and an earlier request may be too large without the compaction that runs.
        if (
            match is not None
            and (not _goes_on(match, seen) or len(seen) < match.known.length)
            and await self._wait_for_writing(match.known)
        ):
            match = self._known.find_again(match.known, seen)
        if match is None:
            return None
        if match.known.stale:
            self._known.drop(match.known)
            return None
        if not _goes_on(match, seen) or match.known.lacks_bytes(seen):
            return None  # a worker finds what is in the log
        return match.known

    def find_hinted(self, incoming: Incoming) -> KnownConversation | None:
        """Returns the conversation that the client names by its headers, where it is in this memory."""
        return self._known.get(self._by_hint.get(_name_hint(incoming), ""))

    async def open(self, request: ReadRequest) -> KnownConversation:
        """Orders a worker to find or begin the conversation of a request, and to log all of it. Raises LostConversation."""
        name = _name_opening(request.seen)
        done = asyncio.get_running_loop().create_future()
        self._opening[name] = done
        try:
            answer = await self._workers.give(self._order_to_open(request))
            if not isinstance(answer, OpenedConversation):
                raise LostConversation(explain_failure(answer))
            known = self._know(request, answer)
            before = self._known.get(known.id)
            hint = _name_hint(request.incoming)
            # A side call, such as one for a title, has the same name; the conversation is the one with tools.
            if request.incoming.session_hint and (offers_tools(request.body) or hint not in self._by_hint):
                if before is not None:
                    self._forget_hint(before)
                known.hint = hint
                self._by_hint[hint] = known.id
            elif before is not None:
                known.hint = before.hint
            self._known.keep(known, request.body.listed)
            return known
        finally:
            if self._opening.get(name) is done:
                del self._opening[name]
            done.set_result(None)

    def _order_to_open(self, request: ReadRequest) -> Open:
        incoming = request.incoming
        before = self._by_hint.get(_name_hint(incoming)) if incoming.session_hint else None
        return Open(
            owner=incoming.owner,
            dialect=incoming.dialect,
            endpoint=incoming.endpoint,
            store=incoming.store,
            messages=request.seen.slice_all(),
            outside=request.outside,
            hint=incoming.session_hint,
            continues=before if before and self._may_follow(before, request) else "",
            logs=not incoming.counts_only,
        )

    def _know(self, request: ReadRequest, opened: OpenedConversation) -> KnownConversation:
        known = KnownConversation(opened.conversation, request.seen.scope)
        known.take(self._known.read_anew(request.seen))
        _take_over(known, opened)
        for place, first in opened.first_sent.items():
            known.hold(place, first)
        known.use_prefix(opened.prefix)
        for turn in opened.inner:
            known.keep_turn(turn)
        known.outside = _digest_outside(request.outside)
        return known

    async def look(self, request: ReadRequest) -> KnownConversation | None:
        """Returns the conversation of a request that is only counted and not in this memory; keeps nothing of it."""
        answer = await self._workers.give(self._order_to_open(request))
        return self._know(request, answer) if isinstance(answer, OpenedConversation) else None

    def _may_follow(self, before: str, request: ReadRequest) -> bool:
        """Returns True where the request may go on a conversation that its client has compacted by itself."""
        known = self._known.get(before)
        return known is not None and known.length >= _LINKED_FROM and offers_tools(request.body)

    def keep(self, known: KnownConversation, listed: bytes = b"") -> None:
        """Keeps a conversation as it is now, as the one that was used last. `listed` is the list of its last request."""
        self._known.keep(known, listed)

    def take_request(self, request: ReadRequest, known: KnownConversation) -> None:
        """Takes note that a request of this conversation goes out now."""
        known.last_request = self._clock()
        # The tables can wait until it has gone out.
        asyncio.get_running_loop().call_soon(self._keep_known, known, request.body.listed)

    def _keep_known(self, known: KnownConversation, listed: bytes) -> None:
        if self._known.get(known.id) is known:  # else it has left meanwhile
            self._known.keep(known, listed)

    def drop(self, known: KnownConversation) -> None:
        """Forgets a conversation: its worker has lost it."""
        self._known.drop(known)

    def _forget(self, known: KnownConversation) -> None:
        self._on_forgotten(known.id)
        self.tell_usage(known)
        self._forget_hint(known)
        if not known.stale:
            self.run_beside(self._workers.give(Forget(conversation=known.id)))

    def _forget_hint(self, known: KnownConversation) -> None:
        if self._by_hint.get(known.hint) == known.id:
            del self._by_hint[known.hint]

    # Orders.

    def must_ask(self, request: ReadRequest, known: KnownConversation) -> bool:
        """Returns True where a compaction may be due or pay, so that the request waits for its worker."""
        incoming, standing = request.incoming, known.standing
        if incoming.target_tokens is not None or incoming.focus is not None:
            return True
        if len(request.seen) < known.length:
            return False  # an earlier request, sent again
        new_bytes = known.unsized_bytes + request.seen.count_bytes(known.length)
        tokens = standing.tokens + new_bytes / standing.bytes_per_token
        if tokens >= standing.ask_from_tokens:
            return True
        idle = self._clock() - known.last_request if known.last_request else 0.0
        return idle >= standing.cold_seconds and tokens >= standing.cold_from_tokens

    def log_beside(self, request: ReadRequest, known: KnownConversation) -> None:
        """Orders the new messages of a request to be logged, once it has gone out, and does not wait."""
        length, new = known.length, request.seen.slice_from(known.length)
        known.take(request.seen)
        if new:
            known.unsized_bytes += sum(map(len, new))
            outside = self._take_outside(request, known)
            known.writing = self.run_beside(self._log(known, length, new, outside))

    async def _log(
        self, known: KnownConversation, length: int, new: tuple[bytes, ...], outside: Outside | None
    ) -> None:
        order = Append(
            conversation=known.id,
            length=length,
            messages=new,
            outside=outside,
            used=self._take_reports(known),
        )
        await self._carry_out(known, order)

    async def ask(self, request: ReadRequest, known: KnownConversation) -> Fitted | None:
        """Orders the worker to log the new messages and to compact if that is due; None if it does not have the conversation."""
        length, incoming = known.length, request.incoming
        new = request.seen.slice_from(length)
        known.take(request.seen)
        order = Fit(
            conversation=known.id,
            length=length,
            messages=new,
            outside=self._take_outside(request, known),
            target_tokens=incoming.target_tokens,
            focus=incoming.focus,
            credential=incoming.credential,
        )
        known.unsized_bytes += sum(map(len, new))
        self.tell_usage(known)
        task = self.run_beside(self._carry_out(known, order))
        known.writing = task
        answer = await asyncio.shield(task)
        if isinstance(answer, Failed):
            raise LostConversation(answer.text)
        return answer if isinstance(answer, Fitted) else None

    async def recover(self, ticket: Ticket, failure: ErrorClass, attempt: int) -> Fitted | None:
        """Orders the worker to make a refused request smaller; None if it cannot."""
        request, known = ticket.request, ticket.known
        self.tell_usage(known)
        order = Recover(
            conversation=known.id,
            failure=failure,
            sent_tokens=ticket.sent_tokens,
            attempt=attempt,
            outside=self._take_outside(request, known),
            credential=request.incoming.credential,
        )
        answer = await self.run_beside(self._carry_out(known, order))
        if not isinstance(answer, Fitted):
            return None
        self._known.keep(known)
        return answer

    def _take_outside(self, request: ReadRequest, known: KnownConversation) -> Outside | None:
        """Returns the parts beside the messages if they have changed since the last order, else None."""
        outside = _add_inner(request.outside, known)
        digest = _digest_outside(outside)
        if digest == known.outside:
            return None
        known.outside = digest
        return outside

    async def _carry_out(self, known: KnownConversation, order: Append | Fit | TakeUsage | Recover) -> Answer:
        """Gives an order, and takes its answer over into what is known."""
        answer = await self._workers.give(order)
        if isinstance(answer, Appended | Fitted):
            _take_over(known, answer)
            if isinstance(answer, Fitted):
                known.use_prefix(answer.prefix)
        elif isinstance(answer, NotOpen) or not isinstance(order, Recover):
            known.stale = True
        return answer

    def run_beside(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Runs the work to its end, even if the request is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    def is_durable(self, ticket: Ticket) -> bool:
        """Returns True where the messages of a request are logged."""
        known = ticket.known
        return not known.stale and (known.writing is None or known.writing.done())

    async def wait_for_log(self, ticket: Ticket) -> bool:
        """Waits for what was ordered to be logged; returns True where the messages of a request are."""
        if not self.is_durable(ticket):
            await self._wait_for_writing(ticket.known)
        return self.is_durable(ticket)

    async def wait_until_durable(self, ticket: Ticket) -> None:
        """Waits until the messages of a request are logged; logs them again where its worker has lost them."""
        request, known = ticket.request, ticket.known
        await self._wait_for_writing(known)
        if not known.stale:
            return
        self._known.drop(known)
        try:
            if await self.find(request, None) is None:
                await self.open(request)
        except PenstockError as error:
            log.error("the messages of a request could not be logged: %s", error)

    async def _wait_for_writing(self, known: KnownConversation) -> bool:
        """Waits for the order that logs messages of this conversation; False where there is none under way."""
        writing = known.writing
        if writing is None or writing.done():
            return False
        self._workers.hurry()
        await asyncio.wait([writing])
        return True

    # What the provider reports.

    def note_usage(self, ticket: Ticket, report: AnswerReport) -> None:
        """Reports the usage of a request to the worker: soon, together with other reports, and before its next order."""
        known, usage = ticket.known, report.usage
        told = usage is not None and usage.prompt_tokens > 0
        lost = report.broken_off or (not told and report.status < 400)
        if known.stale or not (told or lost):
            return
        waiting = self._reports.get(known.id)
        if waiting is None:
            loop = asyncio.get_running_loop()
            telling = loop.call_later(_TOLD_TOGETHER_SECONDS, self.tell_usage, known)
            waiting = self._reports[known.id] = _Reports(known, telling)
        waiting.lost += lost
        if usage is not None and told:
            waiting.usages += (*report.inner_usages, usage)  # what is learned from is the last
            waiting.sent_tokens = ticket.sent_tokens
            waiting.length = -1 if ticket.originals else len(ticket.request.seen)
            waiting.names_cache = report.names_cache

    def tell_usage(self, known: KnownConversation) -> None:
        """Sends the worker the reports on a conversation that wait."""
        if (order := self._take_reports(known)) is not None:
            self.run_beside(self._carry_out(known, order))

    def _take_reports(self, known: KnownConversation) -> TakeUsage | None:
        """Returns the order with the reports on a conversation that wait; None if there are none."""
        waiting = self._reports.pop(known.id, None)
        if waiting is None:
            return None
        waiting.telling.cancel()
        if known.stale:
            return None
        return TakeUsage(
            conversation=known.id,
            usages=tuple(waiting.usages),
            sent_tokens=waiting.sent_tokens,
            names_cache=waiting.names_cache,
            lost=waiting.lost,
            length=waiting.length,
        )

    async def finish_beside(self) -> None:
        """Waits for all orders that run beside requests."""
        for waiting in list(self._reports.values()):
            self.tell_usage(waiting.known)
        while self._beside:
            await asyncio.wait(set(self._beside))


def _wants_recall(body: RequestBody, match: Match | None) -> bool:
    """Returns True for an agent's request, and for any other once its conversation was compacted.

    A client of the Responses API that lets the provider store answers may go on from one by its id, without our results.
    """
    compacted = match is not None and not match.leaves and match.known.prefix.covers > 0
    sends_all = body.dialect != "responses" or body.fields.get("store") == b"false"
    return (compacted or (offers_tools(body) and sends_all)) and may_recall(body)


def _add_inner(outside: Outside, known: KnownConversation) -> Outside:
    """Returns the parts beside the client's messages, with the rounds that it did not see: those count as well."""
    hidden = [raw for turn in known.inner.values() for raw in list_hidden(turn)]
    if not hidden:
        return outside
    tools = outside.tools.strip() or b"[]"
    inside = [tools[1:-1]] if tools[1:-1].strip() else []
    return msgspec.structs.replace(outside, tools=b"[" + b",".join([*inside, *hidden]) + b"]")


def explain_failure(answer: Answer) -> str:
    """Returns why a worker could not carry out an order, for people."""
    return answer.text if isinstance(answer, Failed) else "the worker does not have the conversation any more"


def _take_over(known: KnownConversation, answer: OpenedConversation | Appended | Fitted) -> None:
    """Takes over the digests of what was logged, and how the conversation stands now."""
    digests = answer.digests
    known.digests += [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]
    known.standing = answer.standing
    known.unsized_bytes = 0


def _goes_on(match: Match, seen: SeenMessages) -> bool:
    """Returns True where a request goes on its conversation, or repeats what was sent of it before."""
    repeats = match.length == len(seen) and match.known.prefix.covers <= len(seen)
    return repeats or not match.leaves


def _name_hint(incoming: Incoming) -> tuple[str, str, str]:
    return incoming.owner, incoming.session_hint, incoming.agent_hint


def _name_opening(seen: SeenMessages) -> bytes:
    """Returns the digest by which an opening request is recognised: of all its messages."""
    return seen.chains[-1] if seen.chains else b""


def _digest_outside(outside: Outside) -> bytes:
    parts = (outside.model.encode("utf-8", "surrogatepass"), outside.system, outside.tools)
    told = f"{outside.max_output_tokens} {outside.marked_ttl}".encode()
    return xxhash.xxh3_128_digest(b"".join(map(xxhash.xxh3_128_digest, (*parts, told))))
