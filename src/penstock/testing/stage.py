"""Shared by the scripted model and the scripted provider: record a request, check it, give its reply."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from penstock.errors import ErrorKind
from penstock.measure.tokens import tokenizer_named
from penstock.measure.usage import Usage
from penstock.testing.provider_wire.served import Served
from penstock.testing.request_reading import RequestReading, read_request
from penstock.testing.scripted import Breach, Failure, Received, Reply, Script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.measure.tokens import Tokenizer
    from penstock.testing.prompt_cache import PromptCache
    from penstock.testing.scripted import Headers, Replies

__all__ = ["Choices", "Options", "Stage"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a scripted model or provider, beside its script.

    `window_tokens` refuses prompts that do not fit, `api_key` those that come with another key or none.
    `prompt_cache` reports what a provider would have read from its cache. `check` refuses what breaks the
    rules of the dialect; every breach is on record either way. Tokens are counted with `tokenizer`, and `token_factor`
    times as many are reported and held against the window: no two providers count alike.
    """

    repeat_last: bool = False
    window_tokens: int | None = None
    api_key: str | None = None
    prompt_cache: PromptCache | None = None
    check: bool = True
    tokenizer: str = "o200k_base"
    token_factor: float = 1.0
    models: tuple[str, ...] = ("scripted-model",)


class Choices(TypedDict, total=False):
    """The fields of `Options` as keyword arguments."""

    repeat_last: bool
    window_tokens: int | None
    api_key: str | None
    prompt_cache: PromptCache | None
    check: bool
    tokenizer: str
    token_factor: float
    models: tuple[str, ...]


class Stage:
    """Keeps the script, what was asked and what was wrong with it. May be read from other threads."""

    def __init__(self, replies: Replies, options: Options) -> None:
        self.options = options
        self._script = Script(replies, repeat_last=options.repeat_last)
        self._tokenizer: Tokenizer = tokenizer_named(options.tokenizer)
        self._received: list[Received] = []
        self._violations: list[Breach] = []
        self._lock = threading.RLock()  # a function that is the script may look at what was received

    @property
    def received(self) -> tuple[Received, ...]:
        """Every request so far."""
        with self._lock:
            return tuple(self._received)

    @property
    def violations(self) -> tuple[Breach, ...]:
        """Everything that was wrong with the requests so far."""
        with self._lock:
            return tuple(self._violations)

    @property
    def disconnects(self) -> int:
        """The number of clients that went away before their answer ended."""
        return sum(received.disconnected for received in self.received)

    def receive(
        self, dialect: str, path: str, raw: bytes, body: Any, headers: Headers
    ) -> tuple[Received, RequestReading]:
        """Records a request and reads it. A body that is not an object counts as an empty one."""
        fields: Mapping[str, Any] = body if isinstance(body, dict) else {}
        with self._lock:
            received = Received(
                number=len(self._received) + 1,
                dialect=dialect,
                path=path,
                body=fields,
                raw=raw,
                headers=headers,
                streaming=fields.get("stream") is True,
            )
            reading = read_request(received, self._tokenizer).scale(self.options.token_factor)
            received = msgspec.structs.replace(received, prompt_tokens=reading.prompt_tokens)
            self._received.append(received)
            self._violations += [Breach(received.number, fault.rule, fault.text) for fault in reading.faults]
        return received, reading

    def note(self, number: int, rule: str, text: str) -> None:
        """Records that something was wrong with request `number`."""
        with self._lock:
            self._violations.append(Breach(number, rule, text))

    def left(self, number: int) -> None:
        """Records that the client of request `number` went away before its answer ended."""
        with self._lock:
            index = number - 1
            self._received[index] = msgspec.structs.replace(self._received[index], disconnected=True)

    def refuse(self, received: Received, reading: RequestReading) -> Failure | None:
        """Returns the error with which a provider would refuse this request, in the order in which it would notice, or None."""
        options = self.options
        if options.api_key is not None and _key(received.headers) != options.api_key:
            return Failure(kind=ErrorKind.AUTH)
        if options.check and reading.faults:
            return Failure(message="; ".join(fault.text for fault in reading.faults[:3]))
        window, prompt = options.window_tokens, reading.prompt_tokens
        if window is None:
            return None
        if prompt > window:
            return Failure(kind=ErrorKind.PROMPT_TOO_LONG, window_tokens=window, prompt_tokens=prompt)
        asked = received.max_output_tokens or 0
        if prompt + asked > window:
            return Failure(
                kind=ErrorKind.OUTPUT_CAP_TOO_LARGE,
                window_tokens=window,
                prompt_tokens=prompt,
                output_tokens=asked,
            )
        return None

    def reply(self, received: Received) -> Reply:
        """Returns the script's reply. If it has none the breach is on record and AssertionError is raised."""
        try:
            with self._lock:
                return self._script.next(received)
        except AssertionError as error:
            self.note(received.number, "script", str(error))
            raise

    def serve(self, received: Received, reading: RequestReading, reply: Reply) -> Served:
        """Returns the reply with all that the request decides about it."""
        usage = reply.usage or self._usage(received, reading, reply)
        options = received.body.get("stream_options")
        return Served(
            reply=reply,
            number=received.number,
            model=received.model,
            usage=usage,
            include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        )

    def _usage(self, received: Received, reading: RequestReading, reply: Reply) -> Usage:
        count = self._tokenizer.count
        reasoning = count(reply.reasoning)
        spoken = count(reply.text) + sum(count(call.name) + count(call.arguments) for call in reply.calls)
        usage = Usage(
            input_tokens=reading.prompt_tokens, output_tokens=spoken + reasoning, reasoning_tokens=reasoning
        )
        cache = self.options.prompt_cache
        return usage if cache is None else cache.split(usage, received, reading.weights)


def _key(headers: Mapping[str, str]) -> str:
    own = headers.get("x-api-key") or headers.get("api-key")
    return own or headers.get("authorization", "").removeprefix("Bearer ")
