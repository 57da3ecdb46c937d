"""A model behind HTTP: requests go out in its dialect, answers come back as values."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar
from urllib.parse import quote

import msgspec

from penstock.errors import ProviderError
from penstock.providers import anthropic, chat, listing, responses
from penstock.providers.bodies import encode_body, parse_body
from penstock.providers.caller import EndpointCaller
from penstock.providers.exchange import Answer, Answered, CallDelta, Finish, ReasoningDelta, TextDelta
from penstock.providers.failures import malformed_answer
from penstock.providers.http import TimeLimits
from penstock.providers.quirks import adapt_quirks, quirks_of
from penstock.providers.retries import retry
from penstock.providers.sse import EventParser, OversizedEvent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
    from types import TracebackType

    from penstock.providers.caller import Endpoint
    from penstock.providers.exchange import Ask, Event
    from penstock.providers.http import OpenReply, Transport
    from penstock.providers.sse import ServerEvent

__all__ = ["ProviderModel"]

_T = TypeVar("_T")

_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id")
_WHOLE = ("application/json", "text/html")
_MOST_PAGES = 20


class _Accumulator(Protocol):
    """Puts a streamed answer together."""

    finished: bool

    def take(self, event: ServerEvent) -> list[Event]:
        """Returns what an event adds."""

    def answer(self) -> Answer:
        """Returns the whole answer."""


class _Dialect(msgspec.Struct, frozen=True):
    """The functions that the one client needs of each dialect."""

    path: str
    request_body: Callable[..., dict[str, Any]]
    answer_from_body: Callable[[Mapping[str, Any]], Answer]
    accumulator: Callable[[], _Accumulator]


_DIALECTS = {
    "chat": _Dialect(chat.PATH, chat.request_body, chat.answer_from_body, chat.ChatAccumulator),
    "responses": _Dialect(
        responses.PATH, responses.request_body, responses.answer_from_body, responses.ResponsesAccumulator
    ),
    "anthropic": _Dialect(
        anthropic.PATH, anthropic.request_body, anthropic.answer_from_body, anthropic.AnthropicAccumulator
    ),
}


class ProviderModel:
    """One model of one provider. Usable from several tasks at once.

    Its connections end with `aclose`, with `async with`, or with the event loop. A transport that it does not
    own is left open.
    """

    def __init__(
        self, name: str, endpoint: Endpoint, transport: Transport, *, owns_transport: bool = True
    ) -> None:
        self._name = name
        self._endpoint = endpoint
        self._transport = transport
        self._owns_transport = owns_transport
        self._caller = EndpointCaller(endpoint, transport)
        self._dialect = _DIALECTS[endpoint.dialect]
        self._url = endpoint.address.url(self._dialect.path)
        self._quirks = quirks_of(endpoint.address.hostname)

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    @property
    def dialect(self) -> str:
        """The dialect of its requests and answers."""
        return self._endpoint.dialect

    @property
    def base_url(self) -> str:
        """The address of the model, without a query."""
        return self._endpoint.address.base_url

    def make_sibling(self, name: str) -> ProviderModel:
        """Returns another model at the same endpoint. It shares the connections and leaves them open."""
        return ProviderModel(name, self._endpoint, self._transport, owns_transport=False)

    def __repr__(self) -> str:
        return f"ProviderModel({self._name!r}, dialect={self.dialect!r}, base_url={self.base_url!r})"

    async def answer(self, ask: Ask) -> Answer:
        """Returns the whole answer. Raises ProviderError; cancelling it closes the connection.

        `ask.timeout_seconds`, else the endpoint's, bounds all tries and the waits between them.
        """
        call = _Call(self._endpoint.pace.now())

        async def attempt(left: float | None) -> Answer:
            return await self._try_adapted(ask, lambda body: self._answer_once(body, left, call))

        seconds = ask.timeout_seconds or self._endpoint.timeout_seconds
        with self._caller.hiding_key(), call.count_requests():
            answer = await self._retry(attempt, seconds, ask)
        return call.close(answer, ask, self._endpoint.pace.now())

    async def stream(self, ask: Ask) -> AsyncGenerator[Event, None]:
        """Yields the answer as it comes, closed by `Answered`. Raises ProviderError.

        It is tried again only while nothing of it has been passed on. Closing the generator (`aclose`) closes
        the connection. `ask.timeout_seconds` bounds all of it; without it, a silence longer than the endpoint's
        timeout ends it.
        """
        call = _Call(self._endpoint.pace.now())

        async def attempt(left: float | None) -> tuple[Event, AsyncGenerator[Event, None]]:
            return await self._try_adapted(ask, lambda body: self._begin(body, left, call), stream=True)

        with self._caller.hiding_key(), call.count_requests():
            event, rest = await self._retry(attempt, ask.timeout_seconds, ask)
        async with contextlib.aclosing(rest):
            while not isinstance(event, Answered):
                yield event
                with self._caller.hiding_key():
                    event = await anext(rest)
        yield Answered(call.close(event.answer, ask, self._endpoint.pace.now()))

    async def count_tokens(self, ask: Ask) -> int | None:
        """Returns the tokens of a request as the provider counts them, or None if it has no route for that."""
        if self.dialect != "anthropic":
            return None
        body = encode_body(anthropic.counting_body(ask, self._name, self._quirks))
        counted = await self._fetch(self._route(f"{anthropic.PATH}/count_tokens"), body, ask.timeout_seconds)
        tokens = counted.get("input_tokens")
        if not isinstance(tokens, int):
            raise malformed_answer("it holds no `input_tokens`")
        return tokens

    async def models(self) -> tuple[listing.ModelListing, ...]:
        """Returns the models that the provider lists."""
        path = "/models?limit=1000" if self.dialect == "anthropic" else "/models"
        body = await self._fetch(self._route(path))
        found = listing.listings_from_body(body)
        for _ in range(_MOST_PAGES):
            last = listing.next_page(body)
            if last is None:
                break
            body = await self._fetch(self._route(f"{path}&after_id={quote(last, safe='')}"))
            found += listing.listings_from_body(body)
        return found

    async def window_tokens(self) -> int | None:
        """Returns the window that the provider states for this model; None if it states none or has no list.

        Raises ProviderError if it cannot be reached or does not let us in.
        """
        listed = await _or_none(self.models())
        entry = listing.entry_of(self._name, listed or ())
        server = self._endpoint.server or (entry.owner if entry else "")
        own = listing.OWN_ROUTES.get(server)
        if own is None:
            return entry.window_tokens if entry else None
        body = await _or_none(self._fetch(self._endpoint.address.server_url(own.route)))
        return own.window(body or {}, self._name, entry)

    async def aclose(self) -> None:
        """Closes the connections, unless the transport belongs to the caller."""
        if self._owns_transport:
            await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _route(self, route: str) -> str:
        return self._endpoint.address.url(route)

    async def _fetch(
        self, url: str, body: bytes | None = None, seconds: float | None = None
    ) -> dict[str, Any]:
        seconds = seconds or self._endpoint.timeout_seconds
        return await self._retry(lambda left: self._caller.fetch(url, body, left), seconds)

    async def _retry(
        self,
        attempt: Callable[[float | None], Awaitable[_T]],
        seconds: float | None,
        ask: Ask | None = None,
    ) -> _T:
        policy, pace = self._endpoint.policy, self._endpoint.pace
        if ask is None:
            return await retry(attempt, policy=policy, pace=pace, timeout_seconds=seconds)
        if ask.most_requests is not None:
            policy = msgspec.structs.replace(policy, tries=max(1, min(policy.tries, ask.most_requests)))
        return await retry(attempt, policy=policy, pace=pace, timeout_seconds=seconds, on_wait=ask.on_wait)

    async def _try_adapted(
        self, ask: Ask, attempt: Callable[[bytes], Awaitable[_T]], *, stream: bool = False
    ) -> _T:
        """Tries once; if the server refuses a field by its name, tries again without it, and remembers that."""
        tried = {self._quirks}
        while True:
            quirks = self._quirks
            body = self._dialect.request_body(ask, self._name, quirks, stream=stream)
            try:
                return await attempt(encode_body(body))
            except ProviderError as error:
                changed = adapt_quirks(quirks, frozenset(body), error.failure)
                if changed is None or changed in tried:
                    raise
            tried.add(changed)
            self._quirks = changed

    async def _answer_once(self, body: bytes, left: float | None, call: _Call) -> Answer:
        call.requests += 1
        async with self._caller.open(self._url, body, TimeLimits(total_seconds=left)) as reply:
            return self._whole_answer(await reply.read(), reply)

    async def _begin(
        self, body: bytes, left: float | None, call: _Call
    ) -> tuple[Event, AsyncGenerator[Event, None]]:
        """Begins a stream and returns it with its first event: up to there nothing has been passed on and it can be tried again."""
        call.requests += 1
        events = self._events(
            body, TimeLimits(total_seconds=left, read_seconds=self._endpoint.timeout_seconds)
        )
        return await anext(events), events

    async def _events(self, body: bytes, limits: TimeLimits) -> AsyncGenerator[Event, None]:
        async with self._caller.open(self._url, body, limits) as reply:
            if reply.headers.get("content-type", "").startswith(_WHOLE):
                answer = self._whole_answer(await reply.read(), reply)  # a server that does not stream
                for event in _as_events(answer):
                    yield event
                return
            gathered = self._dialect.accumulator()
            async with contextlib.aclosing(_server_events(reply)) as server_events:
                async for server_event in server_events:
                    for event in gathered.take(server_event):
                        yield event
                    if gathered.finished:
                        break
            yield Answered(_identify(gathered.answer(), reply))

    def _whole_answer(self, data: bytes, reply: OpenReply) -> Answer:
        return _identify(self._dialect.answer_from_body(parse_body(data, reply.status)), reply)


class _Call:
    """The requests and the time that one call of a model has taken so far."""

    def __init__(self, started: float) -> None:
        self._started = started
        self.requests = 0

    @contextlib.contextmanager
    def count_requests(self) -> Iterator[None]:
        """Tells a failure how many requests led to it."""
        try:
            yield
        except ProviderError as error:
            error.requests = self.requests
            raise

    def close(self, answer: Answer, ask: Ask, now: float) -> Answer:
        """Returns the answer with what it took. One that stops right at its cap was cut, whatever the server says."""
        cut = answer.finish is Finish.STOP and answer.usage.output_tokens == ask.max_output_tokens
        return msgspec.structs.replace(
            answer,
            finish=Finish.LENGTH if cut else answer.finish,
            requests=self.requests,
            seconds=now - self._started,
        )


async def _server_events(reply: OpenReply) -> AsyncGenerator[ServerEvent, None]:
    parser = EventParser()
    try:
        async with contextlib.aclosing(reply.chunks()) as chunks:
            async for data in chunks:
                for event in parser.feed(data):
                    yield event
    except OversizedEvent as error:
        raise malformed_answer(str(error), status=reply.status) from None
    for event in parser.close():
        yield event


def _as_events(answer: Answer) -> list[Event]:
    """Returns a whole answer as a stream of few, large events."""
    events: list[Event] = [ReasoningDelta(answer.reasoning)] if answer.reasoning else []
    events += [TextDelta(answer.text)] if answer.text else []
    events += [CallDelta(call.id, call.name, call.arguments) for call in answer.calls]
    return [*events, Answered(answer)]


async def _or_none(asked: Awaitable[_T]) -> _T | None:
    """Returns the answer, or None if the server says that it has no such route or model."""
    try:
        return await asked
    except ProviderError as error:
        if error.failure.status in {400, 404, 405, 501} or error.failure.code == "malformed_answer":
            return None
        raise


def _identify(answer: Answer, reply: OpenReply) -> Answer:
    found = (reply.headers[name] for name in _REQUEST_IDS if name in reply.headers)
    return msgspec.structs.replace(answer, request_id=next(found, ""))
