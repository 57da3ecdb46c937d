"""A model that answers from a script, in the same process: no server, no network.

    model = ScriptedModel(["A summary.", Reply.rate_limited(retry_after=1)])

It keeps to what the real clients do: failures are ProviderErrors, delays are waited for, cancelling ends it, and a
conversation that its API would refuse is refused.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Unpack

from penstock.conversation.wire import encode_wire, parse_json
from penstock.errors import ErrorClass, ErrorKind, ProviderError
from penstock.providers import anthropic, chat, responses
from penstock.providers.bodies import encode_body, provider_error
from penstock.providers.classify import classify_error
from penstock.providers.exchange import Answer, Answered, CallDelta, ReasoningDelta, TextDelta
from penstock.providers.failures import malformed_answer
from penstock.providers.quirks import Quirks
from penstock.testing.provider_wire import wire_named
from penstock.testing.provider_wire.served import pieces
from penstock.testing.scripted import Headers
from penstock.testing.stage import Choices, Options, Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from penstock.providers.exchange import Ask, Event
    from penstock.testing.provider_wire.served import Served
    from penstock.testing.request_reading import RequestReading
    from penstock.testing.scripted import Breach, Failure, RawBody, Received, Replies

__all__ = ["ScriptedModel"]

_BODIES = {
    "chat": chat.request_body,
    "responses": responses.request_body,
    "anthropic": anthropic.request_body,
}


class ScriptedModel:
    """Answers from a script. `dialect` is "chat", "responses" or "anthropic"; `options` are those of `Options`.

    Where the script has no reply, or a function that is the script asserts something, AssertionError is raised:
    it is the test that fails then, not the provider.
    """

    def __init__(
        self,
        replies: Replies,
        *,
        name: str = "scripted-model",
        dialect: str = "chat",
        **options: Unpack[Choices],
    ) -> None:
        self._stage = Stage(replies, Options(**options))
        self._name = name
        self._dialect = dialect

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    @property
    def dialect(self) -> str:
        """The dialect of its requests and answers."""
        return self._dialect

    @property
    def received(self) -> tuple[Received, ...]:
        """Every request so far, with the body that a client would have sent."""
        return self._stage.received

    @property
    def violations(self) -> tuple[Breach, ...]:
        """Everything that a provider would have refused, and every request that the script had no reply for."""
        return self._stage.violations

    @property
    def disconnects(self) -> int:
        """The number of requests that were cancelled, or streams left, before their answer ended."""
        return self._stage.disconnects

    async def answer(self, ask: Ask) -> Answer:
        """Returns the whole answer. Raises ProviderError."""
        watch = _Watch(ask.timeout_seconds)
        received, reading = self._receive(ask, streaming=False)
        try:
            served = await self._serve(received, reading, watch)
        except asyncio.CancelledError:
            self._stage.left(received.number)
            raise
        if served.reply.cut_after_chunks is not None:
            raise _broken_off()
        return self._answer(served, watch)

    async def stream(self, ask: Ask) -> AsyncIterator[Event]:
        """Yields the answer bit by bit, closed by `Answered`. Raises ProviderError.

        A cut counts the events that come out here, of which there are fewer than on the wire.
        """
        watch = _Watch(ask.timeout_seconds)
        received, reading = self._receive(ask, streaming=True)
        try:
            served = await self._serve(received, reading, watch)
            reply = served.reply
            for number, event in enumerate(_deltas(served)):
                if number == reply.cut_after_chunks:
                    break
                if number:
                    await watch.pause(reply.chunk_delay_seconds)
                yield event
        except (asyncio.CancelledError, GeneratorExit):
            self._stage.left(received.number)
            raise
        if reply.stream_failure is not None:
            raise self._error(reply.stream_failure, received)
        if reply.cut_after_chunks is not None:
            raise _broken_off()
        yield Answered(self._answer(served, watch))

    def _receive(self, ask: Ask, *, streaming: bool) -> tuple[Received, RequestReading]:
        body = _BODIES[self._dialect](ask, self._name, Quirks(), stream=streaming)
        raw = encode_body(body)
        return self._stage.receive(self._dialect, "", raw, parse_json(raw), Headers())

    async def _serve(self, received: Received, reading: RequestReading, watch: _Watch) -> Served:
        """Returns the reply, waited for. Raises ProviderError if it is a failure."""
        failure = self._stage.refuse(received, reading)
        if failure is not None:
            raise self._error(failure, received)
        reply = self._stage.reply(received)
        await watch.pause(reply.delay_seconds)
        if reply.failure is not None:
            raise self._error(reply.failure, received)
        if reply.raw is not None:
            raise _unreadable(reply.raw)
        return self._stage.serve(received, reading, reply)

    def _answer(self, served: Served, watch: _Watch) -> Answer:
        return Answer(
            text=served.reply.text,
            finish=served.reply.finished,
            usage=served.usage,
            wires=wire_named(self._dialect).wires(served),
            calls=served.calls,
            reasoning=served.reply.reasoning,
            model=served.model,
            request_id=f"req_scripted{served.number:04}",
            seconds=watch.seconds,
        )

    def _error(self, failure: Failure, received: Received) -> ProviderError:
        told = failure.answer(self._dialect, received.number)
        return _classify(told.status, told.body, told.headers)


class _Watch:
    """The time that a request takes, and the end of the caller's patience."""

    def __init__(self, timeout_seconds: float | None) -> None:
        self._started = time.monotonic()
        self._timeout_seconds = timeout_seconds

    @property
    def seconds(self) -> float:
        """Seconds since the request began."""
        return time.monotonic() - self._started

    async def pause(self, seconds: float) -> None:
        """Waits, but no longer than the request may take. Raises ProviderError if that is too short."""
        if seconds <= 0:
            return
        patience = self._timeout_seconds
        if patience is None or self.seconds + seconds <= patience:
            await asyncio.sleep(seconds)
            return
        await asyncio.sleep(max(0.0, patience - self.seconds))
        text = f"no answer within {patience:g} seconds"
        raise ProviderError(text, failure=ErrorClass(kind=ErrorKind.TIMEOUT, code="timeout", message=text))


def _deltas(served: Served) -> Iterator[Event]:
    reply = served.reply
    yield from (ReasoningDelta(piece) for piece in pieces(reply.reasoning, served))
    yield from (TextDelta(piece) for piece in pieces(reply.text, served))
    for call in served.calls:
        yield CallDelta(call.id, call.name, "")
        yield from (CallDelta(call.id, "", piece) for piece in pieces(call.arguments, served))


def _classify(status: int, body: Any, headers: Mapping[str, str]) -> ProviderError:
    read = body if isinstance(body, str | bytes | dict) else encode_wire(body)
    return provider_error(classify_error(status, read, headers), "the scripted model")


def _broken_off() -> ProviderError:
    text = "the connection was closed before the answer was complete"
    return ProviderError(text, failure=ErrorClass(kind=ErrorKind.NETWORK, code="cut_off", message=text))


def _unreadable(raw: RawBody) -> ProviderError:
    if raw.status >= 400:
        return _classify(raw.status, raw.body, {"content-type": raw.content_type})
    return malformed_answer(f"{raw.content_type} of {len(raw.body)} bytes", status=raw.status)
