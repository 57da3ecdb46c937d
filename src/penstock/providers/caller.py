"""Requests to one endpoint: the right address and headers, and every refusal as a ProviderError."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from penstock.config import SecretText
from penstock.errors import ErrorClass, ErrorKind, ProviderError
from penstock.providers.anthropic import VERSION
from penstock.providers.bodies import parse_body, provider_error
from penstock.providers.classify import classify_error
from penstock.providers.http import HttpRequest, TimeLimits, host_of
from penstock.providers.retries import DEFAULT_POLICY, Pace, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from penstock.providers.address import Address
    from penstock.providers.http import OpenReply, Transport

__all__ = ["Endpoint", "EndpointCaller"]

_HIDDEN = "[REDACTED]"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a model and the headers of requests to it.

    `key_variable` is the variable that held the key, for error texts. `server` names the kind of server if its own
    routes tell more ("llamacpp", "lmstudio", "ollama"). `timeout_seconds` bounds an answer with all its
    retries; in a stream, the silence between two pieces.
    """

    dialect: str
    address: Address
    key: SecretText | None = None
    key_variable: str = ""
    key_header: str = ""
    server: str = ""
    timeout_seconds: float = 120.0
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    policy: RetryPolicy = DEFAULT_POLICY
    pace: Pace = Pace()


class EndpointCaller:
    """Sends requests to an endpoint, one at a time and once each: neither retries nor dialects are known here."""

    def __init__(self, endpoint: Endpoint, transport: Transport) -> None:
        self._endpoint = endpoint
        self._transport = transport
        self._headers = _headers(endpoint)

    @contextlib.asynccontextmanager
    async def open(
        self, url: str, body: bytes | None = None, limits: TimeLimits | None = None
    ) -> AsyncIterator[OpenReply]:
        """Opens a successful reply whose body is still to be read. Raises ProviderError for any other reply."""
        request = HttpRequest(url=url, headers=self._headers, body=body)
        async with self._transport.open(request, limits) as reply:
            if not 200 <= reply.status < 300:
                raise await self._refusal(reply, host_of(url))
            yield reply

    async def fetch(
        self, url: str, body: bytes | None = None, seconds: float | None = None
    ) -> dict[str, Any]:
        """Returns the JSON object that a route answers with. Raises ProviderError."""
        limits = TimeLimits(total_seconds=self._endpoint.timeout_seconds if seconds is None else seconds)
        with self.hiding_key():
            async with self.open(url, body, limits) as reply:
                return parse_body(await reply.read(), reply.status)

    @contextlib.contextmanager
    def hiding_key(self) -> Iterator[None]:
        """Takes the key out of errors: a server that is asked with it may quote it."""
        try:
            yield
        except ProviderError as error:
            key = self._endpoint.key
            if key is None or key.reveal() not in f"{error}{error.failure}":
                raise
            cleaned = _without(error, key.reveal())
            raise cleaned from None

    async def _refusal(self, reply: OpenReply, host: str) -> ProviderError:
        if 300 <= reply.status < 400:
            return _refuse_redirect(reply, host)
        failure = classify_error(reply.status, await reply.read(), reply.headers)
        error = provider_error(failure, host)
        if failure.kind is not ErrorKind.AUTH:
            return error
        return ProviderError(f"{str(error).rstrip('.')}; {self._about_key()}", failure=failure)

    def _about_key(self) -> str:
        if self._endpoint.key is None:
            return "no key was sent: name the variable that holds it (--api-key-env, api_key_env)"
        return f"check the key in {self._endpoint.key_variable or 'the variable that it came from'}"


def _headers(endpoint: Endpoint) -> dict[str, str | SecretText]:
    headers: dict[str, str | SecretText] = {
        "content-type": "application/json",
        "user-agent": "penstock",
    }
    anthropic = endpoint.dialect == "anthropic"
    if anthropic:
        headers["anthropic-version"] = VERSION
    if endpoint.key is not None:
        name = endpoint.key_header or ("x-api-key" if anthropic else "authorization")
        headers[name] = _bearer(endpoint.key) if name == "authorization" else endpoint.key
    return headers | {name.lower(): value for name, value in endpoint.headers.items()}


def _bearer(key: SecretText) -> SecretText:
    return SecretText(f"Bearer {key.reveal()}")


def _refuse_redirect(reply: OpenReply, host: str) -> ProviderError:
    """A redirect is not followed: the key would go along to wherever it leads."""
    target = urlsplit(reply.headers.get("location", "")).hostname
    text = (
        f"{host} answered {reply.status} and sends us to {target or 'another address'}; use that as base URL"
    )
    failure = ErrorClass(kind=ErrorKind.BAD_REQUEST, status=reply.status, code="redirect", message=text)
    return ProviderError(text, failure=failure)


def _without(error: ProviderError, key: str) -> ProviderError:
    failure = error.failure._replace(
        code=error.failure.code.replace(key, _HIDDEN),
        message=error.failure.message.replace(key, _HIDDEN),
    )
    return ProviderError(str(error).replace(key, _HIDDEN), failure=failure, requests=error.requests)
