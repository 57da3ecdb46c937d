"""Sends requests upstream and relays the answers, as they arrive.

A request that got no answer at all is sent again, and then to the fallbacks; a request that was answered, in any way, is
not sent again. A refusal as too large goes to the fitter, which may make the request smaller; the same body is not sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

import aiohttp
from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from penstock._log import log
from penstock.errors import ErrorClass, ErrorKind, ProviderError
from penstock.gateway.event_streams import (
    ItemInserter,
    find_last_event,
    hold_error,
    hold_opening,
    is_stream,
    read_whole,
)
from penstock.gateway.exchange import AnswerReport, Incoming, Outgoing
from penstock.gateway.headers import CREDENTIALS, OWN, REQUEST_ID, copy_answer_headers, write_head
from penstock.gateway.recalling import READABLE, Rounds, UpstreamAnswer
from penstock.gateway.refusals import (
    SIZE_KINDS,
    answer_error,
    answer_too_long,
    is_understood,
    refuse_too_long_in_stream,
)
from penstock.gateway.requests import read_envelope
from penstock.gateway.upstream_client import BodyStream, UpstreamClient
from penstock.gateway.usage_tap import MOST_ANSWER_BYTES, UsageTap
from penstock.providers.classify import classify_error
from penstock.providers.failures import network_failure
from penstock.providers.retries import CERTIFICATE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.gateway.callers import ServedRequest
    from penstock.gateway.exchange import Fitter, OwnAnswer, Recalling, WireDialect
    from penstock.gateway.requests import CallerWishes, Route
    from penstock.gateway.upstream_client import ArrivingAnswer
    from penstock.gateway.upstreams import Upstream, Upstreams
    from penstock.measure.usage import Usage
    from penstock.settings import GatewaySettings

__all__ = ["Relay", "RelayRequest", "answer_unanswered", "drop_caller"]

_T = TypeVar("_T")

_WHOLE_BYTES: Final = 1 << 18  # an answer of known length up to this is read first and sent in one piece
_LITTLE_BYTES: Final = 1 << 16  # of a body in which the model is looked up for the log alone
_ERROR_BYTES: Final = 1 << 20
_NOT_ANSWERING: Final = frozenset({502, 503, 504, 529})  # another upstream is asked, where there is one
_NEVER_SIZE: Final = frozenset({401, 402, 403, 404, 429})  # errors that no smaller body would mend
_FIRST_PAUSE_SECONDS: Final = 0.2
_BROKEN: Final = (aiohttp.ClientPayloadError, aiohttp.ServerTimeoutError, aiohttp.ClientOSError)
_WITHOUT_BODY: Final = frozenset({204, 205, 304})
_GONE: Final = 499  # as proxies log a client that went away


class RelayRequest(NamedTuple):
    """A request as the server has read it, ready to be relayed."""

    route: Route
    method: str
    query: str
    headers: CIMultiDict[str]
    """Those that go upstream; the caller's credential only where it is for the upstream."""
    dialect: WireDialect | None
    upstreams: tuple[Upstream, ...]
    """The upstream that it goes to, then the fallbacks."""
    wishes: CallerWishes
    served: ServedRequest


class Relay:
    """One pool of connections to all upstreams. `async with` opens it."""

    def __init__(
        self, upstreams: Upstreams, fitter: Fitter, settings: GatewaySettings, *, max_attempts: int = 3
    ) -> None:
        self._upstreams = upstreams
        self._fitter = fitter
        self._settings = settings
        self._max_attempts = max_attempts
        self._client = UpstreamClient(
            connect_seconds=settings.connect_seconds, idle_seconds=settings.idle_seconds
        )
        self._beside: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._beside:
            await asyncio.gather(*self._beside, return_exceptions=True)
        await self._client.__aexit__()

    # A request with messages.

    async def converse(
        self, request: web.BaseRequest, asked: RelayRequest, incoming: Incoming
    ) -> web.StreamResponse:
        """Fits the request, sends it, and relays its answer to the caller."""
        exchange = _Exchange(self, request, asked, incoming)
        try:
            return await exchange.run()
        except (asyncio.CancelledError, ConnectionResetError):
            exchange.settle_beside("client")
            raise
        except Exception:
            exchange.settle_beside("gateway")
            raise

    async def pass_on(
        self, request: web.BaseRequest, asked: RelayRequest, body: bytes | BodyStream | None
    ) -> web.StreamResponse:
        """Sends a request on a route that the gateway does not know, and relays its answer. A body that is still arriving is streamed."""
        retries = self._settings.retries
        if isinstance(body, BodyStream):
            retries = 0  # it can be read once
            asked = asked._replace(upstreams=asked.upstreams[:1])
        try:
            answer = await self.send(asked, body, retries=retries)
        except ProviderError:
            if isinstance(body, BodyStream) and body.problem is not None:
                raise body.problem from None
            raise
        with contextlib.closing(answer):
            return await _relay_plain(request, answer, asked.served)

    # Sending.

    async def send(
        self, asked: RelayRequest, body: bytes | BodyStream | None, *, retries: int
    ) -> ArrivingAnswer:
        """Returns the first answer to the request, of whatever status. Raises ProviderError where there is none."""
        last = len(asked.upstreams) - 1
        asked.served.sent_at = asked.served.sent_at or asyncio.get_running_loop().time()
        problem: ProviderError | None = None
        for place, upstream in enumerate(asked.upstreams):
            asked.served.upstream = upstream.name
            headers = self._headers_for(asked, upstream)
            for attempt in range(retries + 1):
                if problem is not None:
                    asked.served.retries += 1
                try:
                    answer = await self._send_once(asked, upstream, headers, body)
                except ProviderError as error:
                    problem = error
                    if not _may_be_sent_again(error.failure) or attempt == retries:
                        break
                    if attempt:
                        await asyncio.sleep(_FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
                    continue
                if answer.status in _NOT_ANSWERING and place < last:
                    answer.close()
                    break
                _note_answer(asked.served, answer, place)
                return answer
        raise problem or _make_no_answer()

    async def send_to(self, upstream: Upstream, asked: RelayRequest) -> ArrivingAnswer:
        """Returns the answer of this upstream to a request without a body. Raises ProviderError where there is none."""
        return await self._send_once(asked, upstream, self._headers_for(asked, upstream), None)

    async def _send_once(
        self,
        asked: RelayRequest,
        upstream: Upstream,
        headers: CIMultiDict[str],
        body: bytes | BodyStream | None,
    ) -> ArrivingAnswer:
        url = self._upstreams.url(upstream, asked.route.path, asked.query)
        try:
            return await self._client.ask(asked.method, url, headers, body)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            # Not chained: it may carry headers with the caller's key.
            raise _map_network_error(error, upstream.address.hostname) from None

    def _headers_for(self, asked: RelayRequest, upstream: Upstream) -> CIMultiDict[str]:
        """Returns the headers for an upstream. The caller's credential is for the first alone, and for others at its host."""
        own = upstream.auth_headers(asked.dialect)
        first = asked.upstreams[0]
        if not own and (upstream is first or upstream.address.hostname == first.address.hostname):
            return asked.headers
        headers = CIMultiDict(
            (name, value) for name, value in asked.headers.items() if name.lower() not in CREDENTIALS
        )
        headers.update(own)
        return headers

    # The fitter, which must not break a request.

    async def fit(self, incoming: Incoming) -> Outgoing:
        """Returns the request as it goes out; as it came where the fitter fails."""
        return await _shield_request(
            "fit",
            self._fitter.fit(incoming),
            lambda fault: Outgoing(body=incoming.body, headers={f"{OWN}passed-through": fault}),
        )

    async def recover(self, outgoing: Outgoing, failure: ErrorClass) -> Outgoing | None:
        """Returns a smaller request after a refusal; None where there is none, or the fitter fails."""
        return await _shield_request("recover", self._fitter.recover(outgoing, failure), lambda _fault: None)

    async def wait_until_durable(self, outgoing: Outgoing) -> bool:
        """Waits until the messages of a request are on disk, so that it may be settled behind its answer; else False."""
        return await _shield_request(
            "settle", self._fitter.wait_until_durable(outgoing), lambda _fault: False
        )

    def settle(self, outgoing: Outgoing, report: AnswerReport) -> asyncio.Task[None] | None:
        """Tells the fitter the outcome of a request; returns a task that ends when its messages are durable, None if they are.

        The task runs to its end even if the request is cancelled.
        """
        try:
            waiting = self._fitter.settle(outgoing, report)
        except Exception as error:  # noqa: BLE001 - as below
            _tell_fault("settle", error)
            return None
        if waiting is None:
            return None
        task = asyncio.get_running_loop().create_task(_shield_request("settle", waiting, lambda _fault: None))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    @property
    def retries(self) -> int:
        """The most times that a request without any answer is sent again."""
        return self._settings.retries

    @property
    def max_attempts(self) -> int:
        """The most times that a request that is too large is made smaller."""
        return self._max_attempts


async def _shield_request(verb: str, work: Awaitable[_T], otherwise: Callable[[str], _T]) -> _T:
    """Returns the fitter's result; `otherwise` of the name of its fault where it fails."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - whatever fails in there, the caller's request goes through
        return otherwise(_tell_fault(verb, error))


def _tell_fault(verb: str, error: Exception) -> str:
    """Logs the name of a fault, and returns it: its text may quote a request."""
    fault = type(error).__name__
    log.warning("the gateway could not %s a request: %s", verb, fault)
    return fault


class _Answer(web.StreamResponse):
    """An answer that is relayed piece by piece, with the bytes of each header as they came."""

    async def _write_headers(self) -> None:
        """Takes the place of aiohttp's where a value is not plain ASCII: that leaves out what is no UTF-8."""
        request = self._req
        if request is None or ("".join(self.headers.values()) + str(self.reason)).isascii():
            await super()._write_headers()
            return
        _write_now(request, write_head(_status_line(request, self), self.headers))


class _WholeAnswer(web.StreamResponse):
    """An answer in one piece: head and body are one write, without the steps that aiohttp takes for each."""

    def __init__(self, status: int, reason: str, headers: CIMultiDict[str], body: bytes) -> None:
        super().__init__(status=status, reason=reason, headers=headers)
        self._whole = body
        self._keeps_connection: bool | None = None

    @property
    def keep_alive(self) -> bool | None:
        """True where the caller's connection stays open for its next request."""
        return self._keeps_connection

    async def prepare(self, request: web.BaseRequest) -> None:
        """Sends the answer. Raises ConnectionResetError where its caller has gone."""
        if self._keeps_connection is not None:
            return
        keeps = self._keeps_connection = request.keep_alive
        headers = self.headers
        headers["Content-Length"] = str(len(self._whole))
        if "Date" not in headers:
            headers["Date"] = _format_date(int(time.time()))
        if keeps != (request.version >= HttpVersion11):  # else it goes without saying
            headers["Connection"] = "keep-alive" if keeps else "close"
        _write_now(request, write_head(_status_line(request, self), headers) + self._whole)
        await request.writer.drain()

    async def write_eof(self, data: bytes = b"") -> None:
        """Does nothing: the answer was sent whole."""


def _answer_whole(status: int, reason: str, headers: CIMultiDict[str], body: bytes) -> web.StreamResponse:
    if status in _WITHOUT_BODY:
        return web.Response(status=status, reason=reason, headers=headers)
    return _WholeAnswer(status, reason, headers, body)


def _status_line(request: web.BaseRequest, answer: web.StreamResponse) -> str:
    version = request.version
    return f"HTTP/{version.major}.{version.minor} {answer.status} {answer.reason}"


def _write_now(request: web.BaseRequest, data: bytes) -> None:
    """Writes to a caller past aiohttp's writer, which still knows that its answer has begun."""
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the caller has gone")
    transport.write(data)
    request.writer.output_size += len(data)


@lru_cache(maxsize=2)
def _format_date(second: int) -> str:
    return formatdate(second, usegmt=True)


class _Exchange:
    """One request with messages: fitted, sent, perhaps made smaller, answered, settled once."""

    def __init__(
        self, relay: Relay, request: web.BaseRequest, asked: RelayRequest, incoming: Incoming
    ) -> None:
        self._relay = relay
        self._request = request
        self._asked = asked
        self._served = asked.served
        self._incoming = incoming
        self._dialect: WireDialect = incoming.dialect
        self._outgoing: Outgoing | None = None
        self._tap: UsageTap | None = None
        self._inserter: ItemInserter | None = None
        self._rounds: Rounds | None = None
        self._settled = incoming.counts_only

    async def run(self) -> web.StreamResponse:
        outgoing = await self._fit()
        refused: list[bytes] = []
        if outgoing.answer is not None:
            return await self._answer(outgoing.answer)
        if outgoing.refusal is not None:
            return await self._refuse(outgoing.refusal)
        while True:
            try:
                answer = await self._relay.send(self._asked, outgoing.body, retries=self._relay.retries)
            except ProviderError as error:
                return await self._fail(error)
            with contextlib.closing(answer):
                held, failure = await self._read_refusal(answer)
                if failure is None:
                    return await self._relay_answer(answer, held)
                refused.append(outgoing.body)
                smaller = await self._recover(outgoing, failure, refused)
                if smaller is None:
                    return await self._relay_refusal(answer, held, failure)
            outgoing = self._outgoing = smaller
            self._served.headers = outgoing.headers

    def settle_beside(self, cut_off: str) -> None:
        """Settles a request that ended before its answer did, with what has arrived of it."""
        if not self._settled and self._outgoing is not None:
            self._settled = True
            self._served.cut_off = self._served.cut_off or cut_off
            self._relay.settle(self._outgoing, self._report(self._served.status or _GONE))

    # Before the answer.

    async def _fit(self) -> Outgoing:
        if self._asked.wishes.bypass:
            self._settled = True  # the fitter never hears of it
            outgoing = Outgoing(body=self._incoming.body, headers={f"{OWN}passed-through": "bypass"})
        else:
            outgoing = await self._relay.fit(self._incoming)
        self._outgoing = outgoing
        self._served.headers = outgoing.headers
        self._served.model = self._served.model or outgoing.model or self._read_model()
        return outgoing

    def _read_model(self) -> str:
        """Returns the model that the body names, for the log alone: empty for a body that takes long to read."""
        body = self._incoming.body
        return read_envelope(body).model_name if len(body) <= _LITTLE_BYTES else ""

    async def _recover(
        self, outgoing: Outgoing, failure: ErrorClass, refused: Sequence[bytes]
    ) -> Outgoing | None:
        if self._asked.wishes.bypass or self._incoming.counts_only or len(refused) > self._relay.max_attempts:
            return None
        smaller = await self._relay.recover(outgoing, failure)
        if smaller is None or smaller.refusal is not None or smaller.body in refused:
            return None
        self._served.recoveries += 1
        return smaller

    async def _read_refusal(self, answer: ArrivingAnswer) -> tuple[bytes, ErrorClass | None]:
        """Returns the part of the answer that had to be read to know whether it is a refusal for size, and the refusal if it is one."""
        if answer.status >= 400:
            if answer.status in _NEVER_SIZE:
                return b"", None
            body = await _read_some(answer, _ERROR_BYTES)
            failure = classify_error(answer.status, body, answer.headers)
            return body, failure if failure.kind in SIZE_KINDS else None
        if not is_stream(answer):
            return await hold_error(answer)
        return await hold_opening(answer, self._dialect) if self._dialect != "anthropic" else (b"", None)

    # The answer.

    async def _relay_answer(self, answer: ArrivingAnswer, held: bytes) -> web.StreamResponse:
        served = self._served
        served.status = answer.status
        streamed = is_stream(answer)
        if answer.status < 400:
            encoding = _find_encoding(answer)
            self._tap = UsageTap(self._dialect, streamed=streamed, encoding=encoding)
            if self._outgoing is not None and self._outgoing.first_item is not None and not encoding:
                self._inserter = ItemInserter(self._outgoing.first_item, self._dialect)
            if self._outgoing is not None and self._outgoing.recalling is not None and encoding in READABLE:
                return await self._relay_rounds(answer, held, self._outgoing, self._outgoing.recalling)
        else:
            served.failure = classify_error(answer.status, held, answer.headers) if held else None
        length = answer.content_length
        little = length is not None and length <= _WHOLE_BYTES and answer.method != "HEAD"
        if not streamed and (little or self._inserter is not None):
            return await self._relay_whole(answer, held)
        return await self._relay_pieces(answer, held)

    async def _relay_whole(self, answer: ArrivingAnswer, held: bytes) -> web.StreamResponse:
        try:
            body = await read_whole(answer, MOST_ANSWER_BYTES, held)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._served.cut_off = "upstream"
            return await self._fail(_map_network_error(error, self._served.upstream))
        if len(body) > MOST_ANSWER_BYTES:
            return await self._relay_pieces(answer, body)
        if self._tap is not None:
            self._tap.feed(body)  # and read when it is settled
        if self._inserter is not None:
            body = self._inserter.insert_whole(body)
        await self._settle_behind(answer.status)
        self._served.bytes_out = len(body)
        return _answer_whole(answer.status, answer.reason, self._headers_of(answer), body)

    async def _relay_pieces(self, answer: ArrivingAnswer, held: bytes) -> web.StreamResponse:
        response = _Answer(status=answer.status, reason=answer.reason, headers=self._headers_of(answer))
        inserter = self._inserter if is_stream(answer) else None
        length = answer.content_length if inserter is None else None
        if length is not None:
            response.content_length = length
        await response.prepare(self._request)
        content, tap, served = answer.content, self._tap, self._served
        try:
            chunk = held or content.read_nowait()
            if not chunk:
                await response.write(b"")  # sends the headers: the first event may take a while
            while True:
                if not chunk:
                    chunk = await content.readany()
                    if not chunk:
                        break
                served.bytes_out += len(chunk)
                if tap is not None:
                    tap.feed(chunk)
                    if not self._settled and (tap.ended or served.bytes_out == length):
                        if inserter is None and (early := find_last_event(chunk)):
                            await response.write(chunk[:early])  # only the end waits for the log
                            chunk = chunk[early:]
                        await self._settle_behind(answer.status)
                await response.write(chunk if inserter is None else inserter.feed(chunk))
                chunk = b""
                served.complete = tap is not None and tap.ended
        except _BROKEN as error:
            return await self._cut_off(response, error)
        await self._settle_behind(answer.status)
        await response.write_eof(b"" if inserter is None else inserter.end())
        return response

    # An answer in whose rounds the model looks things up; the caller sees one.

    async def _relay_rounds(
        self, answer: ArrivingAnswer, held: bytes, outgoing: Outgoing, recalling: Recalling
    ) -> web.StreamResponse:
        streamed, headers = is_stream(answer), self._headers_of(answer)
        headers.popall("content-encoding", None)
        response = _Answer(status=answer.status, reason=answer.reason, headers=headers)

        async def show(seen: bytes) -> None:
            shown = seen if self._inserter is None else self._inserter.feed(seen)
            self._served.bytes_out += len(shown)
            await response.write(shown)

        rounds = self._rounds = Rounds(self._dialect, recalling, self._ask_round, show, streamed=streamed)
        if streamed:
            await response.prepare(self._request)
            await response.write(b"")  # sends the headers: the first event may take a while
        try:
            end = await rounds.run(UpstreamAnswer(answer, held), outgoing.body)
        except (ProviderError, *_BROKEN) as error:
            if streamed:
                return await self._cut_off(response, error)
            self._served.cut_off = "upstream"
            return await self._fail(self._find_failure(error))
        await self._settle(answer.status)
        if not streamed:
            whole = end if self._inserter is None else self._inserter.insert_whole(end)
            self._served.bytes_out = len(whole)
            return _answer_whole(answer.status, answer.reason, headers, whole)
        await show(end)
        self._served.complete = True
        await response.write_eof(b"" if self._inserter is None else self._inserter.end())
        return response

    async def _ask_round(self, body: bytes) -> UpstreamAnswer:
        answer = await self._relay.send(self._asked, body, retries=self._relay.retries)
        return UpstreamAnswer(answer, *await self._read_refusal(answer))

    def _find_failure(self, error: BaseException) -> ProviderError:
        if isinstance(error, ProviderError):
            return error
        return _map_network_error(error, self._served.upstream)

    async def _cut_off(self, response: web.StreamResponse, error: Exception) -> web.StreamResponse:
        """Closes the caller's connection before the end of the answer: every client reports that as an error."""
        self._served.cut_off = "upstream"
        self._served.failure = self._find_failure(error).failure
        await self._settle(self._served.status)
        drop_caller(self._request)
        return response

    def _headers_of(self, answer: ArrivingAnswer) -> CIMultiDict[str]:
        headers = copy_answer_headers(answer.headers)
        headers[REQUEST_ID] = self._served.id
        headers.update(self._served.headers)
        return headers

    # Answers of our own.

    async def _answer(self, answer: OwnAnswer) -> web.StreamResponse:
        """Sends the caller the answer that the fitter gave in place of the provider."""
        self._served.status = answer.status
        self._served.bytes_out = len(answer.body)
        await self._settle(answer.status)
        headers = {"content-type": answer.content_type, REQUEST_ID: self._served.id}
        return web.Response(
            status=answer.status, body=answer.body, headers={**headers, **self._served.headers}
        )

    async def _relay_refusal(
        self, answer: ArrivingAnswer, held: bytes, failure: ErrorClass
    ) -> web.StreamResponse:
        """Sends the provider's refusal to the caller: unchanged if clients understand it, else in the form of the API."""
        self._served.failure = failure
        streams = self._dialect == "responses" and answer.status >= 400 and self._streams()
        if (
            failure.kind is not ErrorKind.PROMPT_TOO_LONG
            or answer.status < 400
            or self._asked.wishes.bypass
            or (is_understood(held, answer.status, self._dialect) and not streams)
        ):
            return await self._relay_answer(answer, held)
        return await self._refuse(failure)

    async def _refuse(self, failure: ErrorClass) -> web.StreamResponse:
        served = self._served
        served.failure = failure
        if self._dialect == "responses" and self._streams():
            served.status = 200
            await self._settle(failure.status or 400)
            model = read_envelope(self._incoming.body).model_name
            event = refuse_too_long_in_stream(failure, model, request_id=served.id)
            headers = {"content-type": "text/event-stream", REQUEST_ID: served.id, **served.headers}
            return web.Response(body=event, headers=headers)
        answer = answer_too_long(failure, self._dialect, request_id=served.id, headers=served.headers)
        served.status = answer.status
        await self._settle(failure.status or answer.status)
        return answer

    async def _fail(self, error: ProviderError) -> web.StreamResponse:
        self._served.failure = error.failure
        answer = answer_unanswered(error, self._dialect, self._served)
        await self._settle(answer.status)
        return answer

    def _streams(self) -> bool:
        return read_envelope(self._incoming.body).stream is True

    # The report on it.

    async def _settle(self, status: int) -> None:
        if not self._settled and self._outgoing is not None:
            self._settled = True
            settling = self._relay.settle(self._outgoing, self._report(status))
            if settling is not None:
                await asyncio.shield(settling)  # a caller that leaves now has been served all the same
        elif self._tap is not None and self._served.usage is None:
            self._served.usage, _ = self._tap.report

    async def _settle_behind(self, status: int) -> None:
        """Settles once the rest of the answer has gone out, which may not be before the messages are on disk."""
        if (
            self._settled
            or self._outgoing is None
            or not await self._relay.wait_until_durable(self._outgoing)
        ):
            await self._settle(status)
            return
        self._settled = True
        asyncio.get_running_loop().call_soon(self._settle_now, self._outgoing, status)

    def _settle_now(self, outgoing: Outgoing, status: int) -> None:
        try:
            report = self._report(status)
        except Exception as error:  # noqa: BLE001 - its answer has gone out: nobody else hears of a fault in its usage
            _tell_fault("settle", error)
            return
        self._relay.settle(outgoing, report)

    def _report(self, status: int) -> AnswerReport:
        usage, names = self._tap.report if self._tap is not None else (None, False)
        self._served.usage = usage
        ended = self._tap is not None and self._tap.ended
        inner: Sequence[Usage] = ()
        if self._rounds is not None and self._rounds.usages:
            usage, *inner = self._rounds.usages
            names, ended = self._rounds.names_cache, not self._served.cut_off
            self._served.usage = sum(inner, usage)
        return AnswerReport(
            status=status,
            usage=usage,
            inner_usages=tuple(inner),
            names_cache=names,
            broken_off=bool(self._served.cut_off) and not ended,
            failure=self._served.failure,
        )


def answer_unanswered(error: ProviderError, dialect: str | None, served: ServedRequest) -> web.Response:
    """Returns the error for a request that no upstream answered. It names the host and nothing else of the address."""
    late = error.failure.kind is ErrorKind.TIMEOUT
    served.status = 504 if late else 502
    return answer_error(
        f"the upstream did not answer: {error}",
        dialect,
        status=served.status,
        kind=ErrorKind.TIMEOUT if late else ErrorKind.OVERLOAD,
        request_id=served.id,
        headers=served.headers,
    )


async def _relay_plain(
    request: web.BaseRequest, answer: ArrivingAnswer, served: ServedRequest
) -> web.StreamResponse:
    """Relays an answer on a route that the gateway does not know. Only its usage is read."""
    served.status = answer.status
    tap = _open_tap(answer, served) if request.method == "POST" else None
    headers = copy_answer_headers(answer.headers)
    headers[REQUEST_ID] = served.id
    response = _Answer(status=answer.status, reason=answer.reason, headers=headers)
    if answer.content_length is not None:
        response.content_length = answer.content_length
    await response.prepare(request)
    try:
        chunk = answer.content.read_nowait()
        if not chunk:
            await response.write(b"")  # sends the headers: the first bytes may take a while
        while chunk or (chunk := await answer.content.readany()):
            served.bytes_out += len(chunk)
            if tap is not None:
                tap.feed(chunk)
            await response.write(chunk)
            chunk = b""
    except _BROKEN as error:
        served.cut_off = "upstream"
        served.failure = _map_network_error(error, served.upstream).failure
        drop_caller(request)
        return response
    finally:
        if tap is not None:
            served.usage, _ = tap.report
    await response.write_eof()
    return response


def _open_tap(answer: ArrivingAnswer, served: ServedRequest) -> UsageTap | None:
    """Returns a tap for the usage of such an answer; None if it cannot report any."""
    streamed = is_stream(answer)
    if answer.status >= 400 or not (streamed or answer.content_type == "application/json"):
        return None
    return UsageTap(served.dialect or "chat", streamed=streamed, encoding=_find_encoding(answer))


def _find_encoding(answer: ArrivingAnswer) -> str:
    encoding = answer.headers.get("content-encoding", "").lower()
    return "" if encoding == "identity" else encoding


async def _read_some(answer: ArrivingAnswer, most_bytes: int) -> bytes:
    """Returns the first bytes of a body, or all of it if it is short."""
    pieces: list[bytes] = []
    size = 0
    with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):  # the relay meets it again
        while size < most_bytes and (chunk := await answer.content.readany()):
            pieces.append(chunk)
            size += len(chunk)
    return b"".join(pieces)


def _note_answer(served: ServedRequest, answer: ArrivingAnswer, place: int) -> None:
    served.first_byte_at = asyncio.get_running_loop().time()
    served.fallbacks = place
    served.upstream_request_id = answer.headers.get("x-request-id") or answer.headers.get("request-id") or ""


def _may_be_sent_again(failure: ErrorClass) -> bool:
    """Returns True if no answer began: the request may not have arrived at all."""
    if failure.kind is ErrorKind.TIMEOUT:
        return failure.code == "connect_timeout"  # after that, the upstream may already be working on it
    return failure.kind is ErrorKind.NETWORK and failure.code not in {CERTIFICATE, "protocol"}


def _map_network_error(error: BaseException, host: str) -> ProviderError:
    return network_failure(error, host) or _make_no_answer()


def _make_no_answer() -> ProviderError:
    text = "no answer"
    return ProviderError(text, failure=ErrorClass(kind=ErrorKind.NETWORK, code="connection", message=text))


def drop_caller(request: web.BaseRequest) -> None:
    """Closes the caller's connection with the answer unfinished. Bytes already written still arrive."""
    if request.transport is not None:
        request.transport.close()
